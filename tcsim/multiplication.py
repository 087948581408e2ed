"""A whole GEMM, bit for bit: one tensor-core instruction applied block after block along K."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.catalog import instruction as find_instruction
from tcsim.core.arguments import broadcast, integers
from tcsim.core.errors import InstructionError, OperandError
from tcsim.engines.choice import multiply
from tcsim.engines.contract import Engine, Matrices, Work
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.instruction import Instruction
from tcsim.numbers.codec import as_codes, as_scale_codes, negated
from tcsim.numbers.formats import Format

if TYPE_CHECKING:
    from tcsim.descriptors.instruction import InstructionDescriptor

Codes = npt.NDArray[Any]


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    instruction: Any,
    arch: str = "sm_90",
    k_order: Sequence[int] | None = None,
    idesc: int | InstructionDescriptor | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    metadata: Any = None,
    engine: str | Engine | None = None,
) -> Codes:
    """d = a b + c as a kernel computes it that feeds each result of an instruction to the next as its accumulator.

    a: codes (..., M, K); b: codes (..., K, N); c: codes (..., M, N), or None for zeros; the result (..., M, N) in the
    instruction's D format. Leading dimensions broadcast. M, N and K need not be multiples of the instruction's shape:
    the ends are zero products, as kernels make them. instruction: a mnemonic of a multiply, or what `tcsim.instruction`
    gives. k_order: the blocks of the instruction's K in the order they are accumulated; ascending if
    None. How rows and columns are cut into tiles does not matter: no output depends on another's operands.

    idesc: the instruction descriptor of a tcgen05.mma, which says its formats and its K; its M and N do not matter here,
    nor do its places of scale factors. Block-scaled instructions need scale_a (..., M, blocks) and scale_b (..., blocks, N):
    codes of the scale factors of all of K, the last block perhaps cut short.

    metadata: of mma.sp and wgmma.mma_async.sp, whose a holds the kept elements (..., M, kept): the position of each in its
    group, as `Sparsity.compress_matrix` gives both. kept is half of K, rounded up to whole groups.

    engine: "numpy", "numba", "gpu" or another that is installed; None: chosen by the size of the work. The bits are the same.

    Raises OperandError for other shapes, operands that the instruction does not take or that are missing, a k_order that is not a permutation,
    positions that metadata cannot say, or several blocks where D cannot be an accumulator, FormatError for another dtype,
    InstructionError for an instruction that multiplies no matrices, or by rows that are not its own (.ashift), EngineError for an
    engine that cannot be used.

    >>> a, b = np.ones((20, 40), np.float16), np.ones((40, 10), np.float16)
    >>> d = tcsim.gemm(a, b, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> d.shape, float(tcsim.decode(d, "f32")[19, 9])
    ((20, 10), 40.0)
    >>> idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=256)
    >>> d = tcsim.gemm(a, b, instruction="tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a", idesc=idesc)
    >>> float(tcsim.decode(d, "f32")[19, 9])
    40.0
    >>> mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> kept, positions = mma.sparsity.compress_matrix(np.tile(np.float16([0, 2, 0, 3]), (20, 10)), "f16")
    >>> d = tcsim.gemm(kept, b, metadata=positions, instruction=mma)
    >>> kept.shape, float(tcsim.decode(d, "f32")[19, 9])
    ((20, 20), 50.0)
    """
    found = find_instruction(instruction, arch=arch) if isinstance(instruction, str) else instruction
    call = f"tcsim.gemm with {found!r}"
    work = _chained(found, idesc, call)
    codes = {name: as_codes(x, work.formats[name], f"{call}: {name}") for name, x in (("a", a), ("b", b))}
    if codes["a"].ndim < 2 or codes["b"].ndim < 2 or codes["a"].shape[-1] != work.width(codes["b"].shape[-2]):
        shapes, of_a = f"a is {codes['a'].shape} and b {codes['b'].shape}", "(..., M, K)"
        if work.sparsity is not None:
            of_a = f"(..., M, kept), for each {work.sparsity.group} rows of b {work.sparsity.group // 2} kept elements of a,"
        raise OperandError(f"{call}: {shapes}; valid: {of_a} and (..., K, N)")
    m, (k, n) = codes["a"].shape[-2], codes["b"].shape[-2:]
    codes["c"] = (
        np.broadcast_to(np.zeros((), work.formats["c"].dtype), (m, n))
        if c is None
        else as_codes(c, work.formats["c"], f"{call}: c")
    )
    if codes["c"].shape[-2:] != (m, n):
        raise OperandError(f"{call}: c is {codes['c'].shape}; valid: (..., {m}, {n})")
    codes |= _scales_of(work, {"scale_a": scale_a, "scale_b": scale_b}, (m, n, k), call)
    codes |= _columns_of(work, metadata, codes["a"].shape, call)
    order = _order(k_order, -(-k // work.shape[2]), call)
    if len(order) != 1 and work.formats["c"].dtype != work.formats["d"].dtype:
        raise OperandError(
            f"{call}: its result ({work.formats['d'].name}) cannot be its accumulator ({work.formats['c'].name}); "
            f"valid: K from 1 to {work.shape[2]}"
        )
    codes = {name: work.negated(name, x) for name, x in codes.items()}
    batch = broadcast([x.shape[:-2] for x in codes.values()], call)
    count = prod(batch)  # not -1: M, N or K may be 0
    flat = {
        name: np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(count, *x.shape[-2:]) for name, x in codes.items()
    }
    d = multiply(work.work, _padded(work, flat), order, engine)
    return d.reshape(*batch, m, n)


@dataclass(frozen=True)
class Machine:
    """What an instruction that multiplies matrices does in one step of a product, whichever family it is of."""

    instruction: Instruction
    shape: tuple[int, int, int]  # M, N, K
    kept: int  # elements of A's K that one step takes: half of K if A is sparse
    formats: dict[str, Format]  # of a, b, c, d, and of the scales under "scale" if there are any
    lowering: Lowering
    sparsity: Sparsity | None = None
    blocks: int = 0  # scale factors of a row in one step; 0: no block scaling
    descriptor: InstructionDescriptor | None = None  # of tcgen05.mma

    @property
    def block(self) -> int:
        """Elements of the dense K that share a scale factor; 0: none do."""
        return self.shape[2] // self.blocks if self.blocks else 0

    def width(self, k: int) -> int:
        """Elements of a row of A for K of B."""
        return k if self.sparsity is None else -(-k // self.sparsity.group) * self.sparsity.group // 2

    def negated(self, name: str, codes: Codes) -> Codes:
        """The codes of an operand as they are multiplied: those of a and b negated if the descriptor says so."""
        return negated(codes, self.formats[name]) if getattr(self.descriptor, f"negate_{name}", False) else codes

    @property
    def work(self) -> Work:
        """What an engine is asked to compute."""
        found: Work = self.instruction.work if self.descriptor is None else self.instruction.work(self.descriptor)
        return found


def machine_of(instruction: Any, call: str, idesc: Any = None) -> Machine:
    """The machine behind an instruction.

    Raises InstructionError for an instruction that does not multiply matrices, OperandError for an idesc that is missing, does
    not fit, or is not an operand.
    """
    if hasattr(instruction, "descriptor"):  # tcgen05.mma
        if idesc is None:
            raise OperandError(f"{call}: idesc is missing; valid: a tcsim.InstructionDescriptor, or its 32 bits")
        desc = instruction.descriptor(idesc)
        shapes, formats, shape = instruction.shapes(desc), instruction.formats(desc), (desc.m, desc.n, desc.k)
        sparsity = instruction.sparsity(desc) if "metadata" in shapes else None
        blocks = shapes["scale_a"][1] if "scale_a" in shapes else 0
        lowering = instruction.lowering_for(desc)
        return Machine(instruction, shape, shapes["a"][1], formats, lowering, sparsity, blocks, desc)
    if idesc is not None:
        raise OperandError(f"{call}: idesc is not an operand of {instruction!r}; valid: tcgen05.mma")
    if not hasattr(instruction, "matmul"):
        raise InstructionError(f"{call}: it multiplies no matrices; valid: mma, wmma.mma, wgmma and tcgen05.mma")
    formats = {**instruction.formats, "d": instruction.operands["d"].format}
    blocks = 0
    if instruction.scale_formats:
        blocks, formats["scale"] = instruction.blocks, instruction.scale_formats["scale_a"]
    kept, sparsity = instruction.operands["a"].shape[1], getattr(instruction, "sparsity", None)
    return Machine(instruction, instruction.shape, kept, formats, instruction.lowering, sparsity, blocks)


def _chained(found: Any, idesc: Any, call: str) -> Machine:
    """The machine of an instruction that makes a GEMM step by step. Raises as `gemm` does."""
    described = hasattr(found, "descriptor")  # tcgen05.mma
    if described and found.row.ashift:
        raise InstructionError(f"{call}: .ashift takes rows of A that other rows of D belong to; valid: without it")
    if described and found.row.lookup:
        raise InstructionError(f"{call}: B is made of indices and tables; valid: without .decompress::lut::b")
    if found.row.sparse if described else hasattr(found, "sparsity") and found.scale_formats:
        raise InstructionError(
            f"{call}: its A is sparse; valid: mma.sp and wgmma.mma_async.sp without scale factors, or instructions of a dense A"
        )
    return machine_of(found, call, idesc)


def _columns_of(work: Machine, metadata: Any, shape: tuple[int, ...], call: str) -> dict[str, Codes]:
    """The row of B that each kept element meets, if A is sparse."""
    if (metadata is None) == (work.sparsity is not None):
        raise OperandError(f"{call}: metadata is {'missing' if metadata is None else 'not an operand of it'}")
    if work.sparsity is None:
        return {}
    positions = np.asarray(metadata)
    if positions.shape[-2:] != shape[-2:] or positions.dtype.kind not in "iu":
        raise OperandError(
            f"{call}: metadata is {positions.dtype} {positions.shape}; valid: integers, the position of every element of a in "
            f"its group, (..., {shape[-2]}, {shape[-1]})"
        )
    whole = replace(work.sparsity, rows=shape[-2], k=2 * shape[-1])
    try:
        whole.groups_for(positions)  # are they what metadata can say?
    except OperandError as error:
        raise OperandError(f"{call}: {error}") from None
    return {"columns": whole.columns(positions.astype(np.int64))}


def _scales_of(work: Machine, given: dict[str, Any], sizes: tuple[int, int, int], call: str) -> dict[str, Codes]:
    """The factors, if the instruction takes any."""
    found = {}
    m, n, k = sizes
    for name, value in given.items():
        if (value is None) == bool(work.block):
            raise OperandError(f"{call}: {name} is {'missing' if value is None else 'not an operand of it'}")
        if value is None:
            continue
        codes = as_scale_codes(value, work.formats["scale"], f"{call}: {name}")
        blocks = -(-k // work.block)
        wanted = (m, blocks) if name == "scale_a" else (blocks, n)
        if codes.shape[-2:] != wanted:
            raise OperandError(f"{call}: {name} is {codes.shape}; valid: (..., {wanted[0]}, {wanted[1]})")
        found[name] = codes
    return found


def _order(k_order: Sequence[int] | None, blocks: int, call: str) -> list[int]:
    if k_order is None:
        return list(range(blocks))
    order = integers(k_order, f"{call}: k_order").reshape(-1).tolist()
    if sorted(order) != list(range(blocks)):
        raise OperandError(f"{call}: k_order={order}; valid: each of the blocks 0 to {blocks - 1} once")
    return order


def _padded(work: Machine, codes: dict[str, Codes]) -> Matrices:
    """The operands (count, ...) with zeros up to a whole number of instructions along K."""
    padded = dict(codes)
    depth = -(-codes["b"].shape[1] // work.shape[2]) * work.shape[2]
    padded["a"] = _longer(codes["a"], 2, work.width(depth))
    padded["b"] = _longer(codes["b"], 1, depth)
    if work.block:  # beyond the end of K any factor will do: the products are zeros
        padded["scale_a"] = _longer(codes["scale_a"], 2, depth // work.block)
        padded["scale_b"] = _longer(codes["scale_b"], 1, depth // work.block)
    if work.sparsity is not None:  # beyond the end of K each kept zero meets a row beyond the end
        count, m, width = padded["a"].shape
        own = replace(work.sparsity, rows=m, k=2 * width).columns(np.zeros((m, width), np.int64))
        given = codes["columns"].shape[2]
        beyond = np.broadcast_to(own[:, given:], (count, m, width - given))
        met = np.concatenate([codes["columns"], beyond], axis=2)
        padded["columns"] = met - np.arange(width) // work.kept * work.shape[2]  # counted from the instruction's first
    return Matrices(**padded)


def _longer(codes: Codes, axis: int, size: int) -> Codes:
    """The codes with zeros at the end of an axis."""
    missing = [(0, size - length if place == axis else 0) for place, length in enumerate(codes.shape)]
    return np.pad(codes, missing) if codes.shape[axis] < size else codes
