"""`python -m conformance.kernels.record FOLDER`: everything of this GPU's arch that is not recorded yet, into a folder, by several processes.

Whole GEMMs and conversions, and all instructions of which an input class is missing, of the seed and level that are asked for. Each file is
written as soon as it is complete; run again, the command goes on with what is missing. Then pack the folder with
`python -m conformance.suite.packs`, copy it over conformance/recordings and run `python -m conformance.suite.manifest`.

With `--again` also what is recorded already, and `again.txt` in the folder says of each case whether the hardware answered as recorded.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.kernels import convert, gemm
from conformance.kernels.whole_outputs import Trial, judge
from conformance.suite import packs, recordings
from conformance.suite.cases import Case, Outcome, Settings, Suite
from conformance.suite.hardware import Hardware, Workshop
from conformance.suite.recordings import Unwritable, result_digest
from hwkernels.device.driver import device_info
from hwkernels.gemm.build import CACHE_VARIABLE, cubin_of
from tcsim.core.files import write_file

Job = tuple[str, Callable[[], Outcome]]
AGAIN = "again.txt"
"""In the folder of a run that records everything again: what became of each case."""


def _known(folder: Path) -> tuple[Path, ...]:
    """Where to look for what need not be recorded."""
    return (folder,) if (folder / AGAIN).exists() else (recordings.ROOT, folder)


def missing(suite: Suite) -> list[str]:
    """Mnemonics of which neither the committed recordings nor the folder have every class of the seed and level."""
    settings = suite.settings
    found = []
    for row in suite.rows:
        wanted = {(name, settings.seed) for name in suite.names(row.mnemonic)}
        for root in _known(settings.root):
            name = recordings.path_of(row.mnemonic, settings.arch, root).stem
            wanted -= packs.cases(name, settings.arch, root)
        if wanted and not suite.why_refused(row):
            found.append(row.mnemonic)
    return found


def trials(arch: str, seed: int) -> Iterator[Trial]:
    """Every whole output."""
    for item in gemm.cases(arch):
        yield gemm.trial_of(item, arch, seed)
    for array in convert.cases(arch):
        yield convert.trial_of(array, arch, seed)


def missing_trials(settings: Settings) -> list[Trial]:
    """Whole outputs that are recorded neither in the tree nor in the folder, with the seed; of level 1 alone."""
    arch, seed = settings.arch, settings.seed
    if settings.level > 1:
        return []
    roots = _known(settings.root)
    return [
        item
        for item in trials(arch, seed)
        if not any(("whole", seed) in packs.cases(item.id, arch, root) for root in roots)
    ]


def jobs(suite: Suite, part: int, parts: int) -> Iterator[Job]:
    """What one of several processes does: whole outputs, then whole instructions."""
    for trial in missing_trials(suite.settings)[part::parts]:
        yield trial.id, lambda trial=trial: judge(trial, suite)  # type: ignore[misc]
    mnemonics = missing(suite)[part::parts]
    suite.__dict__["workshop"] = Workshop([suite.instruction(mnemonic) for mnemonic in mnemonics])
    for mnemonic in mnemonics:
        for name in suite.names(mnemonic):
            case = Case(mnemonic, name, suite.settings.seed)
            yield case.id, lambda case=case: suite.run(case)  # type: ignore[misc]


def work(folder: Path, seed: int, level: int, part: int, parts: int) -> int:
    """One process: a line for each case that does not pass, and one at the end."""
    hardware = Hardware()
    suite = Suite(Settings(hardware.info.arch, "live", record=True, seed=seed, root=folder, level=level), hardware)
    counts: Counter[str] = Counter()
    start = time.monotonic()
    try:
        for name, run in jobs(suite, part, parts):
            outcome = run()
            counts[outcome.verdict] += 1
            if outcome.verdict != "PASS":
                print(f"{name}: {outcome.verdict} {(outcome.text or outcome.how)[:600]}", flush=True)
    except Unwritable as error:
        print(f"{error}; {suite.saved()}", flush=True)
        return 1
    finally:
        hardware.close()
    seconds = time.monotonic() - start
    print(f"part {part}: {dict(counts)}, {len(suite.written)} files, {seconds:.0f} s", flush=True)
    return int(counts.total() != counts["PASS"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile all kernels, then record in several processes."""
    parser = argparse.ArgumentParser(prog="python -m conformance.kernels.record")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--level", type=int, choices=(1, 2), default=1)
    parser.add_argument("--processes", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    parser.add_argument(
        "--cubins", type=Path, help="folder of compiled kernels (default: $HWKERNELS_CUBINS, else a new one)"
    )
    parser.add_argument("--again", action="store_true", help="record everything, and compare it with what is recorded")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part is not None:
        return work(options.folder, options.seed, options.level, options.part, options.processes)
    arch, start = device_info().arch, time.monotonic()
    try:
        recordings.check_writable(options.folder / arch)
    except Unwritable as error:
        print(error, file=sys.stderr)
        return 1
    if options.again:
        (options.folder / AGAIN).touch()
    if missing_trials(Settings(arch, "live", seed=options.seed, root=options.folder, level=options.level)):
        _compile(options.folder, arch, options.cubins)
        print(f"compiled after {time.monotonic() - start:.0f} s", flush=True)
    common = [sys.executable, "-m", "conformance.kernels.record", str(options.folder)]
    common += ["--seed", str(options.seed), "--level", str(options.level), "--processes", str(options.processes)]
    running = [subprocess.Popen([*common, "--part", str(part)]) for part in range(options.processes)]
    failed = sum(process.wait() != 0 for process in running)
    files = list((options.folder / arch).glob("*.npz"))
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} files, {size:,} bytes, {failed} processes with failures, {time.monotonic() - start:.0f} s")
    differing = _compared(options.folder, arch) if options.again else 0
    return int(failed > 0 or differing > 0)


def _compared(folder: Path, arch: str) -> int:
    """How many cases of the folder are not as they are recorded: a line for each, and one with the counts."""
    equal, lines = 0, []
    for name in sorted(packs.names(arch, folder)):
        known = _answers(name, arch, recordings.ROOT)
        for case, found in _answers(name, arch, folder).items():
            if found == known.get(case):
                equal += 1
            else:
                old = known.get(case)
                why = "not recorded yet" if old is None else "other answers" if old[0] == found[0] else "other inputs"
                lines.append(f"{name} {case}: {why}")
    lines.append(f"{equal} cases as recorded, {len(lines)} not")
    write_file(folder / AGAIN, "\n".join(lines) + "\n")
    print(lines[-1], flush=True)
    return len(lines) - 1


def _answers(name: str, arch: str, root: Path) -> dict[tuple[str, int], list[str]]:
    """Of each recorded case, by class and seed: digests of its inputs and of all that the hardware answered."""
    found = {}
    for _, header, arrays in packs.held(name, arch, root):
        for case in header.get("cases", ()):
            kinds = ("digests", "codes") if "whole" in header else (case["name"],)
            whole = case.get("result_sha256")
            results = [whole] if whole else [result_digest(arrays[f"{kind}.{case['seed']}"]) for kind in kinds]
            found[case["name"], case["seed"]] = [case["inputs_sha256"], *results]
    return found


def _compile(folder: Path, arch: str, cubins: Path | None) -> None:
    """Every kernel of a whole GEMM, before the processes start."""
    cubins = cubins or Path(os.environ.get(CACHE_VARIABLE, folder / "cubins"))
    cubins.mkdir(parents=True, exist_ok=True)
    os.environ[CACHE_VARIABLE] = str(cubins)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(cubin_of, dict.fromkeys(item.build(arch) for item in gemm.cases(arch))))


if __name__ == "__main__":
    sys.exit(main())
