"""Tables of docs/profile.md and docs/profile.md: rules and recorded launches beside the GPU's counters; the GEMM ladder."""

from __future__ import annotations

import json
from pathlib import Path

from generator.markdown import code, table
from tcsim.ptx.counters.rules import OPERATIONS


def rules() -> str:
    """By kind of access and counter."""
    rows = []
    for own in OPERATIONS.values():
        rows += [
            (own.name, code(rule.counter), f"{rule.confirmed} of {rule.compared}", rule.status)
            for rule in own.rules
            if rule.compared
        ]
        rows += [(own.name, code(name), "", "unknown") for name in own.unknown]
    return table(("access", "counter", "launches", "known"), rows, (2,))


FOLDER = Path(__file__).resolve().parent.parent / "measurements"
MEASURED = FOLDER.parents[1] / "tests" / "data" / "counters" / "ladder.json"
STALLS = {
    "long_scoreboard": "global memory", "short_scoreboard": "shared memory", "barrier": "a barrier", "wait": "a fixed latency", "math_pipe_throttle": "the tensor pipe",
    "mio_throttle": "the queue of shared memory",
}  # fmt: skip
"""Nsight Compute's reasons why a warp does not issue, in words."""


def launches() -> str:
    """By counter: launches in which the GPU's is the model's, of PTX alone and with machine code, and where nothing is doubted."""
    data = json.loads((FOLDER / "counters.json").read_text(encoding="utf-8"))
    machine = data["machine"]["counters"]
    rows = [
        (code(name), f"{own[0]} of {own[1]}", own[2], f"{of[0]} of {of[1]}", of[2], f"{of[3]} of {of[4]}", f"{of[5]} %")
        for (name, own), of in zip(data["counters"].items(), machine.values(), strict=True)
    ]
    head = (
        "counter",
        "equal",
        "above the GPU's",
        "equal, --machine",
        "above",
        "equal without doubts",
        "beside others at least",
    )
    return table(head, rows, (1, 2, 3, 4, 5, 6))


def instructions() -> str:
    """By machine instruction: how many are executed as often as on the GPU; the launches in which some are not."""
    data = json.loads((FOLDER / "counters.json").read_text(encoding="utf-8"))["machine"]
    totals, single = data["instructions"], data["by instruction"]
    known, equal = single["known"], single["equal"]
    rows = [
        ("launches whose sum is equal", totals["equal"]), ("within 1 %", totals["within 1 %"]), ("machine instructions with a number", f"{known:,}"),
        ("executed as often as on the GPU", f"{equal:,} ({100 * equal / known:.2f} %)"), ("without a number", f"{single['unknown']:,}"),
    ]  # fmt: skip
    left_out = "Left out, because the order of threads decides: " + ", ".join(map(code, data["undecided"])) + "."
    worst = sorted(single["wrong"].items(), key=lambda own: (-own[1], own[0]))
    wrong = table(("launch", "instructions that are not"), [(code(name), count) for name, count in worst], (1,))
    return "\n\n".join((table((f"of {totals['launches']} launches", ""), rows, (1,)), left_out, wrong))


def different() -> str:
    """Each counter that differs with machine code: the GPU's, the model's, and why it is doubted."""
    data = json.loads((FOLDER / "counters.json").read_text(encoding="utf-8"))["machine"]
    rows = [
        (code(name), code(counter.removesuffix(".sum")), f"{gpu:,}", f"{model:,}", ", ".join(data["doubts"].get(name, {}).get(counter, ["not explained"])))
        for name, own in data["different"].items()
        for counter, (gpu, model) in own.items()
    ]  # fmt: skip
    return table(("launch", "counter", "GPU", "here", "because of"), rows, (2, 3))


def ladder() -> str:
    """By step of the GEMM ladder: what `tcsim profile` says, and what an H200 measured."""
    said = json.loads((FOLDER / "ladder.json").read_text(encoding="utf-8"))
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["steps"]
    rows = []
    for step, own in said.items():
        gpu = measured[step]
        busiest = max(("L1 data", "L2", "tensor"), key=lambda unit: gpu[unit])
        waits = next(iter(gpu["stalls"]))
        rows.append((
            code(step), f"{own['microseconds']:.1f}", f"{own['unit']} {own['shares'][own['unit']]} %", f"{gpu['microseconds']:.1f}",
            f"{gpu['microseconds'] / own['microseconds']:.1f}", f"{busiest} {gpu[busiest]:.0f} %", f"{STALLS[waits]} ({gpu['stalls'][waits]:.1f})",
        ))  # fmt: skip
    head = ("step", "at least, us", "bound by", "H200, us", "times", "busiest", "warps wait for")
    return table(head, rows, (1, 3, 4))
