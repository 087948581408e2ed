"""Random programs of operations on one mbarrier that the manual allows step by step, and running one on the model.

What a program is: `hwkernels.probes.mbarrier`. A program never asks for what is undefined: more arrivals than are pending, a
phase that can no longer end, an expect_tx that would have to end one, a state of an older phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.stimuli.stream import Stream
from hwkernels.probes import mbarrier as probe
from tcsim.isa.mbarrier.semantics import BarrierInstruction
from tcsim.memory.mbarrier import LAYOUTS, BarrierError, BarrierState, MBarrier
from tcsim.model.form import Form

STEPS = 24
"""Steps of a program."""
COUNTS = (1, 2, 2, 3, 5, 8, 32, 100, 511)
"""Expected arrivals that programs begin with; seldom the most that the layout holds."""
BYTES = (1, 16, 128, 4096, 65536)
"""What expect_tx adds."""
SLOW_WAITS = 2
"""Waits without a time hint for a phase that is not complete, in one program: each may last as long as the system lets it."""


@dataclass
class Machine:
    """The state that a program works on: the barrier, and the state that the last arrive returned."""

    instruction: BarrierInstruction
    form: Form
    kind: type[MBarrier] = MBarrier  # or a mutant
    barrier: MBarrier | None = None
    state: BarrierState | None = None
    before: MBarrier | None = None  # the object as it was before that arrival

    @property
    def hopper(self) -> bool:
        """Whether arrivals have counts, and there are bytes."""
        return self.instruction.arch.number >= 90

    def step(self, operation: int, lanes: int, value: int, flags: int) -> tuple[int, int, int, int]:
        """Do one step; what the probe stores.

        Raises BarrierError for a step that is not allowed.
        """
        result = 0
        for lane in range(lanes):
            found = self._operate(operation, value, first=lane == 0)
            result = found if lanes == 1 else 0
        tests = 0
        if flags & probe.OBSERVE:
            tests = sum(1 << parity for parity in (0, 1) if self._here.test_wait_parity(parity))
        raw = self._bits() if flags & probe.RAW_STATE else 0
        return result, tests, raw & 0xFFFF_FFFF, raw >> 32

    @property
    def _here(self) -> MBarrier:
        if self.barrier is None:
            raise BarrierError("a program begins with init")
        return self.barrier

    def _operate(self, operation: int, value: int, first: bool) -> int:
        if operation == probe.ROW:
            return self._row(value, first)
        if operation in (probe.INIT, probe.INIT_V1):
            self._init(MBarrier(value, "v1" if operation == probe.INIT_V1 else "v0"))
        elif operation == probe.INVAL:
            self._here.inval()
        elif operation == probe.EXPECT_TX:
            self._here.expect_tx(value)
        elif operation == probe.COMPLETE_TX:
            self._here.complete_tx(value)
        else:
            count = value if self.hopper or operation == probe.NO_COMPLETE else 1
            arrive = self._here.arrive_drop if operation == probe.DROP else self._here.arrive
            return self._arrived(self._here.copy(), arrive(count, operation == probe.NO_COMPLETE), first)
        return 0

    def _init(self, barrier: MBarrier) -> None:
        barrier.__class__ = self.kind
        self.barrier, self.state, self.before = barrier, None, None

    def _bits(self) -> int:
        """The object before the arrival; on sm_107 that of layout v1 is not known, and no program asks for it."""
        if self.before is None or (self.instruction.arch.name == "sm_107" and self.before.layout != "v0"):
            return 0
        return self.before.encode(arch=self.instruction.arch.name)

    def _arrived(self, before: MBarrier, state: BarrierState, first: bool) -> int:
        """What was pending, where pending_count is defined: of other states nothing is stored."""
        if first:
            self.state, self.before = state, before
        return state.pending if state.counted else 0

    def _row(self, value: int, first: bool) -> int:
        instruction: Any = self.instruction  # whose `execute` takes what its spelling takes
        row = self.instruction.row
        given: dict[str, Any] = {name: value for name in ("count", "tx_count", "parity") if name in self.form.sources}
        if "time_hint" in self.form.sources:
            given["time_hint"] = probe.TIME_HINT
        if "state" in self.form.sources:
            if self.state is None:
                raise BarrierError("no arrive has returned a state")
            given["state"] = self.state
        if row.operation == "init":
            self._init(instruction.execute(**given))
            return 0
        if row.operation == "pending_count":
            return instruction.execute(**given)
        if row.operation == "check_layout":
            return int(instruction.execute(self._here))
        if row.waits:
            if "report" not in self.form.results:
                return int(instruction.execute(self._here, **given))
            complete, report, word = instruction.execute(self._here, **given, report=True)
            return int(complete) | int(bool(report)) << 1 | (word or 0) << 8
        before = self._here  # which `execute` leaves as it is
        found = instruction.execute([self._here], **given, cta_mask=1) if row.has("cta_mask") else None
        if found is None:
            found = instruction.execute(self._here, **given)
        state, after = found if isinstance(found, tuple) else (None, found)
        self.barrier = after[0] if row.has("cta_mask") else after
        returned = state is not None and "state" in self.form.results
        return self._arrived(before, state, first) if returned else 0


@dataclass
class Writer:
    """Writes one program: at every step one of the operations that the barrier's state allows."""

    instruction: BarrierInstruction
    form: Form
    threads: bool  # steps of several lanes
    raw: bool  # steps that store the bits of the state
    words: Iterator[int]  # random
    machine: Machine = field(init=False)
    slow: int = 0

    def __post_init__(self) -> None:
        self.machine = Machine(self.instruction, self.form)

    def program(self, steps: int) -> list[tuple[int, int, int, int]]:
        """The steps."""
        found: list[tuple[int, int, int, int]] = []
        while len(found) < steps:
            for step in self._next(not found):
                self.machine.step(*step)
                found.append(step)
        return found[:steps]

    def _below(self, limit: int) -> int:
        return next(self.words) % limit

    def _chance(self, one_in: int) -> bool:
        return self._below(one_in) == 0

    def _next(self, begin: bool) -> list[tuple[int, int, int, int]]:
        if begin:
            return [self._init()]
        barrier, operation = self.machine.barrier, self.instruction.row.operation
        assert barrier is not None
        if operation in ("init", "inval"):
            if self._chance(5):
                gone = (probe.ROW if operation == "inval" else probe.INVAL, 1, 0, 0)
                return [gone, self._init()]
        elif self._chance(40):
            return [(probe.INVAL, 1, 0, 0), self._init()]
        choices: list[Callable[[], tuple[int, int, int, int] | None]] = [self._arrive] * 4 + [self._drop] * 2
        if self.machine.hopper:
            choices += [self._expect, self._complete, self._complete]
        choices += [self._row] * 7
        for _ in range(40):
            step = choices[self._below(len(choices))]()
            if step is not None:
                return [step]
        return [(probe.INVAL, 1, 0, 0), self._init()]

    def _init(self) -> tuple[int, int, int, int]:
        operation, layout = probe.INIT, "v0"
        if self.instruction.row.operation == "init":
            operation, layout = probe.ROW, self.instruction.row.layout or "v0"
        elif self.machine.hopper and self.instruction.row.names_layouts and self._chance(2):
            operation, layout = probe.INIT_V1, "v1"
        count = COUNTS[self._below(len(COUNTS))]
        return operation, 1, LAYOUTS[layout] if self._chance(12) else count, probe.OBSERVE

    def _flags(self, state: bool) -> int:
        return probe.OBSERVE | (probe.RAW_STATE if self.raw and state else 0)

    def _arrivals(self, counted: bool) -> tuple[int, int] | None:
        """Lanes and count of an arrival that does not leave a phase that cannot end."""
        barrier = self.machine.barrier
        assert barrier is not None
        room = barrier.pending - (1 if barrier.tx_count < 0 else 0)
        if room < 1:
            return None
        lanes = 1 + self._below(min(room, probe.LANES)) if self.threads and self._chance(2) else 1
        if not counted:
            return lanes, 1
        most = room // lanes
        return lanes, most if self._chance(3) else 1 + self._below(most)

    def _arrive(self) -> tuple[int, int, int, int] | None:
        barrier = self.machine.barrier
        assert barrier is not None
        if self._chance(2) and barrier.pending > 1:
            lanes, count = 1, 1 + self._below(barrier.pending - 1)
            return probe.NO_COMPLETE, lanes, count, self._flags(False)
        found = self._arrivals(self.machine.hopper)
        return None if found is None else (probe.ARRIVE, *found, self._flags(found[0] == 1 and self.machine.hopper))

    def _drop(self) -> tuple[int, int, int, int] | None:
        barrier, found = self.machine.barrier, self._arrivals(self.machine.hopper)
        assert barrier is not None
        if found is None or barrier.expected - found[0] * found[1] < 1:
            return None
        return probe.DROP, *found, self._flags(found[0] == 1 and self.machine.hopper)

    def _bytes(self, operation: str) -> int | None:
        """A number of bytes to expect or complete."""
        barrier = self.machine.barrier
        assert barrier is not None
        if operation == "expect_tx":
            number = BYTES[self._below(len(BYTES))]
            if barrier.tx_count < 0 and self._chance(2):
                number = -barrier.tx_count
            return number if barrier.pending > 0 and barrier.tx_count + number < 1 << 20 else None
        if barrier.tx_count > 0:
            return barrier.tx_count if self._chance(2) else 1 + self._below(barrier.tx_count)
        early = BYTES[self._below(3)]  # complete before they are expected
        return early if barrier.pending > 0 and barrier.tx_count > -8192 else None

    def _expect(self) -> tuple[int, int, int, int] | None:
        number = self._bytes("expect_tx")
        return None if number is None else (probe.EXPECT_TX, 1, number, probe.OBSERVE)

    def _complete(self) -> tuple[int, int, int, int] | None:
        number = self._bytes("complete_tx")
        return None if number is None else (probe.COMPLETE_TX, 1, number, probe.OBSERVE)

    def _row(self) -> tuple[int, int, int, int] | None:
        """The instruction under test, if the barrier's state allows it."""
        row, barrier, state = self.instruction.row, self.machine.barrier, self.machine.state
        assert barrier is not None
        if row.operation in ("init", "inval"):
            return None
        if row.operation in ("expect_tx", "complete_tx"):
            number = self._bytes(row.operation)
            return None if number is None else (probe.ROW, 1, number, probe.OBSERVE)
        if row.arrives:
            return self._row_arrives()
        if "state" in self.form.sources:
            if state is None:
                return None
            if not (state.counted if row.operation == "pending_count" else state.phase >= barrier.phase - 1):
                return None
        parity = self._below(2)
        if row.operation == "try_wait":
            waiting = (
                barrier.parity == parity if row.has("parity") else state is not None and state.phase == barrier.phase
            )
            limit = STEPS if "time_hint" in self.form.sources else SLOW_WAITS
            if waiting and self.slow >= limit:
                return None
            self.slow += waiting
        return probe.ROW, 1, parity if row.has("parity") else 0, probe.OBSERVE

    def _row_arrives(self) -> tuple[int, int, int, int] | None:
        row, barrier = self.instruction.row, self.machine.barrier
        assert barrier is not None
        found = self._arrivals("count" in self.form.sources)
        if found is None:
            return None
        lanes, value = found
        flags = self._flags(lanes == 1 and "state" in self.form.results)
        if row.operation == "arrive_drop" and barrier.expected - lanes * value < 1:
            return None
        if row.no_complete and lanes * value == barrier.pending and barrier.tx_count == 0:
            return None
        if row.has("tx_count"):
            number = self._bytes("expect_tx")
            if number is None or max(0, barrier.tx_count) + lanes * number >= 1 << 20:
                return None  # the lanes' bytes are added up first: 2^20 of them fault on an H200, with a count below zero too
            if barrier.pending == lanes and barrier.tx_count + lanes * number < 0:
                return None
            return probe.ROW, lanes, number, flags
        return probe.ROW, lanes, value, flags


def programs(
    instruction: BarrierInstruction, form: Form, threads: bool, raw: bool, samples: int, stream: Stream
) -> npt.NDArray[np.uint32]:
    """Random programs: uint32 (samples, STEPS, 4)."""
    found = []
    for _ in range(samples):
        rows = stream.words((STEPS, 256)) >> np.uint64(20)
        words = (word for row in rows for word in row.tolist())  # few of the rows are used
        found.append(Writer(instruction, form, threads, raw, words).program(STEPS))
    return np.array(found, np.uint32).reshape(samples, STEPS, probe.WORDS)


def run(
    instruction: BarrierInstruction,
    form: Form,
    program: npt.NDArray[np.uint32],
    kind: type[MBarrier] = MBarrier,
) -> npt.NDArray[np.uint32]:
    """What the model sees of programs: uint32 (samples, steps, 4), as the probe stores it.

    A mutant may find a step forbidden: then it sees nothing from there on.
    """
    out = np.zeros(program.shape, np.uint32)
    for sample, steps in enumerate(program.tolist()):
        machine = Machine(instruction, form, kind)
        try:
            for place, step in enumerate(steps):
                out[sample, place] = machine.step(*step)
        except BarrierError:
            if kind is MBarrier:
                raise
            out[sample, place:] = 0xFFFF_FFFF
    return out
