"""`hwkernels.conv`: a forward convolution on the GPU, NHWC, f16 and bf16.

    d = hwkernels.conv(x, filters, padding=1)                       # x (N, H, W, C), filters (outputs, R, S, C)
    d = hwkernels.conv(t.permute(0, 2, 3, 1), w.permute(0, 2, 3, 1))    # torch's channels_last tensors

It is the kernel sm90_wgmma_persistent of the matrix products, whose rows are the output's pixels: TMA copies a tap of 128 or so
of them at a time (window.cuh). `tcsim.conv` gives its bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwkernels.device import stream_launch
from hwkernels.device.array_protocols import OperandTypeError, read_array
from hwkernels.device.device_arrays import (
    DTYPES,
    DeviceMatrix,
    is_torch,
    new_array,
    read_matrix,
    round_up,
)
from hwkernels.device.plan import Plan
from hwkernels.device.tensor_map import driver_encode
from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import ENTRY, Build, cubin_of
from hwkernels.gemm.call import problem_dtype
from hwkernels.gemm.kernels import KERNELS, OPERAND_FORMATS, OUTPUT_BYTES
from hwkernels.gemm.operands import prepared
from hwkernels.gemm.tiles import Shape
from hwkernels.gemm.tuning import GemmError
from tcsim.convolution import Window, pair_of
from tcsim.core.errors import OperandError
from tcsim.tma.map import TensorMap

FORMATS = ("f16", "bf16")
BLOCK_M = (128, 64)  # two consumers, or one
_TILE_CYCLES = 1500  # of the first slots and the epilogue. Not measured
_KERNEL = KERNELS["sm90_wgmma_persistent"]
_CORNERS = range(-128, 128)  # what an im2col map of two directions may say. Source: tcsim.tma.rules
_OFFSETS = range(256)  # of a tap, as an im2col copy takes it
_WINDOW = np.dtype(
    [
        (name, "<i4")
        for name in (
            "height", "width", "stride_h", "stride_w", "padding_h", "padding_w", "dilation_h", "dilation_w", "taps_w", "channel_steps",
        )
    ]
)  # fmt: skip
"""The struct Window of window.cuh."""


class ConvolutionError(GemmError):
    """A convolution that the kernel does not do; the text says what would be valid."""


@dataclass(frozen=True)
class ConvolutionBuild(Build):
    """The persistent kernel with an image for A."""

    @property
    def threads(self) -> int:
        """Of a block: a producer's and each consumer's warpgroup."""
        return 128 * (1 + self.block_m // 64)

    @property
    def defines(self) -> dict[str, int]:
        """The macros."""
        return super().defines | {"CONVOLUTION": 1}

    @property
    def opcodes(self) -> tuple[str, ...]:
        """The beginnings of SASS opcodes that the machine code must contain."""
        lacking = ("UTMALDG.2D",) if self.block_m == 128 else ("UTMALDG.2D", "USETMAXREG")
        return (*(name for name in super().opcodes if not name.startswith(lacking)), "UTMALDG.4D.IM2COL", "UTMALDG.3D")


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution, and of the matrix product that it is."""

    images: int
    channels: int
    outputs: int  # channels of the output
    window: Window

    @property
    def pixels(self) -> int:
        """Of the output, over all images."""
        return self.images * math.prod(self.window.outputs)

    def shape(self, block_k: int) -> Shape:
        """Pixels, outputs, and the taps' channels, those of each filled up to whole slots of `block_k`.

        >>> Convolution(32, 100, 64, Window((56, 56), (3, 3), padding=(1, 1))).shape(64)
        Shape(m=100352, n=64, k=1152)
        """
        return Shape(self.pixels, self.outputs, math.prod(self.window.filter) * round_up(self.channels, block_k))

    def require_maps(self) -> None:
        """Raises ConvolutionError for a window that a tensor map or an im2col copy cannot say."""
        window = self.window
        for padding, reach in zip(window.padding, window.reach, strict=True):
            if -padding not in _CORNERS or padding - reach not in _CORNERS or reach not in _OFFSETS:
                raise ConvolutionError(
                    f"padding {padding} and {reach} pixels from the first tap to the last; valid: padding up to 128, "
                    "the last tap at most 255 from the first and at most 128 beyond the padding"
                )
        if max(window.stride) > 8:
            raise ConvolutionError(f"stride {window.stride}; valid: 1 to 8, the element strides of a tensor map")

    def maps(self, build: Build, leading: tuple[int, int]) -> tuple[TensorMap, TensorMap, TensorMap]:
        """Of the images, of the filters, and of the output as a matrix of pixels. leading: elements from one pixel of x, one tap, to the next."""
        item, (height, width), (r, s) = OPERAND_FORMATS[build.a], self.window.image, self.window.filter
        (top, left), (down, across), (rows, columns) = self.window.padding, self.window.reach, self.window.stride
        pixel, tap = (elements * item.bytes for elements in leading)
        images = TensorMap.im2col(
            item.tma, (self.channels, width, height, self.images), (pixel, pixel * width, pixel * width * height),
            (-left, -top), (left - across, top - down), build.block_k, build.block_m // build.cluster[1],
            (1, columns, rows, 1), l2_promotion="L2_256B",
        )  # fmt: skip
        filters = TensorMap(
            item.tma, (self.channels, r * s, self.outputs), (tap, tap * r * s), (build.block_k, 1, build.block_n // build.cluster[0]),
            swizzle="128B", l2_promotion="L2_256B",
        )  # fmt: skip
        size = OUTPUT_BYTES[build.out]
        type_ = {"f32": "FLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16"}[build.out]
        result = TensorMap(
            type_, (self.outputs, self.pixels), (round_up(self.outputs * size, 16),), (128 // size, gemm_tiles.PANEL_ROWS), swizzle="128B"
        )  # fmt: skip
        return images, filters, result

    def window_parameter(self, block_k: int) -> Any:
        """The kernel's Window."""
        window, steps = self.window, round_up(self.channels, block_k) // block_k
        fields = (*window.outputs, *window.stride, *window.padding, *window.dilation, window.filter[1], steps)
        return np.array(fields, _WINDOW)


def build_for(
    convolution: Convolution, formats: tuple[str, str], aligned: bool = True, multiprocessors: int = 132
) -> ConvolutionBuild:
    """The build that should be fastest. formats: of the operands and of the output. aligned: rows of it start at multiples of 16 bytes.

    >>> build = build_for(Convolution(32, 512, 512, Window((7, 7), (3, 3), padding=(1, 1))), ("f16", "f16"))
    >>> build.block_m, build.block_n, build.cluster
    (64, 128, (1, 2))
    """
    candidates = [
        with_tile(formats, (m, n), (1, 1 + (convolution.outputs > n)), aligned)
        for m in BLOCK_M
        for n in _KERNEL.block_n
    ]
    return min(candidates, key=lambda item: estimated_cycles(item, convolution, multiprocessors))


def with_tile(
    formats: tuple[str, str], tile: tuple[int, int], cluster: tuple[int, int] = (1, 1), aligned: bool = True
) -> ConvolutionBuild:
    """The build of a tile and a cluster, with the longest ring."""
    format_, out = formats
    build = ConvolutionBuild(
        _KERNEL.name, format_, format_, out, _KERNEL.target, tile[1], tile[0], cluster=cluster, tma_store=aligned, defer=True
    )  # fmt: skip
    return replace(build, stages=gemm_tiles.most_stages(build))


def estimated_cycles(build: ConvolutionBuild, convolution: Convolution, multiprocessors: int = 132) -> float:
    """Cycles of a whole convolution: waves of tiles, each its slots and an epilogue.

    A slot takes as long as its multiplications, or as what goes through shared memory: written once, and read by each consumer, 144 bytes a cycle
    (an H200: slots of 128 x 64 took 390 cycles, of 128 x 128, 192 and 256 527, 797 and 1058).
    """
    shape = convolution.shape(build.block_k)
    steps, tiles = shape.k // build.block_k, gemm_tiles.tile_count(build, shape)
    waves = math.ceil(tiles / max(1, multiprocessors // math.prod(build.cluster)))
    read = build.block_m // 64 * (64 + build.block_n) * _KERNEL.span
    slot = max(build.block_m * build.block_n / 32, (build.slot_bytes + read) / 144)
    return waves * (steps * slot + _TILE_CYCLES)


def problem_of(convolution: Convolution, build: Build, address: int, group: int) -> Any:
    """The kernel's Problem: the output's address, and the sizes. group: rows of tiles that are worked on together."""
    shape, problem = convolution.shape(build.block_k), np.zeros((), problem_dtype(build))
    problem["d"], problem["ldd"], problem["group"], problem["alpha"] = address, convolution.outputs, group, 1
    problem["m"], problem["n"], problem["k"] = shape.m, shape.n, shape.k
    return problem


def plan_conv(
    x: Any, filters: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, out_format: str | None = None, out: Any = None,
    build: ConvolutionBuild | None = None,
) -> Plan:  # fmt: skip
    """Everything but the launch. Arguments and errors as for `conv`; build: not the one that `build_for` chooses."""
    stream_launch.make_current()
    if stream_launch.arch_number() != 90:
        raise ConvolutionError(
            f"this GPU is sm_{stream_launch.arch_number()}; valid: sm_90, whose wgmma the kernel uses"
        )
    (image, pixels), (taps, rows) = _flat(x, "x"), _flat(filters, "filters")
    if pixels.format != rows.format or pixels.format not in FORMATS or image[3] != taps[3]:
        raise ConvolutionError(
            f"x is {image} {pixels.format}, filters {taps} {rows.format}; valid: (N, H, W, C) and (outputs, R, S, C), both f16 or both bf16"
        )
    try:
        window = Window(
            image[1:3], taps[1:3], pair_of(stride, "stride"), pair_of(padding, "padding"), pair_of(dilation, "dilation")
        )
    except OperandError as error:
        raise ConvolutionError(str(error)) from None
    convolution = Convolution(image[0], image[3], taps[0], window)
    convolution.require_maps()
    format_ = out_format or pixels.format
    if format_ not in OPERAND_FORMATS[pixels.format].outputs:
        raise ConvolutionError(f"out_format={out_format!r}; valid: {', '.join(OPERAND_FORMATS[pixels.format].outputs)}")
    wanted = (image[0], *window.outputs, taps[0])
    if out is None:
        like = next((item for item in (x, filters) if is_torch(item)), None)
        out = new_array(like, wanted, format_)
    target = read_array(out, "out")
    if (
        target.shape != wanted
        or target.dtype != DTYPES[format_]
        or target.host is not None
        or not target.contiguous
        or target.read_only
    ):
        raise ConvolutionError(
            f"out is {target.dtype} {target.shape}; valid: {format_} {wanted} on the GPU, contiguous, that may be written"
        )
    launches: list[stream_launch.StreamLaunch] = []
    operands = [prepared(item, _KERNEL, launches) for item in (pixels, rows)]
    aligned = taps[0] * OUTPUT_BYTES[format_] % 16 == 0 and target.address % 16 == 0
    if build is None:
        build = build_for(convolution, (pixels.format, format_), aligned, stream_launch.multiprocessors())
    shape = convolution.shape(build.block_k)
    group = gemm_tiles.group_height(build, stream_launch.multiprocessors())
    problem = problem_of(convolution, build, target.address, group)
    maps = convolution.maps(build, (operands[0].leading, operands[1].leading))
    addresses = (operands[0].address, operands[1].address, target.address if build.tma_store else 0)
    encoded = [
        driver_encode(own, address) if address else bytes(128) for own, address in zip(maps, addresses, strict=True)
    ]
    resident = max(1, stream_launch.multiprocessors() // math.prod(build.cluster))
    launch = stream_launch.StreamLaunch(
        stream_launch.load_function(cubin_of(build), ENTRY),
        [*(np.frombuffer(item, np.uint8) for item in encoded), problem, convolution.window_parameter(build.block_k)],
        gemm_tiles.launch_grid(build, shape, resident),
        (build.threads, 1, 1),
        build.shared_bytes,
        math.prod(build.cluster),
        keep=(operands, target, out),
        overlaps=_KERNEL.overlaps,
    )
    if launch.cluster > 1:
        launch.set_grid(gemm_tiles.launch_grid(build, shape, min(resident, max(1, launch.max_clusters()))))
    return Plan(build, convolution, [*launches, launch], out)


def conv(
    x: Any, filters: Any, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, out_format: str | None = None, out: Any = None
) -> Any:  # fmt: skip
    """A forward convolution of images, NHWC.

    x: (N, H, W, C); filters: (outputs, R, S, C); the result (N, P, Q, outputs). f16 or bf16; NumPy arrays, or arrays on the GPU that
    speak `__cuda_array_interface__` or DLPack, contiguous. stride, padding, dilation: an integer, or (vertical, horizontal). out_format:
    that of x (None) or "f32". Every output is one chain of wgmma over the taps, row by row, and the channels of each
    (`tcsim.conv` gives its bits), rounded to nearest even.

    Raises ConvolutionError for shapes, formats and windows that do not go together or that TMA's im2col copies cannot do;
    OperandTypeError for operands that cannot be read; DriverUnavailable without a GPU.
    """
    plan = plan_conv(x, filters, stride=stride, padding=padding, dilation=dilation, out_format=out_format, out=out)
    return plan.fetch() if isinstance(x, np.ndarray) and isinstance(filters, np.ndarray) and out is None else plan()


def _flat(value: Any, name: str) -> tuple[tuple[int, int, int, int], DeviceMatrix]:
    """The shape of an array of four dimensions, and the array as a matrix whose rows are its innermost ones.

    Raises OperandTypeError for another number of dimensions, or one that is not contiguous on the GPU.
    """
    found = read_array(value, name)
    if len(found.shape) != 4 or min(found.shape) < 1:
        raise OperandTypeError(f"{name} has shape {found.shape}; valid: four dimensions of at least 1, channels last")
    n, height, width, channels = found.shape
    rows = (n * height * width, channels)
    if found.host is not None:
        return (n, height, width, channels), read_matrix(found.host.reshape(rows), name)
    if not found.contiguous:
        raise OperandTypeError(f"{name} has strides {found.strides}; valid: contiguous in memory, channels last")
    whole = DeviceMatrix(
        {np.dtype(dtype): key for key, dtype in DTYPES.items()}[found.dtype], rows, (channels, 1), found.address, owner=found.owner, read_only=found.read_only
    )  # fmt: skip
    return (n, height, width, channels), whole
