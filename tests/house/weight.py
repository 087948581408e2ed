"""What the tree weighs: `python -m tests.house.weight` prints it by folder, `--renew` takes it as what later growth is counted from.

Sizes are bytes of files as git tracks them: of the tree, of a clone of depth 1 (every distinct content once, deflated), of the
wheel (the packages, deflated). The last two are a little more than what git and the wheel's builder make.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTED = Path(__file__).with_name("weight.json")
MOST = {"tree": 45_000_000, "clone": 40_000_000, "wheel": 30_000_000}
DEPTH = 3  # path components of the folders whose growth is reported


@dataclass(frozen=True)
class Weight:
    """Of a tree."""

    sizes: dict[str, int]  # "tree", "clone", "wheel"
    folders: dict[str, int]

    def complaints(self, noted: dict[str, int]) -> list[str]:
        """A line for each size that is too large, with the folders that grew most since they were noted."""
        grown = Counter({name: size - noted.get(name, 0) for name, size in self.folders.items()})
        told = ", ".join(f"{name} +{more:,}" for name, more in grown.most_common(5) if more > 0) or "no folder"
        return [
            f"the {name} has {size:,} bytes of {MOST[name]:,}; grown since {NOTED.name}: {told}"
            for name, size in self.sizes.items()
            if size > MOST[name]
        ]


def tracked(root: Path) -> list[str]:
    """The files of a tree, those that git does not know yet and does not ignore among them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in found.split("\0") if name and (root / name).is_file()})


def weigh(root: Path, names: list[str]) -> Weight:
    """The weight of these files."""
    sizes, folders = dict.fromkeys(MOST, 0), Counter[str]()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    seen = set()
    for name in names:
        content = (root / name).read_bytes()
        deflated = len(zlib.compress(content))
        digest = hashlib.sha256(content).digest()
        sizes["tree"] += len(content)
        sizes["clone"] += 0 if digest in seen else deflated
        sizes["wheel"] += deflated if name.partition("/")[0] in packages else 0
        folders["/".join(name.split("/")[:-1][:DEPTH]) or "."] += len(content)
        seen.add(digest)
    return Weight(sizes, dict(sorted(folders.items())))


def main(arguments: list[str]) -> None:
    """Print, and renew the note if that is asked for."""
    found, noted = weigh(ROOT, tracked(ROOT)), json.loads(NOTED.read_text()) if NOTED.exists() else {}
    for name, size in found.sizes.items():
        print(f"{name:6} {size:>11,} of {MOST[name]:,}")
    for name, size in sorted(found.folders.items(), key=lambda item: -item[1])[:30]:
        print(f"{size:>11,} {size - noted.get(name, 0):>+11,}  {name}")
    if arguments == ["--renew"]:
        NOTED.write_text(json.dumps(found.folders, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
