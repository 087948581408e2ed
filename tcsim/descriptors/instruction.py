"""Instruction descriptors: the 32 bits that tell tcgen05.mma its shape, its element formats and what to do with them.

The tables of bits, formats and shapes, and their sources, are in `tcsim.descriptors.kinds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tcsim.core.arguments import integer, is_number
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError
from tcsim.descriptors import limits
from tcsim.descriptors.bit_field import Field, stray_bits
from tcsim.descriptors.kinds import KINDS, MAX_SHIFTS, Depth, Kind, fields_of

_FLAGS = ("sparse", "saturate", "negate_a", "negate_b", "transpose_a", "transpose_b")
_BITS = 32


@dataclass(frozen=True)
class InstructionDescriptor(limits.DescriptorFields, Shown):
    """One descriptor, field by field. What is left out is what the kind fixes, or 0.

    Evidence: literature (PTX ISA, tables Instruction descriptor format; CUTLASS has the same bits).

    Raises OperandError for a field that the kind does not have, or a value that it cannot have, TargetError for an arch without
    the kind or without that K.

    >>> one = tcsim.InstructionDescriptor(kind="f16", d_format="f32", a_format="f16", b_format="bf16", m=128, n=256)
    >>> hex(one.encode()), one.k
    ('0x8400410', 16)
    >>> tcsim.InstructionDescriptor.decode(0x8400410, kind="f16") == one
    True
    """

    def __post_init__(self) -> None:
        arch, kind = limits.place(self.kind, self.arch)
        set_ = object.__setattr__
        set_(self, "arch", arch)
        for name in ("d_format", "a_format", "b_format", "scale_format"):
            if not isinstance(getattr(self, name), (str, type(None))):
                raise OperandError(
                    f"kind::{self.kind} on {arch}: {name}={getattr(self, name)!r}; valid: the name of a format"
                )
        for name in _FLAGS:
            given = getattr(self, name)
            if not is_number(given, (0, 1)):
                raise OperandError(f"kind::{self.kind} on {arch}: {name}={given!r}; valid: False, True")
            set_(self, name, bool(given))
        for name in ("m", "n", "k", "sparsity_selector", "max_shift", "scale_a_id", "scale_b_id", "scale_a_lanes"):
            set_(self, name, integer(getattr(self, name), f"kind::{self.kind} on {arch}: {name}"))
        set_(self, "d_format", self.d_format or ("f32" if "f32" in kind.d_formats else next(iter(kind.d_formats))))
        only = next(iter(kind.ab_formats)) if len(kind.ab_formats) == 1 else ""
        set_(self, "a_format", self.a_format or only)
        set_(self, "b_format", self.b_format or self.a_format)
        formats = kind.scale_formats_on(arch)
        set_(self, "scale_format", self.scale_format or (next(iter(formats)) if len(formats) == 1 else ""))
        depths = [depth.k for depth in kind.depths_on(arch, self.sparse)]
        set_(self, "k", self.k or depths[0])
        limits.check_fields(self, depths)

    @staticmethod
    def decode(value: int, kind: str = "", arch: str = "sm_100") -> InstructionDescriptor:
        """Take a 32-bit descriptor apart; the kind comes from the mnemonic, as the bits do not say it.

        Raises OperandError without a kind or for anything but an integer, if a field has no meaning, or bits that must be 0 are set; TargetError for an arch without the
        kind.
        """
        name, row = limits.place(kind, arch)
        value = integer(value, "InstructionDescriptor.decode: value")
        table = fields_of(row, name)
        known = sum(one.mask for one in table)
        if not 0 <= value < 1 << _BITS or value & ~known:
            stray = "; ".join(stray_bits(value & ~known & (1 << _BITS) - 1, table)) or f"it has {_BITS} bits;"
            raise OperandError(
                f"instruction descriptor {value:#x}: bits {value & ~known:#x} must be 0 in kind::{kind} on {name}: {stray.rstrip(',;')}"
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
        return [f"bits {place:<6} {name:<20} {shown:<10} {meaning}" for place, name, shown, meaning in self.rows()]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The lines of `describe` as (bits, name, value, meaning).

        >>> tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=64).rows()[3][:3]
        ('5:4', 'd_format', 'f32')
        """
        found = []
        for one in with_reserved(self._fields):
            if one.name == "reserved":
                shown = "0"
            elif one.name == "k":
                shown = str(self.k)
            else:
                given = getattr(self, one.name, self._number(one))
                shown = str(int(given)) if isinstance(given, bool) else str(given)
            found.append((one.place, one.name, shown, one.meaning))
        return found

    def check(
        self,
        *,
        cta_group: int = 1,
        ws: bool = False,
        sparse: bool | None = None,
        block: int = 0,
        a_in_tmem: bool | None = None,
    ) -> None:
        """Whether an instruction with these qualifiers can take this descriptor.

        `sparse` is whether the mnemonic has `.sp` (None: not asked), `block` how many elements one scale factor covers (16
        or 32; 0: not asked), `a_in_tmem` whether A is in Tensor Memory, where N goes in longer steps (None: not asked).
        Source: PTX ISA, tables of shapes and of scale vector sizes; CUTLASS's atoms.

        Raises OperandError that says what does not fit and what would.

        >>> tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=24).check(cta_group=2)
        Traceback (most recent call last):
        tcsim.core.errors.OperandError: kind::f16 with cta_group::2: M = 64 cannot be; valid: 128, 256
        >>> tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=24).check(a_in_tmem=True)
        Traceback (most recent call last):
        tcsim.core.errors.OperandError: kind::f16 with cta_group::1: N = 24 with M = 128 and A in Tensor Memory must be a multiple of 16 from 16 to 256
        """
        limits.check_form(self, cta_group, ws, sparse, block, a_in_tmem)

    def check_mnemonic(self, mnemonic: str) -> None:
        """Whether the descriptor and a mnemonic agree: kind, sparsity, and everything that `check` looks at.

        Raises OperandError, naming both sides, if they do not; for a mnemonic that is not a tcgen05.mma too.

        >>> one = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=64)
        >>> one.check_mnemonic("tcgen05.mma.cta_group::1.kind::tf32")
        Traceback (most recent call last):
        tcsim.core.errors.OperandError: tcgen05.mma.cta_group::1.kind::tf32: the descriptor was made for kind::f16; its bits mean something else in kind::tf32
        """
        limits.check_mnemonic(self, mnemonic)

    def scale_vectors(self, block: int) -> int:
        """Scale factors of one row of A, or one column of B, if each covers `block` elements (of a sparse A, kept ones).

        >>> tcsim.InstructionDescriptor(kind="mxf4", m=128, n=64).scale_vectors(32)
        2
        """
        limits.check_block(self, block)
        return self.k // (2 if self.sparse else 1) // block

    @property
    def _fields(self) -> tuple[Field, ...]:
        return fields_of(KINDS[self.kind], self.arch)

    def _number(self, one: Field) -> int:
        """What a field holds, in its unit's terms."""
        if one.name == "k":
            return self.depth.code & 1
        if one.name == "k_high":
            return self.depth.code & 2
        if one.name == "sparsity_version":
            return 1
        if one.name == "scale_a_lanes":
            return int(self.scale_a_lanes == 128)
        value = getattr(self, one.name)
        names = _names(KINDS[self.kind], one.name, self.arch)
        return int(value if names is None else names[value])


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
    rows = bit_rows(kind, arch)
    return [f"bits {place:<6} {name:<20} {values:<40} {meaning}".rstrip() for place, name, values, meaning in rows]


def bit_rows(kind: str, arch: str = "sm_100") -> list[tuple[str, str, str, str]]:
    """The lines of `bit_table` as (bits, name, values, meaning)."""
    name, row = limits.place(kind, arch)
    found = []
    for one in with_reserved(fields_of(row, name)):
        names = _names(row, one.name, name)
        if one.name == "k":
            values = ", ".join(f"{'sparse ' if d.sparse else ''}{d.k}={d.code}" for d in row.depths_on(name))
        elif names is not None:
            values = _listed(names)
        else:
            values = _numbers(row, one)
        found.append((one.place, one.name, values, one.meaning))
    return found


def _numbers(kind: Kind, field: Field) -> str:
    """The numbers that a field without names may hold."""
    flags = {
        "sparse": True, "saturate": kind.saturate, "negate_a": kind.negate, "negate_b": kind.negate,
        "transpose_a": bool(kind.transposable), "transpose_b": bool(kind.transposable), "scale_a_lanes": True,
    }  # fmt: skip
    if field.name in flags:
        return "0, 1" if flags[field.name] else "0"
    ids = "0, 2 (K = 96: 0 to 3)" if kind.table == "mxf4" else "0 to 3"
    rest = {
        "n": "N >> 3", "m": f"M >> {field.unit.bit_length() - 1}", "reserved": "0", "scale_a_id": ids, "scale_b_id": ids,
        "sparsity_selector": ", ".join(map(str, kind.selectors)), "sparsity_version": "1", "k_high": "0, 1",
    }  # fmt: skip
    return rest[field.name]


def _listed(names: Mapping[str, int] | Mapping[int, int]) -> str:
    return ", ".join(f"{word}={code}" for word, code in names.items())


def _names(kind: Kind, field: str, arch: str) -> Mapping[str, int] | Mapping[int, int] | None:
    """What the codes of a field are called; None if it holds a plain number."""
    if field in ("a_format", "b_format"):
        return kind.ab_formats
    if field == "d_format":
        return kind.d_formats
    if field == "scale_format":
        return kind.scale_formats_on(arch)
    if field == "max_shift":
        return {shift: code for code, shift in enumerate(MAX_SHIFTS)}
    return None


def _depth_of(kind: Kind, sparse: bool, code: int, arch: str, value: int) -> Depth:
    choices = kind.depths_on(arch, sparse)
    for one in choices:
        if one.code == code:
            return one
    density = "sparse" if sparse else "dense"
    valid = ", ".join(f"{one.code} (K = {one.k})" for one in choices)
    raise OperandError(
        f"instruction descriptor {value:#x}: the code of K is {code}; valid for a {density} kind::{kind.name} on {arch}: {valid}"
    )
