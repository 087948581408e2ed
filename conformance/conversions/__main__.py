"""`python -m conformance.conversions OUT`: every conversion from or to a float format on the GPU of this machine, on all its inputs, against the model.

All 2**32 codes of a 32-bit register, all of an 8-bit or a 16-bit one, all upper words of an f64. With two registers, all codes of each beside
random codes of the other. The comparison runs on the GPU: the model's arithmetic in integers, its constants written from the registry, beside
the instruction. A control, rounded towards zero where it should be to nearest, must be found wrong. Writes OUT/conversions.json: for each
conversion and kind of input how many, mismatches and the first of them, seconds, and sums over the hardware's answers, of all inputs and of
the first 2**16. `python -m conformance.conversions --keep OUT` puts it into the tree.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from conformance.conversions.source import TARGET, chosen, domains_of, inputs_of, kernel_of, source
from conformance.special.__main__ import SHORT, compare
from hwkernels.device.driver import Context, device_info
from hwkernels.device.nvrtc import compile_cubin, compiler_for
from tcsim.core.files import write_file

NAME = "conversions.json"
RECORDED = Path(__file__).parent.parent / "recordings" / "sm_90" / NAME
CONTROL = "cvt.rn.satfinite.e4m3x2.f16x2"
PREDICTED = 2_230_355_452
"""Pairs that the control changes, counted with the model: those in which either number is rounded up."""
TOGETHER = 12  # conversions of a module


def compiled(mnemonics: Sequence[str], direction: str = "") -> bytes:
    """The cubin of some conversions."""
    return compile_cubin(source(mnemonics, direction), TARGET, name="conversions.cu").cubin


def measure(folder: Path, seed: int, limit: int, share: int) -> int:
    """Run all, write after each; 1 if something differs, is left out, or the control is not found as often as it should be."""
    began, info, path = time.perf_counter(), device_info(), folder / NAME
    blocks, names = 8 * info.multiprocessors, list(chosen())
    folder.mkdir(parents=True, exist_ok=True)
    ledger: dict[str, Any] = {
        "gpu": info.name, "driver": info.driver_version, "compiler": str(compiler_for(TARGET)), "target": TARGET, "seed": seed,
        "date": datetime.date.today().isoformat(), "operands": ["a", "b", "hardware", "model"], "conversions": {},
    }  # fmt: skip

    def asked(cubin: bytes, mnemonic: str, domain: str) -> dict[str, Any]:
        kernel, count = kernel_of(chosen()[mnemonic], domain), max(1, inputs_of(domain) // share)
        found = compare(context, cubin, kernel, count, seed, blocks)
        found["short"] = compare(context, cubin, kernel, min(SHORT, count), seed, blocks)["sum"]
        if found["inputs"] != count:
            raise RuntimeError(f"{mnemonic}, {domain}: {found['inputs']} inputs compared of {count}")
        return found

    with ThreadPoolExecutor() as pool, Context(0) as context:
        control = pool.submit(compiled, (CONTROL,), "rz")
        groups = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
        cubins = [(group, pool.submit(compiled, group)) for group in groups]
        (domain,) = domains_of(chosen()[CONTROL])
        ledger["control"] = asked(control.result(), CONTROL, domain) | {"rounding": "rz", "expected": PREDICTED}
        for group, future in cubins:
            for mnemonic in group:
                if time.perf_counter() - began < limit:
                    answers = {one: asked(future.result(), mnemonic, one) for one in domains_of(chosen()[mnemonic])}
                    ledger["conversions"][mnemonic] = answers
                    ledger["seconds"] = round(time.perf_counter() - began, 1)
                    write_file(path, json.dumps(ledger, indent=1) + "\n")
    every = [(name, found) for name, answers in ledger["conversions"].items() for found in answers.values()]
    for name, found in every:
        if found["mismatches"]:
            print(f"{name}: {found['mismatches']} of {found['inputs']} differ, first {found['first'][:1]}")
    inputs, wrong = (sum(found[key] for _, found in every) for key in ("inputs", "mismatches"))
    left, seen = len(names) - len(ledger["conversions"]), ledger["control"]["mismatches"]
    print(f"control: {seen} of {ledger['control']['inputs']} found wrong; expected {PREDICTED}")
    print(f"{len(names) - left} conversions, {inputs:,} inputs, {wrong} mismatches, {left} not run, {path}")
    return int(bool(wrong or left or not seen or (share == 1 and seen != PREDICTED)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or put what was measured into the tree."""
    parser = argparse.ArgumentParser(prog="python -m conformance.conversions", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=240, help="seconds after which no further conversion begins")
    parser.add_argument("--share", type=int, default=1, help="ask the first 1/SHARE of each conversion's inputs")
    parser.add_argument("--keep", action="store_true", help="put what FOLDER holds into the recordings")
    asked = parser.parse_args(arguments)
    if asked.keep:
        shutil.copyfile(asked.folder / NAME, RECORDED)
        return 0
    return measure(asked.folder, asked.seed, asked.limit, asked.share)


if __name__ == "__main__":
    sys.exit(main())
