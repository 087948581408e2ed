"""`tcsim vectors`: test vectors for other implementations, and the check of their answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from conformance.vectors.forms import FORMS
from conformance.vectors.sets import Order, make
from conformance.vectors.subjects import subject
from conformance.vectors.verify import Verdict, verify
from tcsim.cli import options
from tcsim.cli.group import Subcommands
from tcsim.cli.output import emit
from tcsim.core.errors import listing
from tcsim.inspection.report import Facts, Lines, Report, table

app = typer.Typer(
    cls=Subcommands, help="Test vectors for other implementations: make, classes, verify.", no_args_is_help=True
)

_Level = Annotated[
    int,
    typer.Option(
        "--level", min=1, max=2, help="1: the classes of the conformance suite; 2: all pairs of corner values."
    ),
]


@app.command("make")
def make_command(
    mnemonic: options.Mnemonic,
    out: Annotated[
        Path, typer.Option("--output", "--out", "-o", help="The folder; its manifest grows.", metavar="FOLDER")
    ],
    arch: options.Arch = None,
    idesc: options.Idesc = None,
    classes: Annotated[
        str | None, typer.Option("--classes", help="Separated by commas; all of the level if left out.")
    ] = None,
    level: _Level = 1,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    outputs: Annotated[
        int | None, typer.Option("--outputs", min=1, max=1 << 32, help="Of each class of level 1, at least.")
    ] = None,
    form: Annotated[str, typer.Option("--form", help=f"{listing(FORMS)}.")] = "npz",
    json: options.Json = False,
) -> None:
    """Write operands and expected bits, and list the files in manifest.json with their digests."""
    wanted = tuple(classes.split(",")) if classes else ()
    descriptor = None if idesc is None else options.integer_of(idesc, "--idesc")
    instruction = options.instruction_of(mnemonic, arch)
    named = instruction.mnemonic, arch or instruction.arch.name
    order = Order(*named, descriptor, wanted, level, seed, outputs, form)
    entries = make(out, order)
    data = {"folder": str(out), "files": entries}
    emit("vectors make", lambda: data, lambda: _made(out, entries), form="json" if json else "text")


@app.command("classes")
def classes_command(
    mnemonic: options.Mnemonic, arch: options.Arch = None, idesc: options.Idesc = None, json: options.Json = False
) -> None:
    """List the input classes of an instruction, by level, and the fields of a record."""
    instruction = options.instruction_of(mnemonic, arch)
    descriptor = None if idesc is None else options.integer_of(idesc, "--idesc")
    own = subject(instruction.mnemonic, arch or instruction.arch.name, descriptor)
    levels = {str(level): own.classes(level) for level in (1, 2)}
    data = {
        "mnemonic": own.instruction.mnemonic,
        "arch": own.instruction.arch.name,
        "levels": levels,
        "fields": [field.as_dict() for field in own.fields],
    }
    shown = tuple((f"level {level}", listing(names) or "none") for level, names in levels.items())
    rows = [(field.name, field.elements, field.format, field.digits) for field in own.fields]
    parts = (Facts(shown), table(("field", "elements", "format", "hex digits each"), rows, right=(1, 3)))
    emit("vectors classes", lambda: data, lambda: Report("", parts), form="json" if json else "text")


@app.command("verify")
def verify_command(
    vectors: Annotated[Path, typer.Argument(help="A folder that make wrote, or a file in it.", metavar="VECTORS")],
    answers: Annotated[
        Path, typer.Argument(help="A folder with files of the same names, or a file.", metavar="ANSWERS")
    ],
    show: Annotated[int, typer.Option("--show", min=0, help="Mismatches of each file that are shown.")] = 5,
    json: options.Json = False,
) -> None:
    """Compare the answers of another implementation. Exit status 1 if an answer is wrong."""
    found = verify(vectors, answers, show)
    emit("vectors verify", found.as_dict, lambda: Report("", tuple(_told(found))), form="json" if json else "text")
    if found.differ:
        raise typer.Exit(1)


def _made(out: Path, entries: list[dict[str, Any]]) -> Report:
    rows = [(entry["file"], f"{entry['outputs']:,}") for entry in entries]
    total = sum(entry["outputs"] for entry in entries)
    facts = (("folder", str(out)), ("evidence", str(entries[0]["evidence"])), ("outputs", f"{total:,}"))
    return Report("", (Facts(facts), table(("file", "outputs"), rows, right=(1,), whole=(0,))))


def _told(found: Verdict) -> Iterator[Any]:
    said = f"{found.differ:,} of {found.outputs:,} outputs differ, in {found.files} files"
    yield Lines((said,), style="bad" if found.differ else "good")
    if not found.differ:
        return
    rows = [(f"{n:,}", kind.kind, kind.what) for kind, n in found.kinds.most_common()]
    title = "" if found.classified == found.differ else f"of the {found.classified:,} that were looked at:"
    yield table(("outputs", "kind", "what"), rows, title=title, right=(0,))
    worst = [(name, f"{n:,}", f"{wrong:,}") for name, (n, wrong) in found.by_file.items() if wrong]
    yield table(("file", "outputs", "wrong"), worst, right=(1, 2), whole=(0,))
    for one in found.first:
        operands = [f"  {name}: {text}" for name, text in one.operands.items()]
        head = f"{one.file}, output {one.number:,}: {one.kind.kind}, {one.kind.what}"
        yield Lines((head, *operands, f"  expected {one.expected}, got {one.got}"), wrap=True)
