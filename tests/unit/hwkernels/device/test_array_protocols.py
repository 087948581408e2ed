"""Operands from anywhere: every protocol, every type, views of every kind; `gemm`, `convert` and `scaled_gemm` take them all."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hwkernels
import tcsim
from hwkernels.device import stream_launch
from hwkernels.device.array_protocols import OperandTypeError, read_array
from hwkernels.device.device_arrays import DTYPES, DeviceArray
from hwkernels.gemm import convert_call
from hwkernels.gemm.call import GemmError
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS
from tests.unit.hwkernels.device.array_fakes import HOST, KINDS, Interface, Packet, Tensor, torch_module
from tests.unit.hwkernels.gemm import test_gemm_call, test_scaled_call
from tests.unit.hwkernels.gemm.test_gemm_call import Driver, integers
from tests.unit.hwkernels.gemm.test_scaled_call import Blackwell
from tests.unit.hwkernels.gemm.test_scaled_kernels import random_operands

DTYPE_OF = {name: np.dtype(getattr(np, name, None) or getattr(ml_dtypes, name)) for name in KINDS}
SPEAKERS: dict[str, Callable[[np.ndarray], Any]] = {
    "interface": Interface,
    "dlpack": Packet,
    "old dlpack": lambda values: Packet(values, versioned=False),
    "dlpack of the host": lambda values: Packet(values, device=HOST),
    "torch": Tensor,
}
PADDED = 4  # the flag of DLPack that each fp4 has a byte

hopper, gpu = test_gemm_call.gpu, test_scaled_call.gpu  # fixtures of those modules


def codes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Any bytes of a type."""
    random = np.random.default_rng(sum(shape) + dtype.itemsize)
    high = 16 if dtype.name.startswith("float4") else 256
    return random.integers(0, high, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]


def views(dtype: np.dtype[Any]) -> dict[str, np.ndarray]:
    """One array, seen in several ways. Slices of unsigned words: NumPy slices no fp8 backwards."""
    whole = codes((12, 20), dtype).view(f"u{dtype.itemsize}")
    found = {
        "rows": whole,
        "columns": whole.T,
        "part": whole[2:9, 3:17],
        "every other": whole[::2, ::3],
        "backwards": whole[::-1, ::-2],
        "one row": whole[3:4],
        "cube": whole.reshape(3, 4, 20).transpose(2, 0, 1),
    }
    return {name: view.view(dtype) for name, view in found.items()}


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_every_type_and_view_is_read(hopper: Driver, speaker: str) -> None:
    """Values come back as they are; contiguous is said of what is."""
    checked = 0
    for name, dtype in DTYPE_OF.items():
        if name.startswith("float4") and speaker != "interface":
            continue
        for kind, view in views(dtype).items():
            found = read_array(SPEAKERS[speaker](view), "x")
            assert (found.dtype, found.shape) == (dtype, view.shape), kind
            np.testing.assert_array_equal(found.download().view(f"u{dtype.itemsize}"), view.view(f"u{dtype.itemsize}"))
            assert found.contiguous == view.flags.c_contiguous
            assert (found.host is None) == ("host" not in speaker)
            checked += found.size
    assert checked > 8000


def test_what_producers_say_besides(hopper: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read-only memory, streams, versions; fp4 with a byte each; nothing at all."""
    waited: list[int] = []
    monkeypatch.setattr(hopper, "cuStreamSynchronize", waited.append, raising=False)
    values = np.ones((4, 8), np.float16)
    frozen = values.copy()
    frozen.flags.writeable = False
    for read_only in (Interface(frozen), Packet(values, flags=1), frozen):
        assert read_array(read_only, "x").read_only
    for open_ in (Interface(values), Packet(values), Packet(values, versioned=False), values, Tensor(values)):
        assert not read_array(open_, "x").read_only
    assert not waited
    read_array(Interface(values, {"stream": 2}), "x")
    assert waited == [2]
    packet, old = Packet(values), Packet(values, versioned=False)
    read_array(packet, "x"), read_array(old, "x")
    assert packet.asked == [{"max_version": (1, 1)}] and old.asked == [{"max_version": (1, 1)}, {}]
    fp4 = codes((4, 6), np.dtype(ml_dtypes.float4_e2m1fn))
    assert read_array(Packet(fp4, flags=PADDED), "x").dtype == fp4.dtype
    empty = read_array(Interface(np.empty((0, 3), np.float32)), "x")
    assert empty.download().shape == (0, 3) and empty.contiguous


class OnlyDlpack:
    """NumPy's own capsules, and nothing else of NumPy."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **more: Any) -> Any:
        return self.values.__dlpack__(**more)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int32, np.uint8])
def test_a_real_producer(dtype: Any) -> None:
    """NumPy's DLPack: what is read is the memory itself, not a copy."""
    values = np.arange(24).reshape(4, 6).astype(dtype)
    for view in (values, values.T, values[1:, ::2]):
        found = read_array(OnlyDlpack(view), "x")
        assert found.host is not None and found.dtype == dtype and not found.read_only
        np.testing.assert_array_equal(found.download(), view)
        assert np.shares_memory(found.download(), view)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1.0], "x is a list; valid: NumPy arrays"),
        (Interface(np.ones(3), {"mask": 1}), "x has a mask"),
        (Interface(np.ones(3, np.float32), {"strides": (6,)}), r"strides \(6,\) in bytes; valid: multiples of its 4"),
        (Tensor(np.ones(3, np.float32), is_cuda=False), "torch tensor on cpu"),
        (
            Tensor(np.ones(3, np.uint8), dtype="float4_e2m1fn_x2"),
            "has dtype torch.float4_e2m1fn_x2; valid: torch.float16",
        ),
        (Packet(np.ones(3), device=10), "DLPack device 10"),
        (Packet(np.ones(3), major=2), "speaks DLPack 2.1; valid: 1.x"),
        (Packet(np.ones(3), name=b"used_dltensor_versioned"), "no DLPack capsule that is unused"),
        (Packet(np.ones(3, np.int8), changes={"code": 5}), r"DLPack type \(5, 8\), 1 lanes"),
        (Packet(np.ones(3, np.float16), changes={"lanes": 2}), r"\(2, 16\), 2 lanes"),
        (Packet(np.ones(3, ml_dtypes.float4_e2m1fn)), r"DLPack type \(17, 4\).* in a byte or more of its own"),
    ],
)
def test_what_cannot_be_read(value: Any, text: str) -> None:
    """Each is told why."""
    with pytest.raises(OperandTypeError, match=text):
        read_array(value, "x")


@pytest.mark.parametrize("dtype", sorted(set(DTYPES.values()), key=str), ids=str)
def test_device_arrays_come_back(hopper: Driver, dtype: np.dtype[Any]) -> None:
    """Of every type, rows padded or not; and by their own interface."""
    for shape, strides in (((3, 5), None), ((3, 5), (16 * dtype.itemsize, dtype.itemsize)), ((7,), None)):
        array = DeviceArray(shape, dtype, strides)
        bits = np.random.default_rng(1).integers(0, 256, array.bytes, np.uint8)
        array.set(bits)
        words = np.dtype(f"u{dtype.itemsize}")
        want = np.ndarray(shape, words, bits.data, 0, array.strides)
        assert array.get().dtype == dtype
        np.testing.assert_array_equal(array.get().view(words), want)
        found = read_array(array, "x")
        assert found.dtype == dtype
        np.testing.assert_array_equal(found.download().view(words), want)


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("format_", ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8"])
def test_gemm_takes_them(
    hopper: Driver,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
    speaker: str,
) -> None:
    """Row-major, column-major, and views that must be repacked; the output is of the caller's library."""
    monkeypatch.setitem(sys.modules, "torch", None)  # type: ignore[arg-type]
    monkeypatch.setattr(stream_launch, "current_stream", lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", torch_module())
    a, b = integers((24, 48), format_, 1), integers((48, 40), format_, 2)
    steps = [a, np.asfortranarray(a), a.view(f"u{a.dtype.itemsize}")[::2, 1::2].view(a.dtype)]
    for left in steps:
        right = b[: left.shape[1]]
        out = "s32" if format_ == "s8" else "f32"
        got = hwkernels.gemm(SPEAKERS[speaker](left), SPEAKERS[speaker](right), out_format=out)
        values = got.values if speaker == "torch" else got.get()
        np.testing.assert_array_equal(values.astype(float), left.astype(float) @ right.astype(float))
    assert len(hopper.builds) == 3


def test_an_output_that_may_not_be_written(hopper: Driver) -> None:
    """Is refused; an addend in any order is taken."""
    a, b = integers((8, 16), "f16", 1), integers((16, 8), "f16", 2)
    with pytest.raises(GemmError, match="out is read-only"):
        hwkernels.gemm(a, b, out=Packet(np.zeros((8, 8), np.float16), flags=1))
    c = np.asfortranarray(integers((8, 8), "f16", 3))
    np.testing.assert_array_equal(hwkernels.gemm(a, b, c).astype(float), a.astype(float) @ b.astype(float) + c)


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_convert_takes_them(gpu: Blackwell, monkeypatch: pytest.MonkeyPatch, speaker: str) -> None:
    """Every format; C order where it lies, matrices of any strides through a copy, other views refused."""

    def made(format_: str, saturate: bool, _: str) -> Any:
        class Made:
            cubin = f"convert {format_} {int(saturate)}".encode()

        return Made

    monkeypatch.setattr(convert_call, "compiled", made)
    monkeypatch.setattr(stream_launch, "current_stream", lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", torch_module())
    whole = (np.random.default_rng(2).standard_normal((6, 10)) * 100).astype(np.float32)
    inputs = {"whole": whole, "flat": whole[2], "columns": whole.T, "part": whole[1:, 2:7], "back": whole[::-1, ::3]}
    checked = 0
    for format_, saturate in convert_call.FORMATS:
        for name, x in inputs.items():
            launches, packed = len(gpu.configs), gpu.packed
            got = hwkernels.convert(SPEAKERS[speaker](x), format_, saturate)
            values = got.values if speaker == "torch" else got.get()
            assert values.dtype == DTYPES[format_] and values.shape == x.shape
            want = tcsim.quantize(x, format_, saturate=saturate)
            np.testing.assert_array_equal(values.view(want.dtype), want)
            copies = name in ("columns", "part", "back") and "host" not in speaker
            assert (len(gpu.configs) - launches, gpu.packed - packed) == (1 + copies, copies)
            checked += x.size
    assert checked == 6 * (60 + 10 + 60 + 25 + 24)
    cube = whole.reshape(2, 3, 10).transpose(2, 1, 0)
    if "host" in speaker:
        assert hwkernels.convert(SPEAKERS[speaker](cube), "f16").get().shape == (10, 3, 2)
        return
    with pytest.raises(OperandTypeError, match="valid: C order, or any matrix"):
        hwkernels.convert(SPEAKERS[speaker](cube), "f16")


@pytest.mark.parametrize("speaker", SPEAKERS)
@pytest.mark.parametrize("name", ["sm100_mxfp8", "sm100_nvfp4", "sm120_mxfp4"])
def test_scaled_gemm_takes_them(
    gpu: Blackwell,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    speaker: str,
) -> None:
    """Codes as bytes or in their own types, factors too; a scheme instead of a kernel; an output of the caller's library."""
    monkeypatch.setattr(stream_launch, "current_stream", lambda: 0)
    monkeypatch.setitem(sys.modules, "torch", torch_module())
    kernel = SCALED_KERNELS[name]
    gpu.capability = (10, 0) if kernel.tensor_memory else (12, 0)
    formats = kernel.formats[0], kernel.formats[-1]
    a, scale_a, b, scale_b = random_operands(kernel, *formats, (20, 30, 2 * kernel.block + 3))
    types = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e2m1": "float4_e2m1fn"}
    scale_type = {"ue8m0": "float8_e8m0fnu", "ue4m3": "float8_e4m3fn"}[kernel.scale_format]
    typed = [
        x.view(getattr(ml_dtypes, kind))
        for x, kind in zip(
            (a, scale_a, b, scale_b), (types[formats[0]], scale_type, types[formats[1]], scale_type), strict=True
        )
    ]
    wanted = hwkernels.scaled_gemm(
        a, scale_a, b, scale_b, kernel=name, a_format=formats[0], b_format=formats[1], out_format="f32"
    )
    assert isinstance(wanted, np.ndarray) and np.isfinite(wanted).mean() > 0.5
    schemes = {"kernel": name.partition("_")[2], "a_format": formats[0], "b_format": formats[1], "out_format": "f32"}
    bytes_ = [a, scale_a, np.asfortranarray(b), np.asfortranarray(scale_b)]
    fp4 = "e2m1" in formats and speaker != "interface"
    for operands in (bytes_, bytes_ if fp4 else typed):
        got = hwkernels.scaled_gemm(*(SPEAKERS[speaker](x) for x in operands), **schemes)  # type: ignore[arg-type]
        values = got.values if speaker == "torch" else got.get()
        np.testing.assert_array_equal(values.view(np.uint32), wanted.view(np.uint32))


def test_names_of_the_package() -> None:
    """All calls are where a reader looks for them."""
    for name in hwkernels.__all__:
        assert callable(getattr(hwkernels, name))
    assert {"gemm", "convert", "scaled_gemm"} <= set(hwkernels.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'gemn'"):
        _ = hwkernels.gemn  # type: ignore[attr-defined]
