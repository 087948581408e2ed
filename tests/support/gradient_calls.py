"""The calls of `hwkernels.aten.gradients` as tcsim.aten computes them."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from hwkernels.aten.gradients import ELEMENTWISE, STEPS, Case
from tcsim.aten import elementwise, loss, normalisation, softmax
from tcsim.aten.backward import elementwise as gradients
from tcsim.aten.backward import loss as of_loss
from tcsim.aten.backward import normalisation as of_norm
from tcsim.aten.backward import softmax as of_softmax
from tcsim.aten.optimizers import OPTIMIZERS, clipped

Array = npt.NDArray[Any]
NUMBERS: dict[str, dict[str, Any]] = {"softplus": {"beta": 1.5}, "elu": {"alpha": 1.5}}


def computed(case: Case) -> dict[str, Array]:
    """What torch returns of the case, by name."""
    t, o = case.inputs(), case.options
    if case.op in ELEMENTWISE:
        x = t["x"]
        if case.op in ("tanh", "sigmoid"):
            x = elementwise.OPERATIONS[case.op](x)
        return {"dx": gradients.OPERATIONS[case.op](t["grad"], x, **NUMBERS.get(case.op, {}), **o)}
    if case.op == "layer_norm":
        weight = t.get("weight")
        _, mean, rstd = normalisation.layer_norm_statistics(t["x"], 1, weight, t.get("bias"))
        dx, dweight, dbias = of_norm.layer_norm(t["grad"], t["x"], mean, rstd, weight)
        return {"mean": mean[:, None], "rstd": rstd[:, None], "dx": dx, "dweight": dweight, "dbias": dbias}
    if case.op == "rms_norm":
        y, rstd = normalisation.rms_norm_statistics(t["x"], 1, t.get("weight"), 1e-5)
        dx, dweight = of_norm.rms_norm(t["grad"], t["x"], rstd, t.get("weight"))
        return {"y": y, "rstd": rstd[:, None], "dx": dx, "dweight": dweight}
    if case.op in ("softmax", "log_softmax"):
        widens = bool(o.get("widens"))
        y = getattr(softmax, case.op)(t["x"], o["dim"], "f32" if widens else None)
        return {"dx": getattr(of_softmax, case.op)(t["grad"], y, o["dim"], "f16" if widens else None)}
    if case.op == "nll_loss":
        logarithms, weight = softmax.log_softmax(t["x"]), t.get("weight")
        value, total = loss.nll_loss(logarithms, t["target"], weight, o["reduction"])
        rows, classes = case.shape
        dx = of_loss.nll_loss(t["grad"], (rows, classes), t["target"], weight, o["reduction"], total_weight=total)
        return {"loss": value, "total": total, "dx": dx}
    if case.op == "embedding":
        return {
            "dweight": of_loss.embedding(
                t["grad"], t["index"], case.shape[0], o.get("padding", -1), bool(o.get("by_frequency"))
            )
        }
    if case.op == "clip":
        grads, total = clipped(list(t.values()), o["max_norm"], way=o["way"])
        return {"total": total, **dict(zip(t, grads, strict=True))}
    return _optimized(case, t)


def _optimized(case: Case, t: dict[str, Array]) -> dict[str, Array]:
    found = {}
    for number in range(len(case.shape)):
        parameter, state = t[f"parameter{number}"], dict[str, Array]()
        for step in range(STEPS):
            parameter = OPTIMIZERS[case.op](parameter, t[f"grad{number}.{step}"], state, step + 1, **case.options)
            found |= {f"{name}{number}.{step}": x for name, x in {"parameter": parameter, **state}.items()}
    return found
