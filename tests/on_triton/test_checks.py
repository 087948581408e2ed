"""Checks of what Triton launches: `tcsim check` of a script, a session, and the marker of the pytest plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import numpy as np
import triton
import triton.language as tl
from tcsim.launchers.host_memory import HostArray


@triton.jit
def add(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + 1, inside)


def test_it(size=SIZE):
    x, out = HostArray(np.arange(100, dtype=np.float32)), HostArray(np.zeros(size, np.float32))
    add[(2,)](x, out, 100, BLOCK=64)
    print("ran")


if __name__ == "__main__":
    test_it()
"""
MARKED = SCRIPT.replace("def test_it", "import pytest\n\n\n@pytest.mark.tcsim('sm_90')\ndef test_it")


def ran(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_add.py").write_text(text, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    words = [sys.executable, "-W", "ignore", "-m", *command]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_script_is_checked(tmp_path: Path) -> None:
    """What it prints goes to standard error; what it does wrong has the script's own line."""
    right = ran(
        tmp_path, SCRIPT.replace("SIZE", "100"), "tcsim", "check", "--arch", "sm_90", "--schedule", "3", "test_add.py"
    )
    assert right.returncode == 0 and right.stdout.startswith("add on sm_90\n") and right.stdout.endswith("\nclean\n")
    assert "\nran\n" in right.stderr
    given = ("tcsim", "check", "--arch", "sm_90", "--json", "--timeline", "page.html", "test_add.py")
    wrong = ran(tmp_path, SCRIPT.replace("SIZE", "90"), *given)
    found = json.loads(wrong.stdout)
    assert wrong.returncode == 1 and [own["name"] for own in found["findings"]] == ["GMEM_UNMAPPED"]
    assert found["findings"][0]["here"]["source_text"].startswith("tl.store(out + at,")
    assert found["findings"][0]["here"]["text"] and not found["launches"][0]["completed"]
    assert (
        "GMEM_UNMAPPED" in (tmp_path / "page.html").read_text()
        and "block 1,0,0" in (tmp_path / "page.html").read_text()
    )


def test_a_marked_test_runs_on_the_model(tmp_path: Path) -> None:
    command = ("pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_add.py")
    for size, status in ((100, 0), (90, 1)):
        found = ran(
            tmp_path, MARKED.replace("SIZE", str(size)), *command, "-p", "no:tcsim", "-p", "conformance.testing.plugin", "--tcsim-timeline", "pages",
        )  # fmt: skip
        assert found.returncode == status, found.stdout
        assert ("GMEM_UNMAPPED" in found.stdout) == bool(status) == bool(list((tmp_path / "pages").glob("*.html")))
