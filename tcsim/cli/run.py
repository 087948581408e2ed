"""`tcsim run`: an instruction on the inputs of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tcsim.cli import options

if TYPE_CHECKING:
    from tcsim.inspection.report import Report

SHOWN_ROWS = 64
"""Rows of the result that text shows at most; JSON and --output have them all."""


def run(
    mnemonic: options.Mnemonic,
    file: Annotated[
        str, typer.Option("--inputs", "-i", help=".npz with the call's arguments by name.", metavar="FILE")
    ],
    arch: options.Arch = None,
    call: options.CallOption = None,
    idesc: options.Idesc = None,
    output: Annotated[str | None, typer.Option("--output", help="Write the result to this .npz, as d.")] = None,
    json: options.Json = False,
) -> None:
    """Run an instruction on the inputs of a file."""
    from tcsim.cli.files import read_arrays, write_arrays
    from tcsim.cli.output import emit
    from tcsim.inspection.problems import formats_for, run_call

    instruction = options.instruction_of(mnemonic, arch)
    arrays = options.with_idesc(read_arrays(file, "run"), idesc)
    chosen, d = run_call(instruction, arrays, call.value if call else None)

    def formats() -> Any:
        return formats_for(instruction, arrays)

    if output is not None:
        write_arrays(output, {"d": d})
    data = {
        "mnemonic": mnemonic, "arch": instruction.arch.name, "call": chosen, "evidence": str(instruction.evidence),
        "dtype": str(d.dtype), "shape": list(d.shape), "d": d, "output": output,
    }  # fmt: skip
    emit("run", lambda: data, lambda: _report(instruction, chosen, d, formats), form="json" if json else "text")


def _report(instruction: Any, call: str, d: Any, formats: Callable[[], Any]) -> Report:
    from tcsim.codec import decode
    from tcsim.inspection.report import Facts, Lines, Report, table

    facts = [("call", call), ("evidence", str(instruction.evidence)), ("d", f"{d.dtype} {tuple(d.shape)}")]
    codes, note = _matrix(instruction, call, d)
    parts: list[Any] = [Facts(tuple(facts))]
    if codes is None:
        flat = d.reshape(-1, d.shape[-1]) if d.ndim > 1 else d.reshape(1, -1)
        digits = 2 * d.dtype.itemsize
        rows = [(n, *(f"{int(x):0{digits}x}" for x in row)) for n, row in enumerate(flat[:SHOWN_ROWS])]
        parts.append(table(("", *map(str, range(flat.shape[1]))), rows, "d in hexadecimal", grid=True))
        hidden = len(flat) - len(rows)
    else:
        values = decode(codes, formats()["d"])
        rows = [(n, *(f"{x:.9g}" for x in row)) for n, row in enumerate(values[:SHOWN_ROWS])]
        parts.append(table(("row", *map(str, range(values.shape[1]))), rows, note, grid=True))
        hidden = len(values) - len(rows)
    if hidden > 0:
        parts.append(Lines((f"{hidden} rows more: --json or --output",)))
    return Report(f"{instruction.mnemonic} on {instruction.arch.name}", tuple(parts))


def _matrix(instruction: Any, call: str, d: Any) -> tuple[Any, str]:
    """The first matrix of the result, if it is one: codes (rows, columns)."""
    if call == "execute":
        if not hasattr(instruction, "matmul") or "d" not in instruction.operands:
            return None, ""
        d = instruction.matrix("d", d)
    count = d.size // (d.shape[-1] * d.shape[-2]) if d.ndim >= 2 else 0
    if d.ndim < 2 or not count:
        return None, ""
    note = f"d, values; the first of {count}" if count > 1 else "d, values"
    return d.reshape(count, *d.shape[-2:])[0], note
