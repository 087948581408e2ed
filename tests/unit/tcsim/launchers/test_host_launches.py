"""Launches on the memory of this process: host arrays, sessions, and a Triton launch's arguments, all without Triton."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.device.toolchain import assemble
from tcsim.core.errors import OperandError, TargetError
from tcsim.launchers import host_memory, recording, script, triton_session
from tcsim.launchers.cubin import resources
from tcsim.launchers.host_memory import HostArray, HostMemory
from tcsim.launchers.job import execute
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.session import Session
from tcsim.launchers.triton_arguments import flattened, packed, pointed, tensor_map
from tcsim.ptx import parse

PTX = """
.version 8.6
.target sm_90
.address_size 64
.visible .entry add(.param .u64 p, .param .u64 q)
{
    .reg .b32 %r<4>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4]; ld.global.u32 %r3, [%rd5]; add.u32 %r2, %r2, %r3; st.global.u32 [%rd4], %r2;
    ret;
}
"""


def launched(session: Session, x: HostArray, y: HostArray, threads: int, **options: Any) -> Any:
    """y added to x."""
    params = [own.data_ptr().to_bytes(8, "little") for own in (x, y)]
    return session.launch(
        parse(PTX).kernel(), (1, 1, 1), (threads, 1, 1), (1, 1, 1), 0, [x, y], lambda: params, **options
    )


# --- memory


@pytest.mark.parametrize("start", [0, 1])
def test_a_kernel_changes_the_arrays_it_was_given(start: int) -> None:
    """In place where the address is a multiple of 16, else by a copy that is brought back."""
    backing = np.arange(100, dtype=np.uint32)
    first = -backing.ctypes.data // 4 % 4 + start
    x, y = HostArray(backing[first : first + 32]), HostArray(np.full(32, 1000, np.uint32))
    log = io.StringIO()
    session = Session("sm_90", log=log)
    own = launched(session, x, y, 32)
    assert backing.tolist() == [i + 1000 * (first <= i < first + 32) for i in range(100)] and (y.array == 1000).all()
    assert own.clean and session.memory.segments == []
    assert log.getvalue().startswith("tcsim: add  grid 1  block 32  sm_90  11 instructions")


def test_arrays_that_share_memory_are_mapped_once() -> None:
    """Views of one array, overlapping or not."""
    backing = np.arange(64, dtype=np.uint32)
    x, y = HostArray(backing[0:40]), HostArray(backing[8:48])
    launched(Session("sm_90", log=None), x, y, 8)
    assert backing.tolist() == [2 * i + 8 if i < 8 else i for i in range(64)]


def test_what_lies_behind_an_array_is_not_the_kernels() -> None:
    """The launch stops with a hazard, which names the array's end; what was written stays."""
    x, y = HostArray(np.zeros(48, np.uint32)), HostArray(np.ones(32, np.uint32))
    session = Session("sm_90", log=None)
    with pytest.raises(LaunchFailed, match=r"add stopped: GMEM_UNMAPPED: .*line 10") as caught:
        launched(session, x, y, 64)
    assert session.launches == [caught.value.launched] and not session.launches[0].clean
    assert session.memory.segments == [] and "1 with errors" in session.summary()


@pytest.mark.parametrize("races", [False, True])
def test_beyond_an_array_is_said_by_parameter_and_tensors_are_looked_for_once(
    races: bool, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """The host is asked for its tensors at the first address that nobody lent, not at each."""
    asked = list[int]()
    monkeypatch.setattr(host_memory, "live_extents", lambda: asked.append(1) or iter(()))
    x, y = (HostArray(np.zeros(32, np.uint32)) for _ in "xy")
    session = Session("sm_90", races=races)
    with pytest.raises(LaunchFailed):
        launched(session, x, y, 128)
    (fault,) = session.launches[0].run.errors
    assert fault.name == "GMEM_UNMAPPED" and "(param0 + 128; param0 has 128 bytes)" in fault.message
    assert asked == [1]


def test_scratch_memory_is_for_one_launch() -> None:
    """It is zero, aligned, and the last parameter."""
    memory = HostMemory()
    for _ in range(2):
        with memory.lent([], [(100, 1024), (0, 1)]) as (first, none):
            assert first % 1024 == 0 and none == 0 and not memory.read(first, 100).any()
            memory.write(first, b"\1" * 100)
    assert memory.segments == []


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (
            SimpleNamespace(untyped_storage=None, device=SimpleNamespace(type="meta")),
            "a tensor on .*; valid: CPU tensors",
        ),
        (SimpleNamespace(data_ptr=None), r"with data_ptr\(\); valid: CPU tensors"),
    ],
)
def test_what_is_not_memory_of_this_process(argument: Any, said: str) -> None:
    with pytest.raises(OperandError, match=said), HostMemory().lent([argument]):
        pass


def test_an_array_that_may_not_be_written() -> None:
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(OperandError, match="valid: a NumPy array that may be written"):
        HostArray(frozen)


# --- sessions


def test_a_launch_is_saved_as_a_recording_that_runs_again(tmp_path: Any) -> None:
    """With what was there before and after; a wrong byte in it is found."""
    x, y = HostArray(np.arange(32, dtype=np.uint32)), HostArray(np.full(32, 5, np.uint32))
    session = Session("sm_90", save=tmp_path, log=None)
    launched(session, x, y, 32, notes=("first",))
    launched(session, x, y, 32)
    files = sorted(tmp_path.glob("*.npz"))
    assert [own.name for own in files] == ["0000_add.npz", "0001_add.npz"]
    kept = recording.read(files[0])
    assert kept.notes == ("the model, not a GPU", "first") and kept.arch == "sm_90" and len(kept.buffers) == 2
    found = execute(kept.job())
    assert found.equal and found.comparisons[0].compared == 32
    kept.buffers[0].after[3] ^= 1
    assert execute(kept.job()).equal is False


def test_wrong_sessions() -> None:
    with pytest.raises(TargetError):
        Session("sm_91")
    with pytest.raises(OperandError, match="multiprocessors=0; valid: integers from 1"):
        Session("sm_90", multiprocessors=0)
    assert (Session("sm_90a").arch, Session("sm_90").multiprocessors, Session("sm_103").multiprocessors) == (
        "sm_90",
        132,
        148,
    )


def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """And which versions it knows, where there is another."""
    path = tmp_path / "script.py"
    path.write_text("raise SystemExit(3)")
    monkeypatch.setattr(triton_session, "version", lambda name: "2.1.0")
    with pytest.raises(OperandError, match=r"Triton 2\.1\.0; valid: 3\.7, "):
        script.run_script(str(path), [], "sm_90")

    def absent(name: str) -> str:
        raise triton_session.PackageNotFoundError(name)

    monkeypatch.setattr(triton_session, "version", absent)
    with pytest.raises(OperandError, match=r"pip install 'tcsim\[triton\]'"):
        script.run_script(str(path), [], "sm_90")
    with pytest.raises(FileNotFoundError):
        script.run_script(str(tmp_path / "none.py"), [], "sm_90")


# --- the arguments of a Triton launch


def descriptor(base: Any, shape: list[int], strides: list[int], **more: Any) -> Any:
    """As Triton's TensorDescriptor."""
    return SimpleNamespace(
        base=base, shape=shape, strides=strides, **({"padding": "zero", "round_f32_to_tf32": False} | more)
    )


BASE = HostArray(np.zeros((64, 32), np.float16))
META = {"swizzle": 2, "elem_size": 2, "elem_type": 6, "block_size": [16, 32], "fp4_padded": False}


def test_a_descriptor_is_a_map_or_a_pointer_with_its_shape() -> None:
    """As a map where the compiler says what map; shape and strides follow in both."""
    own, signature = descriptor(BASE, [64, 32], [32, 1]), ("tensordesc<fp16[16,32]>", "constexpr", "i32")
    flat = flattened(signature, (own, 3, 7), [META])
    assert [kind for kind, _ in flat] == ["nvTmaDesc", "i32", "i32", "i64", "i64", "i32"]
    assert list(pointed(flat)) == [BASE]
    plain = flattened(signature, (own, 3, 7), None)
    assert [value for _, value in plain] == [BASE, 64, 32, 32, 1, False, False, 64, 32, 32, 1, 7]
    assert [kind for kind, _ in plain] == ["*fp16", *["i64"] * 4, "i1", "i1", "i32", "i32", "i64", "i64", "i32"]


def test_the_map_of_a_descriptor() -> None:
    """Innermost first, strides in bytes; its address is the tensor's."""
    own = descriptor(BASE, [64, 32], [32, 1], padding="nan")
    data = packed("nvTmaDesc", (own, META), 128)
    assert int.from_bytes(data[:8], "little") == BASE.data_ptr()
    wanted = tcsim.TensorMap(
        "FLOAT16", global_dim=(32, 64), global_strides=(64,), box_dim=(32, 16), swizzle="64B", l2_promotion="L2_128B",
        oob_fill="NAN_REQUEST_ZERO_FMA",
    )  # fmt: skip
    assert tensor_map(own, META) == wanted and data == wanted.encode(BASE.data_ptr())
    rounded = descriptor(BASE, [64, 32], [32, 1], round_f32_to_tf32=True)
    assert tensor_map(rounded, META | {"elem_size": 4, "elem_type": 7, "swizzle": 3}).data_type == "TFLOAT32"
    packed_pairs = META | {"fp4_padded": True, "elem_size": 1, "elem_type": 0}
    assert tensor_map(descriptor(BASE, [64, 32], [32, 1]), packed_pairs).global_dim == (64, 64)


def test_the_map_of_an_im2col_descriptor() -> None:
    own = descriptor(
        BASE, [2, 8, 8, 64], [4096, 512, 64, 1], element_strides=None, pixel_box_lower_corner=[-1, 0], pixel_box_upper_corner=[1, 2]
    )  # fmt: skip
    found = tensor_map(own, META | {"is_im2col": True, "block_size": [32, 32]})
    assert (found.pixel_box_lower_corner, found.pixel_box_upper_corner) == ((0, -1), (2, 1))
    assert (found.channels_per_pixel, found.pixels_per_column, found.global_dim) == (32, 32, (64, 8, 8, 2))
    assert found.global_strides == (128, 1024, 8192)


@pytest.mark.parametrize(
    ("kind", "value", "size", "expected"),
    [
        ("i1", True, 1, "01"), ("u64", 2**64 - 1, 8, "ff" * 8), ("i64", -1, 8, "ff" * 8), ("fp32", 1, 4, "0000803f"),
        ("fp64", 0.5, 8, "000000000000e03f"), ("bf16", 1.0039, 2, "803f"), ("*fp32", 0x1234, 8, "3412" + "00" * 6),
    ],
)  # fmt: skip
def test_parameters_are_packed(kind: str, value: Any, size: int, expected: str) -> None:
    assert packed(kind, value, size).hex() == expected


def test_a_parameter_that_does_not_fit() -> None:
    with pytest.raises(OperandError, match=r"an argument of type fp16 is 1e\+30"):
        packed("fp16", 1e30, 2)


def test_what_a_cubin_says_of_its_kernel() -> None:
    """Registers and stack, as ptxas -v says: more of both for a kernel that has more."""
    small = resources(assemble(PTX, "sm_90").cubin)
    stack = PTX.replace(".reg .b32 %r<4>;", ".reg .b32 %r<4>; .local .align 4 .b8 d[256]; .reg .b64 %l, %m;").replace(
        "st.global.u32 [%rd4], %r2;",
        "mov.u64 %l, d; mul.wide.u32 %m, %r3, 4; add.s64 %m, %m, %l; st.local.u32 [%m], %r2; ld.local.u32 %r2, [%l + 4]; st.global.u32 [%rd4], %r2;",
    )
    large = resources(assemble(stack, "sm_90").cubin)
    assert 8 <= small[0] <= 32 and small[1] == 0 and large[1] == 256
