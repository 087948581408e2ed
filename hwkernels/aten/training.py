"""Three training steps of small GPTs with fixed weights: digests of every module's output, every gradient, every weight after every step. `python -m hwkernels.aten.training FOLDER` records a GPU's.

Runs are repeated on a GPU; what two runs differ in is left out of what is recorded. Needs torch and transformers.
"""

from __future__ import annotations

import json
import lzma
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tcsim.core.files import replacing, write_file

SEED, STEPS = 20261130, 3
VOCABULARY, WIDTH, HEADS, LAYERS, POSITIONS = 8192, 384, 6, 4, 256
BATCH, TOKENS = 2, 64
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "mixed": torch.float32}
WAYS: dict[str, dict[str, Any]] = {
    "fused": {"foreach": False, "fused": True}, "foreach": {"foreach": True, "fused": False}, "loop": {"foreach": False, "fused": False}, "default": {},
}  # fmt: skip
OPTIMIZERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-3, "weight_decay": 0.1, "betas": (0.9, 0.95)}),
    "adamw by itself": (torch.optim.AdamW, {"lr": 1e-3}),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd by itself": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
}
"""By name torch's class and its numbers; "by itself": where torch chooses how to step."""
CASES = (
    "gpt2/eager/bf16/adamw-fused", "gpt2/eager/bf16/adamw-foreach", "gpt2/eager/bf16/adamw-loop", "gpt2/eager/bf16/sgd-foreach", "gpt2/eager/bf16/sgd-fused",
    "gpt2/eager/f16/sgd-foreach", "gpt2/sdpa/bf16/adamw-fused", "llama/eager/bf16/adamw-fused", "llama/sdpa/bf16/adamw-fused",
    "gated/written/bf16/adamw-fused", "gated/written/mixed/adamw-fused", "gated/written/mixed/adamw-foreach", "gpt2/eager/f32/adamw-fused", "gated/written/f32/adamw-fused",
    "gpt2/sdpa/f16/adamw-default", "llama/eager/f16/adamw-default", "llama/sdpa/f16/sgd-default",
)  # fmt: skip
"""Model, attention, type, optimizer. "mixed": weights and elementwise operations in f32, products in bf16. Gradients of the gated model are clipped."""


class Gated(nn.Module):
    """A small model of torch's own parts: fused rms_norm, a gated layer, attention written out."""

    class Block(nn.Module):
        """One layer."""

        def __init__(self, compute: torch.dtype) -> None:
            super().__init__()
            self.compute = compute
            self.ln_1, self.ln_2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 6 * WIDTH, bias=False), nn.Linear(3 * WIDTH, WIDTH, bias=False)

        def product(self, x: torch.Tensor, layer: nn.Linear) -> torch.Tensor:
            """A layer in the type of products."""
            bias = None if layer.bias is None else layer.bias.to(self.compute)
            return functional.linear(x.to(self.compute), layer.weight.to(self.compute), bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """x (batch, tokens, width)."""
            batch, tokens, _ = x.shape
            qkv = self.product(self.ln_1(x), self.qkv).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            scores = (q @ k.transpose(-1, -2)).to(x.dtype) * 0.125
            hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            p = scores.masked_fill(hidden, float("-inf")).softmax(-1).to(self.compute)
            x = x + self.product((p @ v).transpose(1, 2).reshape(batch, tokens, WIDTH), self.out).to(x.dtype)
            gate, up = self.product(self.ln_2(x), self.up).chunk(2, -1)
            return x + self.product(functional.silu(gate) * up, self.down).to(x.dtype)

    def __init__(self, compute: torch.dtype) -> None:
        super().__init__()
        self.compute = compute
        self.wte, self.wpe = nn.Embedding(VOCABULARY // 2, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.h = nn.ModuleList([Gated.Block(compute) for _ in range(LAYERS // 2)])
        self.ln_f, self.head = nn.RMSNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, VOCABULARY // 2, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of the next tokens."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = functional.linear(self.ln_f(x).to(self.compute), self.head.weight.to(self.compute))
        return functional.cross_entropy(
            logits[:, :-1].reshape(-1, logits.shape[-1]).to(x.dtype), ids[:, 1:].reshape(-1)
        )


def made(kind: str, attention: str, type: str) -> Any:
    """A model of a type."""
    plain = {"bos_token_id": None, "eos_token_id": None}
    if kind == "gated":
        model: Any = Gated(torch.bfloat16 if type == "mixed" else TYPES[type])
    elif kind == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **plain
        )  # fmt: skip
        config._attn_implementation = attention
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARY // 2, hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS // 2, num_attention_heads=HEADS, num_key_value_heads=HEADS // 2,
            max_position_embeddings=POSITIONS, tie_word_embeddings=False, **plain,
        )  # fmt: skip
        config._attn_implementation = attention
        model = transformers.LlamaForCausalLM(config)
    stream = np.random.default_rng(SEED)
    with torch.no_grad():
        for name, own in sorted(model.named_parameters()):
            values = stream.standard_normal(tuple(own.shape), np.float32) * np.float32(0.03 if own.dim() > 1 else 0.1)
            own.copy_(torch.from_numpy(values + np.float32(own.dim() == 1 and name.endswith("weight"))))
    return model.to(TYPES[type]).train()


def digest(x: torch.Tensor) -> str:
    """Of the bits."""
    x = x.detach().contiguous().cpu()
    return sha256((x.view(torch.int16) if x.itemsize == 2 else x).numpy().tobytes()).hexdigest()[:12]


class Operations(TorchDispatchMode):
    """Writes down every aten operation with the digests of its floating-point results."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str, str]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation."""
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        tensors = [
            own
            for own in tree_leaves(result if result is not None else args[:1])
            if isinstance(own, torch.Tensor) and own.is_floating_point()
        ]
        if name.startswith("_fused"):
            tensors = [own for own in tree_leaves(args[:3]) if isinstance(own, torch.Tensor)]
        if tensors and name not in (
            "empty_like",
            "empty",
            "empty_strided",
            "new_empty_strided",
            "detach",
            "view",
            "t",
            "transpose",
            "permute",
            "expand",
            "_unsafe_view",
            "alias",
        ):
            shapes = ";".join("x".join(map(str, own.shape)) + str(own.dtype)[6:] for own in tensors[:3])
            self.found.append(
                (
                    name,
                    shapes,
                    digest(tensors[0])
                    if len(tensors) == 1
                    else sha256("".join(map(digest, tensors)).encode()).hexdigest()[:12],
                )
            )
        return result


def trained(
    case: str, device: str, around: Callable[[], AbstractContextManager[Any]] = nullcontext, steps: int = STEPS
) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Names and digests of outputs ("step.module"), gradients ("step.grad.name") and weights ("step.weight.name") as they come about, and the small ones of the first step."""
    kind, attention, type, way = case.split("/")
    model = made(kind, attention, type).to(device)
    found: list[tuple[str, str]] = []
    small: dict[str, Any] = {}
    step = 0

    def note(name: str, x: torch.Tensor) -> None:
        found.append((f"{step}.{name}", digest(x)))
        if x.dim() <= 1 and step == 0:
            x = x.detach().cpu()
            small[name] = (x.view(torch.int16) if x.itemsize == 2 else x).numpy().copy()

    def hook(name: str) -> Any:
        def ended(module: Any, given: Any, result: Any) -> None:
            for own in result if isinstance(result, tuple) else (result,):
                if isinstance(own, torch.Tensor) and own.is_floating_point():
                    note(name, own)

        return ended

    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(hook(name))
    name, _, way = way.partition("-")
    kind_of, numbers = OPTIMIZERS[f"{name} by itself" if way == "default" else name]
    optimizer = kind_of(model.parameters(), **numbers, **WAYS[way])
    for step in range(steps):
        ids = torch.from_numpy(np.random.default_rng(step).integers(0, VOCABULARY // 2, (BATCH, TOKENS))).to(device)
        with around():
            loss = model(ids) if kind == "gated" else model(ids, labels=ids, use_cache=False).loss
            note("loss", loss)
            loss.backward()
            if kind == "gated":
                note("norm", nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            for name, own in model.named_parameters():
                note(f"grad.{name}", own.grad)
            optimizer.step()
            optimizer.zero_grad()
        for name, own in model.named_parameters():
            note(f"weight.{name}", own)
    return found, small


def main(folder: str, device: str = "cuda", *chosen: str) -> None:
    """Record cases on a GPU: twice the digests, once every operation of the first step."""
    entries: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    for case in chosen or CASES:
        begin = time.perf_counter()
        try:
            first, small = trained(case, device)
            second, _ = trained(case, device)
            operations = Operations()
            third, _ = trained(case, device, lambda operations=operations: operations)  # type: ignore[misc]
        except Exception as error:
            entries[case] = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(case, entries[case]["error"], flush=True)
            continue
        unstable = sorted(
            {
                name
                for one, two, three in zip(first, second, third, strict=True)
                for name in (one[0],)
                if not one == two == three
            }
        )
        entries[case] = {"found": first, "unstable": unstable, "operations": operations.found}
        raw |= {f"{case}:{name}": x for name, x in small.items()}
        print(
            case,
            len(first),
            "digests",
            len(unstable),
            "unstable",
            unstable[:3],
            len(operations.found),
            "operations",
            f"{time.perf_counter() - begin:.1f} s",
            flush=True,
        )
        about = {
            "torch": torch.__version__, "transformers": transformers.__version__, "gpu": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        }  # fmt: skip
        write_file(
            Path(folder, "training.json.xz"), lzma.compress(json.dumps({"about": about, "cases": entries}).encode())
        )
    with replacing(Path(folder, "training.npz")) as file:
        np.savez_compressed(file, **raw)


if __name__ == "__main__":
    main(*sys.argv[1:])
