"""The products to ask about: layers of real models first, then a grid; every choice is a hash of the case."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple


class Case(NamedTuple):
    """One product of torch."""

    op: str  # mm, addmm, bmm, scaled, scaled_row, int_mm
    format: str
    out: str
    layout: str
    m: int
    n: int
    k: int
    batch: int = 1
    fast: int = 1


# hidden, heads * head size, key-value heads * head size, intermediate, vocabulary, gated
MODELS = {
    "gpt2": (768, 768, 768, 3072, 50257), "gpt2-medium": (1024, 1024, 1024, 4096, 50257), "gpt2-large": (1280, 1280, 1280, 5120, 50257),
    "gpt2-xl": (1600, 1600, 1600, 6400, 50257), "llama-1b": (2048, 2048, 512, 8192, 128256), "llama-3b": (3072, 3072, 1024, 8192, 128256),
    "llama-8b": (4096, 4096, 1024, 14336, 128256), "llama-70b": (8192, 8192, 1024, 28672, 128256), "llama2-7b": (4096, 4096, 4096, 11008, 32000),
    "llama2-13b": (5120, 5120, 5120, 13824, 32000), "llama-405b": (16384, 16384, 1024, 53248, 128256),
    "qwen3-0.6b": (1024, 2048, 1024, 3072, 151936), "qwen3-1.7b": (2048, 2048, 1024, 6144, 151936), "qwen3-4b": (2560, 4096, 1024, 9728, 151936),
    "qwen3-8b": (4096, 4096, 1024, 12288, 151936), "qwen3-14b": (5120, 5120, 1024, 17408, 151936), "qwen3-32b": (5120, 8192, 1024, 25600, 151936),
    "qwen2.5-0.5b": (896, 896, 128, 4864, 151936), "qwen2.5-1.5b": (1536, 1536, 256, 8960, 151936), "qwen2.5-7b": (3584, 3584, 512, 18944, 152064),
    "mistral-7b": (4096, 4096, 1024, 14336, 32768), "mistral-small": (5120, 4096, 1024, 32768, 131072), "gemma-2b": (2048, 2048, 256, 16384, 256000),
    "gemma2-9b": (3584, 4096, 2048, 14336, 256000), "gemma3-1b": (1152, 1024, 256, 6912, 262144), "gemma3-4b": (2560, 2048, 1024, 10240, 262208),
    "gemma3-27b": (5376, 4096, 2048, 21504, 262208), "phi-2": (2560, 2560, 2560, 10240, 51200), "phi-3-mini": (3072, 3072, 3072, 8192, 32064),
    "phi-4": (5120, 5120, 1280, 17920, 100352), "deepseek-7b": (4096, 4096, 4096, 11008, 102400), "deepseek-67b": (8192, 8192, 1024, 22016, 102400),
    "bert-base": (768, 768, 768, 3072, 30522), "bert-large": (1024, 1024, 1024, 4096, 30522), "smollm-135m": (576, 576, 192, 1536, 49152),
    "smollm-360m": (960, 960, 320, 2560, 49152), "tinyllama": (2048, 2048, 256, 5632, 32000), "olmo-1b": (2048, 2048, 2048, 8192, 50304),
}  # fmt: skip
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 100, 128, 160, 192, 250, 256, 320, 384, 500, 512, 640, 768, 1000, 1024, 1280, 1536, 2000, 2048, 3072, 4096, 6144, 8192)  # fmt: skip
EXTRA = {
    (768, 768),
    (2304, 768),
    (3072, 768),
    (768, 3072),
    (4096, 4096),
    (14336, 4096),
    (4096, 14336),
    (32000, 4096),
    (1024, 1000),
    (128, 64),
}


def weights() -> list[tuple[int, int]]:
    """(N, K) of every layer of MODELS."""
    found = set(EXTRA)
    for hidden, queries, keys, inner, words in MODELS.values():
        found |= {
            (queries, hidden),
            (keys, hidden),
            (queries + 2 * keys, hidden),
            (hidden, queries),
            (inner, hidden),
            (2 * inner, hidden),
        }
        found |= {(hidden, inner), (words, hidden)}
    return sorted(found)


def score(case: tuple[object, ...], salt: str = "") -> float:
    """A number in [0, 1) that is a hash of the case."""
    text = salt + "|" + ",".join(map(str, case))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


KINDS = [  # op, format, out, layout, fast
    ("mm", "bf16", "bf16", "TN", 1), ("mm", "f16", "f16", "TN", 1), ("scaled", "e4m3", "bf16", "TN", 1), ("addmm", "bf16", "bf16", "TN", 1),
    ("addmm", "f16", "f16", "TN", 1), ("mm", "tf32", "f32", "TN", 1), ("scaled", "e4m3", "bf16", "TN", 0), ("scaled_row", "e4m3", "bf16", "TN", 1),
    ("scaled_row", "e4m3", "bf16", "TN", 0), ("mm", "bf16", "bf16", "NN", 1), ("mm", "bf16", "bf16", "NT", 1), ("mm", "bf16", "bf16", "TT", 1),
    ("mm", "f16", "f16", "NN", 1), ("mm", "f16", "f16", "NT", 1), ("mm", "f16", "f16", "TT", 1), ("int_mm", "s8", "s32", "TN", 1),
    ("mm", "f32", "f32", "TN", 1), ("mm", "tf32", "f32", "NN", 1), ("addmm", "tf32", "f32", "TN", 1), ("addmm", "f32", "f32", "TN", 1),
    ("mm", "f32", "f32", "NN", 1), ("bmm", "bf16", "bf16", "TN", 1), ("bmm", "bf16", "bf16", "NN", 1), ("bmm", "f16", "f16", "TN", 1),
    ("bmm", "f16", "f16", "NN", 1), ("mm", "f32", "f32", "NT", 1), ("mm", "tf32", "f32", "NT", 1), ("scaled", "e4m3", "f32", "TN", 1), ("mm", "bf16", "f32", "TN", 1),
]  # fmt: skip
HEADS = (1, 4, 8, 12, 16, 32, 64)


def model_cases(
    kinds: list[tuple[str, str, str, str, int]] = KINDS, tokens: tuple[int, ...] = TOKENS
) -> Iterator[Case]:
    """Every layer of every model with every number of tokens; bmm: scores and values of attention."""
    for op, format, out, layout, fast in kinds:
        if op == "bmm":
            for batch in HEADS:
                for size in (64, 128):
                    for m in tokens[:-3]:
                        n, k = (m, size) if layout == "TN" else (size, m)
                        yield Case(op, format, out, layout, m, n, k, batch, fast)
            continue
        for n, k in weights():
            for m in tokens:
                yield Case(op, format, out, layout, m, n, k, 1, fast)
