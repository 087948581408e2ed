"""What recordings must be there: files, classes and seeds, locked by hash, so that a removed one is found by the replay.

`SHA256SUMS` in the folder of recordings locks each arch's `manifest.json.xz` and the files beside the archs' folders; a manifest locks every
recording of its arch, and lists its cases. `python -m conformance.suite.manifest` writes both anew after a change that is meant.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.suite import packs, recordings
from conformance.suite.recordings import ROOT, RecordingError
from tcsim.core.files import write_file
from tcsim.core.targets import arch_named
from tcsim.core.texts import parsed_json

SUMS = "SHA256SUMS"
NAME = "manifest.json.xz"
BESIDE = (
    "published/dot_products.npz", "published/rtx_pro_6000.json", "../stimuli/generators.zip", "sm_90/mbarrier-limits.json", "sm_90/mbarrier-held.json",
    "sm_90/mbarrier-shortfall.json",
    "sm_90/explain/products.npz",
    *(f"sm_90/scalars/{name}" for name in ("scalars.csv.xz", "scalars.json", "questions.npy.xz")),
)  # fmt: skip
"""What else a replay rests on, if it is there."""
Recorded = dict[str, tuple[str, ...]]
"""What a file holds: the name of each recording, and its cases, `<class>.<seed>`."""
RENEW = "after a change that is meant: `python -m conformance.suite.manifest`"


@dataclass(frozen=True)
class Manifest:
    """The recordings of one arch."""

    hashes: dict[str, str]  # of each file, by its name
    cases: dict[str, Recorded]

    def text(self, arch: str) -> str:
        """As JSON, a line for each recording; the lists of cases, which many share, once."""
        every = {cases for recorded in self.cases.values() for cases in recorded.values()}
        shared = {cases: place for place, cases in enumerate(sorted(every))}
        lists = ",\n".join(f"  {json.dumps(cases)}" for cases in shared)
        blocks = []
        for name in sorted(self.hashes):
            recorded = sorted(self.cases[name].items())
            held = ",\n".join(f"   {json.dumps(key)}: {shared[cases]}" for key, cases in recorded)
            blocks.append(f'  {json.dumps(name)}: ["{self.hashes[name]}", {{\n{held}\n  }}]')
        lines = ",\n".join(blocks)
        return f'{{\n "schema": 2,\n "arch": "{arch}",\n "cases": [\n{lists}\n ],\n "files": {{\n{lines}\n }}\n}}\n'

    @property
    def all(self) -> dict[str, set[str]]:
        """The cases of each recording, wherever they are."""
        found: dict[str, set[str]] = defaultdict(set)
        for recorded in self.cases.values():
            for name, cases in recorded.items():
                found[name].update(cases)
        return found


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cases_of(path: Path) -> Recorded:
    """The cases that the header of a file lists, of each recording in it.

    Raises RecordingError if it cannot be read.
    """
    header = recordings.read_header(path)
    try:
        headers = header.get("files", {path.stem: header})
        return {
            name: tuple(sorted(f"{case['name']}.{case['seed']}" for case in own.get("cases", ())))
            for name, own in headers.items()
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise RecordingError(f"corrupt recording {path}: its header does not list cases: {error!r}") from error


def parse(text: str, path: Path) -> Manifest:
    """The manifest that `Manifest.text` wrote.

    Raises RecordingError if it is something else.
    """
    try:
        data: Any = parsed_json(text.encode(), path.name)
        lists = [tuple(map(str, listed)) for listed in data["cases"]]
        cases = {
            str(name): {key: lists[place] for key, place in own.items()} for name, (_, own) in data["files"].items()
        }
        return Manifest({str(name): str(digest) for name, (digest, _) in data["files"].items()}, cases)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise RecordingError(f"corrupt manifest {path}: {error!r}; restore the committed file") from error


def read(path: Path) -> Manifest:
    """The manifest of a file. Raises RecordingError if it is something else."""
    try:
        text = lzma.decompress(path.read_bytes()).decode()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise RecordingError(f"corrupt manifest {path}: {error!r}; restore the committed file") from error
    return parse(text, path)


def survey(root: Path, arch: str, known: Manifest | None = None) -> Manifest:
    """What is there now. Of a file that `known` has with the same hash, the cases are taken from there."""
    hashes = {name: sha256(path) for name, path in _recorded(root, arch).items()}
    cases = {}
    for name, digest in hashes.items():
        same = known is not None and known.hashes.get(name) == digest
        cases[name] = known.cases[name] if known is not None and same else cases_of(root / arch / name)
    return Manifest(hashes, cases)


def complaints(root: Path, arch: str) -> list[str]:
    """What differs from what was locked, a line each. A folder that is not the committed one may do without locks."""
    sums = root / SUMS
    if not sums.exists():
        if root.resolve() != ROOT.resolve() and not (root / arch / NAME).exists():
            return []
        return [f"{sums} is missing: nothing says which recordings must be there; restore the committed file"]
    locked = dict(_locked(sums))
    found = [f"{name}, which {SUMS} locks, is missing" for name in locked if not (root / name).exists()]
    found += [
        f"{name} is not the file that {SUMS} locks; {RENEW}"
        for name, digest in locked.items()
        if (root / name).exists() and sha256(root / name) != digest
    ]
    listed = f"{arch}/{NAME}"
    if listed not in locked:
        return found + ([f"{listed} is not locked by {SUMS}; {RENEW}"] if any(_recorded(root, arch)) else [])
    if any(line.startswith(listed) for line in found):
        return found
    return found + differences(read(root / listed), root, arch)


def differences(manifest: Manifest, root: Path, arch: str) -> list[str]:
    """Files that are missing, changed or new against a manifest."""
    there = _recorded(root, arch)
    out = []
    for name in sorted(manifest.hashes.keys() | there.keys()):
        if name not in there:
            count = sum(map(len, manifest.cases[name].values()))
            out.append(f"{arch}/{name} is missing: the manifest lists it with {count} cases")
        elif name not in manifest.hashes:
            out.append(f"{arch}/{name} is not in the manifest; {RENEW}")
        elif sha256(there[name]) != manifest.hashes[name]:
            out.append(
                f"{arch}/{name} is not the file that the manifest locks: {_changed(there[name], manifest.cases[name])}"
            )
    return out


def _changed(path: Path, locked: Recorded) -> str:
    try:
        found = cases_of(path)
    except RecordingError as error:
        return str(error)
    gone = [f"{name} {case}" for name, cases in locked.items() for case in sorted({*cases} - {*found.get(name, ())})]
    return f"its header lacks {', '.join(gone)}" if gone else f"its bytes changed; {RENEW}"


def renew(root: Path, arch: str, removed: bool = False) -> list[str]:
    """Write the manifest and the sums of what is there; what changed, a line each.

    Raises RecordingError if files or cases would be dropped and `removed` does not allow it.
    """
    path = root / arch / NAME
    known = read(path) if path.exists() else None
    now = survey(root, arch, known)
    there = now.all
    lost = {name: cases - there.get(name, set()) for name, cases in known.all.items()} if known else {}
    lines = [f"{arch}: {name} loses {', '.join(sorted(cases))}" for name, cases in sorted(lost.items()) if cases]
    if known:
        without = (name for name, own in known.cases.items() if name not in now.hashes and not any(own.values()))
        lines += [f"{arch}/{name} is gone" for name in without]
    if lines and not removed:
        raise RecordingError(f"{'; '.join(lines)}: if that is meant, say --removed")
    before = known.hashes if known else {}
    new = [name for name in now.hashes if name not in before]
    changed = [name for name in now.hashes if name in before and now.hashes[name] != before[name]]
    lines.append(f"{arch}: {len(now.hashes)} files, {len(new)} new, {len(changed)} changed; {len(there)} recordings")
    write_file(path, lzma.compress(now.text(arch).encode(), preset=9))
    names = sorted({path.parent.name for path in root.glob(f"*/{NAME}")})
    locked = [f"{name}/{NAME}" for name in names] + [name for name in BESIDE if (root / name).exists()]
    write_file(root / SUMS, "".join(f"{sha256(root / name)}  {name}\n" for name in locked))
    return lines


def _recorded(root: Path, arch: str) -> dict[str, Path]:
    """Every file, by its name in the folder of the arch."""
    found = [*sorted((root / arch).glob("*.npz")), *packs.paths(root, arch)]
    return {path.relative_to(root / arch).as_posix(): path for path in found}


def _locked(sums: Path) -> Iterator[tuple[str, str]]:
    for line in sums.read_text().splitlines():
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64:
            raise RecordingError(f"corrupt {sums}: {line!r} is not a hash and a name; restore the committed file")
        yield name, digest


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the manifest and the sums anew."""
    parser = argparse.ArgumentParser(prog="python -m conformance.suite.manifest", description=__doc__)
    parser.add_argument("--arch", type=arch_named, default="sm_90")
    parser.add_argument("--recordings", type=Path, default=ROOT)
    parser.add_argument("--removed", action="store_true", help="files or cases may be gone")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(renew(options.recordings, options.arch, options.removed)))
    except (RecordingError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
