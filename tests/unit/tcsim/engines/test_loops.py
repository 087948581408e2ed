"""Compiled loops are compiled anew after any source of the engines changes, and only then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tcsim
from tcsim.engines.loops import DIGEST, digest_of
from tcsim.engines.threads import VARIABLE, share

OUTPUTS = """
import numpy as np, tcsim
mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
random = np.random.default_rng(0)
registers = lambda n: tcsim.encode(random.standard_normal((64, 32, 2 * n)), "f16").astype(np.uint16).view(np.uint32)
a, b, c = registers(4), registers(2), np.zeros((64, 32, 4), np.uint32)
print(mma.execute(a=a, b=b, c=c, engine="numba").tobytes().hex())
"""


def outputs(folder: Path, cache: Path) -> str:
    """What a copy of the package computes, in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": str(folder),
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", OUTPUTS], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_constant_that_changes_in_one_file_changes_what_another_computes(tmp_path: Path) -> None:
    source, cache = tmp_path / "source", tmp_path / "cache"
    shutil.copytree(Path(tcsim.__file__).parent, source / "tcsim", ignore=shutil.ignore_patterns("__pycache__"))
    right = outputs(source, cache)
    kept = sorted(path.name for path in cache.rglob("*.nbc"))
    assert kept
    assert outputs(source, cache) == right
    assert sorted(path.name for path in cache.rglob("*.nbc")) == kept  # nothing was compiled again
    kernels = source / "tcsim" / "engines" / "kernels.py"
    text = kernels.read_text()
    fewer = "np.int32(fraction_bits) + np.int32(127)"
    assert text.count(fewer) == 1
    kernels.write_text(text.replace(fewer, "np.int32(fraction_bits) + np.int32(125)"))  # two fraction bits less
    assert outputs(source, cache) != right


def test_the_digest_is_that_of_names_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.py").write_text("y = 2\n")
    first = digest_of(tmp_path)
    (tmp_path / "c.txt").write_text("z")
    assert digest_of(tmp_path) == first
    (tmp_path / "b.py").write_text("y = 3\n")
    assert len({first, digest_of(tmp_path), DIGEST}) == 3 and len(DIGEST) == len(first) == 16
    (tmp_path / "b.py").rename(tmp_path / "d.py")
    assert digest_of(tmp_path) not in (first, DIGEST)


@pytest.mark.parametrize(
    ("size", "least", "ranges"), [(2, (), 2), (1, (), 1), (40, (1,), 8), (40, (20,), 2), (40, (21,), 1), (0, (), 1)]
)  # fmt: skip
def test_what_is_shared_among_threads(
    size: int, least: tuple[int, ...], ranges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it once; in parts that are worth a thread, and at most four for each of two threads."""
    monkeypatch.setenv(VARIABLE, "2")
    seen: list[tuple[int, int]] = []
    share(lambda first, last: seen.append((first, last)), size, *least)
    assert len(seen) == ranges
    assert sorted(place for first, last in seen for place in range(first, last)) == list(range(size))
