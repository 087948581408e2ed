"""`tcsim number`: one number of one format taken apart."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.output import emit
from tcsim.inspection.numbers import NumberCode, NumberReport, inspect_number
from tcsim.inspection.report import Facts, Report, table
from tcsim.isa.cvt.semantics import DIRECTIONS


def number(
    format: Annotated[
        str,
        typer.Argument(
            help="Number format: e4m3.",
            metavar="FORMAT",
            autocompletion=options.complete_format,
            callback=options.format_named,
        ),
    ],
    value: Annotated[
        str,
        typer.Argument(help="A code (0x3c, 0b111100) or a value (1.5, -1e-3, 1/3, inf, nan).", metavar="CODE|VALUE"),
    ],
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Take a number apart: fields, neighbours, roundings."""
    found = inspect_number(format, value)
    emit("number", found.as_dict, lambda: _report(found), json=json, html=html)


def _show(code: NumberCode | None) -> str:
    return "none" if code is None else f"{code.hex} ({code.value!r})"


def _report(found: NumberReport) -> Report:

    facts = [("code", _show(found.code)), ("class", found.kind), ("bits", found.bits)]
    facts += [(f"  {name}", str(bits)) for name, bits in found.fields.items()]
    if found.significand is not None:
        sign = "-" if found.fields.get("sign") else ""
        facts.append(("is", f"{sign}{found.significand} (binary) * 2^{found.exponent}"))
    facts += [("below", _show(found.below)), ("above", _show(found.above))]
    parts: list[Any] = [Facts(tuple(facts))]
    if found.roundings:
        rows = [(mode, DIRECTIONS[mode], code.hex, repr(code.value)) for mode, code in found.roundings.items()]
        if found.saturated is not None:
            rows.append(("satfinite", "to nearest even, clamped", found.saturated.hex, repr(found.saturated.value)))
        parts.append(table(("rounding", "", "code", "value"), rows, f"{found.exact} rounded"))
    elif found.saturated is not None:
        parts.append(Facts((("saturated", _show(found.saturated)),)))
    return Report(f"{found.format.name} {found.asked}", tuple(parts))
