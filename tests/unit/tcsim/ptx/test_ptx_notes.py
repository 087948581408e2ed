"""What ptxas says that it changed is a hazard of its own, with the line where the note has one."""

from __future__ import annotations

import pytest

from hwkernels.device.repairs import repairs
from tcsim.ptx.hazards.notes import hazards_in
from tcsim.ptx.hazards.rules import ASSEMBLER
from tcsim.ptx.hazards.sarif import _of_source
from tests.support.ptx_copies import text

NOTES = {
    "SETMAXNREG_IGNORED": (
        "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.", None, "C7508"
    ),
    "WGMMA_SERIALISED": (
        "ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are serialized due to program "
        "dependence on compiler-inserted WG.AR in divergent path in the function 'k' in line 14", 14, "C7520"
    ),
    "WGMMA_INJECTED": (
        "ptxas info    : (C7517) wgmma.wait_group is injected in around line 15 by compiler to allow use of registers "
        "defined by GMMA in function 'k'", 15, "C7517"
    ),
}  # fmt: skip


def test_every_note_has_a_rule() -> None:
    assert set(NOTES) == {rule.name for rule in ASSEMBLER}


@pytest.mark.parametrize("name", NOTES)
def test_a_note_is_a_hazard(name: str) -> None:
    said, line, code = NOTES[name]
    (found,) = hazards_in(f"ptxas info    : Used 30 registers, used 0 barriers\n{said}\n")
    assert (found.name, found.line, found.detail) == (name, line, {"note": code})
    assert found.severity in ("repaired", "perf") and found.message and "ptxas" not in found.message


MULTIPLIED = """
    mov.u64 %rd1, 0; mov.u64 %rd2, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    WAIT
    ld.param.u64 %rd3, [target]; st.global.f32 [%rd3], %f1;
"""


def test_an_assembler_names_a_missing_wait() -> None:
    """Where one is installed: the accumulator is stored, and no wait_group covers its group."""
    pytest.importorskip("nvidia.cu13")
    missing = text(".param .u64 target", MULTIPLIED.replace("WAIT", ""))
    whole = text(".param .u64 target", MULTIPLIED.replace("WAIT", "wgmma.wait_group.sync.aligned 0;"))
    assert not repairs(whole, "sm_90a")
    found = repairs(missing, "sm_90a")
    assert found and {own.severity for own in found} == {"repaired"}, [str(own) for own in found]


@pytest.mark.parametrize(
    ("source", "line"), [("k.cu:1", 1), ("a/k.cu:70", 70), ("k.cu:0", None), ("k.cu", None), (None, None)]
)
def test_lines_of_the_source_in_sarif(source: str | None, line: int | None) -> None:
    """They count from 1: line 0 is that of code that stands in no source."""
    found = _of_source(source, "here")
    assert (found and found["physicalLocation"]["region"]["startLine"]) == line
