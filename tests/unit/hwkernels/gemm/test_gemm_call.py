"""`hwkernels.gemm` from arrays to launch, with a driver that keeps its memory here and multiplies with NumPy."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import hwkernels
from hwkernels.device import array_protocols, device_arrays, driver, plan, stream_launch
from hwkernels.device.device_arrays import DTYPES, DeviceArray
from hwkernels.device.plan import Plan, run_call
from hwkernels.gemm import call as gemm_call
from hwkernels.gemm import operands as gemm_operands
from hwkernels.gemm import picks as gemm_picks
from hwkernels.gemm import repeated
from hwkernels.gemm.build import Build
from hwkernels.gemm.call import GemmError, Tuning, plan_gemm, problem_dtype
from hwkernels.gemm.worker import GemmCall

Array = npt.NDArray[Any]


class Enumeration:
    """Any member of any enumeration: its name."""

    def __getattr__(self, name: str) -> str:
        return name


class Struct:
    """A driver struct: any fields."""

    def __init__(self) -> None:
        self.value = types.SimpleNamespace(clusterDim=types.SimpleNamespace(x=1, y=1, z=1))


class Map:
    """What cuTensorMapEncodeTiled returns: here its arguments."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.bytes = np.zeros(128, np.uint8)

    def getPtr(self) -> int:
        """Its address."""
        return self.bytes.ctypes.data


class Driver:
    """One GPU of compute capability 9.0: memory is NumPy's, a launch does what its kernel is for."""

    def __init__(self) -> None:
        self.memory: dict[int, Array] = {}
        self.builds: list[Build] = []
        self.configs: list[Any] = []
        self.maps: list[tuple[Any, ...]] = []
        self.packed = 0
        for name in ("CUdevice_attribute", "CUfunction_attribute", "CUlaunchAttributeID", "CUtensorMapDataType"):
            setattr(self, name, Enumeration())
        for name in (
            "CUtensorMapInterleave",
            "CUtensorMapSwizzle",
            "CUtensorMapL2promotion",
            "CUtensorMapFloatOOBfill",
        ):
            setattr(self, name, Enumeration())
        self.CUlaunchConfig, self.CUlaunchAttribute, self.cuuint64_t, self.cuuint32_t = Struct, Struct, int, int

    def call(self, name: str, *arguments: Any) -> Any:
        """A driver function."""
        return getattr(self, name, lambda *_: None)(*arguments)

    def cuCtxGetCurrent(self) -> int:
        """There is a context."""
        return 1

    def cuDeviceGetAttribute(self, attribute: str, device: Any) -> int:
        """Those of an H100."""
        return {"MULTIPROCESSOR_COUNT": 132, "COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0}[
            attribute.removeprefix("CU_DEVICE_ATTRIBUTE_")
        ]

    def cuMemAlloc(self, size: int) -> int:
        """NumPy's memory, aligned, full of rubbish."""
        raw = np.full(size + 512, 0xA5, np.uint8)
        address = -(-raw.ctypes.data // 256) * 256
        self.memory[address] = raw
        return address

    def cuMemFree(self, address: int) -> None:
        """Forget it."""
        del self.memory[address]

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> None:
        """Copy."""
        ctypes.memmove(to, source, size)

    cuMemcpyDtoH = cuMemcpyHtoD

    def cuMemsetD8(self, to: int, byte: int, size: int) -> None:
        """Fill."""
        ctypes.memset(to, byte, size)

    def cuModuleLoadData(self, cubin: bytes) -> bytes:
        """A module is its cubin."""
        return cubin

    def cuModuleGetFunction(self, module: bytes, entry: bytes) -> str:
        """A function is the text of its module."""
        return module.decode()

    def cuOccupancyMaxActiveClusters(self, function: str, config: Any) -> int:
        """Half of the multiprocessors."""
        assert config.numAttrs, "the driver wants a cluster"
        return 66

    def cuTensorMapEncodeTiled(self, *arguments: Any) -> Map:
        """Keep what was asked."""
        assert arguments[2] % 16 == 0 and arguments[4][0] % 16 == 0, "the driver would refuse it"
        self.maps.append(arguments)
        return Map(arguments)

    def cuLaunchKernelEx(self, config: Any, function: str, parameters: int, extra: int) -> None:
        """Do what the kernel is for."""
        self.configs.append(config)
        if function.startswith("pack"):
            self.pack(parameters, int(function.split()[1]))
        else:
            build = eval(function)
            self.builds.append(build)
            self.multiply(build, parameters)

    def pack(self, parameters: int, size: int) -> None:
        """What pack.cu does."""
        self.packed += 1
        words = np.frombuffer(ctypes.string_at(_pointers(parameters, 1)[0], 48), "<i8")
        source, to, row, column, leading = (int(value) for value in words[:5])
        rows, columns = (int(value) for value in words[5:].view("<i4"))
        dtype = np.dtype(f"<u{size}")
        target = _matrix(to, dtype, (rows, columns), (leading, 1))
        target[:] = _matrix(source, dtype, (rows, columns), (row, column))

    def multiply(self, build: Build, parameters: int) -> None:
        """What a GEMM kernel does, in float64."""
        pointers = _pointers(parameters, 4 if build.row.tma else 1)
        dtype = problem_dtype(build)
        problem = np.frombuffer(ctypes.string_at(pointers[-1], dtype.itemsize), dtype)[0]
        m, n, k = (int(problem[name]) for name in "mnk")
        operands = []
        for name, extent, mn_major, format_ in (
            ("a", m, build.a_mn_major, build.a),
            ("b", n, build.b_mn_major, build.b),
        ):
            leading = int(problem[f"ld{name}"])
            strides = (1, leading) if mn_major else (leading, 1)
            operands.append(_matrix(int(problem[name]), DTYPES[format_], (extent, k), strides).astype(np.float64))
        value = float(problem["alpha"]) * (operands[0] @ operands[1].T)
        out = DTYPES[build.out]
        if problem["c"]:
            assert build.scaled
            value += float(problem["beta"]) * _matrix(int(problem["c"]), out, (m, n), (int(problem["ldc"]), 1)).astype(
                float
            )
        _matrix(int(problem["d"]), out, (m, n), (int(problem["ldd"]), 1))[:] = value.astype(out)


def _pointers(parameters: int, count: int) -> list[int]:
    return [int(value) for value in np.frombuffer(ctypes.string_at(parameters, 8 * count), "<u8")]


def _matrix(address: int, dtype: npt.DTypeLike, shape: tuple[int, int], strides: tuple[int, int]) -> Array:
    dtype = np.dtype(dtype)
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low, high = (sum(pick(0, end) for end in ends) * dtype.itemsize for pick in (min, max))
    raw = (ctypes.c_uint8 * (high - low + dtype.itemsize)).from_address(address + low)
    steps = tuple(stride * dtype.itemsize for stride in strides)
    return np.ndarray(shape, f"<u{dtype.itemsize}", raw, -low, steps).view(dtype)  # NumPy makes no strided views of fp8


@contextmanager
def installed(made: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A driver in place of NVIDIA's."""
    for module in (driver, stream_launch, device_arrays, array_protocols, plan):
        monkeypatch.setattr(module, "call", made.call)
    monkeypatch.setattr(stream_launch, "driver_module", lambda: made)
    monkeypatch.setattr(gemm_call, "cubin_of", lambda build: repr(build).encode())
    monkeypatch.setattr(gemm_operands, "pack_cubin", lambda size, target: f"pack {size} {target}".encode())
    caches = (stream_launch.load_function, stream_launch.multiprocessors, stream_launch.arch_number)
    for cached in caches:
        cached.cache_clear()
    repeated.forget()
    yield made
    repeated.forget()
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """The driver in place of NVIDIA's."""
    with installed(Driver(), monkeypatch) as made:
        yield made


def integers(shape: tuple[int, int], format_: str, seed: int) -> Array:
    """Small whole numbers: every product of them is exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(DTYPES[format_])


@pytest.mark.parametrize("size", [(128, 256, 64), (37, 53, 29), (1, 1, 1), (300, 1, 77), (1, 40, 8), (5, 8, 1)])
@pytest.mark.parametrize(
    ("format_", "kernel"),
    [
        ("f16", None),
        ("bf16", "sm90_wgmma_tma"),
        ("tf32", None),
        ("e4m3", None),
        ("s8", "sm75_mma_ldmatrix"),
        ("f16", "sm70_wmma_naive"),
    ],
)
def test_products_of_numpy_arrays(gpu: Driver, format_: str, kernel: str | None, size: tuple[int, int, int]) -> None:
    """Any size, any order in memory; one launch, or with repacking more."""
    m, n, k = size
    a, b = integers((m, k), format_, 1), integers((k, n), format_, 2)
    want = a.astype(np.float64) @ b.astype(np.float64)
    for left, right in (
        (a, b),
        (np.asfortranarray(a), np.asfortranarray(b)),
        (a[::-1][::-1], np.repeat(b, 2, 1)[:, ::2]),
    ):
        got = hwkernels.gemm(left, right, kernel=kernel)
        assert isinstance(got, np.ndarray) and got.shape == (m, n)
        np.testing.assert_array_equal(got.astype(np.float64), want)
    assert len(gpu.builds) == 3
    assert {build.kernel for build in gpu.builds} == {kernel or "sm90_wgmma_persistent"}


def test_majors_reach_the_kernel_and_others_are_repacked(gpu: Driver) -> None:
    """16 bits: nothing is copied. 8 bits: MN-major operands are repacked on the GPU."""
    a, b = integers((64, 128), "f16", 1), integers((128, 72), "f16", 2)
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b)):
            hwkernels.gemm(left, right)
    assert [(build.a_mn_major, build.b_mn_major) for build in gpu.builds] == [
        (False, True),
        (False, False),
        (True, True),
        (True, False),
    ]
    assert gpu.packed == 0
    hwkernels.gemm(integers((64, 128), "e5m2", 1), integers((128, 72), "e4m3", 2))
    assert gpu.packed == 1 and (gpu.builds[-1].a, gpu.builds[-1].b) == ("e5m2", "e4m3")


def test_arrays_of_the_gpu(gpu: Driver) -> None:
    """`__cuda_array_interface__` in, DeviceArray out; views whose rows do not start at multiples of 16 bytes are repacked."""
    a, b = integers((40, 24), "f16", 3), integers((24, 16), "f16", 4)
    device = []
    for array in (a, b):
        item = DeviceArray(array.shape, array.dtype)
        item.set(np.ascontiguousarray(array))
        device.append(item)
    got = hwkernels.gemm(*device)
    assert isinstance(got, DeviceArray) and gpu.packed == 0
    np.testing.assert_array_equal(got.get().astype(float), a.astype(float) @ b.astype(float))

    interface = dict(device[0].__cuda_array_interface__, shape=(40, 23), data=(device[0].address + 2, False))
    view = types.SimpleNamespace(__cuda_array_interface__=interface, dtype=a.dtype)  # columns 1 .. of a
    got = hwkernels.gemm(view, integers((23, 16), "f16", 5))
    assert gpu.packed == 1
    np.testing.assert_array_equal(
        got.get().astype(float), a[:, 1:].astype(float) @ integers((23, 16), "f16", 5).astype(float)
    )


def test_a_product_that_was_seen_is_planned_once(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other operands of the same shapes: their own products, outputs that are new, no second plan; anything else is planned."""
    plans = []
    monkeypatch.setattr(
        gemm_call, "plan_gemm", lambda *given, **named: plans.append(plan_gemm(*given, **named)) or plans[-1]
    )

    def on_gpu(seed: int, shape: tuple[int, int]) -> DeviceArray:
        made = DeviceArray(shape, np.float16)
        made.set(integers(shape, "f16", seed))
        return made

    def product(*given: DeviceArray, **named: Any) -> DeviceArray:
        d = hwkernels.gemm(*given, **named)
        want = named.get("alpha", 1) * (given[0].get().astype(float) @ given[1].get().astype(float))
        if len(given) > 2:
            want += given[2].get().astype(float)
        np.testing.assert_array_equal(d.get().astype(float), want)
        return d

    found = [product(on_gpu(seed, (40, 24)), on_gpu(seed + 9, (24, 16))) for seed in range(3)]
    assert len(plans) == 1 and len({own.address for own in found}) == 3
    for seed in range(2):
        product(on_gpu(seed, (40, 24)), on_gpu(seed, (24, 16)), on_gpu(seed, (40, 16)))
    out = [DeviceArray((40, 16), np.float16) for _ in range(2)]
    for own in out:
        assert product(on_gpu(5, (40, 24)), on_gpu(6, (24, 16)), out=own) is own
    assert len(plans) == 3
    product(on_gpu(1, (40, 24)), on_gpu(2, (24, 16)), alpha=2.0)
    product(on_gpu(1, (40, 24)), on_gpu(2, (24, 16)), kernel="sm90_wgmma_tma")
    assert len(plans) == 5
    hwkernels.gemm(on_gpu(1, (40, 24)), integers((24, 16), "f16", 5))  # from the host: planned each time
    hwkernels.gemm(on_gpu(1, (40, 24)), integers((24, 16), "f16", 5))
    assert len(plans) == 7 and len(gpu.builds) == 11


def test_alpha_beta_and_out(gpu: Driver) -> None:
    """The epilogue is compiled in only when it is asked for."""
    a, b, c = integers((20, 16), "bf16", 1), integers((16, 24), "bf16", 2), integers((20, 24), "f32", 3)
    plain = a.astype(float) @ b.astype(float)
    got = hwkernels.gemm(a, b, c, alpha=2.0, beta=-1.0, out_format="f32")
    np.testing.assert_array_equal(got, 2 * plain - c)
    assert gpu.builds[-1].scaled and gpu.builds[-1].out == "f32"
    out = DeviceArray((20, 24), np.float32)
    assert hwkernels.gemm(a, b, out=out) is out
    np.testing.assert_array_equal(out.get(), plain)
    assert not gpu.builds[-1].scaled
    assert hwkernels.gemm(a, b).dtype == ml_dtypes.bfloat16


def test_an_output_whose_rows_tma_cannot_store(gpu: Driver) -> None:
    """Rows of 26 bytes: the kernel stores by itself."""
    out = DeviceArray((20, 13), np.float16)
    hwkernels.gemm(integers((20, 16), "f16", 1), integers((16, 13), "f16", 2), out=out)
    assert not gpu.builds[-1].tma_store
    hwkernels.gemm(integers((20, 16), "f16", 1), integers((16, 13), "f16", 2))
    assert gpu.builds[-1].tma_store  # its own output has rows of 32


def test_the_launch(gpu: Driver) -> None:
    """Clusters, shared memory, grid and stream reach the driver; a plan can be launched again."""
    made = plan_gemm(integers((2048, 64), "f16", 1), integers((64, 2048), "f16", 2), tuning=Tuning(block_n=256))
    assert isinstance(made, Plan)
    made(77)
    made(78)
    config = gpu.configs[-1]
    assert (config.gridDimX, config.blockDimX, config.hStream) == (128, 384, 78)
    assert config.sharedMemBytes == made.build.shared_bytes > 200 * 1024
    assert config.attrs[0].value.clusterDim.x == 2 and config.numAttrs == 2
    assert [arguments[0] for arguments in gpu.maps] == ["CU_TENSOR_MAP_DATA_TYPE_FLOAT16"] * 3
    assert gpu.maps[0][5] == [64, 128] and gpu.maps[2][5] == [64, 64]


def test_measured_picks_reach_the_launch(gpu: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of picks decides for exactly its product: machine code, grid and tensor maps."""
    a, b = integers((2048, 64), "f16", 1), np.asfortranarray(integers((64, 2048), "f16", 2))  # both K-major
    product = gemm_picks.Product("sm90_wgmma_persistent", 90, 132, "f16", "f16", "f16", 2048, 2048, 64)
    chosen = Tuning(block_n=128, cluster=(1, 2), panels=4, stream=True, clusters=32, group=4, promotion="L2_128B")
    gemm_picks.merge(tmp_path / "picks.json", {product: (chosen, {"ratio": 1.0})})
    monkeypatch.setenv(gemm_picks.VARIABLE, str(tmp_path / "picks.json"))
    plan = plan_gemm(a, b)
    assert (plan.build.block_n, plan.build.cluster, plan.build.stream, plan.build.panels) == (128, (1, 2), True, 4)
    plan()
    assert gpu.configs[-1].gridDimX == 64 and plan.launches[-1].cluster == 2
    assert {arguments[9] for arguments in gpu.maps[-3:]} == {"CU_TENSOR_MAP_L2_PROMOTION_L2_128B"}
    np.testing.assert_array_equal(plan.output.get().astype(float), a.astype(float) @ b.astype(float))
    assert not plan_gemm(a, b, tuning=Tuning()).build.stream and not plan_gemm(a[:1000], b).build.stream
    assert not plan_gemm(a, np.ascontiguousarray(b)).build.stream  # MN-major: another product


def test_a_call_as_data(gpu: Driver) -> None:
    """What the GPU process of the conformance suite runs: twice, the output poisoned in between."""
    a, b = integers((30, 16), "f16", 1), integers((16, 24), "f16", 2)
    results = run_call(GemmCall("sm90_wgmma_persistent", a, b, out_format="f32", repeat=2))
    assert len(results) == 2
    for result in results:
        np.testing.assert_array_equal(result, a.astype(float) @ b.astype(float))


def test_refusals(gpu: Driver) -> None:
    """Each says what would be valid."""
    a, b = integers((8, 16), "f16", 1), integers((16, 8), "f16", 2)
    for arguments, keywords, complaint in (
        ((a, a), {}, r"a is \(8, 16\) and b \(8, 16\); valid: \(M, K\) and \(K, N\)"),
        ((a, b), {"out_format": "s32"}, "valid for these operands: f16, f32"),
        ((a, b, a), {}, r"c is \(8, 16\) f16"),
        ((a.astype(np.int8), b.astype(np.int8)), {"alpha": 0.5}, "whole numbers"),
        ((a, b), {"out": np.zeros((8, 8), np.float16)}, "on the GPU"),
        ((a, b), {"kernel": "sm70_mma_m8n8k4"}, "is for sm_70, this GPU is sm_90"),
    ):
        with pytest.raises(GemmError, match=complaint):
            hwkernels.gemm(*arguments, **keywords)
