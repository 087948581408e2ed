"""Where the codes of each output lie among the inputs of a call: rows of A, columns of B, C, scales.

Whose question: `trace`, `compare` and the examples they exchange as files. Which call the inputs are for is in `problems`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError, listing
from tcsim.inspection.problems import Arrays, Call, call_of
from tcsim.inspection.products import Codes, Products, formats_of
from tcsim.isa.mma.multiply import MatrixMultiply
from tcsim.isa.tcgen05.described import DescribedMultiply
from tcsim.isa.tcgen05.products import shifted
from tcsim.isa.wgmma.multiply import WarpgroupMultiply
from tcsim.layouts.sparsity import Sparsity
from tcsim.numbers.codec import as_codes, encode
from tcsim.numbers.formats import Format


@dataclass(frozen=True)
class Outputs:
    """The matrices of a call, with all leading dimensions, and what each kept element of a sparse A meets."""

    a: Codes  # (*batch, M, K), of a sparse A K / 2
    b: Codes  # (*batch, K, N)
    c: Codes  # (*batch, M, N)
    met: npt.NDArray[Any] | None  # (*batch, M, K / 2): rows of b
    scales: dict[str, Codes]  # scale_a (*batch, M, blocks), scale_b (*batch, blocks, N)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of D."""
        return self.c.shape

    def one(self, item: int, row: int, column: int) -> tuple[Codes, Codes, Codes, dict[str, Codes]]:
        """The codes of one output of an item of the batch: a (K), b (K), c, and the scales."""
        flat = {
            name: _items(x, 2)[item] for name, x in (("a", self.a), ("b", self.b), ("c", self.c), *self.scales.items())
        }
        met = flat["b"][:, column]
        if self.met is not None:
            met = met[_items(self.met, 2)[item][row]]
        scales = {"scale_a": flat["scale_a"][row], "scale_b": flat["scale_b"][:, column]} if self.scales else {}
        return flat["a"][row], met, flat["c"][row, column], scales

    def products(self) -> Products:
        """All outputs in order."""
        m, n = self.shape[-2:]
        k = self.a.shape[-1]
        a, columns, c = (
            _items(self.a, 2),
            _items(self.b, 2).swapaxes(-1, -2),
            _items(self.c, 2),
        )  # columns: (items, N, K)
        rows = np.broadcast_to(a[:, :, None, :], (len(a), m, n, k))
        if self.met is None:
            met = np.broadcast_to(columns[:, None], (len(a), m, n, k))
        else:
            where = np.broadcast_to(_items(self.met, 2)[:, :, None, :], (len(a), m, n, k))
            met = np.take_along_axis(np.broadcast_to(columns[:, None], (len(a), m, *columns.shape[1:])), where, -1)
        scales = {}
        if self.scales:
            of_a, of_b = _items(self.scales["scale_a"], 2), _items(self.scales["scale_b"], 2).swapaxes(-1, -2)
            shape = (len(a), m, n, of_a.shape[-1])
            scales["scale_a"] = np.broadcast_to(of_a[:, :, None, :], shape).reshape(-1, 1, shape[-1])
            scales["scale_b"] = np.broadcast_to(of_b[:, None], shape).reshape(-1, shape[-1], 1)
        return Products(rows.reshape(-1, 1, k), met.reshape(-1, k, 1), c.reshape(-1, 1, 1), scales)


def outputs_of(instruction: Any, arrays: Arrays, call: Call | None = None) -> Outputs:
    """The matrices behind all outputs of a call, as the instruction multiplies them.

    `instruction`: of tcgen05.mma what `described` gives. `.ashift` has moved the rows of A, and wgmma's signs are negated.

    Raises OperandError for inputs that are missing or of another shape, FormatError for another dtype.
    """
    chosen = call or call_of(instruction, arrays)
    scaled = bool(getattr(instruction, "scale_formats", {}))
    needed = ("a", "b", "c", *(("scale_a", "scale_b") if scaled else ()))
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise OperandError(f"{instruction!r}: {listing(missing)} is missing; valid: {', '.join(needed)}")
    found: dict[str, Codes] = dict(zip("abc", _matrices(instruction, arrays, chosen), strict=True))
    sparsity = _sparsity(instruction)
    if sparsity is not None:
        found["met"] = sparsity.columns(_positions(instruction, arrays, chosen))
    if scaled:
        found |= _scales(instruction, arrays, chosen)
    batch = broadcast([x.shape[:-2] for x in found.values()], repr(instruction))
    whole = {name: np.broadcast_to(x, (*batch, *x.shape[-2:])) for name, x in found.items()}
    scales = {name: whole[name] for name in whole if name.startswith("scale_")}
    return Outputs(whole["a"], whole["b"], whole["c"], whole.get("met"), scales)


def output_problem(
    instruction: Any,
    arrays: Arrays,
    element: tuple[int, int],
    batch: int = 0,
    matrix: int = 0,
    call: Call | None = None,
) -> tuple[Codes, ...]:
    """The codes that make one output: a row of A, a column of B (of a sparse A what it meets), C, and scales if there are any.

    Raises OperandError for an output, a batch item or inputs that do not exist.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> a, b = np.ones((16, 8), np.float16), np.eye(8, dtype=np.float16)
    >>> row, column, c = output_problem(mma, {"a": a, "b": b, "c": np.zeros((16, 8), np.float32)}, (3, 2))
    >>> column.tolist()
    [0, 0, 15360, 0, 0, 0, 0, 0]
    """
    chosen = call or call_of(instruction, arrays)
    outputs = outputs_of(instruction, arrays, chosen)
    m, n = outputs.shape[-2:]
    count = outputs.c.size // (m * n)
    per = getattr(instruction, "matrices", 1) if chosen == "execute" else 1
    item = batch * per + matrix
    if not 0 <= matrix < per or not 0 <= item < count:
        raise OperandError(
            f"{instruction!r}: batch item {batch}, matrix {matrix} does not exist; valid: items 0 to {count // per - 1}, "
            f"matrices 0 to {per - 1}"
        )
    row, column = element
    if not (0 <= row < m and 0 <= column < n):
        raise OperandError(
            f"{instruction!r}: no element ({row}, {column}); valid: rows 0 to {m - 1}, columns 0 to {n - 1}"
        )
    a, b, c, scales = outputs.one(item, row, column)
    return a, b, c, *scales.values()


def _items(array: Codes, inner: int) -> Codes:
    """The leading dimensions as one."""
    return array.reshape(-1, *array.shape[array.ndim - inner :])


def _matrices(instruction: Any, arrays: Arrays, call: Call) -> tuple[Codes, Codes, Codes]:
    if call == "execute":
        return _held(instruction, arrays)
    formats = formats_of(instruction)
    if not formats:
        raise OperandError(f"{instruction!r} computes no products; valid: instructions with a, b and c")
    found = [as_codes(arrays[name], formats[name], f"{instruction!r}: {name}") for name in "abc"]
    m, n, k = instruction.shape
    if isinstance(instruction, DescribedMultiply):
        k = instruction.desc.k
    for name, array, shape in zip("abc", found, ((m, instruction.operands["a"].shape[1]), (k, n), (m, n)), strict=True):
        if array.shape[-2:] != shape:
            raise OperandError(f"{instruction!r}: {name} has shape {array.shape}; valid: (..., {shape[0]}, {shape[1]})")
    if isinstance(instruction, DescribedMultiply) and instruction.instruction.row.ashift:
        found[0] = shifted(found[0], instruction.instruction.row.cta_group)
    return found[0], found[1], found[2]


@singledispatch
def _held(instruction: Any, arrays: Arrays) -> tuple[Codes, Codes, Codes]:
    """The matrices in the inputs of `execute`."""
    raise OperandError(
        f"{instruction!r}: one output is found in inputs of products only; valid: instructions with a, b, c"
    )


@_held.register
def _(instruction: MatrixMultiply, arrays: Arrays) -> tuple[Codes, Codes, Codes]:
    a, b, c = (instruction.matrix(name, arrays[name]) for name in "abc")
    return a, b, c


@_held.register
def _(instruction: WarpgroupMultiply, arrays: Arrays) -> tuple[Codes, Codes, Codes]:
    if "smem" not in arrays:
        raise OperandError(f"{instruction!r}: smem is missing; valid: smem, a, b, c")
    scales = int(arrays.get("scale_a", 1)), int(arrays.get("scale_b", 1))
    majors = int(arrays.get("trans_a", 0)), int(arrays.get("trans_b", 0))
    own = {name: arrays[name] for name in "abc"}
    return instruction.multiplicands(
        arrays["smem"], **own, scale_d=bool(arrays.get("scale_d", True)), scales=scales, trans=majors
    )


def _sparsity(instruction: Any) -> Sparsity | None:
    return getattr(instruction, "sparsity", None)


def _positions(instruction: Any, arrays: Arrays, call: Call) -> Codes:
    if "metadata" not in arrays:
        raise OperandError(f"{instruction!r}: metadata is missing; valid: a, b, c, metadata")
    metadata = np.asarray(arrays["metadata"])
    if call == "execute" and hasattr(instruction, "decode_metadata"):
        return instruction.decode_metadata(metadata, int(arrays.get("selector", 0)))
    kept = instruction.operands["a"].shape
    if metadata.dtype.kind not in "iu" or metadata.shape[-2:] != kept:
        raise OperandError(
            f"{instruction!r}: metadata is {metadata.dtype} {metadata.shape}; valid: positions, integers (..., {kept[0]}, {kept[1]})"
        )
    return metadata


def _scales(instruction: Any, arrays: Arrays, call: Call) -> dict[str, Codes]:
    formats: dict[str, Format] = instruction.scale_formats
    given = {name: arrays[name] for name in formats}
    if call == "execute":
        ids = {side: [int(arrays.get(f"{what}_{side}", 0)) for what in ("byte_id", "thread_id")] for side in "ab"}
        return {f"scale_{side}": instruction.scale_matrix(side, given[f"scale_{side}"], *ids[side]) for side in "ab"}
    m, n, _ = instruction.shape
    shapes = {"scale_a": (m, instruction.blocks), "scale_b": (instruction.blocks, n)}
    found = {name: as_codes(x, formats[name], f"{instruction!r}: {name}") for name, x in given.items()}
    for name, shape in shapes.items():
        if found[name].shape[-2:] != shape:
            raise OperandError(
                f"{instruction!r}: {name} has shape {found[name].shape}; valid: (..., {shape[0]}, {shape[1]})"
            )
    return found


def example_arrays(instruction: Any, products: Products) -> dict[str, Codes]:
    """Inputs of `matmul` whose output (0, 0) is the first of the products, with zeros elsewhere, and scales of 1.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> codes = np.arange(8, dtype=np.uint16).reshape(1, 1, 8)
    >>> arrays = example_arrays(mma, Products(codes, codes.reshape(1, 8, 1), np.zeros((1, 1, 1), np.uint32)))
    >>> output_problem(mma, arrays, (0, 0))[0].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    a, b, c = (codes[0].reshape(-1) for codes in (products.a, products.b, products.c))
    (m, n, k), row = instruction.shape, 0
    if isinstance(instruction, DescribedMultiply):
        k, row = instruction.desc.k, int(instruction.instruction.row.ashift)  # .ashift: row 0 is what row 1 was
    arrays = {"a": np.zeros((m, len(a)), a.dtype), "b": np.zeros((k, n), b.dtype), "c": np.zeros((m, n), c.dtype)}
    arrays["a"][row], arrays["c"][0, 0] = a, c[0]
    sparsity, met = _sparsity(instruction), slice(None)
    if sparsity is not None:
        arrays["metadata"] = sparsity.positions_of(np.full((m, sparsity.groups), sparsity.valid[0], np.uint8))
        met = sparsity.columns(arrays["metadata"])[0]
    arrays["b"][met, 0] = b
    for name, codes in products.scales.items():
        format = formats_of(instruction)[name]
        shape = (m, instruction.blocks) if name == "scale_a" else (instruction.blocks, n)
        arrays[name] = np.full(shape, encode(1.0, format), format.dtype)
        arrays[name][(0, slice(None)) if name == "scale_a" else (slice(None), 0)] = codes[0].reshape(-1)
    if isinstance(instruction, DescribedMultiply):
        arrays["idesc"] = np.array(instruction.desc.encode(), np.uint32)
        if instruction.scale_input_d:
            arrays["scale_input_d"] = np.array(instruction.scale_input_d)
    return arrays
