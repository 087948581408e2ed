"""Hazards as SARIF 2.1.0, the format in which code review shows what tools found (OASIS, Static Analysis Results Interchange Format)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tcsim.ptx.hazards.hazard import HAZARDS, Hazard

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "strict": "warning", "repaired": "warning", "perf": "note"}
"""SARIF's words for severities."""


class Checked(NamedTuple):
    """The hazards of one text of PTX."""

    path: str  # of the file that has the text, or what stands for it
    kernel: str
    text: str  # the PTX; empty: no lines of it are quoted
    hazards: Sequence[Hazard]
    witness: str = ""  # what is said of an order of completion that shows them
    properties: Mapping[str, Any] = {}  # more of each result


def sarif(checked: Iterable[Checked], note: str = "") -> dict[str, Any]:
    """One log with one run. note: what has to be known of it, as that not every block was watched. A hazard is shown at the line of the source, where the PTX has .loc, else at that of the PTX.

    Files below the current folder are named relative to it.

    >>> run = Checked("k.ptx", "k", "", [Hazard("TRAP", "a thread executed trap", 7)])
    >>> found = sarif([run])["runs"][0]["results"][0]
    >>> found["ruleId"], found["level"], found["locations"][0]["physicalLocation"]["region"]
    ('TRAP', 'error', {'startLine': 7})
    """
    every = [(own, hazard) for own in checked for hazard in own.hazards]
    rules = list(dict.fromkeys(hazard.name for _, hazard in every))
    driver = {"name": "tcsim", **_version(), "rules": [_rule(name) for name in rules]}
    results = [{**_result(own, hazard), "ruleIndex": rules.index(hazard.name)} for own, hazard in every]
    told = {"executionSuccessful": True, "toolExecutionNotifications": [{"level": "note", "message": {"text": note}}]}
    run = {"tool": {"driver": driver}, **({"invocations": [told]} if note else {}), "results": results}
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _version() -> dict[str, str]:
    """tcsim's own, where it is installed: SARIF does not require it."""
    try:
        return {"version": version("tcsim")}
    except PackageNotFoundError:
        return {}


def _rule(name: str) -> dict[str, Any]:
    rule = HAZARDS[name]
    return {
        "id": name,
        "shortDescription": {"text": rule.sentence},
        "fullDescription": {"text": f"{rule.sentence} {rule.source}, {rule.section}."},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"severity": rule.severity, "section": rule.section, "document": rule.source},
    }


def _result(own: Checked, hazard: Hazard) -> dict[str, Any]:
    lines = own.text.splitlines()
    places = [
        place
        for line, source, role in ((hazard.line, hazard.source, "here"), (hazard.other_line, hazard.other_source, "the other instruction"))
        for place in (_of_source(source, role), _of_ptx(own, line, lines, role))
        if place is not None
    ]  # fmt: skip
    said = f"{hazard.message}.", HAZARDS[hazard.name].fix, f"Witness: {own.witness}." if own.witness else ""
    found: dict[str, Any] = {
        "ruleId": hazard.name,
        "level": LEVELS[hazard.severity],
        "message": {"text": " ".join(filter(None, said))},
        "occurrenceCount": hazard.count,
        "locations": [{key: place[key] for key in ("physicalLocation", "logicalLocations") if key in place} for place in places[:1]],
        "partialFingerprints": {"hazard/v1": _fingerprint(own, hazard, lines)},
    }  # fmt: skip
    if places[1:]:
        found["relatedLocations"] = [{"id": number, **place} for number, place in enumerate(places[1:], 1)]
    properties = {"block": hazard.block, "thread": hazard.thread, "detail": dict(hazard.detail), **own.properties}
    found["properties"] = {name: value for name, value in properties.items() if value not in (None, {}, [], "")}
    return found


def _of_source(source: str | None, role: str) -> dict[str, Any] | None:
    """A place in the source: "file:line"."""
    path, _, line = (source or "").rpartition(":")
    if not path or not line.isdigit() or int(line) < 1:
        return None
    physical = {"artifactLocation": {"uri": uri_of(path)}, "region": {"startLine": int(line)}}
    return {"physicalLocation": physical, "message": {"text": role}}


def _of_ptx(own: Checked, line: int | None, lines: Sequence[str], role: str) -> dict[str, Any] | None:
    if not line:
        return None
    region: dict[str, Any] = {"startLine": line}
    if line <= len(lines):
        region["snippet"] = {"text": lines[line - 1].strip()}
    physical = {"artifactLocation": {"uri": uri_of(own.path)}, "region": region}
    kernel = [{"name": own.kernel, "kind": "function"}]
    return {"physicalLocation": physical, "logicalLocations": kernel, "message": {"text": f"{role}, in PTX"}}


def uri_of(path: str) -> str:
    """A file as SARIF names it: relative to the current folder if it lies below it.

    >>> uri_of("a folder/kernel.ptx"), uri_of("/x/k.cu")
    ('a%20folder/kernel.ptx', 'file:///x/k.cu')
    """
    own = Path(path)
    if own.is_absolute() and own.is_relative_to(Path.cwd()):
        own = own.relative_to(Path.cwd())
    return own.as_uri() if own.is_absolute() else quote(own.as_posix())


def _fingerprint(own: Checked, hazard: Hazard, lines: Sequence[str]) -> str:
    """The same for the same mistake where lines above it were added or removed."""
    said = [lines[at - 1].strip() for at in (hazard.line, hazard.other_line) if at and at <= len(lines)]
    return hashlib.sha256("\n".join((hazard.name, own.kernel, *said)).encode()).hexdigest()[:32]
