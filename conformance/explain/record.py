"""`python -m conformance.explain.record --out FOLDER`: every product on the GPU of this machine, each saved as soon as it is done.

A process for each library, started again behind a product that ended it. Writes FOLDER/<library>.zip with `<id>.<kind>.json` (what was asked,
versions, kernels, digests) and `<id>.<kind>.npy` (the kept outputs), and FOLDER/<library>.txt with a line for each product.
`python -m conformance.explain.recorded FOLDER` puts what it wrote into the recordings.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import io
import json
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from conformance.explain import inputs
from conformance.explain.products import LIBRARIES, Product, products

RUNNERS = {
    "cublas": ("conformance.explain.on_torch", "cublas"), "cublaslt": ("conformance.explain.on_cublaslt", "cublaslt"),
    "cudnn": ("conformance.explain.on_torch", "cudnn"), "triton": ("conformance.explain.on_triton", "triton_matmul"),
}  # fmt: skip
"""Where the runner of a library is: only its own process imports it, since each needs another library."""


_STARTS = 12  # of the process of one library


def gpu() -> dict[str, str]:
    """Which GPU and driver."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        name, driver = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
        )
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"gpu": "unknown", "driver": str(error)}
    return {"gpu": name, "driver": driver}


def save(path: Path, name: str, about: dict[str, Any], kept: inputs.Array) -> None:
    """Append a case to an archive, which is whole after each."""
    words = kept.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[kept.dtype.itemsize])
    buffer = io.BytesIO()
    np.save(buffer, words)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", buffer.getvalue())
        archive.writestr(f"{name}.json", json.dumps(about))


def one(product: Product, runner: Any, folder: Path, host: dict[str, str], profiler: Any) -> str:
    """Run one product in all its ways and with all its inputs: a line on what came of it."""
    given = {kind: inputs.operands(product, kind) for kind in product.kinds}
    saved = unstable = 0
    for way in runner(product, given):
        names = profiler(lambda way=way: way.run(product.kinds[0])) if profiler else []
        for kind in product.kinds:
            first, second = way.run(kind), way.run(kind)
            stable = first.tobytes() == second.tobytes()
            rows, columns = inputs.sample(product)
            about = {
                "product": product.id, "way": way.mark, "kind": kind, "library": product.library, "call": product.call,
                "shape": [product.batch, *product.shape], "formats": product.formats, "options": dict(product.options),
                "inputs": inputs.digest(given[kind]), "version": inputs.VERSION, "stable": stable, "kernels": names,
                "whole": hashlib.sha256(first.tobytes()).hexdigest(), "date": datetime.date.today().isoformat(),
                **host, **way.about,
            }  # fmt: skip
            name = f"{product.id}.{way.mark or 'only'}.{kind}"
            save(folder / f"{product.library}.zip", name, about, first[:, rows][:, :, columns])
            saved, unstable = saved + 1, unstable + (not stable)
    return f"{saved} saved, {unstable} of them unstable"


def work(library: str, folder: Path, seconds: float, profile: bool) -> int:
    """One process: every product of a library that has not been begun."""
    start = time.monotonic()
    path = folder / f"{library}.txt"
    begun = (
        {line.split()[1] for line in path.read_text().splitlines() if line.startswith("begin ")}
        if path.exists()
        else set()
    )
    module, name = RUNNERS[library]
    runner = getattr(import_module(module), name)
    profiler = import_module("conformance.explain.on_torch").kernels if profile else None
    host = gpu()
    with path.open("a") as log:
        for product in products(library):
            if product.id in begun:
                continue
            if time.monotonic() - start > seconds:
                print(f"late {product.id}", file=log, flush=True)
                continue
            print(f"begin {product.id}", file=log, flush=True)
            at = time.monotonic()
            try:
                said = one(product, runner, folder, host, profiler)
            except (
                Exception
            ) as error:  # the next product may do better; what the GPU cannot forget ends the process below
                last = traceback.extract_tb(error.__traceback__)[-1]
                said = f"failed: {type(error).__name__}: {str(error)[:300]!r} at {last.filename.split('/')[-1]}:{last.lineno}"
                if "CUDA error" in str(error) or "AcceleratorError" in type(error).__name__:
                    print(f"end {product.id} {said}", file=log, flush=True)
                    return 3
            print(f"end {product.id} {time.monotonic() - at:.2f} s: {said}", file=log, flush=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """A process for each library; one that ends early is started again."""
    parser = argparse.ArgumentParser(prog="python -m conformance.explain.record")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=125.0, help="after which no process begins another product")
    parser.add_argument("--libraries", nargs="+", choices=sorted(LIBRARIES), default=list(LIBRARIES))
    parser.add_argument("--no-profile", action="store_true", help="do not ask for the names of kernels")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker:
        return work(options.worker, options.out, options.seconds, not options.no_profile)
    start = time.monotonic()

    def left() -> float:
        return float(options.seconds - (time.monotonic() - start))

    running: dict[str, subprocess.Popen[bytes]] = {}
    starts: dict[str, int] = dict.fromkeys(options.libraries, 0)

    def begin(library: str) -> None:
        command = [sys.executable, "-m", "conformance.explain.record", "--out", str(options.out), "--worker", library]
        command += ["--seconds", str(max(5.0, left()))] + ["--no-profile"] * options.no_profile
        starts[library] += 1
        with (options.out / f"{library}.txt").open("a") as log:
            running[library] = subprocess.Popen(command, stdout=log, stderr=log)

    for library in options.libraries:
        begin(library)
    while running and left() > -20:
        time.sleep(0.5)
        for library, process in list(running.items()):
            status = process.poll()
            if status is None:
                continue
            del running[library]
            if status and left() > 15 and starts[library] < _STARTS:
                begin(library)
    for process in running.values():
        process.kill()
        process.wait()
    for library in options.libraries:
        lines = (options.out / f"{library}.txt").read_text().splitlines()
        ends = [line for line in lines if line.startswith("end ")]
        failed = [line for line in ends if "failed" in line]
        late = sum(line.startswith("late ") for line in lines)
        print(
            f"{library}: {len(ends)} of {len(products(library))} products ended, {len(failed)} failed, {late} not begun"
        )
        for line in failed:
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
