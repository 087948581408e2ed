"""What becomes of a wrong argument: one message on standard error that lists what would be valid, and status 2."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from tcsim.core.errors import TcsimError, listing, nearest

ORDER = (
    "list", "show", "where", "what", "map", "inputs", "descriptor", "idesc", "tensormap", "swizzle", "mbarrier", "number", "quantize", "run",
    "trace", "compare", "diagnose",
)  # fmt: skip
"""In which the subcommands are listed; others follow."""


class Subcommands(TyperGroup):
    """A group of subcommands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The subcommands in reading order."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand, or say which there are."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            ctx.fail(
                f"no subcommand {args[0]!r}; nearest: {listing(nearest(args[0], names, 1))}; valid: {listing(names)}"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except TcsimError as error:
            typer.echo(f"tcsim: {error}", err=True)
            raise typer.Exit(2) from None
