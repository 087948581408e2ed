"""Instruction descriptors: the 32 bits that tell tcgen05.mma its shape, its element formats and what to do with them.

The tables of bits, formats and shapes, and their sources, are in `tcsim.instruction_kinds`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tcsim.bit_field import Field
from tcsim.errors import OperandError, TargetError, listing, nearest
from tcsim.instruction_kinds import (
    KINDS,
    MAX_SHIFTS,
    RUBIN_SCALE_VECTORS,
    SCALE_VECTORS,
    TENSOR_ARCHS,
    Depth,
    Kind,
    fields_of,
    shapes_of,
)
from tcsim.targets import accepting

_FLAGS = ("sparse", "saturate", "negate_a", "negate_b", "transpose_a", "transpose_b")
_BITS = 32


@dataclass(frozen=True)
class InstructionDescriptor:
    """One descriptor, field by field. What is left out is what the kind fixes, or 0.

    Evidence: literature (PTX ISA, tables Instruction descriptor format; CUTLASS has the same bits).

    Raises OperandError for a field that the kind has not, or a value that it cannot have, TargetError for an arch without
    the kind or without that K.

    >>> one = tcsim.InstructionDescriptor(kind="f16", d_format="f32", a_format="f16", b_format="bf16", m=128, n=256)
    >>> hex(one.encode()), one.k
    ('0x8400410', 16)
    >>> tcsim.InstructionDescriptor.decode(0x8400410, kind="f16") == one
    True
    """

    kind: str
    m: int  # rows of A and D; of both CTAs together for cta_group::2
    n: int  # columns of B and D
    d_format: str = ""  # "" is the kind's only one, or f32
    a_format: str = ""  # "" is the kind's only one
    b_format: str = ""  # "" is that of A
    sparse: bool = False
    sparsity_selector: int = 0  # which half of the metadata's columns
    saturate: bool = False
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False  # M-major
    transpose_b: bool = False  # N-major
    max_shift: int = 0  # 0, 8, 16 or 32 (.ws)
    scale_format: str = ""  # "" is the kind's only one
    scale_a_id: int = 0  # first byte of A's scale factors in the words of TMEM
    scale_b_id: int = 0  # first byte of B's
    scale_a_lanes: int = 32  # 128 on sm_107 only
    k: int = 0  # elements along K of one instruction, zeros of a sparse A included; 0 is the smallest of the kind
    arch: str = "sm_100"  # whose bits and limits

    def __post_init__(self) -> None:
        arch, kind = _place(self.kind, self.arch)
        set_ = object.__setattr__
        set_(self, "arch", arch)
        for name in _FLAGS:
            set_(self, name, bool(getattr(self, name)))
        set_(self, "d_format", self.d_format or ("f32" if "f32" in kind.d_formats else next(iter(kind.d_formats))))
        only = next(iter(kind.ab_formats)) if len(kind.ab_formats) == 1 else ""
        set_(self, "a_format", self.a_format or only)
        set_(self, "b_format", self.b_format or self.a_format)
        formats = _scale_formats(kind, arch)
        set_(self, "scale_format", self.scale_format or (next(iter(formats)) if len(formats) == 1 else ""))
        depths = [depth.k for depth in kind.depths if depth.sparse == self.sparse and arch in depth.archs]
        set_(self, "k", self.k or depths[0])
        self._check_formats(kind)
        self._check_flags(kind)
        self._check_scales(kind)
        self._check_depth(kind, depths)
        self._check_shape(kind)

    @staticmethod
    def decode(value: int, kind: str, arch: str = "sm_100") -> InstructionDescriptor:
        """Take a 32-bit descriptor apart; the kind comes from the mnemonic.

        Raises OperandError if a field has no meaning, or bits that must be 0 are set; TargetError for an arch without the
        kind.
        """
        name, row = _place(kind, arch)
        value = int(value)
        table = fields_of(row, name)
        known = sum(one.mask for one in table)
        if not 0 <= value < 1 << _BITS or value & ~known:
            raise OperandError(
                f"instruction descriptor {value:#x}: bits {value & ~known:#x} must be 0 in kind::{kind} on {name}"
            )
        numbers = {one.name: one.take(value) for one in table}
        parts: dict[str, object] = {}
        for one in table:
            names = _names(row, one.name, name)
            number = numbers[one.name]
            if names is None:
                parts[one.name] = number
                continue
            found = [word for word, code in names.items() if code == number]
            if not found:
                raise OperandError(
                    f"instruction descriptor {value:#x}: {one.name}={number} (bits {one.place}) means nothing in "
                    f"kind::{kind}; valid: {_listed(names)}"
                )
            parts[one.name] = found[0]
        if "scale_a_lanes" in parts:
            parts["scale_a_lanes"] = 128 if parts["scale_a_lanes"] else 32
        version = parts.pop("sparsity_version", None)
        if version == 0:
            raise OperandError(
                f"instruction descriptor {value:#x}: bit 12, the version of sparsity, must be 1 on {name}"
            )
        code = numbers.get("k", 0) + numbers.get("k_high", 0)
        parts.pop("k_high", None)
        parts["k"] = _depth_of(row, bool(numbers["sparse"]), code, name, value).k
        return InstructionDescriptor(kind=kind, arch=name, **parts)  # type: ignore[arg-type]

    def encode(self) -> int:
        """The 32-bit descriptor."""
        return sum(one.put(self._number(one)) for one in self._fields)

    def describe(self) -> list[str]:
        """One line a field: bits, name, value, meaning; reserved bits included.

        >>> one = tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=64, scale_format="ue4m3")
        >>> print(*one.describe()[:4], sep="\\n")
        bits 1:0    reserved             0          must be 0
        bits 2      sparse               0          0: dense A; 1: structured sparse A with metadata in TMEM
        bits 3      reserved             0          must be 0
        bits 5:4    scale_b_id           0          byte of the TMEM words at which B's scale factors begin
        """
        lines = []
        for one in with_reserved(self._fields):
            if one.name == "reserved":
                shown = "0"
            elif one.name == "k":
                shown = str(self.k)
            else:
                given = getattr(self, one.name, self._number(one))
                shown = str(int(given)) if isinstance(given, bool) else str(given)
            lines.append(f"bits {one.place:<6} {one.name:<20} {shown:<10} {one.meaning}")
        return lines

    def check(self, *, cta_group: int = 1, ws: bool = False, sparse: bool | None = None, block: int = 0) -> None:
        """Whether an instruction with these qualifiers can take this descriptor.

        `sparse` is whether the mnemonic has `.sp` (None: not asked), `block` how many elements one scale factor covers (16
        or 32; 0: not asked). Source: PTX ISA, tables of shapes and of scale vector sizes.

        Raises OperandError that says what does not fit and what would.

        >>> tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=24).check(cta_group=2)
        Traceback (most recent call last):
        tcsim.errors.OperandError: kind::f16 with cta_group::2: M = 64 cannot be; valid: 128, 256
        """
        row = KINDS[self.kind]
        form = f"kind::{self.kind} with cta_group::{cta_group}{' and .ws' if ws else ''}{' and .sp' if self.sparse else ''}"
        if cta_group not in (1, 2):
            raise OperandError(f"{form}: no such cta_group; valid: 1, 2")
        if sparse is not None and sparse != self.sparse:
            raise OperandError(
                f"the mnemonic is {'sparse (.sp)' if sparse else 'dense'}, the descriptor's sparse bit (bit 2) is "
                f"{int(self.sparse)}"
            )
        shapes = shapes_of(self.kind, cta_group, ws, self.sparse)
        if not shapes:
            raise OperandError(f"{form}: there is no such instruction; valid: {_forms(row)}")
        fitting = [shape for shape in shapes if self.m in shape.m]
        if not fitting:
            valid = sorted({m for shape in shapes for m in shape.m})
            raise OperandError(f"{form}: M = {self.m} cannot be; valid: {listing(valid)}")
        if not any(self.n in shape.n for shape in fitting):
            raise OperandError(f"{form}: N = {self.n} with M = {self.m} must be {fitting[0].rule}")
        if self.max_shift and not ws:
            raise OperandError(f"{form}: max_shift={self.max_shift} is for .ws only; valid: 0")
        self._check_steps(form, cta_group, ws)
        if block:
            self._check_block(row, block)

    def check_mnemonic(self, mnemonic: str) -> None:
        """Whether the descriptor and a mnemonic agree: kind, sparsity, and everything that `check` looks at.

        Raises OperandError, naming both sides, if they do not; for a mnemonic that is no tcgen05.mma too.

        >>> one = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=64)
        >>> one.check_mnemonic("tcgen05.mma.cta_group::1.kind::tf32")
        Traceback (most recent call last):
        tcsim.errors.OperandError: tcgen05.mma.cta_group::1.kind::tf32: the descriptor was made for kind::f16; its bits mean something else in kind::tf32
        """
        words = mnemonic.split(" ")[0].split(".")
        kind = re.search(r"kind::(\w+)", mnemonic)
        group = re.search(r"cta_group::(\d)", mnemonic)
        if words[:2] != ["tcgen05", "mma"] or kind is None or group is None:
            raise OperandError(f"{mnemonic!r} is no tcgen05.mma with a kind and a cta_group")
        if kind[1] != self.kind:
            raise OperandError(
                f"{mnemonic}: the descriptor was made for kind::{self.kind}; its bits mean something else in kind::{kind[1]}"
            )
        try:
            self.check(
                cta_group=int(group[1]), ws="ws" in words, sparse="sp" in words, block=_block(self.kind, mnemonic)
            )
        except OperandError as error:
            raise OperandError(f"{mnemonic}: {error}") from None

    def scale_vectors(self, block: int) -> int:
        """Scale factors of one row of A, or one column of B, if each covers `block` elements (of a sparse A, kept ones).

        >>> tcsim.InstructionDescriptor(kind="mxf4", m=128, n=64).scale_vectors(32)
        2
        """
        self._check_block(KINDS[self.kind], block)
        return self.k // (2 if self.sparse else 1) // block

    @property
    def _fields(self) -> tuple[Field, ...]:
        return fields_of(KINDS[self.kind], self.arch)

    @property
    def _depth(self) -> Depth:
        return next(one for one in KINDS[self.kind].depths if (one.k, one.sparse) == (self.k, self.sparse))

    def _number(self, one: Field) -> int:
        """What a field holds, in its unit's terms."""
        if one.name == "k":
            return self._depth.code & 1
        if one.name == "k_high":
            return self._depth.code & 2
        if one.name == "sparsity_version":
            return 1
        if one.name == "scale_a_lanes":
            return int(self.scale_a_lanes == 128)
        value = getattr(self, one.name)
        names = _names(KINDS[self.kind], one.name, self.arch)
        return int(value if names is None else names[value])

    def _refuse(self, name: str, valid: object, why: str = "") -> OperandError:
        given = getattr(self, name)
        text = f"kind::{self.kind} on {self.arch}: {name}={given!r}{': ' + why if why else ''}; valid: {valid}"
        return OperandError(text)

    def _check_formats(self, kind: Kind) -> None:
        for name, formats in (
            ("d_format", kind.d_formats),
            ("a_format", kind.ab_formats),
            ("b_format", kind.ab_formats),
        ):
            if getattr(self, name) not in formats:
                raise self._refuse(name, listing(formats))
        if self.kind == "f16" and self.d_format == "f16" and {self.a_format, self.b_format} != {"f16"}:
            raise self._refuse("d_format", "f32", "an f16 result needs f16 A and B")

    def _check_flags(self, kind: Kind) -> None:
        for side in "ab":
            if getattr(self, f"negate_{side}") and not kind.negate:
                raise self._refuse(f"negate_{side}", "False", "only floating-point A and B can be negated")
            format = getattr(self, f"{side}_format")
            if getattr(self, f"transpose_{side}") and format not in kind.transposable:
                can = listing(sorted(kind.transposable)) or "none"
                why = kind.note or f"{format} cannot be MN-major (formats that can: {can})"
                raise self._refuse(f"transpose_{side}", "False", why)
        if self.saturate and not kind.saturate:
            raise self._refuse("saturate", "False", "only integer kinds saturate")
        if not self.sparse and self.sparsity_selector:
            raise self._refuse("sparsity_selector", "0", "A is dense")
        if self.sparsity_selector not in kind.selectors:
            raise self._refuse("sparsity_selector", listing(kind.selectors))
        if self.max_shift not in MAX_SHIFTS:
            raise self._refuse("max_shift", listing(MAX_SHIFTS))
        if self.max_shift and not kind.ws:
            raise self._refuse("max_shift", "0", "the kind has no .ws")

    def _check_scales(self, kind: Kind) -> None:
        if not kind.block_scaled:
            for name, plain in (("scale_format", ""), ("scale_a_id", 0), ("scale_b_id", 0), ("scale_a_lanes", 32)):
                if getattr(self, name) != plain:
                    raise self._refuse(name, repr(plain), "the kind has no scale factors")
            return
        formats = _scale_formats(kind, self.arch)
        if self.scale_format not in formats:
            raise self._refuse("scale_format", listing(formats))
        pairs = kind.table == "mxf4" and self.k != 96
        ids = (0, 2) if pairs else (0, 1, 2, 3)
        for name in ("scale_a_id", "scale_b_id"):
            if getattr(self, name) not in ids:
                raise self._refuse(name, listing(ids), "it selects half words" if pairs else "it selects bytes")
        if self.scale_a_lanes not in ((32, 128) if self.arch == "sm_107" else (32,)):
            raise self._refuse("scale_a_lanes", "32, and 128 on sm_107")

    def _check_depth(self, kind: Kind, depths: list[int]) -> None:
        if self.k in depths:
            return
        elsewhere = [one for one in kind.depths if (one.k, one.sparse) == (self.k, self.sparse)]
        density = "sparse" if self.sparse else "dense"
        if elsewhere:
            raise TargetError(
                f"kind::{self.kind}: {density} K = {self.k} needs {listing(elsewhere[0].archs)}; {self.arch} has {listing(depths)}"
            )
        raise self._refuse("k", listing(depths), f"K of a {density} instruction")

    def _check_shape(self, kind: Kind) -> None:
        """M and N that no form of the instruction has; `check` asks for the one form."""
        rows = [
            row
            for cta_group, ws in ((1, False), (2, False), (1, True))
            for row in shapes_of(self.kind, cta_group, ws, self.sparse)
        ]
        fitting = [row for row in rows if self.m in row.m]
        if not fitting:
            valid = sorted({m for row in rows for m in row.m})
            raise OperandError(f"kind::{self.kind}: M = {self.m} cannot be; valid: {listing(valid)}")
        if not any(self.n in row.n for row in fitting):
            rules = [f"{row.rule} (cta_group::{row.cta_group}{', .ws' if row.ws else ''})" for row in fitting]
            raise OperandError(
                f"kind::{self.kind}: N = {self.n} with M = {self.m} must be {', or '.join(dict.fromkeys(rules))}"
            )

    def _check_steps(self, form: str, cta_group: int, ws: bool) -> None:
        """Rules of N and M that hang on more than the kind."""
        eight = {"e4m3", "e5m2", "s8", "u8"}
        if self.transpose_b and self.b_format in eight and not ws and self.n % (16 * cta_group):
            raise OperandError(
                f"{form}: N = {self.n} with an N-major {self.b_format} B must be a multiple of {16 * cta_group}"
            )
        if self._depth.code and self.m != 128 * cta_group:
            raise OperandError(f"{form}: M = {self.m} with K = {self.k} must be {128 * cta_group}")
        if self.k == 96 and self.n % 16:
            raise OperandError(f"{form}: N = {self.n} with K = 96 must be a multiple of 16")

    def _check_block(self, kind: Kind, block: int) -> None:
        vectors = (RUBIN_SCALE_VECTORS if self.arch == "sm_107" else SCALE_VECTORS).get(self.kind, {})
        if block not in vectors:
            raise OperandError(
                f"kind::{self.kind} has no scale factors of {block} elements; valid: {listing(vectors) or 'none'}"
            )
        if self.scale_format not in vectors[block]:
            raise OperandError(
                f"kind::{self.kind} with scale factors of {block} elements: the descriptor's scale_format={self.scale_format!r} "
                f"cannot be; valid: {listing(vectors[block])}"
            )
        ids = {(16, 64): (0,), (16, 128): (0,), (16, 96): (0, 2)}.get((block, self.k))
        for name in ("scale_a_id", "scale_b_id"):
            if ids is not None and getattr(self, name) not in ids:
                raise self._refuse(name, listing(ids), f"K = {self.k} with scale factors of 16 elements")


def with_reserved(table: tuple[Field, ...]) -> list[Field]:
    """The fields, lowest bit first, with the bits between them as fields named `reserved`."""
    whole, next_bit = [], 0
    for one in (*table, Field("", _BITS, 0, 1, "")):
        if one.low > next_bit:
            whole.append(Field("reserved", next_bit, one.low - next_bit, 1, "must be 0"))
        if one.bits:
            whole.append(one)
        next_bit = one.low + one.bits
    return whole


def bit_table(kind: str, arch: str = "sm_100") -> list[str]:
    """The bits of a kind's descriptor, one line a field: bits, name, values, meaning.

    >>> print(bit_table("i8")[3])
    bits 5:4    d_format             s32=2                                    element format of D
    """
    name, row = _place(kind, arch)
    lines = []
    for one in with_reserved(fields_of(row, name)):
        names = _names(row, one.name, name)
        if one.name == "k":
            values = ", ".join(f"{'sparse ' if d.sparse else ''}{d.k}={d.code}" for d in row.depths if name in d.archs)
        elif names is not None:
            values = _listed(names)
        else:
            values = {"n": "N >> 3", "m": f"M >> {one.unit.bit_length() - 1}", "reserved": "0"}.get(one.name, "")
        lines.append(f"bits {one.place:<6} {one.name:<20} {values:<40} {one.meaning}".rstrip())
    return lines


def _listed(names: Mapping[str, int] | Mapping[int, int]) -> str:
    return ", ".join(f"{word}={code}" for word, code in names.items())


def _place(kind: str, arch: str) -> tuple[str, Kind]:
    """The arch and the row of a kind."""
    chip, _ = accepting(arch)
    if kind not in KINDS:
        close = nearest(str(kind), KINDS, 1)
        raise OperandError(f"no kind::{kind}; nearest: {close[0]}; all: {listing(KINDS)}")
    row = KINDS[kind]
    if chip.name not in row.archs:
        has = listing(one for one, other in KINDS.items() if chip.name in other.archs)
        where = f"{arch} has {has}" if has else f"tcgen05 is on {listing(TENSOR_ARCHS)}"
        raise TargetError(f"kind::{kind} needs {listing(row.archs)}; {where}")
    return chip.name, row


def _scale_formats(kind: Kind, arch: str) -> Mapping[str, int]:
    if arch == "sm_107":
        return kind.scale_formats
    return {name: code for name, code in kind.scale_formats.items() if name != "ue5m3"}


def _names(kind: Kind, field: str, arch: str) -> Mapping[str, int] | Mapping[int, int] | None:
    """What the codes of a field are called; None if it holds a plain number."""
    if field in ("a_format", "b_format"):
        return kind.ab_formats
    if field == "d_format":
        return kind.d_formats
    if field == "scale_format":
        return _scale_formats(kind, arch)
    if field == "max_shift":
        return {shift: code for code, shift in enumerate(MAX_SHIFTS)}
    return None


def _depth_of(kind: Kind, sparse: bool, code: int, arch: str, value: int) -> Depth:
    choices = [one for one in kind.depths if one.sparse == sparse and arch in one.archs]
    for one in choices:
        if one.code == code:
            return one
    density = "sparse" if sparse else "dense"
    valid = ", ".join(f"{one.code} (K = {one.k})" for one in choices)
    raise OperandError(
        f"instruction descriptor {value:#x}: the code of K is {code}; valid for a {density} kind::{kind.name} on {arch}: {valid}"
    )


def _forms(kind: Kind) -> str:
    return "cta_group::1 and ::2 without .ws" + (", cta_group::1 with .ws" if kind.ws else "")


def _block(kind: str, mnemonic: str) -> int:
    """Elements of a scale factor by the mnemonic's qualifier; 0 for a kind without."""
    if not KINDS[kind].block_scaled:
        return 0
    named = re.search(r"\.block(16|32)\b", mnemonic)
    if named:
        return int(named[1])
    vector = re.search(r"scale_vec::(\dX)", mnemonic)
    words = {"mxf8f6f4": {"1X": 32}, "mxf4": {"2X": 32}, "mxf4nvf4": {"2X": 32, "4X": 16}}[kind]
    if vector is None:
        if len(words) > 1:
            raise OperandError(f"kind::{kind} needs .block16, .block32, .scale_vec::2X or .scale_vec::4X")
        return 32
    if vector[1] not in words:
        raise OperandError(f"kind::{kind} has no .scale_vec::{vector[1]}; valid: {listing(words)}")
    return words[vector[1]]
