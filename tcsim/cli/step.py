"""`tcsim step`: through a launch instruction by instruction, on a full screen, at a prompt, or by a list of commands."""

from __future__ import annotations

import json as encoder
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.exec import changed, job_of
from tcsim.cli.output import plain, write
from tcsim.core.array_files import open_file
from tcsim.core.errors import OperandError, printable
from tcsim.inspection.stepping import Answer, Console
from tcsim.launchers.stepped import session

PROMPT = "(tcsim) "
MOST_COMMANDS = 1 << 20
"""Bytes of a file of commands."""


def step(
    file: Annotated[str, typer.Argument(help="CUDA C++, PTX, or a recorded launch (.npz).", metavar="FILE")],
    launch: options.LaunchFile = None,
    arch: options.Chip = None,
    schedule: options.Schedule = None,
    commands: Annotated[
        str | None, typer.Option("--commands", help="Run the commands in this file, and end.", metavar="FILE")
    ] = None,
    execute: Annotated[
        list[str] | None, typer.Option("--execute", "-x", help="Run this command, and end; may be repeated.", metavar="COMMAND")
    ] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Use a prompt, not the full screen.")] = False,
    json: options.Json = False,
) -> None:  # fmt: skip
    """Step through a kernel, look at everything, and ask why.

    `help` lists the commands. On a terminal, with the extra `desk`, it fills the screen; else it is a prompt.

    Exit status: 0, 1 if a command was refused, 2 for wrong use.
    """
    given = _given(commands, execute)
    if json and given is None:
        raise OperandError("step: --json answers commands; valid: with --commands or --execute")
    console = Console(session(changed(job_of(file, launch, "step", arch), arch, schedule)))
    try:
        if given is not None:
            raise typer.Exit(_listed(console, file, given, json))
        if not prompt and sys.stdin.isatty() and sys.stdout.isatty() and find_spec("textual") is not None:
            from tcsim.cli.step_screen import Screen  # textual is an extra

            Screen(console).run()
            return
        raise typer.Exit(_prompted(console))
    finally:
        console.session.close()


def _given(commands: str | None, execute: list[str] | None) -> list[str] | None:
    """The commands of a file, then those of the command line."""
    if commands is None and not execute:
        return None
    lines: list[str] = []
    if commands is not None:
        try:
            with open_file(commands) as stream:
                lines = stream.read(MOST_COMMANDS).decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            raise OperandError(f"step: no file {commands!r}") from None
    return lines + list(execute or ())


def _answers(console: Console, lines: Iterable[str]) -> Iterator[Answer]:
    for line in lines:
        found = console.answer(line)
        if found.command:
            yield found
        if console.ended:
            return


def _listed(console: Console, file: str, lines: list[str], json: bool) -> int:
    """Answer a list of commands; the exit status."""
    if not json:
        failed = False
        for own in _answers(console, lines):
            failed = failed or own.failed
            _print(own, True)
        return int(failed)
    found = list(_answers(console, lines))
    data: dict[str, Any] = {"verb": "step", "schema": 1, "file": file, "answers": [own.as_dict() for own in found]}
    write(encoder.dumps(plain(data), indent=2) + "\n")
    return int(any(own.failed for own in found))


def _print(own: Answer, command: bool) -> None:
    head = [f"{PROMPT}{own.command}"] if command else []
    write("".join(f"{printable(line)}\n" for line in (*head, *own.lines)))


def _prompted(console: Console) -> int:
    """Answer what is typed, line by line; an empty line repeats the last command."""
    _print(console.answer("list"), False)
    last = ""
    while not console.ended:
        try:
            write(PROMPT)
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            write("\n")
            continue
        if not line:
            break
        last = line.strip() or last
        _print(console.answer(last), False)
    return 0
