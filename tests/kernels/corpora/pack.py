"""A pack of PTX: one file of what `compile` made, for `capture` and `replay`."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "build" / "corpora.xz"  # where `compile` writes; git ignores it
UNMEASURED = (
    ROOT / "tests" / "data" / "corpora_unmeasured.xz"
)  # committed: kernels for targets that no GPU of ours runs


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
    text = json.dumps({key: asdict(own) for key, own in sorted(made.items())}, indent=1)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def read(path: Path) -> dict[str, Compiled]:
    """The content of a pack; nothing if there is no such file."""
    if not path.is_file():
        return {}
    return {key: Compiled(**own) for key, own in json.loads(lzma.decompress(path.read_bytes())).items()}


def read_all() -> dict[str, Compiled]:
    """What is built here and what is committed."""
    return read(UNMEASURED) | read(BUILT)
