"""Tables of what assemblers take and what GPUs answered: tests/data/tables.zip, read without unpacking.

`python -m tests.support.tables NAME` prints one of them; without a name it lists them.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "data" / "tables.zip"
TABLES = zipfile.Path(ARCHIVE)


def write(name: str, text: str, archive: Path = ARCHIVE) -> None:
    """Put a table into the archive, in place of one of that name; the same tables give the same bytes."""
    held = {}
    if archive.exists():
        with zipfile.ZipFile(archive) as file:
            held = {member: file.read(member) for member in file.namelist()}
    held[name] = text.encode()
    temporary = archive.with_suffix(".partial")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_LZMA) as file:
        for member, content in sorted(held.items()):
            file.writestr(zipfile.ZipInfo(member), content, zipfile.ZIP_LZMA)
    os.replace(temporary, archive)


def main(names: list[str]) -> None:
    """Print a table, or the names of all."""
    print(
        "\n".join((TABLES / name).read_text() for name in names) or "\n".join(sorted(p.name for p in TABLES.iterdir()))
    )


if __name__ == "__main__":
    main(sys.argv[1:])
