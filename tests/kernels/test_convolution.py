"""Convolutions: `tcsim.conv` against sums written out, and the kernel of hwkernels, run on a CPU, against `tcsim.conv` bit for bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from hwkernels.convolution.call import Convolution, ConvolutionBuild, ConvolutionError, build_for, problem_of, with_tile
from hwkernels.device.nvrtc import compile_cubin
from hwkernels.device.sass import disassemble, opcode_counts
from hwkernels.gemm import tiles
from hwkernels.gemm.build import SOURCES, cubin_of
from tcsim.convolution import Window
from tcsim.ptx import HAZARDS, Memory, parse

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WINDOWS = [
    Window((5, 4), (3, 3), padding=(1, 1)),
    Window((7, 6), (3, 2), stride=(2, 3), padding=(0, 1)),
    Window((8, 9), (2, 3), stride=(1, 2), padding=(2, 1), dilation=(3, 2)),
    Window((4, 4), (1, 1), stride=(2, 2)),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_conv_is_the_sum_over_the_window(window: Window) -> None:
    """Small integers, whose sums are exact in any order: every output is compared with a loop over its taps."""
    rng = np.random.default_rng(7)
    x = rng.integers(-3, 4, (2, *window.image, 5))
    filters = rng.integers(-3, 4, (3, *window.filter, 5))
    d = tcsim.conv(
        x.astype(np.float16), filters.astype(np.float16), instruction=MMA,
        stride=window.stride, padding=window.padding, dilation=window.dilation,
    )  # fmt: skip
    values, compared = np.asarray(tcsim.decode(d, "f32")), 0
    assert values.shape == (2, *window.outputs, 3)
    for n, p, q, k in itertools.product(*map(range, values.shape)):
        total = 0
        for r, s in itertools.product(*map(range, window.filter)):
            h = p * window.stride[0] - window.padding[0] + r * window.dilation[0]
            w = q * window.stride[1] - window.padding[1] + s * window.dilation[1]
            if 0 <= h < window.image[0] and 0 <= w < window.image[1]:
                total += int(x[n, h, w] @ filters[k, r, s])
        assert values[n, p, q, k] == total
        compared += 1
    assert compared == values.size >= 12


def test_what_is_no_convolution_is_refused() -> None:
    """Shapes, windows and pairs that do not go together, each with what is valid."""
    x, filters = np.ones((1, 4, 4, 8), np.float16), np.ones((2, 3, 3, 8), np.float16)
    for wrong, said in (
        ({"x": x[0]}, "valid: (N, H, W, C)"),
        ({"filters": filters[..., :4]}, "valid: (N, H, W, C)"),
        ({"stride": 0}, "stride=(0, 0); valid: 1"),
        ({"padding": -1}, "padding=(-1, -1); valid: 0"),
        ({"dilation": 2}, "valid: at least one output"),
        ({"stride": (1, 2, 3)}, "valid: an integer, or two"),
    ):
        with pytest.raises(tcsim.OperandError) as error:
            tcsim.conv(**({"x": x, "filters": filters} | wrong), instruction=MMA)
        assert said in str(error.value)


def on_cpu(
    convolution: Convolution, build: ConvolutionBuild, x: np.ndarray[Any, Any], filters: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """The kernel's output, by `tcsim.ptx`."""
    text = (SOURCES / build.row.file).read_text(encoding="utf-8")
    ptx = compile_cubin(text, build.target, name=build.row.file, headers=build.headers, defines=build.defines).ptx
    memory = Memory()
    places = [memory.allocate(own.reshape(-1).view(np.uint8)) for own in (x, filters)]
    shape = (convolution.images, *convolution.window.outputs, convolution.outputs)
    places.append(memory.allocate(np.full(math.prod(shape) * 2, 0xA5, np.uint8)))
    leading = x.shape[-1]
    maps = [(own, place) for own, place in zip(convolution.maps(build, (leading, leading)), places, strict=True)]
    problem = problem_of(convolution, build, places[2], group=2)
    run = parse(ptx).kernel().launch(
        memory, [*maps, problem.tobytes(), convolution.window_parameter(build.block_k).tobytes()],
        grid=tiles.launch_grid(build, convolution.shape(build.block_k), 2), block=(build.threads, 1, 1),
        cluster=(math.prod(build.cluster), 1, 1), dynamic_smem=build.shared_bytes, origins=True,
    )  # fmt: skip
    assert run.completed and not [own for own in run.hazards if HAZARDS[own.name].severity == "error"], run.hazards
    return memory.read(places[2], math.prod(shape) * 2).view(x.dtype).reshape(shape)


@pytest.mark.parametrize(
    ("format_", "channels", "outputs", "window", "tile", "cluster"),
    [
        ("f16", 72, 64, Window((9, 14), (3, 3), padding=(1, 1)), (128, 64), (2, 1)),
        ("bf16", 16, 72, Window((11, 12), (3, 2), stride=(2, 1), padding=(0, 1), dilation=(2, 3)), (64, 128), (1, 1)),
        ("f16", 8, 128, Window((18, 18), (1, 1), stride=(2, 2)), (128, 64), (1, 2)),
        ("bf16", 24, 200, Window((7, 7), (3, 3), padding=(1, 1)), (64, 128), (1, 2)),
    ],
    ids=("padded", "dilated", "strided", "one consumer"),
)
def test_the_kernel_gives_the_bits_of_the_model(
    format_: str, channels: int, outputs: int, window: Window, tile: tuple[int, int], cluster: tuple[int, int]
) -> None:
    """Clusters of both shapes and none, channels that fill no slot, pixels and outputs that fill no tile; no hazard."""
    dtype = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}[format_]
    rng = np.random.default_rng(11)
    x = rng.normal(size=(3, *window.image, channels)).astype(dtype)
    filters = rng.normal(size=(outputs, *window.filter, channels)).astype(dtype)
    convolution = Convolution(len(x), channels, outputs, window)
    build = with_tile((format_, format_), tile, cluster)
    found = on_cpu(convolution, build, x, filters)
    model = tcsim.conv(
        x, filters, instruction=build.instruction, stride=window.stride, padding=window.padding, dilation=window.dilation
    )  # fmt: skip
    expected = np.asarray(tcsim.decode(model, "f32")).astype(np.float32).astype(dtype)
    assert found.shape == expected.shape and found.size > 5_000
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


def test_the_machine_code_copies_windows() -> None:
    """The opcodes that the build claims, no spill, no local memory."""
    convolution = Convolution(32, 128, 128, Window((28, 28), (3, 3), padding=(1, 1)))
    build = build_for(convolution, ("bf16", "bf16"))
    counts = opcode_counts(disassemble(cubin_of(build)))
    for opcode in build.opcodes:
        assert any(found.startswith(opcode) for found in counts), opcode
    assert not any(found.startswith(("LDL", "STL", "UTMALDG.2D")) for found in counts)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (Window((300, 300), (1, 1), padding=(129, 0)), "valid: padding up to 128"),
        (Window((600, 600), (3, 3), dilation=(128, 128)), "the last tap at most 255"),
        (Window((40, 40), (1, 1), stride=(9, 1)), "valid: 1 to 8"),
    ],
)
def test_windows_beyond_a_tensor_map_are_refused(window: Window, said: str) -> None:
    """With what a map or a copy can say."""
    with pytest.raises(ConvolutionError, match=said):
        Convolution(1, 8, 8, window).require_maps()
