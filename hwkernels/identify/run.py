"""Identify the tensor-core instructions of a GPU, or of the model that plays one.

    python -m hwkernels.identify                          # GPU 0: every float instruction of mma.sync, mma.sp, wgmma and wgmma.sp
    python -m hwkernels.identify --model sm_120           # the model as an unknown GPU
    python -m hwkernels.identify --only m16n8k16 --rows   # some of them; with a row of the registry for each
    python -m hwkernels.identify --json found.json        # with the questions that decided each key

Exit status: 0 if every instruction was identified as its row says, 1 if one differs or lies outside the hypotheses, 2 if nothing was asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tcsim
from hwkernels.device.driver import device_info
from hwkernels.device.errors import DriverUnavailable
from hwkernels.device.toolchain import ToolchainError
from hwkernels.device.worker import GpuWorker, WorkerError
from hwkernels.identification.result import Identified, shown
from hwkernels.identification.solver import identify
from hwkernels.identify.registry import differences, registered, row_text
from hwkernels.identify.sources import GpuTiles, ModelTiles, Tiles
from hwkernels.probes.probe import Probe, build
from tcsim import catalog
from tcsim.core.errors import TcsimError
from tcsim.core.files import write_file
from tcsim.core.targets import ARCHS, arch_named
from tcsim.model.instruction import Instruction

FORMATS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
FAMILIES = ("mma.sync", "mma.sp", "wgmma", "wgmma.sp")
SCALED = ("mma.sync.block_scale",)  # on the model only: the probe's scale registers are not filled here
WIDTH = 128
"""Columns of the wgmma that are asked: those of other widths are the same datapath."""


@dataclass
class Finding:
    """What was found of one instruction."""

    mnemonic: str
    arch: str
    source: str
    seconds: float = 0.0
    found: Identified | None = None
    row: dict[str, Any] = field(default_factory=dict)
    differs: dict[str, Any] = field(default_factory=dict)
    failed: str = ""

    @property
    def agrees(self) -> bool:
        """Whether it was identified, as its row says."""
        return self.found is not None and bool(self.found.found) and not self.differs

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.found is None:
            return f"not asked: {self.failed}"
        if self.found.outside:
            return "outside my hypotheses" + ("" if self.differs else "; so is the registry's row")
        if self.found.undecided:
            return self.found.verdict
        return "agrees" if self.agrees else f"differs in {', '.join(self.differs)}"

    def line(self) -> str:
        """One line."""
        if self.found is None or not self.found.found:
            return f"{self.mnemonic}: {self.verdict}"
        keys, digits = self.found.keys, 8 if self.found.signature.d == "f32" else 4
        told = {name: shown(name, keys[name], digits) for name in keys}
        return (
            f"{self.mnemonic}: steps {told['step']}; F {told['fraction_bits']}, floor {told['floor']}, {told['significand']} bits {told['rounding']}, "
            f"c {told['addend']}, as {told['as']}; {self.found.asked:,} asked, {self.seconds:.1f} s: {self.verdict}"
        )

    def lines(self) -> list[str]:
        """All that was found beside the registry's row."""
        if self.found is None or not self.found.found:
            return [self.line(), *(f"  {line}" for line in (self.found.lines() if self.found else []))]
        digits = 8 if self.found.signature.d == "f32" else 4
        lines = [self.line()]
        for name, value in self.found.found.items():
            key = "as" if name == "widened" else name
            other = shown(key, self.row[name], digits) if self.row else "no row"
            mark = "differs" if name in self.differs else ""
            lines.append(f"  {key:14} {shown(key, value, digits):32} registry {other:24} {mark}".rstrip())
        return lines

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mnemonic": self.mnemonic,
            "arch": self.arch,
            "source": self.source,
            "seconds": round(self.seconds, 2),
            "agrees": self.agrees,
            "verdict": self.verdict,
            "registry": self.row,
            "differs": self.differs,
            **({} if self.found is None else self.found.to_dict()),
        }


def chosen(arch: str, only: Sequence[str] = (), scaled: bool = False) -> list[Instruction]:
    """The float instructions of an arch that multiply one matrix by another, of wgmma one width.

    >>> [item.mnemonic for item in chosen("sm_75", ["m16n8k8"])]
    ['mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16', 'mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32']
    """
    targets = {target.name for target in ARCHS[arch].targets}
    found = []
    for row in catalog.rows().values():
        families = (*FAMILIES, *(SCALED if scaled else ()))
        if row.family not in families or row.dropped or not targets & set(row.targets):
            continue
        if ("wgmma" in row.family and row.shape[1] != WIDTH) or not all(part in row.mnemonic for part in only):
            continue
        item: Any = tcsim.instruction(row.mnemonic, arch=arch)
        if getattr(item, "matrices", 1) == 1 and all(item.formats[name].name in FORMATS for name in "ab"):
            found.append(item)
    return found


def finding(item: Any, tiles: Tiles, source: str, seed: int) -> Finding:
    """Identify one instruction, and only then look at its row."""
    begun, result = time.monotonic(), Finding(item.mnemonic, item.arch.name, source)
    result.found = identify(tiles, seed)
    result.seconds = time.monotonic() - begun
    row = registered(item.lowering, tiles.signature)
    result.row = vars(row) if row else {}
    result.differs = differences(result.found, row)
    return result


def on_model(mnemonic: str, arch: str, seed: int = 0) -> Finding:
    """The model plays an unknown GPU."""
    item = tcsim.instruction(mnemonic, arch=arch)
    return finding(item, ModelTiles(item), "the model", seed)


def on_gpu(mnemonic: str, arch: str, target: str, gpu: str, ordinal: int, seed: int = 0) -> Finding:
    """The instruction on a GPU, in a worker process that is replaced if it hangs."""
    item = tcsim.instruction(mnemonic, arch=arch)
    made = build([item], target)[mnemonic]
    failed = str(made).splitlines()[0] if not isinstance(made, Probe) else made.complaint
    if failed or not isinstance(made, Probe):
        return Finding(mnemonic, arch, gpu, failed=failed)
    with GpuWorker(ordinal) as worker:
        try:
            return finding(item, GpuTiles(made, worker.run), gpu, seed)
        except WorkerError as error:
            return Finding(mnemonic, arch, gpu, failed=str(error).splitlines()[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print, write."""
    made = argparse.ArgumentParser(
        prog="python -m hwkernels.identify",
        description="Find what tensor-core instructions compute from their answers alone.",
    )
    made.add_argument("--model", metavar="ARCH", type=arch_named, help="the model of an arch plays the unknown GPU")
    made.add_argument("--gpu", type=int, default=0, metavar="N", help="ordinal (default 0)")
    made.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="instructions whose mnemonic has all of these in it"
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--jobs", type=int, default=4, help="instructions at the same time (default 4)")
    made.add_argument("--rows", action="store_true", help="print a row of the registry for each")
    made.add_argument(
        "--full", action="store_true", help="print every key beside the registry's row, and the questions that decided"
    )
    made.add_argument("--json", type=Path, help="write everything here")
    options = made.parse_args(arguments)
    try:
        if options.model:
            arch, one = options.model, partial(on_model, arch=options.model, seed=options.seed)
        else:
            info = device_info(options.gpu)
            arch = info.arch
            target = max((target.name for target in ARCHS[arch].targets), key=len)
            gpu = f"{info.name}, driver {info.driver_version}"
            one = partial(on_gpu, arch=arch, target=target, gpu=gpu, ordinal=options.gpu, seed=options.seed)
        names = [item.mnemonic for item in chosen(arch, options.only, scaled=bool(options.model))]
        with ProcessPoolExecutor(max(1, min(options.jobs, len(names))), get_context("spawn")) as pool:
            findings = []
            for result in pool.map(one, names):
                findings.append(result)
                print("\n".join(result.lines()) if options.full else result.line(), flush=True)
                if options.full and result.found is not None and not result.found.outside:
                    print(*(f"    {line}" for line in result.found.lines()), sep="\n")
                if options.rows and result.found is not None:
                    print(row_text(result.mnemonic, result.found))
    except (DriverUnavailable, ToolchainError, TcsimError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        write_file(options.json, json.dumps([item.data() for item in findings], indent=1, default=str))
    agree = sum(item.agrees for item in findings)
    asked = sum(item.found.asked for item in findings if item.found)
    print(f"{arch}: {agree} of {len(findings)} as the registry says; {asked:,} dot products asked")
    return 0 if findings and agree == len(findings) else 1 if findings else 2
