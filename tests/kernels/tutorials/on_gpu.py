"""`python -m tests.kernels.tutorials.on_gpu FOLDER --out FOLDER`: the launches that `python -m tests.kernels.tutorials --save FOLDER` wrote, on this GPU.

Each runs twice in a process of its own, from the cubin beside it, on the memory that the model had before; then the bytes that it leaves are
compared with the model's. The table goes into tutorials.txt; launches that differ are written there as recordings of this GPU. Needs cuda-python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from hwkernels.device.driver import call, device_info
from tcsim.launchers import recording
from tcsim.launchers.recording import Buffer, Recording
from tests.kernels.corpora.case import Array, Launch
from tests.kernels.corpora.device import launched
from tests.kernels.corpora.pack import Compiled

MOST_KEPT = 6  # recordings of launches that differ
SECONDS = 60.0  # for a launch, with its process


def moved(data: bytes, buffers: tuple[Buffer, ...], addresses: list[int]) -> bytes:
    """A parameter with the addresses that the buffers have here: of every eight bytes that point into one of them."""
    words = np.frombuffer(data, np.uint64).copy() if len(data) % 8 == 0 else np.zeros(0, np.uint64)
    for place, word in enumerate(words.tolist()):
        for own, address in zip(buffers, addresses, strict=True):
            if own.address <= word < own.address + len(own.before):
                words[place] = address + word - own.address
    return words.tobytes() if len(words) else data


def answered(own: Recording, cubin: bytes) -> list[list[Array]]:
    """What two launches leave in each buffer."""
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0)))
    addresses = [int(call("cuMemAlloc", max(1, len(buffer.before)))) for buffer in own.buffers]
    params = [moved(data, own.buffers, addresses) for data in own.params]
    launch = Launch({}, (), {}, own.grid, own.block, own.cluster, own.dynamic_smem)
    found = []
    for _ in range(2):
        for buffer, address in zip(own.buffers, addresses, strict=True):
            call("cuMemcpyHtoD", address, buffer.before.ctypes.data, len(buffer.before))
        launched(cubin, [own.entry], launch, Compiled(own.ptx.decode(), own.dynamic_smem), params)
        after = [np.empty_like(buffer.before) for buffer in own.buffers]
        for data, address in zip(after, addresses, strict=True):
            call("cuMemcpyDtoH", data.ctypes.data, address, len(data))
        found.append(after)
    return found


def compared(path: Path, out: Path, keep: bool) -> str:
    """Run a recording; what came of it."""
    own, info = recording.read(path), device_info()
    first, second = answered(own, path.with_suffix(".cubin").read_bytes())
    counted = [number for number, buffer in enumerate(own.buffers) if not buffer.scratch]
    differing = sum(int((first[n] != own.buffers[n].after).sum()) for n in counted)
    unsteady = sum(int((first[n] != second[n]).sum()) for n in counted)
    if differing and keep:
        buffers = tuple(replace(buffer, after=data) for buffer, data in zip(own.buffers, first, strict=True))
        kept = replace(
            own, buffers=buffers, gpu=info.name, driver=info.driver_version, notes=("differs from the model",)
        )
        recording.write(out / f"{path.parent.name}_{path.name}", kept)
    compared = sum(len(own.buffers[n].before) for n in counted)
    return f"{compared} bytes compared, {differing} differing, {unsteady} differ the second time"


def main(arguments: list[str]) -> int:
    """Compare all launches of a folder; the exit status says whether one differs or did not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.tutorials.on_gpu", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--keep", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    if given.folder.is_file():
        print(compared(given.folder, given.out, given.keep))
        return 0
    info, equal, files = device_info(), 0, sorted(given.folder.rglob("*.npz"))
    lines = [f"{info.name}, driver {info.driver_version}"]
    for path in files:
        kept = len(list(given.out.glob("*.npz")))
        command = [sys.executable, "-m", "tests.kernels.tutorials.on_gpu", str(path), "--out", str(given.out)]
        try:
            done = subprocess.run(
                command + ["--keep"] * (kept < MOST_KEPT), capture_output=True, text=True, timeout=SECONDS, check=False
            )
            said = done.stdout.strip() if not done.returncode else done.stderr.strip().splitlines()[-1]
        except subprocess.TimeoutExpired:
            said = "HANG"
        equal += said.endswith("bytes compared, 0 differing, 0 differ the second time")
        lines.append(f"{path.parent.name} {path.stem}: {said}")
        print(lines[-1], flush=True)
    lines.append(f"{equal} of {len(files)} launches equal in every byte")
    (given.out / "tutorials.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(lines[-1])
    return int(equal != len(files) or not files)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
