"""Everyday words, and the words of mnemonics that they stand for.

A word of a question becomes alternatives, the likeliest first; an alternative is the words that a row must have, all of them.
A row's words are the parts of its mnemonic, the formats of its operands (`a:f16` too), and its shape's dimensions.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from tcsim.numbers.names import TYPES

Alternatives = tuple[tuple[str, ...], ...]


ALIASES: MappingProxyType[str, Alternatives] = MappingProxyType(
    {alias: ((format,),) for format, names in TYPES.items() for alias in names}
    | {
        "fp8": (("e4m3",), ("e5m2",)),
        "float8": (("e4m3",), ("e5m2",)),
        "f8": (("e4m3",), ("e5m2",)),
        "fp6": (("e3m2",), ("e2m3",), ("b6x16_p32",)),
        "float6": (("e3m2",), ("e2m3",), ("b6x16_p32",)),
        "fp4": (("e2m1",), ("b4x16_p64",)),
        "f4": (("e2m1",), ("b4x16_p64",)),
        "nvfp4": (("mxf4nvf4", "scale_vec::4x", "ue4m3"), ("mxf4nvf4",)),
        "mxfp4": (("mxf4nvf4", "scale_vec::2x", "ue8m0"), ("mxf4",), ("mxf4nvf4",)),
        "mxfp8": (("mxf8f6f4", "e4m3"), ("mxf8f6f4",)),
        "mxfp6": (("mxf8f6f4", "e3m2"), ("mxf8f6f4",)),
        "umma": (("tcgen05", "mma"),),
        "gmma": (("wgmma",),),
        "warpgroup": (("wgmma",), ("warpgroup",)),
        "tmem": (("tcgen05",),),
        "tcgen5": (("tcgen05",),),
        "sparse": (("sp",),),
        "sparsity": (("sp",),),
        "2:4": (("sp",),),
        "transpose": (("trans",),),
        "transposed": (("trans",),),
        "saturate": (("satfinite",), ("sat",)),
        "sat": (("satfinite",), ("sat",)),
        "convert": (("cvt",),),
        "conversion": (("cvt",),),
        "cast": (("cvt",),),
        "load": (("ld",), ("load",), ("ldmatrix",), ("complete_tx",)),
        "store": (("st",), ("store",), ("stmatrix",), ("bulk_group",)),
        "copy": (("cp",),),
        "bulkcopy": (("cp", "bulk"),),
        "allocate": (("alloc",),),
        "deallocate": (("dealloc",),),
        "free": (("dealloc",),),
        "2cta": (("cta_group::2",),),
        "2sm": (("cta_group::2",),),
        "1cta": (("cta_group::1",),),
        "1sm": (("cta_group::1",),),
        "pair": (("cta_group::2",),),
        "exp2": (("ex2",),),
        "exp": (("ex2",),),
        "log2": (("lg2",),),
        "reciprocal": (("rcp",),),
        "row_major": (("row",),),
        "rowmajor": (("row",),),
        "col_major": (("col",),),
        "colmajor": (("col",),),
        "column": (("col",),),
        "matrix_a": (("load", "a"), ("a",)),
        "matrix_b": (("load", "b"), ("b",)),
        "weight": (("ws",),),
        "stationary": (("ws",),),
        "scaled": (("block_scale",), ("scale",)),
        "pack_ab": (("pack_ab", "bf16x2"), ("pack_ab", "f16x2"), ("pack_ab",)),  # of F2FP, which converts two numbers
        "pdl": (("griddepcontrol",),),
        "syncthreads": (("bar", "sync"),),
        "syncwarp": (("bar", "warp"),),
        "atomic": (("red",),),
    }
)
"""A word that is not a mnemonic's own, and what it may mean."""

PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (r"(?:nvcuda::)?\bwmma::", " wmma "),
        (r"\bprecision::", " "),
        (r"\bload_matrix_sync\b", " wmma load "),
        (r"\bstore_matrix_sync\b", " wmma store "),
        (r"\bmma_sync\b", " wmma mma "),
        (r"\bfragment\b(?=.*\baccumulator\b)", " wmma load c "),
        (r"(?<=wmma load c )(.*)\baccumulator\b", r"\1 "),
        (r"\bfragment\b", " wmma "),
        (r"\b(\w+) accumulat\w*", r" d:\1 "),
        (r"\baccumulat\w*", " "),
        (r"\bm?(\d+)(\s*[x,_]\s*|\s+)n?(\d+)\2k?(\d+)(?![\dx]|b\b)", r" m\1n\3k\4 "),
        (r"\bm?(\d+)x(\d+)\b(?!x)", r" m\1n\2 "),
        (r"\b([mnk]) ?= ?(\d+)\b", r" \1\2 "),
        (r"\bdouble precision\b", " f64 "),
        (r"\bwarpgroup[._ ]?arrive\b", " wgmma fence "),
        (r"\bload[ _-]?matrix\b", " ldmatrix "),
        (r"\bstore[ _-]?matrix\b", " stmatrix "),
        (r"\bblock[ _-]?scal(?:ed|ing|e)\b", " block_scale "),
        (r"\btma\b(?=.*\b(?:store|reduce|red)\b)", " cp async bulk tensor bulk_group "),
        (r"\btma\b(?=.*\bprefetch\b)", " cp async bulk tensor "),
        (r"\btma\b", " cp async bulk tensor complete_tx "),
        (r"(?<=bulk_group )(.*)\bstore\b", r"\1 "),
        (r"(?<=complete_tx )(.*)\bload\b", r"\1 "),
        (r"\bbulk copy\b", " cp async bulk "),
        (r"\b(?:global|gmem) to (?:shared|smem)\b", " shared global complete_tx "),
        (r"\b(?:shared|smem) to (?:global|gmem)\b", " global shared bulk_group "),
        (r"\belect[ ._]one\b", " elect "),
        (r"\bcp[ .]async 16\b", " cp async cg "),
        (r"\brounding to nearest\b", " rn "),
    )
)
"""What several words together stand for, in the order in which it is replaced."""

_FORMAT = r"[a-z]+[\w]*"
CONVERSION = re.compile(rf"\b(?P<source>{_FORMAT}) (?:to|into|->|=>) (?P<result>{_FORMAT})\b")
"""A conversion in words, if both are types."""

NOISE = frozenset(["the", "a", "an", "of", "for", "with", "in", "on", "instruction", "ptx", "sass", "cute", "atom", "nvidia", "geforce", "rtx", "gpu", "jetson", "dgx", "dense", "tensor_core", "rs", "ss"])  # fmt: skip
"""Words that say nothing where no row has them."""
