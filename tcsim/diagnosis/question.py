"""From what a user has - matrices, registers or shared memory - to a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.codec import as_codes
from tcsim.diagnosis.problem import Codes, Memory, Multiply, Problem
from tcsim.errors import InstructionError, OperandError, listing
from tcsim.instruction import Instruction
from tcsim.instruction import instruction as find_instruction
from tcsim.sparse_multiply import SparseMatrixMultiply
from tcsim.warpgroup_multiply import WarpgroupMultiply

_KNOWN = ("a", "b", "c", "metadata", "selector", "smem", "trans_a", "trans_b", "scale_d")


def named(instruction: Any, arch: str) -> tuple[Instruction, str]:
    """The instruction, and how errors call the diagnosis of it.

    Raises InstructionError if there is no such instruction.
    """
    found = find_instruction(instruction, arch=arch) if isinstance(instruction, str) else instruction
    if not isinstance(found, Instruction):
        raise InstructionError(f"tcsim.diagnose({found!r}): valid: a mnemonic, or what tcsim.instruction gives")
    return found, f"tcsim.diagnose({found.mnemonic!r})"


def problem_of(multiply: Multiply, call: str, observed: Any, operands: dict[str, Any]) -> Problem:
    """The problem behind the arguments of `tcsim.diagnose`, which says what they are and what is raised."""
    unknown = [name for name in operands if name not in _KNOWN]
    missing = [name for name in "ab" if name not in operands]
    if unknown or missing:
        wrong = f"unknown operand {unknown[0]}" if unknown else f"{missing[0]} is missing"
        raise OperandError(f"{call}: {wrong}; valid: {listing(_KNOWN)}")
    if "smem" in operands:
        return _from_memory(multiply, call, np.asarray(observed), operands)
    held = {name: operands[name] for name in "ab"} | {"d": observed}
    if all(_in_registers(multiply, name, given) for name, given in held.items()):
        return _from_registers(multiply, call, np.asarray(observed), operands)
    return _from_matrices(multiply, call, observed, operands)


def _in_registers(multiply: Multiply, name: str, given: Any) -> bool:
    """Whether an array has the dtype and shape of an operand's registers."""
    operand, array = multiply.operands.get(name), np.asarray(given)
    return operand is not None and array.dtype == np.uint32 and array.shape[-2:] == (operand.lanes, operand.registers)


def _finished(problem: Problem) -> Problem:
    return replace(problem, order=tuple(range(problem.blocks)))


def _flat(codes: Codes, batch: tuple[int, ...]) -> Codes:
    return np.ascontiguousarray(np.broadcast_to(codes, (*batch, *codes.shape[-2:]))).reshape(-1, *codes.shape[-2:])


def _from_matrices(multiply: Multiply, call: str, observed: Any, operands: dict[str, Any]) -> Problem:
    formats = multiply.formats | {"d": multiply.operands["d"].format}
    given = {"a": operands["a"], "b": operands["b"], "d": observed}
    if operands.get("c") is not None:
        given["c"] = operands["c"]
    codes = {name: as_codes(x, formats[name], f"{call}: {name}") for name, x in given.items()}
    if any(x.ndim < 2 for x in codes.values()):
        raise OperandError(f"{call}: a, b, c and observed are matrices, or registers (..., lanes, registers)")
    sparse = isinstance(multiply, SparseMatrixMultiply)
    (m, k), n = codes["a"].shape[-2:], codes["b"].shape[-1]
    codes.setdefault("c", np.zeros((m, n), formats["c"].dtype))
    dense_k = 2 * k if sparse else k
    for name, shape in (("b", (dense_k, n)), ("c", (m, n)), ("d", (m, n))):
        if codes[name].shape[-2:] != shape:
            said = "observed" if name == "d" else name
            raise OperandError(
                f"{call}: {said} is {codes[name].shape}; with a {codes['a'].shape} valid: (..., {shape[0]}, {shape[1]})"
            )
    for name, size, unit in (
        ("M", m, multiply.shape[0]),
        ("N", n, multiply.shape[1]),
        ("K", dense_k, multiply.shape[2]),
    ):
        if size % unit or not size:
            raise OperandError(f"{call}: {name} = {size}; valid: multiples of the instruction's {unit}")
    if dense_k > multiply.shape[2] and formats["c"] is not formats["d"]:
        raise OperandError(
            f"{call}: d ({formats['d'].name}) is no accumulator ({formats['c'].name}); valid: K = {multiply.shape[2]}"
        )
    shapes = [x.shape[:-2] for x in codes.values()]
    positions = None
    if sparse:
        positions = np.asarray(operands.get("metadata"))
        if positions.dtype.kind not in "iu" or positions.shape[-2:] != (m, k):
            raise OperandError(
                f"{call}: metadata is {positions.dtype} {positions.shape}; valid: positions (..., {m}, {k})"
            )
        shapes.append(positions.shape[:-2])
    batch = np.broadcast_shapes(*shapes)
    flat = {name: _flat(x, batch) for name, x in codes.items()}
    positions = None if positions is None else _flat(positions.astype(np.int64), batch)
    return _finished(Problem(multiply, flat["a"], flat["b"], flat["c"], flat["d"], positions))


def _from_registers(multiply: Multiply, call: str, observed: Codes, operands: dict[str, Any]) -> Problem:
    if isinstance(multiply, WarpgroupMultiply):
        raise OperandError(f"{call}: wgmma reads B from shared memory; valid: matrices, or smem= with descriptors")
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
    problem = Problem(multiply, codes["a"], codes["b"], codes["c"], codes["d"])
    if isinstance(multiply, SparseMatrixMultiply):
        words, selector = np.asarray(operands.get("metadata")), int(operands.get("selector", 0))
        positions = _flat(multiply.decode_metadata(words, selector), batch)
        words = np.broadcast_to(words, (*batch, words.shape[-1])).reshape(-1, words.shape[-1])
        problem = replace(problem, positions=positions, metadata=words, selector=selector)
    return _finished(problem)


def _from_memory(multiply: Multiply, call: str, observed: Codes, operands: dict[str, Any]) -> Problem:
    if not isinstance(multiply, WarpgroupMultiply):
        raise OperandError(f"{call}: its operands are in registers; smem= is for wgmma")
    smem = np.asarray(operands["smem"])
    a, b = np.asarray(operands["a"]), np.asarray(operands["b"])
    trans = {"a": int(operands.get("trans_a", 0)), "b": int(operands.get("trans_b", 0))}
    codes_a, codes_b = multiply.fetch(smem, a, b, trans["a"], trans["b"])
    d = multiply.operands["d"]
    seen = multiply.matrix("d", observed) if observed.shape[-2:] == (d.lanes, d.registers) else observed
    c = operands.get("c")
    zeros = np.zeros(d.shape, multiply.operands["c"].format.dtype)
    codes_c = zeros if c is None or not operands.get("scale_d", True) else multiply.matrix("c", np.asarray(c))
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (codes_a, codes_b, codes_c, seen)))
    whole_a, whole_b, whole_c, whole_d = (_flat(x, batch) for x in (codes_a, codes_b, codes_c, seen))
    descriptors = {} if a.ndim >= 2 and a.shape[-2] == 128 else {"a": a}
    sent = {n: np.broadcast_to(x.astype(np.uint64), batch).reshape(-1) for n, x in (descriptors | {"b": b}).items()}
    memory = Memory(np.broadcast_to(smem, (*batch, smem.shape[-1])).reshape(-1, smem.shape[-1]), sent, trans)
    return replace(_finished(Problem(multiply, whole_a, whole_b, whole_c, whole_d)), memory=memory)
