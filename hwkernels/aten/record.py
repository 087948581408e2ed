"""Runs the cases with torch on the GPU and writes a recording: a digest of every output, some of its rows, the kernels that ran."""

import contextlib
import json
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwkernels.aten.cases import GROUPS, Case, Tensor, cases
from hwkernels.aten.inputs import DTYPES, viewed
from hwkernels.aten.recording import digest
from tcsim.core.files import write_file

LIMITS = {"reductions": 16384, "attentions": 6144, "decodings": 16384}


def _to_torch(torch: Any, tensor: Tensor, device: str) -> Any:
    shape, view, skipped = viewed(tensor.shape, tensor.view)
    memory = np.ascontiguousarray(tensor.memory)
    types = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64, "bool": torch.bool}
    codes: dict[str, Any] = {"f32": np.int32, "bf16": np.int16, "f16": np.int16}
    flat = torch.from_numpy(memory.reshape(-1).view(codes.get(tensor.dtype, memory.dtype)).copy()).view(
        types[tensor.dtype]
    )
    buffer = torch.zeros(flat.numel() + skipped, dtype=types[tensor.dtype], device=device)
    buffer[skipped:] = flat.to(device)
    return view(buffer[skipped:].view(shape))


def _to_bytes(torch: Any, y: Any) -> NDArray[np.generic]:
    codes = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
    y = y.detach().contiguous()
    array: NDArray[np.generic] = (
        y.view(codes.get(y.dtype, y.dtype)).cpu().numpy() if y.numel() else np.zeros(tuple(y.shape), np.int32)
    )
    return array


def _as_floats(codes: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    names = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
    return codes.view(DTYPES[names[dtype]]) if dtype in names else codes


def call(torch: Any, case: Case, t: dict[str, Any]) -> Any:
    """The case's call; the result is one tensor."""
    functional, o = torch.nn.functional, case.options
    out = {"dtype": torch.float32} if o.get("out") else {}
    x = t.get("x")
    if case.op in ("sum", "mean"):
        return getattr(torch, case.op)(x, o["dim"], **out)
    if case.op in ("amax", "amin", "logsumexp"):
        return getattr(torch, case.op)(x, o["dim"])
    if case.op == "argmax":
        return torch.argmax(x, o["dim"][0])
    if case.op in ("var", "std"):
        return getattr(torch, case.op)(x, o["dim"], correction=o.get("correction", 1))
    if case.op == "norm":
        return torch.linalg.vector_norm(x, o.get("ord", 2.0), o["dim"])
    if case.op == "cumsum":
        return torch.cumsum(x, o["dim"])
    if case.op in ("softmax", "log_softmax"):
        return getattr(functional, case.op)(x, o["dim"], **out)
    if case.op == "cross_entropy":
        return functional.cross_entropy(x, t["target"], **{**o, "weight": t.get("weight")})
    if case.op == "layer_norm":
        return functional.layer_norm(
            x, case.shape[len(case.shape) - o.get("axes", 1) :], t.get("weight"), t.get("bias"), o["eps"]
        )
    if case.op == "rms_norm":
        return functional.rms_norm(x, case.shape[len(case.shape) - o.get("axes", 1) :], t.get("weight"), o.get("eps"))
    if case.op == "group_norm":
        return functional.group_norm(x, o["groups"], t.get("weight"), t.get("bias"), o["eps"])
    if case.op == "embedding":
        return functional.embedding(t["index"], t["weight"])
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {
        "math": SDPBackend.MATH,
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    with sdpa_kernel([names[o["backend"]]]) if o["backend"] in names else contextlib.nullcontext():
        return functional.scaled_dot_product_attention(
            t["q"],
            t["k"],
            t["v"],
            attn_mask=t.get("mask"),
            is_causal=o["causal"],
            scale=o.get("scale"),
            enable_gqa=o["heads"] != o["groups"],
        )


def _choice(torch: Any, case: Case, t: dict[str, Any]) -> int | None:
    if case.op != "attention" or case.options["backend"] != "default":
        return None
    o = case.options
    return int(
        torch._fused_sdp_choice(
            t["q"],
            t["k"],
            t["v"],
            t.get("mask"),
            0.0,
            o["causal"],
            scale=o.get("scale"),
            enable_gqa=o["heads"] != o["groups"],
        )
    )


def kept(case: Case, array: NDArray[np.generic], limit: int) -> tuple[int, NDArray[np.generic]]:
    """A part of an output, and its step: whole rows of attention (at least one), else single elements of the flat array, so that at most about `limit` bytes are kept."""
    step = max(1, -(-array.nbytes // limit))
    if case.op != "attention":
        step |= 1
        return step, np.ascontiguousarray(array.reshape(-1)[::step])
    step = min(step, array.size // array.shape[-1])
    return step, np.ascontiguousarray(array.reshape(-1, array.shape[-1])[::step])


def record(
    torch: Any, chosen: list[Case], device: str, limit: int
) -> tuple[list[dict[str, Any]], list[NDArray[np.generic]]]:
    """Runs cases; one entry each: dtype and shape of the output, digest, step of the rows kept, whether a second run gave the same, an error."""
    entries, raws = [], []
    for case in chosen:
        entry: dict[str, Any] = {"id": case.id}
        entries.append(entry)
        try:
            tensors = {name: _to_torch(torch, tensor, device) for name, tensor in case.tensors().items()}
            if device == "cuda":
                torch.cuda.synchronize()
            with torch.profiler.record_function("case:" + case.id):
                y = call(torch, case, tensors)
                if device == "cuda":
                    torch.cuda.synchronize()
            array = _to_bytes(torch, y)
            entry["stable"] = bool(np.array_equal(array, _to_bytes(torch, call(torch, case, tensors))))
            entry["dtype"], entry["shape"] = str(y.dtype).removeprefix("torch."), list(y.shape)
            entry["digest"] = digest(_as_floats(array, entry["dtype"]))
            entry["step"], part = kept(case, array, limit)
            entry["bytes"] = part.nbytes
            raws.append(part)
            choice = _choice(torch, case, tensors)
            if choice is not None:
                entry["choice"] = choice
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    return entries, raws


def kernels(trace: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """The kernels of each case of a Chrome trace: name, grid, block, bytes of shared memory."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    spans = sorted(
        (float(e["ts"]), float(e["dur"]), e["name"].removeprefix("case:"))
        for e in events
        if e.get("cat") == "user_annotation" and e["name"].startswith("case:")
    )
    launched = sorted((float(e["ts"]), e["name"], e["args"]) for e in events if e.get("cat") == "kernel")
    result: dict[str, list[list[Any]]] = {name: [] for _, _, name in spans}
    starts = np.array([s for s, _, _ in spans])
    for ts, name, args in launched:
        at = int(np.searchsorted(starts, ts, side="right")) - 1
        if at >= 0 and ts <= spans[at][0] + spans[at][1]:
            result[spans[at][2]].append([name, args.get("grid"), args.get("block"), args.get("shared memory")])
    return result


def main(folder: str, groups: list[str], limit: int = 4096) -> None:
    """Records groups ("attentions:1/4": every fourth case from the second) into `folder`: recording.json.xz (what ran) and recording.bin.xz (rows of outputs, in the order of the entries)."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    entries: list[dict[str, Any]] = []
    raws: list[NDArray[np.generic]] = []
    for group in groups:
        start = time.perf_counter()
        activities = [
            torch.profiler.ProfilerActivity.CPU,
            *([torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []),
        ]
        name, _, part = group.partition(":")
        index, _, parts = part.partition("/")
        chosen = cases(name)[int(index or 0) :: int(parts or 1)]
        for first in range(0, len(chosen), 300):
            with torch.profiler.profile(activities=activities) as profile:
                some, raw = record(torch, chosen[first : first + 300], device, LIMITS.get(name, limit))
            try:
                with tempfile.TemporaryDirectory() as scratch:
                    profile.export_chrome_trace(f"{scratch}/trace.json")
                    ran = kernels(json.loads(Path(scratch, "trace.json").read_text()))
                for entry in some:
                    entry["kernels"] = ran.get(entry["id"], [])
            except Exception as error:
                print("no kernel names:", type(error).__name__, error)
            entries += some
            raws += raw
        failed = sum("error" in e for e in entries)
        print(
            group,
            len(chosen),
            "cases",
            f"{time.perf_counter() - start:.1f} s,",
            sum(r.nbytes for r in raws),
            "bytes so far,",
            failed,
            "refused,",
            sum(not e.get("stable", True) for e in entries),
            "unstable",
            flush=True,
        )
        about = {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "gpu": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "cudnn": torch.backends.cudnn.version(),
        }
        if device == "cuda":
            properties = torch.cuda.get_device_properties(0)
            about |= {
                "multiprocessors": properties.multi_processor_count,
                "capability": [properties.major, properties.minor],
            }
        write_file(
            Path(folder, "recording.json.xz"), lzma.compress(json.dumps({"about": about, "entries": entries}).encode())
        )
        write_file(Path(folder, "recording.bin.xz"), lzma.compress(b"".join(r.tobytes() for r in raws), preset=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:] or list(GROUPS))
