"""`python -m conformance.campaign run LEDGER --outputs 1e10`: campaigns of an arch; `verify`, `merge` and `table` of a ledger.

run: on GPUs of this host, or with --dask on those of a cluster, or with --cpu without any. It goes on where the ledger ends.
verify: a CPU makes the inputs again and compares the digests of the parts (--whole: of whole lines).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from conformance.campaign import ledger
from conformance.campaign.campaign import SPAN, Campaign, CampaignError, complaints, run, subjects, table, verified
from conformance.campaign.cluster import ON_GPU, run_over
from conformance.campaign.ledger import LedgerError, Line
from conformance.campaign.on_cpu import CPU
from conformance.campaign.progress import Progress
from conformance.campaign.shrink import smallest
from conformance.campaign.subject import Subject
from conformance.campaign.tasks import Question
from hwkernels.device.driver import device_info
from hwkernels.device.worker import GpuWorker
from tcsim.core.errors import printable
from tcsim.core.targets import arch_named

ON_CPU = "conformance.campaign.on_cpu:open_executor"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; 1 if something differs or could not be compared."""
    parser = argparse.ArgumentParser(prog="python -m conformance.campaign", description=__doc__)
    parser.add_argument("what", choices=("run", "verify", "merge", "table"))
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--arch", type=arch_named, default="sm_90")
    parser.add_argument("--outputs", type=float, default=1e10, help="of each instruction")
    parser.add_argument("--only", default="", help="instructions whose mnemonic begins so; several with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--span", type=int, default=SPAN, help="outputs of a line")
    parser.add_argument("--cpu", action="store_true", help="NumPy in the place of the instruction")
    parser.add_argument("--dask", metavar="ADDRESS", help="the scheduler of a cluster whose workers have a GPU each")
    parser.add_argument("--executor", help="package.module:function that opens a device")
    parser.add_argument("--whole", action="store_true", help="verify whole lines")
    asked = parser.parse_args(arguments)
    try:
        if asked.what == "run":
            return _run(asked)
        lines = ledger.read(asked.ledger)
    except LedgerError as error:
        print(printable(str(error)), file=sys.stderr)
        return 1
    if asked.what == "verify":
        return _verify(lines, asked.whole)
    if asked.what == "table":
        print(table(lines), end="")
    else:
        print("\n".join(json.dumps(asdict(line)) for line in ledger.merged(lines)))
    return 0


def _run(asked: argparse.Namespace) -> int:
    ledger.read(asked.ledger)
    begins = tuple(asked.only.split(","))
    chosen = [one for one in subjects(asked.arch) if one.mnemonic.startswith(begins)]
    if asked.dask:
        return _run_over(asked, chosen)
    gpu = CPU if asked.cpu else device_info(asked.device).name
    executor = _opens(asked)
    failed = 0
    with GpuWorker(asked.device, executor) as worker, Progress() as bar:
        for subject in chosen:
            campaign = Campaign(subject, asked.seed, int(asked.outputs), asked.ledger, gpu, asked.span)
            advance = bar.begin(subject.mnemonic, campaign.samples, sum(line.samples for line in campaign.lines()))
            try:
                lines = run(campaign, worker, lambda line, go=advance: go(line.samples))  # type: ignore[misc]
            except (CampaignError, LedgerError) as error:
                print(error, file=sys.stderr)
                failed = 1
                if isinstance(error, LedgerError):
                    return 1
                continue
            failed |= _report(subject, asked.seed, lines, worker)
    return failed


def _opens(asked: argparse.Namespace) -> str:
    """What opens a device."""
    return str(asked.executor or (ON_CPU if asked.cpu else ON_GPU))


def _run_over(asked: argparse.Namespace, chosen: Sequence[Subject]) -> int:
    """On the workers of a Dask cluster. Mismatches are shown by a run without it, which finds nothing left to compare."""
    distributed = import_module("distributed")  # of the extra `cluster`
    with distributed.Client(asked.dask) as client:
        gpu = CPU if asked.cpu else client.submit(device_info).result().name
        campaigns = [
            Campaign(subject, asked.seed, int(asked.outputs), asked.ledger, gpu, asked.span) for subject in chosen
        ]
        failed = run_over(client.get_executor(pure=False), campaigns, _opens(asked))
    lines = [line for campaign in campaigns for line in campaign.lines()]
    outputs, wrong = sum(line.outputs for line in lines), sum(line.mismatches for line in lines)
    print("\n".join([*failed, f"{len(campaigns)} instructions: {outputs:,} outputs, {wrong} mismatches"]), flush=True)
    return int(bool(failed or wrong))


def _report(subject: Subject, seed: int, lines: list[Line], worker: GpuWorker) -> int:
    """One line, and the smallest case of a mismatch."""
    outputs, wrong, seconds = (
        sum(getattr(line, name) for line in lines) for name in ("outputs", "mismatches", "seconds")
    )
    print(f"{subject.mnemonic}: {outputs:,} outputs, {wrong} mismatches, {seconds:.1f} s", flush=True)
    places = [place for line in lines for place in line.places]
    if places:
        case = smallest(subject, seed, places[0], lambda arrays: worker.run(Question(subject, arrays), 60)[0])
        print("\n".join(case.lines() if case else ["the first mismatch did not happen again"]), flush=True)
    return int(wrong > 0)


def _verify(lines: Sequence[Line], whole: bool) -> int:
    """Every field against the instruction, then the digests; 0 if all is right."""
    if found := complaints(lines):
        print(printable("\n".join(found)), file=sys.stderr)
        return 1
    wrong = 0
    for number, line in enumerate(lines, 1):
        right = verified(line, whole)
        wrong += not right
        what = f"{line.mnemonic}, {line.samples if whole else line.part} samples from {line.first}, {line.gpu}"
        said = f"line {number}: {'digest' if whole else 'part_digest'} DIFFERENT" if not right else "as the ledger says"
        print(f"{what}: {said}", flush=True)
    print(f"{len(lines)} lines, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
