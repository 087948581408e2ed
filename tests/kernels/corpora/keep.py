"""`python -m tests.kernels.corpora.keep FILE`: bring what `capture` wrote into the tree: tests/data/launches/corpora.xz, and wide.xz for cases of many blocks.

A launch is kept if its two repetitions were equal, and, where it has an expected result, was as expected: what was odd is named and
left out. A launch that --fmad changes is kept as it was assembled.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kernels.corpora import recording
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.recording import Fields

MOST_BYTES = 4_000_000  # of a file


def oddity(fields: Fields) -> str:
    """Why a launch is not kept; "" if it is."""
    if not fields["repeatable"]:
        return "differs the second time"
    expected = CASES[fields["case"]].launch().expected
    names = {
        fields[key]: key.removesuffix("_name") for key in fields if key.startswith("buf") and key.endswith("_name")
    }
    for name, own in expected.items():
        after = fields.get(f"{names[name]}_after", fields[f"{names[name]}_before"])
        if wrong := own.wrong(after):
            return f"{wrong} wrong in {name}"
    return ""


def main(arguments: list[str]) -> int:
    """Keep a file's launches."""
    found = recording.read(Path(arguments[0]))
    odd = {name: why for name, fields in found.items() if (why := oddity(fields))}
    for name, why in odd.items():
        print(f"left out: {name}: {why}")
    for name, fields in found.items():
        changed = [key for key in fields if key.endswith("_after_fmad_off")]
        if changed:
            print(f"--fmad matters: {name}: {', '.join(changed)}")
    kept = {
        name: {key: value for key, value in own.items() if not key.endswith("_fmad_off")}
        for name, own in found.items()
        if name not in odd
    }
    files = {recording.kept_in(own["case"]) for own in kept.values()}
    for file in files:
        recording.write(file, {name: own for name, own in kept.items() if recording.kept_in(own["case"]) == file})
    sizes = [file.stat().st_size for file in files]
    print(f"{len(kept)} of {len(found)} launches kept, {sum(sizes)} bytes")
    return int(max(sizes, default=0) > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
