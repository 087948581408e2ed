"""What tensormap.replace, tensormap.cp_fenceproxy and prefetch.tensormap do to the 128 bytes of a CUtensorMap.

tensormap.replace, tensormap.cp_fenceproxy, prefetch.tensormap: the rows that the assembler accepts.

Sources: PTX ISA 9.2, sections tensormap.replace, tensormap.cp_fenceproxy, prefetch; ptxas 13.5.37 (targets, versions, SASS).
One spelling stands for several operand forms: ordinals, and immediates that not every target takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.model.family import Family
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row
from tcsim.tma.bits import BYTES, COMMON, TILED, MapField
from tcsim.tma.types import NotModelledError, TensorMapError

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class UpdateFacts:
    """What a spelling of tensormap says."""

    field: str  # of the map, as PTX names it; empty: the instruction changes no field
    space: str  # of the map's address: "" (generic), ".global", ".shared::cta"
    ordinals: int = 0  # how many of the field a map has; 0: one, and the instruction takes no ordinal
    immediates: tuple[tuple[int, tuple[str, ...]], ...] = ()  # values and the targets that take them; none: a register
    wide: bool = False  # the value has 64 bits
    spurious: int | None = None  # an ordinal that the assembler takes and no map has
    unsettled: tuple[str, ...] = ()  # fields of the map that some assemblers set, too, and others leave alone
    why_unsettled: str = ""


_FIELDS: dict[str, MapField] = {item.name: item for item in (*COMMON, *TILED)}
_REGISTER_FIELDS = {
    "global_address": "global_address",
    "rank": "rank",
    "box_dim": "box_dim[{}]",
    "global_dim": "global_dim[{}]",
    "global_stride": "global_strides[{}]",
    "element_stride": "element_strides[{}]",
}
_ELEMENT_CODES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 8, 11, 12, 13)
"""Field element_type by the number of tensormap.replace.elemtype; 11 and 12 set round_tf32 too, and none clears it."""
_ROUNDED = (11, 12)


def replaced_fields(field: str, ordinal: int, value: Any) -> dict[str, Any]:
    """The map's fields that a replacement sets, with their numbers (ints or integer arrays).

    Source: the machine code that ptxas 13.5 emits for sm_90a, sm_100a and sm_103a. That of ptxas 13.0.88 leaves bit 85
    (large_allocation) alone when it replaces the address (NVIDIA H200), and agrees in all others.
    """
    if field in _REGISTER_FIELDS:
        name = _REGISTER_FIELDS[field].format(ordinal)
        number = value + 1 if field == "rank" else value  # PTX counts ranks from 0
        return {name: number} | ({"large_allocation": 0} if field == "global_address" else {})
    if field == "elemtype":
        return {"element_type": _ELEMENT_CODES[value]} | ({"round_tf32": 1} if value in _ROUNDED else {})
    if field == "swizzle_mode":
        return {"swizzle_mode": value % 4, "swizzle_96": value // 4}
    return {{"interleave_layout": "interleave", "fill_mode": "oob_fill"}.get(field, field): value}


@dataclass(frozen=True, eq=False, repr=False)
class TensorMapUpdate(Instruction):
    """tensormap.replace: one field of a map in memory."""

    @property
    def facts(self) -> UpdateFacts:
        """What the spelling says.

        Raises TypeError if the row has no such facts.
        """
        if not isinstance(self.row.facts, UpdateFacts):
            raise TypeError(f"{self.mnemonic} changes no tensor map")
        return self.row.facts

    def execute(self, tensor_map: Any, new_value: Any, ordinal: int | None = None) -> Bytes:
        """The new bytes: tensor_map uint8 (..., 128), new_value integers (...) (an immediate for fields of names).

        ordinal: which dimension, of fields that a map has several of. Leading dimensions broadcast. The value is stored as
        the machine code does, without a check: bits that do not fit are lost.

        Raises OperandError for another dtype or shape, TensorMapError for an ordinal or immediate that the assembler refuses
        on the arch.

        >>> replace = tcsim.instruction("tensormap.replace.tile.global_dim.shared::cta.b1024.b32", arch="sm_90")
        >>> data = np.frombuffer(tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64)).encode(0), np.uint8)
        >>> tcsim.TensorMap.decode(replace.execute(data, 99, ordinal=1).tobytes()).global_dim
        (256, 99)
        """
        call = f"{self!r}.execute"
        data = np.asarray(tensor_map)
        if data.dtype != np.uint8 or data.shape[-1:] != (BYTES,):
            raise OperandError(f"{call}: tensor_map is {data.dtype} {data.shape}; valid: uint8 (..., {BYTES})")
        place = self._ordinal(ordinal, call)
        values = self._values(new_value, call)
        batch = broadcast([data.shape[:-1], values.shape], call)
        words = np.broadcast_to(data, (*batch, BYTES)).copy().view("<u4")
        number: Any = int(values) if self.facts.immediates else values.astype(object)
        for name, stored in replaced_fields(self.facts.field, place, number).items():
            _store(words, _FIELDS[name], np.broadcast_to(np.asarray(stored, object), batch))
        return words.view(np.uint8)

    def _ordinal(self, ordinal: int | None, call: str) -> int:
        count = self.facts.ordinals
        if not count:
            if ordinal is not None:
                raise TensorMapError(f"{call}: ordinal={ordinal}: {self.facts.field} has none")
            return 0
        if ordinal is not None and ordinal == self.facts.spurious:
            raise NotModelledError(
                f"{call}: not modelled: ordinal={ordinal}: the assembler takes it, but a map has {count} of {self.facts.field}, and "
                "the machine code overwrites bits of them all"
            )
        if ordinal is None or not 0 <= ordinal < count:
            raise TensorMapError(f"{call}: ordinal={ordinal}; {self.facts.field} has 0 to {count - 1}")
        return int(ordinal)

    def _values(self, new_value: Any, call: str) -> npt.NDArray[Any]:
        values = np.asarray(new_value)
        bits = 64 if self.facts.wide else 32
        if values.dtype.kind not in "iu" or (
            values.size and not 0 <= int(values.min()) <= int(values.max()) < 1 << bits
        ):
            raise OperandError(f"{call}: new_value={new_value!r}; valid: integers below 2**{bits}")
        if self.facts.immediates:
            valid = [value for value, targets in self.facts.immediates if set(targets) & set(self.targets)]
            if values.ndim or int(values) not in valid:
                raise TensorMapError(
                    f"{call}: new_value={new_value!r}; {self.facts.field} takes one of {valid} on {self.arch.name}"
                )
        return values


def _store(words: npt.NDArray[np.uint32], field: MapField, numbers: npt.NDArray[np.object_]) -> None:
    """Put numbers (...) into a field of words (..., 32)."""
    parts = np.frompyfunc(field.put, 1, 1)(numbers)
    for place in range(words.shape[-1]):
        mask = field.mask >> 32 * place & 0xFFFFFFFF
        if mask:
            part = np.asarray(parts >> 32 * place & 0xFFFFFFFF, object).astype(np.uint32)
            words[..., place] = words[..., place] & np.uint32(~mask & 0xFFFFFFFF) | part


@dataclass(frozen=True, eq=False, repr=False)
class TensorMapCopy(Instruction):
    """tensormap.cp_fenceproxy: 128 bytes from shared to global memory, seen by later copies."""

    def execute(self, tensor_map: Any) -> Bytes:
        """The bytes in global memory: a copy of tensor_map uint8 (..., 128).

        Raises OperandError for another dtype or shape.

        >>> name = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
        >>> tcsim.instruction(name, arch="sm_90").execute(tensor_map=np.zeros(128, np.uint8)).shape
        (128,)
        """
        data = np.asarray(tensor_map)
        if data.dtype != np.uint8 or data.shape[-1:] != (BYTES,):
            raise OperandError(
                f"{self!r}.execute: tensor_map is {data.dtype} {data.shape}; valid: uint8 (..., {BYTES})"
            )
        return data.copy()


@dataclass(frozen=True, eq=False, repr=False)
class TensorMapPrefetch(Instruction):
    """prefetch.tensormap: a hint."""

    def execute(self) -> None:
        """Nothing: the instruction changes no memory.

        >>> tcsim.instruction("prefetch.tensormap", arch="sm_90").execute()
        """


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
    return Lowering("emulated", (), (), "ordinary loads, masks and stores on the 128 bytes: tcsim.tma.bits")


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
