"""Inputs of an instruction as a file holds them: which call they are for, and the codes of one output among them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import singledispatch
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tcsim.codec import as_codes
from tcsim.described_multiply import DescribedMultiply
from tcsim.errors import OperandError, listing
from tcsim.formats import Format
from tcsim.multiply import MatrixMultiply
from tcsim.scaled_multiply import ScaledMatrixMultiply
from tcsim.sparse_multiply import SparseMatrixMultiply
from tcsim.tensor_memory_multiply import TensorMemoryMultiply
from tcsim.warpgroup_multiply import WarpgroupMultiply

Call = Literal["execute", "matmul"]
Arrays = Mapping[str, Any]
Codes = npt.NDArray[Any]


def call_of(instruction: Any, arrays: Arrays) -> Call:
    """Which method takes the arrays: `matmul` if a and b are matrices of the instruction's shape, else `execute`.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> call_of(mma, {"a": np.ones((16, 8), np.float16), "b": np.ones((8, 8), np.float16), "c": np.zeros((16, 8), np.float32)})
    'matmul'
    """
    if isinstance(instruction, (TensorMemoryMultiply, DescribedMultiply)):  # Tensor Memory is no array
        return "execute" if "tmem" in arrays else "matmul"
    if not hasattr(instruction, "matmul") or not {"a", "b"} <= set(arrays):
        return "execute"
    m, n, k = instruction.shape
    depth = instruction.operands["a"].shape[1] if "a" in instruction.operands else k
    matrices = np.shape(arrays["a"])[-2:] == (m, depth) and np.shape(arrays["b"])[-2:] == (k, n)
    return "matmul" if matrices else "execute"


def run_call(instruction: Any, arrays: Arrays, call: Call | None = None) -> tuple[Call, Codes]:
    """Execute the instruction, or multiply matrices, with named inputs; zero-dimensional arrays are numbers.

    Raises OperandError for a name that the call does not take or one that it lacks, and what the call itself raises.
    """
    chosen = call or call_of(instruction, arrays)
    method = getattr(instruction, chosen, None)
    if method is None:
        raise OperandError(f"{instruction!r} has no {chosen}; valid: execute")
    parameters = inspect.signature(method).parameters
    wrong = [name for name in arrays if name not in parameters]
    needed = [name for name, own in parameters.items() if own.default is inspect.Parameter.empty]
    missing = [name for name in needed if name not in arrays]
    if wrong or missing:
        what = f"no input {listing(wrong)}" if wrong else f"{listing(missing)} is missing"
        optional = [name for name in parameters if name not in needed]
        also = f"; optional {listing(optional)}" if optional else ""
        raise OperandError(f"{instruction!r}.{chosen}: {what}; valid: {listing(needed)}{also}")
    return chosen, method(**{name: _plain(value) for name, value in arrays.items()})


def formats_for(instruction: Any, arrays: Arrays) -> Mapping[str, Format]:
    """The number formats of an instruction's matrices; those of tcgen05.mma come with `idesc`."""
    found: Mapping[str, Format] = described(instruction, arrays).formats
    return found


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array


def output_problem(
    instruction: Any,
    arrays: Arrays,
    element: tuple[int, int],
    batch: int = 0,
    matrix: int = 0,
    call: Call | None = None,
) -> tuple[Codes, Codes, Codes]:
    """The codes that make one output: those of a row of A, of a column of B (of a sparse A what it meets), and of C.

    Raises OperandError for an output, a batch item or inputs that do not exist.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> a, b = np.ones((16, 8), np.float16), np.eye(8, dtype=np.float16)
    >>> row, column, c = output_problem(mma, {"a": a, "b": b, "c": np.zeros((16, 8), np.float32)}, (3, 2))
    >>> column.tolist()
    [0, 0, 15360, 0, 0, 0, 0, 0]
    """
    chosen = call or call_of(instruction, arrays)
    missing = [name for name in "abc" if name not in arrays]
    if missing:
        raise OperandError(f"{instruction!r}: {listing(missing)} is missing; valid: a, b, c")
    a, b, c = _matrices(instruction, arrays, chosen)
    flat = [_items(x, 2) for x in (a, b, c)]
    if matrix or max(map(len, flat)) > 1:
        count = max(map(len, flat))
        per = getattr(instruction, "matrices", 1) if chosen == "execute" else 1
        index = batch * per + matrix
        if not 0 <= matrix < per or not 0 <= index < count:
            raise OperandError(
                f"{instruction!r}: batch item {batch}, matrix {matrix} does not exist; valid: items 0 to {count // per - 1}, "
                f"matrices 0 to {per - 1}"
            )
    else:
        index = batch
        if batch:
            raise OperandError(f"{instruction!r}: batch item {batch} does not exist; valid: 0")
    a, b, c = (x[min(index, len(x) - 1)] for x in flat)
    row, column = element
    if not (0 <= row < c.shape[0] and 0 <= column < c.shape[1]):
        raise OperandError(
            f"{instruction!r}: no element ({row}, {column}); valid: rows 0 to {c.shape[0] - 1}, columns 0 to {c.shape[1] - 1}"
        )
    met = b[:, column]
    if isinstance(instruction, DescribedMultiply):
        if instruction.desc.sparse:
            positions = _items(_positions(instruction, arrays, chosen), 2)
            kept = instruction.instruction.sparsity(instruction.desc).columns(positions[min(index, len(positions) - 1)])
            met = met[kept[row]]
    elif isinstance(instruction, SparseMatrixMultiply):
        positions = _items(_positions(instruction, arrays, chosen), 2)
        kept = instruction.sparsity.columns(positions[min(index, len(positions) - 1)])
        met = met[kept[row]]
    return a[row], met, c[row, column]


def described(instruction: Any, arrays: Arrays) -> Any:
    """The instruction; a tcgen05.mma with the descriptor that is among its inputs.

    Raises OperandError if there is none, or it disagrees with the mnemonic.
    """
    if not isinstance(instruction, TensorMemoryMultiply):
        return instruction
    if "idesc" not in arrays:
        raise OperandError(f"{instruction!r}: idesc is missing; valid: the 32 bits of its instruction descriptor")
    return DescribedMultiply(
        instruction, instruction.descriptor(_plain(arrays["idesc"])), int(arrays.get("scale_input_d", 0))
    )


def output_scales(
    instruction: Any, arrays: Arrays, element: tuple[int, int], batch: int = 0, call: Call | None = None
) -> dict[str, Codes]:
    """The scales of one output: scale_a of its row, scale_b of its column; nothing if the instruction has none.

    Raises OperandError for scales that are missing.
    """
    if not getattr(instruction, "blocks", 0) and not isinstance(instruction, ScaledMatrixMultiply):
        return {}
    missing = [name for name in ("scale_a", "scale_b") if name not in arrays]
    if missing:
        raise OperandError(f"{instruction!r}: {listing(missing)} is missing; valid: a, b, c, scale_a, scale_b")
    scales = [np.asarray(arrays["scale_a"]), np.asarray(arrays["scale_b"])]
    if isinstance(instruction, ScaledMatrixMultiply) and (call or call_of(instruction, arrays)) == "execute":
        ids = [[int(arrays.get(f"{what}_{side}", 0)) for what in ("byte_id", "thread_id")] for side in "ab"]
        scales = [
            instruction.scale_matrix("a", scales[0], *ids[0]),
            instruction.scale_matrix("b", scales[1], *ids[1]),
        ]
    scale_a, scale_b = (_items(x, 2) for x in scales)
    row, column = element
    return {
        "scale_a": scale_a[min(batch, len(scale_a) - 1)][row],
        "scale_b": scale_b[min(batch, len(scale_b) - 1)][:, column],
    }


def _items(array: Codes, inner: int) -> Codes:
    """The leading dimensions as one."""
    return array.reshape(-1, *array.shape[array.ndim - inner :])


def _matrices(instruction: Any, arrays: Arrays, call: Call) -> tuple[Codes, Codes, Codes]:
    if call == "execute":
        return _held(instruction, arrays)
    formats: dict[str, Format] = instruction.formats
    found = [as_codes(arrays[name], formats[name], f"{instruction!r}: {name}") for name in "abc"]
    m, n, k = instruction.shape
    if isinstance(instruction, DescribedMultiply):
        k = instruction.desc.k
    for name, array, shape in zip("abc", found, ((m, instruction.operands["a"].shape[1]), (k, n), (m, n)), strict=True):
        if array.shape[-2:] != shape:
            raise OperandError(f"{instruction!r}: {name} has shape {array.shape}; valid: (..., {shape[0]}, {shape[1]})")
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
    majors = {name: int(arrays.get(name, 0)) for name in ("trans_a", "trans_b")}
    if "smem" not in arrays:
        raise OperandError(f"{instruction!r}: smem is missing; valid: smem, a, b, c")
    a, b = instruction.fetch(np.asarray(arrays["smem"]), arrays["a"], arrays["b"], **majors)
    return a, b, instruction.matrix("c", arrays["c"])


def _positions(instruction: SparseMatrixMultiply | DescribedMultiply, arrays: Arrays, call: Call) -> Codes:
    if "metadata" not in arrays:
        raise OperandError(f"{instruction!r}: metadata is missing; valid: a, b, c, metadata")
    metadata = np.asarray(arrays["metadata"])
    if call == "matmul" or isinstance(instruction, DescribedMultiply):
        return metadata
    return instruction.decode_metadata(metadata, int(arrays.get("selector", 0)))


def example_arrays(instruction: Any, a: Codes, b: Codes, c: Codes) -> dict[str, Codes]:
    """Inputs of `matmul` whose output (0, 0) has the K codes a and b and the code c, and zeros elsewhere.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> arrays = example_arrays(mma, np.arange(8, dtype=np.uint16), np.zeros(8, np.uint16), np.uint32(1))
    >>> output_problem(mma, arrays, (0, 0))[0].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    m, n, k = instruction.shape
    formats: dict[str, Format] = instruction.formats
    whole_a = np.zeros((m, len(a)), formats["a"].dtype)
    whole_b, whole_c = np.zeros((k, n), formats["b"].dtype), np.zeros((m, n), formats["c"].dtype)
    whole_a[0], whole_c[0, 0] = a, c
    arrays = {"a": whole_a, "b": whole_b, "c": whole_c}
    if isinstance(instruction, SparseMatrixMultiply):
        sparsity = instruction.sparsity
        groups = np.full((m, sparsity.groups), sparsity.valid[0], np.uint8)
        arrays["metadata"] = sparsity.positions_of(groups)
        whole_b[sparsity.columns(arrays["metadata"])[0], 0] = b
    else:
        whole_b[:, 0] = b
    return arrays
