"""Modules, kernels and launches: the public calls of `tcsim.ptx`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcsim.core.errors import TcsimError, listing
from tcsim.core.targets import TARGETS
from tcsim.ptx import reader
from tcsim.ptx.families import bind
from tcsim.ptx.handlers import HANDLERS
from tcsim.ptx.machine import Block
from tcsim.ptx.memory import Memory, Segment
from tcsim.ptx.program import SHARED_START, Compiled, Compiler, layout
from tcsim.ptx.syntax import Function, Variable
from tcsim.ptx.syntax import Module as Syntax
from tcsim.ptx.threads import Stop


class LaunchError(TcsimError):
    """A launch that cannot be: parameters that do not fit, or beyond the arch's limits. Raised before anything runs."""


@dataclass(frozen=True)
class Hazard:
    """Something that is wrong in what the kernel did."""

    name: str
    severity: str
    message: str
    line: int | None = None
    other_line: int | None = None
    source: str | None = None
    other_source: str | None = None
    block: tuple[int, int, int] | None = None
    thread: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return dict(vars(self))


@dataclass
class Run:
    """What a launch did."""

    completed: bool
    hazards: list[Hazard]
    inexact: Counter[str]
    output: str = ""
    instructions: int = 0


class Module:
    """A module that was read."""

    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.variables = syntax.variables

    def kernel(self, name: str | None = None) -> Kernel:
        """An entry by name, or the only one."""
        entries = {key: own for key, own in self.syntax.functions.items() if own.entry and own.defined}
        if name is None and len(entries) == 1:
            return Kernel(self, next(iter(entries.values())))
        if name not in entries:
            raise LaunchError(f"no kernel {name!r}; valid: {listing(entries)}")
        return Kernel(self, entries[name])


def parse(text: str | bytes) -> Module:
    """Read a module's PTX."""
    return Module(reader.parse(text))


class Kernel:
    """An entry of a module."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.function.name

    @property
    def params(self) -> tuple[Variable, ...]:
        """The parameters."""
        return self.function.params

    @property
    def target(self) -> str:
        """The module's target."""
        return self.module.syntax.target

    @property
    def dynamic_smem(self) -> bool:
        """Whether there is an extern array in shared memory."""
        return any(own.space == "shared" and own.count is None for own in self._shared())

    def _shared(self) -> list[Variable]:
        own = [variable for variable in self.module.variables.values() if variable.space == "shared"]
        return own + [variable for variable in self.function.variables.values() if variable.space == "shared"]

    def compiled(self, memory: Memory, arch: str) -> Compiled:
        """The program, with the addresses that variables have in a memory."""
        symbols = memory.place(self.module)
        static = [own for own in self._shared() if own.count is not None]
        names = {own.name: own for own in static}
        shared, end = layout(list(names.values()), SHARED_START)
        extern = [own for own in self._shared() if own.count is None]
        dynamic = -(-end // max([16, *(own.align for own in extern)])) * max([16, *(own.align for own in extern)])
        shared |= {own.name: dynamic for own in extern}
        made = Compiler(
            self.function, symbols, shared, dict(HANDLERS), lambda compiler, item: bind(compiler, item, arch)
        ).compile()
        made.shared_bytes = dynamic if extern else end
        return made

    def launch(
        self, memory: Memory, params: Sequence[Any], grid: Sequence[int] = (1, 1, 1), block: Sequence[int] = (1, 1, 1),
        cluster: Sequence[int] = (1, 1, 1), dynamic_smem: int = 0, arch: str | None = None, schedule: Any = "late", check: bool = True,
        limits: Any = None, after: Run | None = None,
    ) -> Run:  # fmt: skip
        """Run every block of the grid, one after the other; races are not looked for yet."""
        wanted = {"cluster": tuple(map(int, cluster)) != (1, 1, 1), "schedule": schedule != "late"}
        wanted |= {"limits": limits is not None, "after": after is not None}
        if any(wanted.values()):
            asked = ", ".join(name for name, own in wanted.items() if own)
            raise LaunchError(f"{asked}: not yet; valid: cluster=(1, 1, 1), schedule='late', limits=None, after=None")
        program = self.compiled(memory, arch or TARGETS[self.target].arch)
        image = Segment(0, np.frombuffer(self._image(params), np.uint8))
        run = Run(True, [], Counter())
        gx, gy, gz = (int(v) for v in grid)
        with np.errstate(all="ignore"):
            for z in range(gz):
                for y in range(gy):
                    for x in range(gx):
                        own = Block(program, memory, image, (gx, gy, gz), tuple(block), (x, y, z), int(dynamic_smem))  # type: ignore[arg-type]
                        if not self._block(own, run):
                            return run
        return run

    def _block(self, block: Block, run: Run) -> bool:
        try:
            while block.step():
                pass
        except Stop as stop:
            run.completed = False
            run.hazards.append(Hazard(stop.name, "error", stop.detail, block=block.index, thread=stop.thread))
            return False
        if not block.done:
            run.completed = False
            run.hazards.append(
                Hazard("DEADLOCK", "error", "threads wait at a barrier that cannot complete", block=block.index)
            )
            return False
        run.instructions += block.count
        return True

    def _image(self, params: Sequence[Any]) -> bytes:
        places, size = layout(self.function.params)
        if len(params) != len(self.function.params):
            raise LaunchError(f"{self.name} takes {len(self.function.params)} parameters, not {len(params)}")
        image = bytearray(size)
        for variable, value in zip(self.function.params, params, strict=True):
            data = value if isinstance(value, bytes) else _parameter(variable, value)
            if len(data) != variable.size:
                raise LaunchError(f"{variable.name} takes {variable.size} bytes, not {len(data)}")
            image[places[variable.name] : places[variable.name] + len(data)] = data
        return bytes(image)


def _parameter(variable: Variable, value: Any) -> bytes:
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float) and variable.type in ("f32", "f64"):
        return np.array(value, np.float32 if variable.type == "f32" else np.float64).tobytes()
    if isinstance(value, int):
        bits = 8 * variable.size
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise LaunchError(f"{variable.name}={value}: valid: {bits} bits")
        return (value & ((1 << bits) - 1)).to_bytes(variable.size, "little")
    raise LaunchError(f"{variable.name} is a {type(value).__name__}")
