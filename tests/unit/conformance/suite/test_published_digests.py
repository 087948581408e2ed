"""Digests of an RTX PRO 6000: what is there, that the model gives them, and which wrong models they would not tell from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcsim
from conformance.suite import published_digests
from conformance.suite.cases import Settings, Suite
from conformance.suite.published_digests import PublishedDigest, digest
from conformance.suite.recordings import ROOT, RecordingError
from tcsim.isa.mma import product
from tests.unit.conformance.suite.test_published import WRONG_UNITS

DIGESTS = {item.name.removeprefix("RTX-PRO-6000-"): item for item in published_digests.read()}
FILE = ROOT / published_digests.FILE
_ALL = {"F-1", "F+1", "rounding", "products renormalised"}
TELLS = {
    **dict.fromkeys(("f8f6f4_e4m3_e4m3", "f8f6f4_e5m2_e4m3", "f8f6f4_e5m2_e2m1"), _ALL),
    **{name: {"rounding"} for name in ("f8f6f4_e4m3_e2m1", "f8f6f4_e3m2_e4m3")},
    **{f"mx8_{types}_s{ids}": _ALL for types in ("e4m3_e4m3", "e5m2_e2m3") for ids in ("0000", "1123", "3012")},
    "mx8_e4m3_e4m3_s3012": _ALL | {"addend last"},
    **{f"nvf4_4X_ue4m3_s{ids}": {"rounding", "products renormalised", "addend last"} for ids in ("0000", "0103")},
    "sp_mx8_s0000": _ALL | {"addend last"},
    "sp_mx8_s1132": _ALL,
}
"""The wrong units that change a product's digest; of the others none does: their sums are exact."""


def test_what_is_there() -> None:
    """Of three programs: 49 digests of 55,520 results, which replay 48 instructions of sm_120."""
    assert len(DIGESTS) == 49 and {item.arch for item in DIGESTS.values()} == {"sm_120"}
    assert len({mnemonic for item in DIGESTS.values() for mnemonic in item.mnemonics}) == 48
    assert published_digests.read("sm_90") == () and len(published_digests.read("sm_120")) == 49


def test_every_digest_is_the_model_s() -> None:
    """Of each spelling."""
    compared = {name: item.compare() for name, item in DIGESTS.items()}
    assert {name: found.first for name, found in compared.items() if found.mismatches} == {}
    assert sum(found.outputs for found in compared.values()) == 55_520


def test_spellings_that_share_a_digest_are_one_machine_instruction() -> None:
    """kind::f8f6f4 or none, and with or without .scale_vec; conversions share a word, and are several."""
    several = [item for item in DIGESTS.values() if len(item.mnemonics) > 1 and item.family != "cvt"]
    assert len(several) == 15
    for item in several:
        every = [tcsim.instruction(mnemonic, arch=item.arch).lowering for mnemonic in item.mnemonics]
        assert every[1:] == every[:-1], item.name


def test_the_padding_of_an_fp4_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in bits 5:2 alone, the nine digests with e2m1 in bytes are others."""
    monkeypatch.setattr(product, "field_format", lambda format, bits: format)
    wrong = {name for name, item in DIGESTS.items() if item.family.startswith("mma") and item.compare().mismatches}
    assert (
        wrong == {name for name in DIGESTS if "e2m1" in name and name.startswith(("f8f6f4", "mx8"))} and len(wrong) == 9
    )


@pytest.mark.parametrize("name", [name for name, item in DIGESTS.items() if item.family.startswith("mma")])
def test_what_a_digest_can_tell(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """fp8 has every constant of the unit but the floor; sums of fp6 and fp4 are exact: they show formats, scales and places."""
    item = DIGESTS[name]
    right = tcsim.instruction(item.mnemonic, arch=item.arch)
    found = set()
    for wrong, change in WRONG_UNITS.items():
        steps = tuple(
            replace(step, unit=change(step.unit)) if hasattr(step, "unit") else step for step in right.lowering.steps
        )
        other = replace(right, lowering=replace(right.lowering, steps=steps))
        monkeypatch.setattr(
            published_digests,
            "_execute",
            lambda mnemonic, *operands, own=other, **named: own.execute(*operands, **named),
        )
        if digest(next(item.question.run()), 64) != item.digest:
            found.add(wrong)
    assert found == TELLS.get(name, set())


def test_inputs_are_the_ones_that_were_described() -> None:
    """A few of them, from the description of the programs."""
    given = published_digests._products()
    assert given["a"].shape == given["c"].shape == (32, 4) and given["b of mma.sp"].shape == (32, 4)
    assert [int(word) for word in given["a"][:2, 0]] == [0, 2654435761]
    assert int(given["b"][31, 1]) == (191 * 2654435761 % 2**32) ^ (23 * 40503)
    assert int(given["scale_a"][0]) == sum(123 + (192 * 7 + byte * 3) % 8 << 8 * byte for byte in range(4))
    assert [hex(word) for word in given["metadata"][:2]] == ["0x4e4e4e4e", "0x44444444"]
    assert given["c"].view(np.float32)[3].tolist() == [1.5, 1.0, -2.0, 0.25]
    numbers, others = (codes.view(np.float32) for codes in published_digests._numbers())
    assert (
        np.isnan(numbers[97])
        and numbers[89] == np.inf
        and numbers[83] == np.float32(1e-40)
        and others[1] == numbers[10]
    )


def test_a_changed_digest_fails_the_run(tmp_path: Path) -> None:
    """The verdict names it, and says how to run it again."""
    data = json.loads(FILE.read_text())
    data["digests"]["ldmatrix_forms"]["m8n8.x4.b16"] = "00000000"
    (tmp_path / published_digests.FILE).parent.mkdir()
    (tmp_path / published_digests.FILE).write_text(json.dumps(data))
    suite = Suite(Settings("sm_120", "replay", root=tmp_path))
    outcomes = {item.name: suite.run_published(item) for item in suite.published}
    (failed,) = [name for name, outcome in outcomes.items() if outcome.verdict == "FAIL"]
    assert failed == "RTX-PRO-6000-m8n8.x4.b16" and len(outcomes) == 49
    lines = outcomes[failed].text.splitlines()
    assert lines[1] == f"MISMATCH {failed} digest: 128 results, hardware 00000000 model 22d6c1e5"
    assert lines[2].startswith("rerun: ") and f"test_published[{failed}]" in lines[2]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda data: data.update(schema=2), "schema 2; valid: 1"),
        (lambda data: data.pop("gpu"), "'gpu'"),
        (lambda data: data["digests"]["narrow_cvt"].pop("ue8m0x2 .rp"), "narrow_cvt"),
        (lambda data: data["digests"].update(more={"x": "0"}), "more"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, change: Callable[[dict], object], complaint: str) -> None:
    """Another schema, a missing field, a digest too few or too many."""
    data = json.loads(FILE.read_text())
    change(data)
    (tmp_path / published_digests.FILE).parent.mkdir()
    (tmp_path / published_digests.FILE).write_text(json.dumps(data))
    with pytest.raises(
        RecordingError, match=r"corrupt file .*rtx_pro_6000\.json: .*restore the committed file"
    ) as refused:
        published_digests.read(root=tmp_path)
    assert complaint in str(refused.value)


def test_text_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / published_digests.FILE).parent.mkdir()
    (tmp_path / published_digests.FILE).write_text("{")
    with pytest.raises(RecordingError, match="corrupt file"):
        published_digests.read(root=tmp_path)
    assert published_digests.read(root=tmp_path / "nowhere") == ()


def test_digests_by_hand() -> None:
    """FNV-1a of words: one for each lane, its own if it has several."""
    assert published_digests.folded([]) == 2166136261
    assert published_digests.folded([5]) == (2166136261 ^ 5) * 16777619 % 2**32
    lanes = [published_digests.folded([1, 2]), published_digests.folded([3, 4])]
    assert digest(np.array([[1, 2], [3, 4]], np.uint32)) == f"{published_digests.folded(lanes):08x}"
    assert digest(np.array([[1], [3]], np.uint32), 64) == f"{published_digests.folded([1, 3], 64):016x}"
    assert isinstance(DIGESTS["mxf4_s0000"], PublishedDigest)
