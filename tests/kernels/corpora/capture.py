"""`python -m tests.kernels.corpora.capture --out FOLDER [--pack FILE] [PATTERN ...]`: launch every case that this GPU runs, twice, and record it.

It needs the pack that `compile` wrote, cuda-python, and a ptxas that takes its PTX. Each launch runs in a worker process that is
replaced when it hangs or loses its context. What each kernel left in memory is compared with what its case expects; the recordings
go into launches.xz, the table into capture.txt. `python -m tests.kernels.corpora.keep FOLDER/launches.xz` brings them into the tree.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hwkernels.device import toolchain
from hwkernels.device.driver import device_info
from tcsim.core.targets import TARGETS
from tests.kernels.corpora import pack, recording
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.compile import chosen
from tests.kernels.corpora.device import Answer, Job, serve

SILENCE_S = 30.0  # without an answer a worker is replaced, and the case counts as a hang
NAME = "launches.xz"  # what is written, besides the table capture.txt


def assembled(name: str, target: str, made: dict[str, pack.Compiled], arch: str) -> Job | str:
    """A job with two cubins, as the assembler likes it and without contraction; or why there is none."""
    compiled = made.get(pack.key_of(CASES[name].source.key, target))
    if compiled is None:
        return "not in the pack: python -m tests.kernels.corpora.compile"
    chip = arch + ("a" if target.endswith("a") else "")
    try:
        cubins = [
            toolchain.assemble(compiled.ptx, chip, flags=flags, allow_notes=True).cubin
            for flags in ((), ("--fmad=false",))
        ]
    except (toolchain.AssembleError, toolchain.ToolchainError) as error:
        return str(error)[:2000]
    return Job(name, target, compiled, cubins[0], cubins[1])


def answers(jobs: list[Job]) -> Iterator[tuple[Job, Answer | str]]:
    """The answer to each job, or what happened instead."""
    context, left = multiprocessing.get_context("spawn"), list(jobs)
    while left:
        ours, theirs = context.Pipe()
        worker = context.Process(target=serve, args=(theirs, left), daemon=True)
        worker.start()
        theirs.close()
        while left:
            try:
                heard = ours.recv() if ours.poll(SILENCE_S) else "HANG"
            except (EOFError, OSError):
                heard = "the worker died"
            yield left.pop(0), heard
            if isinstance(heard, str) and not heard.startswith("refused"):
                break
        worker.kill()
        worker.join()


def main(arguments: list[str]) -> int:
    """Capture; the exit status says whether a case could not be recorded or was not as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pack", type=Path, default=pack.BUILT)
    parser.add_argument("--seconds", type=float, default=300.0, help="stop asking after so long")
    parser.add_argument("patterns", nargs="*")
    given = parser.parse_args(arguments)
    start, info, lines, found = time.perf_counter(), device_info(), [], {}
    made = pack.read(given.pack)
    wanted = [
        (name, target) for name in chosen(given.patterns) for target in CASES[name].targets if _runs(target, info.arch)
    ]
    with ThreadPoolExecutor() as pool:
        attempts = list(pool.map(lambda item: assembled(*item, made, info.arch), wanted))
    tools = str(toolchain.toolchain_for(info.arch))
    lines.append(
        f"{info.name}, driver {info.driver_version}, CUDA {info.cuda_version}, {tools}, assembled in {time.perf_counter() - start:.0f} s"
    )
    lines += [
        f"FAIL {name} {target}: {job}"
        for (name, target), job in zip(wanted, attempts, strict=True)
        if isinstance(job, str)
    ]
    stamp = {"gpu": info.name, "driver": info.driver_version, "assembler": tools}
    failed = len(lines) - 1
    given.out.mkdir(parents=True, exist_ok=True)
    try:
        for job, answer in answers([job for job in attempts if isinstance(job, Job)]):
            if isinstance(answer, str):
                failed += 1
                lines.append(f"FAIL {job.name} {job.target}: {answer}")
            else:
                found[recording.name_of(job.name, job.target)] = answer.fields | stamp
                failed += bool(answer.complaint)
                word = "odd " if answer.complaint else "ok  "
                lines.append(f"{word} {job.name} {job.target}: {answer.bytes} bytes {answer.complaint}")
            print(lines[-1], flush=True)
            if time.perf_counter() - start > given.seconds:
                lines.append("STOPPED: out of time")
                break
    finally:  # what there is by then is worth having
        recording.write(given.out / NAME, found)
        seconds, size = time.perf_counter() - start, (given.out / NAME).stat().st_size
        lines.append(f"{len(found)} of {len(wanted)} recorded, {failed} failed or odd, {size} bytes, {seconds:.0f} s")
        (given.out / "capture.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(lines[-1])
    return int(failed > 0)


def _runs(target: str, arch: str) -> bool:
    """Whether a GPU runs a target's PTX."""
    if target.endswith(("a", "f")):
        return target[:-1] == arch
    return TARGETS[target].number <= int(arch[3:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
