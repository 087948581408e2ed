"""The products to ask about: layers of real models first, then a grid; every choice is a hash of the case."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np


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
    "falcon-7b": (4544, 4544, 64, 18176, 65024), "mixtral-8x7b": (4096, 4096, 1024, 14336, 32000), "mixtral-8x22b": (6144, 6144, 1024, 16384, 32768),
    "qwen2.5-3b": (2048, 2048, 256, 11008, 151936), "qwen2.5-14b": (5120, 5120, 1024, 13824, 152064), "qwen2.5-32b": (5120, 5120, 1024, 27648, 152064),
    "qwen2.5-72b": (8192, 8192, 1024, 29568, 152064), "llama2-70b": (8192, 8192, 1024, 28672, 32000), "yi-6b": (4096, 4096, 512, 11008, 64000),
    "yi-34b": (7168, 7168, 1024, 20480, 64000), "gemma2-2b": (2304, 2048, 1024, 9216, 256000), "gemma2-27b": (4608, 4096, 2048, 36864, 256000),
    "gemma3-12b": (3840, 4096, 2048, 15360, 262208), "phi-1.5": (2048, 2048, 2048, 8192, 51200), "phi-3-medium": (5120, 5120, 1280, 17920, 32064),
    "pythia-70m": (512, 512, 512, 2048, 50304), "pythia-1b": (2048, 2048, 2048, 8192, 50304), "pythia-2.8b": (2560, 2560, 2560, 10240, 50304),
    "pythia-6.9b": (4096, 4096, 4096, 16384, 50432), "pythia-12b": (5120, 5120, 5120, 20480, 50688), "opt-125m": (768, 768, 768, 3072, 50272),
    "opt-1.3b": (2048, 2048, 2048, 8192, 50272), "opt-6.7b": (4096, 4096, 4096, 16384, 50272), "opt-13b": (5120, 5120, 5120, 20480, 50272),
    "opt-30b": (7168, 7168, 7168, 28672, 50272), "opt-66b": (9216, 9216, 9216, 36864, 50272), "bloom-560m": (1024, 1024, 1024, 4096, 250880),
    "bloom-7b1": (4096, 4096, 4096, 16384, 250880), "bloom-176b": (14336, 14336, 14336, 57344, 250880), "gpt-j-6b": (4096, 4096, 4096, 16384, 50400),
    "gpt-neox-20b": (6144, 6144, 6144, 24576, 50432), "t5-base": (768, 768, 768, 3072, 32128), "flan-t5-large": (1024, 1024, 1024, 2816, 32128),
    "flan-t5-xl": (2048, 2048, 2048, 5120, 32128), "flan-t5-xxl": (4096, 4096, 4096, 10240, 32128), "whisper-small": (768, 768, 768, 3072, 51865),
    "whisper-large": (1280, 1280, 1280, 5120, 51866), "vit-large": (1024, 1024, 1024, 4096, 1000), "vit-huge": (1280, 1280, 1280, 5120, 1000),
    "deepseek-v3": (7168, 24576, 576, 18432, 129280), "deepseek-v3-o": (7168, 16384, 1536, 2048, 129280), "deepseek-v2-lite": (2048, 3072, 576, 10944, 102400),
    "qwen3-30b-a3b": (2048, 4096, 512, 768, 151936), "qwen3-235b": (4096, 8192, 512, 1536, 151936), "gpt-oss-20b": (2880, 4096, 512, 2880, 201088),
    "olmo-7b": (4096, 4096, 4096, 11008, 50304), "olmo2-13b": (5120, 5120, 5120, 13824, 100352), "stablelm-3b": (2560, 2560, 2560, 6912, 50304),
    "starcoder2-3b": (3072, 3072, 256, 12288, 49152), "starcoder2-7b": (4608, 4608, 512, 18432, 49152), "starcoder2-15b": (6144, 6144, 512, 24576, 49152),
    "internlm2-7b": (4096, 4096, 1024, 14336, 92544), "baichuan2-13b": (5120, 5120, 5120, 13696, 125696), "chatglm3-6b": (4096, 4096, 256, 13696, 65024),
    "command-r": (8192, 8192, 8192, 22528, 256000), "command-r7b": (4096, 4096, 1024, 14336, 256000), "granite-8b": (4096, 4096, 1024, 12800, 49155),
    "smollm2-1.7b": (2048, 2048, 2048, 8192, 49152), "roberta-base": (768, 768, 768, 3072, 50265), "xlm-roberta": (1024, 1024, 1024, 4096, 250002),
    "minilm": (384, 384, 384, 1536, 30522), "llama-13b": (5120, 5120, 5120, 13824, 32000), "llama-33b": (6656, 6656, 6656, 17920, 32000),
    "codellama-34b": (8192, 8192, 1024, 22016, 32016), "mistral-large": (12288, 12288, 1024, 28672, 32768), "nemo-12b": (5120, 4096, 1024, 14336, 131072),
}  # fmt: skip
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


HALF = ("bf16", "f16")
LAYOUTS = ("TN", "NN", "NT", "TT")
KINDS = [
    *((op, f, f, layout, 1) for op in ("mm", "addmm", "bmm") for f in HALF for layout in LAYOUTS),
    *(("mm", f, "f32", layout, 1) for f in HALF for layout in LAYOUTS),
    *((op, f, "f32", layout, 1) for op in ("mm", "addmm", "bmm") for f in ("f32", "tf32") for layout in LAYOUTS),
    *(("scaled", "e4m3", out, "TN", fast) for out in ("bf16", "f16", "f32") for fast in (1, 0)),
    *(("scaled_row", "e4m3", "bf16", "TN", fast) for fast in (1, 0)),
]
"""op, format, out, layout, fast."""
RANKED = [kind for format in HALF for kind in KINDS if kind[:3] == ("mm", format, format)]
"""Those whose tiles are ranked: two formats, each in the order of LAYOUTS."""
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 20, 24, 25, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256, 320, 384, 512, 640, 768, 1024)  # fmt: skip
HEADS = (64, 80, 96, 128, 256)
WIDTHS = (64, 128, 192, 256, 320, 384, 512, 640, 768, 1024, 1152, 1536, 2304, 4096)
LONG = (3072, 4096, 6144, 8192, 16384, 32000, 32768)
"""Of small models: hidden, and intermediate or words."""
SHORT = {"bf16": 2560, "f16": 2560, "e4m3": 5120}
"""K up to which nothing is cut: sweeps of K above are recorded."""
CUT = 1 << 22
"""Results of which two parts in f32 fit into 32 MiB: larger ones are not cut."""


class Sweep(NamedTuple):
    """Products of which some extents, those of `axis`, grow by `step` from `step` on; the first has the others' extents."""

    first: Case
    axis: str
    step: int
    length: int

    def case(self, x: int) -> Case:
        """The product at the x-th multiple of the step."""
        m, n, k = (x * self.step if name in self.axis else getattr(self.first, name) for name in "mnk")
        return self.first._replace(m=m, n=n, k=k)


def sweeps() -> Iterator[Sweep]:
    """Layers of every model forwards and backwards with any number of tokens, and attention with any number of keys, one query or as many."""
    layers = weights()
    pairs = sorted({*layers, *((k, n) for n, k in layers)})
    small = sorted(
        {(n, k) for n in (*WIDTHS, 8192) for k in (*WIDTHS, 8192)}
        | {pair for pair in pairs if pair[0] * pair[1] <= 1 << 26}
    )
    for op, format, out, layout, fast in KINDS:
        case = Case(op, format, out, layout, 1, 1, 1, 1, fast)
        if op == "bmm":
            yield from _attention(case)
        elif format in ("f32", "tf32"):
            if (op, layout) == ("mm", "NT"):
                yield from (Sweep(case._replace(m=m, n=n), "k", 1, 8192) for m, n in small)
            elif layout[1] == "N":
                yield from (Sweep(case._replace(n=n, k=k), "m", 1, 8192) for n, k in small)
        elif (op == "mm" and out == "f32") or op == "scaled_row":
            continue  # the first has the answers of the result in 16 bits, of the second nothing is cut; held-out shapes confirm both
        else:
            unit, short = (16 if op == "scaled" else 8), SHORT[format]
            for n, k in sorted({*pairs, *product(WIDTHS, LONG)}):
                whole = n % unit == 0 and k % unit == 0
                if (k > short or not whole) and (layout[1] == "N" or whole) and (whole or op != "scaled"):
                    yield Sweep(
                        case._replace(n=n, k=k), "m", 1 if layout[1] == "N" else 8, 8192 if layout[1] == "N" else 1024
                    )
            if (op, layout) == ("mm", "NT"):
                yield from (Sweep(case._replace(m=m, n=n), "k", 1, 8192) for m, n in pairs)


def _attention(case: Case) -> Iterator[Sweep]:
    """Scores, values, and the gradients of both."""
    most = 4096 if case.format in HALF else 1024
    for batch in BATCHES:
        for size in HEADS:
            first = case._replace(batch=batch)
            if case.layout == "TN":
                yield from (Sweep(first._replace(k=size), axis, 1, most) for axis in ("n", "mn"))
            elif case.layout == "NN":
                yield from (Sweep(first._replace(n=size), axis, 1, most) for axis in ("k", "mk"))
            elif case.layout == "NT":
                yield Sweep(first._replace(n=size), "mk", 1, most)


def drawn(salt: str, count: int, kinds: Sequence[tuple[str, str, str, str, int]] = KINDS) -> list[Case]:
    """Random products of kinds in whole rows of 16 bytes, log-uniform: M up to 8,192, N and K from 64 to 32,768; of batches up to 4,096.

    Those of f32 and tf32 are without batches; a third of them have rows of any length.
    """
    found = []
    for op, format, out, layout, fast in kinds:
        own, batched = format in ("f32", "tf32"), op == "bmm"
        if own and batched:
            continue
        whole = 16 if format == "e4m3" else 4 if own else 8
        least, span = (3, 9) if batched else (6, 9)
        for i in range(count):
            unit = 1 if own and i % 3 == 0 else whole
            a, b, c, d = (score((salt, op, format, out, layout, fast, i, axis)) for axis in "mnkb")
            m, n, k = (
                int(2 ** ((12 if batched else 13) * a)),
                *(int(2 ** (least + span * x)) // unit * unit for x in (b, c)),
            )
            found.append(
                Case(
                    op,
                    format,
                    out,
                    layout,
                    -(-m // unit) * unit if layout[1] == "T" else m,
                    n,
                    k,
                    int(2 ** (10 * d)) if batched else 1,
                    fast,
                )
            )
    return found


def long(kind: tuple[str, str, str, str, int], count: int, seed: int) -> Iterator[Case]:
    """As `drawn`, of f16 and bf16, those that may be cut."""
    op, format, out, layout, fast = kind
    generator, unit = np.random.default_rng([seed, KINDS.index(kind)]), 8
    while count:
        a, b, c = generator.random(3)
        m, (n, k) = int(2 ** (13 * a)), (int(2 ** (6 + 9 * x)) // unit * unit for x in (b, c))
        m = -(-m // unit) * unit if layout[1] == "T" else m
        if k > SHORT[format] and m * n <= CUT:
            count -= 1
            yield Case(op, format, out, layout, m, n, k, 1, fast)
