"""Calls of backward passes and optimizers: cases fixed before anything is compared, and what torch returns of them. `python -m hwkernels.aten.gradients FOLDER` records a GPU's.

A recording holds outputs only: inputs come from `hwkernels.aten.inputs`.
"""

from __future__ import annotations

import json
import lzma
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwkernels.aten.inputs import numbers
from hwkernels.aten.recording import digest
from tcsim.core.files import replacing, write_file

Array = NDArray[Any]
FLOATS = ("f32", "bf16", "f16")
STEPS = 3
"""Steps of an optimizer."""


@dataclass(frozen=True)
class Case:
    """One call: `op` with `options` on tensors of `dtype`."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    kind: str = "normal"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name that says all."""
        words = [self.op, self.dtype, "x".join(map(str, self.shape)), self.kind]
        return "/".join(words + [f"{name}={str(value).replace(' ', '')}" for name, value in self.options.items()])

    def array(self, name: str, shape: tuple[int, ...], kind: str = "normal", dtype: str | None = None) -> Array:
        """An input of the case."""
        seed = int.from_bytes(blake2b(f"{self.id}:{name}".encode(), digest_size=8).digest(), "little")
        return numbers(shape, seed, kind, dtype or self.dtype)

    def inputs(self) -> dict[str, Array]:
        """All inputs by name."""
        return dict(_inputs(self))


def _inputs(case: Case) -> Iterator[tuple[str, Array]]:
    o, shape = case.options, case.shape

    def one(
        name: str, of: tuple[int, ...] = shape, kind: str = "normal", dtype: str | None = None
    ) -> tuple[str, Array]:
        return name, case.array(name, of, kind, dtype)

    if case.op == "embedding":
        yield one("grad", (o["indices"], shape[1]), case.kind)
        yield one("index", (o["indices"],), f"below {o.get('below', shape[0])}", "i64")
    elif case.op in ("nll_loss", "cross_entropy"):
        yield one("x", kind=case.kind)
        name, target = one("target", shape[:1], f"below {shape[1]}", "i64")
        if o.get("ignored"):
            target[:: o["ignored"]] = -100
        yield name, target
        if o.get("weight"):
            yield one("weight", shape[1:], "near one")
        yield one("grad", shape[:1] if o["reduction"] == "none" else ())
    elif case.op == "attention":
        for name in ("q", "grad"):
            yield one(name, (o["batch"], o["heads"], o["queries"], o["size"]))
        for name in ("k", "v"):
            yield one(name, (o["batch"], o["groups"], o["keys"], o["size"]))
        if o.get("mask"):
            shape = (o["batch"], 1, o["queries"], o["keys"])
            yield one(
                "mask", shape, "masked" if o["mask"] == "added" else "bool", None if o["mask"] == "added" else "bool"
            )
    elif case.op in ("adamw", "adam", "sgd", "clip"):
        for number, n in enumerate(shape):
            if case.op == "clip":
                yield one(f"grad{number}", (n,), case.kind)
                continue
            yield one(f"parameter{number}", (n,))
            for step in range(STEPS):
                yield one(f"grad{number}.{step}", (n,), case.kind)
    else:
        wide = "f32" if o.get("widens") else None
        yield one("grad", dtype=wide)
        yield one("x", kind=case.kind)
        if o.get("weight"):
            yield one("weight", shape[-1:], "near one")
        if o.get("bias"):
            yield one("bias", shape[-1:])


# --- the list

ELEMENTWISE: dict[str, tuple[dict[str, Any], ...]] = {
    "gelu": ({"approximate": "none"}, {"approximate": "tanh"}), "silu": ({},), "tanh": ({},), "sigmoid": ({},), "threshold": ({},), "mish": ({},), "softplus": ({},),
    "leaky_relu": ({},), "elu": ({},), "hardswish": ({},), "hardsigmoid": ({},), "log_sigmoid": ({},),
}  # fmt: skip
"""Elementwise backward passes and the options of their cases."""
NUMBERS = (((16384,), "normal"), ((16384,), "wide"), ((9001,), "large"), ((4096,), "tiny"), ((8192,), "specials"), ((37, 111), "near one"), ((1, 3), "normal"), ((4096,), "huge"))  # fmt: skip
NORMED = (
    (1, 64), (2, 8), (4, 1000), (7, 768), (17, 4096), (33, 129), (16, 3), (63, 384), (64, 384), (65, 384), (100, 250), (127, 96), (128, 384), (128, 768), (129, 33), (200, 513), (255, 64), (256, 256),
    (257, 100), (512, 30), (1000, 640), (1024, 384), (2048, 96), (4000, 32), (66000, 48), (70000, 40), (3, 20000), (130, 1026),
)  # fmt: skip
LENGTHS = (1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 64, 65, 96, 127, 128, 129, 200, 250, 256, 257, 384, 500, 512, 513, 640, 768, 1000, 1023, 1024, 1025, 1026, 1028, 1032, 1152, 1500, 2000, 2047, 2048, 2049,
           2056, 3000, 3072, 4096, 4097, 4100, 5120, 6000, 8192, 8200, 9216, 10001, 12288, 16384, 20000, 32000, 50257, 65536)  # fmt: skip
SPATIAL = (((64, 10), 0), ((5, 64, 3), 1), ((2, 1000, 70), 1), ((3, 7, 500), 1), ((17, 129), 0), ((2, 100, 32), 1))
EMBEDDED = ((1, 50, 33), (8, 8, 64), (64, 50, 33), (128, 8192, 384), (128, 256, 384), (200, 10, 7), (1000, 1000, 64), (3000, 100, 64), (3072, 64, 40), (3073, 64, 40), (4000, 50, 33), (5000, 3, 16), (8192, 1000, 32), (8192, 2, 24))  # fmt: skip
LOSSES = ((1, 10), (7, 33), (32, 1000), (127, 8192), (128, 1000), (1000, 50), (2048, 17), (16, 50257))
ATTENDED = (
    (2, 6, 64, 64, 64),
    (1, 4, 128, 128, 64),
    (1, 2, 100, 100, 64),
    (1, 2, 256, 256, 128),
    (2, 2, 33, 33, 32),
    (1, 2, 200, 300, 64),
    (1, 2, 512, 512, 64),
)
"""Batch, heads, queries, keys, head size."""
SIZES: tuple[tuple[int, ...], ...] = ((1, 37, 4096, 5000), (2112,), (70000, 3), (65536, 65537))
OPTIMIZERS: dict[str, tuple[dict[str, Any], ...]] = {
    "adamw": (
        {}, {"lr": 3e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}, {"lr": 6e-4, "betas": (0.9, 0.95), "eps": 1e-6, "weight_decay": 0.0}, {"amsgrad": True},
        {"maximize": True, "lr": 0.01},
    ),
    "adam": ({}, {"weight_decay": 0.01}, {"lr": 2e-3, "betas": (0.8, 0.99), "amsgrad": True}, {"lr": 1e-4, "eps": 1e-5}, {"maximize": True, "weight_decay": 0.1}),
    "sgd": (
        {"lr": 0.1}, {"lr": 0.05, "momentum": 0.9}, {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}, {"lr": 0.03, "momentum": 0.8, "dampening": 0.3},
        {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.01, "maximize": True}, {"lr": 0.07, "weight_decay": 0.05},
    ),
}  # fmt: skip
WAYS = ("loop", "foreach", "fused")


def _each(dtype: str) -> Iterator[Case]:
    shape: tuple[int, ...]
    options: dict[str, Any]
    sizes: tuple[int, ...]
    for op, several in ELEMENTWISE.items():
        for options in several:
            for shape, kind in NUMBERS:
                yield Case(op, dtype, shape, kind, options)
    for shape in NORMED:
        yield Case("layer_norm", dtype, shape, "normal", {"weight": True, "bias": True})
        yield Case("rms_norm", dtype, shape, "normal", {"weight": True})
    for shape in ((33, 129), (128, 384), (64, 1000)):
        yield Case("layer_norm", dtype, shape)
        yield Case("rms_norm", dtype, shape)
        yield Case("layer_norm", dtype, shape, "offset", {"weight": True, "bias": True})
        yield Case("rms_norm", dtype, shape, "wide", {"weight": True})
    for op in ("softmax", "log_softmax"):
        for n in LENGTHS:
            yield Case(op, dtype, (max(1, min(7, 20000 // n)), n), "normal", {"dim": 1})
        for shape, dim in SPATIAL:
            yield Case(op, dtype, shape, "normal", {"dim": dim})
        for shape in ((33, 64), (9, 1000), (5, 4096)):
            yield Case(op, dtype, shape, "large", {"dim": 1})
        if dtype == "f16":
            for n in (64, 1000, 1025, 2048, 4096, 8192, 8195):
                yield Case(op, dtype, (3, n), "normal", {"dim": 1, "widens": True})
    for number, shape in enumerate(LOSSES):
        for reduction in ("mean", "sum", "none"):
            options = {
                "reduction": reduction,
                **({"weight": True} if number % 2 else {}),
                **({"ignored": 3} if number % 3 == 1 else {}),
            }
            yield Case("nll_loss", dtype, shape, "normal", options)
    for n, rows, size in EMBEDDED:
        yield Case("embedding", dtype, (rows, size), "normal", {"indices": n})
    yield Case("embedding", dtype, (8192, 384), "normal", {"indices": 128, "below": 20})
    yield Case("embedding", dtype, (50, 33), "normal", {"indices": 1000, "padding": 7})
    yield Case("embedding", dtype, (50, 33), "normal", {"indices": 1000, "by_frequency": True})
    yield Case("embedding", dtype, (50, 33), "normal", {"indices": 5000, "padding": 7})
    for op, several in OPTIMIZERS.items():
        for number, options in enumerate(several):
            for way in WAYS:
                for sizes in SIZES[:1] if number else SIZES[:2]:
                    yield Case(op, dtype, sizes, "normal", {**options, "way": way})
        for way in WAYS:
            yield Case(op, dtype, (4096,), "wide", {**several[1], "way": way})
            yield Case(op, dtype, (4096,), "tiny", {**several[1], "way": way})
    for sizes in ((1, 37, 4096, 5000), (2112,), (70000, 3), (65536, 65537), (300000, 128, 1000001)):
        for way in WAYS[:2]:
            yield Case("clip", dtype, sizes, "normal", {"max_norm": 1.0, "way": way})
    yield Case("clip", dtype, (5000, 77), "normal", {"max_norm": 1e6, "way": "foreach"})
    for batch, heads, m, n, size in ATTENDED:
        for causal in (False, True):
            for backend in ("default", "math", "flash", "efficient", "cudnn"):
                options = {
                    "batch": batch,
                    "heads": heads,
                    "groups": heads,
                    "queries": m,
                    "keys": n,
                    "size": size,
                    "causal": causal,
                    "backend": backend,
                }
                if dtype != "f32" or backend in ("default", "math", "efficient"):
                    yield Case("attention", dtype, (), "normal", options)
                if dtype == "bf16" and backend != "math":
                    yield Case("attention", dtype, (), "normal", {**options, "deterministic": True})


def cases() -> list[Case]:
    """All cases."""
    return [case for dtype in FLOATS for case in _each(dtype)]


# --- with torch

_CODES: dict[str, Any] = {"f32": np.int32, "bf16": np.int16, "f16": np.int16}


def to_torch(x: Array, device: str) -> Any:
    """An array as a tensor of the device."""
    import torch

    types = {
        "float32": (np.int32, torch.float32),
        "bfloat16": (np.int16, torch.bfloat16),
        "float16": (np.int16, torch.float16),
    }
    codes, own = types.get(x.dtype.name, (x.dtype, None))
    flat = torch.from_numpy(np.ascontiguousarray(x).reshape(-1).view(codes).copy())
    return (flat if own is None else flat.view(own)).reshape(x.shape).to(device)


def to_array(x: Any) -> Array:
    """A tensor as an array."""
    import ml_dtypes
    import torch

    x = x.detach().contiguous().cpu()
    if x.dtype == torch.bfloat16:
        flat: Array = x.reshape(-1).view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return flat.reshape(tuple(x.shape))
    array: Array = x.numpy()
    return array


def outputs(case: Case, device: str) -> dict[str, Any]:
    """What torch returns, by name."""
    import torch

    t = {name: to_torch(array, device) for name, array in case.inputs().items()}
    o, aten = case.options, torch.ops.aten
    if case.op in ELEMENTWISE:
        return {"dx": _elementwise(case.op, aten, o, t["grad"], t["x"])}
    if case.op == "layer_norm":
        weight, bias, n = t.get("weight"), t.get("bias"), list(case.shape[-1:])
        _, mean, rstd = aten.native_layer_norm(t["x"], n, weight, bias, 1e-5)
        found = aten.native_layer_norm_backward(
            t["grad"], t["x"], n, mean, rstd, weight, bias, [True, weight is not None, bias is not None]
        )
        return {"mean": mean, "rstd": rstd, **_named(found, "dx", "dweight", "dbias")}
    if case.op == "rms_norm":
        weight, n = t.get("weight"), list(case.shape[-1:])
        y, rstd = aten._fused_rms_norm(t["x"], n, weight, 1e-5)
        return {
            "y": y,
            "rstd": rstd,
            **_named(
                aten._fused_rms_norm_backward(t["grad"], t["x"], n, rstd, weight, [True, weight is not None]),
                "dx",
                "dweight",
            ),
        }
    if case.op in ("softmax", "log_softmax"):
        y = getattr(aten, f"_{case.op}")(t["x"], o["dim"], bool(o.get("widens")))
        return {"dx": getattr(aten, f"_{case.op}_backward_data")(t["grad"], y, o["dim"], t["x"].dtype)}
    if case.op == "nll_loss":
        reduction = ("none", "mean", "sum").index(o["reduction"])
        y = aten._log_softmax(t["x"], 1, False)
        loss, total = aten.nll_loss_forward(y, t["target"], t.get("weight"), reduction, -100)
        return {
            "loss": loss,
            "total": total,
            "dx": aten.nll_loss_backward(t["grad"], y, t["target"], t.get("weight"), reduction, -100, total),
        }
    if case.op == "embedding":
        return {
            "dweight": aten.embedding_dense_backward(
                t["grad"], t["index"], case.shape[0], o.get("padding", -1), bool(o.get("by_frequency"))
            )
        }
    if case.op == "clip":
        parameters = []
        for grad in t.values():
            parameter = torch.nn.Parameter(torch.zeros_like(grad))
            parameter.grad = grad
            parameters.append(parameter)
        total = torch.nn.utils.clip_grad_norm_(parameters, o["max_norm"], foreach=o["way"] == "foreach")
        return {"total": total, **{name: own.grad for name, own in zip(t, parameters, strict=True)}}
    if case.op == "attention":
        return _attention(case, t)
    return _optimized(case, t)


def _named(values: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=False) if value is not None and value.numel()}


def _elementwise(op: str, aten: Any, o: dict[str, Any], grad: Any, x: Any) -> Any:
    if op == "gelu":
        return aten.gelu_backward(grad, x, approximate=o["approximate"])
    if op in ("tanh", "sigmoid"):
        return getattr(aten, f"{op}_backward")(grad, getattr(aten, op)(x))
    if op == "threshold":
        return aten.threshold_backward(grad, x, 0)
    if op == "softplus":
        return aten.softplus_backward(grad, x, 1.5, 20)
    if op == "leaky_relu":
        return aten.leaky_relu_backward(grad, x, 0.01, False)
    if op == "elu":
        return aten.elu_backward(grad, 1.5, 1, 1, False, x)
    if op == "log_sigmoid":
        y, buffer = aten.log_sigmoid_forward(x)
        return aten.log_sigmoid_backward(grad, x, buffer)
    return getattr(aten, f"{op}_backward")(grad, x)


def _attention(case: Case, t: dict[str, Any]) -> dict[str, Any]:
    import contextlib

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    o = case.options
    names = {
        "math": SDPBackend.MATH,
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    q, k, v = (t[name].requires_grad_() for name in "qkv")
    mask = t.get("mask")
    torch.use_deterministic_algorithms(bool(o.get("deterministic")))
    try:
        with sdpa_kernel([names[o["backend"]]]) if o["backend"] in names else contextlib.nullcontext():
            given = {"is_causal": o["causal"], "scale": o.get("scale"), "enable_gqa": o["heads"] != o["groups"]}
            masked = {**given, "attn_mask": mask}
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **masked)
            choice = torch.tensor(int(torch._fused_sdp_choice(q, k, v, mask, 0.0, **given)))
            dq, dk, dv = torch.autograd.grad(y, (q, k, v), t["grad"])
    finally:
        torch.use_deterministic_algorithms(False)
    return {"choice": choice, "y": y, "dq": dq, "dk": dk, "dv": dv}


def optimizer(op: str, parameters: Any, options: dict[str, Any]) -> Any:
    """torch's optimizer of a case."""
    import torch

    given = {name: value for name, value in options.items() if name != "way"}
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}[op]
    way = options["way"]
    return kind(parameters, foreach=way == "foreach", fused=way == "fused", **given)


def _optimized(case: Case, t: dict[str, Any]) -> dict[str, Any]:
    import torch

    parameters = [torch.nn.Parameter(t[f"parameter{number}"]) for number in range(len(case.shape))]
    own = optimizer(case.op, parameters, case.options)
    found = {}
    for step in range(STEPS):
        for number, parameter in enumerate(parameters):
            parameter.grad = t[f"grad{number}.{step}"]
        own.step()
        for number, parameter in enumerate(parameters):
            found[f"parameter{number}.{step}"] = parameter.detach().clone()
            for name, state in own.state[parameter].items():
                if isinstance(state, torch.Tensor) and state.numel() == parameter.numel() and name != "step":
                    found[f"{name}{number}.{step}"] = state.detach().clone()
    return found


def kept(array: Array, limit: int) -> Array:
    """An output, or every n-th of its elements, so that at most about `limit` bytes are kept."""
    step = max(1, -(-array.nbytes // limit)) | 1 if array.nbytes > limit else 1
    return np.ascontiguousarray(array.reshape(-1)[::step])


def together(digests: dict[str, str]) -> str:
    """One digest of the digests of many outputs: what is kept of an optimizer's steps."""
    text = ",".join(f"{name}:{code}" for name, code in sorted(digests.items()))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def packed(entries: dict[str, Any]) -> dict[str, Any]:
    """Entries as a recording keeps them: 48 bits of each digest, one digest of an optimizer's steps."""
    kept = {}
    for name, entry in entries.items():
        kept[name] = {key: value for key, value in entry.items() if value}
        if "digests" in entry:
            codes = entry["digests"]
            codes = {"all": together(codes)} if name.split("/")[0] in ("adamw", "adam", "sgd") else codes
            kept[name]["digests"] = {key: code[:12] for key, code in codes.items()}
    return kept


def record(chosen: list[Case], device: str, limit: int = 6000) -> tuple[dict[str, Any], dict[str, Array]]:
    """By case: of each output the digest, whether two runs differ; or an error. And outputs, or parts of them."""
    entries: dict[str, Any] = {}
    raw: dict[str, Array] = {}
    for number, case in enumerate(chosen):
        try:
            first = {name: to_array(x) for name, x in outputs(case, device).items()}
            second = {name: to_array(x) for name, x in outputs(case, device).items()}
        except Exception as error:
            entries[case.id] = {"error": f"{type(error).__name__}: {str(error)[:160]}"}
            continue
        entries[case.id] = {
            "digests": {name: digest(x) for name, x in first.items()},
            "unstable": [name for name, x in first.items() if digest(x) != digest(second[name])],
        }
        part = {"adamw": 600, "adam": 600, "sgd": 600, "attention": 2000}.get(case.op, limit)
        for name, x in first.items():
            raw[f"{number}:{name}"] = kept(x, part).view(f"u{x.itemsize}" if x.dtype.kind in "fV" else x.dtype)
    return entries, raw


def main(folder: str, device: str = "cuda") -> None:
    """Records all cases."""
    import torch

    begin, chosen = time.perf_counter(), cases()
    entries, raw = record(chosen, device)
    about = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    write_file(
        Path(folder, "gradients.json.xz"),
        lzma.compress(json.dumps({"about": about, "entries": packed(entries)}).encode()),
    )
    with replacing(Path(folder, "gradients.npz")) as file:
        np.savez(file, **raw)  # type: ignore[arg-type]
    ops = Counter((case.op, "error" in entries[case.id]) for case in chosen)
    print(
        len(chosen),
        "cases",
        f"{time.perf_counter() - begin:.1f} s",
        sum(x.nbytes for x in raw.values()),
        "bytes",
        dict(ops),
    )
    for case in chosen:
        entry = entries[case.id]
        if "error" in entry or entry["unstable"]:
            print(case.id, entry.get("error") or entry["unstable"])


if __name__ == "__main__":
    main(*sys.argv[1:])
