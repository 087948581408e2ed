"""A sparse A for the GEMM kernels: compressed on the host, and its metadata as the kernels read them (`sparse.cuh`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.device.array_protocols import OperandTypeError
from hwkernels.device.device_arrays import DTYPES, DeviceArray, DeviceMatrix, download, read_matrix, upload
from hwkernels.gemm.build import Build
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS
from tcsim.core.errors import OperandError
from tcsim.isa.mma.sparse_operand import SparseOperand
from tcsim.layouts.sparsity import Sparsity
from tcsim.model.instruction import Instruction

Array = npt.NDArray[Any]
BLOCK_ROWS = 128  # rows of A whose metadata lie together: those of a tile
STEPS = 2  # multiplications along K in a slot
_CHUNK_ELEMENTS = 1 << 22  # dense elements that are compressed at a time
_FILL = 0b0100  # metadata of groups beyond the end: the first two elements, as every instruction allows


class SparsityError(OperandTypeError):
    """An operand does not have the sparsity that a sparse kernel multiplies."""


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix (M, K) that keeps two of each four neighbours along K (tf32: one of two), compressed.

    Made by `hwkernels.compress`, or from kept elements and positions of one's own. `hwkernels.gemm` takes it as `a`, again
    and again: it is copied to the GPU once.

    Raises SparsityError for shapes that do not go together, or positions that metadata cannot say.

    >>> matrix = SparseMatrix(np.float16([[7, 8]]), np.uint8([[1, 3]]), k=4)
    >>> matrix.shape, matrix.dense().tolist()
    ((1, 4), [[0.0, 7.0, 0.0, 8.0]])
    """

    kept: Array  # (M, kept) elements
    positions: Array  # (M, kept): of each, in its group
    k: int  # of the dense matrix

    def __post_init__(self) -> None:
        if self.kept.ndim != 2 or self.kept.shape[0] < 1 or self.k < 1:
            raise SparsityError(f"kept is {self.kept.shape}, k {self.k}; valid: (M, kept), at least 1 each")
        item = OPERAND_FORMATS.get(self.format)
        if item is None:
            raise SparsityError(f"kept elements are {self.kept.dtype}; valid: {', '.join(OPERAND_FORMATS)}")
        wanted = (self.kept.shape[0], item.kept(self.k))
        if self.kept.shape != wanted or self.positions.shape != wanted or self.positions.dtype.kind not in "iu":
            raise SparsityError(
                f"kept is {self.kept.shape}, positions {self.positions.dtype} {self.positions.shape}; valid for k = {self.k} "
                f"of {self.format}: {wanted}, positions integers"
            )
        try:
            self.groups()
        except OperandError as error:
            raise SparsityError(f"positions: {error}") from None

    @property
    def format(self) -> str:
        """The format of the elements."""
        return read_matrix(self.kept, "kept").format

    @property
    def shape(self) -> tuple[int, int]:
        """Of the dense matrix: M, K."""
        return int(self.kept.shape[0]), self.k

    def groups(self) -> npt.NDArray[np.uint8]:
        """The 4-bit groups of metadata (M, groups)."""
        return self._whole.groups_for(self.positions)

    def dense(self) -> Array:
        """The dense matrix (M, K)."""
        size = self.kept.dtype.itemsize
        codes = self.kept.view(f"<u{size}")  # NumPy puts no fp8
        out = np.zeros((self.shape[0], self._whole.k), codes.dtype)
        np.put_along_axis(out, self._whole.columns(self.positions.astype(np.int64)), codes, axis=-1)
        return out[:, : self.k].view(self.kept.dtype)

    @property
    def _whole(self) -> Sparsity:
        return replace(sparsity_of(self.format), rows=self.kept.shape[0], k=2 * self.kept.shape[1])

    @cached_property
    def on_device(self) -> tuple[DeviceMatrix, DeviceArray]:
        """The kept elements, rows at multiples of 16 bytes, and the image of the metadata, on the current GPU."""
        kept = upload(read_matrix(np.ascontiguousarray(self.kept), "kept"))
        words = metadata_image(self.groups(), self.format, sparsity_of(self.format))
        image = DeviceArray(words.shape, words.dtype)
        image.set(words)
        return kept, image


def compress(a: Any) -> SparseMatrix:
    """Compress a matrix (M, K) of which each four neighbours along K (tf32: two) hold at most two (one) nonzeros.

    a: of NumPy, or of the GPU (it is copied to the host: compress once, multiply often). Every nonzero is kept, and zeros
    where there are fewer, those of lower k first. A kept zero meets its element of b; a dropped one does not.

    Raises SparsityError for the first group with more nonzeros; OperandTypeError for what is not a matrix of a known format.

    >>> compress(np.float16([[0, 7, 0, 8, 9]])).kept.tolist()
    [[7.0, 8.0, 9.0, 0.0]]
    >>> compress(np.float16([[1, 2, 3, 0]]))
    Traceback (most recent call last):
    hwkernels.gemm.sparse_operands.SparsityError: a: row 0, columns 0 to 3: more than 2 of 4 elements are nonzero
    """
    matrix = read_matrix(a, "a")
    dense = download(matrix)
    sparsity = sparsity_of(matrix.format)
    rows = max(1, _CHUNK_ELEMENTS // dense.shape[1])
    parts = []
    for start in range(0, len(dense), rows):
        try:
            kept, positions = sparsity.compress_matrix(dense[start : start + rows], matrix.format, start)
        except OperandError as error:
            raise SparsityError(f"a: {error}") from None
        parts.append((kept, positions.astype(np.uint8)))
    kept, positions = (np.concatenate(part) for part in zip(*parts, strict=True))
    return SparseMatrix(kept.view(DTYPES[matrix.format]), positions, dense.shape[1])


@cache
def sparsity_of(format_: str) -> Sparsity:
    """How the metadata of a format lie: those of mma.sp with 64 bytes of K.

    Raises SparsityError for a format that no sparse kernel takes.
    """
    for row in KERNELS.values():
        if row.sparse and format_ in row.formats:
            build = Build(row.name, format_, format_, OPERAND_FORMATS[format_].outputs[0], row.target, row.block_n[0])
            return sparsity_in(build.instruction)
    raise SparsityError(f"no sparse kernel takes {format_}; valid: {', '.join(OPERAND_FORMATS)}")


def sparsity_in(instruction: Instruction) -> Sparsity:
    """How an instruction stores metadata.

    Raises SparsityError for a dense one.
    """
    if not isinstance(instruction, SparseOperand):
        raise SparsityError(f"{instruction!r} takes no sparse A")
    return instruction.sparsity


def metadata_image(groups: npt.NDArray[np.uint8], format_: str, sparsity: Sparsity) -> npt.NDArray[np.uint32]:
    """The metadata in the order in which a kernel reads them: uint32 (blocks of 128 rows, slots, 8, words, 32).

    groups: 4-bit groups (M, groups). sparsity: of the instruction, of 16 rows or 64. A slot has two multiplications along
    K, the 8 are tiles of 16 rows, the last axis the lanes of a warp. Where an instruction has several selectors, one word
    serves both multiplications (selectors 0 and 1); else each has a word. What is missing to whole blocks and slots: `0b0100`.

    >>> metadata_image(np.full((1, 1), 0b1101, np.uint8), "f16", sparsity_of("f16"))[0, 0, 0, 0, :5].tolist()
    [1145324621, 1145324612, 1145324612, 1145324612, 1145324612]
    """
    row_bytes = OPERAND_FORMATS[format_].bytes * sparsity.kept * STEPS
    if row_bytes != 64:
        raise SparsityError(f"{sparsity}: a slot has {row_bytes} bytes of a row; valid: 64")
    rows, count = groups.shape
    per_slot = STEPS * sparsity.groups
    blocks, slots = -(-rows // BLOCK_ROWS), -(-count // per_slot)
    filled = np.full((blocks * BLOCK_ROWS, slots * per_slot), _FILL, np.uint8)
    filled[:rows, :count] = groups
    tiles = BLOCK_ROWS // sparsity.rows
    cut = filled.reshape(blocks, tiles, sparsity.rows, slots, STEPS, sparsity.groups).transpose(0, 3, 1, 4, 2, 5)
    if len(sparsity.selectors) > 1:
        first, second = (sparsity.words_of(cut[:, :, :, step], step) for step in range(STEPS))
        words = (first | second)[..., None, :]
    else:
        words = sparsity.words_of(cut, 0)
    warps = sparsity.rows // 16
    by_warp = words.reshape(*words.shape[:-1], warps, 32).swapaxes(-3, -2)  # ..., warp, word, lane
    return np.ascontiguousarray(by_warp.reshape(blocks, slots, BLOCK_ROWS // 16, -1, 32), np.uint32)
