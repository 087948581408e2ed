"""The action for CI: its shell step does what it says, and its page names its inputs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / ".github/actions/tcsim"
KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<4>; .reg .b64 %d<2>; .shared .align 4 .b8 tile[256];
  ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0;
  BARRIER
  xor.b32 %r3, %r2, 128; ld.shared.u32 %r3, [%r3]; st.global.u32 [%d0], %r3; ret;
}
"""
LAUNCH = """block = 64
params = [{ pointer = "out" }]
arrays.out = { format = "u32", shape = [1], distribution = "zeros" }
"""


def step(folder: Path, script: str = f"bash {ACTION / 'run.sh'}", **given: str) -> subprocess.CompletedProcess[str]:
    """The shell step of the action, or another script, with `tcsim` of this Python."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "tcsim").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tcsim "$@"\n')
    (tools / "tcsim").chmod(0o755)
    own = {"COMMAND": "check", "LAUNCH": "", "ARCHS": "sm_90", "FOLDER": str(folder / "found")} | given
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = os.environ | own | {"PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="the step is for bash")
def test_the_shell_step(tmp_path: Path) -> None:
    """A log for each arch; the worst status of all."""
    (tmp_path / "racy.ptx").write_text(KERNEL.replace("BARRIER", ""))
    (tmp_path / "right.ptx").write_text(KERNEL.replace("BARRIER", "bar.sync 0;"))
    (tmp_path / "l.toml").write_text(LAUNCH)
    found = step(tmp_path, FILE="racy.ptx", LAUNCH="l.toml", ARCHS="sm_80 sm_90")
    assert found.returncode == 1 and found.stdout.count("SMEM_RACE_RAW") == 2, found.stderr
    logs = sorted((tmp_path / "found").iterdir())
    assert [own.name for own in logs] == ["sm_80.sarif", "sm_90.sarif"]
    assert all(json.loads(own.read_text())["runs"][0]["results"][0]["ruleId"] == "SMEM_RACE_RAW" for own in logs)
    assert step(tmp_path, FILE="right.ptx", LAUNCH="l.toml").returncode == 0
    assert step(tmp_path, FILE="right.ptx", LAUNCH="l.toml", COMMAND="exec").returncode == 0
    assert step(tmp_path, FILE="right.ptx", ARCHS="sm_90").returncode == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="the script is for bash")
def test_the_script_for_gitlab(tmp_path: Path) -> None:
    """As the page has it, but for the names of the files and the installation: a log for each arch, whatever the first one says."""
    page = (ROOT / "docs/check.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^    - (.*)$", page.partition("The same on GitLab:")[2].partition("artifacts:")[0], re.MULTILINE
    )
    assert len(lines) == 2 and lines[0].startswith("pip install")
    script = (
        lines[1].replace("kernels/gemm.cu", "k.ptx").replace("kernels/gemm.toml", "l.toml").replace("sm_100", "sm_80")
    )
    (tmp_path / "l.toml").write_text(LAUNCH)
    (tmp_path / "k.ptx").write_text(KERNEL.replace("BARRIER", ""))
    assert step(tmp_path, script).returncode == 1
    logs = {path.name: json.loads(path.read_text())["runs"][0]["results"] for path in tmp_path.glob("*.sarif")}
    assert {name: len(found) for name, found in logs.items()} == {"sm_80.sarif": 1, "sm_90.sarif": 1}


def test_the_page_names_every_input() -> None:
    text = (ACTION / "action.yml").read_text(encoding="utf-8")
    inputs = re.findall(r"^  (\w+):$", text.partition("runs:")[0], re.MULTILINE)
    (said,) = re.findall(r"Its inputs are (.*?)\. The same", (ROOT / "docs/check.md").read_text(encoding="utf-8"))
    assert inputs == [name for name in re.findall(r"`(\w+)`", said) if name not in ("check", "exec")]
    assert sorted(re.findall(r"inputs\.(\w+)", text)) == sorted([*inputs, "command"])
