"""Tables of docs/reference/tables/gemm-speed.md, from what `hwkernels.bench` wrote on a GPU: docs/measurements/*.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from generator.markdown import table

FOLDER = Path(__file__).resolve().parent.parent / "measurements"
Row = dict[str, Any]


def _rows(name: str, mode: str) -> list[Row]:
    rows = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [row for row in rows if row["mode"] == mode]


def _size(row: Row) -> str:
    return str(row["m"]) if row["m"] == row["n"] == row["k"] else f"{row['m']} x {row['n']} x {row['k']}"


def _ratio(row: Row) -> str:
    return f"{row['ratio']:.3f} ({row['ratio_low']:.3f} .. {row['ratio_high']:.3f})"


def persistent(mode: str) -> str:
    """sm90_wgmma_persistent by format and size: time, rate, ratio to cuBLAS with quartiles, noise of A against A."""
    rows = [row for row in _rows("h200-formats", mode) if row["contender"] == "sm90_wgmma_persistent"]
    cells = [
        (row["format"], _size(row), f"{row['median']:.1f}", f"{row['tflops']:.0f}", _ratio(row), f"{row['noise']:.3f}")
        for row in rows
    ]
    return table(("format", "M x N x K", "us", "TFLOP/s", "ratio (quartiles)", "noise"), cells, ())


def by_kernel(name: str) -> str:
    """Every contender of a run, cold: TFLOP/s and ratio by size."""
    rows = [row for row in _rows(name, "cold") if row["contender"] != "cublas again"]
    cells = [
        (row["contender"], row["format"], _size(row), f"{row['median']:.1f}", f"{row['tflops']:.0f}", _ratio(row))
        for row in rows
    ]
    return table(("kernel", "format", "M x N x K", "us", "TFLOP/s", "ratio (quartiles)"), cells, ())


def machine() -> str:
    """What ran, as the run itself told."""
    said = json.loads((FOLDER / "h200-formats.json").read_text(encoding="utf-8"))["machine"]
    return (
        f"{said['name']}, driver {said['driver']}, CUDA {said['cuda']}, torch {said['torch']}, {said['date']}. During the run: "
        f"{said['power_w_middle']} W in the middle, {said['power_w_highest']} W at most, {said['sm_mhz']} MHz and {said['celsius']} "
        f"degrees Celsius at the end. A device-to-device copy moved {said['copy_tb_s']:.2f} TB/s."
    )
