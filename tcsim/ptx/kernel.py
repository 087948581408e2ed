"""Modules, kernels and launches: the public calls of `tcsim.ptx`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from tcsim.core.display import Shown
from tcsim.core.errors import listing, nearest, shortened
from tcsim.ptx.check.checker import Checker
from tcsim.ptx.check.rules.assembler import told
from tcsim.ptx.check.rules.dependents import Ledger, starts_others
from tcsim.ptx.check.rules.races import Races
from tcsim.ptx.compile.compiled import SHARED_START, Compiled, layout
from tcsim.ptx.compile.linking import function_addresses, link, reach, symbols_of
from tcsim.ptx.compile.regions import VARIABLE, WAYS, asked_way
from tcsim.ptx.compile.store import key_of, store
from tcsim.ptx.counters.advice import Shape
from tcsim.ptx.counters.counters import Counters
from tcsim.ptx.counters.counting import expanded
from tcsim.ptx.counters.tally import Tally
from tcsim.ptx.hazards.hazard import Hazard, merged
from tcsim.ptx.hazards.sarif import Checked, sarif
from tcsim.ptx.launch import processes
from tcsim.ptx.launch.geometry import arch_of, check_memory, geometry
from tcsim.ptx.launch.grid import Grid, Launch, Progress
from tcsim.ptx.launch.parameters import LaunchError, image_of, refuse, whole
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.machine.limits import Limits
from tcsim.ptx.machine.memory import Memory, Segment
from tcsim.ptx.machine.observer import Observer
from tcsim.ptx.stepping.log import MOST_BYTES
from tcsim.ptx.stepping.session import Session
from tcsim.ptx.text import reader
from tcsim.ptx.text.syntax import Function, PtxError, Variable
from tcsim.ptx.text.syntax import Module as Syntax

_DYNAMIC = 1 << 24
"""Bytes that dynamic shared memory has at the most, where its variable is looked for by a place."""
SAMPLE = "sample"
"""The check of some blocks."""
_SCHEDULE = re.compile(r"(late|early)(:[1-9]\d{0,8})?")


@dataclass
class Run(Shown):
    """What a launch did. Nothing is raised for what the kernel did: it stands here, and memory is as it was left."""

    completed: bool  # False after a deadlock, a fault or a limit; the last hazard says which
    hazards: list[Hazard]
    inexact: Counter[str]  # instructions whose bits are not known exactly: how many threads executed them
    output: str = ""  # what vprintf wrote
    instructions: int = 0  # of all blocks, each counted once for the threads that executed it together
    arch: str = ""
    kernel: str = ""
    blocks: int = 0  # of the grid
    # Which blocks were watched; None: each that ran; empty with check=False.
    checked: tuple[tuple[int, int, int], ...] | None = None
    processes: int = 1  # that ran the grid; 1: it ran in order
    batch: int = field(default=1, compare=False)  # the most blocks that ran at once (tcsim.ptx.machine.batch)
    alone: str = field(default="", compare=False)  # why blocks ran one after the other; empty if they did not
    text: str = field(default="", repr=False)  # the module's PTX
    touched: Ledger | None = field(default=None, repr=False)  # global memory, if dependent grids may have started early
    counters: Counters | None = field(default=None, compare=False, repr=False)  # of a launch with counters=True

    @property
    def errors(self) -> list[Hazard]:
        """The hazards whose severity is "error"."""
        return [own for own in self.hazards if own.severity == "error"]

    @property
    def cause(self) -> Hazard | None:
        """Why it failed: the error that ended it, else the first error; None if there is none."""
        return next(iter(self.errors if self.completed else reversed(self.errors)), None)

    @property
    def hazard_block(self) -> tuple[int, ...] | None:
        """The block of the first hazard that names one."""
        return next((tuple(own.block) for own in self.hazards if own.block is not None), None)

    @property
    def sampled(self) -> str:
        """What has to be said beside the hazards of check="sample": how many blocks they are of (`sampled_of`)."""
        return sampled_of([self])

    def sarif(self, path: str = "kernel.ptx") -> dict[str, Any]:
        """The hazards as a SARIF 2.1.0 log, for code review; path: the file that has the PTX (`tcsim.ptx.hazards.sarif`)."""
        return sarif([Checked(path, self.kernel, self.text, self.hazards)], self.sampled)


def sampled_of(runs: Iterable[Run]) -> str:
    """How many blocks were watched of runs in which some were; empty if there is no such run.

    >>> sampled_of([Run(True, [], Counter(), blocks=64, checked=((0, 0, 0), (63, 0, 0))), Run(True, [], Counter())])
    'only 2 of 64 blocks were watched'
    """
    some = [(len(own.checked), own.blocks) for own in runs if own.checked and len(own.checked) < own.blocks]
    watched, blocks = (sum(counts) for counts in zip(*some, strict=True)) if some else (0, 0)
    return f"only {watched} of {blocks} blocks were watched" if some else ""


class Module(Shown):
    """A module that was read."""

    def __init__(self, syntax: Syntax, text: str = "") -> None:
        self.syntax, self.text = syntax, text
        self.variables = syntax.variables
        self.addresses = function_addresses(syntax)
        self._kernels: dict[str, Kernel] = {}

    @cached_property
    def digest(self) -> str:
        """Of its text."""
        return sha256(self.text.encode()).hexdigest()

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of its entries."""
        return tuple(name for name, own in self.syntax.functions.items() if own.entry and own.defined)

    def kernel(self, name: str | None = None) -> Kernel:
        """An entry by name, or the only one. Of a C++ function its plain name will do, if only one has it.

        Raises LaunchError if there is none of that name, or, without a name, if there is not exactly one.
        """
        names = self.kernels
        if isinstance(name, str) and name not in names:
            plain = [own for own in names if own.startswith(f"_Z{len(name)}{name}")]
            name = plain[0] if len(plain) == 1 else name
        if name is None and len(names) == 1:
            name = names[0]
        if name is None:
            valid = f"the name of one: {listing(names) or 'there is none'}"
            raise LaunchError(f"the module has {len(names)} kernels; valid: {valid}")
        if name not in names:
            close = listing(nearest(str(name), names)) if isinstance(name, str) else listing(names)
            raise LaunchError(f"no kernel {shortened(name)}; nearest: {close or 'the module has none'}")
        return self._kernels.setdefault(name, Kernel(self, self.syntax.functions[name]))


def parse(text: str | bytes, limits: Limits | None = None) -> Module:
    """Read a module's PTX: str, or bytes that may end in NUL. Of the limits those of text count.

    Raises PtxError with line and column for what is not known or not PTX, and for a text beyond the limits.
    """
    own = limits or Limits()
    syntax = reader.parse(text, own.characters, own.nesting)
    return Module(syntax, text if isinstance(text, str) else bytes(text).rstrip(b"\0").decode())


@dataclass(frozen=True, eq=False)
class Options:
    """What `Kernel.launch` and `Kernel.session` are asked for beside memory and parameters; they say what each means."""

    grid: Sequence[int]
    block: Sequence[int]
    cluster: Sequence[int]
    dynamic_smem: int
    arch: str | None
    schedule: str | int
    check: bool | str
    limits: Limits | None
    after: Run | None
    progress: Progress | None = None
    observe: Callable[[Cluster], Observer] | None = None
    cooperative: bool = False
    origins: bool = False
    races: bool = False
    counters: bool = False


@dataclass(eq=False)
class Kernel(Shown):
    """An entry of a module."""

    module: Module
    function: Function

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.function.name

    @property
    def params(self) -> tuple[Variable, ...]:
        """The parameters: each with .name, .type, .count, .size and .align."""
        return self.function.params

    @property
    def target(self) -> str:
        """The module's target."""
        return self.module.syntax.target

    @property
    def dynamic_smem(self) -> bool:
        """Whether there is an extern array in shared memory."""
        return any(own.count is None for _, _, own in self._shared())

    @cached_property
    def _functions(self) -> tuple[Function, ...]:
        """The functions of its program."""
        return reach(self.module.syntax, self.function).order

    def _shared(self) -> list[tuple[str, str, Variable]]:
        """The shared variables that the program names: function ("" for those of the module), unique name, variable."""
        named = {name for function in self._functions for item in function.body for name in symbols_of(item.operands)}
        every = [("", key, own) for key, own in self.module.variables.items() if key in named]
        every += [(function.name, *item) for function in self._functions for item in function.variables.items()]
        return [(owner, key, own) for owner, key, own in every if own.space == "shared"]

    def compiled(
        self, memory: Memory, arch: str, watched: bool = False, stepped: bool = False, traced: bool = False
    ) -> Compiled:
        """The program, with the addresses that variables have in a memory; kept for the next launch. watched: for an observer.

        stepped: one that tells its machine of every instruction. traced: one whose registers say where their elements come from.

        Raises LaunchError, with the line, for an instruction whose operands fit no form or that the arch does not have.
        """
        how = watched, stepped, traced
        key = key_of(self.module.digest, self.name, arch, how, memory.place(self.module))
        try:
            return store().get(key, partial(self._compile, memory, arch, *how))
        except PtxError as error:
            raise LaunchError(f"{self.name} on {arch}: {error}", error.line, error.column) from None

    def _compile(self, memory: Memory, arch: str, watched: bool, stepped: bool, traced: bool) -> Compiled:
        shared = self._shared()
        static = [replace(own, name=str(place)) for place, (_, _, own) in enumerate(shared) if own.count is not None]
        offsets, end = layout(static, SHARED_START)
        unit = max([16, *(own.align for _, _, own in shared if own.count is None)])
        dynamic = -(-end // unit) * unit
        places = {(owner, key): offsets.get(str(number), dynamic) for number, (owner, key, _) in enumerate(shared)}
        seen = {
            function.name: {key: place for (owner, key), place in places.items() if owner in ("", function.name)}
            for function in self._functions
        }
        made = link(self.module.syntax, self.function, memory.place(self.module), seen, arch, watched, stepped, traced)
        made.shared_bytes = dynamic if self.dynamic_smem else end
        made.shared_names = [
            (places[owner, key], own.size or _DYNAMIC, own.element_bytes, key)
            for owner, key, own in sorted(shared, key=lambda item: item[2].count is None)
        ][: len(static) + 1]  # of the dynamic ones the first
        return made

    def launch(
        self, memory: Memory, params: Sequence[Any], grid: Sequence[int] = (1, 1, 1), block: Sequence[int] = (1, 1, 1),
        cluster: Sequence[int] = (1, 1, 1), dynamic_smem: int = 0, arch: str | None = None, schedule: str | int = "late",
        check: bool | str = True, limits: Limits | None = None, after: Run | None = None, progress: Progress | None = None,
        observe: Callable[[Cluster], Observer] | None = None, cooperative: bool = False, origins: bool = False,
        races: bool = False, counters: bool = False,
    ) -> Run:  # fmt: skip
        """Run the grid.

        params: one value for each parameter, in order (`tcsim.ptx.launch.parameters`). cluster=(1, 1, 1): what .reqnctapercluster says.
        schedule: when asynchronous work completes: "late", "early", or a seed for something between; "late:24" is late but for the work of
        line 24 of the PTX, which completes early, "early:24" the other way round. check: whether to look for what does not stop a
        run: True: in every block; False: in none; "sample": in the blocks of the first cluster, of the last and of at most six between,
        which `Run.checked` names. after: a run that this one follows as a dependent launch; it must have completed. progress: called now and then, while the grid runs in order, with
        the clusters that have ended, those of the grid, and the instructions so far. observe: makes an observer of each cluster,
        that sees what it does. cooperative: all clusters run beside each other, for kernels whose blocks wait for the whole grid, with
        the workspace that grid.sync of cooperative groups needs. origins: the check follows elements through registers too, so that
        tiles that threads store and operands in registers are judged; it takes longer. races: the check looks for races in global memory
        too, between all blocks of the grid (`tcsim.ptx.check.rules.races`); one process runs it. counters: count what Nsight Compute would
        (`Run.counters`, docs/profile.md).

        Raises LaunchError for what the caller did wrong, before anything runs. What the kernel does wrong is in `Run.hazards`.
        """
        asked = Options(
            grid, block, cluster, dynamic_smem, arch, schedule, check, limits, after, progress, observe, cooperative, origins,
            races, counters,
        )  # fmt: skip
        return self._run_of(*processes.run(self._prepared(memory, params, asked)))

    def session(
        self, memory: Memory, params: Sequence[Any], grid: Sequence[int] = (1, 1, 1), block: Sequence[int] = (1, 1, 1),
        cluster: Sequence[int] = (1, 1, 1), dynamic_smem: int = 0, arch: str | None = None, schedule: str | int = "late",
        check: bool = True, limits: Limits | None = None, after: Run | None = None,
        observe: Callable[[Cluster], Observer] | None = None, log: int = MOST_BYTES, cooperative: bool = False,
    ) -> Session:  # fmt: skip
        """The same launch, standing before its first instruction: to be stepped through and asked (`tcsim.ptx.stepping.session`).

        It does what `launch` does, in the same order, and leaves the same memory; one process runs it, and `Limits.seconds` does not
        count. check: True or False. log: bytes that the log may take; beyond them it forgets what is oldest. observe, cooperative: as of `launch`.

        Raises LaunchError as `launch` does.
        """
        known = limits is None or isinstance(limits, Limits)
        own = replace(limits or Limits(), seconds=float("inf"), processes=1) if known else limits
        asked = Options(
            grid, block, cluster, dynamic_smem, arch, schedule, check, own, after, observe=observe, cooperative=cooperative,
        )  # fmt: skip
        launch = self._prepared(memory, params, asked, stepped=True)
        if isinstance(log, bool) or not isinstance(log, int) or log <= 0:
            raise LaunchError(f"{self.name}: log={shortened(log)}; valid: bytes, an integer above 0")
        return Session(launch, self.function, self.module.text, lambda grid, ended: self._run_of(grid, ended, 1), log)

    def _run_of(self, grid: Grid, completed: bool, count: int) -> Run:
        launch, clusters = grid.launch, len(grid.watched) if completed else grid.observed
        checked = None if launch.check and launch.plain is None else tuple(grid.checked)
        hazards = [*(told(launch.program, launch.arch) if launch.check else ()), *grid.hazards]
        return Run(
            completed, merged(hazards, completed, clusters), grid.inexact + grid.sums.inexact(), "".join(grid.output), grid.instructions,
            launch.arch, self.name, prod(launch.shape.grid), checked, count, grid.batch, grid.alone, self.module.text, launch.touched,
            None if grid.tally is None else _counters(grid, grid.tally, self._functions),
        )  # fmt: skip

    def _prepared(self, memory: Memory, params: Sequence[Any], asked: Options, stepped: bool = False) -> Launch:
        """The launch, checked. Raises LaunchError."""
        kind = type(memory).__name__
        way = asked_way()
        refuse(
            self.name,
            (not isinstance(memory, Memory), f"memory is a {kind}; valid: a tcsim.ptx.Memory"),
            (way not in WAYS, f"the environment has {VARIABLE}={shortened(way)}; valid: {listing(WAYS)}"),
        )
        chip = arch_of(self.target, asked.arch)
        shape = geometry(self.function, chip, asked.grid, asked.block, asked.cluster, asked.dynamic_smem)
        _options(self.name, asked, stepped)
        image = image_of(self.function, params)
        own = asked.limits or Limits()
        size = sum(variable.size for variable in self.module.variables.values())
        room = f"up to {own.memory}, as Limits(memory=) says"
        refuse(self.name, (size > own.memory, f"the module's variables have {size} bytes; valid: {room}"))
        watched = asked.observe is not None or bool(asked.check)
        program = self.compiled(memory, chip, watched or asked.counters, stepped, watched and bool(asked.origins))
        plain = self.compiled(memory, chip, asked.counters) if asked.check == SAMPLE else None
        checks = asked.check and asked.observe is None
        ledger = Ledger() if checks and starts_others(program) else None
        everyone = Races(program.narrowest_global) if checks and asked.races else None
        if ledger is not None or everyone is not None or (asked.observe is not None and not own.processes):
            own = replace(own, processes=1)  # what all blocks touch, or an observer sees, is put down in one place
        before = asked.after.touched if asked.after else None
        checker = partial(Checker, races=everyone, ledger=ledger, before=before) if asked.check else None
        watcher, kept = asked.observe or checker, (plain, ledger, everyone, before)
        alike = bool(checks) and not program.traced and all(own is None for own in kept)
        check_memory(self.function, chip, program.shared_bytes - SHARED_START, shape.dynamic_smem, program.local_bytes)
        params_segment = Segment(0, np.frombuffer(image, np.uint8))
        return Launch(
            program, memory, params_segment, shape, chip, asked.schedule, bool(asked.check), own, asked.progress, asked.cooperative,
            (watcher,) if watcher else (), alike, ledger, plain, asked.counters,
        )  # fmt: skip


def _counters(grid: Grid, tally: Tally, functions: tuple[Function, ...]) -> Counters:
    launch, program = grid.launch, grid.launch.program
    shared = program.shared_bytes - SHARED_START + launch.shape.dynamic_smem
    shape = Shape(prod(launch.shape.block), program.registers_at_launch, shared)
    lines = {item.line: item.predicate is not None for own in program.lines for item in own if item is not None}
    return Counters(expanded(tally, program, launch.arch), launch.arch, shape, lines, functions)


def _options(name: str, asked: Options, stepped: bool) -> None:
    schedule, check, limits, after = asked.schedule, asked.check, asked.limits, asked.after
    ordered = whole(schedule) or (isinstance(schedule, str) and _SCHEDULE.fullmatch(schedule))
    orders = '"late", "early", either with ":" and a line of the PTX, or an integer seed from 0'
    bounds, run = "a tcsim.ptx.Limits, or None for the defaults", "the Run of an earlier launch, or None"
    sampled, checks = isinstance(check, str) and check == SAMPLE, f'True, False or "{SAMPLE}"'
    refuse(
        name,
        (not ordered, f"schedule={shortened(schedule)}; valid: {orders}"),
        (not isinstance(check, (bool, np.bool_)) and not sampled, f"check={shortened(check)}; valid: {checks}"),
        (sampled and stepped, f'check="{SAMPLE}" of a session; valid: True or False'),
        (sampled and asked.observe is not None, f'check="{SAMPLE}" with observe=; valid: True or False'),
        (sampled and asked.races, f'check="{SAMPLE}" with races=True; valid: True, races are of all blocks'),
        (not isinstance(limits, Limits | None), f"limits is a {type(limits).__name__}; valid: {bounds}"),
        (not isinstance(after, Run | None), f"after is a {type(after).__name__}; valid: {run}"),
    )
    if after is not None and not after.completed:
        raise LaunchError(f"{name}: after is a run of {after.kernel} that did not complete; valid: a run that did")
