"""The page of a profile: what binds the time, the roofline, the PTX with heat by line, and the banks of the worst shared access before and after a change."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tcsim.core.texts import markup
from tcsim.inspection.report import Drawing, Report
from tcsim.launchers.profile import Profile
from tcsim.layouts.banks import BANKS, INACTIVE, WARP_LANES, WORD_BYTES
from tcsim.layouts.coalescing import Rows
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.advice import better, changes
from tcsim.ptx.counters.bound import cost
from tcsim.ptx.counters.cycles import CHIPS

MOST_LINES, BESIDE = 200, 2
"""Lines of PTX that a page shows because of their cost, and how many before and behind each."""
_WIDE, _HIGH = 640, 300


def page_report(own: Profile) -> Report:
    """The report of a profile with its drawings, below the facts."""
    plain = own.report()
    drawings = [drawing for drawing in (shares(own), roofline(own), heat(own), banks(own)) if drawing is not None]
    return Report(plain.title, (plain.parts[0], *drawings, *plain.parts[1:]))


def shares(own: Profile) -> Drawing | None:
    """A bar for each unit: its part of the bound. None for an arch that was not measured."""
    bound, chip = own.counters.bound, CHIPS.get(own.counters.arch)
    if bound is None or chip is None:
        return None
    rows = sorted([("launch", chip.start / bound.cycles), *bound.shares.items()], key=lambda row: -row[1])
    parts = [
        f'<text x="0" y="{22 * row + 15}">{markup(unit)}</text><rect class="bar{" most" * (unit == bound.unit)}" x="150" y="{22 * row + 3}" '
        f'width="{max(1.0, 400 * share):.1f}" height="16"/><text x="{158 + 400 * share:.1f}" y="{22 * row + 15}">{100 * share:.0f} %</text>'
        for row, (unit, share) in enumerate(rows)
    ]
    return Drawing(_svg(_WIDE, 22 * len(rows), parts, "What each unit needs of the bound"), title="What binds the time")


def roofline(own: Profile) -> Drawing | None:
    """Operations a second over operations per byte, with the roofs of L2, L1 and the tensor cores; None without matrix products."""
    counters, bound, chip = own.counters, own.counters.bound, CHIPS.get(own.counters.arch)
    operations, intensity = counters.get(rules.FLOPS, 0), counters.derived.get("tensor: operations per byte")
    if not operations or not intensity or bound is None or chip is None or not counters.get(rules.TENSOR_CYCLES):
        return None
    busy = counters[rules.TENSOR_CYCLES] / chip.quarters / chip.multiprocessors / chip.hertz
    peak, reached = operations / busy, operations / bound.microseconds * 1e6
    roofs = {"L2": chip.l2 * chip.hertz, "L1": chip.l1 * chip.multiprocessors * chip.hertz, "memory": chip.dram}
    low, high = (
        math.log10(min(intensity, peak / max(roofs.values())) / 4),
        math.log10(max(intensity, peak / min(roofs.values())) * 4),
    )
    top, bottom = math.log10(peak * 2), math.log10(min(reached, peak / 1000))

    def at(x: float, y: float) -> tuple[float, float]:
        """Where a place of the diagram is."""
        across, up = (math.log10(x) - low) / (high - low), (math.log10(y) - bottom) / (top - bottom)
        return 60 + across * (_WIDE - 80), (_HIGH - 40) * (1 - up) + 10

    parts = [f'<path class="line" d="M60 10V{_HIGH - 30}H{_WIDE - 20}"/>']
    for speed in roofs.values():
        start = max(10**low, 10**bottom / speed)
        (x, y), (bend, level) = at(start, start * speed), at(peak / speed, peak)
        parts.append(f'<path class="roof" d="M{x:.1f} {y:.1f}L{bend:.1f} {level:.1f}"/>')
    (x, y), (right, _) = at(peak / max(roofs.values()), peak), at(10**high, peak)
    parts.append(
        f'<path class="roof" d="M{x:.1f} {y:.1f}H{right:.1f}"/><text class="soft" x="{right - 190:.1f}" y="{y - 4:.1f}">tensor {peak / 1e12:,.0f} TFLOP/s</text>'
    )
    x, y = at(intensity, reached)
    said = f"at most {reached / 1e12:,.0f} TFLOP/s at {intensity:,.0f} operations per byte"
    parts.append(f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="6"><title>{said}</title></circle>')
    named = ", ".join(
        f"{name} {speed / 1e12:.1f} TB/s" for name, speed in sorted(roofs.items(), key=lambda roof: -roof[1])
    )
    parts += [
        f'<text x="60" y="{_HIGH - 12}">{said}</text>',
        f'<text class="soft" x="60" y="{_HIGH + 4}">roofs from the left: {named}</text>',
    ]
    return Drawing(_svg(_WIDE, _HIGH + 10, parts, "Roofline"), title="Roofline")


def heat(own: Profile) -> Drawing | None:
    """The PTX, each line as hot as its part of the cost; None if no line costs anything."""
    found = {
        line: (cost(counted, own.counters.arch), counted, source) for line, source, counted in own.counters.by_line()
    }
    total = sum(each for each, _, _ in found.values())
    if not total:
        return None
    hottest = sorted((line for line in found if found[line][0] > total / 2000), key=lambda line: -found[line][0])[
        :MOST_LINES
    ]
    shown = {near for line in hottest for near in range(line - BESIDE, line + BESIDE + 1)} & found.keys()
    rows, last = list[str](), 0
    for line in sorted(shown):
        each, counted, source = found[line]
        if line > last + 1 and rows:
            rows.append("<tr><td></td></tr>")
        last = line
        cells = (
            f"{line}",
            f"{100 * each / total:.1f} %" if each / total > 5e-4 else "",
            f"{counted.get(rules.INSTRUCTIONS, 0):,}",
        )
        rows.append(
            f'<tr style="--heat:{0.6 * math.sqrt(each / total):.2f}" title="{markup(source)}">'
            + "".join(f'<td class="right">{cell}</td>' for cell in cells)
            + f"<td>{markup(own.line(line)[:160])}</td></tr>"
        )
    head = "<tr><td>line</td><td>cost</td><td>warps</td><td>PTX</td></tr>"
    return Drawing(f'<table class="heat">{head}{"".join(rows)}</table>', title="Where the cost is")


def banks(own: Profile) -> Drawing | None:
    """Which lanes want which word of which bank: the access that costs most more than it must, and what a change makes of it."""
    for advice in own.counters.advice:
        operation, width, sides = own.counters.tally.samples.get(advice.line, ("", 0, ()))
        if "conflict" in advice.reason and sides:
            tried = better(operation, width, sides)
            boards = [(f"line {advice.line}, as it is", sides[-1])]
            if tried is not None:
                change = dict(changes(width))[tried[0]]
                boards.append((tried[0], np.where(sides[-1] == INACTIVE, INACTIVE, change(sides[-1]))))
            drawn = "".join(f"<h3>{markup(name)}</h3>{_banks(rows, width)}" for name, rows in boards)
            return Drawing(drawn, title="Banks of shared memory: a square is a word that lanes want")
    return None


def _banks(rows: Rows, width: int) -> str:
    """A column for each bank; each phase of the access stands by itself."""
    each, side = max(1, width // WORD_BYTES), 18
    parts = [
        f'<text class="soft" x="{side * bank + 9}" y="12" text-anchor="middle">{bank}</text>' for bank in range(BANKS)
    ]
    top = 18
    for phase in range(each):
        words: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        count = WARP_LANES // each
        for lane, address in enumerate(rows[0].tolist()):
            for word in range(each) if address != INACTIVE and lane // count == phase else ():
                place = address // WORD_BYTES + word
                words[place % BANKS][place].append(lane)
        deep = max(map(len, words.values()), default=0)
        for bank, own in words.items():
            parts += _column(bank, own, len(own), top, side)
        top += side * deep + 8
    return _svg(BANKS * side, top, parts, "Banks")


def _column(bank: int, words: dict[int, list[int]], ways: int, top: int, side: int) -> Iterator[str]:
    for row, (word, lanes) in enumerate(sorted(words.items())):
        x, y = side * bank, top + side * row
        said = (
            f"bank {bank}, byte {word * WORD_BYTES:#x}: lanes {', '.join(map(str, lanes))}; {ways} words in this bank"
        )
        yield f'<rect class="word" style="--n:{min(ways - 1, 10)}" x="{x}" y="{y}" width="{side}" height="{side}"><title>{said}</title></rect>'
        yield f'<text x="{x + side / 2}" y="{y + 13}" text-anchor="middle" pointer-events="none">{lanes[0]}</text>'


def _svg(wide: float, high: float, parts: list[str], label: str) -> str:
    return f'<svg viewBox="0 0 {wide} {high}" width="{wide}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
