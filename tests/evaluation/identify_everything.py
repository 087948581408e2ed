"""Everything that `identify` is tried on, over processes: 200 random machines, ten outside the hypotheses, every float row of eight archs.

python -m tests.evaluation.identify_everything --jobs 24 --json build/identify.jsonl
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.identification.machine import NOT_OBSERVABLE, Signature
from hwkernels.identification.solver import identify
from hwkernels.identify.run import chosen, on_model
from tests.evaluation.random_machines import Machine, agrees, outside_machines, random_machine

ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
LIMIT = 100
"""Seconds after which a machine counts as not identified."""


class Asked:
    """A machine of which only its signature and its answers are seen."""

    def __init__(self, machine: Any) -> None:
        own = machine.signature
        self._machine = machine
        self.signature = Signature(own.k, own.a, own.b, own.c, own.d, tuple(own.scale) if own.scale else None)

    def dot(self, *operands: Any) -> Any:
        """Its answers."""
        return self._machine.dot(*(x for x in operands if x is not None))


def cases(seed: int = 1, count: int = 200) -> list[tuple[str, str]]:
    """What is tried: (group, name); a random machine's name is "seed/number"."""
    random = [("random", f"{seed}/{number}") for number in range(count)]
    rows = [(arch, item.mnemonic) for arch in ARCHS for item in chosen(arch, scaled=True)]
    return [("outside", name) for name in outside_machines()] + random + rows


def tried(case: tuple[str, str]) -> dict[str, Any]:
    """The verdict of one case, with its time."""
    group, name = case
    begun, used = time.monotonic(), time.process_time()
    signal.signal(signal.SIGALRM, _late)
    signal.alarm(LIMIT)
    try:
        with np.errstate(all="ignore"):
            told = _tried(group, name)
    except TimeoutError:
        told = {"verdict": "late"}
    except Exception as error:  # one case must not end the others
        told = {"verdict": f"failed: {error}"}
    finally:
        signal.alarm(0)
    seconds = {"seconds": round(time.monotonic() - begun, 2), "cpu": round(time.process_time() - used, 2)}
    return {"group": group, "name": name, **seconds, **told}


def _late(*_: object) -> None:
    raise TimeoutError


def _tried(group: str, name: str) -> dict[str, Any]:
    if group not in ("random", "outside"):
        result = on_model(name, group)
        assert result.found is not None
        right = not result.differs and result.found.outside == (not result.row)
        verdict = "right" if right else f"wrong: {sorted(result.differs)}"
        told = {"verdict": verdict, "refused": result.found.outside, "asked": result.found.asked}
        return told | {"open": result.found.open, "solver": round(result.seconds, 2)}
    machine = outside_machines()[name] if group == "outside" else _random(name)
    begun = time.monotonic()
    found = identify(Asked(machine))
    told: dict[str, Any] = {
        "asked": found.asked,
        "refused": found.outside,
        "solver": round(time.monotonic() - begun, 2),
        "open": found.open,
        "spent": found.spent,
    }
    told["truth"], told["found"], told["lines"] = machine.truth, found.keys, found.lines()[:3]
    if group == "outside":
        right = found.mismatch is not None and found.mismatch.answer != found.mismatch.predicted
        return told | {"verdict": "right" if right else "wrong: identified"}
    if found.outside:
        return told | {"verdict": "wrong: refused"}
    if found.undecided:
        return told | {"verdict": "undecided"}
    if agrees(machine.signature, machine.truth, found.answer):
        return told | {"verdict": "right"}
    keys = [key for key, value in found.answer.items() if value not in (machine.truth[key], NOT_OBSERVABLE)]
    return told | {"verdict": f"wrong: {keys or 'not observable'}"}


def _random(name: str) -> Machine:
    seed, number = map(int, name.split("/"))
    return random_machine(number, seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all, write a line of JSON for each as it ends."""
    made = argparse.ArgumentParser(prog="python -m tests.evaluation.identify_everything")
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--json", type=Path, required=True)
    made.add_argument("--only", nargs="+", default=[], metavar="GROUP", help="random, outside, or archs")
    made.add_argument("--seed", type=int, default=1, help="of the random machines")
    made.add_argument("--machines", type=int, default=200, help="how many of them")
    options = made.parse_args(arguments)
    chosen_cases = [
        case for case in cases(options.seed, options.machines) if not options.only or case[0] in options.only
    ]
    wrong = 0
    with get_context("spawn").Pool(options.jobs) as pool, options.json.open("w") as file:
        for told in pool.imap_unordered(tried, chosen_cases):
            print(json.dumps(told, default=str), file=file, flush=True)
            wrong += told["verdict"] != "right"
            if told["verdict"] != "right":
                print(told["group"], told["name"], told["verdict"], told["seconds"], flush=True)
    print(f"{len(chosen_cases)} tried, {wrong} not right")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
