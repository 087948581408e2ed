"""What a look-up costs: wall and processor time of `tcsim ...`, each run as a process of its own.

python benchmarks/lookups.py               print the table: medians of seven runs, one command after the other, seven times
python benchmarks/lookups.py --check       exit status 1 if a command takes longer than the goal
"""

from __future__ import annotations

import resource
import shlex
import statistics
import subprocess
import sys
import time

GOAL = 0.5  # seconds of wall time, on two idle cores
TIMES = 7
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
COMMANDS = f"""
list fp8
list bf16 m16n8k16
list --arch h100 fp8
show {MMA}
show ldmatrix x4 trans
show tcgen05.mma.cta_group::1.kind::f16
where {MMA} --operand A --element 8,6
where mma m16n8k16 bf16 --operand A --element 8,6
where wgmma m64n128k16 bf16 f32 --operand B --element 3,5 --swizzle 128B
where tcgen05.mma kind::f16 --operand D --element 8,6 --idesc 0x8200490
what HMMA.16816.F32.BF16 --lane 3 --register a1
map {MMA} --operand A
inputs {MMA} --element 8,6
descriptor tile --rows 128 --k 64 --type bf16 --swizzle 128B
descriptor decode 0x4000404000000040 --arch b200
descriptor check 0x4000004000000040 --rows 64 --k 16 --type f16
idesc encode --kind f16 --a bf16 --m 128 --n 256
tmem --m 128 --n 256
tensormap encode --type BFLOAT16 --dim 4096,4096 --box 64,128
swizzle 128B
mbarrier decode 0x7ffff800001ffffe
number e4m3 0.3
--help
""".strip().splitlines()
"""A kernel writer's questions."""


def timed(command: str) -> tuple[float, float]:
    """Seconds of wall and of processor time of one run.

    Raises CalledProcessError if it fails.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "tcsim", *shlex.split(command)], check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the table; the exit status says whether each command is quick enough."""
    found: dict[str, list[tuple[float, float]]] = {command: [] for command in COMMANDS}
    for _ in range(TIMES):
        for command, runs in found.items():
            runs.append(timed(command))
    slow = 0
    print("| `tcsim` | seconds | of a processor |\n| --- | ---: | ---: |")
    for command, runs in found.items():
        wall, processor = (statistics.median(column) for column in zip(*runs, strict=True))
        slow += wall > GOAL
        print(f"| `{command}` | {wall:.2f} | {processor:.2f} |")
    return int(slow > 0 and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
