"""Recording launches of four launchers: each comes back equal when it is replayed; what cannot be recorded is named."""

from __future__ import annotations

import ctypes
import importlib
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwkernels.capture import capture, cuda_bindings
from hwkernels.capture.__main__ import main
from hwkernels.capture.hooks import HOOKS
from hwkernels.capture.session import Session
from hwkernels.capture.triton_kernels import map_within
from tcsim import TensorMap
from tcsim.launchers.job import execute
from tcsim.launchers.recording import Recording, from_fields, read
from tcsim.launchers.triton_arguments import packed
from tests.kernels.corpora import recording as pack
from tests.kernels.corpora.launchers.__main__ import packed as packed_fields
from tests.support import launcher_fakes as fakes
from tests.support.launcher_fakes import SCALE, Device, Tensor

PTX = SCALE.encode()
NUMBERS = np.arange(40, dtype=np.float32)
TRIPLED = [3.0 * value for value in range(40)]


@pytest.fixture
def device() -> Device:
    return Device()


def replayed(session: Session, count: int = 1) -> list[Recording]:
    """The recordings of a session: so many, each equal when it is run again."""
    found = [read(path) for path in session.files]
    assert len(found) == count and not session.refused, session.lines()
    for own in found:
        execution = execute(own.job())
        assert (
            execution.passed and execution.equal and any(execution.changed(region) for region in execution.job.regions)
        )
    return found


def only_reason(session: Session) -> str:
    """Why the one launch was not recorded."""
    assert not session.files and len(session.refused) == 1, session.lines()
    return session.refused[0][1]


# --- cuda.bindings


@pytest.fixture
def driver(device: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fakes.cuda_bindings(device)
    fakes.modules(
        monkeypatch,
        cuda=fakes.module("cuda"),
        cuda__bindings=fakes.module("cuda.bindings"),
        cuda__bindings__driver=made,
    )
    return made


def loaded(driver: Any, image: Any = PTX) -> Any:
    return driver.cuModuleGetFunction(driver.cuModuleLoadData(image)[1], b"scale")[1]


def launch_arguments(device: Device) -> tuple[int, int, list[Any]]:
    """Two arrays in memory, and the parameters as arrays whose addresses a launch takes."""
    to, source = device.array(np.zeros(40, np.float32)), device.array(NUMBERS)
    return to, source, [np.uint64([to]), np.uint64([source]), np.float32([3]), np.uint32([40])]


def pointers(values: list[Any]) -> Any:
    return np.array([own.ctypes.data for own in values], np.uint64)


@pytest.mark.parametrize("kind", ["buffer", "address", "values"])
def test_cu_launch_kernel(kind: str, driver: Any, device: Device, tmp_path: Path) -> None:
    to, source, values = launch_arguments(device)
    held = pointers(values)
    given = {
        "buffer": held, "address": int(held.ctypes.data),
        "values": ((to, source, 3.0, 40), (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_uint)),
    }[kind]  # fmt: skip
    before = driver.cuLaunchKernel
    with capture(tmp_path, gpu=device, launchers=["cuda.bindings.driver"]) as session:
        assert driver.cuLaunchKernel(loaded(driver), 2, 1, 1, 32, 1, 1, 0, 0, given, 0) == (0,)
    assert device.floats(to, 40) == TRIPLED and driver.cuLaunchKernel is before
    (found,) = replayed(session)
    assert (found.gpu, found.driver, found.arch, found.launcher) == ("imaginary", "1.2", "sm_90", "cuda.bindings")
    assert [own.address for own in found.buffers] == [to, source] and found.entry == "scale" and found.grid == (2, 1, 1)
    assert found.buffers[0].after.view(np.float32).tolist() == TRIPLED and not found.buffers[0].before.any()


def test_cu_launch_kernel_ex_has_clusters_and_libraries(driver: Any, device: Device, tmp_path: Path) -> None:
    _, _, values = launch_arguments(device)
    held = pointers(values)
    attribute = SimpleNamespace(id=4, value=SimpleNamespace(clusterDim=SimpleNamespace(x=2, y=1, z=1)))
    config = SimpleNamespace(
        gridDimX=4, gridDimY=1, gridDimZ=1, blockDimX=16, blockDimY=1, blockDimZ=1, sharedMemBytes=64, hStream=0, attrs=[attribute], numAttrs=1,
    )  # fmt: skip
    with capture(tmp_path, gpu=device, launchers=["cuda.bindings.driver"]) as session:
        kernel = driver.cuLibraryGetKernel(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0)[1], b"scale")[1]
        driver.cuLaunchKernelEx(config, driver.cuKernelGetFunction(kernel)[1], held, 0)
    (found,) = replayed(session)
    assert found.cluster == (2, 1, 1) and found.grid == (4, 1, 1) and found.dynamic_smem == 64


@pytest.mark.parametrize("asked", [0, 1])
def test_a_cooperative_launch_is_recorded_as_one(asked: int, driver: Any, device: Device, tmp_path: Path) -> None:
    """By the call of that name, and by the attribute if it is set."""
    _, _, values = launch_arguments(device)
    held = pointers(values)
    config = SimpleNamespace(
        gridDimX=2, gridDimY=1, gridDimZ=1, blockDimX=32, blockDimY=1, blockDimZ=1, sharedMemBytes=0, hStream=0, numAttrs=1,
        attrs=[SimpleNamespace(id=2, value=SimpleNamespace(cooperative=asked))],
    )  # fmt: skip
    with capture(tmp_path, gpu=device, launchers=["cuda.bindings.driver"]) as session:
        driver.cuLaunchCooperativeKernel(loaded(driver), 2, 1, 1, 32, 1, 1, 0, 0, held)
        driver.cuLaunchKernelEx(config, loaded(driver), held, 0)
    assert [own.cooperative for own in map(read, session.files)] == [True, bool(asked)] and not session.refused


def launched(
    driver: Any, device: Device, folder: Path, function: Any = None, extra: int = 0, **options: Any
) -> Session:
    _, _, values = launch_arguments(device)
    held, count = pointers(values), device.launches
    with capture(folder, gpu=device, launchers=["cuda.bindings.driver"], **options) as session:
        driver.cuLaunchKernel(function or loaded(driver), 2, 1, 1, 32, 1, 1, 0, 0, held, extra)
    assert device.launches == count + 1
    return session


def test_what_is_not_recorded_is_named_and_runs_all_the_same(driver: Any, device: Device, tmp_path: Path) -> None:
    assert "no PTX" in only_reason(launched(driver, device, tmp_path, loaded(driver)))  # loaded before recording began
    assert "one buffer (extra)" in only_reason(launched(driver, device, tmp_path, extra=7))
    assert "more than max_bytes=100" in only_reason(launched(driver, device, tmp_path, max_bytes=100))
    assert "as max_launches allows" in only_reason(launched(driver, device, tmp_path, max_launches=0))
    session = launched(driver, device, tmp_path, kernels=["other"])
    assert not session.files and not session.refused
    device.graph = True
    assert "CUDA graph" in only_reason(launched(driver, device, tmp_path))
    device.graph, device.broken, device.launches = False, True, 0
    assert "it failed: cuCtxSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS" in only_reason(
        launched(driver, device, tmp_path)
    )
    assert not list(tmp_path.iterdir())


def test_ptx_that_is_not_read_and_machine_code(driver: Any, device: Device, tmp_path: Path) -> None:
    _, _, values = launch_arguments(device)
    held = pointers(values)
    with capture(tmp_path, gpu=device, launchers=["cuda.bindings.driver"]) as session:
        for image in (b"\x7fELF" + PTX, PTX.replace(b"mad.lo.u32", b"mad.lo.u33")):
            with pytest.raises(Exception, match=r"mad\.lo\.u33|ELF"):
                driver.cuLaunchKernel(loaded(driver, image), 2, 1, 1, 32, 1, 1, 0, 0, held, 0)
    assert "no PTX" in session.refused[0][1] and "mad.lo.u33" in session.refused[1][1]
    assert session.lines()[-1] == "0 launches recorded, 2 not"


def test_ptx_at_an_address(driver: Any) -> None:
    text = ctypes.create_string_buffer(PTX)
    assert cuda_bindings.text_of(ctypes.addressof(text)) == PTX
    assert cuda_bindings.text_of(np.frombuffer(PTX + b"\0", np.uint8)) == PTX
    machine = ctypes.create_string_buffer(b"\x7fELF")
    for other in (ctypes.addressof(machine), 0, b"// no PTX", b"\x7fELF", None, "text"):
        assert cuda_bindings.text_of(other) is None


FOLLOW = """
.version 8.0
.target sm_90
.address_size 64
.global .u32 counter;
.visible .entry follow(.param .u64 table)
{
  .reg .b32 %r<2>; .reg .b64 %a<3>;
  ld.param.u64 %a0, [table];
  ld.global.u64 %a1, [%a0+8];
  ld.global.u32 %r0, [%a1];
  add.u32 %r1, %r0, 1;
  st.global.u32 [%a1], %r1;
  ret;
}
"""


def test_pointers_in_memory_are_followed(driver: Any, device: Device, tmp_path: Path) -> None:
    number = device.array(np.uint32([7, 8]))
    table = device.array(np.uint64([0, number, 5]))
    values = [np.uint64([table])]
    with capture(tmp_path, gpu=device, launchers=["cuda.bindings.driver"]) as session:
        function = driver.cuModuleGetFunction(driver.cuModuleLoadData(FOLLOW.encode())[1], b"follow")[1]
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, pointers(values), 0)
    (found,) = replayed(session)
    assert [own.address for own in found.buffers] == [table, number]
    assert found.notes == ("module variables counter: a replay starts from their initial values",)


def test_the_program_for_a_gpu(driver: Any, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster, tensor maps and a softmax, as `python -m tests.kernels.corpora.launchers` launches them."""
    sys.modules["cuda.bindings"].driver = driver  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "tests.kernels.corpora.launchers.with_cuda_bindings", raising=False)
    with capture(tmp_path, gpu=device, launchers=["cuda.bindings.driver"]) as session:
        importlib.import_module("tests.kernels.corpora.launchers.with_cuda_bindings").main()
    found = replayed(session, 3)
    assert [own.entry for own in found] == ["dsmem_sum", "tensor_2d", "softmax"]
    assert [len(own.buffers) for own in found] == [2, 3, 2]
    pack.write(tmp_path / "launchers.xz", {own.entry: packed_fields(own) for own in found})
    for own in found:
        again = from_fields(pack.read(tmp_path / "launchers.xz")[own.entry], own.entry)
        assert execute(again.job()).passed and (again.ptx, again.params, again.gpu) == (own.ptx, own.params, own.gpu)


def test_launches_of_other_threads_go_on(driver: Any, device: Device, tmp_path: Path) -> None:
    session = Session(tmp_path, gpu=device)
    started, go = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        go.wait(10)

    other = threading.Thread(target=lambda: session.around("slow", lambda: 1 / 0, slow))
    other.start()
    started.wait(10)
    assert session.around("quick", lambda: 1 / 0, lambda: 7) == 7
    go.set()
    other.join(10)
    assert ("quick", "a launch of another thread was being recorded") in session.refused


# --- cuda.core


@pytest.fixture
def core(driver: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fakes.cuda_core(device)
    handler = fakes.module("cuda.core._kernel_arg_handler", ParamHolder=fakes.Holder)
    fakes.modules(monkeypatch, cuda__core=made, cuda__core___kernel_arg_handler=handler)
    return made


@pytest.mark.parametrize("way", ["ptx", "cubin", "from_ptx"])
def test_cuda_core(way: str, core: Any, device: Device, tmp_path: Path) -> None:
    to, source, _ = launch_arguments(device)
    config = SimpleNamespace(grid=(1, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1), shmem_size=16)
    with capture(tmp_path, gpu=device, launchers=["cuda.core"]) as session:
        code = core.ObjectCode.from_ptx(PTX) if way == "from_ptx" else core.Program(SCALE, "c++").compile(way)
        core.launch(
            SimpleNamespace(handle=0), config, code.get_kernel("scale"), to, source, np.float32(3), np.uint32(40)
        )
    (found,) = replayed(session)
    assert (
        found.launcher == "cuda.core"
        and found.grid == (2, 1, 1)
        and found.cluster == (2, 1, 1)
        and found.dynamic_smem == 16
    )
    assert device.floats(to, 40) == TRIPLED and bool(found.notes) == (way == "cubin")


def test_cuda_core_without_ptx(core: Any, device: Device, tmp_path: Path) -> None:
    to, source, _ = launch_arguments(device)
    config = SimpleNamespace(grid=(2, 1, 1), block=(32, 1, 1), cluster=None, shmem_size=0)
    with capture(tmp_path, gpu=device, launchers=["cuda.core"]) as session:
        kernel = core.ObjectCode.from_cubin(b"ELF" + PTX).get_kernel("scale")
        core.launch(None, config, kernel, to, source, np.float32(3), np.uint32(40))
    assert "no PTX" in only_reason(session) and device.floats(to, 40) == TRIPLED


# --- CuPy


@pytest.mark.parametrize("way", ["kernel", "module", "template", "path"])
def test_cupy(way: str, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    cupy, compiler = fakes.cupy(device, compiled)
    fakes.modules(monkeypatch, cupy=cupy, cupy__cuda=fakes.module("cupy.cuda"), cupy__cuda__compiler=compiler)
    to, source = (fakes.CupyArray(device, values) for values in (np.zeros((5, 8), np.float32), NUMBERS))
    real = cupy.RawKernel
    (tmp_path / "scale.ptx").write_bytes(PTX)
    with capture(tmp_path / "out", gpu=device, launchers=["cupy"]) as session:
        kernel = {
            "kernel": lambda: cupy.RawKernel(SCALE, "scale", ("-O3",)), "module": lambda: cupy.RawModule(code=SCALE).get_function("scale"),
            "template": lambda: cupy.RawModule(code=SCALE).get_function("scale<float>"),
            "path": lambda: cupy.RawModule(path=str(tmp_path / "scale.ptx")).get_function("scale"),
        }[way]()  # fmt: skip
        kernel.max_dynamic_shared_size_bytes = 99
        assert kernel._own.max_dynamic_shared_size_bytes == 99
        kernel((2,), (32,), (to, source, np.float32(3), 40), shared_mem=0)
        kernel((2,), (32,), (to, source, np.float32(4), 40))
    assert cupy.RawKernel is real and not compiler._use_ptx and "CUPY_CACHE_IN_MEMORY" not in __import__("os").environ
    found = replayed(session, 2)
    assert (
        found[0].buffers[0].shape == (5, 8)
        and found[0].buffers[0].elements.name == "f32"
        and found[0].launcher == "CuPy"
    )
    assert found[1].buffers[0].before.view(np.float32).tolist() == TRIPLED and len(compiled) == (way != "path")


def test_cupy_kernels_from_before_have_no_ptx(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy, compiler = fakes.cupy(device, [])
    fakes.modules(monkeypatch, cupy=cupy, cupy__cuda=fakes.module("cupy.cuda"), cupy__cuda__compiler=compiler)
    to, source = (fakes.CupyArray(device, values) for values in (np.zeros(40, np.float32), NUMBERS))
    with capture(tmp_path, gpu=device, launchers=["cupy"]) as session:
        kernel = cupy.RawKernel(SCALE, "scale")
        monkeypatch.setattr(type(kernel._own), "kernel", property(lambda self: b"\x7fELF" + PTX))
        kernel((2,), (32,), (to, source, np.float32(3), 40))
    assert "no PTX" in only_reason(session) and device.floats(to.data.ptr, 40) == TRIPLED


# --- Triton


@pytest.fixture
def triton(device: Device, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    made = fakes.triton(device)
    packages = {
        name: fakes.module(name)
        for name in ("triton__backends", "triton__backends__nvidia", "triton__compiler", "triton__runtime")
    }
    fakes.modules(monkeypatch, **packages, **made)
    return made


SIGNATURE = {"to": "*fp32", "from": "*fp32", "factor": "fp32", "BLOCK": "constexpr", "count": "i32"}
WITH_SCRATCH = SCALE.replace(
    ".param .u32 count)", ".param .u32 count, .param .u64 scratch, .param .u64 profile)\n.reqntid 32"
).replace("  ret;", "  ld.param.u64 %a2, [scratch];\n  st.global.u32 [%a2], %r4;\n  ret;")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("scratch", [0, 64])
def test_triton(known: bool, scratch: int, triton: dict[str, Any], device: Device, tmp_path: Path) -> None:
    """Kernels that were compiled before, and while recording; with memory that the launch takes."""
    driver, compiler = triton["triton__backends__nvidia__driver"], triton["triton__compiler__compiler"]
    allocation = triton["triton__runtime___allocation"]
    if scratch:
        allocation._allocator.set(fakes.allocate(device))
    before = allocation._allocator.get()
    text = WITH_SCRATCH if scratch else SCALE.replace(".param .u32 count)", ".param .u32 count)\n.reqntid 32")
    kernel = compiler.CompiledKernel(text, "scale", SIGNATURE)
    if known:
        kernel._init_handles()
    to, source = (
        Tensor(device, np.zeros(40, np.float32)),
        Tensor(device, np.concatenate([[9], NUMBERS]).astype(np.float32), 1),
    )
    launcher = driver.CudaLauncher(num_ctas=2, scratch=scratch)
    with capture(tmp_path, gpu=device, launchers=["triton"]) as session:
        if not known:
            kernel._init_handles()
        launcher(1, 1, 1, 0, kernel.function, None, None, None, None, to, source, 3.0, 128, 40)
    assert device.floats(to.data_ptr(), 40) == TRIPLED and allocation._allocator.get() is before
    (found,) = replayed(session)
    assert found.grid == found.cluster == (2, 1, 1) and found.block == (32, 1, 1) and found.launcher == "Triton"
    shapes = {own.name: own.shape for own in found.buffers}
    assert shapes["arg0"] == (40,) and shapes["arg1"] == (41,) and ("scratch" in shapes) == bool(scratch)
    if scratch:
        assert next(own for own in found.buffers if own.name == "scratch").scratch and len(found.params) == 6


def test_an_autotuners_trials_are_not_recorded(triton: dict[str, Any], device: Device, tmp_path: Path) -> None:
    """The launch that is timed is left out and said, the one after it is recorded."""
    driver, compiler = triton["triton__backends__nvidia__driver"], triton["triton__compiler__compiler"]
    kernel = compiler.CompiledKernel(SCALE.replace(".u32 count)", ".u32 count)\n.reqntid 32"), "scale", SIGNATURE)
    to, source = Tensor(device, np.zeros(40, np.float32)), Tensor(device, np.array([9, *NUMBERS], np.float32), 1)
    timing: dict[str, Any] = {"__name__": "triton.testing"}
    exec("def do_bench(function): return function()", timing)
    with capture(tmp_path, gpu=device, launchers=["triton"]) as session:
        kernel._init_handles()
        launch = partial(driver.CudaLauncher(), 2, 1, 1, 0, kernel.function, *[None] * 4, to, source)
        timing["do_bench"](lambda: launch(2.0, 128, 40))
        assert "to be timed" in only_reason(session) and not session.files
        launch(3.0, 128, 40)
    session.refused.clear()
    replayed(session)


COPY_MAP = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .align 64 .b8 map[128], .param .u32 rows, .param .u32 columns, .param .u64 stride, .param .u64 to)
.reqntid 32
{
  .reg .b64 %a<3>;
  ld.param.u64 %a0, [to];
  ld.param.u64 %a1, [map];
  st.global.u64 [%a0], %a1;
  ret;
}
"""


def test_descriptors_of_triton(triton: dict[str, Any], device: Device, tmp_path: Path) -> None:
    driver, compiler = triton["triton__backends__nvidia__driver"], triton["triton__compiler__compiler"]
    base = Tensor(device, np.arange(64, dtype=np.float16).reshape(4, 16))
    descriptor = SimpleNamespace(
        base=base, shape=[4, 16], strides=[16], tensor_map=TensorMap("FLOAT16", (16, 4), (32,), (16, 4), swizzle="NONE")
    )
    to = Tensor(device, np.zeros(2, np.uint64))
    kernel = compiler.CompiledKernel(
        COPY_MAP, "copy", {"d": "tensordesc<fp16[4, 16]>", "to": "*i64"}, metas=[{"swizzle": 0}]
    )
    with capture(tmp_path, gpu=device, launchers=["triton"]) as session:
        kernel._init_handles()
        driver.CudaLauncher()(1, 1, 1, 0, kernel.function, None, None, None, None, descriptor, to)
    (found,) = replayed(session)
    assert TensorMap.address_of(found.params[0]) == base.data_ptr() and found.params[1:4] == (
        b"\4\0\0\0",
        b"\x10\0\0\0",
        b"\x10" + bytes(7),
    )
    assert {own.name for own in found.buffers} == {"arg0", "arg4"}


def test_a_tensor_map_is_found_in_the_object_that_hides_it() -> None:
    """Behind the head of a Python object, at any alignment that C gives it; of several the one of that address."""
    tensor_map = TensorMap("FLOAT16", (16, 4), (32,), (16, 4), swizzle="NONE")
    one, other = tensor_map.encode(0x7F0000001000), tensor_map.encode(0x7F0000002000)
    for start in (16, 64, 128):
        data = b"\x11" * start + other + one + b"\x22" * 24
        assert map_within(data, 0x7F0000001000) == one and map_within(data, 0x7F0000002000) == other
        assert map_within(data, 0x7F0000003000) is None
    assert map_within(bytes(100), 0) is None


@pytest.mark.parametrize(
    ("kind", "value", "size", "wanted"),
    [
        ("fp16", 1.5, 2, np.float16(1.5).tobytes()), ("bf16", 1.5, 2, b"\xc0\x3f"), ("bf16", 1 + 2**-7 - 2**-12, 2, b"\x80\x3f"), ("fp32", 0.1, 4, np.float32(0.1).tobytes()),
        ("fp64", 0.1, 8, np.float64(0.1).tobytes()), ("i32", -1, 4, b"\xff" * 4), ("u64", 2**63, 8, bytes(7) + b"\x80"),
        ("i1", True, 1, b"\1"), ("*i8", None, 8, bytes(8)), ("*fp32", 0x1234, 8, b"\x34\x12" + bytes(6)),
    ],
)  # fmt: skip
def test_arguments_of_triton(kind: str, value: Any, size: int, wanted: bytes) -> None:
    assert packed(kind, value, size) == wanted


# --- all together


def test_packages_that_are_not_there_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HOOKS:
        monkeypatch.setitem(sys.modules, name, None)
    with capture(tmp_path, gpu=Device()) as session:
        pass
    assert session.lines() == ["0 launches recorded, 0 not"]
    with (
        pytest.raises(ValueError, match="valid: cuda"),
        capture(tmp_path, launchers=["jax"]),
    ):
        pass


SCRIPT = """
import sys
from tests.unit.hwkernels.capture import test_capture
from tests.support import launcher_fakes
from cuda.bindings import driver
assert sys.argv[1:] == ["-x", "y"] and __name__ == "__main__"
device = driver.device
_, _, values = test_capture.launch_arguments(device)
held = test_capture.pointers(values)
driver.cuLaunchKernel(test_capture.loaded(driver), 2, 1, 1, 32, 1, 1, 0, 0, held, 0)
sys.exit(3)
"""


def test_the_command_runs_a_script(
    driver: Any, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cuda.core", "cupy", "triton"):
        monkeypatch.setitem(sys.modules, name, None)
    driver.device = device
    sys.modules["cuda.bindings"].driver = driver  # type: ignore[attr-defined]
    monkeypatch.setattr("hwkernels.capture.session.Gpu", lambda: device)
    (tmp_path / "script.py").write_text(SCRIPT)
    assert main(["-o", str(tmp_path / "out"), str(tmp_path / "script.py"), "-x", "y"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "1 launches recorded, 0 not" and said[0].endswith("0000_scale.npz")
    assert execute(read(tmp_path / "out" / "0000_scale.npz").job()).passed
    with pytest.raises(SystemExit):
        main(["-o", str(tmp_path), str(tmp_path / "none.py")])
