"""The corpora: cases that are whole, kernels for targets that no GPU of ours runs, recordings that come back as they were written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tcsim.core.targets import TARGETS
from tcsim.launchers.recording import from_fields
from tests.kernels.corpora import pack, place, readers, recording
from tests.kernels.corpora.case import Case, Close, Inputs, Launch, Pointer, Source, Struct
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.check import checked
from tests.kernels.corpora.replay import replayed

UNMEASURED = pack.read(pack.UNMEASURED)
WITHOUT_GPU = [
    (name, target)
    for name, case in CASES.items()
    for target in case.targets
    if pack.key_of(case.source.key, target) in UNMEASURED
]
ADD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry add_one(.param .u64 to)
.reqntid 32
{
  .reg .b32 %r<3>; .reg .b64 %a<3>;
  ld.param.u64 %a0, [to];
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %a1, %r0, 4, %a0;
  ld.global.u32 %r1, [%a1];
  add.u32 %r2, %r1, 1;
  st.global.u32 [%a1], %r2;
  ret;
}
"""


def test_cases_are_of_every_kind() -> None:
    kinds = Counter(case.source.compiler for case in CASES.values())
    assert kinds["cuda"] >= 40 and kinds["triton"] + kinds["gluon"] >= 30 and kinds["cute"] >= 4 and kinds["gemm"] >= 60
    assert all(case.targets and all(target in TARGETS for target in case.targets) for case in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_whole(name: str) -> None:
    """It expects something of its buffers, is the same every time, and what it starts from is not what it expects."""
    launch, again = CASES[name].launch(), CASES[name].launch()
    assert launch.expected and set(launch.expected) | launch.scratch <= set(launch.buffers)
    addresses = {buffer: 4096 * (number + 1) for number, buffer in enumerate(launch.buffers)}
    before, second = place.images(launch, addresses), place.images(again, addresses)
    assert all((before[buffer] == second[buffer]).all() for buffer in before)
    assert any(own.wrong(before[buffer]) for buffer, own in launch.expected.items())


@pytest.mark.parametrize(("name", "target"), WITHOUT_GPU)
def test_kernels_that_no_gpu_of_ours_runs(name: str, target: str) -> None:
    case = CASES[name]
    found = checked(case, target, UNMEASURED[pack.key_of(case.source.key, target)])
    assert found.passed and not found.run.errors, (found.wrong, found.untouched, found.run.errors[:2])


def test_the_committed_kernels_are_all_used() -> None:
    assert len(WITHOUT_GPU) == len(UNMEASURED) >= 30


def _added(expected: np.ndarray) -> Case:
    def make(inputs: Inputs) -> Launch:
        buffers = {"to": np.arange(32, dtype=np.uint32), "rest": np.zeros(4, np.uint8)}
        return Launch(buffers, (Pointer("to"),), {"to": Close(expected, np.uint32)})

    return Case("add", Source("cuda", "add.cu"), "", ("sm_90",), make)


def test_a_wrong_result_is_found() -> None:
    compiled, right = pack.Compiled(ADD), np.arange(32) + 1
    assert checked(_added(right), "sm_90", compiled).passed
    wrong = checked(_added(np.where(np.arange(32) == 7, 0, right)), "sm_90", compiled)
    assert not wrong.passed and wrong.wrong == {"to": 1}


def test_recordings_come_back(tmp_path: Path) -> None:
    """What is written is read; equal arrays are stored once; a byte that differs is found by the replay."""
    before = np.arange(128, dtype=np.uint8)
    after = (before.view(np.uint32) + 1).view(np.uint8)
    fields = {
        "ptx": np.frombuffer(ADD.encode(), np.uint8), "entry": "add_one", "before_entry": "", "grid": (1, 1, 1), "block": (32, 1, 1),
        "cluster": (1, 1, 1), "smem": 0, "output": "", "param0": np.frombuffer((1 << 20).to_bytes(8, "little"), np.uint8),
        "buf0_name": "to", "buf0_address": 1 << 20, "buf0_before": before, "buf0_after": after,
    }  # fmt: skip
    recording.write(tmp_path / "one.xz", {"a": fields, "b": fields})
    found = recording.read(tmp_path / "one.xz")
    assert list(found) == ["a", "b"] and found["a"]["grid"] == [1, 1, 1]
    assert (found["b"]["buf0_after"] == after).all()
    own = replayed(from_fields(found["a"], "a"))
    assert own.equal and own.compared == 128 and own.run.instructions > 0
    spoilt = after.copy()
    spoilt[9] ^= 1
    assert replayed(from_fields({**found["a"], "buf0_after": spoilt}, "a")).differing == 1


def test_addresses_are_put_where_a_launch_says() -> None:
    launch = Launch(
        {"table": np.zeros(16, np.uint8), "x": np.zeros(4, np.uint8)},
        (Pointer("x", 2), Struct(bytes(16), ((8, Pointer("table")),)), np.int32(-1)), {}, pointers={("table", 8): Pointer("x", 1)},
    )  # fmt: skip
    addresses = {"table": 0x1000, "x": 0x2000}
    assert place.images(launch, addresses)["table"].view(np.uint64).tolist() == [0, 0x2001]
    pointer, struct, number = place.parameters(launch, addresses)
    assert pointer == (0x2002).to_bytes(8, "little") and number == b"\xff" * 4
    assert struct == bytes(8) + (0x1000).to_bytes(8, "little")


def test_readers_say_how_far_a_kernel_comes(tmp_path: Path) -> None:
    for name, text in {"good": ADD, "unbound": ADD.replace("add.u32", "add.u7"), "torn": ADD[: len(ADD) // 2]}.items():
        (tmp_path / f"{name}.ptx").write_text(text)
    verdicts = {path.stem: readers.read(path)[0] for path in sorted(tmp_path.glob("*.ptx"))}
    assert verdicts["good"].stage == "generated" and not verdicts["good"].reason
    assert verdicts["unbound"].stage != "generated" and "add.u7" in verdicts["unbound"].reason
    assert verdicts["torn"].stage == "" and verdicts["torn"].kernel == "add_one"
    assert readers.main([str(tmp_path)]) == 1
