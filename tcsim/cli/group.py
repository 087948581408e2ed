"""The subcommands of a group, and what becomes of a wrong argument: one message that lists what would be valid, and status 2.

Those of `tcsim` itself are a table, so that its help imports none of them, and each run only one.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from tcsim.core.errors import OperandError, TcsimError, listing, nearest, printable

PLUGGED = "tcsim.subcommands"
"""The entry point group of subcommands that live above this package: in the place of a module."""
SUBCOMMANDS = {
    "list": (
        "listing",
        "list_instructions",
        "List instructions, by arch, family, type and words; exit status 1 if there is none.",
    ),
    "show": ("show", "show", "Show all that is known of an instruction."),
    "where": (
        "where",
        "where",
        "Say where an element lies: lane and register, byte of shared memory, or cell of Tensor Memory.",
    ),
    "what": ("what", "what", "Say which elements a register of a lane, a byte or a cell holds."),
    "map": ("maps", "map_fragment", "Show a whole fragment, by lane or by element."),
    "picture": (
        "picture",
        "picture",
        "Draw a product: A left, B above, D in the corner, and where every element lies, as an HTML page.",
    ),
    "inputs": ("inputs", "inputs", "Say which registers feed one output."),
    "descriptor": ("descriptor", "app", "Matrix descriptors: decode, encode, tile, check."),
    "idesc": ("idesc", "app", "Instruction descriptors of tcgen05.mma: decode, encode, bits."),
    "tensormap": ("tensormap", "app", "Tensor maps of TMA: decode, encode, check."),
    "tmem": (
        "tmem",
        "tmem",
        "Say which Tensor Memory lanes and columns a tile takes, and how many columns to allocate.",
    ),
    "swizzle": ("swizzle", "swizzle", "Show where a swizzle puts 16-byte chunks, and banks."),
    "mbarrier": ("mbarrier", "app", "Barriers in shared memory: decode."),
    "number": ("number", "number", "Take a number apart: fields, neighbours, roundings."),
    "quantize": ("quantize", "quantize", "Quantise an array of a file, and say what is lost."),
    "run": ("run", "run", "Run an instruction on the inputs of a file."),
    "exec": ("exec", "run", "Run a kernel's PTX, a recorded launch, or a script for Triton, without a GPU."),
    "launch": ("launch", "app", "Launch files: init, from the parameters of a kernel."),
    "check": (
        "check",
        "check",
        "Name what is wrong in a kernel: missing fences, waits and barriers, races, faults and deadlocks. No GPU is needed.",
    ),
    "profile": (
        "profile",
        "profile",
        "Count what a kernel costs: bank conflicts, sectors, tensor cycles, a bound on its time, and why. No GPU is needed.",
    ),
    "step": ("step", "step", "Step through a kernel, look at everything, and ask why."),
    "trace": ("trace", "trace", "Trace the sum of one output, as columns of bits."),
    "compare": ("compare", "compare", "Compare the results of archs, bit by bit."),
    "diagnose": ("diagnose", "diagnose", "Find the mistake behind a wrong result."),
    "explain": (
        "explain",
        "explain",
        "Find the instruction, the order of summation and the epilogue behind a library's product.",
    ),
    "plan": (
        "plan",
        "plan",
        "Say in which order a library sums a product, how that is known, and what changes between GPUs.",
    ),
    "vectors": (
        PLUGGED,
        "vectors",
        "Test vectors for other implementations: make, classes, verify.",
    ),
}
"""By name: the module in this package, what it has, and the line of help. In the order in which they are listed."""
_SETTINGS: dict[str, dict[str, Any]] = {"number": {"ignore_unknown_options": True}}


class Subcommands(TyperGroup):
    """A group of subcommands."""

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
            typer.echo(f"tcsim: {printable(str(error))}", err=True)
            raise typer.Exit(2) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{os.fspath(error.filename)!r}: " if isinstance(error.filename, (str, os.PathLike)) else ""
            typer.echo(f"tcsim: {printable(f'{where}{error.strerror or error}')}", err=True)
            raise typer.Exit(2) from None


def plugged(name: str) -> Any:
    """A subcommand that an installed package brings.

    Raises OperandError if none does.
    """
    from importlib.metadata import entry_points  # 15 ms, for one subcommand

    found = entry_points(group=PLUGGED, name=name)
    if not found:
        raise OperandError(
            f"{name}: no installed package brings this subcommand; valid: pip install of the whole tcsim"
        )
    return next(iter(found)).load()


class Table(Subcommands):
    """The subcommands of `SUBCOMMANDS`, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In reading order."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one."""
        if cmd_name not in SUBCOMMANDS:
            return None
        if cmd_name not in self.commands:
            module, name, _ = SUBCOMMANDS[cmd_name]
            found = plugged(name) if module == PLUGGED else getattr(import_module(f"{__package__}.{module}"), name)
            holder = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
            if isinstance(found, typer.Typer):
                holder.add_typer(found, name=cmd_name)
            else:
                holder.command(cmd_name, context_settings=_SETTINGS.get(cmd_name))(found)
            self.commands.update(typer.main.get_group(holder).commands)
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in SUBCOMMANDS.items()])
