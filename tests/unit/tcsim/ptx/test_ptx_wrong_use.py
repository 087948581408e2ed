"""What the caller of a launch does wrong: a LaunchError before anything runs, which says what was asked and what is valid."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.core.errors import OperandError
from tcsim.ptx import Hazard, Kernel, LaunchError, Limits, Memory, Run, parse

BODY = "{ ret; }"


def module(params: str = "", directives: str = "", target: str = "sm_90", before: str = "", body: str = BODY) -> str:
    return f".version 9.4\n.target {target}\n.address_size 64\n{before}\n.visible .entry k({params}) {directives}\n{body}\n"


def kernel(*args: Any, **options: Any) -> Kernel:
    return parse(module(*args, **options)).kernel()


def said(kernel: Kernel, params: Any = (), **options: Any) -> str:
    """The message of the LaunchError that a launch raises, in one line; memory is as before."""
    memory = Memory()
    memory.map(0x1000, bytes(range(64)))
    with pytest.raises(LaunchError) as caught:
        kernel.launch(memory, params, **options)
    message = str(caught.value)
    assert "\n" not in message and ("valid" in message or "nearest" in message) and len(message) < 500, message
    assert memory.read(0x1000, 64).tobytes() == bytes(range(64))
    return message


MAP = tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64))
TAKEN = [  # declaration, value, the bytes that the kernel sees
    (".u32 a", 7, b"\7\0\0\0"),
    (".u32 a", -1, b"\xff" * 4),
    (".s32 a", 2**32 - 1, b"\xff" * 4),
    (".b8 a", True, b"\1"),
    (".u64 a", 2**64 - 1, b"\xff" * 8),
    (".u64 .ptr .global .align 16 a", 0x1000, b"\0\x10" + b"\0" * 6),
    (".f32 a", 1.5, np.float32(1.5).tobytes()),
    (".f64 a", 1.5, np.float64(1.5).tobytes()),
    (".f32 a", float("inf"), np.float32("inf").tobytes()),
    (".f32 a", np.float32(0.1), np.float32(0.1).tobytes()),
    (".b32 a", np.float32(0.1), np.float32(0.1).tobytes()),
    (".u16 a", np.int16(-2), b"\xfe\xff"),
    (".b16 a", np.float16(1), b"\0\x3c"),
    (".b16 a", ml_dtypes.bfloat16(1), b"\x80\x3f"),
    (".align 4 .b8 a[6]", b"abcdef", b"abcdef"),
    (".align 4 .b8 a[6]", bytearray(b"abcdef"), b"abcdef"),
    (".align 4 .b8 a[6]", np.frombuffer(b"abcdef", np.uint8), b"abcdef"),
    (".align 64 .b8 a[128]", (MAP, 0x7000_0000), MAP.encode(0x7000_0000)),
    (".align 64 .b8 a[128]", MAP.encode(0x7000_0000), MAP.encode(0x7000_0000)),
]
REFUSED = [  # declaration, value, what the message says
    (".u32 a", 2**32, "4294967296"),
    (".s32 a", -(2**31) - 1, "-2147483648 to 4294967295"),
    (".u8 a", 256, "-128 to 255"),
    (".u32 a", 1.0, "float"),
    (".f32 a", 1, "a float"),
    (".f32 a", 1e39, "beyond f32"),
    (".f32 a", np.int32(1), "numpy.int32"),
    (".u32 a", np.float32(1), "numpy.float32"),
    (".u32 a", np.int64(1), "64 bits"),
    (".u64 a", np.uint32(1), "32 bits"),
    (".f64 a", np.float32(1), "32 bits"),
    (".u32 a", b"abc", "3 bytes; valid: 4 bytes"),
    (".align 4 .b8 a[6]", b"abcdefg", "7 bytes; valid: 6 bytes"),
    (".align 4 .b8 a[6]", 5, "6 bytes"),
    (".align 64 .b8 a[128]", 5, "(TensorMap, pointer)"),
    (".align 64 .b8 a[128]", MAP, "(TensorMap, pointer)"),
    (".align 64 .b8 a[128]", (MAP, 1.5), "pointer"),
    (".align 64 .b8 a[128]", (MAP, 0x7000_0001), "valid"),
    (".align 64 .b8 a[64]", (MAP, 0x7000_0000), "64 bytes"),
    (".u64 a", (MAP, 0x7000_0000), "128"),
    (".u64 a", "0x1000", "str"),
    (".u64 a", None, "NoneType"),
    (".u64 a", [1], "list"),
    (".u64 a", np.zeros(1, np.uint64), "ndarray"),
]


@pytest.mark.parametrize(("declared", "value", "data"), TAKEN, ids=str)
def test_a_parameter_that_fits_arrives_as_its_bytes(declared: str, value: Any, data: bytes) -> None:
    loads = "".join(
        f"ld.param.u8 %r, [a+{place}]; cvt.u32.u16 %w, %r; st.global.u8 [%p+{place}], %r;\n"
        for place in range(len(data))
    )
    body = f"{{ .reg .u16 %r; .reg .u32 %w; .reg .u64 %p; ld.param.u64 %p, [out];\n{loads} ret; }}"
    memory = Memory()
    out = memory.allocate(len(data))
    run = kernel(f".param .u64 out, .param {declared}", body=body).launch(memory, [out, value])
    assert run.completed and not run.hazards
    assert memory.read(out, len(data)).tobytes() == data


@pytest.mark.parametrize(("declared", "value", "expected"), REFUSED, ids=str)
def test_a_parameter_that_does_not_fit_is_named(declared: str, value: Any, expected: str) -> None:
    message = said(kernel(f".param .u64 first, .param {declared}"), [0, value])
    assert "parameter 1, a" in message and expected in message, message


def test_the_number_of_parameters() -> None:
    two = kernel(".param .u64 a, .param .align 4 .b8 b[12]")
    for params in ([], [1], [1, b"", 3]):
        message = said(two, params)
        assert f"{len(params)} parameters; valid: 2: a (.u64), b (.b8[12])" in message
    assert "str" in said(two, "ab") and "int" in said(two, 3) and "bytes" in said(two, b"12")


SHAPES = [  # directives, what is asked, what the message says
    ("", {"grid": (0, 1, 1)}, "grid=(0, 1, 1)"),
    ("", {"grid": (1, 1)}, "three integers"),
    ("", {"grid": (1.5, 1, 1)}, "three integers"),
    ("", {"grid": "111"}, "three integers"),
    ("", {"grid": 1}, "three integers"),
    ("", {"grid": (2**31, 1, 1)}, "grid.x=2147483648"),
    ("", {"grid": (1, 65536, 1)}, "valid: 1 to 65535"),
    ("", {"grid": (1, 1, 65536)}, "grid.z=65536"),
    ("", {"block": (1025, 1, 1)}, "valid: 1 to 1024"),
    ("", {"block": (1, 1, 65)}, "valid: 1 to 64"),
    ("", {"block": (32, 32, 2)}, "2048 threads"),
    (".maxntid 64", {"block": (65, 1, 1)}, "up to 64, as .maxntid says"),
    (".maxntid 8, 8, 2", {"block": (129, 1, 1)}, "up to 128"),
    (".reqntid 64", {"block": (32, 1, 1)}, "(64, 1, 1), as .reqntid says"),
    (".reqntid 8, 4, 2", {"block": (64, 1, 1)}, "(8, 4, 2)"),
    ("", {"cluster": (2, 1, 1)}, "not a multiple of the cluster (2, 1, 1)"),
    ("", {"grid": (4, 3, 1), "cluster": (2, 2, 1)}, "not a multiple"),
    ("", {"grid": (17, 1, 1), "cluster": (17, 1, 1)}, "up to 16 on sm_90"),
    ("", {"grid": (16, 1, 1), "cluster": (16, 1, 1), "arch": "sm_120"}, "up to 8 on sm_120"),
    (".reqnctapercluster 2", {"grid": (4, 1, 1), "cluster": (4, 1, 1)}, "(2, 1, 1), as .reqnctapercluster says"),
    (".reqnctapercluster 2", {"grid": (3, 1, 1)}, "not a multiple"),
    (".maxclusterrank 2", {"grid": (4, 1, 1), "cluster": (4, 1, 1)}, "up to 2, as .maxclusterrank says"),
    (".explicitcluster", {}, ".explicitcluster"),
    ("", {"dynamic_smem": -1}, "dynamic_smem=-1"),
    ("", {"dynamic_smem": 1.0}, "dynamic_smem=1.0"),
    ("", {"dynamic_smem": 227 * 1024 + 1}, "up to 232448 on sm_90"),
    ("", {"dynamic_smem": 100 * 1024, "arch": "sm_120"}, "up to 101376 on sm_120"),
    ("", {"schedule": "random"}, "seed"),
    ("", {"schedule": -1}, "seed"),
    ("", {"schedule": True}, "seed"),
    ("", {"schedule": None}, "seed"),
    ("", {"check": "yes"}, 'True, False or "sample"'),
    ("", {"limits": 5}, "tcsim.ptx.Limits"),
    ("", {"after": "run"}, "Run of an earlier launch"),
    ("", {"arch": "sm_80"}, "does not run code for sm_90"),
    ("", {"arch": "sm_91"}, "nearest"),
    ("", {"arch": 90}, "nearest"),
]  # fmt: skip


@pytest.mark.parametrize(("directives", "options", "expected"), SHAPES, ids=str)
def test_a_launch_that_cannot_be_is_refused(directives: str, options: dict[str, Any], expected: str) -> None:
    assert expected in said(kernel("", directives), **options)


def test_clusters_need_hopper() -> None:
    assert "clusters need sm_90" in said(kernel(target="sm_80"), grid=(2, 1, 1), cluster=(2, 1, 1))


@pytest.mark.parametrize(
    ("target", "runs", "refuses"),
    [
        ("sm_80", ["sm_80", "sm_90", "sm_120"], ["sm_75"]),
        ("sm_90a", ["sm_90"], ["sm_100", "sm_120", "sm_80"]),
        ("sm_100f", ["sm_100", "sm_103"], ["sm_90", "sm_110", "sm_120"]),
        ("sm_100a", ["sm_100"], ["sm_103"]),
        ("sm_120f", ["sm_120", "sm_121"], ["sm_100"]),
        ("sm_103f", ["sm_103"], ["sm_100"]),
    ],
)
def test_which_archs_run_a_target(target: str, runs: list[str], refuses: list[str]) -> None:
    made = kernel(target=target)
    assert made.target == target
    for arch in runs:
        assert made.launch(Memory(), [], arch=arch).arch == arch
    for arch in refuses:
        assert f"does not run code for {target}" in said(made, arch=arch)
    assert made.launch(Memory(), []).arch == target.rstrip("af")


def test_code_for_a_chip_before_volta_runs_on_later_ones() -> None:
    made = kernel(target="sm_52")
    assert made.launch(Memory(), [], arch="sm_90").arch == "sm_90"
    assert "valid: arch= one of sm_70" in said(made)


def test_shared_and_local_memory_beyond_the_arch() -> None:
    body = "{ .shared .b8 x[49153]; .reg .u32 %r; mov.u32 %r, x; ret; }"
    assert "static shared memory; valid: up to 49152" in said(kernel(body=body))
    body = "{ .shared .b8 x[1024]; .reg .u32 %r; mov.u32 %r, x; ret; }"
    assert "dynamic_smem=232448 beside 1024 static bytes" in said(kernel(body=body), dynamic_smem=227 * 1024)
    body = "{ .local .b8 x[524289]; .reg .u64 %r; mov.u64 %r, x; ret; }"
    assert "local memory" in said(kernel(body=body))


def test_dynamic_shared_memory_needs_no_array() -> None:
    assert kernel().launch(Memory(), [], dynamic_smem=1024).completed


def test_a_dependent_launch_follows_a_run_that_completed() -> None:
    made = kernel()
    first = made.launch(Memory(), [])
    assert made.launch(Memory(), [], after=first).completed
    stopped = kernel(body="{ trap; }").launch(Memory(), [])
    assert not stopped.completed
    assert "did not complete" in said(made, after=stopped)


def test_memory_of_another_type() -> None:
    with pytest.raises(LaunchError, match=r"a dict; valid: a tcsim\.ptx\.Memory"):
        kernel().launch({}, [])  # type: ignore[arg-type]


def test_names_of_kernels() -> None:
    two = parse(module() + ".visible .entry other() { ret; }")
    assert two.kernels == ("k", "other")
    with pytest.raises(LaunchError, match="2 kernels; valid: the name of one: k, other"):
        two.kernel()
    with pytest.raises(LaunchError, match="no kernel 'othr'; nearest: other"):
        two.kernel("othr")
    with pytest.raises(LaunchError, match="no kernel 3"):
        two.kernel(3)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="0 kernels"):
        parse(".version 8.0\n.target sm_90").kernel()


@pytest.mark.parametrize(
    "wrong", [{"instructions": 0}, {"memory": -1}, {"seconds": "1"}, {"output": 1.5}, {"stack": True}]
)
def test_limits_that_are_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(OperandError, match="above 0"):
        Limits(**wrong)


def test_a_run_says_which_arch_and_kernel() -> None:
    run = kernel().launch(Memory(), [])
    assert isinstance(run, Run) and (run.arch, run.kernel, run.instructions) == ("sm_90", "k", 1)
    assert run.hazards == [] and not run.inexact and run.output == "" and isinstance(Hazard("TRAP", ""), Hazard)


@pytest.mark.parametrize(
    ("statement", "target", "expected"),
    [
        ("wgmma.fence.sync.aligned;", "sm_90", "valid: sm_90a"),
        ("ld.shared::cluster.u32 %r1, [%r2];", "sm_80", "valid: sm_90, sm_90a"),
        ("barrier.cluster.arrive;", "sm_80", "valid: sm_90, sm_90a"),
        ("atom.global.exch.b128 %q1, [%rd1], %q1;", "sm_80", "valid: sm_90"),
        ("ld.global.v8.b32 {%r1,%r1,%r1,%r1,%r1,%r1,%r1,%r1}, [%rd1];", "sm_90", "valid: sm_100"),
        ("redux.sync.add.u32 %r1, %r1, %r1;", "sm_75", "valid: sm_80"),
        ("cp.async.wait_all;", "sm_75", "valid: sm_80"),
        ("setmaxnreg.inc.sync.aligned.u32 40;", "sm_90", "sm_90a"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_90a", "sm_100"),
        ("fma.rn.bf16 %h1, %h1, %h1, %h1;", "sm_75", "sm_80"),
    ],
)
def test_an_instruction_that_the_target_does_not_have(statement: str, target: str, expected: str) -> None:
    body = f"{{ .reg .b16 %h<2>; .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .b128 %q<2>;\n  {statement}\n ret; }}"
    made = kernel(target=target, body=body)
    message = said(made)
    assert f".target {target} does not have this instruction" in message and expected in message, message
    with pytest.raises(LaunchError) as caught:
        made.launch(Memory(), [])
    assert (caught.value.line, caught.value.column) == (7, 3)


def test_operands_that_fit_no_form_are_found_before_anything_runs() -> None:
    body = "{ .reg .b32 %r<9>; .reg .b64 %rd;\n st.global.u32 [%rd], 1;\n  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1}; ret; }"
    assert "no form takes these operands; valid:" in said(kernel(body=body))


def test_an_instruction_of_another_kernel_does_not_hinder_this_one() -> None:
    two = parse(module() + ".visible .entry other() {\n wgmma.fence.sync.aligned; ret; }")
    assert two.kernel("k").launch(Memory(), []).completed
    assert "sm_90a" in said(two.kernel("other"))


@pytest.mark.parametrize(
    "statement",
    [
        "atom.global.exch.b128 %r1, [%rd1], %q1;",
        "atom.global.exch.b128 %q1, [%rd1], %r1;",
        "ld.global.b128 %r1, [%rd1];",
        "mov.b128 %rd1, %q1;",
    ],
)
def test_128_bits_need_a_register_of_128_bits(statement: str) -> None:
    body = f"{{ .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .b128 %q<2>;\n  {statement}\n ret; }}"
    assert "128 bits; valid: a register of type .b128" in said(kernel(target="sm_90", body=body))
