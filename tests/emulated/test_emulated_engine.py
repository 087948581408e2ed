"""The kernels of the engine of the GPU (hwkernels/kernels/engine_*), compiled by g++, against NumPy's engine: every work of the registry.

Needs g++ and some minutes, so it runs only by name: `pytest tests/emulated/test_emulated_engine.py`. `ENGINE_WORKS` in the environment
says how many works (default: every eighth).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.engines.operands import CLASSES, matrices
from conformance.engines.works import works
from hwkernels.device.array_protocols import read_array
from hwkernels.engine import fast, grouped, native
from hwkernels.engine.run import GroupSpace, NanSpace, Operands, Problem, Workspace, problem_of
from hwkernels.engine.source import KERNELS, headers_of
from tcsim.engines.contract import Matrices, Work
from tcsim.engines.reference import ENGINE as NUMPY

TILE = fast.Tile(8, 32, 8, 4, 2)
EVERY = int(os.environ.get("ENGINE_WORKS", "8"))


def compiled(folder: Path, main: str, headers: Mapping[str, str], entry: str) -> Any:
    for name, text in {**headers, "main.cpp": main}.items():
        (folder / name).write_text(text, encoding="utf-8")
    options = ["-O1", "-std=c++17", "-w", "-shared", "-fPIC", "-ffp-contract=off", "-frounding-math", "-mfma"]
    subprocess.run(["g++", *options, "main.cpp", "-o", f"{entry}.so"], cwd=folder, check=True)
    return getattr(ctypes.CDLL(str(folder / f"{entry}.so")), entry)


def on_host(given: Matrices, order: list[int], place: slice) -> tuple[Operands, list[Any]]:
    """The operands of some products of a batch, and what keeps them alive."""
    named = {name: array for name, array in vars(given).items() if array is not None}
    named = {
        name: np.ascontiguousarray(array[place], np.int32 if name == "columns" else array.dtype)
        for name, array in named.items()
    }
    steps = np.int32(order)
    arrays = {name: read_array(array, name) for name, array in named.items()}
    return Operands(arrays, read_array(steps, "order")), [named, steps]


def problem(work: Work, given: Operands, out: np.ndarray) -> Problem:
    found = problem_of(work, given, lambda array: array.host.ctypes.data)
    found.d = out.ctypes.data
    return found


@pytest.mark.parametrize("place", range(0, len(works()), EVERY))
def test_every_bit(place: int, tmp_path: Path) -> None:
    work = list(works())[place]
    text = (KERNELS / "engine_exact.cu").read_text(encoding="utf-8")
    exact = compiled(tmp_path, text, headers_of(work), "engine_exact")
    constants = None
    if not fast.why_not(work):
        constants = fast.constants_of(work, 1 << 30, TILE)
        text = (KERNELS / "engine_gemm.cu").read_text(encoding="utf-8")
        gemm = compiled(tmp_path, text, fast.headers(work, constants), "engine_gemm")
    chained = 3 if work.formats[2] == work.result else 1
    for name in CLASSES:
        given, order = matrices(work, (1, 11, 37), chained, name, place), list(range(chained))[::-1]
        want = NUMPY.multiply(work, given, order)
        got, (operands, kept) = np.empty_like(want), on_host(given, order, slice(None))
        exact(ctypes.byref(problem(work, operands, got)))
        np.testing.assert_array_equal(got, want)
        if constants is not None:
            got = np.empty_like(want)
            asked = problem(work, operands, got)
            steps = asked.blocks * constants.steps
            stages, words = constants.stages(steps), -(-constants.length // 32)
            sizes = [2 * stages * size for size in constants.chunks] + [128 * steps * words * 16] * 2
            space = [np.zeros(size + 64, np.uint8) for size in sizes]
            gemm(ctypes.byref(asked), ctypes.byref(Workspace(*(array.ctypes.data for array in space), steps, stages)))
            np.testing.assert_array_equal(got, want)
        assert kept


@pytest.mark.parametrize("place", [place for place, work in enumerate(works()) if not grouped.why_not(work)])
def test_every_bit_of_groups(place: int, tmp_path: Path) -> None:
    """The kernel of engine_grouped.cu, of work that it computes."""
    work = list(works())[place]
    text = (KERNELS / "engine_grouped.cu").read_text(encoding="utf-8")
    gemm = compiled(tmp_path, text, grouped.headers(work), "engine_grouped")
    for name in CLASSES:
        given, order = matrices(work, (1, 67, 70), 3, name, place), [2, 0, 1]
        want = NUMPY.multiply(work, given, order)
        operands, kept = on_host(given, order, slice(None))
        got = np.empty_like(want)
        asked = problem(work, operands, got)
        count = 2 * grouped.TILE * asked.blocks * work.kept // grouped.GROUP
        size = work.k // work.kept * grouped.GROUP
        space = [np.zeros(count * each, np.uint8) for each in (size, size, 8, 8)]
        tiles = ctypes.c_int64(2)
        gemm(ctypes.byref(asked), ctypes.byref(GroupSpace(*(array.ctypes.data for array in space))), tiles, tiles)
        np.testing.assert_array_equal(got, want)
        assert kept


@pytest.mark.parametrize("place", [place for place, work in enumerate(works()) if not native.why_not(work)])
def test_every_bit_of_ordinary_arithmetic(place: int, tmp_path: Path) -> None:
    """The kernel of engine_native.cu, of work that it computes."""
    work = list(works())[place]
    text = (KERNELS / "engine_native.cu").read_text(encoding="utf-8")
    gemm = compiled(tmp_path, text, native.headers(work, (1, 1)), "engine_native")
    for name in CLASSES:
        given, order = matrices(work, (1, 67, 70), 3, name, place), [2, 0, 1]
        want = NUMPY.multiply(work, given, order)
        operands, kept = on_host(given, order, slice(None))
        got, space = np.empty_like(want), [np.zeros(70, np.uint64), np.zeros(67, np.int32)]
        gemm(
            ctypes.byref(problem(work, operands, got)), ctypes.byref(NanSpace(*(array.ctypes.data for array in space)))
        )
        np.testing.assert_array_equal(got, want)
        assert kept
