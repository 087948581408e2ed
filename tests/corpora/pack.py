"""A pack of PTX: one zip file of what `compile` made, for `capture` and `replay`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BUILT = ROOT / "build" / "corpora.zip"  # where `compile` writes; git ignores it
BLACKWELL = ROOT / "tests" / "data" / "corpora_blackwell.zip"  # committed: targets that no GPU of ours runs


@dataclass(frozen=True)
class Compiled:
    """The PTX of a source for a target, and what its compiler says of a launch."""

    ptx: str
    shared_bytes: int = 0  # dynamic
    made_by: str = ""  # "nvcc 13.0.88"


def key_of(source: str, target: str) -> str:
    """The name of a compilation."""
    return f"{source}@{target}"


def write(path: Path, made: Mapping[str, Compiled]) -> None:
    """Write a pack; the same content gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    index = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for number, (key, own) in enumerate(sorted(made.items())):
            index[key] = {**asdict(own), "ptx": f"{number}.ptx"}
            file.writestr(zipfile.ZipInfo(f"{number}.ptx"), own.ptx, zipfile.ZIP_LZMA)
        file.writestr(zipfile.ZipInfo("index.json"), json.dumps(index, indent=1), zipfile.ZIP_LZMA)


def read(path: Path) -> dict[str, Compiled]:
    """The content of a pack; nothing if there is no such file."""
    if not path.is_file():
        return {}
    with zipfile.ZipFile(path) as file:
        index = json.loads(file.read("index.json"))
        return {key: Compiled(**{**own, "ptx": file.read(own["ptx"]).decode()}) for key, own in index.items()}


def read_all() -> dict[str, Compiled]:
    """What is built here and what is committed."""
    return read(BLACKWELL) | read(BUILT)
