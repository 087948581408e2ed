"""A convolution, bit for bit: the matrix product of its windows, as implicit GEMM kernels compute it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tcsim.catalog import instruction as find_instruction
from tcsim.core.arguments import integers
from tcsim.core.errors import OperandError
from tcsim.multiplication import gemm, machine_of
from tcsim.numbers.codec import as_codes

if TYPE_CHECKING:
    from tcsim.descriptors.instruction import InstructionDescriptor

Codes = npt.NDArray[Any]


@dataclass(frozen=True)
class Window:
    """Where the taps of a filter lie on an image, and how many outputs that gives: (height, width) each.

    Raises OperandError for a filter that does not fit into the padded image, or numbers below those that make sense.

    >>> Window((56, 56), (3, 3), stride=(2, 2), padding=(1, 1)).outputs
    (28, 28)
    """

    image: tuple[int, int]
    filter: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)  # zeros on both sides
    dilation: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        for name, least in (("image", 1), ("filter", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            if min(getattr(self, name)) < least:
                raise OperandError(f"{name}={getattr(self, name)}; valid: {least} and more")
        if min(self.outputs) < 1:
            raise OperandError(f"{self}: the filter is larger than the padded image; valid: at least one output")

    @property
    def reach(self) -> tuple[int, int]:
        """From the first tap to the last, in pixels."""
        (r, s), (down, across) = self.filter, self.dilation
        return (r - 1) * down, (s - 1) * across

    @property
    def outputs(self) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (
            (size + 2 * padding - reach - 1) // stride + 1
            for size, padding, reach, stride in zip(self.image, self.padding, self.reach, self.stride, strict=True)
        )
        return height, width


def pair_of(value: Any, name: str) -> tuple[int, int]:
    """A number for both directions, or (vertical, horizontal). Raises OperandError for anything else.

    >>> pair_of(2, "stride"), pair_of((1, 2), "stride")
    ((2, 2), (1, 2))
    """
    found = integers(value, name).reshape(-1).tolist()
    if len(found) not in (1, 2):
        raise OperandError(f"{name}={value!r}; valid: an integer, or two (vertical, horizontal)")
    return found[0], found[-1]


def conv(
    x: Any,
    filters: Any,
    *,
    instruction: Any,
    arch: str = "sm_90",
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    idesc: int | InstructionDescriptor | None = None,
) -> Codes:
    """A forward convolution as an implicit GEMM: every output is one chain of an instruction over taps, and channels within a tap.

    x: codes (N, H, W, C); filters: codes (outputs, R, S, C); the result (N, P, Q, outputs) in the instruction's D format. The
    taps come row by row; the channels of each are filled up with zeros to whole blocks of the instruction's K, as kernels read
    them that copy a tap at a time (TMA's im2col). stride, padding, dilation: an integer, or (vertical, horizontal). Nothing
    is turned round: it is the cross-correlation that deep learning calls a convolution. idesc: as for `tcsim.gemm`.

    Raises OperandError for shapes that do not go together, and as `tcsim.gemm` does.

    >>> x, filters = np.ones((1, 4, 4, 8), np.float16), np.ones((2, 3, 3, 8), np.float16)
    >>> d = tcsim.conv(x, filters, instruction="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", padding=1)
    >>> tcsim.decode(d, "f32")[0, :, :, 0]
    array([[32., 48., 48., 32.],
           [48., 72., 72., 48.],
           [48., 72., 72., 48.],
           [32., 48., 48., 32.]])
    """
    multiply = find_instruction(instruction, arch=arch) if isinstance(instruction, str) else instruction
    call = f"tcsim.conv with {multiply!r}"
    work = machine_of(multiply, call, idesc)
    images, taps = (
        as_codes(x, work.formats["a"], f"{call}: x"),
        as_codes(filters, work.formats["b"], f"{call}: filters"),
    )
    if images.ndim != 4 or taps.ndim != 4 or images.shape[3] != taps.shape[3]:
        raise OperandError(
            f"{call}: x is {images.shape}, filters {taps.shape}; valid: (N, H, W, C) and (outputs, R, S, C)"
        )
    window = Window(
        images.shape[1:3], taps.shape[1:3], pair_of(stride, "stride"), pair_of(padding, "padding"), pair_of(dilation, "dilation")
    )  # fmt: skip
    channels = -(-images.shape[3] // work.shape[2]) * work.shape[2]
    b = np.pad(taps, ((0, 0), (0, 0), (0, 0), (0, channels - taps.shape[3]))).reshape(len(taps), -1)
    d = gemm(patches(images, window, channels), b.T, instruction=multiply, idesc=idesc)
    return d.reshape(len(images), *window.outputs, len(taps))


def patches(x: Codes, window: Window, channels: int) -> Codes:
    """What each output reads: (outputs of all images, taps x channels), zeros beyond the image and beyond x's channels.

    x: (N, H, W, C).

    >>> patches(np.arange(1, 5).reshape(1, 2, 2, 1), Window((2, 2), (2, 2), padding=(0, 1)), 1)
    array([[0, 1, 0, 3],
           [1, 2, 3, 4],
           [2, 0, 4, 0]])
    """
    (top, left), (height, width) = window.padding, window.outputs
    (r, s), (down, across), (rows, columns) = window.filter, window.dilation, window.stride
    padded = np.pad(x, ((0, 0), (top, top), (left, left), (0, channels - x.shape[3])))
    out = np.empty((len(x), height, width, r, s, channels), x.dtype)
    for tap in np.ndindex(r, s):
        first, begin = tap[0] * down, tap[1] * across
        out[:, :, :, *tap] = padded[
            :, first : first + rows * (height - 1) + 1 : rows, begin : begin + columns * (width - 1) + 1 : columns
        ]
    return out.reshape(len(x) * height * width, -1)
