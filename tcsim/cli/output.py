"""How a subcommand's answer leaves: JSON, text, Markdown; colour on a terminal alone; a reader that goes away is not an error."""

from __future__ import annotations

import json as encoder
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from io import StringIO
from typing import Any

from tcsim.core.errors import OperandError, printable
from tcsim.core.files import write_file
from tcsim.inspection import report as reports
from tcsim.inspection.report import WIDTH, Line, Report

STYLES = {"": "", "title": "bold", "heading": "bold cyan", "head": "dim", "good": "green", "bad": "bold red"}


def plain(value: Any) -> Any:
    """What JSON can hold: infinities and NaN become the words "inf", "-inf" and "nan"; NumPy numbers become numbers; texts are escaped."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def emit(
    subcommand: str,
    data: Callable[[], dict[str, Any]],
    report: Callable[[], Report],
    *,
    form: str = "text",
    json: bool = False,
    html: str | None = None,
    page: Callable[[], str] | None = None,
) -> None:
    """Write an answer as text, Markdown or JSON.

    html: a file that gets a page, too; "-": the page is the answer. Raises OperandError for a file that cannot be written.
    """
    if html is not None:
        drawn = page() if page is not None else page_of(report())
        if html == "-":
            write(drawn)
            return
        save(html, drawn)
    if json or form == "json":
        write(encoder.dumps({"verb": subcommand, **plain(data())}, indent=2) + "\n")
        return

    if form == "markdown":
        write(printable("\n".join(reports.markdown_lines(report()))).rstrip() + "\n")
        return
    lines = [line._replace(text=printable(line.text)) for line in reports.text_lines(report(), width())]
    if coloured():
        _write_coloured(lines)
    else:
        write("".join(f"{line.text}\n" for line in lines))


def save(path: str, text: str) -> None:
    """Write a file. Raises OperandError if it cannot be written."""
    try:
        write_file(path, text)
    except OSError as error:
        raise OperandError(f"cannot write {path!r}: {error.strerror or error}") from None


def page_of(shown: Report) -> str:
    """The page of a report."""
    from tcsim.inspection.report_html import report_page  # pages import much that other answers do without

    return report_page(shown)


def width() -> int:
    """Columns of text: of the terminal, at most 120; 80 where there is none."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return WIDTH
    return max(40, min(120, shutil.get_terminal_size((WIDTH, 24)).columns))


def coloured() -> bool:
    """Whether text is coloured: on a terminal, unless NO_COLOR is set or the terminal is dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write_coloured(lines: Iterable[Line]) -> None:
    from rich.console import Console  # 17 ms of 230 for a start: only where it colours
    from rich.text import Text

    out = StringIO()
    console = Console(file=out, force_terminal=True, width=10_000, highlight=False, color_system="standard")
    for line in lines:
        console.print(Text(line.text, style=STYLES[line.style]), soft_wrap=True)
    write(out.getvalue())


def write(text: str) -> None:
    """Text to standard output. If its reader has gone (`| head`), stop with exit status 0; if it is full, with 1."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go()
        raise SystemExit(0) from None
    except UnicodeEncodeError as error:
        sys.stdout.write(text.encode(error.encoding, "replace").decode(error.encoding))
        sys.stdout.flush()
    except OSError as error:
        _let_go()
        print(f"tcsim: cannot write: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None


def _let_go() -> None:
    """Let what is still to be written go nowhere: the interpreter flushes once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
