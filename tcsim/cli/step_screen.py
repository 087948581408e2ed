"""`tcsim step` on a full screen: the PTX with the instruction that comes next, what was asked, and a line for commands.

It is laid out for 80 columns and 24 lines and needs no mouse; its keys stand in the last line.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Footer, Input, RichLog, Static

from tcsim.core.errors import printable
from tcsim.inspection.stepping import Console

AROUND = 3
"""Lines of PTX above and below the one that comes next."""


class Screen(App[None]):
    """A console as a screen."""

    CSS = """
    #ptx { height: 8; border-bottom: solid gray; }
    #said { height: 1fr; scrollbar-size: 1 1; }
    #command { height: 1; border: none; padding: 0; }
    """
    BINDINGS: ClassVar = [
        Binding("f10", "command('step')", "Step", priority=True),
        Binding("f8", "warp", "Warp", priority=True),
        Binding("f9", "command('source')", "Line", priority=True),
        Binding("f7", "command('back')", "Back", priority=True),
        Binding("f5", "command('run')", "Run", priority=True),
        Binding("f2", "command('where')", "Where", priority=True),
        Binding("f1", "command('help')", "Help", priority=True),
        Binding("ctrl+q", "command('quit')", "Quit", priority=True),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "tcsim step"

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.stepper = console
        self._last = ""

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        with Vertical():
            yield Static("", id="ptx", markup=False)
            yield RichLog(id="said", wrap=False, markup=False, highlight=False, min_width=1)
            yield Input(placeholder="a command; help lists them", id="command", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show where the launch stands."""
        self.query_one("#command", Input).focus()
        self._refresh_listing()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do what was typed; nothing typed repeats the last command."""
        self._last = event.value.strip() or self._last
        event.input.value = ""
        self.action_command(self._last)

    def action_command(self, line: str) -> None:
        """Do a command."""
        said = self.query_one("#said", RichLog)
        found = self.stepper.answer(line)
        if self.stepper.ended:
            self.exit()
            return
        if found.command:
            said.write(f"> {found.command}")
        for text in found.lines:
            said.write(printable(text))
        self._refresh_listing()

    def action_warp(self) -> None:
        """Step the warp whose instruction comes next."""
        threads = self.stepper.session.threads
        self.action_command(f"step warp {threads[0] // 32 if threads else 0}")

    def _refresh_listing(self) -> None:
        lines = self.stepper.session.listing(AROUND) or [self.stepper.session.where().reason]
        self.query_one("#ptx", Static).update("\n".join(line.expandtabs(4)[:80] for line in lines))
