"""tensormap.replace, .query and .cp_fenceproxy, prefetch.tensormap: what they do to the 128 bytes of a CUtensorMap.

Sources: PTX ISA, sections tensormap.replace, tensormap.cp_fenceproxy, prefetch; ptxas 13.5.37 (targets, versions, SASS). One
spelling has several forms: immediates that not every target takes, and an ordinal that no map has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, byte_memory
from tcsim.core.arguments import broadcast
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since, suffixed_since
from tcsim.isa.copies import MAP_BOUNDARY, MAP_SPACES, object_at, space_of
from tcsim.model.effects import Access, Array, Effects, Memories, Order, Outcome, View, Write, completed
from tcsim.model.family import Family
from tcsim.model.form import Form, forms_for
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Scope, Space
from tcsim.model.row import Row
from tcsim.tma.bits import BYTES, COMMON, TILED, MapField
from tcsim.tma.types import NotModelledError, TensorMapError


@dataclass(frozen=True, kw_only=True)
class TensorMapRow(Row):
    """A spelling of tensormap; its operation is "replace", "query", "copy" or "prefetch"."""

    field: str = ""  # of the map, as PTX names it; empty: the instruction changes no field
    unsettled: tuple[str, ...] = ()  # fields of the map that some assemblers set, too, and others leave alone
    why_unsettled: str = ""
    scope: Scope = "sys"  # of tensormap.cp_fenceproxy: for whom it orders

    @property
    def ordinals(self) -> tuple[int, ...]:
        """Those of the field's that a map has; none where it has one and the instruction takes no ordinal."""
        return self.forms[0]["ordinal"].values if "ordinal" in self.forms[0] else ()

    @property
    def wide(self) -> bool:
        """Whether the value has 64 bits."""
        return self.forms[0].operands[-1].type == ".b64"

    @property
    def immediate(self) -> bool:
        """Whether the value is an immediate."""
        return self.operation == "replace" and self.forms[0]["new_value"].kind == "immediate"

    def immediates(self, targets: Collection[str]) -> tuple[int, ...]:
        """The values that a field given by an immediate takes on any of some targets."""
        forms = forms_for(self.forms, targets) if self.immediate else ()
        return tuple(value for form in forms for value in form["new_value"].values)


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

    row: TensorMapRow

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The words of each lane's map that hold the field, read and written.

        Raises as `execute` does.
        """
        address = operands["tensor_map"].astype(np.int64)
        ordinal = int(np.asarray(operands["ordinal"]).flat[0]) if "ordinal" in form else None
        place, values = self._ordinal(ordinal), self._values(operands["new_value"])
        fields = [_FIELDS[name] for name in replaced_fields(self.row.field, place, 0)]
        touched = [word for word in range(BYTES // 4) if any(item.mask >> 32 * word & 0xFFFFFFFF for item in fields)]
        first, size = 4 * touched[0], 4 * (touched[-1] + 1 - touched[0])
        at = Access(space_of(form["tensor_map"]), address + first, size, operand="tensor_map")
        read = view.read(at)
        words = np.zeros((*read.shape[:-1], BYTES), np.uint8)
        words[..., first : first + size] = read
        found = self._replaced(words, place, values)
        return Effects(Outcome(writes=(Write(at, found[..., first : first + size]),)), (at,))

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
        data, place, values = _map_bytes(tensor_map, self._call), self._ordinal(ordinal), self._values(new_value)
        form = next(form for form in self.forms if self._takes(form, place, new_value))
        given: dict[str, Array] = {"tensor_map": np.zeros(1, np.int64), "ordinal": np.asarray(place)}
        given["new_value"] = values if self.row.immediate else values[..., None]
        batch = broadcast([data.shape[:-1], values.shape], self._call)
        space = space_of(form["tensor_map"])
        view = Memories({space: np.broadcast_to(data, (*batch, BYTES))}, self._call)
        return view.after(completed(self.effects(form, given, view), view))[space]

    def _takes(self, form: Form, place: int, new_value: Any) -> bool:
        """Whether a list of operands has the immediate."""
        return not self.row.immediate or int(new_value) in form["new_value"].values

    def _replaced(self, data: Bytes, place: int, values: npt.NDArray[Any]) -> Bytes:
        """The bytes of maps (..., 128) with the field replaced."""
        batch = broadcast([data.shape[:-1], values.shape], self._call)
        words = np.broadcast_to(data, (*batch, BYTES)).copy().view("<u4")
        number: Any = int(values) if self.row.immediate else values.astype(object)
        for name, stored in replaced_fields(self.row.field, place, number).items():
            _store(words, _FIELDS[name], np.broadcast_to(np.asarray(stored, object), batch))
        return words.view(np.uint8)

    def _ordinal(self, ordinal: int | None) -> int:
        valid = self.row.ordinals
        if not valid:
            if ordinal is not None:
                raise TensorMapError(f"{self._call}: ordinal={ordinal}: {self.row.field} has none")
            return 0
        if ordinal is not None and any(ordinal in form["ordinal"].values for form in self.forms if not form.documented):
            raise NotModelledError(
                f"{self._call}: not modelled: ordinal={ordinal}: the assembler takes it, but a map has {len(valid)} of "
                f"{self.row.field}, and the machine code overwrites bits of them all"
            )
        if ordinal not in valid:
            raise TensorMapError(f"{self._call}: ordinal={ordinal}; {self.row.field} has {valid[0]} to {valid[-1]}")
        return int(ordinal)

    def _values(self, new_value: Any) -> npt.NDArray[Any]:
        values = np.asarray(new_value)
        bits = 64 if self.row.wide else 32
        if values.dtype.kind not in "iu" or (
            values.size and not 0 <= int(values.min()) <= int(values.max()) < 1 << bits
        ):
            raise OperandError(f"{self._call}: new_value={new_value!r}; valid: integers below 2**{bits}")
        if self.row.immediate:
            valid = self.row.immediates(self.targets)
            if values.ndim or int(values) not in valid:
                raise TensorMapError(
                    f"{self._call}: new_value={new_value!r}; {self.row.field} takes one of {list(valid)} on {self.arch.name}"
                )
        return values


def _map_bytes(tensor_map: Any, call: str) -> Bytes:
    """The bytes of maps: uint8 (..., 128)."""
    data = byte_memory(tensor_map, call, "tensor_map", shape=f"(..., {BYTES})")
    if data.shape[-1] != BYTES:
        raise OperandError(f"{call}: tensor_map is {data.dtype} {data.shape}; valid: uint8 (..., {BYTES})")
    return data


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

    row: TensorMapRow

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """One copy of the warp, and the fence."""
        source, target = (
            Access(space_of(form[name]), operands[name][..., :1].astype(np.int64), BYTES)
            for name in ("tensor_map", "destination")
        )
        fence = Order("fence.proxy", ("generic", "tensormap"), sem="release", scope=self.row.scope)
        return Effects(Outcome(writes=(Write(target, view.read(source)),)), (source,), orders=(fence,))

    def execute(self, tensor_map: Any) -> Bytes:
        """The bytes in global memory: a copy of tensor_map uint8 (..., 128).

        Raises OperandError for another dtype or shape.

        >>> name = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
        >>> tcsim.instruction(name, arch="sm_90").execute(tensor_map=np.zeros(128, np.uint8)).shape
        (128,)
        """
        data, form = _map_bytes(tensor_map, self._call), self.forms[0]
        operands = {name: np.zeros(LANES, np.int64) for name in ("destination", "tensor_map")}
        view = Memories({"shared": data, "global": np.zeros(BYTES, np.uint8)}, self._call)
        return view.after(completed(self.effects(form, operands, view), view))["global"]


@dataclass(frozen=True, eq=False, repr=False)
class TensorMapQuery(Instruction):
    """tensormap.query: one bit of a map as a predicate."""

    row: TensorMapRow

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The word of each lane's map that holds the bit is read."""
        word, bit = divmod(_FIELDS[self.row.field].mask.bit_length() - 1, 32)
        address = operands["tensor_map"].astype(np.int64) + 4 * word
        at = Access(space_of(form["tensor_map"]), address, 4, operand="tensor_map")
        found = np.ascontiguousarray(view.read(at)).view("<u4")[..., 0] >> np.uint32(bit) & np.uint32(1)
        return Effects(Outcome(registers={"large": found != 0}), (at,))

    def execute(self, tensor_map: Any) -> npt.NDArray[np.bool_]:
        """The predicate (...) of maps uint8 (..., 128).

        Raises OperandError for another dtype or shape.

        >>> query = tcsim.instruction("tensormap.query.alloc_class_large.global.b1024", arch="sm_90")
        >>> bool(query.execute(np.zeros(128, np.uint8))), bool(query.execute(np.full(128, 0xFF, np.uint8)))
        (False, True)
        """
        data, form = _map_bytes(tensor_map, self._call), self.forms[0]
        view = Memories({space_of(form["tensor_map"]): data}, self._call)
        found = self.effects(form, {"tensor_map": np.zeros(1, np.int64)}, view).now.registers["large"]
        return np.asarray(found[..., 0], np.bool_)


@dataclass(frozen=True, eq=False, repr=False)
class TensorMapPrefetch(Instruction):
    """prefetch.tensormap: a hint."""

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """None but that it names a map."""
        return Effects(reads=(object_at(form["tensor_map"], operands["tensor_map"], BYTES),))

    def execute(self) -> None:
        """Nothing: the instruction changes no memory.

        >>> tcsim.instruction("prefetch.tensormap", arch="sm_90").execute()
        """


NAME = "tensormap"
LANES = 32

_SINCE, _NEW = since("sm_90"), suffixed_since("sm_100")
_REPLACE = ("sm_90a", *_NEW)
_96 = ("sm_103a", "sm_107a")
_SPACES: dict[str, Space] = {"": "generic", ".global": "global", ".shared::cta": "shared::cta"}
_PREFETCHED: dict[str, Space] = {"": "generic", ".param": "param", ".const": "const"}
_BIT_85 = (
    "ptxas 13.5.37 clears bit 85 with the address and ptxas 13.0.88 does not (measured on an H200): it is the assembler's "
    "choice, not the GPU's"
)


def _form(
    *operands: Operand, targets: tuple[str, ...] = _REPLACE, since: str = "8.3", name: str = "", documented: bool = True
) -> Form:
    return Form(operands, targets, since, "thread", name=name, documented=documented)


def _ordinal(*values: int) -> Operand:
    return Operand("ordinal", kind="immediate", values=values)


def _named(*values: int) -> Operand:
    return Operand("new_value", kind="immediate", values=values)


_WORD, _WIDE = Operand("new_value", type=".b32"), Operand("new_value", type=".b64")
FIELDS: dict[str, tuple[Form, ...]] = {
    "global_address": (_form(_WIDE),),
    "rank": (_form(_WORD),),
    "box_dim": (_form(_ordinal(0, 1, 2, 3, 4), _WORD),),
    "global_dim": (_form(_ordinal(0, 1, 2, 3, 4), _WORD),),
    "global_stride": (
        _form(_ordinal(0, 1, 2, 3), _WIDE),
        _form(_ordinal(4), _WIDE, name="ord=4", documented=False),  # the assembler takes it, and no map has it
    ),
    "element_stride": (_form(_ordinal(0, 1, 2, 3, 4), _WORD),),
    "elemtype": (_form(_named(*range(13))), _form(_named(13, 14, 15), targets=_NEW, since="8.7", name="val=13")),
    "interleave_layout": (_form(_named(0, 1, 2)),),
    "swizzle_mode": (_form(_named(0, 1, 2, 3)), _form(_named(4), targets=_96, since="8.8", name="val=4")),
    "swizzle_atomicity": (_form(_named(0, 1, 2, 3), targets=_NEW, since="8.6"),),
    "fill_mode": (_form(_named(0, 1)),),
}
"""The forms of each field of tensormap.replace, but for the address of the map, which comes first."""
_UNSETTLED = {"global_address": (("large_allocation",), _BIT_85)}


def _rows() -> Iterator[TensorMapRow]:
    destination = Operand("destination", "destination", "address", space="global")
    source = Operand("tensor_map", "source", "address", space="shared::cta")
    size = Operand("size", kind="immediate", values=(BYTES,))
    copy = Form((destination, source, size), _SINCE, "8.3")
    scopes: tuple[Scope, ...] = ("cta", "cluster", "gpu", "sys")
    for scope in scopes:
        text = f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned"
        yield TensorMapRow(text, NAME, arithmetic="copy", operation="copy", forms=(copy,), scope=scope)
    for field, forms in FIELDS.items():
        unsettled, why = _UNSETTLED.get(field, ((), ""))
        for text, space in _SPACES.items():
            address = Operand("tensor_map", "both", "address", space=space, within=("global", "shared::cta"))
            yield TensorMapRow(
                f"tensormap.replace.tile.{field}{text}.b1024{forms[0].operands[-1].type}", NAME, arithmetic="replace",
                operation="replace", forms=tuple(replace(form, operands=(address, *form.operands)) for form in forms),
                field=field, unsettled=unsettled, why_unsettled=why,
            )  # fmt: skip
    large = Operand("large", "destination", "predicate", type=".pred")
    for text, space in _SPACES.items():  # in shared memory too ptxas 13.5.37 takes 64 bits of address alone
        address = Operand("tensor_map", "source", "address", type=".b64", space=space, within=("global", "shared::cta"))
        yield TensorMapRow(
            f"tensormap.query.alloc_class_large{text}.b1024", NAME, arithmetic="query", operation="query",
            forms=(_form(large, address, since="9.5"),), field="large_allocation",
        )  # fmt: skip
    for text, space in _PREFETCHED.items():
        address = Operand(
            "tensor_map", "source", "address", space=space, proxy="tensormap", within=MAP_SPACES, boundary=MAP_BOUNDARY
        )
        form = Form((address,), _SINCE, "8.0", "thread")
        yield TensorMapRow(
            f"prefetch{text}.tensormap", NAME, arithmetic="prefetch", operation="prefetch", forms=(form,)
        )


def rows() -> tuple[TensorMapRow, ...]:
    """Every spelling."""
    return tuple(_rows())


def lowering(row: TensorMapRow, arch: Arch) -> Lowering:
    """Replacements, queries and copies are ordinary loads, masks and stores; a prefetch is one cache control."""
    if row.operation == "prefetch":
        return Lowering("native", (), (("UTMACCTL.PF", 1),))
    return Lowering("emulated", (), (), "ordinary loads, masks and stores on the 128 bytes: tcsim.tma.bits")


_MACHINE_CODE = Evidence("literature", "the machine code that ptxas 13.5.37 emits; PTX ISA, section tensormap.replace")
_MANUAL = Evidence("literature", "PTX ISA, sections tensormap.cp_fenceproxy and prefetch")


def evidence(row: TensorMapRow, arch: Arch) -> Evidence:
    """A recording, the machine code, or the manual."""
    return RECORDED.get(arch.name, _MACHINE_CODE if row.field else _MANUAL)


_CLASSES = {"replace": TensorMapUpdate, "query": TensorMapQuery, "copy": TensorMapCopy, "prefetch": TensorMapPrefetch}
FAMILY = Family(
    NAME,
    rows,
    lowering,
    evidence,
    _CLASSES,
    "none: it edits, reads or moves the 128 bytes of a tensor map",
    ("prefetch",),
)
