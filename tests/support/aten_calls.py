"""A recorded case of hwkernels.aten as a call of tcsim.aten."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.aten.cases import Case
from tcsim.aten import loss, normalisation, reductions, softmax
from tcsim.aten.attention.sdpa import backend_of, scaled_dot_product_attention
from tcsim.aten.formats import FORMATS


def computed(case: Case) -> npt.NDArray[Any]:
    """The output that tcsim computes; NotModelledError where it models no such call."""
    tensors, o = case.tensors(), dict(case.options)
    arrays = {name: tensor.array for name, tensor in tensors.items()}
    skipped = tuple(tensor.skipped for tensor in tensors.values())
    x, w, b = (arrays.get(name) for name in ("x", "weight", "bias"))
    if case.op == "attention":
        return scaled_dot_product_attention(
            arrays["q"], arrays["k"], arrays["v"], arrays.get("mask"), o["causal"], o.get("scale"), o["backend"]
        )
    if case.op == "embedding":
        return loss.embedding(arrays["index"], arrays["weight"])
    assert x is not None
    if case.op == "cross_entropy":
        return loss.cross_entropy(x, arrays["target"], **{**o, "weight": w})
    if case.op == "layer_norm":
        return normalisation.layer_norm(x, o.get("axes", 1), w, b, o["eps"], skipped)
    if case.op == "rms_norm":
        return normalisation.rms_norm(x, o.get("axes", 1), w, o.get("eps"), skipped)
    if case.op == "group_norm":
        return normalisation.group_norm(x, o["groups"], w, b, o["eps"])
    if case.op in ("softmax", "log_softmax"):
        return getattr(softmax, case.op)(x, o["dim"], o.get("out"), skipped[0])
    if case.op == "cumsum":
        return reductions.cumsum(x, o["dim"])
    if case.op == "argmax":
        return reductions.argmax(x, o["dim"][0])
    if case.op == "norm":
        return reductions.norm(x, o.get("ord", 2.0), o["dim"], skipped[0])
    if case.op in ("var", "std"):
        return getattr(reductions, case.op)(x, o["dim"], o.get("correction", 1), skipped[0])
    out = (o.get("out"),) if case.op in ("sum", "mean") else ()
    return getattr(reductions, case.op)(x, o["dim"], *out, misaligned=skipped[0])


def properties(case: Case) -> dict[str, int | str]:
    """What tcsim.aten.evidence asks of a call."""
    o, shape = case.options, case.shape
    if case.op == "attention":
        q, k = (np.empty((o["batch"], 1, o[n], o["size"]), FORMATS[case.dtype]) for n in ("queries", "keys"))
        backend = backend_of(q, k, o.get("mask") is not None) if o["backend"] == "default" else o["backend"]
        return {"backend": backend, **{name: o[name] for name in ("queries", "keys", "size")}}
    if case.op == "cross_entropy":
        return {"axes": len(shape), "samples": shape[0], "classes": shape[1]}
    if case.op == "embedding":
        return {}
    size = 1
    for n in shape:
        size *= n
    if case.op == "group_norm":
        return {"length": size // (shape[0] * o["groups"])}
    axes = o.get("axes")
    dims = (
        range(len(shape) - (axes or 1), len(shape))
        if "dim" not in o
        else (o["dim"],)
        if isinstance(o["dim"], int)
        else o["dim"]
    )
    length = 1
    for d in dims:
        length *= shape[d]
    return {"length": length, "rows": size // max(length, 1), "order": int(o.get("ord", 2))}
