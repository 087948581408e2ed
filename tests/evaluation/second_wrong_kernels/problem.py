"""What a kernel multiplies and how it is cut: instructions, operands, tiles. All drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Arithmetic:
    """An instruction and what a kernel writer knows of it."""

    style: str  # "mma" (ldmatrix, warps), "wgmma" (descriptors), "tcgen05" (Tensor Memory)
    mnemonic: str
    arch: str
    a: str
    b: str
    k: int
    d: str = "f32"
    scale: str = ""  # the format of scale factors
    block: int = 0  # elements of K that share one
    sparse: bool = False

    @property
    def bits(self) -> int:
        """Bits of an element in shared memory."""
        return 32 if self.a == "tf32" else int(tcsim.format(self.a).bits)

    @property
    def plain(self) -> bool:
        """Whether it is dense and without scale factors."""
        return not self.sparse and not self.scale

    @property
    def idesc(self) -> Any:
        """tcgen05's instruction descriptor, or None."""
        if self.style != "tcgen05":
            return None
        kind = "f16" if self.bits == 16 else "f8f6f4"
        return tcsim.InstructionDescriptor(kind=kind, a_format=self.a, b_format=self.b, m=128, n=64)


def _mma(shape: str, a: str, d: str = "f32", b: str = "", kind: str = "", tail: str = "") -> str:
    return f"mma.sync.aligned.{kind}{shape}.row.col.{d}.{a}.{b or a}.{d}{tail}"


ARITHMETIC = (
    Arithmetic("mma", _mma("m16n8k16", "f16"), "sm_80", "f16", "f16", 16),
    Arithmetic("mma", _mma("m16n8k16", "f16"), "sm_90", "f16", "f16", 16),
    Arithmetic("mma", _mma("m16n8k16", "bf16"), "sm_90", "bf16", "bf16", 16),
    Arithmetic("mma", _mma("m16n8k8", "tf32"), "sm_80", "tf32", "tf32", 8),
    Arithmetic("mma", _mma("m16n8k32", "e4m3"), "sm_89", "e4m3", "e4m3", 32),
    Arithmetic("mma", _mma("m16n8k32", "s8", "s32"), "sm_80", "s8", "s8", 32, "s32"),
    Arithmetic("wgmma", "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "sm_90", "f16", "f16", 16),
    Arithmetic("wgmma", "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16", "sm_90", "bf16", "bf16", 16),
    Arithmetic("wgmma", "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2", "sm_90", "e4m3", "e5m2", 32),
    Arithmetic("tcgen05", "tcgen05.mma.cta_group::1.kind::f16", "sm_100", "f16", "f16", 16),
    Arithmetic("tcgen05", "tcgen05.mma.cta_group::1.kind::f16", "sm_100", "bf16", "bf16", 16),
    Arithmetic("tcgen05", "tcgen05.mma.cta_group::1.kind::f8f6f4", "sm_100", "e4m3", "e4m3", 32),
    Arithmetic("mma", "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90", "f16", "f16", 32, sparse=True),
    Arithmetic("mma", "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_90", "bf16", "bf16", 32, sparse=True),
    Arithmetic(
        "mma", _mma("m16n8k32", "e4m3", kind="kind::mxf8f6f4.block_scale.", tail=".ue8m0"),
        "sm_120", "e4m3", "e4m3", 32, scale="ue8m0", block=32,
    ),
    Arithmetic(
        "mma", _mma("m16n8k64", "e2m1", kind="kind::mxf4nvf4.block_scale.scale_vec::4X.", tail=".ue4m3"),
        "sm_120", "e2m1", "e2m1", 64, scale="ue4m3", block=16,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """How a kernel cuts the product."""

    bm: int
    bn: int
    bk: int
    warps: tuple[int, int]  # along M and N
    stages: int
    split: int
    a_major: str  # "k" or "mn": which index is contiguous in global memory
    b_major: str


@dataclass(frozen=True)
class Problem:
    """Operands as `tcsim.gemm` takes them."""

    arithmetic: Arithmetic
    m: int
    n: int
    k: int
    a: Array
    b: Array
    c: Array | None
    extras: dict[str, Array]  # scale_a and scale_b, or metadata

    def operands(self) -> dict[str, Any]:
        """The keywords of `tcsim.diagnose`."""
        given: dict[str, Any] = {"a": self.a, "b": self.b, **self.extras}
        if self.c is not None:
            given["c"] = self.c
        if self.arithmetic.idesc is not None:
            given["idesc"] = self.arithmetic.idesc
        return given


@dataclass(frozen=True)
class Wish:
    """What a kind of mistake needs to show itself."""

    blocks: tuple[int, int] = (1, 1)  # at least, along M and N
    tiles: int = 2  # of K, at least
    stages: tuple[int, ...] = (2, 3, 4)
    split: tuple[int, ...] = (1,)
    ragged: str = ""  # "m", "n", "k": not a multiple of the tile
    whole: str = ""  # "m", "n", "k": surely a multiple
    c: bool | None = None  # None: sometimes
    warps: tuple[int, int] = (1, 1)  # at least
    majors: str = ""  # "kk": both contiguous along K
    square: bool = False
    uneven: bool = False  # bm is not bn
    integers: bool = True  # operands may be small integers
    span: int = 0  # bytes in a row of a tile in shared memory; 0: any


def numbers(random: np.random.Generator, shape: tuple[int, ...], style: str) -> Array:
    """Normal, uniform in [-1, 1), the small integers that people fill test matrices with, or bytes."""
    if style == "bytes":
        return random.integers(-128, 128, shape).astype(float)
    if style == "normal":
        return random.standard_normal(shape)
    if style == "uniform":
        return random.uniform(-1, 1, shape)
    return random.integers(-9, 10, shape).astype(float)


def draw_tiling(random: np.random.Generator, arithmetic: Arithmetic, wish: Wish) -> Tiling:
    """Tiles that a kernel for this instruction would have."""
    dense_bits = arithmetic.bits
    spans = [8 * span // dense_bits for span in (32, 64, 128)]  # elements in a row of 32, 64, 128 bytes
    if arithmetic.sparse:
        spans = [2 * span for span in spans]
    depths = [span for span in spans if span % arithmetic.k == 0 and span >= 2 * arithmetic.k and span <= 64] or [
        2 * arithmetic.k
    ]
    if wish.span:
        depths = [spans[(32, 64, 128).index(wish.span)]]
    large = arithmetic.style != "mma"
    bm = int(random.choice([64, 128] if large else [32, 64]))
    bn = int(random.choice([n for n in (32, 64) if not wish.uneven or n != bm]))
    if large:
        warps = (bm // 16, 1)
    else:
        warps = (
            int(random.choice([w for w in (1, 2) if w >= wish.warps[0]])),
            int(random.choice([w for w in (1, 2) if w >= wish.warps[1]])),
        )
    majors = wish.majors or str(random.choice(["kk", "km", "mm", "mk"]))
    names = {"k": "k", "m": "mn"}
    return Tiling(
        bm, bn, int(random.choice(depths)), warps, int(random.choice(wish.stages)), int(random.choice(wish.split)), names[majors[0]], names[majors[1]]
    )  # fmt: skip


def _extent(random: np.random.Generator, tile: int, least: int, most: int, ragged: bool, step: int) -> int:
    count = int(random.integers(least, max(least, most) + 1))
    if ragged:
        return tile * (count - 1) + step * int(random.integers(1, tile // step)) if count > 1 or tile > step else tile
    return tile * count


def draw_problem(random: np.random.Generator, arithmetic: Arithmetic, tiling: Tiling, wish: Wish) -> Problem:
    """Operands of a size that has the blocks, K tiles and ends that the wish names."""
    loose = random.random() < 0.25  # a ragged M or N where the mistake does not mind
    m = _extent(
        random,
        tiling.bm,
        max(wish.blocks[0], 2 if "m" in wish.ragged else 1),
        3 if tiling.bm < 64 else 2,
        "m" in wish.ragged or (loose and "m" not in wish.whole),
        4,
    )
    n = _extent(
        random,
        tiling.bn,
        max(wish.blocks[1], 2 if "n" in wish.ragged else 1),
        3,
        "n" in wish.ragged or (loose and "n" not in wish.whole),
        4,
    )
    if wish.square:
        m = n = max(m, n)
    group = max(8, arithmetic.block, 4 if arithmetic.sparse else 1)
    k = _extent(random, tiling.bk, max(wish.tiles, tiling.split), 5, "k" in wish.ragged, min(group, tiling.bk // 2))
    style = str(
        random.choice(
            ["normal", "uniform", "integers"] if wish.integers else ["normal", "uniform"],
            p=[0.5, 0.3, 0.2] if wish.integers else None,
        )
    )
    style = "bytes" if arithmetic.d == "s32" else style
    a, b = numbers(random, (m, k), style), numbers(random, (k, n), style)
    extras: dict[str, Array] = {}
    if arithmetic.sparse:
        rule = tcsim.instruction(arithmetic.mnemonic, arch=arithmetic.arch).sparsity
        a[a == 0] = 1
        keep = np.argsort(random.random((m, k // 4, 4)), axis=-1) < 2
        a = np.where(keep.reshape(m, k), a, 0.0)
        codes_a, extras["metadata"] = rule.compress_matrix(tcsim.encode(a, arithmetic.a), arithmetic.a)
    else:
        codes_a = tcsim.encode(a, arithmetic.a, saturate=arithmetic.a not in ("f16", "bf16", "tf32"))
    if arithmetic.scale:
        blocks = -(-k // arithmetic.block)
        for name, shape in (("scale_a", (m, blocks)), ("scale_b", (blocks, n))):
            extras[name] = tcsim.encode(
                2.0 ** random.integers(-4, 5, shape)
                * (random.choice([1.0, 1.25, 1.5], shape) if arithmetic.scale == "ue4m3" else 1.0),
                arithmetic.scale,
            )
    codes_b = tcsim.encode(b, arithmetic.b, saturate=arithmetic.b not in ("f16", "bf16", "tf32"))
    c = None
    if wish.c or (wish.c is None and random.random() < 0.3):
        values = numbers(random, (m, n), style) * 4
        c = (
            values.astype(np.int32).view(np.uint32)
            if arithmetic.d == "s32"
            else values.astype(np.float32).view(np.uint32)
        )
    return Problem(arithmetic, m, n, k, codes_a, codes_b, c, extras)
