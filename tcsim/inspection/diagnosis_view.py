"""A diagnosis as something to read: what it says, and a map of where the result is wrong."""

from __future__ import annotations

from typing import Any

from tcsim.diagnosis.error_map import SIZES, Blocks, ErrorMap
from tcsim.diagnosis.report import Diagnosis
from tcsim.inspection.report import Lines, Picture, Report

MOST_SQUARES = 4096
"""Blocks of a map that a page draws."""


def diagnosis_report(title: str, found: Diagnosis, mapped: bool = True) -> Report:
    """The verdict and, if it is to be mapped, where and how a product is wrong.

    >>> diagnosis_report("t", Diagnosis("correct", 8, 8, (), (), 0)).parts[0].lines
    ('correct: all 8 outputs are what the model says',)
    """
    right = found.verdict == "correct"
    parts: list[Lines | Picture] = [Lines(tuple(found.summary()), style="good" if right else "", wrap=True)]
    if mapped and found.errors is not None:
        parts += map_parts(found.errors)
    return Report(title, tuple(parts))


def map_parts(errors: ErrorMap) -> list[Lines | Picture]:
    """What was seen in a map of errors, and the map."""
    facts = [Lines(errors.facts, "What it looks like", wrap=True)] if errors.facts else []
    return [*facts, Picture(tuple(errors.drawn()), tuple(_boards(errors)), "Where it is wrong")]


def _boards(errors: ErrorMap) -> list[dict[str, Any]]:
    """The map in every size that a page can draw; the one of the text is `shown` first."""
    shown = errors.shown.size
    fitting = [own for size in sorted({*SIZES, shown}) if (own := errors.blocks(size)).kinds[0].size <= MOST_SQUARES]
    return [_board(errors, own) | {"shown": own.size == shown} for own in fitting]


def _board(errors: ErrorMap, blocks: Blocks) -> dict[str, Any]:
    matrix = errors.matrix
    return {
        "size": blocks.size, "height": errors.shape[1], "width": errors.shape[2], "legend": dict(blocks.legend),
        "rows": ["".join(row) for row in blocks.kinds[matrix]], "wrong": blocks.wrong[matrix].tolist(),
    }  # fmt: skip
