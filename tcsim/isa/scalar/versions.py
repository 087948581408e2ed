"""From which version of PTX ISA on ptxas 13.5.37 takes a scalar spelling: read off with every version from 4.0 and every target from sm_50."""

from __future__ import annotations

from functools import lru_cache

from tcsim.model.grammar import needs, since

_HALF, _BRAIN = "f16 f16x2", "bf16 bf16x2"
_SUMS, _EXTREMES = "add sub mul fma", "min max"
_SINCE = (
    since("4.3", 0, "add sub addc subc mad madc", "cc", "u64 s64"), since("4.3", 0, "lop3"), since("8.2", 70, "lop3", "|"),
    since("5.0", 60, f"{_SUMS} set setp", _HALF), since("5.1", 0, "fns"), since("5.1", 60, "neg", _HALF), since("6.0", 70, "dp4a dp2a"),
    since("6.5", 60, "abs", _HALF), since("6.5", 75, "pack"), since("7.0", 75, "tanh"), since("7.0", 75, "ex2", _HALF),
    since("7.0", 80, "relu"), since("7.0", 80, "fma abs neg", _BRAIN), since("7.0", 80, _EXTREMES, f"{_HALF} {_BRAIN} NaN"),
    since("7.0", 80, "cvt", "bf16"), since("7.6", 70, "bmsk szext"), since("7.8", 86, "xorsign"),
    since("9.5", 75, "sin cos", "2pi"), since("7.8", 90, "add sub mul set setp ex2 tanh", _BRAIN), since("8.0", 90, "u16x2 s16x2"), since("8.0", 90, "relu", "s32"),
    since("7.1", 80, "cvt", "f32.bf16"), since("7.8", 90, "cvt", "bf16", "u8 u16 u32 u64 s8 s16 s32 s64 f16 f64 bf16.bf16"),
    since("7.8", 90, "cvt", "ftz", "f32.bf16"), since("6.5", 60, "set", "u16.f16 s16.f16 u32.f16 s32.f16 u32.f16x2 s32.f16x2"),
    since("8.6", 100, "add sub fma", "f32.f16 f32.bf16"), since("8.1", 90, "oob"), since("8.6", 100, "f32x2"), since("8.8", 100, _EXTREMES, "/3"),
    since("9.2", 107, "u8x4 s8x4"), since("9.2", 107, "add", "sat", "u32 u16x2 s16x2"), since("9.3", 80, "clmad"),
)  # fmt: skip
"""Words of a spelling, its first word among them, and its last two with a dot; "|" stands for two results, "/3" for three sources."""


@lru_cache(maxsize=1 << 14)
def version_of(mnemonic: str) -> tuple[str, int]:
    """The lowest version and compute capability of a mnemonic as the tables name it.

    >>> version_of("tanh.approx.f32"), version_of("min.f32/3"), version_of("add.u32")
    (('7.0', 75), ('8.8', 100), ('1.0', 0))
    """
    words = mnemonic.replace("|", ".|").replace("/", "./").split(".")
    return needs(_SINCE, (*words, ".".join(words[-2:])))
