"""Small models of transformers with fixed weights: the outputs of every module, by digest. `python -m hwkernels.aten.models FILE` records a GPU's.

A model is run twice on a GPU; a module of which both runs differ is left out of what is recorded. Needs torch and transformers.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import torch
import transformers

from tcsim.core.files import write_file

SEED, STEPS = 20261129, 3
VOCABULARY, WIDTH, HEADS, GROUPS, LAYERS, POSITIONS = 1000, 256, 4, 2, 2, 512
KINDS = ("gpt2", "llama", "qwen3")
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
CASES = tuple(
    f"{kind}/{attention}/{type}/{tokens}"
    for kind in KINDS for attention in ("eager", "sdpa") for type in TYPES for tokens in (1, 32, 250)
)  # fmt: skip
"""Model, attention, type, and tokens of the prefill; STEPS tokens are decoded behind it."""


def made(kind: str, attention: str) -> Any:
    """A model in f32."""
    plain = {"vocab_size": VOCABULARY, "bos_token_id": None, "eos_token_id": None}
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(
            n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **plain
        )  # fmt: skip
        owner: Any = transformers.GPT2LMHeadModel
    else:
        sizes = {
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": GROUPS,
            "max_position_embeddings": POSITIONS,
        }
        if kind == "llama":
            config, owner = (
                transformers.LlamaConfig(intermediate_size=688, **sizes, **plain),
                transformers.LlamaForCausalLM,
            )
        else:
            config, owner = (
                transformers.Qwen3Config(intermediate_size=768, head_dim=64, **sizes, **plain),
                transformers.Qwen3ForCausalLM,
            )
    config._attn_implementation = attention
    model, stream = owner(config).eval(), np.random.default_rng(SEED)
    with torch.no_grad():
        for name, own in sorted(model.named_parameters()):
            values = stream.standard_normal(tuple(own.shape), np.float32)
            if own.dim() > 1:
                values *= np.float32(0.05)
            else:
                scale = "norm" in name or "ln" in name
                values = np.float32(scale and name.endswith("weight")) + values * np.float32(0.1)
            own.copy_(torch.from_numpy(values))
        model.tie_weights()
    return model


def digest(x: torch.Tensor) -> str:
    """Of the bits."""
    x = x.detach().contiguous().cpu()
    return sha256((x.view(torch.int16) if x.itemsize == 2 else x).numpy().tobytes()).hexdigest()[:16]


def outputs(case: str, device: str, around: Callable[[], Any]) -> Iterator[tuple[str, str]]:
    """Of each module in the order in which they end its name and the digest of what it returns, logits last; `around`: a context of the computation."""
    kind, attention, type, tokens = case.split("/")
    model = made(kind, attention).to(TYPES[type]).to(device)
    found: list[tuple[str, str]] = []

    def hook(name: str) -> Any:
        def ended(module: Any, given: Any, result: Any) -> None:
            for own in result if isinstance(result, tuple) else (result,):
                if isinstance(own, torch.Tensor) and own.is_floating_point():
                    found.append((name, digest(own)))

        return ended

    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(hook(name))
    ids = torch.from_numpy(np.random.default_rng(int(tokens)).integers(0, VOCABULARY, (1, int(tokens)))).to(device)
    with torch.inference_mode(), around():
        result, following = model(ids, use_cache=True), torch.tensor([[7]], device=device)
        for _ in range(STEPS):
            result = model(following, past_key_values=result.past_key_values, use_cache=True)
            following = following + 13
    yield from found


def main(path: str) -> None:
    """Record all cases on a GPU."""
    from contextlib import nullcontext

    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cases": {},
    }
    for case in CASES:
        first, second = (list(outputs(case, "cuda", nullcontext)) for _ in range(2))
        found["cases"][case] = [own if own == again else (own[0], "") for own, again in zip(first, second, strict=True)]
        print(
            case, len(first), "modules", sum(own != again for own, again in zip(first, second, strict=True)), "unstable"
        )
    write_file(path, lzma.compress(json.dumps(found).encode()))


if __name__ == "__main__":
    main(sys.argv[1])
