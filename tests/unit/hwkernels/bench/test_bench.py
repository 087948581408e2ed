"""The benchmark without a GPU: its statistics, its file, its picture, its command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hwkernels.bench import run as bench
from hwkernels.bench import sparse as bench_sparse
from hwkernels.bench.plot import svg_of
from hwkernels.bench.results import AGAIN, REFERENCE, from_json, summarise, table, to_json

MACHINE = {
    "name": "Imaginary GPU",
    "driver": "1.2.3",
    "date": "2026-01-01T00:00+00:00",
    "copy_tb_s": 4.0,
    "sm_mhz": 1500,
}


def made_up(mode: str = "cold") -> list:  # type: ignore[type-arg]
    """Three sizes, cuBLAS twice, two kernels; the clock falls by 20 % during each run."""
    random, results = np.random.default_rng(0), []
    for size in ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 1024, 4096)):
        base = 2 * np.prod(np.array(size, float)) / 700e6
        drift = np.linspace(1, 1.2, 21)
        noise = random.normal(1, 0.004, (4, 21))
        times = {
            name: list(base * factor * drift * noise[place])
            for place, (name, factor) in enumerate([(REFERENCE, 1.0), (AGAIN, 1.0), ("fast", 0.95), ("slow", 2.0)])
        }
        results += summarise(times, "bf16", "bf16", size, mode)
    return results


def test_ratios_survive_a_drifting_clock_and_carry_their_noise() -> None:
    """Taken within a round; the median; the reference against itself says what is noise."""
    results = made_up()
    assert len(results) == 12
    for item in results:
        want = {REFERENCE: 1.0, AGAIN: 1.0, "fast": 1 / 0.95, "slow": 0.5}[item.contender]
        assert abs(item.ratio - want) < 0.01 * want
        assert item.ratio_low <= item.ratio <= item.ratio_high
        assert item.noise < 0.01
        assert item.tflops == pytest.approx(2 * item.m * item.n * item.k / item.median / 1e6)
    assert {item.ratio for item in results if item.contender == REFERENCE} == {1.0}
    square = next(item for item in results if item.m == 1024)
    assert square.intensity == pytest.approx(1024 / 3)


def test_a_sparse_product_is_counted_as_the_dense_one() -> None:
    """Rates of the dense operations, twice the peak, and what a compressed A weighs: 9 of 16 bits, with its metadata."""
    names = [REFERENCE, AGAIN, "sm90_wgmma_sparse", "cusparselt"]
    results = summarise({name: [10.0, 10.0] for name in names}, "bf16", "bf16", (1024, 1024, 1024), "cold")
    assert [item.sparse for item in results] == [False, False, True, True]
    assert results[2].peak == 2 * results[0].peak and results[2].tflops == results[0].tflops
    assert results[2].intensity == pytest.approx(2 * 1024 / (9 / 8 + 2 + 2))
    assert "sm90_wgmma_sparse" in svg_of(results, MACHINE)


def test_torchs_sparse_library_is_named_or_its_refusal_is_told() -> None:
    """By the class of torch's tensor; a torch without one leaves it out."""

    class SparseSemiStructuredTensorCUSPARSELT:
        pass

    class Torch:
        __version__ = "9.9"
        sparse = SimpleNamespace(to_sparse_semi_structured=lambda a: SparseSemiStructuredTensorCUSPARSELT())

        @staticmethod
        def mm(a: object, b: object) -> object:
            return b

    b = SimpleNamespace(t=lambda: "b transposed")
    found = bench_sparse.vendor(Torch, SimpleNamespace(dtype="bf16"), b)
    assert not isinstance(found, str) and found[0] == "cusparselt" and found[1]() == "b transposed"
    told = bench_sparse.vendor(SimpleNamespace(__version__="1.0"), SimpleNamespace(dtype="bf16"), b)
    assert isinstance(told, str) and told.startswith("torch 1.0 multiplies no sparse bf16: ")


def test_summaries_of_incomplete_runs_are_refused() -> None:
    """Without the reference, its repetition, or a round."""
    with pytest.raises(ValueError, match="no times of"):
        summarise({REFERENCE: [1.0], "mine": [1.0]}, "f16", "f16", (1, 1, 1), "cold")
    with pytest.raises(ValueError, match="rounds differ"):
        summarise({REFERENCE: [1.0], AGAIN: [1.0], "mine": []}, "f16", "f16", (1, 1, 1), "cold")


def test_a_file_is_read_back_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the command line: the table on paper, the picture as an SVG that parses."""
    results = made_up()
    path, picture = tmp_path / "run.json", tmp_path / "run.svg"
    path.write_text(json.dumps(to_json(results, MACHINE)))
    assert from_json(json.loads(path.read_text())) == (results, MACHINE)
    assert bench.main(["--plot", str(path), "--svg", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert all(line in printed for line in table(results))
    root = ElementTree.parse(picture).getroot()
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    text = "".join(root.itertext())
    assert tags.count("circle") == 3 * (3 + 3 + 3)  # per size: rates and roofline of 3 contenders, ratios of 3
    assert "Imaginary GPU" in text and "8192x1024x4096" in text and "roofline" in text
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in root.iter():
        for name, limit in (("cx", width), ("cy", height)):
            assert 0 <= float(element.get(name, 0)) <= limit
    assert svg_of(made_up("sustained"), {}, "sustained").startswith("<svg")
    with pytest.raises(ValueError, match="no cold results to draw; there are: sustained"):
        svg_of(made_up("sustained"), {}, "cold")


def test_the_command_line() -> None:
    """The sizes of the defaults; wrong ones are refused."""
    options = bench.parser().parse_args([])
    assert [size for size in options.sizes if size[0] == size[1]] == [
        (n, n, n) for n in (1024, 2048, 4096, 8192, 16384)
    ]
    assert len(options.sizes) == 7
    for wrong in ("12x13", "0", "1x2x3x4"):
        with pytest.raises((SystemExit, ValueError)):
            bench.parser().parse_args(["--sizes", wrong])


def test_clocks_under_load() -> None:
    """Idle samples and broken lines do not count."""
    lines = "345, 3201, 75, 30\n" * 4 + "1500, 3201, 690, 55\n" * 6 + "15"
    found = bench.clocks_in(lines)
    assert (found["sm_mhz"], found["power_w"], found["samples"]) == (1500, 690, 10)
    assert bench.clocks_in("[N/A], x\n") == {}
