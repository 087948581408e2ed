"""Options and arguments that several subcommands share, and what the shell completes them with."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

import tcsim
from tcsim import catalog
from tcsim.core.errors import OperandError, TargetError, shortened
from tcsim.core.targets import ARCHS, TARGETS, accepting, named
from tcsim.inspection.listing import default_arch, types
from tcsim.isa.index import Entry, families_of_head, index

if TYPE_CHECKING:
    from tcsim.search import Found


class TextFormat(StrEnum):
    """How a report is written."""

    text = "text"
    markdown = "markdown"
    json = "json"


class MapFormat(StrEnum):
    """How a map is written."""

    text = "text"
    csv = "csv"
    markdown = "markdown"
    json = "json"
    svg = "svg"


class MapBy(StrEnum):
    """What a line of a map is."""

    lane = "lane"
    element = "element"


class Call(StrEnum):
    """Which method of an instruction takes the inputs."""

    execute = "execute"
    matmul = "matmul"


# --- completion


def complete_mnemonic(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Mnemonics that begin so, of the arch if one was given before."""

    def fits(row: Entry) -> bool:
        return row.mnemonic.startswith(incomplete) and (not here or not here.isdisjoint(row.targets))

    try:
        here = set(accepting(str(ctx.params["arch"]))[1]) if ctx.params.get("arch") else set()
    except TargetError:
        here = set()
    yield from (row.mnemonic for row in index().entries if fits(row))


def complete_arch(incomplete: str) -> Iterator[tuple[str, str]]:
    """Archs and targets."""
    for name in (*ARCHS, *(target for target in TARGETS if target not in ARCHS)):
        if name.startswith(incomplete):
            arch = ARCHS[TARGETS[name].arch]
            yield name, f"{arch.generation}, {arch.example}"


def complete_archs(incomplete: str) -> Iterator[str]:
    """The last of several archs separated by commas."""
    head, comma, last = incomplete.rpartition(",")
    yield from (f"{head}{comma}{name}" for name, _ in complete_arch(last))


def complete_family(incomplete: str) -> Iterator[str]:
    """Families."""
    yield from (name for name in index().families if name.startswith(incomplete))


def complete_type(incomplete: str) -> Iterator[str]:
    """Number formats that instructions have."""
    yield from (name for name in types() if name.startswith(incomplete))


def complete_format(incomplete: str) -> Iterator[str]:
    """Number formats."""
    from tcsim.numbers.formats import FORMATS  # here and below: what only completion needs

    yield from (name for name in FORMATS if name.startswith(incomplete))


def complete_operand(ctx: typer.Context, incomplete: str) -> Iterator[str]:
    """Operands of the instruction that was given before."""
    # while an option still lacks its value, the arguments before it are in ctx.args, not in ctx.params
    given = [*(ctx.params.get("mnemonic") or ()), *ctx.args]
    row = next((row for name in given if name and (row := catalog.row_of(str(name))) is not None), None)
    names = row.operands if row is not None else ("a", "b", "c", "d")
    yield from (name for name in names if name.startswith(incomplete.lower()))


def complete_swizzle(incomplete: str) -> Iterator[str]:
    """Swizzles of the hardware."""
    from tcsim.layouts.swizzle import SWIZZLES

    yield from (name for name in SWIZZLES if name.startswith(incomplete.upper()))


def complete_tensor_type(incomplete: str) -> Iterator[str]:
    """Data types of tensor maps."""
    from tcsim.tma.types import DATA_TYPES

    yield from (name for name in DATA_TYPES if name.startswith(incomplete.upper()))


def complete_kind(incomplete: str) -> Iterator[str]:
    """Kinds of tcgen05.mma."""
    from tcsim.descriptors.kinds import KINDS

    yield from (name for name in KINDS if name.startswith(incomplete))


def complete_rounding(incomplete: str) -> Iterator[str]:
    """Roundings."""
    from tcsim.numbers.rounding import Rounding

    yield from (name for name in get_args(Rounding) if name.startswith(incomplete))


# --- arguments and options

ARCH_HELP = "Arch (sm_90), target (sm_90a) or product (h100). Default: the earliest arch with the strongest evidence."

Mnemonic = Annotated[
    list[str],
    typer.Argument(
        help="The PTX spelling, or keywords that identify one instruction.",
        metavar="INSTRUCTION",
        autocompletion=complete_mnemonic,
    ),
]


def arch_named(name: str | None) -> str | None:
    """The arch or target that a name means (`h100`, `blackwell`: its first). Raises TargetError."""
    if not name:
        return name
    accepting(name)
    return named(name)


def format_named(name: str) -> str:
    """The name of a number format. Raises FormatError, also where another argument is missing."""
    from tcsim.numbers.formats import format as find_format  # NumPy, which a list does without

    return find_format(name).name


Arch = Annotated[
    str | None,
    typer.Option("--arch", "-a", help=ARCH_HELP, metavar="ARCH", autocompletion=complete_arch, callback=arch_named),
]
Operand = Annotated[
    str | None,
    typer.Option(
        "--operand",
        "-o",
        help="a, b, c or d; the only one if there is one.",
        metavar="NAME",
        autocompletion=complete_operand,
    ),
]
Element = Annotated[str, typer.Option("--element", "-e", help="Row and column, from 0.", metavar="ROW,COLUMN")]
Matrix = Annotated[int, typer.Option("--matrix", help="Which of several matrices (ldmatrix.x4, m8n8k4).", metavar="N")]
Format = Annotated[TextFormat, typer.Option("--format", help="How to write it.")]
CallOption = Annotated[
    Call | None,
    typer.Option("--call", help="Registers (execute) or matrices of codes (matmul). Default: what fits."),
]
Idesc = Annotated[
    str | None,
    typer.Option(
        "--idesc", help="The instruction descriptor of tcgen05.mma, if not among the inputs.", metavar="VALUE"
    ),
]
Launched = Annotated[
    str,
    typer.Argument(
        help="CUDA C++, PTX, a recorded launch (.npz), or a script for Triton or CuTe DSL (.py).", metavar="FILE"
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(help="Arguments of the script; put -- before those that begin with -.", metavar="[ARGUMENT]..."),
]
LaunchFile = Annotated[
    str | None, typer.Option("--launch", "-l", help="The launch file; `tcsim launch init` begins one.", metavar="TOML")
]
Chip = Annotated[
    str | None,
    typer.Option(
        "--arch",
        "-a",
        help="The chip. Default: what the launch file says, else the PTX's target.",
        metavar="ARCH",
        autocompletion=complete_arch,
    ),
]
Schedule = Annotated[
    str | None, typer.Option("--schedule", help="When asynchronous work lands: late, early, or a seed.", metavar="WHEN")
]
Html = Annotated[
    str | None,
    typer.Option(
        "--html",
        help="Write an HTML page that stands alone to this file; - writes it instead of the answer.",
        metavar="FILE",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
Every = Annotated[bool, typer.Option("--all", help="Show every finding, not one per cause.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show all that is known of a finding, not three lines.")]
Sample = Annotated[
    bool, typer.Option("--sample", help="Watch the blocks of at most 8 clusters. Faster; findings are of these blocks only.")
]  # fmt: skip
Swizzle = Annotated[str, typer.Option("--swizzle", help="NONE, 32B, 64B or 128B.", autocompletion=complete_swizzle)]
Number = Annotated[str, typer.Argument(help="64 bits, decimal or 0x...", metavar="VALUE")]


# --- what the text of an argument means

LONGEST_NUMBER = 100
"""Letters of an integer on the command line: a word of 64 bits has at most 66."""


SHOWN_MATCHES = 12
"""Instructions that are listed where several are meant."""


def mnemonic_of(words: Sequence[str], arch: str | None = None) -> str:
    """The spelling that words mean; what was taken for it goes to standard error, if it is not what was written.

    Exit status 1 if no instruction has the words, 2 if several do: they are listed, the likeliest first.
    """
    text = " ".join(words)
    if " " not in text and families_of_head(text.partition(".")[0]) and catalog.row_of(text) is not None:
        return text
    from tcsim.search import search  # a mnemonic needs no search

    found = search(text, arch)
    if found.only is None:
        raise no_match(found) if not found.matches else _several(found)
    more = f" (of {len(found.matches)} that match: tcsim list)" if len(found.matches) > 1 else ""
    typer.echo(f"tcsim: {found.only}{more}", err=True)
    return found.only.mnemonic


def no_match(found: Found) -> typer.Exit:
    """Say that nothing matches, and where it is or what nearly does: exit status 1."""
    if where := found.elsewhere():
        typer.echo(f"tcsim: {where}", err=True)
        return typer.Exit(1)
    typer.echo(f"tcsim: no instruction matches {shortened(found.question.text)}; nearest:", err=True)
    for text, match in found.near():
        typer.echo(f"  {text}: {match}", err=True)
    return typer.Exit(1)


def _several(found: Found) -> typer.Exit:
    count = len(found.matches)
    typer.echo(f"tcsim: {count} instructions match {shortened(found.question.text)}, the likeliest first:", err=True)
    for match in found.matches[:SHOWN_MATCHES]:
        typer.echo(f"  {match}", err=True)
    if count > SHOWN_MATCHES:
        typer.echo(f"  ... {count - SHOWN_MATCHES} more: tcsim list", err=True)
    return typer.Exit(2)


def instruction_of(words: Sequence[str], arch: str | None) -> Any:
    """The instruction that words mean, on the arch, or on the arch that most is known about."""
    mnemonic = mnemonic_of(words, arch)
    return tcsim.instruction(mnemonic, arch=arch or default_arch(mnemonic))


def element_of(text: str) -> tuple[int, int]:
    """Row and column.

    Raises OperandError for another text.
    """
    found = re.fullmatch(r"\s*\(?\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\)?\s*", text[:LONGEST_NUMBER])
    if found is None:
        raise OperandError(f"--element {shortened(text)}: valid: ROW,COLUMN from 0, such as 3,7")
    return int(found[1]), int(found[2])


def integer_of(text: str, what: str) -> int:
    """An integer, decimal or with 0x, 0b.

    Raises OperandError for another text.
    """
    try:
        if len(text) > LONGEST_NUMBER:
            raise ValueError
        return int(text.replace("_", ""), 0)
    except ValueError:
        raise OperandError(
            f"{what} {shortened(text)}: valid: an integer, decimal or 0x..., of at most {LONGEST_NUMBER} letters"
        ) from None


def with_idesc(arrays: Mapping[str, Any], idesc: str | None) -> Mapping[str, Any]:
    """Inputs with the instruction descriptor of --idesc among them.

    Raises OperandError for a text that is not an integer, or a descriptor that is there already.
    """
    if idesc is None:
        return arrays
    if "idesc" in arrays:
        raise OperandError(f"--idesc {shortened(idesc)}: idesc is among the inputs; valid: one of the two")
    return ChainMap({"idesc": integer_of(idesc, "--idesc")}, cast("dict[str, Any]", arrays))  # reads no array
