"""`scaled_gemm` and `convert` from arrays to launch, with a driver that keeps its memory here and walks through the kernel in the model."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hwkernels
import tcsim
from hwkernels.device import array_protocols, device_arrays, plan, stream_launch
from hwkernels.gemm import convert_call, scaled_call
from hwkernels.gemm import operands as gemm_operands
from hwkernels.gemm.call import GemmError, problem_dtype
from hwkernels.gemm.scaled_call import FACTORS, scaled_gemm
from hwkernels.gemm.scaled_kernels import SCALED_KERNELS, ScaledBuild
from tcsim.numbers.formats import FORMATS
from tests.unit.hwkernels.gemm.tensor_memory_walk import walk_scaled
from tests.unit.hwkernels.gemm.test_gemm_call import Driver, _matrix, _pointers
from tests.unit.hwkernels.gemm.test_scaled_kernels import random_operands


class Blackwell(Driver):
    """A GPU of any compute capability, for the kernels of these two modules."""

    capability = (10, 0)

    def cuDeviceGetAttribute(self, attribute: str, device: Any) -> int:
        """Its compute capability, and few multiprocessors."""
        name = attribute.removeprefix("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_")
        return {"MAJOR": self.capability[0], "MINOR": self.capability[1]}.get(name, 3)

    def cuLaunchKernelEx(self, config: Any, function: str, parameters: int, extra: int) -> None:
        """Do what the kernel does, with what it is given."""
        self.configs.append(config)
        if function.startswith("pack"):
            self.pack(parameters, int(function.split()[1]))
            return
        if function.startswith("convert"):
            _, format_, saturate = function.split()
            source, to, count = (int(np.frombuffer(ctypes.string_at(p, 8), "<u8")[0]) for p in _pointers(parameters, 3))
            codes = tcsim.quantize(
                _matrix(source, np.float32, (1, count), (count, 1))[0], format_, saturate=saturate == "1"
            )
            _matrix(to, codes.dtype, (1, count), (count, 1))[:] = codes
            return
        build = eval(function)
        pointers = _pointers(parameters, 5)
        problem = np.frombuffer(ctypes.string_at(pointers[3], 88), problem_dtype(build))[0]
        table = np.frombuffer(ctypes.string_at(pointers[4], 24), FACTORS)[0]
        m, n, k = (int(problem[name]) for name in "mnk")
        elements = []
        for arguments in self.maps[-2:]:
            _, _, address, (width, rows), (pitch,) = arguments[:5]
            elements.append(_matrix(address, np.uint8, (rows, width), (pitch, 1)))
        words = self.accumulators(build, elements, table, k)
        value = np.float32(problem["alpha"]) * words.view(np.float32)
        out = device_arrays.DTYPES[build.out]
        if problem["c"]:
            assert build.scaled
            addend = _matrix(int(problem["c"]), out, (m, n), (int(problem["ldc"]), 1))
            value = value + np.float32(problem["beta"]) * addend.astype(np.float32)
        _matrix(int(problem["d"]), out, (m, n), (int(problem["ldd"]), 1))[:] = value.astype(out)

    def accumulators(self, build: ScaledBuild, elements: list[np.ndarray], table: Any, k: int) -> np.ndarray:
        """f32 words."""
        row, pitch = build.row, int(table["pitch"])
        factors = []
        for name, matrix, width in (("a", elements[0], build.block_m), ("b", elements[1], build.block_n)):
            count = matrix.shape[0] if not row.tensor_memory else -(-matrix.shape[0] // width) * width // 128
            factors.append(_matrix(int(table[name]), np.uint8, (count, pitch), (pitch, 1)))
        if row.tensor_memory:
            words = row.factors // 4
            blocks = [x.reshape(x.shape[0], -1, words, 512) for x in factors]
            return walk_scaled(build, (elements[0], elements[1]), blocks, row.slot_k, k)
        codes = [unpacked(x, row.element_bits)[:, :k] for x in elements]
        used = [x[:, : -(-k // row.block)] for x in factors]
        return build.predict(codes[0], used[0], codes[1].T, used[1].T)


def unpacked(array: np.ndarray, bits: int) -> np.ndarray:
    """One code a byte."""
    if bits == 8:
        return array
    return np.stack([array & 15, array >> 4], -1).reshape(array.shape[0], -1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Blackwell]:
    """The driver in place of NVIDIA's."""
    made = Blackwell()
    for module in (stream_launch, device_arrays, array_protocols, plan):
        monkeypatch.setattr(module, "call", made.call)
    monkeypatch.setattr(gemm_operands, "pack_cubin", lambda size, target: f"pack {size} {target}".encode())
    monkeypatch.setattr(stream_launch, "driver_module", lambda: made)
    monkeypatch.setattr(scaled_call, "scaled_cubin_of", lambda build: repr(build).encode())
    caches = (stream_launch.load_function, stream_launch.multiprocessors, stream_launch.arch_number)
    for cached in caches:
        cached.cache_clear()
    yield made
    for cached in caches:
        cached.cache_clear()


@pytest.mark.parametrize("size", [(130, 200, 0), (3, 5, -1)])
@pytest.mark.parametrize("name", SCALED_KERNELS)
def test_a_product_from_arrays_to_arrays(gpu: Blackwell, name: str, size: tuple[int, int, int]) -> None:
    """What is uploaded, where, with which pitches, is what the kernel reads."""
    kernel = SCALED_KERNELS[name]
    gpu.capability = (10, 0) if kernel.tensor_memory else (12, 0)
    k = kernel.slot_k + 3 * kernel.block + 7 if size[2] == 0 else 1
    formats = kernel.formats[0], kernel.formats[-1]
    a, scale_a, b, scale_b = random_operands(kernel, *formats, (size[0], size[1], k))
    more: dict[str, Any] = {"kernel": name, "a_format": formats[0], "b_format": formats[1], "out_format": "f32"}
    got = scaled_gemm(a, scale_a, b, scale_b, **more)
    build = scaled_call.scaled_build(name, *formats, "f32", scaled_call.Shape(size[0], size[1], k))
    want = build.predict(a, scale_a, b, scale_b)
    np.testing.assert_array_equal(got.view(np.uint32), want)
    config = gpu.configs[-1]
    assert config.sharedMemBytes == build.shared_bytes and config.blockDimX == kernel.threads
    c = np.ones(size[:2], np.float32)
    again = scaled_gemm(a, scale_a, b, scale_b, c, alpha=0.5, beta=-2.0, **more)
    finite = np.isfinite(got)
    np.testing.assert_array_equal(again[finite], (np.float32(0.5) * got - 2)[finite])
    assert finite.any()


def test_an_output_to_write_and_tiles_by_hand(gpu: Blackwell) -> None:
    """`out` is written and returned; what cannot be written, and tiles that the kernel has not, are refused."""
    gpu.capability = (10, 3)
    kernel = SCALED_KERNELS["sm100_nvfp4"]
    operands = random_operands(kernel, "e2m1", "e2m1", (20, 130, 70))
    more: dict[str, Any] = {"kernel": "nvfp4", "a_format": "e2m1", "b_format": "e2m1"}
    wanted = scaled_gemm(*operands, out_format="f16", **more)
    out = device_arrays.DeviceArray((20, 130), np.float16)
    assert scaled_gemm(*operands, out_format="f16", out=out, **more) is out
    np.testing.assert_array_equal(out.get().view(np.uint16), wanted.view(np.uint16))
    plan_made = hwkernels.plan_scaled_gemm(*operands, out_format="f16", block_n=128, **more)
    assert (plan_made.build.target, plan_made.build.block_n) == ("sm_103a", 128)
    np.testing.assert_array_equal(plan_made.fetch().view(np.uint16), wanted.view(np.uint16))
    for changes, text in (
        ({"out": out}, "out is f16, out_format='bf16'; valid: the same"),
        ({"out": np.zeros((20, 130), np.float16), "out_format": "f16"}, "on the GPU"),
        ({"block_n": 64}, r"no tiles 64 wide; valid: \(256, 128\)"),
    ):
        with pytest.raises(GemmError, match=text):
            hwkernels.plan_scaled_gemm(*operands, **(more | changes))
    with pytest.raises(GemmError, match=r"a is \(20, 70\) and b \(20, 70\); valid: \(M, K\) and \(K, N\)"):
        scaled_gemm(*operands[:2], operands[0], operands[1], **more)
    with pytest.raises(GemmError, match="no kernel 'nvfp5'; valid on sm_103: sm100_mxfp8"):
        scaled_gemm(*operands, **(more | {"kernel": "nvfp5"}))


def test_other_gpus_and_addends_are_refused(gpu: Blackwell) -> None:
    """Before anything is launched."""
    a, scale = np.zeros((4, 32), np.uint8), np.zeros((4, 1), np.uint8)
    more: dict[str, Any] = {"kernel": "sm100_mxfp8", "a_format": "e4m3", "b_format": "e4m3"}
    with pytest.raises(GemmError, match=r"c is \(4, 4\) f16 with strides \(4, 1\); valid: \(4, 4\) bf16"):
        scaled_gemm(a, scale, a.T, scale.T, np.zeros((4, 4), np.float16), **more)
    gpu.capability = (9, 0)
    stream_launch.arch_number.cache_clear()
    with pytest.raises(
        GemmError, match="sm100_mxfp8 is for sm_100a, sm_103a, sm_110a; this GPU is sm_90; valid on sm_90: none"
    ):
        scaled_gemm(a, scale, a.T, scale.T, **more)
    assert not gpu.configs


@pytest.mark.parametrize("shape", [(1,), (3, 41), (0,)])
@pytest.mark.parametrize(("format_", "saturate"), convert_call.FORMATS)
def test_conversion_of_arrays(
    gpu: Blackwell, monkeypatch: pytest.MonkeyPatch, format_: str, saturate: bool, shape: tuple[int, ...]
) -> None:
    """Any shape; the result has the format's NumPy dtype; nothing is launched for nothing."""

    class Made:
        cubin = f"convert {format_} {int(saturate)}".encode()

    monkeypatch.setattr(convert_call, "compiled", lambda *_: Made)
    x = (np.random.default_rng(1).standard_normal(shape) * 1e3).astype(np.float32)
    job = convert_call.ConvertCall(x, format_, saturate, repeat=2)
    for got in plan.run_call(job):
        assert got.shape == shape and got.dtype == device_arrays.DTYPES[format_]
        want = tcsim.quantize(x, format_, saturate=saturate)
        np.testing.assert_array_equal(got.view(FORMATS[format_].dtype), want)
    assert len(gpu.configs) == (2 if x.size else 0)
    assert device_arrays.DTYPES["e4m3"] == ml_dtypes.float8_e4m3fn
