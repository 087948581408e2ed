"""`python -m tests.kernels.corpora.check [PATTERN ...]`: every case on the CPU, against its expected result; no recording is needed.

Prints a line for each case and target. What a case expects comes from NumPy or plain Python, with a tolerance where numbers are rounded.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

from tcsim.core.targets import TARGETS
from tcsim.ptx import Memory, parse
from tests.kernels.corpora import pack, place
from tests.kernels.corpora.case import Case
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.compile import chosen

RECORDED = "sm_90"  # the arch of our GPU: what it runs is checked as on it


@dataclass
class Checked:
    """A case that ran on the CPU."""

    run: Any
    wrong: dict[str, int] = field(default_factory=dict)  # elements that are not as expected, by buffer
    compared: int = 0
    untouched: int = 0  # bytes of other buffers that changed
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it ran to its end, compared something, and all was as expected."""
        return bool(self.run.completed) and self.compared > 0 and not any(self.wrong.values()) and not self.untouched


def arch_of(target: str) -> str:
    """The arch that a target is run on: ours if it can be."""
    return TARGETS[target].arch if TARGETS[target].number > 90 else RECORDED


def launched(memory: Memory, module: Any, names: list[str], arguments: dict[str, Any]) -> Any:
    """Launch entries one after the other with the same arguments, each after the last; the last run."""
    run = None
    for name in names:
        options = {"after": run} if run is not None else {}
        run = module.kernel(name).launch(memory, **arguments, **options)
    return run


def checked(case: Case, target: str, compiled: pack.Compiled, seed: int = 0, **options: Any) -> Checked:
    """Run a case. Raises what the executor raises for PTX that it does not know."""
    start = time.perf_counter()
    launch = case.launch(seed)
    memory = Memory()
    addresses = {name: memory.allocate(max(1, array.nbytes)) for name, array in launch.buffers.items()}
    before = place.images(launch, addresses)
    for name, data in before.items():
        memory.write(addresses[name], data)
    names = [name for name in (launch.before, place.entry_of(compiled, case.entry)) if name]
    arguments = {
        "params": place.parameters(launch, addresses), "grid": launch.grid, "block": place.block_of(compiled, launch),
        "dynamic_smem": place.shared_of(compiled, launch), "arch": arch_of(target),
    }  # fmt: skip
    if launch.cluster != (1, 1, 1):
        arguments["cluster"] = launch.cluster
    found = Checked(launched(memory, parse(compiled.ptx), names, arguments | options))
    for name, data in before.items():
        after = memory.read(addresses[name], len(data))
        if name in launch.expected:
            found.wrong[name] = launch.expected[name].wrong(after)
            found.compared += len(data)
        elif name not in launch.scratch:
            found.untouched += int((after != data).sum())
    if launch.output is not None and found.run.output != launch.output:
        found.wrong["output"] = 1
    found.seconds = time.perf_counter() - start
    return found


def main(arguments: list[str]) -> int:
    """Run the chosen cases; the exit status says whether one failed."""
    made, failed, total = pack.read_all(), 0, 0
    for name in chosen([item for item in arguments if not item.startswith("-")]):
        for target in CASES[name].targets:
            key, total = pack.key_of(CASES[name].source.key, target), total + 1
            try:
                own = checked(CASES[name], target, made[key])
            except Exception as error:  # one that cannot be run must not hide the others
                failed += 1
                print(f"FAIL {name} {target}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            hazards = "; ".join(f"{h.name} line {h.line}: {h.message[:150]}" for h in own.run.hazards[:2])
            line = f"{name} {target}: {own.run.instructions} instructions, {own.compared} bytes, {own.seconds:.2f} s"
            line += "".join(f", {count} wrong in {buffer}" for buffer, count in own.wrong.items() if count)
            line += f", {own.untouched} bytes changed that should not" if own.untouched else ""
            line += f", inexact {dict(own.run.inexact)}" if own.run.inexact else ""
            failed += not own.passed
            print(("ok   " if own.passed else "FAIL ") + line + (f" [{hazards}]" if hazards else ""), flush=True)
    print(f"{total - failed} of {total} as expected")
    return int(failed > 0 or total == 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
