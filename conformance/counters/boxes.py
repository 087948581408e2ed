"""`python -m conformance.counters.boxes [--ncu [--out FILE]]`: what TMA counts of boxes at the edges of a tensor, beside a GPU.

Each launch loads one box: rows and columns outside on either side, every swizzle, rows at every multiple of 16 bytes; for one block, or by
.multicast for two or four. Without --ncu the recording of an H200 is replayed. Exit status 1 if the bytes of a box differ,
or what L2 is asked for by a box that lies wholly in the tensor or is a multicast.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from conformance.counters.live import profiled
from tcsim.core.files import write_file
from tcsim.ptx import Memory, parse
from tcsim.ptx.counters.rules import L2_REQUESTS, L2_SECTORS, TMA_BYTES
from tcsim.tma.types import TensorMapError

RECORDED = Path(__file__).parent.parent / "recordings" / "sm_90" / "boxes.json.xz"
COUNTERS = (TMA_BYTES, L2_REQUESTS, L2_SECTORS)
SEED, COUNT = 1, 320
MULTICAST = (2, 4)
"""Blocks that get a box, of the first half of the boxes."""
BASE = 1 << 22
"""An address of a tensor, before its offset."""
_NAMES = ("alone", "multicast")
_SIZES = {"UINT8": 1, "FLOAT16": 2, "FLOAT32": 4}
_SPANS = {"NONE": 256, "32B": 32, "64B": 64, "128B": 128}
_MOST_BYTES = 32768
_KERNEL = """
.visible .entry {name}{rank}(.param .align 64 .b8 m[128], .param .u32 x, .param .u32 y, .param .u32 z, .param .u32 bytes, .param .u32 mask)
{{
 .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p, %q; .reg .b16 %h;
 .shared .align 1024 .b8 smem[32768]; .shared .align 8 .b64 bar;
 mov.u32 %r0, smem; mov.u32 %r1, bar; ld.param.u32 %r2, [x]; ld.param.u32 %r3, [y]; ld.param.u32 %r4, [z]; ld.param.u32 %r5, [bytes];
 ld.param.u32 %r6, [mask]; cvt.u16.u32 %h, %r6; mov.u32 %r7, %cluster_ctarank; setp.eq.u32 %q, %r7, 0;
 mov.b64 %d0, m; cvta.param.u64 %d0, %d0;
 mbarrier.init.shared.b64 [%r1], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
 mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1], %r5;
 barrier.cluster.arrive; barrier.cluster.wait;
 @%q cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{multicast} [%r0], [%d0, {{{at}}}], [%r1]{mask};
L: mbarrier.try_wait.shared.b64 %p, [%r1], %d1;
 @!%p bra L;
 barrier.cluster.arrive; barrier.cluster.wait;
 ret;
}}
"""


@dataclass(frozen=True)
class Box:
    """A load of a box: its map, the bytes from `BASE` to the tensor, and where the box begins."""

    data_type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: str
    offset: int
    at: tuple[int, ...]
    blocks: int = 1

    @property
    def map(self) -> tcsim.TensorMap:
        """Raises TensorMapError where the driver makes none."""
        return tcsim.TensorMap(self.data_type, self.dims, self.strides, self.box, swizzle=self.swizzle)

    @property
    def whole(self) -> bool:
        """Whether it lies in the tensor."""
        return all(0 <= at <= dim - box for at, box, dim in zip(self.at, self.box, self.dims, strict=True))

    @property
    def kernel(self) -> str:
        """Which kernel of `module` loads it."""
        return f"{_NAMES[self.blocks > 1]}{len(self.dims)}"

    def params(self, map: bytes) -> tuple[bytes, ...]:
        """The parameters of its kernel."""
        numbers = (*(*self.at, 0, 0)[:3], self.map.transaction_bytes, (1 << self.blocks) - 1)
        return (map, *(int(own).to_bytes(4, "little", signed=True) for own in numbers))


def module() -> str:
    """The PTX of the kernels, one for each rank without .multicast, and one with it."""
    own = (
        _KERNEL.format(name=name, rank=rank, at=", ".join(("%r2", "%r3", "%r4")[:rank]), multicast=multicast, mask=mask)
        for name, multicast, mask in zip(_NAMES, ("", ".multicast::cluster"), ("", ", %h"), strict=True)
        for rank in (1, 2, 3)
    )
    return ".version 8.6\n.target sm_90a\n.address_size 64\n" + "".join(own)


def cases(seed: int = SEED, count: int = COUNT) -> list[Box]:
    """Boxes drawn at random, of maps that the driver makes; then the first half of them again, by .multicast."""
    generator, found = random.Random(seed), list[Box]()
    while len(found) < count:
        own = _drawn(generator)
        try:
            if own is not None and own.map:
                found.append(own)
        except TensorMapError:
            continue
    return found + [replace(own, blocks=blocks) for blocks in MULTICAST for own in found[: count // 2]]


def _drawn(generator: random.Random) -> Box | None:
    """A box whose first coordinate falls on 16 bytes, inside or across an edge; None where it is too large."""
    data_type = generator.choice(list(_SIZES))
    size, rank = _SIZES[data_type], generator.choice((1, 2, 2, 2, 2, 3))
    swizzle = generator.choice(("NONE", "32B", "64B", "128B", "128B"))
    widths = (16, 32, 48, 64, 96, 128, 256)
    width = generator.choice([own for own in widths if own <= _SPANS[swizzle] and own // size <= 256])
    rows = 1 if rank < 2 else generator.choice((1, 2, 4, 8, 16, 64))
    planes = 1 if rank < 3 else generator.choice((1, 2, 3))
    if width * rows * planes > _MOST_BYTES:
        return None
    columns = width // size
    dim = generator.choice((columns, 2 * columns, 3 * columns, generator.randrange(1, 600)))
    pitch = -(-dim * size // 16) * 16 + generator.choice((0, 0, 16, 32, 64, 128))
    if generator.random() < 0.5:
        pitch = -(-pitch // 32) * 32
    dims = (
        dim,
        1 if rank < 2 else rows + generator.choice((0, 0, 1, 5, 100)),
        1 if rank < 3 else planes + generator.choice((0, 0, 1, 5)),
    )
    edge = generator.choice(("in", "hi0", "hi0", "hi0", "lo0", "hi1", "lo1", "both", "out"))
    x = generator.randrange(0, max(1, dim - columns + 1))
    y = generator.randrange(0, dims[1] - rows + 1) if rank > 1 else 0
    z = generator.randrange(0, dims[2] - planes + 1) if rank > 2 else 0
    if edge in ("hi0", "both"):
        x = dim - generator.randrange(1, columns + 1)
    if edge == "lo0":
        x = -generator.randrange(1, columns + 1)
    if edge in ("hi1", "both") and rank > 1:
        y = dims[1] - generator.randrange(1, rows + 1)
    if edge == "lo1" and rank > 1:
        y = -generator.randrange(1, rows + 1)
    if edge == "out":
        x = dim + generator.randrange(0, 5)
    unit = max(1, 16 // size)
    at, strides, box = (x // unit * unit, y, z), (pitch, pitch * dims[1]), (columns, rows, planes)
    offset = generator.choice((0, 0, 16, 32, 64, 112))
    return Box(data_type, dims[:rank], strides[: rank - 1], box[:rank], swizzle, offset, at[:rank])


def predicted(own: Box) -> Mapping[str, int]:
    """What the model counts of a box."""
    memory = Memory()
    memory.map(BASE, np.zeros(1 << 20, np.uint8))
    params = own.params(bytes(own.map.encode(BASE + own.offset)))
    run = (
        parse(module())
        .kernel(own.kernel)
        .launch(
            memory,
            list(params),
            (own.blocks, 1, 1),
            cluster=(own.blocks, 1, 1),
            arch="sm_90",
            check=False,
            counters=True,
        )
    )
    assert run.completed and run.counters is not None, run.hazards
    return {name: run.counters.get(name, 0) for name in COUNTERS}


def recorded() -> tuple[dict[str, str], list[tuple[Box, Mapping[str, int]]]]:
    """What is said of the GPU, and its boxes with what it counted."""
    data = json.loads(lzma.decompress(RECORDED.read_bytes()))
    every = cases(data["seed"])
    if [list(asdict(own).values()) for own in (every[0], every[-1])] != [_tuples(own) for own in data["ends"]]:
        raise ValueError(f"{RECORDED}: its boxes are not those that are drawn of seed {data['seed']}")
    values = (dict(zip(data["counters"], own, strict=True)) for own in data["values"])
    return data["made"], list(zip(every, values, strict=True))


def _tuples(given: list[Any]) -> list[Any]:
    return [tuple(own) if isinstance(own, list) else own for own in given]


def write(path: Path, made: Mapping[str, str], values: Sequence[Mapping[str, int]], seed: int = SEED) -> None:
    """Keep what was counted of the boxes of a seed."""
    every = cases(seed)
    data = {
        "made": dict(made), "seed": seed, "ends": [list(asdict(own).values()) for own in (every[0], every[-1])], "counters": COUNTERS,
        "values": [[own[name] for name in COUNTERS] for own in values],
    }  # fmt: skip
    write_file(path, lzma.compress(json.dumps(data, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME))


def launch(folder: str) -> None:
    """Launch all boxes on this machine's GPU, with the cubin of a folder: what Nsight Compute watches."""
    from hwkernels.device.driver import call
    from hwkernels.device.kernel_launch import KernelLaunch, launched, open_executor
    from hwkernels.device.tensor_map import driver_encode

    open_executor(0)
    image, room = (Path(folder) / "boxes.cubin").read_bytes(), int(call("cuMemAlloc", BASE))
    base = -(-room // 4096) * 4096
    for own in cases():
        params = own.params(driver_encode(own.map, base + own.offset))
        launched(KernelLaunch(image, own.kernel, params, (), (own.blocks, 1, 1), (1, 1, 1), (own.blocks, 1, 1)))


def measured(ncu: str = "ncu") -> list[Mapping[str, int]]:
    """What this machine's GPU counts of all boxes. Raises RuntimeError, with its output, if Nsight Compute fails."""
    return profiled(module(), "boxes.cubin", ("conformance.counters.boxes", "--launch"), COUNTERS, ncu=ncu)


def main(arguments: Sequence[str]) -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m conformance.counters.boxes", description=__doc__)
    parser.add_argument("--ncu", nargs="?", const="ncu", help="Nsight Compute's command")
    parser.add_argument("--out", type=Path, help="keep what was counted in this file")
    parser.add_argument("--launch", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.launch:
        launch(given.launch)
        return 0
    if given.ncu:
        from hwkernels.device.driver import device_info  # only where there is a GPU

        info, values = device_info(), measured(given.ncu)
        if given.out is not None:
            write(given.out, {"gpu": info.name, "driver": info.driver_version}, values)
        launches = list(zip(cases(), values, strict=True))
    else:
        made, launches = recorded()
        print(", ".join(f"{name} {value}" for name, value in made.items()))
    wrong = compared(launches)
    for own, name, hardware, model in wrong[:20]:
        print(f"{own}: {name}: {hardware} on the GPU, {model} here")
    print(f"{len(launches)} boxes, {sum(own.whole for own, _ in launches)} of them whole; {len(wrong)} counters differ")
    return int(bool(wrong) or not launches)


def compared(launches: Sequence[tuple[Box, Mapping[str, int]]]) -> list[tuple[Box, str, int, int]]:
    """Boxes whose bytes differ, or, unless only a part lies in the tensor and is for one block, what L2 is asked for: (box, counter, the GPU's, the model's)."""
    found = []
    for own, hardware in launches:
        model = predicted(own)
        for name in COUNTERS if own.whole or own.blocks > 1 else COUNTERS[:1]:
            if model[name] != hardware[name]:
                found.append((own, name, hardware[name], model[name]))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
