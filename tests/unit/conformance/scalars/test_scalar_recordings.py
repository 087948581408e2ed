"""The inputs of scalar spellings are frozen, and the model gives what a GPU gave."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from conformance.scalars import cases, questions, recorded
from conformance.scalars.inputs import COUNT, SHORT, corners, inputs

FROZEN = {
    ("f32", "f32", "f32"): "e80b97242850", ("f16",): "d09398191c6c", ("bf16x2", "bf16x2"): "45eb434007d6", ("s64", "u32"): "5ad760316289", ("u8",): "e03e8e346cd4", ("f64", "f64", "pred"): "947962a85976",
}  # fmt: skip


@pytest.mark.parametrize("types", FROZEN)
def test_inputs_are_frozen(types: tuple[str, ...]) -> None:
    """The same codes for ever."""
    found = hashlib.sha256()
    for codes in inputs(types):
        assert len(codes) == COUNT
        found.update(codes.tobytes())
    assert found.hexdigest()[:12] == FROZEN[types]


def test_inputs_hold_every_pair_of_corners() -> None:
    """Of two operands, within the first half of the list; the short list has zeros, NaN and infinities."""
    first, second = inputs(("f32", "f32"))
    own = corners("f32")
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    assert pairs >= {(int(a), int(b)) for a in own for b in own}
    assert {0, 1 << 31, 0x7F800000, 0xFF800000} <= set(first[:SHORT].tolist())
    assert np.isnan(first[:SHORT].view(np.float32)).sum() > 20


def test_half_precision_is_exhaustive() -> None:
    """Every code of a single operand of 16 bits."""
    assert len(np.unique(inputs(("bf16",))[0])) == 1 << 16


if recorded.exists():

    def batches() -> dict[tuple[str, ...], list[str]]:
        """Names of spellings by the types of their sources."""
        found: dict[tuple[str, ...], list[str]] = {}
        for name in recorded.spellings():
            found.setdefault(cases.probes()[name].sources, []).append(name)
        return found

    @pytest.mark.parametrize("types", batches(), ids=" ".join)
    def test_the_model_gives_what_the_gpu_gave(types: tuple[str, ...]) -> None:
        """On the first inputs of each spelling, by digest."""
        given = [codes[:SHORT] for codes in inputs(types)]
        wrong = [
            name
            for name in batches()[types]
            if cases.digest(cases.expected(cases.probes()[name], given)) != recorded.spellings()[name].short
        ]
        assert wrong == []

    @pytest.mark.parametrize("name", recorded.answers())
    def test_questions(name: str) -> None:
        """The machine answers as the GPU did, apart from the bytes that are named, where it does not."""
        model = questions.answer(questions.questions()[name]).reshape(questions.WARPS, -1)
        hardware = recorded.answers()[name].reshape(model.shape)
        apart = np.zeros(questions.REGION, bool)
        if name in questions.DIFFERENT:
            apart[list(questions.DIFFERENT[name][0])] = True
            assert (model != hardware)[:, apart].any()
        assert np.array_equal(model[:, ~apart], hardware[:, ~apart])

    def test_every_question_is_recorded() -> None:
        """Those whose answer is known to differ among them."""
        assert recorded.answers().keys() == questions.questions().keys()
        assert questions.DIFFERENT.keys() <= recorded.answers().keys()

    def test_everything_is_recorded() -> None:
        """Every spelling of sm_90a that a GPU was asked about, with equal results."""
        asked = set(cases.probes())
        assert recorded.spellings().keys() == asked
        assert {name: row for name, row in recorded.spellings().items() if row.mismatches} == {}

    def test_a_run_of_some_spellings_joins_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its lines take the place of the old ones, the answers stay, and the header says when they were asked."""
        here, run = tmp_path / "here", tmp_path / "run"
        shutil.copytree(recorded.FOLDER, here)
        monkeypatch.setattr(recorded, "FOLDER", here)
        run.mkdir()
        line = {"spelling": "add.u32", "inputs": "5", "mismatches": "0", "short": "a", "all": "b", "first": ""}
        (run / "scalars.csv").write_text(",".join(line) + "\n" + ",".join(line.values()) + "\n")
        about = {"gpu": "a GPU", "driver": "1", "assembler": "13.5", "date": "2000-01-01", "answered": []}
        (run / "scalars.json").write_text(json.dumps(about))
        before = (here / recorded.ANSWERS).read_bytes(), recorded._lines()
        recorded.keep(run)
        after = recorded._lines()
        assert [row for row in after if row["spelling"] == "add.u32"] == [line]
        assert [row for row in after if row["spelling"] != "add.u32"] == [
            row for row in before[1] if row["spelling"] != "add.u32"
        ]
        assert (here / recorded.ANSWERS).read_bytes() == before[0]
        header = json.loads((here / recorded.HEADER).read_text())
        assert header["answered"] == recorded.header()["answered"]
        assert header["later"][-1] == {name: about[name] for name in ("gpu", "driver", "assembler", "date")} | {
            "spellings": ["add.u32"]
        }
