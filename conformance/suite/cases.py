"""What a conformance run consists of: its settings, its cases, and how one case gets its verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np

import tcsim
from conformance.comparison import Array, Comparison
from conformance.isa import testbench_of
from conformance.stimuli import classes as inputs
from conformance.stimuli import frozen
from conformance.suite import published, published_digests, recordings, rerun
from conformance.suite.hardware import Hardware, NoAssembler, Unassembled, Workshop
from conformance.suite.published import PublishedSet
from conformance.suite.published_digests import PublishedDigest
from conformance.suite.recordings import RecordedCase, Recording, result_digest
from conformance.testbench import Inputs, Testbench
from hwkernels.device.worker import ContextLost, Hang
from hwkernels.probes import probe
from hwkernels.probes.probe import Probe
from tcsim import catalog
from tcsim.core.errors import shortened
from tcsim.core.targets import accepting
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

Mode = Literal["live", "replay"]
Verdict = Literal[
    "PASS", "FAIL", "NOT_SUPPORTED", "REPLAYED", "UNVERIFIED", "UNSTABLE", "HANG", "CONTEXT_LOST", "UNTESTED"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
COMPARED: tuple[Verdict, ...] = ("PASS", "REPLAYED")
"""The verdicts of cases whose every bit was compared and agreed."""
RAW_BYTES = 256
"""What is kept raw of a case of a further seed or level, at most."""
Published = PublishedSet | PublishedDigest
"""What others published of a GPU: results, or a digest of results."""
FAILED: tuple[Verdict, ...] = ("FAIL", "UNSTABLE", "HANG", "CONTEXT_LOST")


@dataclass(frozen=True)
class Case:
    """One input class of one instruction with one seed: reproducible from its id alone."""

    mnemonic: str
    name: str  # the input class
    seed: int

    @property
    def id(self) -> str:
        """`<mnemonic>-<class>-<seed>`.

        >>> Case("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "wide", 0).id
        'mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32-wide-0'
        """
        return f"{self.mnemonic}-{self.name}-{self.seed}"

    @staticmethod
    def parse(text: str) -> Case:
        """The case of an id.

        Raises ValueError if it is not one.
        """
        match = re.fullmatch(r"([^\s-]+)-([a-z]+)-([0-9]{1,20})", text) if len(text) <= 400 else None
        if match is None:
            raise ValueError(f"no case id {shortened(text)}; valid: <mnemonic>-<class>-<seed>")
        return Case(match[1], match[2], int(match[3]))


@dataclass(frozen=True)
class Outcome:
    """The verdict on a case, and what to print."""

    verdict: Verdict
    outputs: int = 0  # result elements compared
    mismatches: int = 0
    how: str = ""  # on which GPU, from which recording, or why not
    text: str = ""  # mismatch lines, rerun command and trace of a failure


@dataclass(frozen=True)
class Settings:
    """What the command line asked for, resolved."""

    arch: str
    mode: Mode
    record: bool = False
    samples: int | None = None  # warps per case; None: each class's default
    seed: int = 0
    root: Path = recordings.ROOT
    level: int = 1
    blocks: int = 1  # of each whole output that a replay computes again; 0: all


class Suite:
    """Runs cases under one set of settings."""

    def __init__(
        self, settings: Settings, hardware: Hardware | None = None, mnemonics: Iterable[str] | None = None
    ) -> None:
        self.settings = settings
        self.hardware = hardware
        self.mnemonics = mnemonics
        """The only ones that are asked for; None: every one of the arch."""
        self._instructions: dict[str, Instruction] = {}
        self._recordings: dict[str, Recording | None] = {}
        self._new: dict[str, Recording] = {}
        self.coming: Case | None = None
        """The case that will be run next: its inputs are made while this one's results are computed."""
        self.written: list[Path] = []

    # --- what there is to run

    @cached_property
    def rows(self) -> list[Row]:
        """The arch's rows that are asked for, without those that assemble to nothing."""
        if self.mnemonics is not None:
            return [self.instruction(mnemonic).row for mnemonic in sorted(self.mnemonics)]
        return list(catalog.on_arch(self.settings.arch))

    @cached_property
    def workshop(self) -> Workshop:
        """Makes the probes of the arch's instructions, of those that are alike the first."""
        alike = {testbench_of(row.family).alike(row): row.mnemonic for row in reversed(self.rows)}
        return Workshop([self.instruction(name) for name in reversed(alike.values())])

    def cases(self) -> Iterator[Case]:
        """Every case of a row with an oracle: live all of them; in replay the recorded ones and those that wait to be."""
        for row in self.rows:
            own = self.names(row.mnemonic)
            if self.settings.mode == "live":
                yield from (Case(row.mnemonic, name, self.settings.seed) for name in own)
            elif (recorded := self.recorded.get(row.mnemonic)) is not None and own:
                seeds = {seed for _, seed in recorded}
                if self.settings.seed not in seeds:
                    raise recordings.RecordingError(
                        f"{row.mnemonic} has no recording with --seed {self.settings.seed}; recorded seeds: {sorted(seeds)}"
                    )
                names = [name for name, seed in recorded if seed == self.settings.seed and name in own]
                names += [name for name in self.waiting(row.mnemonic) if name not in names]
                yield from (Case(row.mnemonic, name, self.settings.seed) for name in names)

    def names(self, mnemonic: str) -> list[str]:
        """The input classes of the level that was asked for."""
        instruction = self.instruction(mnemonic)
        testbench = testbench_of(instruction.row.family)
        return testbench.every_class(instruction) if self.settings.level == 1 else testbench.level_2(instruction)

    def waiting(self, mnemonic: str) -> list[str]:
        """Those of them that need not be recorded yet."""
        instruction = self.instruction(mnemonic)
        testbench = testbench_of(instruction.row.family)
        return testbench.unrecorded(instruction) if self.settings.level == 1 else []

    @cached_property
    def published(self) -> tuple[Published, ...]:
        """What others published of the arch's hardware: replayed on any machine, also in a live run."""
        arch, root = self.settings.arch, self.settings.root
        return (*published.read(arch, root), *published_digests.read(arch, root))

    def unproven(self) -> Iterator[str]:
        """Mnemonics without an oracle here: they are assembled, and no more; of those that are alike, one."""
        if self.settings.mode == "replay":
            proven = {mnemonic for item in self.published for mnemonic in item.mnemonics}
            rows = (row for row in self.rows if row.mnemonic not in proven and row.mnemonic not in self.recorded)
            alike: dict[object, str] = {}
            for row in rows:
                alike.setdefault(testbench_of(row.family).alike(row), row.mnemonic)
            yield from alike.values()

    def refused(self) -> Iterator[Row]:
        """Rows that the assembler accepts on this arch and drops; in a live run those that the model does not compute, too."""
        _, targets = accepting(self.settings.arch)
        for row in catalog.rows().values():
            if row.dropped and set(row.targets) & set(targets):
                yield row
        if self.settings.mode == "live":
            yield from (row for row in self.rows if self.why_refused(row))

    def why_refused(self, row: Row) -> str:
        """Why no case of a row can be compared, or nothing."""
        if row.dropped:  # there is no such instruction to ask
            return row.dropped
        unmodelled = str(getattr(self.instruction(row.mnemonic), "unmodelled", ""))
        return unmodelled or testbench_of(row.family).no_machine

    def instruction(self, mnemonic: str) -> Instruction:
        """The instruction on the arch under test, made once: what it caches serves all its cases."""
        if mnemonic not in self._instructions:
            self._instructions[mnemonic] = tcsim.instruction(mnemonic, arch=self.settings.arch)
        return self._instructions[mnemonic]

    @cached_property
    def recorded(self) -> dict[str, list[tuple[str, int]]]:
        """The recorded (class, seed) of each recorded mnemonic on the arch under test: no result is read."""
        return recordings.listed([row.mnemonic for row in self.rows], self.settings.arch, self.settings.root)

    def recording(self, mnemonic: str) -> Recording | None:
        """The recording of a mnemonic on the arch under test, read once."""
        if mnemonic not in self._recordings:
            self._recordings[mnemonic] = recordings.read(mnemonic, self.settings.arch, self.settings.root)
        return self._recordings[mnemonic]

    def samples(self, case: Case) -> int:
        """Warps in a case."""
        if self.settings.samples is not None:
            return self.settings.samples
        instruction = self.instruction(case.mnemonic)
        return testbench_of(instruction.row.family).samples(instruction, case.name)

    def inputs(self, case: Case, samples: int) -> Inputs:
        """The inputs of a case: from the frozen generators; from the tree's own those of a class that is not frozen yet."""
        try:
            return frozen.generators().ask("case", case.mnemonic, self.settings.arch, case.name, case.seed, samples)
        except frozen.UnknownCase:
            instruction = self.instruction(case.mnemonic)
            return testbench_of(instruction.row.family).inputs(instruction, case.name, case.seed, samples)

    def _expect(self) -> None:
        """Have the inputs of the next case made; what is wrong with it, it will say itself."""
        case = self.coming
        try:
            recording = self.recording(case.mnemonic) if case is not None else None
        except recordings.RecordingError:
            return
        if case is not None and recording is not None and (case.name, case.seed) in recording.cases:
            samples = recording.cases[case.name, case.seed].samples
            frozen.generators().expect("case", case.mnemonic, self.settings.arch, case.name, case.seed, samples)

    # --- running

    def run(self, case: Case) -> Outcome:
        """Compare one case, live or replayed."""
        try:
            return self._live(case) if self.settings.mode == "live" else self._replay(case)
        except recordings.Unwritable:
            raise
        except recordings.RecordingError as error:  # what the header lists is not there, or cannot be read
            return Outcome("FAIL", how="recording", text=str(error))

    def run_published(self, item: Published) -> Outcome:
        """Compare one published set."""
        comparison, how = item.compare(), str(item.evidence)
        if not comparison.mismatches:
            return Outcome("REPLAYED", comparison.outputs, 0, how)
        title = f"{item.name}, replayed as {item.mnemonic}"
        text = self._explain(title, item, comparison, self.rerun_published(item))
        return Outcome("FAIL", comparison.outputs, comparison.mismatches, how, text)

    def assemble(self, mnemonic: str) -> Outcome:
        """Assemble the probe of an instruction for every target of the arch, and check its machine code."""
        instruction = self.instruction(mnemonic)
        checked = []
        for target in instruction.targets:
            try:
                complaint = self.workshop.probe(instruction, target).complaint
            except NoAssembler as error:
                return Outcome("UNTESTED", how=str(error))
            except Unassembled as error:
                return Outcome("FAIL", how="assembler", text=str(error))
            if complaint:
                return Outcome("FAIL", how="machine code", text=f"{mnemonic} for {target}: {complaint}")
            checked.append(target)
        return Outcome(
            "UNVERIFIED",
            how=f"assembled for {', '.join(checked)}; no hardware and no recording; {instruction.evidence}",
        )

    def _live(self, case: Case) -> Outcome:
        if self.hardware is None:
            raise RuntimeError("a live suite needs hardware")
        instruction, samples = self.instruction(case.mnemonic), self.samples(case)
        testbench = testbench_of(instruction.row.family)
        given = self.inputs(case, samples)
        where = self.hardware.text
        try:
            made = self.workshop.probe(instruction, instruction.targets[0])
            results = self.hardware.run(made, given, repeat=2)
        except Hang as error:
            return Outcome("HANG", how=where, text=f"{error}\n{self.rerun(case)}")
        except ContextLost as error:
            return Outcome("CONTEXT_LOST", how=where, text=f"{error}\n{self.rerun(case)}")
        except NoAssembler as error:
            return Outcome("UNTESTED", how=str(error))
        except Unassembled as error:
            return Outcome("FAIL", how=where, text=f"{error}\n{self.rerun(case)}")
        if not np.array_equal(results[0], results[1]):
            changed = int((results[0] != results[1]).sum())
            text = f"two runs of {case.id} differ in {changed} of {results[0].size} registers\n{self.rerun(case)}"
            return Outcome("UNSTABLE", how=where, text=text)
        model = testbench.model(instruction, given)
        if self.settings.record:
            self._remember(case, made, given, results[0], model)
        return self._compared(case, instruction, testbench, given, results[0], model, "PASS", where)

    def _replay(self, case: Case) -> Outcome:
        instruction, recording = self.instruction(case.mnemonic), self.recording(case.mnemonic)
        if recording is None:
            return Outcome("UNTESTED", how=f"no recording on {self.settings.arch}")
        if (case.name, case.seed) not in recording.cases:
            return Outcome("UNTESTED", how="not recorded yet: this class waits for a GPU")
        recorded, origin = recording.cases[case.name, case.seed], recording.origin_of(case.name, case.seed)
        hardware = recording.results[case.name, case.seed]
        testbench = testbench_of(instruction.row.family)
        given = self.inputs(case, recorded.samples)
        self._expect()
        trouble = self._stale(instruction, recording, recorded, given)
        if trouble:
            again = rerun.command("", "--arch", self.settings.arch, "--record", root=self.settings.root)
            text = f"{trouble}; record it again with `{again}`"
            return Outcome("FAIL", how=str(origin), text=text)
        asked = self.settings.samples
        if asked is not None and asked > recorded.samples:
            text = f"--samples {asked}: {case.id} was recorded with {recorded.samples}; valid: 1 to {recorded.samples}"
            return Outcome("FAIL", how=str(origin), text=text)
        how = f"recorded on {origin}"
        if recorded.result_sha256 and (asked is None or asked > len(hardware)):
            return self._judge_digest(case, instruction, testbench, given, hardware, recorded, how)
        given = {name: array[:asked] for name, array in given.items()}
        model = testbench.model(instruction, given)
        return self._compared(case, instruction, testbench, given, hardware[:asked], model, "REPLAYED", how)

    def _judge_digest(
        self,
        case: Case,
        instruction: Instruction,
        testbench: Testbench,
        given: Inputs,
        hardware: Array,
        recorded: RecordedCase,
        how: str,
    ) -> Outcome:
        """Compare the samples that were kept bit for bit, and all of them by their digest."""
        kept = len(hardware)
        model = testbench.model(instruction, given)
        if kept:
            first = {name: array[:kept] for name, array in given.items()}
            outcome = self._compared(case, instruction, testbench, first, hardware, model[:kept], "REPLAYED", how)
            if outcome.verdict != "REPLAYED":
                return outcome
        if testbench.kept(instruction, case.name) is None:
            outputs = testbench.compare(instruction, given, model, model).outputs
        else:
            outputs = testbench.outputs(instruction, recorded.samples)
        if result_digest(model) == recorded.result_sha256:
            return Outcome("REPLAYED", outputs, 0, how)
        text = (
            f"{case.id}: the digest of {outputs} recorded outputs differs from the model's, though the {kept} samples that "
            f"were kept agree; run it on a GPU to see where: {self.rerun(case).replace('--replay', '--live')}"
        )
        return Outcome("FAIL", outputs, 1, how, text)

    def _stale(
        self,
        instruction: Instruction,
        recording: Recording,
        recorded: RecordedCase,
        given: Inputs,
    ) -> str:
        """Why a recording no longer speaks of what would be run today, or nothing."""
        if inputs.digest(given) != recorded.inputs_sha256:
            return (
                f"the inputs of class {recorded.name} are no longer those that {instruction.mnemonic} was recorded with"
            )
        origin = recording.origin_of(recorded.name, recorded.seed)
        if probe.ptx_sha256(instruction.row, origin.target) != origin.ptx_sha256:
            return f"the probe of {instruction.mnemonic} is no longer the PTX that was recorded"
        got = recording.results[recorded.name, recorded.seed].shape
        few = bool(recorded.result_sha256) and got[0] <= recorded.samples
        if got[:1] != (recorded.samples,) and not few:
            return f"the recorded result has shape {got}, but its header says {recorded.samples} samples"
        return ""

    def _compared(
        self,
        case: Case,
        instruction: Instruction,
        testbench: Testbench,
        given: Inputs,
        hardware: Array,
        model: Array,
        agreed: Verdict,
        how: str,
    ) -> Outcome:
        comparison = testbench.compare(instruction, given, hardware, model)
        if not comparison.mismatches:
            return Outcome(agreed, comparison.outputs, 0, how)
        text = self._explain(case.id, instruction, comparison, self.rerun(case))
        return Outcome("FAIL", comparison.outputs, comparison.mismatches, how, text)

    def _explain(self, title: str, instruction: Instruction | Published, comparison: Comparison, rerun: str) -> str:
        lines = [
            f"{title}: {comparison.mismatches} of {comparison.outputs} outputs differ; evidence {instruction.evidence}"
        ]
        lines += [mismatch.line() for mismatch in comparison.first]
        if comparison.mismatches > len(comparison.first):
            lines.append(f"... and {comparison.mismatches - len(comparison.first)} more")
        return "\n".join([*lines, rerun, *comparison.first[0].trace()])

    def rerun(self, case: Case) -> str:
        """The command that runs only this case again."""
        settings = self.settings
        options = ["--arch", settings.arch, f"--{settings.mode}"]
        options += ["--seed", str(settings.seed)] if settings.seed else []
        options += ["--samples", str(settings.samples)] if settings.samples is not None else []
        return f"rerun: {rerun.command(f'test_cases.py::test_case[{case.id}]', *options, root=settings.root)}"

    def rerun_published(self, item: Published) -> str:
        """The command that runs only this published set again."""
        test, options = f"test_published.py::test_published[{item.name}]", ("--arch", item.arch, "--replay")
        return f"rerun: {rerun.command(test, *options, root=self.settings.root)}"

    # --- recording

    def _remember(self, case: Case, made: Probe, given: Inputs, result: Array, model: Array) -> None:
        if self.hardware is None:
            raise RuntimeError("a live suite needs hardware")
        recording = self._new.get(case.mnemonic)
        if recording is None:
            origin = self.hardware.origin(made)
            recording = self._new[case.mnemonic] = Recording(case.mnemonic, self.settings.arch, origin)
        samples, kept = len(result), self._kept(case, made.instruction, result, model)
        digest = result_digest(result) if kept < samples else ""
        recording.add(RecordedCase(case.name, case.seed, samples, inputs.digest(given), digest), result[:kept])
        self._write_if_whole(recording)

    def _kept(self, case: Case, instruction: Instruction, result: Array, model: Array) -> int:
        """How many samples are kept raw beside the digest of all of them: all where the model answers otherwise.

        Else of a first seed what the family says; of further seeds and levels one, if it is small.
        """
        if result_digest(result) != result_digest(model):
            return len(result)
        if case.seed or self.settings.level > 1:
            return int(result[:1].nbytes <= RAW_BYTES)
        kept = testbench_of(instruction.row.family).kept(instruction, case.name)
        return len(result) if kept is None else min(kept, len(result))

    def _write_if_whole(self, recording: Recording) -> None:
        """Write an instruction as soon as its last case is there: what was measured survives whatever ends the run."""
        names = self.names(recording.mnemonic)
        if {(name, self.settings.seed) for name in names} <= set(recording.cases):
            self.written.append(recordings.write(recording, self.settings.root))
            del self._new[recording.mnemonic]

    def saved(self) -> str:
        """What a run that ends early leaves on disk."""
        count = len(self.written)
        return f"{count} file{'s' * (count != 1)} saved" + (f", the last {self.written[-1].name}" if count else "")
