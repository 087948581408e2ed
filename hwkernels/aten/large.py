"""Models of 0.5 to 4 x 10^9 parameters with fixed weights: digests of what every layer returns, and of the logits.

    python -m hwkernels.aten.large record FILE [CASE...]      # on a GPU, each case twice
    python -m hwkernels.aten.large compare FILE [CASE...]     # under tcsim.torch.emulate("H200"), where `--on` says

A case is model/attention/type/tokens+decoded. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
import transformers

from hwkernels.aten.models import SEED, TYPES, digest
from tcsim.core.files import write_file

BLOCK = 1 << 22
"""Different weights: every parameter is a piece of one sequence, from a place of its own."""
_QWEN3 = {
    "vocab_size": 151936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "qwen3-0.6b": lambda: transformers.Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16, **_QWEN3
    ),
    "gpt2-0.6b": lambda: transformers.GPT2Config(
        vocab_size=50257, n_positions=2048, n_embd=1280, n_layer=28, n_head=20, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0
    ),
    "qwen3-4b": lambda: transformers.Qwen3Config(
        hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, **_QWEN3
    ),
}  # fmt: skip
"""By name; the numbers of Qwen3-0.6B and Qwen3-4B, and a GPT-2 of 28 layers."""
CASES = (
    *("/".join(own) for own in product(("qwen3-0.6b", "gpt2-0.6b"), ("sdpa", "eager"), TYPES, ("1+16", "32+16", "250+16", "1024+16"))),
    "qwen3-4b/sdpa/bf16/250+0",
)  # fmt: skip


def made(name: str, attention: str, type: str, device: str) -> Any:
    """A model with its weights on a device."""
    config = CONFIGURATIONS[name]()
    config._attn_implementation = attention
    owner = transformers.Qwen3ForCausalLM if name.startswith("qwen3") else transformers.GPT2LMHeadModel
    with torch.device("meta"):
        model: Any = owner(config)
    model = model.to(TYPES[type]).to_empty(device=device).eval()
    block = torch.from_numpy(np.random.default_rng(SEED).standard_normal(BLOCK, np.float32)).to(device)
    start = 0
    with torch.no_grad():
        for parameter, own in sorted(model.named_parameters()):
            start = (start + 7919) % BLOCK
            values = block.roll(start).repeat(-(-own.numel() // BLOCK))[: own.numel()].view(own.shape)
            if own.dim() > 1:
                values = values * 0.03
            elif "norm" in parameter or "ln" in parameter:
                values = values * 0.1 + float(parameter.endswith("weight"))
            else:
                values = values * 0.05
            own.copy_(values)
        model.tie_weights()
        _buffers(model, config, device)
    return model


def _buffers(model: Any, config: Any, device: str) -> None:
    """What a model computes from its configuration."""
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).to(torch.float) / config.head_dim
            module.inv_freq = (1.0 / (config.rope_parameters["rope_theta"] ** exponents)).to(device)
            module.original_inv_freq = module.inv_freq.clone()
        mask = module._buffers.get("bias")
        if mask is not None and mask.dtype == torch.bool:
            module._buffers["bias"] = torch.ones_like(mask).tril()


def outputs(
    model: Any, shape: str, device: str, around: AbstractContextManager[Any], every: bool = False
) -> tuple[list[list[str]], Any]:
    """Name and digest of what each layer (every: each module) returns, and of the logits; `shape`: tokens+decoded. And what `around` gives."""
    tokens, steps = map(int, shape.split("+"))
    found: list[list[str]] = []

    def keep(name: str) -> Any:
        def ended(module: Any, given: Any, result: Any) -> None:
            own = result[0] if isinstance(result, tuple) else result
            if isinstance(own, torch.Tensor) and own.is_floating_point():
                found.append([name, digest(own)])

        return ended

    layers = model.model.layers if hasattr(model, "model") else model.transformer.h
    names = dict(model.named_modules()) if every else {f"layer {place}": own for place, own in enumerate(layers)}
    hooks = [own.register_forward_hook(keep(name)) for name, own in names.items() if name]
    ids = torch.from_numpy(np.random.default_rng(tokens).integers(0, model.config.vocab_size, (1, tokens))).to(device)
    with torch.inference_mode(), around as run:
        result, following = model(ids, use_cache=True), torch.tensor([[7]], device=device)
        found.append(["logits", digest(result.logits)])
        for step in range(steps):
            result = model(following, past_key_values=result.past_key_values, use_cache=True)
            found.append([f"logits+{step}", digest(result.logits)])
            following = following + 13
    for hook in hooks:
        hook.remove()
    return found, run


def _models(cases: list[str], device: str) -> Any:
    """Each case with its model; neighbours share it."""
    last, model = ("", ""), cast("Any", None)
    for case in cases:
        name, attention, type, shape = case.split("/")
        if (name, type) != last:
            model, last = None, (name, type)
            if device == "cuda":
                torch.cuda.empty_cache()
            model = made(name, attention, type, device)
        model.set_attn_implementation(attention)
        yield case, shape, model


def record(path: Path, cases: list[str]) -> None:
    """Run cases twice on a GPU; what differs between the runs is marked by an empty digest."""
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cases": {},
    }
    for case, shape, model in _models(cases, "cuda"):
        first, again = (outputs(model, shape, "cuda", nullcontext())[0] for _ in range(2))
        same = [own if own == other else [own[0], ""] for own, other in zip(first, again, strict=True)]
        found["cases"][case] = same
        print(case, len(same), "digests,", sum(not own[1] for own in same), "not repeatable", flush=True)
        write_file(path, lzma.compress(json.dumps(found).encode()))


def compare(path: Path, cases: list[str], device: str) -> int:
    """Compute cases under emulation; how many digests differ."""
    import resource

    from tcsim.torch import emulate

    with lzma.open(path, "rt", encoding="utf-8") as file:
        recorded = json.load(file)["cases"]
    different = 0
    for case, shape, model in _models([own for own in cases if own in recorded], device):
        begin = perf_counter()
        found, run = outputs(model, shape, device, emulate("H200"))
        pairs = [(own, want) for own, want in zip(found, recorded[case], strict=True) if want[1]]
        wrong = [own[0] for own, want in pairs if own != want]
        different += len(wrong)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{case}: {len(pairs) - len(wrong)} of {len(pairs)} equal, first different {wrong[:1]}, {perf_counter() - begin:.1f} s, {peak:.1f} GB",
            flush=True,
        )
        print(run, flush=True)
    return different


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hwkernels.aten.large", description=__doc__)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--on", default="cpu", choices=("cpu", "cuda"))
    given = parser.parse_intermixed_args()
    if given.action == "record":
        record(given.file, given.cases)
        return 0
    return int(bool(compare(given.file, given.cases, given.on)))


if __name__ == "__main__":
    raise SystemExit(main())
