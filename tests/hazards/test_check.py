"""`tcsim check`, its JSON and its SARIF: what is found is shown with both lines, and the exit status says so."""

from __future__ import annotations

import json
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim.launchers import script, witnesses
from tcsim.launchers import session as session_module
from tcsim.launchers.check import Check, Quotes, check, of_session
from tcsim.launchers.elements import Elements
from tcsim.launchers.host_memory import HostArray
from tcsim.launchers.job import Job, Pointer, Region
from tcsim.launchers.launched import LaunchFailed
from tcsim.launchers.session import Session
from tcsim.launchers.witnesses import Search
from tcsim.ptx import HAZARDS, Hazard, Limits, Run, parse
from tests.hazards.json_schema import wrong
from tests.hazards.kernels import KERNELS, LOAD, RACES, STORE, Kernel
from tests.support.cli_runs import answer, refusal
from tests.support.ptx_copies import text

COPY = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copy_out(.param .u64 out)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d;
  .shared .align 16 .b8 tile[128];
  ld.param.u64 %d, [out];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0;
  mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2;
  .loc 1 3 5
  st.shared.u32 [%r3], %r1;
  bar.sync 0;
  @%p bra DONE;
  .loc 1 7 5
  cp.async.bulk.global.shared::cta.bulk_group [%d], [tile], 128;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
DONE:
  ret;
}
.file 1 "FOLDER/copy.cu"
"""
FENCED = COPY.replace("  bar.sync 0;", "  fence.proxy.async.shared::cta;\n  bar.sync 0;")
LAUNCH = """
block = 32
params = [{ pointer = "out" }]
arrays.out = { format = "u32", shape = [32], distribution = "zeros" }
"""
_TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
_PHYSICAL = {
    "type": "object", "required": ["artifactLocation", "region"],
    "properties": {
        "artifactLocation": {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}},
        "region": {"type": "object", "required": ["startLine"], "properties": {"startLine": {"type": "integer", "minimum": 1}, "snippet": _TEXT}},
    },
}  # fmt: skip
_LOCATION = {
    "type": "object", "required": ["physicalLocation"], "additionalProperties": False,
    "properties": {"id": {"type": "integer", "minimum": 0}, "physicalLocation": _PHYSICAL, "logicalLocations": {"type": "array"}, "message": _TEXT},
}  # fmt: skip
_LEVEL = {"enum": ["none", "note", "warning", "error"]}
SARIF = {
    "type": "object", "required": ["version", "runs"],
    "properties": {"version": {"const": "2.1.0"}, "$schema": {"type": "string"}, "runs": {"type": "array", "minItems": 1, "items": {
        "type": "object", "required": ["tool", "results"],
        "properties": {
            "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {
                "type": "object", "required": ["name", "rules"],
                "properties": {"rules": {"type": "array", "items": {
                    "type": "object", "required": ["id", "shortDescription", "fullDescription", "help", "defaultConfiguration"],
                    "properties": {
                        "id": {"type": "string"}, "shortDescription": _TEXT, "fullDescription": _TEXT, "help": _TEXT,
                        "defaultConfiguration": {"type": "object", "required": ["level"], "properties": {"level": _LEVEL}},
                    }}}}}}},
            "results": {"type": "array", "items": {
                "type": "object", "required": ["ruleId", "ruleIndex", "message", "level", "locations"],
                "properties": {
                    "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": 0}, "level": _LEVEL, "message": _TEXT,
                    "occurrenceCount": {"type": "integer", "minimum": 1}, "locations": {"type": "array", "items": _LOCATION},
                    "relatedLocations": {"type": "array", "items": _LOCATION}, "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                }}},
        }}}},
}  # fmt: skip
"""What SARIF 2.1.0 requires of the objects that we write, and the types of their properties (sections 3.13, 3.14, 3.18, 3.19, 3.27 to 3.30, 3.49)."""


def schema() -> dict[str, Any]:
    """That of JSON."""
    found: dict[str, Any] = json.loads((resources.files("tcsim.launchers") / "check.schema.json").read_text())
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy.ptx").write_text(COPY.replace("FOLDER", str(tmp_path)))
    (tmp_path / "fenced.ptx").write_text(FENCED.replace("FOLDER", str(tmp_path)))
    (tmp_path / "launch.toml").write_text(LAUNCH)
    (tmp_path / "copy.cu").write_text("\n\n  tile[threadIdx.x] = threadIdx.x;\n\n\n\n  copy(out, tile);\n")
    return tmp_path


def of(kernel: Kernel, defect: str) -> Check:
    """A planted defect, checked."""
    data = np.arange(1024, dtype=np.uint32).view(np.uint8)
    regions = tuple(Region(name, Elements("u32"), (1024,), data) for name in ("a", "b"))
    params = (Pointer("a"), Pointer("b"))
    shape: dict[str, Any] = {
        "grid": (kernel.blocks, 1, 1),
        "block": (kernel.threads, 1, 1),
        "cluster": (kernel.blocks, 1, 1),
    }
    return check(Job(kernel.without(defect).encode(), params, regions, **shape), "kernel.ptx", ("late", 3))


def test_every_rule_has_a_fix() -> None:
    assert all(rule.fix.endswith(".") and len(rule.fix) < 240 for rule in HAZARDS.values())


def test_a_hazard_is_shown_with_both_lines_and_both_sources(folder: Path) -> None:
    call = ("check", "copy.ptx", "--launch", "launch.toml")
    shown = answer(*call, status=1)
    at = shown.splitlines().index("")
    cause, place, mend = (own for own in shown.splitlines()[at:] if own.startswith(("cause  ", "place  ", "mend  ")))
    assert "PROXY_FENCE_MISSING: cp.async.bulk reads shared memory at 0x400 (tile), written by st.shared.u32" in cause
    assert place.endswith(
        "copy.cu:7 (PTX line 16): copy(out, tile), and copy.cu:3 (PTX line 12): tile[threadIdx.x] = threadIdx.x"
    )
    assert mend.removeprefix("mend").strip() == HAZARDS["PROXY_FENCE_MISSING"].fix
    assert shown.endswith("\n1 error; races in global memory were not looked for (--races)\n")
    shown = answer(*call, "--verbose", status=1)
    assert max(map(len, shown.splitlines()[:-1])) <= 80
    said = " ".join(shown.split())
    for part in (
        "error (1)", "PROXY_FENCE_MISSING", "line 16 cp.async.bulk.global.shared::cta.bulk_group [%d], [tile], 128;",
        "source copy.cu:7", "copy(out, tile);", "line 12 st.shared.u32 [%r3], %r1;", "tile[threadIdx.x] = threadIdx.x;",
        HAZARDS["PROXY_FENCE_MISSING"].sentence, "section Async Proxy (PTX ISA 9.4)", HAZARDS["PROXY_FENCE_MISSING"].fix,
        "schedule late, early", "witness not reproduced: 2 orders of completion tried (late:16, early:16)",
    ):  # fmt: skip
        assert part in said, part


def test_a_kernel_that_is_right_is_clean(folder: Path) -> None:
    shown = answer("check", "fenced.ptx", "-l", "launch.toml", "--schedule", "7", "--schedule", "late")
    clean = "\nclean: no fault, hang, missing fence or wait, or race"
    assert f"{clean} in shared memory; races in global memory were not looked for (--races)\n" in shown
    assert f"{clean}\n" in answer("check", "fenced.ptx", "-l", "launch.toml", "--races")
    found = json.loads(answer("check", "fenced.ptx", "-l", "launch.toml", "--json", "--schedule", "7"))
    assert found["passed"] and found["schedules"] == [7] and not found["findings"] and not list(wrong(found, schema()))


def test_races_in_global_memory_are_looked_for_where_asked(tmp_path: Path) -> None:
    (tmp_path / "grid.ptx").write_text(
        text(".param .u64 a", "ld.param.u64 %rd1, [a]; st.global.u32 [%rd1], %r0;", "sm_80")
    )
    (tmp_path / "launch.toml").write_text(LAUNCH.replace("block =", "grid = 2\nblock ="))
    for asked, status in (((), 0), (("--races",), 1)):
        shown = answer(
            "check", str(tmp_path / "grid.ptx"), "--launch", str(tmp_path / "launch.toml"), *asked, status=status
        )
        assert ("GMEM_RACE" in shown) == bool(asked)


def test_a_sample_of_the_blocks(tmp_path: Path) -> None:
    """Every form of the report says how many blocks were watched, or which."""
    given = [str(tmp_path / "grid.ptx"), "--launch", str(tmp_path / "launch.toml"), "--sample"]
    (tmp_path / "grid.ptx").write_text(
        text(".param .u64 a", "ld.param.u64 %rd1, [a]; st.global.u32 [%rd1], %r0;", "sm_80")
    )
    (tmp_path / "launch.toml").write_text(LAUNCH.replace("block =", "grid = 20\nblock ="))
    assert answer("check", *given).endswith("(--races); only 16 of 40 blocks were watched\n")
    assert "check      only 8 of 20 blocks were watched\n" in answer("exec", *given)
    found = json.loads(answer("check", *given, "--json", "--sarif", str(tmp_path / "log.json")))
    watched = [[number, 0, 0] for number in (0, 2, 5, 8, 10, 13, 16, 19)]
    assert [own["checked"] for own in found["launches"]] == [watched] * 2 and not list(wrong(found, schema()))
    (log,) = json.loads((tmp_path / "log.json").read_text())["runs"]
    (told,) = log["invocations"][0]["toolExecutionNotifications"]
    assert told["message"]["text"] == "only 16 of 40 blocks were watched" and not log["results"]
    assert json.loads(answer("exec", *given, "--json"))["checked"] == watched
    assert "--sample with --races; valid: one of them" in refusal("check", *given, "--races")


def test_json_fits_its_schema(folder: Path) -> None:
    found = json.loads(answer("check", "copy.ptx", "-l", "launch.toml", "--json", status=1))
    assert not list(wrong(found, schema()))
    own = found["findings"][0]
    assert own["here"] == {
        "line": 16, "text": "cp.async.bulk.global.shared::cta.bulk_group [%d], [tile], 128;", "source": f"{folder}/copy.cu:7",
        "source_text": "copy(out, tile);",
    }  # fmt: skip
    assert own["count"] == 2 and own["schedules"] == ["late", "early"] and found["counts"]["error"] == 1
    found["findings"][0]["here"].pop("line")
    found["counts"]["error"] = "1"
    assert list(wrong(found, schema())) == ["$.counts.error: str is not integer", "$.findings[0].here: no line"]


def test_sarif_has_what_sarif_requires(folder: Path) -> None:
    answer("check", "copy.ptx", "-l", "launch.toml", "--sarif", "found.sarif", status=1)
    found = json.loads((folder / "found.sarif").read_text())
    assert not list(wrong(found, SARIF))
    result = found["runs"][0]["results"][0]
    places = [result["locations"][0], *result["relatedLocations"]]
    where = [
        (own["physicalLocation"]["artifactLocation"]["uri"], own["physicalLocation"]["region"]["startLine"])
        for own in places
    ]
    assert where == [("copy.cu", 7), ("copy.ptx", 16), ("copy.cu", 3), ("copy.ptx", 12)]
    answer("check", "fenced.ptx", "-l", "launch.toml", "--sarif", "found.sarif")
    clean = json.loads((folder / "found.sarif").read_text())
    assert not list(wrong(clean, SARIF)) and clean["runs"][0]["results"] == []
    clean["runs"][0]["tool"]["driver"].pop("name")
    assert list(wrong(clean, SARIF)) == ["$.runs[0].tool.driver: no name"]


def test_every_planted_defect_can_be_written() -> None:
    """One of each rule: text of 80 columns is tested above; here JSON and SARIF, of a run and of a check."""
    seen = set()
    for kernel in KERNELS:
        for defect in kernel.defects:
            rule = defect.split(".")[0]
            if rule in seen or kernel.threads > 128:  # the largest kernels are the slowest
                continue
            seen.add(rule)
            found = of(kernel, defect)
            assert rule in {own.hazard.name for own in found.findings}
            assert not list(wrong(json.loads(json.dumps({"verb": "check", **found.as_dict()})), schema()))
            assert not list(wrong(json.loads(json.dumps(found.sarif())), SARIF))
            assert not list(wrong(json.loads(json.dumps(found.launches[0][1].sarif())), SARIF))
    assert len(seen) > 25


def test_the_worst_comes_first_and_a_hazard_once() -> None:
    run = Run(True, [Hazard("WGMMA_MISSING_FENCE", "a", 3), Hazard("TRAP", "b", 9)], {}, kernel="k")  # type: ignore[arg-type]
    found = Check("k.ptx", ("late", 1), (("late", run, {}), (1, run, {})))
    assert [(own.hazard.name, own.hazard.count, own.schedules) for own in found.findings] == [
        ("TRAP", 2, ("late", 1)), ("WGMMA_MISSING_FENCE", 2, ("late", 1)),
    ]  # fmt: skip
    assert not found.passed and found.counts == {"error": 1, "strict": 0, "repaired": 1, "perf": 0}


def test_bits_that_depend_on_the_schedule_are_a_witness() -> None:
    """The copy may land before or after the store that does not wait for it."""
    data = np.arange(1024, dtype=np.uint32).view(np.uint8)
    text = LOAD.without("ASYNC_DST_READ").replace(
        "ld.shared.u32 %r5, [%r3];", "ld.shared.u32 %r5, [%r3]; st.global.u32 [%rd2], %r5;", 1
    )
    regions = tuple(Region(name, Elements("u32"), (1024,), data) for name in ("a", "b"))
    job = Job(text.encode(), (Pointer("a"), Pointer("b")), regions, block=(LOAD.threads, 1, 1))
    found = check(job, "load.ptx")
    assert [(own.comparison.name, own.comparison.unequal) for own in found.witnesses] == [("b", 1)]
    (own,) = found.findings
    assert own.tried is not None and own.tried.witness is not None and own.hazard.other_line is not None
    assert own.tried.witness.schedules == (f"late:{own.hazard.other_line}", "late") == (own.tried.orders[0], "late")
    assert own.tried.witness.comparison.name == "b" and own.tried.witness.comparison.unequal == 1
    assert not list(wrong(json.loads(json.dumps({"verb": "check", **found.as_dict()})), schema()))
    assert not of(STORE, "").witnesses and of(RACES, "").passed


def test_an_error_whose_bits_can_differ_has_the_order_that_shows_it(folder: Path) -> None:
    """A copy that nobody waits for, mended and not; the order can be asked for; without orders nothing is tried."""
    wrong_text = LOAD.without("ASYNC_DST_READ").replace("%r5, [%r3];", "%r5, [%r3]; st.global.u32 [%rd2], %r5;", 1)
    line = next(n for n, own in enumerate(wrong_text.splitlines(), 1) if "cp.async.bulk.shared" in own)
    (folder / "load.ptx").write_text(wrong_text)
    launch = f"""
block = {LOAD.threads}
params = [{{ pointer = "a" }}, {{ pointer = "b" }}]
arrays.a = {{ format = "u32", shape = [1024], distribution = "integers", low = 7, high = 7 }}
arrays.b = {{ format = "u32", shape = [1024], distribution = "zeros" }}
"""
    (folder / "load.toml").write_text(launch)
    call = ("check", "load.ptx", "-l", "load.toml")
    said = " ".join(answer(*call, "-v", status=1).split())
    assert f"witness late:{line}: b[0] is" in said and "= 7, under late" in said
    found = json.loads(answer(*call, "--json", "--orders", "0", "--schedule", f"early:{line}", status=1))
    assert [(own["orders"], own["witness"]) for own in found["findings"]] == [([], None)]
    assert found["schedules"] == [f"early:{line}"] and not list(wrong(found, schema()))
    assert "lately" in refusal(*call, "--schedule", "lately") and "late:x" in refusal(*call, "--schedule", "late:x")


def kept(kernel: Kernel, text: str, **options: Any) -> Session:
    """A program that launches a kernel twice, with its defect, or until a launch fails."""
    session = Session("sm_90", log=None, witnesses=True, **options)
    arrays = [HostArray(np.full((32, 32), fill, np.uint32)) for fill in (7, 0)]
    with suppress(LaunchFailed):
        for _ in range(2):
            session.launch(
                parse(text).kernel(), (1, 1, 1), (kernel.threads, 1, 1), (1, 1, 1), 0, arrays, lambda: [own.data_ptr().to_bytes(8, "little") for own in arrays]
            )  # fmt: skip
    return session


UNWAITED = LOAD.without("ASYNC_DST_READ").replace("%r5, [%r3];", "%r5, [%r3]; st.global.u32 [%rd2], %r5;", 1)


def test_an_error_of_a_script_has_its_witness_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch is run again from its own inputs, once for both; text, JSON and SARIF say the element, and the program's arrays are left alone."""
    line = next(n for n, own in enumerate(UNWAITED.splitlines(), 1) if "cp.async.bulk.shared" in own)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("")
    sessions: list[Session] = []

    def run(*given: object, witnesses: bool, **more: object) -> tuple[int, Session]:
        sessions.append(kept(LOAD, UNWAITED) if witnesses else Session("sm_90", log=None))
        return 0, sessions[-1]

    monkeypatch.setattr(script, "run_script", run)
    call = ("check", "own.py", "--arch", "sm_90")
    said = " ".join(answer(*call, "-v", status=1).split())
    assert f"witness late:{line}: param1[0, 0] is 0x00000007 = 7, under late 0x00000000 = 0" in said
    (own,) = json.loads(answer(*call, "--json", "--sarif", "found.sarif", status=1))["findings"]
    assert own["orders"] == [f"late:{line}"] and own["witness"]["array"] == "param1" and own["untried"] == ""
    (result,) = json.loads((tmp_path / "found.sarif").read_text())["runs"][0]["results"]
    assert f"Witness: late:{line}: param1[0, 0] is" in result["message"]["text"]
    assert result["properties"]["witness"] == own["witness"] and result["properties"]["orders"] == own["orders"]
    assert len(sessions[0].kept) == 1 and not sessions[0].memory.segments
    assert "witness" not in answer(*call, "--orders", "0")


def test_what_witnesses_of_a_script_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches, instructions and memory; the report says what was not tried."""

    def untried(search: Search) -> str:
        (own,) = of_session(kept(LOAD, UNWAITED), search=search).findings
        return "" if own.tried is None else own.tried.untried

    assert untried(Search()) == "" and untried(Search(0)) == ""
    monkeypatch.setattr(witnesses, "LEAST", 0)
    monkeypatch.setattr(witnesses, "SHARE", 0)
    assert untried(Search()) == "no more instructions may be executed for it"
    monkeypatch.setattr(session_module, "MOST_KEPT", 4 * 4096 - 1)
    assert not kept(LOAD, UNWAITED).kept
    monkeypatch.undo()
    limited = kept(LOAD, UNWAITED, limits=Limits(instructions=20))
    assert {own.tried.untried for own in of_session(limited).findings if own.tried} == {"the launch reached a limit"}
    (race,) = of(RACES, "SMEM_RACE_RAW").findings
    assert race.tried is not None and race.tried.untried == "neither instruction is asynchronous"


def test_only_files_below_the_folder_are_quoted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.cu"
    outside.write_text("a secret\n")
    (folder / "link.cu").symlink_to(outside)
    quotes = Quotes("copy.ptx")
    assert quotes.place("", 1, f"{folder}/copy.cu:3").source_text == "tile[threadIdx.x] = threadIdx.x;"
    for path in (outside, folder / "link.cu", folder, folder / "none.cu", "\0", "/dev/stdin"):
        assert quotes.place("", 1, f"{path}:1").source_text == ""


def test_a_mere_name_is_that_of_the_file_beside_the_checked_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's PTX names a script without its folder: a file of that name in the current folder is not quoted."""
    for name in ("here", "there"):
        (folder / name).mkdir()
        (folder / name / "mean.py").write_text(f"{name}\n")
    monkeypatch.chdir(folder / "here")
    assert Quotes("../there/mean.py").place("", 1, "mean.py:1").source_text == "there"
    (folder / "there" / "mean.py").unlink()
    assert Quotes("../there/copy.ptx").place("", 1, "mean.py:1").source_text == "here"


def test_wrong_use(folder: Path) -> None:
    assert "no file 'none.ptx'; here are copy.ptx, fenced.ptx" in refusal("check", "none.ptx", "-l", "launch.toml")
    assert "check: 'copy.ptx' needs --launch" in refusal("check", "copy.ptx")
    assert "--schedule 'soon'" in refusal("check", "copy.ptx", "-l", "launch.toml", "--schedule", "soon")
    assert "valid only with a script" in refusal("check", "copy.ptx", "more", "-l", "launch.toml")
    (folder / "k.py").write_text("")
    assert "check: 'k.py' needs --arch" in refusal("check", "k.py") and "torch" not in refusal("check", "k.py")
    (folder / "model.py").write_text("import torch\n")
    for command in ("check", "exec", "profile"):
        assert "for a torch model use tcsim.torch.emulate instead (docs/torch.md)" in refusal(command, "model.py")
    assert "valid: no --launch" in refusal("check", "k.py", "-l", "launch.toml")
    assert "cannot write 'no/x.sarif'" in refusal("check", "fenced.ptx", "-l", "launch.toml", "--sarif", "no/x.sarif")
