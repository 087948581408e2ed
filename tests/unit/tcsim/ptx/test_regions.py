"""Regions: launches leave the same bytes with compiled code as without, and what goes wrong with it makes them slower, never wrong."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tcsim.core import files
from tcsim.core.files import Files
from tcsim.lowering import objects
from tcsim.ptx import LaunchError, Limits, Memory, Run, parse
from tcsim.ptx.compile import regions
from tcsim.ptx.compile.regions import VARIABLE, Recorded, work
from tests.hazards import kernels, kernels_lanes, kernels_mbarriers, kernels_tensor
from tests.hazards.kernels import Kernel
from tests.hazards.test_planted import ran

PLANTED = [own for part in (kernels, kernels_lanes, kernels_mbarriers, kernels_tensor) for own in part.KERNELS]
BODY = """
  ld.param.u64 %d1, [to]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1;
  cvt.rn.f32.u32 %f1, %r3; mov.u32 %r4, 0;
LOOP:
  setp.lt.u32 %p1, %r1, 40; fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F800000; @%p1 add.f32 %f1, %f1, 0f3DCCCCCD;
  mul.f32 %f2, %f1, %f1; add.f32 %f1, %f2, %f1; ex2.approx.f32 %f3, 0fBF000000; min.f32 %f1, %f1, 0f42C80000;
  cvt.rn.f16.f32 %h1, %f1; cvt.f32.f16 %f4, %h1; add.rn.f32 %f1, %f1, %f4; prmt.b32 %r5, %r3, %r4, 0x5410;
  add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 20; @%p2 bra LOOP;
  mul.wide.u32 %d2, %r3, 8; add.s64 %d1, %d1, %d2; st.global.f32 [%d1], %f1; st.global.u32 [%d1+4], %r5; ret;"""
PTX = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry made(.param .u64 to) {{
  .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %d<4>; .reg .pred %p<4>; .reg .b16 %h<2>;{BODY} }}"""
BLOCKS, THREADS = 6, 64


@pytest.fixture(autouse=True)
def new_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch compiles its program anew: regions would be those of an earlier test."""
    monkeypatch.setattr("tcsim.ptx.kernel.store", lambda: type("Store", (), {"get": lambda self, key, make: make()})())


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every basic block is compiled when it is first executed; how many regions each got."""
    monkeypatch.setenv(VARIABLE, "all")
    found: list[int] = []
    before = Recorded.region

    def region(own: Recorded, *given: Any) -> regions.Region:
        found.append(len(own.made.results))
        return before(own, *given)

    monkeypatch.setattr(Recorded, "region", region)
    return found


def launched(batch: int = 64, schedule: str | int = "late", check: bool = False) -> tuple[bytes, Run]:
    """The bytes that a kernel leaves that computes in a loop, and its run."""
    memory = Memory()
    to = memory.allocate(BLOCKS * THREADS * 8)
    run = parse(PTX).kernel().launch(
        memory, [to], (BLOCKS, 1, 1), (THREADS, 1, 1), schedule=schedule, check=check, limits=Limits(batch=batch)
    )  # fmt: skip
    return memory.read(to, BLOCKS * THREADS * 8).tobytes(), run


def state(made: tuple[bytes, Run]) -> tuple[Any, ...]:
    """All that a launch tells."""
    octets, run = made
    return octets, run.instructions, sorted(run.inexact.items()), run.completed, [str(own) for own in run.hazards]


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("check", [False, True])
def test_a_launch_with_regions_is_the_same(
    batch: int, check: bool, forced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes, counts of instructions and of what is not exact."""
    found = state(launched(batch, "late", check))
    assert len(forced) >= 3 and sum(forced) >= 12
    made = len(forced)
    monkeypatch.setenv(VARIABLE, "off")
    assert found == state(launched(batch, "late", check)) and len(forced) == made


@pytest.mark.parametrize("kernel", PLANTED, ids=lambda own: own.name)
def test_planted_hazards_are_found_with_regions(
    kernel: Kernel, forced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory, hazards and counts of right and wrong kernels."""
    sources = (kernel.source, kernel.without(kernel.defects[0]))
    found = [ran(kernel, source, schedule) for source in sources for schedule in ("late", "early", 3)]
    monkeypatch.setenv(VARIABLE, "off")
    assert found == [ran(kernel, source, schedule) for source in sources for schedule in ("late", "early", 3)]


def test_only_hot_blocks_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that has executed little stays as it is."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert work() == regions._WORK["auto"] > 20 * BLOCKS * THREADS * 20
    monkeypatch.setenv(VARIABLE, "off")
    assert work() == float("inf")


def test_another_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not one of the three words is a mistake of whoever set the variable."""
    monkeypatch.setenv(VARIABLE, "on")
    with pytest.raises(LaunchError, match=r"TCSIM_REGIONS='on'; valid: auto, all, off"):
        launched()


def test_without_llvmlite_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch runs as it always did."""
    monkeypatch.setenv(VARIABLE, "all")
    expected = launched()[0]
    objects.llvm.cache_clear()
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    try:
        assert work() == float("inf")
        assert launched()[0] == expected
    finally:
        objects.llvm.cache_clear()


def test_what_llvm_refuses_stays_numpy(forced: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of LLVM costs time and nothing else."""
    expected = launched()[0]

    def refuse(text: str) -> bytes:
        raise RuntimeError("no")

    monkeypatch.setattr(objects, "_made", refuse)
    monkeypatch.setattr(objects, "kept", lambda: Files(None))
    assert launched()[0] == expected


@pytest.mark.parametrize("harm", ["none", "cut", "changed", "read-only", "full"])
def test_object_files(harm: str, forced: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept objects are used again; a damaged, unreadable or unwritable one is made anew."""
    monkeypatch.setattr(objects, "kept", lambda: Files(tmp_path))
    made: list[str] = []
    make = objects._made
    monkeypatch.setattr(objects, "_made", lambda text: made.append(text) or make(text))
    if harm == "full":

        def no_room(*given: Any, **named: Any) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files, "replacing", no_room)
    first = launched()[0]
    compiled = len(made)
    kept = sorted(own for own in tmp_path.rglob("*") if own.is_file())
    assert compiled >= 3 and len(kept) == (0 if harm == "full" else len(set(made)))
    for own in kept:
        data = own.read_bytes()
        if harm == "cut":
            own.write_bytes(data[: len(data) // 2])
        elif harm == "changed":
            own.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        elif harm == "read-only":
            own.chmod(0o466)  # others may write it: it is not read
    assert launched()[0] == first
    assert len(made) == (compiled if harm == "none" else 2 * compiled)


def test_a_process_that_is_killed_leaves_whole_files(tmp_path: Path) -> None:
    """kill -9 while code is compiled: the next process gives the same."""
    source = (
        "import hashlib, tests.unit.tcsim.ptx.test_regions as own\n"
        "print(hashlib.sha256(own.launched()[0]).hexdigest())\n"
    )
    slow = (
        "import os, signal, tcsim.core.files as files\n"
        "before, left = files.os.replace, [2]\n"
        "def replace(*given):\n"
        "    left[0] -= 1\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if not left[0] else before(*given)\n"
        "files.os.replace = replace\n"
    )
    root = Path(__file__).resolve().parents[4]
    environment = {"PYTHONPATH": str(root), "TCSIM_CACHE_DIR": str(tmp_path), VARIABLE: "all", "PATH": "/usr/bin:/bin"}
    killed = subprocess.run(
        [sys.executable, "-c", slow + source], env=environment, cwd=root, capture_output=True, check=False
    )
    assert killed.returncode == -9 and not killed.stdout
    again = subprocess.run([sys.executable, "-c", source], env=environment, cwd=root, capture_output=True, check=True)
    assert again.stdout.decode().strip() == hashlib.sha256(launched()[0]).hexdigest()


def test_a_line_that_cannot_be_recorded_changes_nothing() -> None:
    """What was recorded before it stays."""
    memory = Memory()
    program = parse(PTX).kernel().compiled(memory, "sm_90")
    block = max(program.sources, key=lambda own: own.size)
    recorded = Recorded(program, memory=True)
    assert recorded.take(
        [line for line in block.lines if line.text.startswith("copyto") and "mem." not in line.text][:1]
    )
    before = dict(recorded.made.results)
    loads = [line for own in program.sources for line in own.lines if "mem." in line.text]
    assert loads and not recorded.take(loads[:1]) and recorded.made.results == before


def test_conversions_of_vectors_are_recorded() -> None:
    """An instruction of the catalog that each thread executes by itself, whatever its operands are."""
    body = "cvt.rs.satfinite.e4m3x4.f32 %r1, {%f1, %f2, %f3, %f4}, %r2; st.shared.b32 [sh], %r1;"
    text = f".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k() {{ .reg .b32 %r<3>; .reg .f32 %f<5>; .shared .b32 sh; {body} ret; }}"
    program = parse(text).kernel().compiled(Memory(), "sm_100")
    lines = [line for own in program.sources for line in own.lines if ".perform(" in line.text]
    assert lines and Recorded(program, memory=True).take(lines)


FAULT = PTX.replace("st.global.f32 [%d1], %f1;", "st.global.f32 [%d1], %f1;\n  st.global.f32 [%d1+1048576], %f1;\n")


def test_a_fault_behind_a_region_names_its_own_line(forced: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that a region executes keep their places in the source of their block."""

    def where() -> list[tuple[str, int]]:
        memory = Memory()
        run = parse(FAULT).kernel().launch(memory, [memory.allocate(64 * 8)], block=(64, 1, 1), check=False)
        return [(own.name, own.line) for own in run.hazards]

    found = where()
    assert forced and found == [("GMEM_UNMAPPED", FAULT[: FAULT.index("+1048576")].count("\n") + 1)]
    monkeypatch.setenv(VARIABLE, "off")
    assert found == where()


@pytest.mark.parametrize("error", [OverflowError, AssertionError, ZeroDivisionError])
def test_whatever_recording_raises_the_lines_run_in_numpy(
    error: type[Exception], forced: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of a row, or LLVM's assembly, that fails in a way that nobody foresaw."""
    expected = launched()[0]

    def fails(*given: Any, **named: Any) -> Any:
        raise error("no")

    with monkeypatch.context() as patched:
        patched.setattr(regions.Calls, "_recorded", fails)
        assert launched()[0] == expected
    monkeypatch.setattr(regions, "Loop", fails)
    assert launched()[0] == expected
