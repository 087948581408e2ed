"""From what a user has - matrices, registers or shared memory - to a problem."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from tcsim.catalog import instruction as find_instruction
from tcsim.core.arguments import as_array
from tcsim.core.errors import InstructionError, OperandError, listing
from tcsim.diagnosis.arithmetic import narrowed
from tcsim.diagnosis.problem import Codes, Memory, Part, Problem
from tcsim.isa.tcgen05.products import shifted
from tcsim.model.instruction import Instruction
from tcsim.multiplication import Machine, machine_of
from tcsim.numbers.codec import as_codes, encode
from tcsim.numbers.foreign import on_host

KNOWN = (
    "a", "b", "c", "metadata", "selector", "smem", "trans_a", "trans_b", "scale_d", "scale_a", "scale_b", "byte_id_a",
    "thread_id_a", "byte_id_b", "thread_id_b", "idesc",
)  # fmt: skip
"""The operands of `tcsim.diagnose` for an instruction that multiplies."""
_NARROWER = {
    np.dtype(np.float16): "f16",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(ml_dtypes.float8_e4m3fn): "e4m3",
    np.dtype(ml_dtypes.float8_e5m2): "e5m2",
}
"""Types of an output tensor that hold a result of f32 rounded."""


def named(instruction: Any, arch: str) -> tuple[Instruction, str]:
    """The instruction, and how errors call the diagnosis of it.

    Raises InstructionError if there is no such instruction.
    """
    found = find_instruction(instruction, arch=arch) if isinstance(instruction, str) else instruction
    if not isinstance(found, Instruction):
        raise InstructionError(f"tcsim.diagnose({found!r}): valid: a mnemonic, or what tcsim.instruction gives")
    return found, f"tcsim.diagnose({found.mnemonic!r})"


def problem_of(multiply: Instruction, call: str, observed: Any, operands: dict[str, Any]) -> Problem:
    """The problem behind the arguments of `tcsim.diagnose`, which says what they are and what is raised."""
    unknown = [name for name in operands if name not in KNOWN]
    missing = [name for name in "ab" if name not in operands]
    if unknown or missing:
        wrong = f"unknown operand {unknown[0]}" if unknown else f"{missing[0]} is missing"
        raise OperandError(f"{call}: {wrong}; valid: {listing(KNOWN)}")
    arrays = ("a", "b", "c", "metadata", "scale_a", "scale_b", "smem")
    operands = {
        name: on_host(x, f"{call}: {name}") if name in arrays and x is not None else x for name, x in operands.items()
    }
    observed = on_host(observed, f"{call}: observed")
    if "smem" in operands:
        return _from_memory(multiply, call, np.asarray(observed), operands)
    machine = machine_of(multiply, call, operands.get("idesc"))
    held = {name: operands[name] for name in "ab"} | {"d": observed}
    if all(_in_registers(multiply, name, given) for name, given in held.items()):
        return _from_registers(machine, call, np.asarray(observed), operands)
    return _from_matrices(machine, call, observed, operands)


def _in_registers(multiply: Instruction, name: str, given: Any) -> bool:
    """Whether an array has the dtype and shape of an operand's registers."""
    operand, array = multiply.operands.get(name), as_array(given, name)
    return operand is not None and array.dtype == np.uint32 and array.shape[-2:] == (operand.lanes, operand.registers)


def _finished(problem: Problem) -> Problem:
    return replace(problem, order=tuple(range(problem.blocks)))


def _flat(codes: Codes, batch: tuple[int, ...]) -> Codes:
    return np.ascontiguousarray(np.broadcast_to(codes, (*batch, *codes.shape[-2:]))).reshape(-1, *codes.shape[-2:])


def _from_matrices(machine: Machine, call: str, observed: Any, operands: dict[str, Any]) -> Problem:
    formats, sparse = machine.formats, machine.sparsity is not None
    given = {"a": operands["a"], "b": operands["b"], "d": observed}
    if operands.get("c") is not None:
        given["c"] = operands["c"]
    output = _NARROWER.get(observed.dtype) if formats["d"].name == "f32" else None
    if output is not None:
        given["d"] = encode(observed.astype(np.float64), "f32")
    codes = {name: as_codes(x, formats[name], f"{call}: {name}") for name, x in given.items()}
    if any(x.ndim < 2 for x in codes.values()):
        raise OperandError(f"{call}: a, b, c and observed are matrices, or registers (..., lanes, registers)")
    (m, k), n = codes["a"].shape[-2:], codes["b"].shape[-1]
    codes.setdefault("c", np.zeros((m, n), formats["c"].dtype))
    dense_k = codes["b"].shape[-2]
    if machine.width(dense_k) != k:
        dense_k = 2 * k if sparse else k
    wanted = {"b": (dense_k, n), "c": (m, n), "d": (m, n)}
    for name, size in zip("MNK", (m, n, dense_k), strict=True):
        if not size:
            raise OperandError(f"{call}: {name} = 0; valid: 1 and more")
    if dense_k > machine.shape[2] and formats["c"] is not formats["d"]:
        raise OperandError(
            f"{call}: d ({formats['d'].name}) cannot be its accumulator ({formats['c'].name}); valid: K = {machine.shape[2]}"
        )
    for name in ("scale_a", "scale_b") if machine.blocks else ():
        along = -(-dense_k // machine.block)
        wanted[name] = (m, along) if name == "scale_a" else (along, n)
        codes[name] = as_codes(_scale(operands.get(name), name, call), formats["scale"], f"{call}: {name}")
    for name, shape in wanted.items():
        if codes[name].shape[-2:] != shape:
            said = "observed" if name == "d" else name
            valid = f"(..., {shape[0]}, {shape[1]})"
            raise OperandError(f"{call}: {said} is {codes[name].shape}; with a {codes['a'].shape} valid: {valid}")
    if sparse:
        positions = np.asarray(operands.get("metadata"))
        if positions.dtype.kind not in "iu" or positions.shape[-2:] != (m, k):
            raise OperandError(
                f"{call}: metadata is {positions.dtype} {positions.shape}; valid: positions (..., {m}, {k})"
            )
        codes["metadata"] = positions.astype(np.int64)
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in codes.values()))
    flat = {name: _flat(x, batch) for name, x in codes.items()}
    size = (m, n) if m % machine.shape[0] or n % machine.shape[1] else None
    problem = _made(machine, _padded(flat, machine))
    problem = replace(problem, size=size, depth=dense_k if dense_k % machine.shape[2] else None, output=output)
    return problem if output is None else replace(problem, finish=partial(_given_as, output))


def _padded(flat: dict[str, Codes], machine: Machine) -> dict[str, Codes]:
    """The matrices with zeros up to multiples of the instruction's shape; factors of 1 and the first positions go along."""
    sizes = *flat["d"].shape[1:], flat["b"].shape[1]
    m, n, k = (-(-size // unit) * unit for size, unit in zip(sizes, machine.shape, strict=True))
    ends = {"a": (m, machine.width(k)), "b": (k, n), "c": (m, n), "d": (m, n), "metadata": (m, machine.width(k))}
    if machine.blocks:
        ends |= {"scale_a": (m, k // machine.block), "scale_b": (k // machine.block, n)}
    found = {name: _longer(x, ends[name]) for name, x in flat.items()}
    for name in ("scale_a", "scale_b") if machine.blocks else ():
        rows, columns = flat[name].shape[1:]
        one = encode(1.0, machine.formats["scale"])
        found[name][:, rows:], found[name][:, :, columns:] = one, one
    if machine.sparsity is not None:
        rows, columns = flat["metadata"].shape[1:]
        first = np.arange(ends["metadata"][1]) % (machine.sparsity.kept // machine.sparsity.groups)
        found["metadata"][:, rows:], found["metadata"][:, :, columns:] = first, first[columns:]
    return found


def _longer(codes: Codes, size: tuple[int, int]) -> Codes:
    return np.pad(codes, ((0, 0), *((0, end - have) for end, have in zip(size, codes.shape[1:], strict=True))))


def _given_as(output: str, problem: Problem, part: Part, codes: Codes) -> Codes:
    """f32 codes rounded to the type of the output tensor."""
    return narrowed(codes, output)


def _made(machine: Machine, flat: dict[str, Codes]) -> Problem:
    scales = (flat["scale_a"], flat["scale_b"]) if machine.blocks else None
    problem = Problem(machine, flat["a"], flat["b"], flat["c"], flat["d"], flat.get("metadata"), scales)
    return _finished(_as_described(problem))


def _as_described(problem: Problem) -> Problem:
    """The negations of tcgen05.mma's instruction descriptor, and .ashift, made on the codes."""
    machine = problem.machine
    if machine.descriptor is None:
        return problem
    row: Any = machine.instruction.row
    a, b = machine.negated("a", problem.a), machine.negated("b", problem.b)
    return replace(problem, a=shifted(a, row.cta_group) if row.ashift else a, b=b)


def _scale(given: Any, name: str, call: str) -> Any:
    if given is None:
        raise OperandError(f"{call}: {name} is missing; valid: codes of the scale factors")
    array = np.asarray(given)
    return array.view(np.uint8) if array.dtype.name == "float8_e4m3fn" else array


def _from_registers(machine: Machine, call: str, observed: Codes, operands: dict[str, Any]) -> Problem:
    multiply = machine.instruction
    c = operands.get("c")
    d = multiply.operands["c"]
    given = {
        "a": np.asarray(operands["a"]),
        "b": np.asarray(operands["b"]),
        "c": np.zeros((d.lanes, d.registers), np.uint32) if c is None else np.asarray(c),
        "d": observed,
    }
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in given.values()))
    codes = {}
    for name, registers in given.items():
        whole = np.broadcast_to(registers, (*batch, *registers.shape[-2:]))
        matrix = multiply.matrix(name, whole)
        codes[name] = matrix.reshape(-1, *matrix.shape[-2:])
    words: dict[str, tuple[Codes, int, int]] = {}
    if machine.blocks:
        for side in ("a", "b"):
            ids = int(operands.get(f"byte_id_{side}", 0)), int(operands.get(f"thread_id_{side}", 0))
            held = _lines(np.asarray(_scale(operands.get(f"scale_{side}"), f"scale_{side}", call)), batch)
            words[side] = (held, *ids)
            codes[f"scale_{side}"] = multiply.scale_matrix(side, held, *ids)
    problem = None
    if machine.sparsity is not None:
        held, selector = _lines(np.asarray(operands.get("metadata")), batch), int(operands.get("selector", 0))
        codes["metadata"] = multiply.decode_metadata(held, selector)
        problem = replace(_made(machine, codes), metadata=held, selector=selector)
    problem = problem or _made(machine, codes)
    return replace(problem, scale_words=words) if words else problem


def _lines(words: Codes, batch: tuple[int, ...]) -> Codes:
    """Registers of one word a lane, (..., 32), with the batch as one dimension."""
    words = words[..., 0] if words.shape[-1:] == (1,) else words
    return np.ascontiguousarray(np.broadcast_to(words, (*batch, words.shape[-1]))).reshape(-1, words.shape[-1])


def _from_memory(multiply: Instruction, call: str, observed: Codes, operands: dict[str, Any]) -> Problem:
    if not hasattr(multiply, "fetch"):
        raise OperandError(f"{call}: its operands are in registers; smem= is for wgmma")
    smem = np.asarray(operands["smem"])
    a, b = np.asarray(operands["a"]), np.asarray(operands["b"])
    trans = {"a": int(operands.get("trans_a", 0)), "b": int(operands.get("trans_b", 0))}
    signs = int(operands.get("scale_a", 1)), int(operands.get("scale_b", 1))
    codes_a, codes_b = multiply.fetch(smem, a, b, trans["a"], trans["b"], *signs)
    d = multiply.operands["d"]
    seen = multiply.matrix("d", observed) if observed.shape[-2:] == (d.lanes, d.registers) else observed
    c = operands.get("c")
    zeros = np.zeros(d.shape, multiply.operands["c"].format.dtype)
    codes_c = zeros if c is None or not operands.get("scale_d", True) else multiply.matrix("c", np.asarray(c))
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (codes_a, codes_b, codes_c, seen)))
    whole_a, whole_b, whole_c, whole_d = (_flat(x, batch) for x in (codes_a, codes_b, codes_c, seen))
    descriptors = {} if a.ndim >= 2 and a.shape[-2] == 128 else {"a": a}
    sent = {n: np.broadcast_to(x.astype(np.uint64), batch).reshape(-1) for n, x in (descriptors | {"b": b}).items()}
    memory = Memory(np.broadcast_to(smem, (*batch, smem.shape[-1])).reshape(-1, smem.shape[-1]), sent, trans, signs)
    machine = machine_of(multiply, call)
    problem = Problem(machine, whole_a, whole_b, whole_c, whole_d, memory=memory)
    if machine.sparsity is not None:
        held, selector = _lines(np.asarray(operands.get("metadata")), batch), int(operands.get("selector", 0))
        positions = multiply.decode_metadata(held, selector)
        problem = replace(problem, positions=positions, metadata=held, selector=selector)
    return _finished(problem)
