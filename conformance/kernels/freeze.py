"""`python -m conformance.kernels.freeze`: the next version of the frozen generators, from the code of this tree.

It refuses to write one that makes other inputs than those of a recording. New rows and input classes come in with it: before, they take
the tree's own generators, and so does a recording of them.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.kernels import generating
from conformance.stimuli import frozen
from conformance.stimuli.classes import digest
from conformance.suite import manifest, packs, recordings
from conformance.suite.recordings import ROOT
from tcsim.core.files import write_file
from tcsim.isa import index

PACKAGES = ("tcsim", "hwkernels", "conformance")
TREE = Path(__file__).parent.parent.parent
DATA = (Path(index.__file__).with_name(index.FILE).relative_to(TREE),)
"""Files that the modules read."""
LIST = """
import sys
from conformance import isa
from conformance.kernels import generating
from tcsim import catalog
isa.slices(), catalog.rows(), [list(generating._gemms(arch)) for arch in ("sm_90", "sm_100")]
print("\\n".join(m.__file__ for n, m in sys.modules.items() if n.split(".")[0] in {packages}))
"""


def sources() -> list[str]:
    """The files that generators need, relative to the tree."""
    script = LIST.replace("{packages}", repr(PACKAGES))
    listed = subprocess.run([sys.executable, "-c", script], cwd=TREE, capture_output=True, text=True, check=True).stdout
    return sorted(str(path) for path in (*(Path(line).relative_to(TREE) for line in listed.split()), *DATA))


def archive() -> bytes:
    """The zip: its bytes depend on the sources alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in sources():
            file.writestr(zipfile.ZipInfo(name), (TREE / name).read_bytes(), zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def disagreements(path: Path, root: Path, every: int) -> Iterator[str]:
    """Recorded cases, or each N-th, whose inputs an archive makes differently."""
    generators = frozen.Generators(path, generating.__name__)
    number = 0
    for arch in sorted(item.parent.name for item in root.glob(f"*/{manifest.NAME}")):
        for header in _headers(root, arch):
            for case in header.get("cases", ()) if "mnemonic" in header else ():
                number += 1
                if number % every:
                    continue
                question = (header["mnemonic"], arch, case["name"], case["seed"], case["samples"])
                try:
                    same = digest(generators.ask("case", *question)) == case["inputs_sha256"]
                except frozen.UnknownCase as error:
                    yield str(error)
                    continue
                if not same:
                    yield f"{header['mnemonic']}-{case['name']}-{case['seed']}"
    generators.close()


def _headers(root: Path, arch: str) -> Iterator[dict[str, Any]]:
    for path in packs.paths(root, arch):
        yield from packs.Pack(path).headers.values()
    yield from (recordings.read_header(path) for path in sorted((root / arch).glob("*.npz")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, check, write."""
    parser = argparse.ArgumentParser(prog="python -m conformance.kernels.freeze")
    parser.add_argument("--recordings", type=Path, default=ROOT)
    parser.add_argument("--check", type=int, default=1, metavar="N", help="one recorded case of N (default: all)")
    options = parser.parse_args(arguments)
    data = archive()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generators.zip"
        path.write_bytes(data)
        wrong = list(disagreements(path, options.recordings, options.check))
    if wrong:
        print("\n".join([*wrong[:20], f"{len(wrong)} recorded cases would have other inputs: nothing is written"]))
        return 1
    note = {"version": 1, "sha256": hashlib.sha256(data).hexdigest(), "module": generating.__name__}
    if frozen.NOTE.exists():
        old = json.loads(frozen.NOTE.read_text())
        note["version"] = old["version"] + (old["sha256"] != note["sha256"])
    write_file(frozen.ARCHIVE, data)
    write_file(frozen.NOTE, json.dumps(note) + "\n")
    for arch in sorted(item.parent.name for item in options.recordings.glob(f"*/{manifest.NAME}")):
        print("\n".join(manifest.renew(options.recordings, arch)))
    print(f"version {note['version']}, {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
