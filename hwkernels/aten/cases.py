"""The cases of a recording: operation, shape, memory, kind of numbers. Fixed before anything is compared; a list grows, it does not change."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwkernels.aten.inputs import numbers, viewed

FLOATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Case:
    """One call: `op` with `options` on tensors of `dtype`."""

    op: str
    dtype: str
    shape: tuple[int, ...]
    view: str = "contiguous"
    kind: str = "normal"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The name that says all."""
        words = [self.op, self.dtype, "x".join(map(str, self.shape)) or "scalar", self.view, self.kind]
        return "/".join(words + [f"{name}={str(value).replace(' ', '')}" for name, value in self.options.items()])

    @property
    def seed(self) -> int:
        """64 bits of the name's hash."""
        return int.from_bytes(blake2b(self.id.encode(), digest_size=8).digest(), "little")

    @property
    def held_out(self) -> bool:
        """Whether the case is kept back while rules are searched: half of all, by the hash of the name."""
        return bool(blake2b(self.id.encode(), digest_size=1).digest()[0] & 1)

    def tensors(self) -> dict[str, "Tensor"]:
        """The inputs by name."""
        return {t.name: t for t in _tensors(self)}


@dataclass(frozen=True)
class Tensor:
    """One input of a case."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    view: str
    kind: str
    seed: int
    mirrored: int = 0  # 1, -1: the second half of the last axis but one repeats the first, or its negative

    @property
    def memory(self) -> NDArray[np.generic]:
        """The numbers as they lie in memory, without the elements skipped at the front."""
        memory = numbers(viewed(self.shape, self.view)[0], self.seed, self.kind, self.dtype)
        if self.mirrored:
            half = self.shape[-2] // 2
            memory[..., half : 2 * half, :] = memory[..., :half, :] * np.asarray(self.mirrored, memory.dtype)
        return memory

    @property
    def array(self) -> NDArray[np.generic]:
        """The tensor as NumPy sees it: its shape and strides."""
        return viewed(self.shape, self.view)[1](self.memory)  # type: ignore[return-value]

    @property
    def skipped(self) -> int:
        """The elements between an aligned address and the first one of `array`."""
        return viewed(self.shape, self.view)[2] + (self.view == "slice")


def _tensors(case: Case) -> Iterator[Tensor]:
    seed, o = case.seed, case.options

    def tensor(
        name: str,
        shape: tuple[int, ...],
        number: int,
        view: str = "contiguous",
        kind: str = "normal",
        dtype: str = case.dtype,
        mirrored: int = 0,
    ) -> Tensor:
        return Tensor(name, dtype, shape, view, kind, (seed + number * 0xD1B54A32D192ED03) % 2**64, mirrored)

    if case.op == "attention":
        b, h, g, m, n, d = (o[name] for name in ("batch", "heads", "groups", "queries", "keys", "size"))
        yield tensor("q", (b, h, m, d), 0, case.view, case.kind)
        yield tensor("k", (b, g, n, d), 1, case.view, case.kind, mirrored=o.get("mirrored", 0))
        yield tensor("v", (b, g, n, d), 2, case.view, mirrored=-o.get("mirrored", 0))
        if o.get("mask") == "bool":
            yield tensor("mask", (b, 1, m, n), 3, dtype="bool")
        elif o.get("mask") == "added":
            yield tensor("mask", (b, 1, m, n), 3, kind="masked" if n > 8 else "normal")
        return
    if case.op == "embedding":
        yield tensor("weight", case.shape, 0, case.view, case.kind)
        yield tensor("index", tuple(o["index"]), 1, kind=f"below {case.shape[0]}", dtype="i64")
        return
    yield tensor("x", case.shape, 0, case.view, case.kind)
    if case.op == "cross_entropy":
        yield tensor("target", (case.shape[0], *case.shape[2:]), 1, kind=f"below {case.shape[1]}", dtype="i64")
        if o.get("weight"):
            yield tensor("weight", (case.shape[1],), 2, kind="near one")
    elif case.op in ("layer_norm", "rms_norm", "group_norm"):
        shape = (case.shape[1],) if case.op == "group_norm" else case.shape[len(case.shape) - o.get("axes", 1) :]
        if o.get("weight"):
            yield tensor("weight", shape, 1, o.get("weight_view", "contiguous"), kind="near one")
        if o.get("bias"):
            yield tensor("bias", shape, 2)


# rows, columns of the last axis
LENGTHS = (1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 192, 250, 255, 256, 257, 384, 500, 512, 513, 640, 768, 896, 1000, 1023, 1024, 1025, 1026, 1028, 1032, 1152, 1280,
           1500, 1536, 1920, 2000, 2047, 2048, 2049, 2056, 2560, 2999, 3000, 3072, 4096, 4097, 5120, 8192, 8200, 11008, 14336, 32000, 32768, 50257, 65536, 100000, 151936)  # fmt: skip
ROWS = (1, 2, 3, 4, 5, 7, 8, 16, 33, 64, 100, 257)
# rows, length: few long rows (several blocks a row), many short ones, one row
ODD = ((1, 2048), (1, 50257), (1, 131072), (1, 1 << 20), (1, 4000001), (2, 300001), (4, 65536), (1024, 64), (1000, 100), (4096, 512), (4096, 33), (2048, 1024), (1024, 2048), (250, 1024), (32, 1024), (20000, 7), (300, 4096))  # fmt: skip
AXES = (((128, 64), (0,)), ((1000, 7), (0,)), ((4096, 33), (0,)), ((50, 4096), (0,)), ((3, 50000), (0,)), ((2048, 1), (0,)), ((2, 2), (0,)), ((5, 3), (0,)), ((100, 1000), (0,)), ((20000, 16), (0,)), ((1024, 1024), (0,)),
        ((8, 100, 64), (1,)), ((2, 1000, 3), (1,)), ((16, 7, 33), (1,)), ((3, 4, 512), (1,)), ((4, 33, 5, 64), (0, 2)), ((4, 33, 5, 64), (1, 3)), ((4, 33, 5, 64), (0, 1, 2, 3)), ((4, 33, 5, 64), (2, 3)), ((4, 33, 5, 64), (0, 1)),
        ((32, 16, 8, 8), (0, 2, 3)), ((7, 11, 13), (0, 1, 2)), ((7, 11, 13), (0, 2)))  # fmt: skip
VIEWS = (((33, 1024), "step2"), ((33, 1024), "slice"), ((33, 1024), "transposed"), ((33, 1024), "offset1"), ((33, 1000), "offset3"), ((5, 4097), "offset1"), ((5, 4096), "offset2"), ((5, 4096), "offset4"), ((1, 65536), "offset1"), ((4, 200, 96), "transposed"), ((64, 129), "transposed"), ((3, 250), "slice"), ((3, 500), "step2"))  # fmt: skip
KINDS = (((16, 1000), "wide"), ((16, 4096), "wide"), ((16, 768), "large"), ((16, 3000), "large"), ((9, 1024), "offset"), ((9, 2048), "integers"), ((9, 1000), "huge"), ((9, 1000), "tiny"), ((64, 300), "specials"), ((9, 512), "masked"))  # fmt: skip
SPATIAL = (((64, 10), 0), ((5, 64, 3), 1), ((2, 1000, 70), 1), ((3, 7, 2000), 1), ((1, 2048, 64), 1), ((2, 100, 32), 1), ((4, 63, 5), 1), ((300, 2), 0), ((2, 5000, 3), 1), ((17, 129), 0))  # fmt: skip


def _rows(number: int, length: int) -> int:
    return min(ROWS[number * 5 % len(ROWS)], max(1, 60000 // length))


def _each(
    op: str,
    shape: tuple[int, ...],
    view: str = "contiguous",
    kind: str = "normal",
    dtypes: tuple[str, ...] = FLOATS,
    **options: Any,
) -> Iterator[Case]:
    for dtype in dtypes:
        yield Case(op, dtype, shape, view, kind, options)


def _over_lengths(op: str, every: int = 1, **options: Any) -> Iterator[Case]:
    for number, length in enumerate(LENGTHS[::every]):
        yield from _each(op, (_rows(number, length), length), **options)


def reductions() -> Iterator[Case]:
    """sum, mean, amax, amin, argmax, var, std, norm, logsumexp, cumsum."""
    shape: tuple[int, ...]
    dim: Any
    for op, every in (("sum", 1), ("mean", 1), ("amax", 4), ("argmax", 4), ("var", 2), ("norm", 2), ("logsumexp", 4)):
        yield from _over_lengths(op, every, dim=(-1,))
        for shape in ODD[:: 1 if op in ("sum", "mean") else 2]:
            yield from _each(op, shape, dim=(-1,))
        for shape, dim in AXES[:: 1 if op == "sum" else 2]:
            if op != "argmax" or len(dim) == 1:
                yield from _each(op, shape, dim=dim)
        for shape, view in VIEWS[:: 1 if op in ("sum", "mean") else 2]:
            yield from _each(op, shape, view, dim=(-1,))
        for shape, kind in KINDS:
            yield from _each(op, shape, kind=kind, dim=(-1,))
    for op in ("amin", "std"):
        for shape in ((7, 1000), (33, 128), (1, 4096), (5, 50257), (256, 64)):
            yield from _each(op, shape, dim=(-1,))
    for shape in ((7, 1000), (33, 128), (1, 4096), (5, 5025), (256, 64)):
        yield from _each("var", shape, kind="offset", dim=(-1,), correction=0)
        yield from _each("norm", shape, dim=(-1,), ord=1.0)
        yield from _each("norm", shape, dim=(-1,), ord=3.0)
        yield from _each("sum", shape, dtypes=("bf16", "f16"), dim=(-1,), out="f32")
        yield from _each("mean", shape, dtypes=("bf16", "f16"), dim=(-1,), out="f32")
    for number, length in enumerate(
        (1, 2, 16, 31, 64, 100, 128, 250, 255, 256, 257, 500, 511, 512, 513, 768, 1000, 1024, 1025, 2048, 4096, 5000)
    ):
        yield from _each("cumsum", (_rows(number + 1, length) + 1, length), dim=-1)
    for shape, dim in (
        ((2000,), 0),
        ((300,), 0),
        ((100, 64), 0),
        ((3, 50, 70), 1),
        ((1000, 3), 0),
        ((1, 777), 1),
        ((4097, 5), 0),
        ((5, 1, 9), 1),
        ((1000, 64), 1),
        ((5000, 32), 1),
    ):
        yield from _each("cumsum", shape, dim=dim)
    for shape in ((4, 0), (0, 4), (0,)):
        yield from _each("sum", shape, dim=(-1,))
        yield from _each("mean", shape, dim=(-1,))


def softmaxes() -> Iterator[Case]:
    """softmax, log_softmax, cross_entropy."""
    shape: tuple[int, ...]
    for op, every in (("softmax", 1), ("log_softmax", 2)):
        yield from _over_lengths(op, every, dim=-1)
        for shape in ((4096, 64), (2000, 129), (1024, 1024), (1000, 1500), (257, 5120), (1, 1), (20000, 7)):
            yield from _each(op, shape, dim=-1)
        for shape, dim in SPATIAL:
            yield from _each(op, shape, dim=dim)
        for shape, view in VIEWS:
            yield from _each(op, shape, view, dim=-1)
        for shape, kind in (*KINDS, ((9, 1500), "masked"), ((9, 4096), "masked"), ((9, 2999), "specials")):
            yield from _each(op, shape, kind=kind, dim=-1)
        for shape in (
            (12, 128),
            (8, 250),
            (8, 1024),
            (4, 1500),
            (4, 2048),
            (4, 2052),
            (4, 3001),
            (4, 4096),
            (2, 32000),
        ):
            yield from _each(op, shape, dtypes=("bf16", "f16"), dim=-1, out="f32")
    for shape in (
        (1, 1000),
        (5, 50257),
        (32, 500),
        (33, 1000),
        (200, 100),
        (1000, 64),
        (2048, 32),
        (3, 7),
        (31, 32000),
        (2, 5, 6, 7),
    ):
        yield from _each("cross_entropy", shape)
        yield from _each("cross_entropy", shape, reduction="sum")
    for shape in ((33, 1000), (5, 5025), (1000, 64), (7, 130), (32, 32)):
        yield from _each("cross_entropy", shape, reduction="none")
        yield from _each("cross_entropy", shape, ignore_index=3)
        yield from _each("cross_entropy", shape, weight=True)
        yield from _each("cross_entropy", shape, label_smoothing=0.1)


def normalisations() -> Iterator[Case]:
    """layer_norm, rms_norm, group_norm."""
    shape: tuple[int, ...]
    for op, bias in (("layer_norm", True), ("rms_norm", False)):
        options: dict[str, Any] = {"weight": True, **({"bias": True} if bias else {})}
        yield from _over_lengths(op, eps=1e-5, **options)
        for shape in ((1, 768), (250, 768), (1024, 1024), (4096, 128), (1, 4096), (32, 2560), (1000, 64), (250, 2560)):
            yield from _each(op, shape, eps=1e-6, **options)
        for shape in ((5, 768), (5, 1000), (5, 4096), (5, 129), (5, 5001)):
            yield from _each(op, shape, eps=1e-12)
            if bias:
                yield from _each(op, shape, eps=1e-12, weight=True)
            else:
                yield from _each(op, shape, weight=True)
        for shape, view in VIEWS:
            yield from _each(op, shape, view, eps=1e-5, **options)
        for shape in ((5, 768), (33, 1000)):
            yield from _each(op, shape, eps=1e-5, **options, weight_view="offset1")
        for shape, kind in KINDS[:-1]:
            yield from _each(op, shape, kind=kind, eps=1e-5, **options)
        for shape in ((6, 12, 64), (3, 5, 7), (2, 33, 100)):
            yield from _each(op, shape, eps=1e-5, axes=2, **options)
    for shape, groups in (((2, 32, 8, 8), 8), ((2, 32, 8, 8), 32), ((2, 32, 8, 8), 1), ((1, 64, 32, 32), 32), ((3, 12, 5, 7), 4), ((2, 320, 16, 16), 32), ((4, 6, 100), 3), ((5, 8), 2), ((1, 4, 64, 64), 2), ((2, 9, 11), 3), ((64, 64, 4, 4), 16), ((1, 128, 3, 3), 32)):  # fmt: skip
        yield from _each("group_norm", shape, groups=groups, eps=1e-5, weight=True, bias=True)
        yield from _each("group_norm", shape, groups=groups, eps=1e-6)
    for shape, kind in (((2, 32, 8, 8), "offset"), ((2, 32, 17, 8), "wide"), ((1, 8, 40, 40), "large")):
        yield from _each("group_norm", shape, kind=kind, groups=8, eps=1e-5, weight=True, bias=True)


def embeddings() -> Iterator[Case]:
    """embedding: rows of a table."""
    for shape, index in (
        ((100, 64), (5,)),
        ((1000, 768), (2, 33)),
        ((50257, 16), (1, 250)),
        ((7, 129), (3, 4, 5)),
        ((32, 1), (1000,)),
    ):
        yield from _each("embedding", shape, index=index)


BACKENDS = ("default", "math", "flash", "cudnn", "efficient")
# batch, heads, groups, queries, keys, size: decoders' own: GPT-2, Qwen3 0.6B and 4B, Llama 3.2 1B
MODELS = ((12, 12, 64), (16, 8, 128), (32, 8, 128), (32, 8, 64))


def _attention(
    dtypes: tuple[str, ...],
    shape: tuple[int, int, int, int, int, int],
    backends: tuple[str, ...] = BACKENDS,
    view: str = "contiguous",
    kind: str = "normal",
    **options: Any,
) -> Iterator[Case]:
    sizes = dict(zip(("batch", "heads", "groups", "queries", "keys", "size"), shape, strict=True))
    for dtype in dtypes:
        for backend in backends:
            yield Case("attention", dtype, (), view, kind, {"backend": backend, **sizes, **options})


def attentions() -> Iterator[Case]:
    """scaled_dot_product_attention by every backend."""
    halves = ("bf16", "f16")
    for size in (64, 80, 96, 128, 256):
        for length in (1, 7, 32, 96, 128, 160, 250, 257, 512, 1024):
            dtypes = halves if size in (64, 128) or length in (32, 250) else (halves[(size // 16 + length) % 2],)
            yield from _attention(dtypes, (1, 2, 2, length, length, size), causal=False)
            yield from _attention(dtypes, (1, 2, 2, length, length, size), causal=True)
    for size in (64, 128):
        for queries, keys in (
            (1, 2),
            (1, 17),
            (1, 64),
            (1, 100),
            (1, 128),
            (1, 129),
            (1, 513),
            (1, 1000),
            (1, 4096),
            (16, 300),
            (5, 1024),
            (64, 65),
            (100, 30),
            (200, 2000),
        ):
            yield from _attention(halves, (1, 2, 2, queries, keys, size), causal=False)
        for queries, keys in ((16, 300), (100, 30), (130, 131)):
            yield from _attention(halves, (1, 2, 2, queries, keys, size), causal=True)
        for heads, groups in ((4, 2), (6, 1), (8, 8)):
            for queries, keys, causal in ((32, 32, True), (1, 77, False), (250, 250, True), (33, 129, False)):
                yield from _attention(halves, (1, heads, groups, queries, keys, size), causal=causal)
        for mask in ("bool", "added"):
            for queries, keys in ((7, 7), (1, 40), (32, 32), (64, 128), (250, 250), (33, 300)):
                yield from _attention(halves, (1, 2, 2, queries, keys, size), causal=False, mask=mask)
        for batch in (2, 3, 16):
            yield from _attention(halves, (batch, 5, 5, 100, 100, size), causal=True)
            yield from _attention(halves, (batch, 3, 3, 1, 200, size), causal=False)
        yield from _attention(halves, (1, 2, 2, 130, 130, size), causal=False, scale=0.25)
        for kind in ("large", "offset", "tiny"):
            yield from _attention(halves, (1, 2, 2, 130, 130, size), kind=kind, causal=False)
            yield from _attention(halves, (1, 2, 2, 130, 130, size), kind=kind, causal=True)
    for heads, groups, size in MODELS:
        for queries, keys, causal in (
            (1, 1, True),
            (32, 32, True),
            (250, 250, True),
            (1024, 1024, True),
            *((1, keys, False) for keys in (33, 34, 40, 47, 48, 251, 260, 1025, 1040)),
        ):
            yield from _attention(halves, (1, heads, groups, queries, keys, size), ("default",), "heads", causal=causal)
            if queries <= 250:
                yield from _attention(
                    halves,
                    (1, heads, groups, queries, keys, size),
                    ("flash", "efficient", "math"),
                    "heads",
                    causal=causal,
                )
    for size in (64, 128):
        for length in (7, 96, 250):
            yield from _attention(
                ("f32",), (1, 2, 2, length, length, size), ("default", "math", "efficient"), causal=False
            )
            yield from _attention(
                ("f32",), (1, 2, 2, length, length, size), ("default", "math", "efficient"), causal=True
            )


def _wide(
    batch: int,
    heads: int,
    groups: int,
    queries: int,
    keys: int,
    size: int,
    dtypes: tuple[str, ...] = ("bf16", "f16"),
    backends: tuple[str, ...] = ("default",),
    **options: Any,
) -> Iterator[Case]:
    yield from _attention(dtypes, (batch, heads, groups, queries, keys, size), backends, **{"causal": False, **options})


def decodings() -> Iterator[Case]:
    """scaled_dot_product_attention of one query (a decoder's step) and the choice of a kernel; mirrored values cancel, so that every rounding shows."""
    for size in (64, 128):
        for keys in (
            18,
            31,
            32,
            33,
            63,
            65,
            255,
            256,
            257,
            258,
            300,
            384,
            385,
            511,
            512,
            520,
            640,
            777,
            900,
            1023,
            1024,
            1100,
            1535,
            1536,
            2000,
            2048,
            2049,
            3000,
            4000,
            4096,
            4097,
            6000,
            8192,
        ):
            for heads, groups in ((32, 32), (32, 8)):
                yield from _wide(1, heads, groups, 1, keys, size)
        for batch, heads, groups in (
            (1, 1, 1),
            (1, 8, 8),
            (1, 32, 8),
            (16, 32, 8),
            (64, 8, 8),
            (1, 12, 12),
            (8, 32, 32),
        ):
            for keys in (257, 1000, 2048, 4096)[: 4 if batch == 1 else 2]:
                yield from _wide(batch, heads, groups, 1, keys, size)
        for keys in (64, 128, 200, 256, 260, 512, 514, 1000, 1024, 1040, 2048, 4096):
            yield from _wide(1, 16, 16, 1, keys, size, mirrored=1)
            yield from _wide(1, 16, 16, 40, keys, size, backends=("default", "flash", "efficient"), mirrored=1)
        yield from _wide(1, 4, 4, 40, 260, size, backends=("math",), mirrored=1)
        for keys in (300, 600, 1100, 4096):
            for mask in ("bool", "added"):
                yield from _wide(2, 8, 8, 1, keys, size, mask=mask)
                yield from _wide(2, 8, 2, 1, keys, size, mask=mask)
        for queries, keys in ((2, 2), (2, 300), (2, 1000), (3, 64), (4, 1000), (8, 4096), (1, 1)):
            yield from _wide(1, 8, 2, queries, keys, size)
            yield from _wide(1, 8, 8, queries, keys, size, causal=True)
        for keys in (2, 33, 300, 1000):
            yield from _wide(1, 8, 2, 1, keys, size, causal=True)
    for size in (8, 16, 32, 40, 48, 72, 112, 136, 160, 192, 224, 256, 36, 60):
        for queries, keys in ((1, 100), (1, 600), (50, 50)):
            yield from _wide(1, 4, 4, queries, keys, size, ("bf16", "f16") if size in (32, 160, 256) else ("bf16",))
            yield from _wide(
                1, 4, 4, queries, keys, size, ("bf16",), causal=queries > 1, mask=None if queries > 1 else "bool"
            )


GROUPS = {
    "reductions": reductions,
    "softmaxes": softmaxes,
    "normalisations": normalisations,
    "embeddings": embeddings,
    "attentions": attentions,
    "decodings": decodings,
}


def cases(group: str | None = None) -> list[Case]:
    """All cases, or those of one of GROUPS; no name occurs twice."""
    unique = {case.id: case for name, make in GROUPS.items() if group in (None, name) for case in make()}
    return list(unique.values())


DTYPE_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
