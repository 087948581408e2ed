"""Backward passes and optimizers that an H200 computed, against tcsim's."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwkernels.aten.gradients import ELEMENTWISE, Case, cases, together
from hwkernels.aten.recording import digest
from tcsim.aten.backward import loss
from tcsim.aten.backward.attention import scaled_dot_product_attention as attention
from tcsim.aten.evidence import evidence_of
from tcsim.aten.optimizers import adam
from tcsim.core.errors import NotModelledError, OperandError
from tests.support import extent
from tests.support.gradient_calls import computed

FILE = Path(__file__).parents[3] / "data" / "aten" / "gradients_h200.json.xz"
LARGE = 1 << 16
"""Elements of cases that only TCSIM_WHOLE=1 computes."""
OPS = (
    *ELEMENTWISE,
    "layer_norm",
    "rms_norm",
    "softmax",
    "log_softmax",
    "nll_loss",
    "embedding",
    "adamw",
    "adam",
    "sgd",
    "clip",
)
COMPARED = {
    "layer_norm": (72, 102),
    "rms_norm": (72, 102),
    "nll_loss": (45, 72),
    "embedding": (39, 48),
    "clip": (15, 33),
}
"""Cases by default and with TCSIM_WHOLE=1, where they are not all."""


@cache
def recorded() -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(lzma.decompress(FILE.read_bytes()))["entries"]
    return entries


def _large(case: Case) -> bool:
    size = (
        case.shape[0] * case.shape[1]
        if len(case.shape) == 2 and case.op not in ("adamw", "adam", "sgd", "clip")
        else sum(case.shape)
    )
    return size > LARGE and case.op not in ELEMENTWISE


@pytest.mark.parametrize("op", OPS)
def test_equal_to_the_recording(op: str) -> None:
    wrong, compared, every = [], 0, [case for case in cases() if case.op == op]
    for case in every:
        entry = recorded()[case.id]
        if (_large(case) and not extent.WHOLE) or entry.get("unstable"):
            continue
        try:
            found = computed(case)
        except NotModelledError:
            assert op == "embedding" and case.options["indices"] > loss.FEW_INDICES
            continue
        compared += 1
        codes = {name: digest(x) for name, x in found.items()}
        if op in ("adamw", "adam", "sgd"):
            codes = {"all": together(codes)}
        wrong += [f"{case.id}: {name}" for name, code in entry["digests"].items() if codes[name][:12] != code]
    assert not wrong
    assert compared == COMPARED.get(op, (len(every),) * 2)[extent.WHOLE]


def test_attention() -> None:
    compared, wrong = 0, []
    for case in cases():
        o, codes = case.options, recorded()[case.id].get("digests")
        if case.op != "attention" or o["backend"] not in ("default", "cudnn") or o.get("deterministic") or not codes:
            continue
        given = {"backend": "cudnn", **{name: o[name] for name in ("queries", "keys", "size")}}
        if evidence_of("attention_backward", case.dtype, share=o["heads"] // o["groups"], **given).status != "exact":
            continue
        t = case.inputs()
        found = attention(t["grad"], t["q"], t["k"], t["v"], None, o["causal"])
        compared += 1
        named = zip(("dq", "dk", "dv"), found, strict=True)
        wrong += [f"{case.id}: {name}" for name, x in named if digest(x)[:12] != codes[name]]
    assert not wrong
    assert compared == 40


def test_attention_that_is_not_modelled() -> None:
    x = np.ones((1, 1, 1, 16), np.float16)
    with pytest.raises(NotModelledError, match="several queries"):
        attention(x, x, x, x)


def test_all_are_recorded() -> None:
    assert {case.id for case in cases()} == recorded().keys()


def test_what_two_runs_differ_in_is_not_exact() -> None:
    unstable = [case for case in cases() if case.op == "embedding" and recorded()[case.id].get("unstable")]
    assert len(unstable) == 5
    for case in unstable:
        row = evidence_of("embedding_backward", case.dtype, indices=case.options["indices"], by_frequency="False")
        assert row.status == "not modelled"
        with pytest.raises(NotModelledError, match="no fixed order"):
            computed(case)


def test_no_such_way() -> None:
    x = np.ones(1, np.float32)
    with pytest.raises(OperandError, match="no way 'slow'; valid: loop, foreach, fused"):
        adam(x, x, {}, 1, way="slow")  # type: ignore[arg-type]
