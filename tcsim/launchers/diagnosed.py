"""What is wrong with a launch, from the kernel itself: it is run, checked and compared, and the first mend with which everything is right is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np

from tcsim.core.array_files import open_file
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, TcsimError, listing, shortened
from tcsim.core.targets import arch_named
from tcsim.diagnosis import Diagnosis
from tcsim.inspection.three_lines import LONGEST, at, cause, place, three_lines
from tcsim.launchers import cuda_source, launch_file, recording
from tcsim.launchers.check import Check, Finding, checked
from tcsim.launchers.elements import Bytes
from tcsim.launchers.hangs import Hang, ended_right, hangs
from tcsim.launchers.job import Execution, Job, execute
from tcsim.launchers.mends import Mend, Misread, mends, of_registers
from tcsim.launchers.product import Made, Product, made_of, product_of
from tcsim.launchers.stepped import session
from tcsim.launchers.witnesses import SCHEDULES
from tcsim.ptx import HAZARDS, Limits, Session, parse
from tcsim.ptx.launch.grid import Progress
from tcsim.ptx.text.syntax import Instruction, line_in_words, place_of, statement

Verdict = Literal["correct", "mended", "named", "not explained", "not compared"]
MOST = 16
"""Mends that are tried, at the most."""
_INSTRUCTIONS = 20_000_000
"""What all of them may execute, each instruction counted once for the threads that execute it together."""


@dataclass(frozen=True, eq=False)
class Element:
    """An element of the result that is wrong."""

    said: str  # "D[0, 1] is 3.0, not 5.0"
    read: str = ""  # "A[0, 8] is read from A[0, 2]"
    item: Instruction | None = None  # that read it, or left it
    misread: Misread = field(default_factory=Misread)
    tree: tuple[str, ...] = ()  # why it is what it is
    load: Instruction | None = None  # of the operand, where it is from elsewhere


@dataclass(frozen=True, eq=False)
class LaunchDiagnosis(Shown):
    """One cause, one place, one mend.

    `correct`: nothing is wrong. `mended`: with the mend the launch is right. `named`: what is wrong is known, but no mend that was tried is
    right. `not explained`: the result is wrong, and nothing says why. `not compared`: nothing was found, and what is right is not known.
    """

    verdict: Verdict
    cause: str
    place: str
    mend: str
    product: str  # "D = A @ B.T"; why it is not known, if it is not
    check: Check
    ask: Callable[[], Diagnosis | None]  # what the numbers say: asked where that is needed
    tried: tuple[str, ...] = ()  # mends with which something is still wrong
    tree: tuple[str, ...] = ()  # why the element is what it is
    notes: tuple[str, ...] = ()

    @cached_property
    def numbers(self) -> Diagnosis | None:
        """What `tcsim.diagnose` says of the result, as matrices."""
        return self.ask()

    def lines(self, verbose: bool = False) -> list[str]:
        """Three lines at the most; verbose: all that is known."""
        found = list(three_lines(self.cause, self.place, self.mend))
        if not verbose:
            return found
        found += ["", f"product  {self.product}", *(f"note     {own}" for own in self.notes)]
        found += ["", "The numbers", *self.numbers.lines()] if self.numbers is not None else []
        found += ["", "Why", *self.tree] if self.tree else []
        findings = [
            f"{own[0].hazard.severity}: {own[0].hazard}" + (f" and {len(own) - 1} more" if own[1:] else "")
            for own in self.check.causes
        ]
        found += ["", "Check", *findings] if findings else []
        return found + (["", "Tried, and still wrong", *self.tried] if self.tried else [])

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        return {
            "verdict": self.verdict, "cause": self.cause, "place": self.place, "mend": self.mend, "product": self.product, "tried": list(self.tried),
            "why": list(self.tree), "notes": list(self.notes), "check": self.check.as_dict(),
            "numbers": None if self.numbers is None else self.numbers.as_dict(),
        }  # fmt: skip


def diagnose_launch(
    job: Job, file: str = "", gpu: Mapping[str, Bytes] | None = None, progress: Progress | None = None
) -> LaunchDiagnosis:  # fmt: skip
    """What is wrong with a launch: `check`, `why` and `tcsim.diagnose` together, and mends that are tried.

    The result is compared with what the launch expects, else with the product of the arrays that its own instructions multiply.
    gpu: what a GPU left in arrays, in the place of the model's result.

    Raises what `tcsim.launchers.job.execute` raises.
    """
    return _Launch(job, file, gpu or {}, progress).diagnosis()


def of_gpu(job: Job) -> tuple[Job, dict[str, Bytes]]:
    """A recorded launch that expects nothing, and what a GPU left."""
    gpu = {own.name: own.expected for own in job.regions if own.expected is not None}
    return replace(job, regions=tuple(replace(own, expected=None) for own in job.regions)), gpu


def given(job: Job, arrays: Mapping[str, Any], what: str) -> dict[str, Bytes]:
    """Arrays that a GPU left, as bytes: by the names of the launch; a single one is the only array that is expected, or the last.

    Raises OperandError for other names, sizes or types.
    """
    named = {own.name: own for own in job.regions}
    if len(arrays) == 1 and not named.keys() & arrays.keys() and named:
        name = next((own.name for own in job.regions if own.expected is not None), list(named)[-1])
        arrays = {name: next(iter(arrays.values()))}
    found = {}
    for name, array in arrays.items():
        own = named.get(name)
        if own is None:
            raise OperandError(f"{what} holds {shortened(name)}; valid: {listing(named)}")
        if array.size != prod(own.shape) or array.dtype.itemsize != own.elements.dtype.itemsize:
            valid = f"{own.shape} of {own.elements.natural}, or codes of {own.elements.dtype}"
            raise OperandError(f"{what}: {name} is {array.shape} of {array.dtype}; valid: {valid}")
        found[name] = own.elements.to_bytes(np.ascontiguousarray(array).view(own.elements.dtype))
    return found


def diagnose(
    file: str, launch: str | None = None, *, arch: str | None = None, observed: Mapping[str, Any] | None = None
) -> LaunchDiagnosis:
    """What is wrong with a launch: `diagnose_launch` of CUDA C++ or PTX with its launch file, or of a launch that was recorded on a GPU.

    observed: what a GPU left in arrays, by name; of a recorded launch that is what it holds.

    Raises OperandError and FileNotFoundError for files that cannot be read, and what `diagnose_launch` raises.
    """
    if launch is None:
        job, gpu = of_gpu(recording.read(file).job(arch))
    else:
        with open_file(file) as stream:
            ptx = stream.read(Limits().characters + 1)
        if file.endswith((".cu", ".cuh")):
            ptx = cuda_source.ptx_of(file, arch_named(arch or launch_file.arch_of(launch) or "sm_90"), "diagnose")
        job, gpu = launch_file.read(launch, ptx), dict[str, Bytes]()
        job = job if arch is None else replace(job, arch=arch)
    return diagnose_launch(job, file, gpu | given(job, observed or {}, "observed"))


class _Launch:
    """A launch and what is known of it."""

    def __init__(self, job: Job, file: str, gpu: Mapping[str, Bytes], progress: Progress | None) -> None:
        self.job, self.gpu, self.file, self.progress = job, gpu, file, progress
        self.ran = [execute(replace(job, schedule=own, origins=True), progress) for own in SCHEDULES]
        self.check = checked(job, file, self.ran)
        self.kernel = parse(job.ptx, job.limits).kernel(job.kernel)
        self.body = self.kernel.function.body
        self.session, self.product, self.unknown = self._product()
        self.after = {**self.ran[0].after, **gpu}
        self.mended = self.product  # that of the launch with the mend
        self.instructions = 0
        # By the lines of an error: the first mend with which there are fewer.
        self.helpful: dict[tuple[int | None, int | None], Mend] = {}

    def _product(self) -> tuple[Session | None, Product | None, str]:
        """Of the first schedule that says it."""
        said, own = "the launch does not end", None
        for schedule in SCHEDULES if any(one.run.completed for one in self.ran) else ():
            own = session(replace(self.job, schedule=schedule))
            own.run()
            with suppress(OperandError):
                found, said = product_of(own, self.job)
                if found is not None:
                    return own, found, ""
        return own, None, said

    @cached_property
    def numbers(self) -> Diagnosis | None:
        """What `tcsim.diagnose` says of the result."""
        return None if self.product is None else self.product.diagnosed(self.job, self.after)

    # --- right or wrong

    @cached_property
    def right(self) -> bool:
        """Whether the result is what is expected, under every schedule."""
        if self.gpu and self.product is None:
            return all(np.array_equal(self.ran[0].after[name], data) for name, data in self.gpu.items())
        return (bool(self.gpu) or _ended_alike(self.ran)) and self._right(self.ran[0], self.product, self.after)

    def _right(self, ran: Execution, product: Product | None, after: Mapping[str, Bytes]) -> bool:
        if ran.equal is not None and not self.gpu:
            return ran.equal
        return product is None or product.is_right(self.job, after)

    def rights(self, mend: Mend, finding: Finding | None) -> bool:
        """Whether a launch with a mend is right, nothing that a check finds is an error, and the finding that it is for is gone."""
        text = self.job.ptx.rstrip(b"\0").decode("utf-8", "replace")
        job, ran = replace(self.job, ptx=mend.applied(text).encode()), list[Execution]()
        try:
            for schedule in SCHEDULES:
                ran.append(execute(replace(job, schedule=schedule, origins=True), self.progress))
                self.instructions += ran[-1].run.instructions
                left = {one.name for one in ran[-1].run.hazards if one.severity in ("error", "repaired")}
                if not ran[-1].run.completed:
                    return False
                if ran[-1].run.errors or (finding is not None and finding.hazard.name in left):
                    if finding is not None and len(ran[-1].run.errors) < len(self.ran[0].run.errors):
                        self.helpful.setdefault((finding.hazard.line, finding.hazard.other_line), mend)
                    return False
            return self._all_right(ran)
        except TcsimError:
            return False  # no PTX, or no launch

    def _all_right(self, ran: Sequence[Execution]) -> bool:
        """Whether what a launch with a mend leaves is right, under each schedule alike."""
        if not ended_right(ran) or not self._right(ran[0], self.product, ran[0].after) or not _ended_alike(ran):
            return False
        if self.product is None and ran[0].equal is None:
            own = session(ran[0].job)
            own.run()
            self.mended, _ = product_of(own, ran[0].job)
        return self._right(ran[0], self.mended, ran[0].after)

    # --- the answer

    def diagnosis(self) -> LaunchDiagnosis:
        """The whole answer."""
        errors = [own for own in self.check.findings if own.hazard.severity == "error"]
        found = errors + [own for own in self.check.findings if self.right and own.hazard.severity == "repaired"]
        if self.right and not found and not self.compared:
            looked = "" if self.check.races else "; races in global memory were not looked for: `tcsim check --races`"
            said = f"the launch ends and check finds no error{looked}, but the result is not compared"
            help = "add [expected.NAME] to the launch file, what the array must hold; a product of tensor cores needs only the shapes of its arrays"
            return self._said("not compared", f"{said}: {self.unknown}", mend=help)
        if self.right and not found:
            return self._said("correct", f"nothing is wrong: the launch ends, check finds no error, and {self._by()}")
        element, tried = None if self.right else self._element(), list[str]()
        if any(hangs(own.run.hazards) for own in self.ran):
            hang = Hang(self.ran, self.progress, self._all_right)
            self.check, tried = replace(self.check, mended=hang.mended()), hang.tried
            if self.check.mended is not None and self.check.hang is not None:
                shown, error = f"{self.check.mended.mend.said}: tried, and {self._proof()}", self.check.hang
                return self._said("mended", self._cause(error, None), self._place(error, None), shown, tried[:-1])
        for finding, mend in self._mends(found, element):
            if self.rights(mend, finding):
                shown = f"{mend.said}: tried, and {self._proof()}"
                verdict: Verdict = "correct" if self.right and not errors else "mended"
                return self._said(
                    verdict,
                    f"{self.product}: {mend.cause}" if mend.cause else self._cause(finding, element),
                    self._place(finding, element),
                    shown,
                    tried,
                    element,
                )
            tried.append(mend.said)
        if element is not None and element.load is not None:  # registers that are exchanged were tried
            element = replace(element, item=element.load)
        first = next(iter(found), None)
        verdict = (
            "correct"
            if self.right and not errors
            else "named"
            if first is not None or self._explained
            else "not explained"
        )
        advice = HAZARDS[first.hazard.name].fix if first is not None else self._advice()
        shown = f"{len(tried)} tried, none is right. {advice}" if tried else f"not tried: {advice}"
        return self._said(verdict, self._cause(first, element), self._place(first, element), shown, tried, element)

    @property
    def _explained(self) -> bool:
        return self.numbers is not None and bool(self.numbers.explanations)

    @property
    def compared(self) -> bool:
        """Whether anything says what the result should be."""
        return bool((self.ran[0].equal and not self.gpu) or self.product)

    def _by(self) -> str:
        return "memory is as expected" if self.ran[0].equal and not self.gpu else f"{self.product} in every element"

    def _said(
        self, verdict: Verdict, cause: str, place: str = "", mend: str = "", tried: Sequence[str] = (), element: Element | None = None
    ) -> LaunchDiagnosis:  # fmt: skip
        product = str(self.product) if self.product else f"not known: {self.unknown}"
        tree = element.tree if element else ()
        return LaunchDiagnosis(
            verdict,
            cause,
            place,
            mend,
            product,
            self.check,
            lambda: self.numbers,
            tuple(tried),
            tree,
            tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        """How a GPU's result and the model's compare."""
        for name, data in self.gpu.items():
            bytes = int((self.ran[0].after[name] != data).sum())
            yield (
                f"{name}: the GPU's bits are the model's"
                if not bytes
                else f"{name}: {bytes} of {len(data)} bytes are not the model's"
            )

    def _mends(self, found: Sequence[Finding], element: Element | None) -> Iterator[tuple[Finding | None, Mend]]:
        """What a check asks for, the first finding of each cause first, then what helped against some at once; where it finds nothing, what the numbers do."""
        first = {id(own[0].hazard) for own in self.check.causes}
        found = sorted(found, key=lambda own: id(own.hazard) not in first)
        by_hazard = {id(own.hazard): own for own in found}
        every: list[tuple[Finding | None, Mend]] = [
            (by_hazard[id(own)], mend)
            for own, mend in mends(self.body, [own.hazard for own in found], self.ran[0].run.arch)
        ]
        if element is not None and self.product is not None:
            every += [
                (None, own) for own in of_registers(self.body, self.product.instruction.mnemonic, element.misread)
            ]
        seen = set[Any]()
        for finding, mend in every:
            if mend.changes not in seen and len(seen) < MOST and self.instructions < _INSTRUCTIONS:
                seen.add(mend.changes)
                yield finding, mend
        helped = {own.changes[0][:2]: own for own in self.helpful.values()}
        if len(helped) > 1:
            said = " and ".join(own.said for own in helped.values())
            yield found[0], Mend(said, tuple(change for own in helped.values() for change in own.changes))

    # --- in words

    def _proof(self) -> str:
        if self.ran[0].equal is None and self.mended is None:
            return "the launch ends and check finds no error"
        return (
            "memory is as expected" if self.ran[0].equal is not None else f"{self.mended} in every element"
        ) + "; check finds no error"

    def _cause(self, finding: Finding | None, element: Element | None) -> str:
        if finding is not None:
            return cause(finding.hazard)
        if self._explained and self.numbers is not None:
            more = len({own.mistake for own in self.numbers.explanations}) - 1
            said = str(self.numbers.explanations[0])
            if len(said) > LONGEST:
                said = self._pitch or self.numbers.explanations[0].mistake
            return f"{self.product}: {said}" + (f", or {more} more that give the same" if more else "")
        if element is not None and element.read:
            return f"{self.product}: {element.read}"
        return f"{self.product or 'the result'} is wrong, and nothing that is known gives it"

    @cached_property
    def _pitch(self) -> str:
        """Of rows that are read too near to each other, or too far, what addresses say."""
        return "" if self.product is None or self.session is None else self.product.pitch(self.session, self.job)

    def _advice(self) -> str:
        if (
            self._explained
            and self.numbers is not None
            and len(str(self.numbers.explanations[0])) > LONGEST
            and self._pitch
        ):
            return "Look at the leading dimension in that address."
        if self.numbers is not None and self.numbers.explanations:
            return self.numbers.explanations[0].said()[0]
        return "-v shows where it is wrong, and why."

    def _place(self, finding: Finding | None, element: Element | None) -> str:
        parts = [] if element is None else [element.said, element.read]
        if finding is not None and finding.here.line is not None:
            parts.insert(0, place(finding.hazard, *finding.quoted))
        elif element is not None and element.item is not None:
            parts.insert(0, at(element.item.line, place_of(element.item), "", statement(element.item)))
        return "; ".join(filter(None, parts))

    # --- an element

    def _element(self) -> Element | None:
        """One that is wrong, and what it was read from."""
        found = self._first_wrong()
        if found is None:
            return None
        name, index, said = found
        if self.session is None or name not in self.session.arrays:
            return Element(said)
        try:
            why = self.session.why(f"{name}[{', '.join(map(str, index))}]")
            tree = tuple(why.lines())
            made = made_of(self.session, name, index)
        except OperandError:
            return Element(said)  # several elements in a byte have no names of their own
        if made is None or self.product is None or self.product.d.name != name:
            last = why.nodes[0].last if why.nodes else None
            return Element(said, item=last.site.item if last is not None else None, tree=tree)
        return replace(self._misread(made, index[-2:]), said=said, tree=tree)

    def _misread(self, made: Made, index: Sequence[int]) -> Element:
        """The first element of A or B that is not the one that the product needs."""
        assert self.product is not None
        last = made.last.last
        stored, depth = None if last is None else last.site.item, self.product.depth(self.job)
        needed = {self.product.wanted(name, index, k) for name in "ab" for k in range(depth)}
        if len(made.read["a"]) < depth and {place for name in "ab" for place in made.read[name]} <= needed:
            first = made.read["a"][0]
            said = f"{len(made.read['a'])} of {depth} along K are multiplied" + (
                f", from {_named(first)} on" if first else ""
            )
            return Element("", said, made.records[-1].site.item)
        for name in "ab":
            places, each = made.read[name], max(1, len(made.read[name]) // len(made.records))
            wanted = [self.product.wanted(name, index, k) for k in range(len(places))]
            wrong = [k for k, place in enumerate(places) if place is not None and place != wanted[k]]
            if wrong:
                k = wrong[0]
                said = f"{_named(wanted[k])} is read from {_named(places[k] or wanted[k])}"
                items = dict.fromkeys(
                    made.records[min(one // each, len(made.records) - 1)].site.item.line for one in wrong
                )
                where, registers = self.product.registers(name, index, places, wrong)
                lines = {line for own in (made.nodes[name], *made.nodes[name].children) for line in own.lines}
                misread = Misread(where, tuple(items), tuple(sorted(lines)), registers)
                record = made.records[min(k // each, len(made.records) - 1)]
                item = stored if where == "d" else record.site.item
                loads = [own for own in self.body if own.line in misread.loads]
                if loads and (
                    registers is None or loads[0].opcode.startswith("wmma")
                ):  # the address is wrong, of the load or of the store
                    item = loads[0]
                    if where == "d" and stored is not None:
                        said += f" (or it is stored to another place, {line_in_words(stored)})"
                return Element("", said, item, misread, load=loads[0] if loads and where != "d" else None)
        return Element("", item=stored)

    def _first_wrong(self) -> tuple[str, tuple[int, ...], str] | None:
        for own in self.ran[0].comparisons if not self.gpu else ():
            if own.differing and own.first is not None:
                got, want = (own.elements.value_text(code) for code in (own.first.got, own.first.want))
                return own.name, own.first.index, f"{_named((own.name, own.first.index))} is {got}, not {want}"
        if self.product is None or self.product.is_right(self.job, self.after):
            return None
        place, value, right, _ = self.product.furthest(self.job, self.after)
        return self.product.d.name, place, f"{_named((self.product.d.name, place))} is {value:.6g}, not {right:.6g}"


def _ended_alike(ran: Sequence[Execution]) -> bool:
    """Whether every schedule ends, and leaves the same."""
    same = (
        np.array_equal(ran[0].after[own.name], other.after[own.name]) for own in ran[0].job.regions for other in ran[1:]
    )
    return all(own.run.completed for own in ran) and all(same)


def _named(place: tuple[str, tuple[int, ...]]) -> str:
    return f"{place[0]}[{', '.join(map(str, place[1]))}]"
