"""tensormap.replace, tensormap.cp_fenceproxy, prefetch.tensormap: the rows that the assembler accepts.

Sources: PTX ISA 9.2, sections tensormap.replace, tensormap.cp_fenceproxy, prefetch; ptxas 13.5.37 (targets, versions, SASS).
One spelling stands for several operand forms: ordinals, and immediates that not every target takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tcsim.evidence import RECORDED, Evidence
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, since, suffixed_since
from tcsim.tensormap_update import TensorMapCopy, TensorMapPrefetch, TensorMapUpdate, UpdateFacts

NAME = "tensormap"

_REPLACE = ("sm_90a", *suffixed_since("sm_100"))
_NEW = suffixed_since("sm_100")
_96 = ("sm_103a", "sm_107a")
SPACES = ("", ".global", ".shared::cta")


def _of(count: int, targets: tuple[str, ...]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    return tuple((value, targets) for value in range(count))


_BIT_85 = (
    "ptxas 13.5.37 clears bit 85 with the address and ptxas 13.0.88 does not (measured on an H200): it is the assembler's "
    "choice, not the GPU's"
)

FIELDS: tuple[tuple[UpdateFacts, str], ...] = (
    (UpdateFacts("global_address", "", wide=True, unsettled=("large_allocation",), why_unsettled=_BIT_85), "8.3"),
    (UpdateFacts("rank", ""), "8.3"),
    (UpdateFacts("box_dim", "", 5), "8.3"),
    (UpdateFacts("global_dim", "", 5), "8.3"),
    (UpdateFacts("global_stride", "", 4, wide=True, spurious=4), "8.3"),
    (UpdateFacts("element_stride", "", 5), "8.3"),
    (UpdateFacts("elemtype", "", 0, _of(13, _REPLACE) + tuple((value, _NEW) for value in (13, 14, 15))), "8.3"),
    (UpdateFacts("interleave_layout", "", 0, _of(3, _REPLACE)), "8.3"),
    (UpdateFacts("swizzle_mode", "", 0, (*_of(4, _REPLACE), (4, _96))), "8.3"),
    (UpdateFacts("swizzle_atomicity", "", 0, _of(4, _NEW)), "8.6"),
    (UpdateFacts("fill_mode", "", 0, _of(2, _REPLACE)), "8.3"),
)
"""Every field, and the lowest `.version` of its spelling."""


def rows() -> tuple[Row, ...]:
    """Every spelling."""
    return tuple(_rows())


def _rows() -> Iterator[Row]:
    for scope in ("cta", "cluster", "gpu", "sys"):
        text = f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned"
        yield _row(text, since("sm_90"), "8.3", "copy", None)
    for facts, version in FIELDS:
        targets = _NEW if facts.field == "swizzle_atomicity" else _REPLACE
        for space in SPACES:
            text = f"tensormap.replace.tile.{facts.field}{space}.b1024.{'b64' if facts.wide else 'b32'}"
            own = replace(facts, space=space)
            yield _row(text, targets, version, "replace", own)
    for space in ("", ".param", ".const"):
        yield _row(f"prefetch{space}.tensormap", since("sm_90"), "8.0", "prefetch", None)


def _row(mnemonic: str, targets: tuple[str, ...], version: str, arithmetic: str, facts: UpdateFacts | None) -> Row:
    return Row(mnemonic, NAME, (0, 0, 0), MappingProxyType({}), targets, version, arithmetic, facts=facts)


def lowering(row: Row, arch: Arch) -> Lowering:
    """Replacements and copies are ordinary loads, masks and stores; a prefetch is one cache control."""
    if row.arithmetic == "prefetch":
        return Lowering("native", (), (("UTMACCTL.PF", 1),))
    return Lowering("emulated", (), (), "ordinary loads, masks and stores on the 128 bytes: tcsim.tensor_map_bits")


_MACHINE_CODE = Evidence("literature", "the machine code that ptxas 13.5.37 emits; PTX ISA, section tensormap.replace")
_MANUAL = Evidence("literature", "PTX ISA, sections tensormap.cp_fenceproxy and prefetch")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, the machine code, or the manual."""
    if arch.name in RECORDED:
        return RECORDED[arch.name]
    return _MACHINE_CODE if row.arithmetic == "replace" else _MANUAL


def bind(row: Row, *arguments: Any) -> Any:
    """The instruction of a row."""
    kinds = {"replace": TensorMapUpdate, "copy": TensorMapCopy, "prefetch": TensorMapPrefetch}
    return kinds[row.arithmetic](row, *arguments)


FAMILY = Family(NAME, rows, lowering, evidence, bind, "none: it edits or moves the 128 bytes of a tensor map")
