"""The results that Khattak and Mikaitis published: what is there, what it proves, and how a run tells it.

Runs of the suite are processes of their own that see no GPU; where bits are wrong, the file is a changed copy.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcsim
from conformance.isa import testbench_of
from conformance.suite import published, published_digests, recordings
from conformance.suite.cases import Settings, Suite
from conformance.suite.published import PublishedSet
from conformance.suite.recordings import RecordingError
from hwkernels.device.sass import disassemble, opcode_counts
from hwkernels.device.toolchain import assemble
from tcsim import catalog
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import DotAdd
from tests.exact import machine
from tests.exact.steps import dot_add
from tests.support.suite_runs import QUIET

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "conformance/recordings/published"
SETS = {item.name: item for item in published.read()}
ROWS = 2500
EMULATED = {
    name for name, item in SETS.items() if item.instruction.lowering.kind == "emulated"
}  # fp8 as f16 steps and an addition
AUTHORS = "Khattak and Mikaitis, ACM TACO, doi 10.1145/3830409"


# ---- what is there


def test_there_are_48_sets_of_2500_rows() -> None:
    """Of eight GPUs, 120,000 results; each set has K values of a and b for each c and d."""
    assert len(SETS) == len(published.read()) == 48
    outputs: Counter[str] = Counter()
    for name, item in SETS.items():
        assert item.a.shape == item.b.shape == (ROWS, item.a.shape[1]), name
        assert item.c.shape == item.d.shape == (ROWS,), name
        assert name.startswith(f"{item.gpu}-{item.multiplicand}-{item.accumulator}")
        assert {x: codes.dtype for x, codes in zip("abcd", (item.a, item.b, item.c, item.d), strict=True)} == {
            x: format.dtype for x, format in item.formats.items()
        }
        outputs[item.gpu] += item.d.size
    assert outputs == {"V100": 5_000, "A100": 10_000, "A2": 10_000, "Ada": 20_000, "L40S": 5_000, "H100": 25_000,
                       "H200": 25_000, "B200": 20_000}  # fmt: skip
    assert outputs.total() == 120_000


def test_the_codes_are_those_that_were_published() -> None:
    """Their digest, as it was when every code was compared with the authors' files."""
    digest = hashlib.sha256()
    for item in SETS.values():
        digest.update(f"{item.name} {item.gpu} {item.arch} {item.ran}".encode())
        for codes in (item.a, item.b, item.c, item.d):
            digest.update(codes.astype(codes.dtype.newbyteorder("<")).tobytes())
    assert digest.hexdigest() == "3ebedd46b2ec14beb8159bd4024a4013996ff0d5f00b0b36a550494c1cb6659a"


def test_licence_and_attribution_are_beside_the_data() -> None:
    """Also in an installed package: they lie inside it, and the build takes every file of it."""
    licence = (FOLDER / "LICENSE").read_text(encoding="utf-8")
    assert licence.startswith("BSD 2-Clause License\n\nCopyright (c) 2025, Faizan A. Khattak and Mantas Mikaitis\n")
    assert "1. Redistributions of source code must retain the above copyright notice" in licence
    assert "2. Redistributions in binary form must reproduce the above copyright notice" in licence
    assert 'THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"' in licence
    about = (FOLDER / "README.md").read_text(encoding="utf-8")
    for words in (
        "Khattak",
        "Mikaitis",
        "10.1145/3830409",
        "north-numerical-computing/MATLAB-tensor-core",
        "(LICENSE)",
    ):
        assert words in about
    assert all(item.gpu in about for item in SETS.values())
    package = importlib.resources.files("conformance").joinpath("recordings", "published")
    assert {file.name for file in package.iterdir()} == {
        "LICENSE",
        "README.md",
        published.FILE.name,
        published_digests.FILE.name,
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "conformance" in wheel.pop("packages") and wheel == {}  # nothing is left out
    assert set(project["tool"]["hatch"]["build"]) == {"targets"}
    assert "conformance/recordings/published/LICENSE" in project["project"]["license-files"]
    assert project["project"]["license"] == "Apache-2.0 AND BSD-2-Clause"


def test_the_file_is_what_its_sets_make(tmp_path: Path) -> None:
    """Writing what was read gives the same bytes; shared inputs are there once."""
    again = published.write(SETS.values(), tmp_path)
    assert again.read_bytes() == (FOLDER / published.FILE.name).read_bytes()
    with np.load(again) as archive:
        inputs = {name for name in archive.files if name.startswith("inputs")}
        assert (len(inputs), len(archive.files)) == (2 * 8, 1 + 2 * 8 + 2 * 48)
    assert again.stat().st_size < 1_400_000


# ---- the model agrees, and what that proves


def test_no_result_differs_from_the_model() -> None:
    """All 120,000."""
    compared = {name: item.compare() for name, item in SETS.items()}
    assert {name: c.mismatches for name, c in compared.items() if c.mismatches or c.first} == {}
    assert sum(c.outputs for c in compared.values()) == 120_000


def test_no_result_differs_from_the_exact_model() -> None:
    """Every 50th row of every set, by the slow model."""
    checked = 0
    for item in SETS.values():
        a, b = item.padded(item.a).tolist(), item.padded(item.b).tolist()
        for row in range(0, ROWS, 50):
            c, d = int(item.c[row]), int(item.d[row])
            if item.family == "mma.sync":
                assert machine.element(item.mnemonic, item.arch, a[row], b[row], c) == d, (item.name, row)
            else:
                formats = {"a_format": item.multiplicand, "b_format": item.multiplicand, "c_format": "f32"}
                exact = dot_add(a[row], b[row], c, **formats, fraction_bits=13, floor=-133, output="e8m13")
                assert exact == d, (item.name, row)
            checked += 1
    assert checked == 48 * 50


WRONG_UNITS: dict[str, Callable[[Datapath], Datapath]] = {
    "F-1": lambda unit: replace(unit, fraction_bits=unit.fraction_bits - 1),
    "F+1": lambda unit: replace(unit, fraction_bits=unit.fraction_bits + 1),
    "rounding": lambda unit: (
        replace(unit, output="f32")
        if unit.output == "e8m13"
        else replace(unit, rounding="rz" if unit.rounding == "rne" else "rne")
    ),
    "addend last": lambda unit: replace(unit, addend_last=True),
    "products renormalised": lambda unit: replace(unit, renormalise_products=True),
    "floor-1": lambda unit: replace(unit, floor=unit.floor - 1),
    "floor+8": lambda unit: replace(unit, floor=unit.floor + 8),
}


def wrong_results(item: PublishedSet, change: Callable[[Datapath], Datapath]) -> int:
    """How many results of a set contradict its lowering with every dot-add unit changed."""
    steps = tuple(
        replace(step, unit=change(step.unit)) if isinstance(step, DotAdd) else step
        for step in item.instruction.lowering.steps
    )
    return int((item.model(replace(item.instruction.lowering, steps=steps)) != item.d).sum())


@pytest.mark.parametrize("name", SETS)
def test_what_a_set_can_tell(name: str) -> None:
    """Native units with an f32 result: every constant but the floor. The page beside the data says what the others lack."""
    item = SETS[name]
    found = {wrong for wrong, change in WRONG_UNITS.items() if wrong_results(item, change)}
    assert not found & {"floor-1", "floor+8"}
    constants = {"F-1", "F+1", "rounding", "addend last", "products renormalised"}
    if item.ran == "wgmma":  # c is zero
        assert found == constants - {"addend last"}
    elif item.accumulator == "f16":
        assert found >= {"rounding", "addend last"}
        assert (found == constants) == (item.gpu == "Ada" and item.ran == "mma.sync")
    else:
        assert found == (set() if name in EMULATED else constants)


# ---- evidence


def test_published_is_said_of_exactly_the_rows_that_a_set_is_replayed_against() -> None:
    """And it names the GPUs. Where this project measured too, the evidence is the better one."""
    replayed: dict[tuple[str, str], list[str]] = {}
    for item in SETS.values():
        replayed.setdefault((item.arch, item.mnemonic), []).append(item.gpu)
    for digest in published_digests.read():
        for mnemonic in digest.mnemonics:
            replayed[digest.arch, mnemonic] = [digest.gpu]
    claimed, measured = {}, set()
    for arch in tcsim.ARCHS:
        for row in catalog.on_arch(arch):
            evidence = catalog.family(row.family).evidence(row, tcsim.ARCHS[arch])
            if evidence.level == "published":
                claimed[arch, row.mnemonic] = evidence.source.partition(",")[0].split(" and ")
                assert AUTHORS in evidence.source or evidence == published_digests.read()[0].evidence
            elif (arch, row.mnemonic) in replayed:
                assert evidence.level == "measured"
                measured.add((arch, row.mnemonic))
    assert {place for place in replayed if place[0] == "sm_90"} == measured
    assert claimed == {place: gpus for place, gpus in replayed.items() if place not in measured}
    assert Counter(arch for arch, _ in claimed) == {
        "sm_70": 2,
        "sm_80": 4,
        "sm_86": 4,
        "sm_89": 8,
        "sm_100": 8,
        "sm_120": 48,
    }
    assert len(measured) == 8 + 2


def test_a_set_fits_its_row() -> None:
    """The formats are the instruction's, no value is cut off, and zeros fill the rest of K."""
    longer = set()
    for name, item in SETS.items():
        instruction = item.instruction
        assert (instruction.mnemonic, instruction.arch.name) == (item.mnemonic, item.arch)
        assert instruction.formats == item.formats, name
        assert item.family == instruction.row.family == ("wgmma" if item.ran == "wgmma" else "mma.sync")
        k, own = instruction.shape[2], item.a.shape[1]
        assert k >= own
        if k > own:
            longer.add(name)
            assert item.padded(item.a).shape == (ROWS, k)
            assert not item.padded(item.a)[:, own:].any()
    gpus = ("A100", "A2", "Ada")
    assert longer == {f"{gpu}-{kinds}" for gpu in gpus for kinds in ("f16-f32", "f16-f16", "bf16-f32")}


def test_every_n_of_wgmma_computes_the_same() -> None:
    """Which N the authors ran is not told: the lowering does not depend on it."""
    checked = 0
    for item in SETS.values():
        if item.ran != "wgmma":
            continue
        for n in range(8, 257, 8):
            other = tcsim.instruction(item.mnemonic.replace("m64n8k", f"m64n{n}k"), arch=item.arch)
            assert other.lowering.steps == item.instruction.lowering.steps
            checked += 1
    assert checked == 4 * 32


WMMA = """
.visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 c)
{{
    .reg .b64 %p<3>;
    .reg .b32 %a<8>, %b<8>, %step;
    .reg {type} %c<8>;
    ld.param.u64 %p0, [a]; ld.param.u64 %p1, [b]; ld.param.u64 %p2, [c];
    mov.u32 %step, 16;
    wmma.load.a.sync.aligned.row.{shape}.{kind} {{{a}}}, [%p0], %step;
    wmma.load.b.sync.aligned.col.{shape}.{kind} {{{b}}}, [%p1], %step;
    wmma.load.c.sync.aligned.col.{shape}.{result} {{{c}}}, [%p2], %step;
    wmma.mma.sync.aligned.row.col.{shape}.{types} {{{c}}}, {{{a}}}, {{{b}}}, {{{c}}};
    wmma.store.d.sync.aligned.col.{shape}.{result} [%p2], {{{c}}}, %step;
    ret;
}}
"""


def wmma_kernel(kind: str, result: str) -> str:
    """PTX of the kernel that the authors ran."""
    counts = {"a": 8 if kind == "f16" else 4, "b": 8 if kind == "f16" else 4, "c": 8 if result == "f32" else 4}
    return WMMA.format(
        name=f"{kind}_{result}",
        shape="m16n16k8" if kind == "tf32" else "m16n16k16",
        types=f"{result}.{result}" if kind == "f16" else f"{result}.{kind}.{kind}.{result}",
        type=".f32" if result == "f32" else ".b32",
        kind=kind,
        result=result,
        **{name: ", ".join(f"%{name}{i}" for i in range(count)) for name, count in counts.items()},
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100"])
def test_wmma_runs_as_the_row_that_it_is_replayed_against(arch: str) -> None:
    """The tensor-core opcode of the authors' wmma is the row's. No nvdisasm of today reads sm_70."""
    opcodes = {
        f"{item.multiplicand}_{item.accumulator}": item.instruction.lowering.opcodes[0][0]
        for item in SETS.values()
        if item.ran == "wmma" and item.arch == arch
    }
    assert len(opcodes) == 4
    kernels = [wmma_kernel(*name.split("_")) for name in opcodes]
    version = "8.6" if arch == "sm_100" else "7.8"
    ptx = "\n".join([f".version {version}", f".target {arch}", ".address_size 64", *kernels])
    found = {
        function.section.removeprefix(".text."): {
            opcode: times for opcode, times in opcode_counts([function]).items() if "MMA" in opcode
        }
        for function in disassemble(assemble(ptx, arch).cubin)
    }
    assert found == {name: {opcode: 4 if name == "tf32_f32" else 2} for name, opcode in opcodes.items()}


# ---- runs of the suite


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on the suite."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", *QUIET, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


def table(output: str) -> list[list[str]]:
    """The rows of the closing table."""
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("family "))
    return [re.split(r"\s{2,}", line) for line in lines[start + 1 :] if re.search(r"  \d", line)]


@pytest.mark.parametrize(
    ("arch", "rows"),
    [
        ("sm_80", [("mma.sync", "A100", 4, 4)]),
        (
            "sm_90",
            [("mma.sync", "H100", 8, 8), ("mma.sync", "H200", 8, 8), ("wgmma", "H100", 2, 2), ("wgmma", "H200", 2, 2)],
        ),
    ],
)
def test_a_replay_names_the_gpu_and_the_authors(arch: str, rows: list[tuple[str, str, int, int]]) -> None:
    """Exit code 0, verdict REPLAYED, and a line of the table for each GPU."""
    got = run("conformance/", "--arch", arch, "--replay", "-k", "published", "-v")
    assert got.returncode == 0, got.stdout + got.stderr
    assert f"conformance: {arch} by replay of recorded hardware results (no GPU is used)" in got.stdout
    sets = sum(cases for *_, cases in rows)
    assert len(re.findall(r"::test_published\[.*\] REPLAYED", got.stdout)) == sets
    assert table(got.stdout) == [
        [family, str(variants), str(cases), f"{cases * ROWS:,}", "0", f"REPLAYED: published: {gpu}, {AUTHORS}"]
        for family, gpu, variants, cases in rows
    ]
    assert f"{sets} passed" in got.stdout


def test_a_whole_run_compares_what_was_published() -> None:
    """Volta: no nvdisasm of today reads its machine code, so the rows without a set stay UNTESTED; exit code 0."""
    got = run("conformance/", "--arch", "sm_70")
    assert got.returncode == 0, got.stdout + got.stderr
    rows = [(row[0], *row[3:]) for row in table(got.stdout) if row[0] == "mma.sync"]
    assert rows == [
        ("mma.sync", "5,000", "0", f"REPLAYED: published: V100, {AUTHORS}"),
        ("mma.sync", "0", "0", "UNTESTED"),
    ]
    assert "nothing was compared" not in got.stdout


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_rows_without_a_set_stay_unverified(arch: str) -> None:
    """A row is replayed or listed as unproven, not both; in a live run the sets are replayed too."""
    suite = Suite(Settings(arch, "replay"))
    own = {row.mnemonic for row in suite.rows if suite.recording(row.mnemonic) is not None}
    replayed = {item.mnemonic for item in suite.published}
    unproven = set(suite.unproven())
    assert {item.name for item in suite.published} == {n for n, item in SETS.items() if item.arch == arch}
    rest = [row for row in suite.rows if row.mnemonic not in own | replayed]
    alike = [testbench_of(row.family).alike(row) for row in rest]
    assert len(unproven) == len(set(alike))  # one of those that are alike
    assert {same for row, same in zip(rest, alike, strict=True) if row.mnemonic in unproven} == set(alike)
    assert not unproven & (own | replayed)
    live = Suite(Settings(arch, "live"))
    assert [item.name for item in live.published] == [item.name for item in suite.published]
    assert {live.run_published(item).verdict for item in live.published} == ({"REPLAYED"} if replayed else set())


def test_a_folder_without_published_sets_has_none(tmp_path: Path) -> None:
    """--recordings with a folder of one's own."""
    suite = Suite(Settings("sm_80", "replay", root=tmp_path))
    assert suite.published == ()
    assert len(list(suite.unproven())) == len(suite.rows)


def flipped(name: str, row: int, bit: int, root: Path) -> tuple[int, int]:
    """Write all sets with one bit of one result changed; the result as it was and as it is."""
    item = SETS[name]
    d = item.d.copy()
    d[row] ^= d.dtype.type(1 << bit)
    published.write([replace(item, d=d) if other is item else other for other in SETS.values()], root)
    return int(item.d[row]), int(d[row])


def test_a_flipped_bit_fails_the_run(tmp_path: Path) -> None:
    """The line of the mismatch, the command that reruns it, and the trace; the command does what it says."""
    right, wrong = flipped("A100-bf16-f32", 1234, 5, tmp_path)
    got = run("conformance/", "--arch", "sm_80", "-k", "published", "--recordings", str(tmp_path))
    assert got.returncode == 1, got.stdout + got.stderr
    mnemonic = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    title = f"FAIL: A100-bf16-f32, replayed as {mnemonic}: 1 of 2500 outputs differ; evidence published: A100, Khattak"
    assert title in got.stdout
    lines = got.stdout.splitlines()
    (mismatch,) = [line for line in lines if line.startswith("MISMATCH")]
    item = SETS["A100-bf16-f32"]
    a, b = (" ".join(f"0x{code:04x}" for code in codes[1234].tolist()) for codes in (item.a, item.b))
    assert mismatch == (
        f"MISMATCH A100-bf16-f32 row 1234: a=[{a}] b=[{b}] c=0x{int(item.c[1234]):08x} "
        f"hardware 0x{wrong:08x} model 0x{right:08x}"
    )
    (rerun,) = [line for line in lines if line.startswith("rerun: ")]
    after = lines[lines.index(rerun) + 1 :]
    assert after[0] == f"{mnemonic} on sm_80: native, 2 steps"
    assert after[1].startswith("step 1: fused dot-add of k 0-7 and c, 24 fraction bits")
    assert any(line.startswith(f"  d = 0x{right:08x} (") for line in after)
    assert [(row[2], row[4], row[5].partition(":")[0]) for row in table(got.stdout)] == [
        ("1", "1", "FAIL"),
        ("3", "0", "REPLAYED"),
    ]
    words = shlex.split(rerun.removeprefix("rerun: "))
    assert words[:3] == [sys.executable, "-m", "pytest"]
    again = run(*words[3:])
    assert again.returncode == 1
    assert mismatch in again.stdout.splitlines()
    assert "1 failed in" in again.stdout


def test_a_flipped_bit_of_wgmma(tmp_path: Path) -> None:
    """The same line and trace."""
    right, wrong = flipped("H200-e5m2-f32-wgmma", 7, 10, tmp_path)
    suite = Suite(Settings("sm_90", "replay", root=tmp_path))
    (item,) = [item for item in suite.published if item.name == "H200-e5m2-f32-wgmma"]
    outcome = suite.run_published(item)
    assert (outcome.verdict, outcome.outputs, outcome.mismatches) == ("FAIL", ROWS, 1)
    lines = outcome.text.splitlines()
    assert lines[1].startswith("MISMATCH H200-e5m2-f32-wgmma row 7: a=[0x")
    assert lines[1].endswith(f" c=0x00000000 hardware 0x{wrong:08x} model 0x{right:08x}")
    assert lines[2].startswith("rerun: ") and "test_published.py::test_published[H200-e5m2-f32-wgmma]" in lines[2]
    assert lines[3] == f"{item.mnemonic} on sm_90: native, 1 step"
    assert lines[-1].startswith(f"  d = 0x{right:08x} (")


# ---- files that are not what they should be


def test_a_damaged_file_stops_the_run(tmp_path: Path) -> None:
    """The run is interrupted with one line that says why, and no traceback."""
    path = tmp_path / published.FILE
    path.parent.mkdir()
    path.write_bytes((FOLDER / published.FILE.name).read_bytes()[:-2000])
    with pytest.raises(RecordingError, match=r"corrupt file .*dot_products\.npz: .*; restore the committed file"):
        published.read("sm_80", tmp_path)
    got = run("conformance/test_published.py", "--arch", "sm_80", "--recordings", str(tmp_path))
    assert got.returncode == pytest.ExitCode.INTERRUPTED
    assert "corrupt file" in got.stdout + got.stderr
    assert "Traceback" not in got.stdout + got.stderr


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda header: header.update(schema=2), "schema 2; valid: 1"),
        (lambda header: header["sets"][0].update(multiplicand="f17"), "KeyError: 'f17'"),
        (lambda header: header["sets"][0].update(inputs="inputs99"), "inputs99"),
        (lambda header: header["sets"][0].pop("gpu"), "gpu"),
    ],
)
def test_a_foreign_header_is_refused(tmp_path: Path, change: Callable[[dict], object], complaint: str) -> None:
    """Another schema, formats and inputs that do not exist, a field that is missing."""
    with np.load(FOLDER / published.FILE.name) as archive:
        content = {name: archive[name] for name in archive.files}
    header = json.loads(content.pop("header").tobytes())
    change(header)
    recordings.write_arrays(tmp_path / published.FILE, header, content)
    with pytest.raises(RecordingError, match=re.escape(complaint)):
        published.read(None, tmp_path)


def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """One result too few."""
    item = SETS["V100-f16-f16"]
    published.write([replace(item, d=item.d[:-1])], tmp_path)
    with pytest.raises(
        RecordingError, match=r"V100-f16-f16 has shapes \(2500, 4\), \(2500, 4\), \(2500,\) and \(2499,\)"
    ):
        published.read(None, tmp_path)


def test_what_no_rule_knows_is_refused() -> None:
    """The message lists what is known."""
    item = replace(SETS["V100-f16-f16"], multiplicand="s8")
    with pytest.raises(RecordingError, match="no instruction is known for wmma of s8 on sm_70; valid: wmma of f16; "):
        _ = item.mnemonic
