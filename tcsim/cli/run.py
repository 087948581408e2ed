"""`tcsim run`: an instruction on the inputs of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.files import read_arrays, write_arrays
from tcsim.cli.output import emit
from tcsim.inspection.problems import formats_for, run_call
from tcsim.inspection.report import Facts, Lines, Report, table
from tcsim.numbers.codec import decode

SHOWN_ROWS = 64
"""Rows of a result that text shows at most; JSON and --output have them all."""
SHOWN_COLUMNS = 128
"""Columns of registers and words likewise."""


def run(
    mnemonic: options.Mnemonic,
    file: Annotated[
        str, typer.Option("--inputs", "-i", help=".npz with the call's arguments by name.", metavar="FILE")
    ],
    arch: options.Arch = None,
    call: options.CallOption = None,
    idesc: options.Idesc = None,
    output: Annotated[
        str | None, typer.Option("--output", help="Write the result to this .npz, as d.", metavar="FILE")
    ] = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Run an instruction on the inputs of a file."""
    instruction = options.instruction_of(mnemonic, arch)
    arrays = options.with_idesc(read_arrays(file, "run"), idesc)
    chosen, results = run_call(instruction, arrays, call.value if call else None)

    def formats() -> Any:
        return formats_for(instruction, arrays)

    if output is not None:
        write_arrays(output, results)
    one = list(results) == ["d"]  # several are objects by name
    data = {
        "mnemonic": instruction.mnemonic, "arch": instruction.arch.name, "call": chosen, "evidence": str(instruction.evidence),
        "dtype": _by_name(results, one, lambda array: str(array.dtype)),
        "shape": _by_name(results, one, lambda array: list(array.shape)),
        "d": _by_name(results, one, lambda array: array), "output": output,
    }  # fmt: skip
    emit("run", lambda: data, lambda: _report(instruction, chosen, results, formats), json=json, html=html)


def _by_name(results: dict[str, Any], one: bool, of: Callable[[Any], Any]) -> Any:
    return of(results["d"]) if one else {name: of(array) for name, array in results.items()}


def _report(instruction: Any, call: str, results: dict[str, Any], formats: Callable[[], Any]) -> Report:

    facts = [("call", call), ("evidence", str(instruction.evidence))]
    facts += [(name, f"{array.dtype} {tuple(array.shape)}") for name, array in results.items()]
    parts: list[Any] = [Facts(tuple(facts))]
    for name, array in results.items():
        codes, note = _matrix(instruction, call, array) if len(results) == 1 else (None, "")
        if codes is None:
            flat = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)
            digits = 2 * array.dtype.itemsize
            columns = list(range(flat.shape[1]))[:SHOWN_COLUMNS]
            rows = [
                (n, *(f"{int(x):0{digits}x}" for x in row[: len(columns)])) for n, row in enumerate(flat[:SHOWN_ROWS])
            ]
            hidden = len(flat) - len(rows), flat.shape[1] - len(columns)
            parts.append(table(("", *map(str, columns)), rows, f"{name} in hexadecimal", grid=True))
        else:
            values = decode(codes, formats()["d"])
            rows = [(n, *(f"{x:.9g}" for x in row)) for n, row in enumerate(values[:SHOWN_ROWS])]
            hidden = len(values) - len(rows), 0
            parts.append(table(("row", *map(str, range(values.shape[1]))), rows, note, grid=True))
        for count, what in zip(hidden, ("rows", "columns"), strict=True):
            if count > 0:
                parts.append(Lines((f"{count} {what} more: --json or --output",)))
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
