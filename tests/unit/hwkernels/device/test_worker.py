"""The supervised child process, with executors that compute, sleep, die and fail; and the checks that Launch makes."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwkernels.device import driver
from hwkernels.device.driver import Launch, device_available, place_address
from hwkernels.device.errors import CudaError
from hwkernels.device.worker import ContextLost, ExecutorError, GpuWorker, Hang

FAKE = f"{__name__}:fake_executor"
SHORT = 0.3  # seconds; only for launches that never answer
LATE = 1.0  # seconds that one executor takes to start
LONG = 60.0  # seconds; for launches that answer at once, on however busy a machine

# ------------------------------------------------------------------------------------ executors, run by the child


def fake_executor(device: int) -> Callable[[Launch], list[Any]]:
    """An executor whose launches do what the name of their kernel says."""

    def execute(launch: Launch) -> list[Any]:
        match launch.kernel:
            case "double":
                return [array * 2 for array in launch.inputs]
            case "who":
                return [np.array([os.getpid(), device])]
            case "farewell":  # touches the file that its cubin names when the child leaves in good order
                atexit.register(Path(launch.cubin.decode()).touch)
                atexit.register(time.sleep, SHORT)  # runs first: a child that is killed never gets to the file
                return []
            case "sleep":
                time.sleep(3600)
            case "deaf":  # a hang that a polite signal would not end
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(3600)
            case "exit":
                os._exit(3)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "sticky":
                raise CudaError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", True)
            case "refused":
                raise CudaError("cuModuleLoadData", "CUDA_ERROR_NO_BINARY_FOR_GPU", False)
            case "bug":
                raise KeyError("a bug of the executor")
        raise ValueError(f"the fake has no {launch.kernel!r}")

    return execute


def broken_executor(device: int) -> Callable[[Launch], list[Any]]:
    raise OSError(f"device {device} is not there")


def no_device_executor(device: int) -> Callable[[Launch], list[Any]]:
    raise CudaError("cuInit", "CUDA_ERROR_NO_DEVICE", False)


def dying_executor(device: int) -> Callable[[Launch], list[Any]]:
    os._exit(9)


def late_executor(device: int) -> Callable[[Launch], list[Any]]:
    time.sleep(LATE)
    return fake_executor(device)


def slow_executor(device: int) -> Callable[[Launch], list[Any]]:
    time.sleep(3600)
    raise AssertionError("unreachable")


# ------------------------------------------------------------------------------------------------------- helpers


def launch(kernel: str, *inputs: Any) -> Launch:
    return Launch(cubin=b"fake", kernel=kernel, inputs=inputs)


def child_of(worker: GpuWorker) -> int:
    """The process that answers, as it says itself."""
    return int(worker.run(launch("who"), LONG)[0][0])


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def has_ended(pid: int) -> bool:
    """Whether a process that is not our child runs no more; its new parent may leave it a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module")
def shared_worker() -> Iterator[GpuWorker]:
    """One child for the tests that leave it alive: starting one costs a few tenths of a second."""
    with GpuWorker(device=7, executor=FAKE) as worker:
        yield worker


# ------------------------------------------------------------------------------------------------- what it answers


def test_a_result_comes_back_as_it_was(shared_worker: GpuWorker) -> None:
    arrays: tuple[Any, ...] = (
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        np.array([1.5, -0.0], np.float16),
        np.zeros((0, 4), np.uint8),
        np.arange(1 << 20, dtype=np.uint64),  # larger than a pipe holds
    )
    results = shared_worker.run(launch("double", *arrays), LONG)
    assert len(results) == len(arrays)
    for array, result in zip(arrays, results, strict=True):
        assert result.dtype == array.dtype
        assert result.shape == array.shape
        assert result.tobytes() == (array * 2).tobytes()


def test_one_child_serves_many_launches(shared_worker: GpuWorker) -> None:
    first, device = shared_worker.run(launch("who"), LONG)[0]
    assert first == child_of(shared_worker) == shared_worker.pid
    assert first != os.getpid()
    assert device == 7


def test_a_cuda_error_that_is_not_sticky_leaves_the_child_alive(shared_worker: GpuWorker) -> None:
    before = child_of(shared_worker)
    with pytest.raises(CudaError) as caught:
        shared_worker.run(launch("refused"), LONG)
    assert caught.value.call == "cuModuleLoadData"
    assert caught.value.code == "CUDA_ERROR_NO_BINARY_FOR_GPU"
    assert not caught.value.sticky
    assert child_of(shared_worker) == before


def test_another_exception_is_told_with_its_traceback(shared_worker: GpuWorker) -> None:
    before = child_of(shared_worker)
    with pytest.raises(ExecutorError, match=r"(?s)'bug'.*Traceback.*KeyError: 'a bug of the executor'"):
        shared_worker.run(launch("bug"), LONG)
    assert child_of(shared_worker) == before


# ------------------------------------------------------------------------------------------ how it fails and restarts


@pytest.mark.parametrize("kernel", ["sleep", "deaf"])
def test_a_hang_is_ended_and_the_next_launch_runs(kernel: str) -> None:
    with GpuWorker(executor=FAKE) as worker:
        before = child_of(worker)
        started = time.monotonic()
        with pytest.raises(Hang) as caught:
            worker.run(launch(kernel), SHORT)
        assert SHORT <= time.monotonic() - started < LONG
        assert (caught.value.kernel, caught.value.timeout_s) == (kernel, SHORT)
        assert f"'{kernel}' gave no answer in 0.3 s" in str(caught.value)
        assert is_gone(before)
        assert worker.pid is None
        assert worker.run(launch("double", np.array([21])), LONG)[0].tolist() == [42]
        assert child_of(worker) != before
        assert worker.starts == 2


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("exit", "it ended with exit code 3 while it ran 'exit'"),
        ("segfault", "killed by SIGSEGV while it ran 'segfault'"),
        ("sticky", "cuCtxSynchronize returned CUDA_ERROR_ILLEGAL_ADDRESS, which poisons the context"),
    ],
)
def test_a_lost_child_is_replaced(kernel: str, reason: str) -> None:
    with GpuWorker(executor=FAKE) as worker:
        before = child_of(worker)
        with pytest.raises(ContextLost) as caught:
            worker.run(launch(kernel), LONG)
        assert reason in caught.value.reason
        assert reason in str(caught.value)
        assert is_gone(before)
        assert child_of(worker) != before
        assert worker.starts == 2


def test_a_child_that_died_while_idle_is_replaced_unnoticed() -> None:
    with GpuWorker(executor=FAKE) as worker:
        before = child_of(worker)
        os.kill(before, signal.SIGKILL)
        deadline = time.monotonic() + LONG
        while worker._process is not None and worker._process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child_of(worker) != before


def test_an_interrupted_run_cannot_leave_its_answer_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with GpuWorker(executor=FAKE) as worker:
        before = child_of(worker)
        with monkeypatch.context() as patch:

            def interrupted(*_: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(worker, "_receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                worker.run(launch("double", np.array([1])), LONG)
        assert is_gone(before)
        assert worker.run(launch("double", np.array([2])), LONG)[0].tolist() == [4]


@pytest.mark.parametrize(
    ("executor", "error", "words"),
    [
        ("broken_executor", ExecutorError, r"(?s)cannot be started.*OSError: device 3 is not there"),
        ("no_such_executor", ExecutorError, r"(?s)cannot be started.*AttributeError.*no_such_executor"),
        ("no_device_executor", CudaError, "cuInit returned CUDA_ERROR_NO_DEVICE"),
        ("dying_executor", ContextLost, "exit code 9 while it started"),
    ],
)
def test_an_executor_that_cannot_start_says_why(executor: str, error: type[Exception], words: str) -> None:
    with GpuWorker(device=3, executor=f"{__name__}:{executor}") as worker:
        with pytest.raises(error, match=words):
            worker.run(launch("double"), LONG)
        assert worker.pid is None


def test_an_executor_that_never_starts_is_ended() -> None:
    with GpuWorker(executor=f"{__name__}:slow_executor", start_timeout_s=SHORT) as worker:
        with pytest.raises(ExecutorError, match=r"did not start in 0\.3 s"):
            worker.run(launch("double"), LONG)
        assert worker.pid is None


def test_the_time_to_start_is_not_the_time_of_the_launch() -> None:
    with GpuWorker(executor=f"{__name__}:late_executor") as worker:
        assert worker.run(launch("double", np.array([1])), LATE)[0].tolist() == [2]


@pytest.mark.parametrize("executor", ["", "module", ":function", "module:"])
def test_an_executor_must_be_named(executor: str) -> None:
    with pytest.raises(ValueError, match=r"'package\.module:function'"):
        GpuWorker(executor=executor)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_timeout_must_be_positive(timeout_s: float) -> None:
    with GpuWorker(executor=FAKE) as worker, pytest.raises(ValueError, match="positive number of seconds"):
        worker.run(launch("double"), timeout_s)
    assert worker.starts == 0


# ------------------------------------------------------------------------------------------------------- cleanliness


def test_nothing_is_left_behind() -> None:
    with GpuWorker(executor=FAKE) as worker:  # multiprocessing's resource tracker starts once and keeps a pipe
        child_of(worker)
    files, children = open_files(), len(multiprocessing.active_children())
    pids = []
    with GpuWorker(executor=FAKE) as worker:
        pids.append(child_of(worker))
        with pytest.raises(ContextLost):
            worker.run(launch("exit"), LONG)
        pids.append(child_of(worker))
        with pytest.raises(Hang):
            worker.run(launch("sleep"), SHORT)
        pids.append(child_of(worker))
    assert len(set(pids)) == 3
    assert all(is_gone(pid) for pid in pids)
    assert len(multiprocessing.active_children()) == children
    assert open_files() == files
    worker.close()  # a second time: nothing to do


def test_an_idle_child_leaves_by_itself(tmp_path: Path) -> None:
    mark = tmp_path / "left"
    with GpuWorker(executor=FAKE) as worker:
        assert worker.run(Launch(cubin=str(mark).encode(), kernel="farewell"), LONG) == []
        assert not mark.exists()
    assert mark.exists()


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, sys, threading, time\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "from hwkernels.device.worker import GpuWorker\n"
        "from test_worker import child_of, launch\n"
        "if __name__ == '__main__':\n"
        "    worker = GpuWorker(executor='test_worker:fake_executor')\n"
        "    print(child_of(worker), flush=True)\n"
        "    threading.Timer(0.3, os._exit, (0,)).start()  # as if killed: nothing is cleaned up\n"
        "    worker.run(launch('sleep'), 3600.0)\n"
    )
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=LONG, check=True)
    child, deadline = int(answer.stdout), time.monotonic() + LONG
    while not has_ended(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert has_ended(child)


# ------------------------------------------------------------------------------------------------- launches as data


def test_a_launch_and_the_errors_survive_pickling() -> None:
    original = Launch(
        cubin=b"cubin",
        kernel="k",
        inputs=(np.arange(3),),
        outputs=(((2, 2), np.float32),),
        scalars=(np.uint32(5),),
        tensor_maps=(bytes(128),),
        tensor_map_buffers=(1,),
        cluster=(2, 1, 1),
        grid=(4, 1, 1),
    )
    copy = pickle.loads(pickle.dumps(original))
    assert copy.inputs[0].tolist() == [0, 1, 2]
    assert copy.scalars[0].dtype == np.uint32
    assert (copy.cubin, copy.kernel, copy.outputs, copy.cluster) == (b"cubin", "k", original.outputs, (2, 1, 1))
    for error in (CudaError("cuInit", "CUDA_ERROR_UNKNOWN", True), Hang("k", 2.0), ContextLost("it died")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"cubin": b""}, "cubin must be the bytes of a cubin"),
        ({"kernel": ""}, "kernel must be the name"),
        ({"inputs": ([1, 2],)}, r"inputs\[0\] is a list; give a NumPy array"),
        ({"inputs": (np.array([None]),)}, r"inputs\[0\] holds Python objects"),
        ({"scalars": (1,)}, r"scalars\[0\] is a int; it must be a NumPy scalar"),
        ({"grid": (1, 1)}, r"grid is \(1, 1\)"),
        ({"grid": (0, 1, 1)}, "grid is"),
        ({"block": (1024, 2, 1)}, "2048 threads; at most 1024"),
        ({"cluster": (2, 1, 1), "grid": (3, 1, 1)}, r"cluster \(2, 1, 1\) must divide grid \(3, 1, 1\)"),
        ({"shared_bytes": -1}, "shared_bytes is -1"),
        ({"repeat": 0}, "repeat is 0"),
        ({"poison": 256}, "poison is 256"),
        ({"tensor_maps": (bytes(64),)}, r"tensor_maps\[0\] must be 128 bytes"),
        ({"tensor_maps": (bytes(128),), "tensor_map_buffers": (0, 0)}, "2 tensor_map_buffers for 1 tensor_maps"),
        ({"tensor_maps": (bytes(128),), "tensor_map_buffers": (0,)}, r"tensor_map_buffers\[0\] is 0; .* 0 inputs"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_launch_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"Launch of .*{words}"):
        Launch(**({"cubin": b"cubin", "kernel": "k"} | wrong))


def test_the_arguments_are_the_bytes_the_kernel_receives() -> None:
    one = Launch(
        cubin=b"cubin",
        kernel="k",
        inputs=(np.zeros(4, np.uint8),),
        outputs=(((1,), np.uint8),),
        scalars=(np.float16(1.0), np.uint64(3)),
        tensor_maps=(bytes(range(128)), bytes([255]) * 128),
        tensor_map_buffers=(None, 1),
    )
    given = [array.tobytes() for array in driver._arguments(one, [0x1000, 0x7F0012345600])]
    assert given[:2] == [(0x1000).to_bytes(8, "little"), (0x7F0012345600).to_bytes(8, "little")]
    assert given[2:4] == [b"\x00\x3c", b"\x03" + bytes(7)]
    assert given[4] == bytes(range(128))
    assert given[5] == place_address(bytes([255]) * 128, 0x7F0012345600)
    with pytest.raises(ValueError, match=r"'k' declares 1 parameters of \[8\] bytes; the launch gives 2 of \[8, 4\]"):
        driver._check_parameters(one, (8,), [8, 4])


def test_an_address_is_placed_in_a_tensor_map() -> None:
    placed = place_address(bytes([255]) * 128, 0x7F0012345600)
    assert placed[:8] == (0x7F0012345600).to_bytes(8, "little")
    assert placed[8:12] == (0xFFFFFFFF ^ (1 << 21)).to_bytes(4, "little")
    assert placed[12:] == bytes([255]) * 116


def test_a_missing_device_is_an_answer_and_not_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)  # as if cuda-python were not installed
    monkeypatch.delitem(sys.modules, "cuda.bindings", raising=False)
    monkeypatch.delitem(sys.modules, "cuda.bindings.driver", raising=False)
    available, reason = device_available()
    assert available is False
    assert "cuda-python" in reason


def test_importing_the_driver_needs_no_cuda() -> None:
    program = "import sys, hwkernels.device.driver, hwkernels.device.worker; sys.exit('cuda' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=Path(driver.__file__).parents[1], check=True, timeout=LONG)
