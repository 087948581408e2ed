"""What is known of each operation: exact where recordings of an H200 (torch 2.11, CUDA 13.0) equal it in every bit, and where nothing says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from tcsim.aten.elementwise import OPERATIONS as ELEMENTWISE
from tcsim.aten.elementwise import Known
from tcsim.aten.formats import FORMATS
from tcsim.core.errors import NotModelledError

Range = tuple[int, int]

FLOATS = frozenset(dtype.name for dtype in FORMATS.values())
HALVES = FLOATS - {"float32"}
ANY = 1 << 62


@dataclass(frozen=True)
class Domain:
    """Calls of an operation of which a status holds; what a row does not name may be anything."""

    op: str
    status: Literal["exact", "assumed", "not modelled"]
    evidence: str
    dtypes: frozenset[str] = FLOATS
    numbers: Mapping[str, Range] = field(default_factory=dict)  # both ends belong to it
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def holds(self, dtype: str, properties: Mapping[str, int | str]) -> bool:
        """Whether a call of the operation belongs to it."""
        numbers = ((properties.get(name), low, high) for name, (low, high) in self.numbers.items())
        return (
            dtype in self.dtypes
            and all(isinstance(n, int) and low <= n <= high for n, low, high in numbers)
            and all(properties.get(name) in allowed for name, allowed in self.words.items())
        )


_RECORDED = "recorded on an H200: every output equal"
_F32 = frozenset({"float32"})


def _attention(status: Known, evidence: str, backend: str, dtypes: frozenset[str], **numbers: Range) -> Domain:
    return Domain("attention", status, evidence, dtypes, numbers, {"backend": frozenset({backend})})


DOMAINS: tuple[Domain, ...] = (
    *(Domain(name, row.known, f"elementwise; {_RECORDED}") for name, row in ELEMENTWISE.items()),
    Domain("to", "exact", f"one rounding; {_RECORDED}"),
    *(Domain(op, "exact", "copies") for op in ("embedding", "where", "masked_fill")),
    *(Domain(op, "exact", _RECORDED, numbers={"length": (1, 4000001)}) for op in ("sum", "mean")),
    *(
        Domain(op, "exact", _RECORDED, numbers={"length": (1, 1 << 20)})
        for op in ("amax", "argmax", "var", "logsumexp")
    ),
    *(Domain(op, "exact", _RECORDED, numbers={"length": (64, 50257)}) for op in ("amin", "std")),
    Domain("argmin", "assumed", "the rule of argmax; not recorded"),
    Domain("norm", "exact", _RECORDED, numbers={"length": (1, 4000001), "order": (1, 2)}),
    Domain("norm", "not modelled", "powf in the accumulation", numbers={"order": (3, ANY)}),
    Domain("cumsum", "exact", _RECORDED, numbers={"length": (1, 5000), "rows": (2, 1 << 20)}),
    Domain("cumsum", "not modelled", "one row: CUB's scan", numbers={"rows": (1, 1)}),
    *(
        Domain(op, "exact", _RECORDED, numbers={"length": (1, 151936)})
        for op in ("softmax", "log_softmax", "layer_norm", "rms_norm")
    ),
    Domain("group_norm", "exact", _RECORDED, numbers={"length": (4, 16384)}),
    *(
        Domain(f"{op}_backward", "exact", _RECORDED, numbers={"length": (1, 131072)})
        for op in ("softmax", "log_softmax")
    ),
    *(
        Domain(f"{op}_backward", "exact", _RECORDED, numbers={"length": (3, 20000), "rows": (1, 70000)})
        for op in ("layer_norm", "rms_norm")
    ),
    Domain("nll_loss", "exact", _RECORDED, numbers={"classes": (2, 50257), "samples": (1, 2048)}),
    Domain(
        "embedding_backward",
        "exact",
        _RECORDED,
        numbers={"indices": (1, 3072)},
        words={"by_frequency": frozenset({"False"})},
    ),
    Domain(
        "embedding_backward",
        "not modelled",
        "additions in no fixed order: two runs differ",
        _F32,
        numbers={"indices": (3073, ANY)},
        words={"by_frequency": frozenset({"False"})},
    ),
    Domain(
        "embedding_backward",
        "assumed",
        "additions in no fixed order in float32, which rounding hides",
        HALVES,
        numbers={"indices": (3073, ANY)},
    ),
    Domain("attention_backward", "not modelled", "one query: kernels of another order", numbers={"queries": (1, 1)}),
    Domain(
        "attention_backward",
        "exact",
        _RECORDED,
        HALVES,
        {"queries": (2, 512), "keys": (2, 256), "size": (8, 256), "share": (1, 8)},
        {"backend": frozenset({"cudnn"})},
    ),
    Domain(
        "attention_backward",
        "assumed",
        "the parts of dq are added in no fixed order: two runs differ",
        HALVES,
        {"keys": (257, ANY)},
        {"backend": frozenset({"cudnn"})},
    ),
    Domain("foreach_norm", "exact", _RECORDED, numbers={"length": (1, 5000001)}),
    Domain("foreach_div", "exact", _RECORDED),
    *(Domain(op, "exact", _RECORDED) for op in ("fused_adam", "fused_sgd")),
    Domain("cross_entropy", "exact", _RECORDED, numbers={"axes": (2, 2), "classes": (2, 50257), "samples": (1, 2048)}),
    Domain("cross_entropy", "not modelled", "more than two axes: atomic additions", numbers={"axes": (3, ANY)}),
    Domain(
        "attention",
        "not modelled",
        "float32: only the backends efficient and math take it",
        _F32,
        words={"backend": frozenset({"cudnn", "flash"})},
    ),
    _attention("exact", _RECORDED, "math", HALVES, queries=(1, 1), keys=(1, 1024), size=(64, 128)),
    Domain(
        "attention",
        "not modelled",
        "one query: products in f32 that were not recorded",
        numbers={"queries": (1, 1), "keys": (2, ANY)},
        words={"backend": frozenset({"math"})},
    ),
    _attention("exact", _RECORDED, "math", HALVES, queries=(2, 1024), keys=(2, 1024), size=(8, 256)),
    _attention("exact", _RECORDED, "efficient", HALVES, queries=(1, 1024), keys=(1, 2000), size=(8, 256)),
    _attention("exact", _RECORDED, "efficient", _F32, queries=(7, 250), keys=(7, 250), size=(64, 128)),
    _attention("exact", _RECORDED, "cudnn", HALVES, queries=(1, 1), keys=(2, 256), size=(8, 256)),
    _attention(
        "assumed",
        "four sums added in no fixed order: two runs differ",
        "cudnn",
        HALVES,
        queries=(1, 1),
        keys=(257, ANY),
    ),
    _attention("exact", _RECORDED, "cudnn", HALVES, queries=(2, 1024), keys=(2, 2000), size=(8, 256)),
    _attention("exact", _RECORDED, "flash", HALVES, queries=(1, 1024), keys=(1, 4096), size=(36, 256)),
)
"""The first row that holds a call counts."""


def evidence_of(op: str, dtype: npt.DTypeLike, **properties: int | str) -> Domain:
    """The first row of DOMAINS that holds a call; arguments as `known` takes them.

    A call that no row holds is assumed if the operation takes the dtype, else not modelled.

    >>> evidence_of("cumsum", "bf16", length=10, rows=1).evidence
    "one row: CUB's scan"
    """
    name = (FORMATS[dtype] if isinstance(dtype, str) and dtype in FORMATS else np.dtype(dtype)).name
    rows = [row for row in DOMAINS if row.op == op]
    if not any(name in row.dtypes for row in rows):
        return Domain(op, "not modelled", f"no rule for {name}")
    unseen = Domain(op, "assumed", "the same rule as for the calls that were recorded; none like this one was")
    return next((row for row in rows if row.holds(name, properties)), unseen)


def known(op: str, dtype: npt.DTypeLike, **properties: int | str) -> Known:
    """ "exact" or "assumed": how a call is known. Raises NotModelledError for one that is not modelled.

    op: the name of the function in `tcsim.aten` ("attention" for scaled_dot_product_attention). dtype: NumPy's, or "f32", "bf16", "f16". properties,
    what the rows of DOMAINS name; one that is not given counts as not recorded: length (elements of one output), rows (outputs), order of norm;
    axes, samples, classes of cross_entropy; backend, queries, keys, size of attention. Elementwise operations need none.

    >>> known("softmax", "bf16", length=4096), known("softmax", "bf16", length=1 << 20), known("gelu", np.float16)
    ('exact', 'assumed', 'exact')
    >>> known("attention", "f16", backend="cudnn", queries=1, keys=1000, size=128)
    'assumed'
    """
    found = evidence_of(op, dtype, **properties)
    if found.status == "not modelled":
        raise NotModelledError(f"aten.{op}: {found.evidence}")
    return found.status
