"""Which cases `--strict` lets be without a comparison, why, and until when.

A waiver names cases by a pattern over `<test>[<id>]`. Its kind says why nothing is compared. What a GPU of the arch could still answer is
`unrecorded`: that needs a date, at most `LONGEST` days after it was given, after which it counts for nothing.
"""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tcsim.core.texts import parsed_toml

Kind = Literal["unrecorded", "no result", "no model", "no machine"]
KINDS: dict[Kind, str] = {
    "unrecorded": "a GPU of the arch can run it, and its recording is on its way",
    "no result": "the instruction computes nothing that could be compared",
    "no model": "nothing is claimed of it: an open question",
    "no machine": "it needs what no machine at hand has",
}
LONGEST = 31  # days
FILE = Path(__file__).parent.parent / "waivers.toml"
_FIELDS = {"arch": str, "pattern": str, "kind": str, "reason": str, "link": str, "given": datetime.date}


class WaiverError(ValueError):
    """A file of waivers that cannot be read, or a waiver that may not be given."""


@dataclass(frozen=True)
class Waiver:
    """One entry of the file."""

    arch: str
    pattern: str  # of `<test>[<id>]`, with * and ?
    kind: Kind
    reason: str
    link: str
    given: datetime.date
    expires: datetime.date | None = None

    def covers(self, id: str) -> bool:
        """Whether it names a test.

        >>> day = datetime.date(2026, 1, 1)
        >>> Waiver("sm_90", "test_gemm[*]", "unrecorded", "why", "where", day).covers("test_gemm[gemm-x]")
        True
        """
        pattern = self.pattern.replace("[", "[[]")
        return fnmatch.fnmatchcase(id, pattern)

    def expired(self, today: datetime.date) -> bool:
        """Whether its last day is over."""
        return self.expires is not None and today > self.expires


def read(path: Path, arch: str) -> tuple[Waiver, ...]:
    """The waivers of an arch.

    Raises WaiverError if the file is missing or wrong.
    """
    try:
        entries = parsed_toml(path.read_bytes(), path.name).get("waiver", [])
    except (OSError, ValueError) as error:
        raise WaiverError(f"cannot read waivers from {path}: {error}") from error
    if not isinstance(entries, list):
        raise WaiverError(f"{path}: waivers are written as [[waiver]]")
    return tuple(item for item in (_waiver(entry, path) for entry in entries) if item.arch == arch)


def _waiver(entry: Any, path: Path) -> Waiver:
    where = f"{path}, waiver {entry.get('pattern', entry)!r}" if isinstance(entry, dict) else f"{path}: {entry!r}"
    if not isinstance(entry, dict) or (unknown := entry.keys() - _FIELDS.keys() - {"expires"}):
        raise WaiverError(f"{where}: unknown {', '.join(sorted(unknown)) if isinstance(entry, dict) else 'entry'}")
    for name, type_ in _FIELDS.items():
        if type(entry.get(name)) is not type_ or not entry[name]:
            raise WaiverError(f"{where}: {name} must be a {type_.__name__}")
    if entry["kind"] not in get_args(Kind):
        raise WaiverError(f"{where}: no kind {entry['kind']!r}; valid: {', '.join(KINDS)}")
    expires = entry.get("expires")
    if expires is not None and type(expires) is not datetime.date:
        raise WaiverError(f"{where}: expires must be a date")
    latest = entry["given"] + datetime.timedelta(days=LONGEST)
    if entry["kind"] == "unrecorded" and (expires is None or expires > latest):
        raise WaiverError(
            f"{where}: a GPU can run it, so it must expire, at most {LONGEST} days after {entry['given']}"
        )
    return Waiver(**entry)


def unwaived(
    waivers: Sequence[Waiver], found: Sequence[tuple[str, str]], today: datetime.date
) -> tuple[list[str], list[Waiver]]:
    """Of (test, verdict) those that no waiver covers, a line each; and the waivers that cover some."""
    lines, used = [], []
    for id, verdict in found:
        covering = [item for item in waivers if item.covers(id)]
        valid = [item for item in covering if not item.expired(today)]
        used += [item for item in valid if item not in used]
        if not valid:
            late = f": its waiver expired on {covering[0].expires}" if covering else ""
            lines.append(f"{verdict} {id}{late}")
    return lines, used
