"""The benchmark's picture, an SVG: rate of each step of the ladder, ratio to cuBLAS with quartiles, roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from hwkernels.bench.results import AGAIN, REFERENCE, Result

WIDTH, HEIGHT, MARGIN, GAP = 520, 380, 60, 30  # of one panel, pixels
LEGEND = 18  # of one line
COLORS = ("#888888", "#1b6ca8", "#d1495b", "#3a7d44", "#e09f3e", "#6d4c9f", "#2a9d8f", "#b56576", "#4f5d75", "#9c6644")


@dataclass
class Panel:
    """Axes of one panel and what is drawn in it, in data coordinates."""

    title: str
    x_label: str
    y_label: str
    x: tuple[float, float]
    y: tuple[float, float]
    logarithmic: bool = False
    ticks: Sequence[tuple[float, str]] = ()  # along x; along y they are found
    shapes: list[str] = field(default_factory=list)
    left: float = 0.0

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        scale: Callable[[float], float] = math.log10 if self.logarithmic else float
        across = (scale(x) - scale(self.x[0])) / (scale(self.x[1]) - scale(self.x[0]))
        up = (scale(y) - scale(self.y[0])) / (scale(self.y[1]) - scale(self.y[0]))
        return self.left + MARGIN + across * (WIDTH - MARGIN), 40 + (1 - up) * HEIGHT

    def line(self, points: Sequence[tuple[float, float]], color: str, dashed: bool = False) -> None:
        """A polyline."""
        text = " ".join("{:.1f},{:.1f}".format(*self.place(*point)) for point in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.shapes.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.6"{dash} points="{text}"/>')

    def dot(self, x: float, y: float, color: str, title: str) -> None:
        """A point that tells its numbers when pointed at."""
        px, py = self.place(x, y)
        self.shapes.append(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.2" fill="{color}"><title>{escape(title)}</title></circle>'
        )

    def svg(self) -> list[str]:
        """Frame, ticks, shapes."""
        x0, y0 = self.place(self.x[0], self.y[0])
        x1, y1 = self.place(self.x[1], self.y[1])
        out = [
            f'<rect x="{x0:.1f}" y="{y1:.1f}" width="{x1 - x0:.1f}" height="{y0 - y1:.1f}" fill="none" stroke="#333"/>',
            _text((x0 + x1) / 2, y1 - 12, self.title, "middle", 14),
            _text((x0 + x1) / 2, y0 + 40, self.x_label, "middle"),
            f'<g transform="rotate(-90 {x0 - 44:.1f} {(y0 + y1) / 2:.1f})">{_text(x0 - 44, (y0 + y1) / 2, self.y_label, "middle")}</g>',
        ]
        for value in _ticks(*self.y, self.logarithmic):
            _, py = self.place(self.x[0], value)
            out.append(f'<line x1="{x0:.1f}" x2="{x1:.1f}" y1="{py:.1f}" y2="{py:.1f}" stroke="#ddd"/>')
            out.append(_text(x0 - 6, py + 4, f"{value:g}", "end"))
        along = self.ticks or [(value, f"{value:g}") for value in _ticks(*self.x, self.logarithmic)]
        for value, label in along:
            px, _ = self.place(value, self.y[0])
            out.append(_text(px, y0 + 18, label, "middle", 10))
        return out + self.shapes


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-family="sans-serif" text-anchor="{anchor}">{escape(text)}</text>'


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    """Round numbers in a range.

    >>> _ticks(0.0, 1.2, False), _ticks(1.0, 200.0, True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2], [1.0, 10.0, 100.0])
    """
    if logarithmic:
        return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    rough = (high - low) / 6
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * count, 10) for count in range(first, math.floor(high / step + 1e-9) + 1)]


def svg_of(results: Sequence[Result], machine: Mapping[str, Any], mode: str = "cold") -> str:
    """The picture of one mode of a run.

    Raises ValueError if there are no results of that mode.
    """
    shown = [item for item in results if item.mode == mode]
    if not shown:
        raise ValueError(
            f"no {mode} results to draw; there are: {', '.join(sorted({item.mode for item in results})) or 'none'}"
        )
    sizes = sorted({item.size for item in shown}, key=lambda size: (math.prod(size), size))
    ticks = [(float(place), _label(size)) for place, size in enumerate(sizes)]
    groups: dict[tuple[str, str], list[Result]] = {}
    for item in sorted(shown, key=lambda item: sizes.index(item.size)):
        groups.setdefault((item.contender, item.format), []).append(item)
    top = 1.1 * max(item.tflops for item in shown)
    along = (-0.3, len(sizes) - 0.7)
    low = min(min(item.ratio_low for item in shown) - 0.05, 0.9)
    high = max(max(item.ratio_high for item in shown) + 0.05, 1.1)
    reach = 10.0 ** math.ceil(math.log10(max(item.intensity for item in shown)))
    rates = Panel(f"TFLOP/s, {mode}", "M = N = K, or M x N x K", "TFLOP/s", along, (0.0, top), ticks=ticks)
    ratios = Panel(
        f"time of cuBLAS / time, {mode}", "M = N = K, or M x N x K", "ratio, quartiles", along, (low, high), ticks=ticks
    )
    peaks = sorted({item.peak for item in shown})
    floor = 10.0 ** math.floor(math.log10(min(item.tflops for item in shown)))
    roof = Panel(
        "roofline", "operations per byte", "TFLOP/s", (1.0, reach), (floor, 2 * max(*peaks, top)), logarithmic=True
    )
    panels = [rates, ratios, roof]
    for place, panel in enumerate(panels):
        panel.left = place * (WIDTH + GAP)
    ratios.line([(along[0], 1.0), (along[1], 1.0)], "#333")
    bandwidth = machine.get("copy_tb_s")
    for peak in peaks:
        start = max(1.0, floor / bandwidth) if bandwidth else 1.0
        bend = peak / bandwidth if bandwidth else start
        roof.line(
            [(start, bandwidth * start), (bend, peak), (reach, peak)] if bandwidth else [(start, peak), (reach, peak)],
            "#333",
        )
    legend = []
    for number, ((contender, format_), items) in enumerate(groups.items()):
        color = COLORS[number % len(COLORS)]
        dashed = contender in (REFERENCE, AGAIN)
        legend.append(_text(MARGIN, 40 + HEIGHT + 70 + number * LEGEND, f"{contender}, {format_}", size=12))
        legend.append(
            f'<rect x="{MARGIN - 20}" y="{HEIGHT + 100 + number * LEGEND}" width="12" height="12" fill="{color}"/>'
        )
        points = [(float(sizes.index(item.size)), item) for item in items]
        if contender != AGAIN:
            rates.line([(x, item.tflops) for x, item in points], color, dashed)
        if contender != REFERENCE:
            ratios.line([(x, item.ratio) for x, item in points], color, dashed)
        for x, item in points:
            title = f"{contender} {format_} {_label(item.size)}: {item.tflops:.1f} TFLOP/s, {item.median:.1f} us, ratio {item.ratio:.3f}"
            if contender != AGAIN:
                rates.dot(x, item.tflops, color, title)
                roof.dot(item.intensity, item.tflops, color, title)
            if contender != REFERENCE:
                ratios.line([(x, item.ratio_low), (x, item.ratio_high)], color)
                ratios.dot(x, item.ratio, color, title)
    names = ("name", "driver", "cuda", "torch", "date", "sm_mhz", "power_w")
    facts = ", ".join(f"{name} {machine[name]}" for name in names if name in machine)
    height = HEIGHT + 130 + LEGEND * len(groups)
    body = [line for panel in panels for line in panel.svg()]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * (WIDTH + GAP)}" height="{height}">'
    return "\n".join(
        [
            head,
            '<rect width="100%" height="100%" fill="white"/>',
            *body,
            *legend,
            _text(MARGIN, height - 10, facts),
            "</svg>\n",
        ]
    )


def _label(size: tuple[int, int, int]) -> str:
    return str(size[0]) if len(set(size)) == 1 else "x".join(map(str, size))
