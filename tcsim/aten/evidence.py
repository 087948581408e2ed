"""What is known of each operation: exact where recordings of an H200 (torch 2.11, CUDA 13.0) equal it in every bit, and where nothing says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["exact", "assumed", "not modelled"]
Range = tuple[int, int]

FLOATS = frozenset({"float32", "bfloat16", "float16"})
HALVES = frozenset({"bfloat16", "float16"})


@dataclass(frozen=True)
class Domain:
    """Calls of an operation of which a status holds; what a row does not name may be anything."""

    op: str
    status: Status
    evidence: str
    dtypes: frozenset[str] = FLOATS
    numbers: Mapping[str, Range] = field(default_factory=dict)  # both ends belong to it
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)


_RECORDED = "recorded on an H200: every output equal"

DOMAINS: tuple[Domain, ...] = (
    *(
        Domain(op, "exact", _RECORDED, numbers={"length": (1, longest)})
        for op, longest in (
            ("sum", 4000001),
            ("mean", 4000001),
            ("amax", 1 << 20),
            ("var", 1 << 20),
            ("logsumexp", 1 << 20),
            ("argmax", 1 << 20),
        )
    ),
    Domain("norm", "exact", _RECORDED, numbers={"length": (1, 4000001), "order": (1, 2)}),
    Domain("norm", "not modelled", "powf in the accumulation", numbers={"order": (3, 1 << 30)}),
    *(Domain(op, "exact", _RECORDED, numbers={"length": (64, 50257)}) for op in ("amin", "std")),
    Domain("cumsum", "exact", _RECORDED, numbers={"length": (1, 5000), "rows": (2, 1 << 20)}),
    Domain("cumsum", "not modelled", "one row: CUB's scan", numbers={"rows": (1, 1)}),
    *(
        Domain(op, "exact", _RECORDED, numbers={"length": (1, 151936)})
        for op in ("softmax", "log_softmax", "layer_norm", "rms_norm")
    ),
    Domain("group_norm", "exact", _RECORDED, numbers={"length": (4, 16384)}),
    Domain("cross_entropy", "exact", _RECORDED, numbers={"axes": (2, 2), "classes": (2, 50257), "samples": (1, 2048)}),
    Domain("cross_entropy", "not modelled", "more than two axes: atomic additions"),
    Domain("embedding", "exact", "copies rows"),
    Domain(
        "attention",
        "not modelled",
        "float32: products of three tf32 terms",
        frozenset({"float32"}),
        {},
        {"backend": frozenset({"efficient"})},
    ),
    Domain(
        "attention",
        "not modelled",
        "one query: cuBLAS's gemv",
        HALVES,
        {"queries": (1, 1)},
        {"backend": frozenset({"math"})},
    ),
    Domain(
        "attention",
        "assumed",
        "cuDNN adds four sums in no fixed order: two runs of the GPU differ",
        HALVES,
        {"queries": (1, 1), "keys": (257, 1 << 30)},
        {"backend": frozenset({"cudnn"})},
    ),
    Domain(
        "attention",
        "exact",
        _RECORDED,
        HALVES,
        {"queries": (1, 1), "keys": (2, 256), "size": (8, 256)},
        {"backend": frozenset({"cudnn"})},
    ),
    Domain(
        "attention",
        "exact",
        _RECORDED,
        HALVES,
        {"queries": (2, 1024), "keys": (2, 1024), "size": (8, 256)},
        {"backend": frozenset({"math"})},
    ),
    Domain(
        "attention",
        "exact",
        _RECORDED,
        frozenset({"bfloat16"}),
        {"queries": (2, 1024), "keys": (2, 2000), "size": (8, 256)},
        {"backend": frozenset({"cudnn"})},
    ),
    Domain(
        "attention",
        "exact",
        _RECORDED,
        frozenset({"float16"}),
        {"queries": (2, 1024), "keys": (2, 256), "size": (8, 256)},
        {"backend": frozenset({"cudnn"})},
    ),
    Domain(
        "attention",
        "exact",
        _RECORDED,
        HALVES,
        {"queries": (1, 1024), "keys": (1, 2000), "size": (8, 128)},
        {"backend": frozenset({"efficient"})},
    ),
    Domain(
        "attention", "assumed", "of 1,856 recorded calls 9 differ in one to nine outputs, not explained yet", HALVES
    ),
)

OPERATIONS = frozenset(row.op for row in DOMAINS)


def evidence_of(op: str, dtype: str, **properties: int | str) -> Domain:
    """The first row of DOMAINS that holds a call; `properties`: what its rows name (length: elements of one output; rows; queries, keys, size, backend).

    A call that no row holds is assumed if the operation is known, else not modelled.

    >>> evidence_of("softmax", "bfloat16", length=4096).status
    'exact'
    >>> evidence_of("softmax", "bfloat16", length=1 << 20).status, evidence_of("median", "float32").status
    ('assumed', 'not modelled')
    """
    for row in DOMAINS:
        numbers = all(
            isinstance(n := properties.get(name), int) and low <= n <= high for name, (low, high) in row.numbers.items()
        )
        words = all(properties.get(name) in allowed for name, allowed in row.words.items())
        if row.op == op and dtype in row.dtypes and numbers and words:
            return row
    if op in OPERATIONS:
        return Domain(op, "assumed", "the same rule as for the calls that were recorded; none like this one was")
    return Domain(op, "not modelled", "no rule")


def status(op: str, dtype: str, **properties: int | str) -> Status:
    """ "exact", "assumed" or "not modelled", as `evidence_of` finds it.

    >>> status("attention", "float16", backend="cudnn", queries=1, keys=1000, size=128)
    'assumed'
    """
    return evidence_of(op, dtype, **properties).status
