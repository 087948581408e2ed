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
    assert right.returncode == 0 and right.stdout.startswith("add on sm_90\n") and "\nclean: no fault" in right.stdout
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


UNWAITED = """
import numpy as np
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from tcsim.launchers.host_memory import HostArray

if not hasattr(async_copy, "async_load"):  # Triton 3.7
    async_copy.async_load = async_copy.async_copy_global_to_shared


@gluon.jit
def copy(x, out):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.arange(0, 512, layout)
    tile = gl.allocate_shared_memory(gl.float32, [512], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    async_copy.async_load(tile, x + at)
    async_copy.commit_group()
    WAIT
    gl.store(out + at, tile.load(layout))


x, out = HostArray(np.arange(512, dtype=np.float32) + 1), HostArray(np.zeros(512, np.float32))
copy[(1,)](x, out)
"""


def test_a_script_whose_bits_can_differ_has_the_order_that_shows_it(tmp_path: Path) -> None:
    """cp.async that nobody waits for: the tile is read before, or after, by the order of completion; with the wait there is nothing."""
    command = ("tcsim", "check", "--arch", "sm_90", "--json", "test_add.py")
    assert ran(tmp_path, UNWAITED.replace("WAIT", "async_copy.wait_group(0)"), *command).returncode == 0
    found = json.loads(ran(tmp_path, UNWAITED.replace("WAIT", "gl.barrier()"), *command).stdout)["findings"]
    witnesses = [own["witness"] for own in found if own["severity"] == "error"]
    assert witnesses and all(own is not None and own["array"] == "param1" for own in witnesses)
    first = witnesses[0]["first"]
    assert first["value"] == str(first["index"][0] + 1.0) and witnesses[0]["schedules"][1] == "late"


def test_a_marked_test_runs_on_the_model(tmp_path: Path) -> None:
    command = ("pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_add.py")
    for size, status in ((100, 0), (90, 1)):
        found = ran(
            tmp_path, MARKED.replace("SIZE", str(size)), *command, "-p", "no:tcsim", "-p", "conformance.testing.plugin", "--tcsim-timeline", "pages",
        )  # fmt: skip
        assert found.returncode == status, found.stdout
        assert ("GMEM_UNMAPPED" in found.stdout) == bool(status) == bool(list((tmp_path / "pages").glob("*.html")))
