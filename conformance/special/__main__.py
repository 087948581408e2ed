"""`python -m conformance.special OUT`: every special function on the GPU of this machine, on all its inputs, against the model.

All 2**32 inputs of each f32 function of one operand, of each packed pair and of each high word of the unit's f64 functions; all 2**16 of
16-bit numbers; 10**10 random pairs of each f32 division; 2**32 random inputs of the other f64 functions. The comparison runs on the GPU:
the model's datapath, generated from the same tables and steps, beside the instruction. A control, rcp with a bias that is 2 less, must be
found wrong. Writes OUT/special-functions.json: for each spelling inputs, mismatches and the first of them, seconds, and sums over the
hardware's answers, of all inputs and of the first 2**16. `python -m conformance.special --keep OUT` puts it into the tree, beside what
is there of other spellings.

`--spellings` names the spellings to ask. `--parts` keeps the sum of every 2**24 inputs, too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from conformance.special.source import SHOWN, WORDS, chosen, domain_of, name_of, source
from hwkernels.device.driver import Context, Launch, device_info
from hwkernels.device.nvrtc import compile_cubin, compiler_for
from tcsim.core.files import write_file

NAME = "special-functions.json"
RECORDED = Path(__file__).parent.parent / "recordings" / "sm_90" / NAME
INPUTS = {"every_f32": 1 << 32, "every_high": 1 << 32, "every_f16": 1 << 16, "pair_f32": 10**10, "pair_f64": 1 << 32}
"""How many inputs a spelling gets, by its domain."""
SHORT = 1 << 16
"""Inputs whose sum is kept by itself: few enough for the model in NumPy."""
CHUNK, PART = 1 << 30, 1 << 24
"""Inputs of a launch; and where the sum of each is kept."""
CONTROL, OFF = "rcp.approx.ftz.f32", -2
PREDICTED = 104_832
"""Inputs that the control changes, counted with the model: 208 mantissas less or more in each of 254 binades, and what lies at their ends."""
TOGETHER = 6  # spellings of a module


def compiled(mnemonics: Sequence[str], target: str, bias: int = 0) -> bytes:
    """The cubin of some spellings."""
    return compile_cubin(source(mnemonics, bias), target, name="special.cu", options=("--fmad=false",)).cubin


def launch(cubin: bytes, name: str, first: int, count: int, seed: int, blocks: int) -> Launch:
    """One launch over some inputs of the kernel of this name."""
    scalars = (np.uint64(first), np.uint64(count), np.uint64(seed))
    return Launch(
        cubin,
        f"compare_{name}",
        outputs=(((WORDS,), np.uint64),),
        scalars=scalars,
        grid=(blocks, 1, 1),
        block=(256, 1, 1),
        poison=0,
    )


def compare(
    context: Context, cubin: bytes, name: str, count: int, seed: int, blocks: int, parts: bool = False
) -> dict[str, Any]:
    """All inputs of a kernel, some at a time; `parts`: with the sum of each launch."""
    began, inputs, wrong, total, chunk = time.perf_counter(), 0, 0, 0, PART if parts else CHUNK
    sums: list[str] = []
    first: list[list[str]] = []
    for start in range(0, count, chunk):
        size = min(chunk, count - start)
        (words,) = context.run(launch(cubin, name, start, size, seed, blocks))
        inputs, wrong, total = inputs + int(words[0]), wrong + int(words[1]), (total + int(words[2])) % 2**64
        sums.append(f"{int(words[2]):016x}")
        shown = words[3:].reshape(SHOWN, 4)[: int(words[1])]
        first += [[f"{int(word):#x}" for word in line] for line in shown][: SHOWN - len(first)]
    return {
        "inputs": inputs, "mismatches": wrong, "first": first, "sum": f"{total:#018x}",
        "seconds": round(time.perf_counter() - began, 2),
    } | ({"parts": " ".join(sums)} if parts else {})  # fmt: skip


def measure(folder: Path, target: str, seed: int, limit: int, share: int, names: Sequence[str], parts: bool) -> int:
    """Run all, write after each; 1 if something differs, or the control is not found where it should be."""
    began, info, path = time.perf_counter(), device_info(), folder / NAME
    blocks = 8 * info.multiprocessors
    folder.mkdir(parents=True, exist_ok=True)
    groups = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
    ledger: dict[str, Any] = {
        "gpu": info.name, "driver": info.driver_version, "compiler": str(compiler_for(target)), "target": target, "seed": seed,
        "date": datetime.date.today().isoformat(), "operands": ["a", "b", "hardware", "model"], "spellings": {},
    }  # fmt: skip
    results = ledger["spellings"]

    def write() -> None:
        ledger["seconds"] = round(time.perf_counter() - began, 1)
        write_file(path, json.dumps(ledger, indent=1) + "\n")

    with ThreadPoolExecutor() as pool, Context(0) as context:
        control = pool.submit(compiled, (CONTROL,), target, OFF)
        cubins = [(group, pool.submit(compiled, group, target)) for group in groups]
        count = INPUTS[domain_of(chosen()[CONTROL])] // share
        ledger["control"] = compare(context, control.result(), name_of(chosen()[CONTROL]), count, seed, blocks) | {
            "bias": OFF,
            "expected": PREDICTED,
        }
        for group, future in cubins:
            if (error := future.exception()) is not None:
                print(f"{', '.join(group)}: not compiled: {error}", flush=True)
                continue
            for mnemonic in group:
                if time.perf_counter() - began > limit:
                    continue
                row = chosen()[mnemonic]
                count = INPUTS[domain_of(row)] // share
                found = compare(context, future.result(), name_of(row), count, seed, blocks, parts)
                found["short"] = compare(context, future.result(), name_of(row), min(SHORT, count), seed, blocks)["sum"]
                results[mnemonic] = found
                write()
                if found["mismatches"] or found["inputs"] != count:
                    print(
                        f"{mnemonic}: {found['mismatches']} of {found['inputs']} differ, first {found['first'][:1]}",
                        flush=True,
                    )
    write()
    inputs = sum(found["inputs"] for found in results.values())
    wrong = sum(found["mismatches"] for found in results.values())
    left = len(names) - len(results)
    print(
        f"control: {ledger['control']['mismatches']} of {ledger['control']['inputs']} found wrong; expected {PREDICTED}"
    )
    print(
        f"{len(results)} spellings, {inputs:,} inputs, {wrong} mismatches, {left} not run, {ledger['seconds']} s; {path}"
    )
    seen = ledger["control"]["mismatches"]
    return int(bool(wrong or left or not seen or (share == 1 and seen != PREDICTED)))


def keep(found: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """What was measured beside what is known: of each spelling the newer, with the GPU, the driver and the compiler if they are others.

    >>> keep({"gpu": "H200", "spellings": {"cos.approx.f32": {}}}, {"gpu": "H200", "spellings": {"sin.approx.f32": {}}})["spellings"]
    {'sin.approx.f32': {}, 'cos.approx.f32': {}}
    """
    other = {
        name: found.get(name) for name in ("gpu", "driver", "compiler", "date") if found.get(name) != known.get(name)
    }
    spellings = known["spellings"] | {name: own | other for name, own in found["spellings"].items()}
    return known | {"spellings": {name: spellings[name] for name in chosen() if name in spellings}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or put what was measured into the tree."""
    parser = argparse.ArgumentParser(prog="python -m conformance.special", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=240, help="seconds after which no further spelling begins")
    parser.add_argument("--share", type=int, default=1, help="ask the first 1/SHARE of each spelling's inputs")
    parser.add_argument("--spellings", nargs="+", choices=list(chosen()), metavar="SPELLING", default=list(chosen()))
    parser.add_argument("--parts", action="store_true", help="keep the sum of every 2**24 inputs, too")
    parser.add_argument("--keep", action="store_true", help="put what FOLDER holds into the recordings")
    asked = parser.parse_args(arguments)
    if asked.keep:
        found, known = (json.loads(path.read_text()) for path in (asked.folder / NAME, RECORDED))
        write_file(RECORDED, json.dumps(keep(found, known), indent=1) + "\n")
        return 0
    return measure(asked.folder, asked.target, asked.seed, asked.limit, asked.share, asked.spellings, asked.parts)


if __name__ == "__main__":
    sys.exit(main())
