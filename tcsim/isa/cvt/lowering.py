"""cvt: what each conversion becomes on each arch, and how that is known.

Sources: PTX ISA, sections cvt and cvt.pack; ptxas 12.9 and 13.5 with nvdisasm (which machine instruction
converts); cuda_fp8.hpp and cuda_fp4.hpp of CUDA 13.5 (NaN, ue8m0 and ue5m3, as NVIDIA's host code emulates them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tcsim.core.evidence import RECORDED, RTX_PRO_6000, Evidence
from tcsim.core.targets import Arch
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.cvt.rows import NAME, CvtRow, rows
from tcsim.isa.cvt.semantics import ConversionLowering, Convert, ConvertEach
from tcsim.model.family import Family
from tcsim.numbers.conversion import Conversion, nan_code

# --- opcodes --------------------------------------------------------------------------------------------------------

Opcodes = tuple[tuple[str, int], ...]
Kind = Literal["native", "split", "emulated", "cuda cores"]

_MACHINE_NAMES = {"ue8m0": "E8", "s2f6": "S2_6"}  # where the machine's name of a format is not PTX's
_DIRECTIONS = {"rne": "", "rz": ".TRUNC", "rm": ".FLOOR", "rp": ".CEIL"}


def _name(format: str) -> str:
    return _MACHINE_NAMES.get(format, format.upper())


def _packed(row: CvtRow, arch: Arch) -> Opcodes:
    """F2FP, the packed converter of Ampere and later."""
    conversion, d, a = row.conversion, row.registers["d"], row.registers["a"]
    wide = d.field_bits == 16  # f16, bf16
    plain = not (conversion.saturate or conversion.relu or conversion.positive_zero)
    if d.format.name == "tf32":
        merge = "PACK_B"
    elif wide and a.field_bits < 16:
        merge = "UNPACK_B"
    elif wide:
        merge = "PACK_AB" if d.elements == 2 or plain else "MERGE_C"
    else:
        merge = "PACK_AB_MERGE_C" if a.elements == 1 else "UNPACK_B_MERGE_C"
    ampere = arch.number < 89  # f16 and f32 go without saying
    types = (
        [_name(d.format.name), _name(a.format.name)]
        if not ampere
        else [_name(d.format.name)] * (d.format.name != "f16")
    )
    parts = ["F2FP"]
    parts += ["SATFINITE"] * conversion.saturate + ["RELU"] * conversion.relu
    parts += [*types, merge]
    parts += ["SCALE_BY_C"] * ("scale" in row.registers and row.registers["scale"].elements == 1)
    parts += ["RS"] if conversion.random_bits else [] if conversion.rounding == "rne" else [conversion.rounding.upper()]
    parts += ["PZO"] * conversion.positive_zero
    return ((".".join(parts), d.elements // 2 if d.elements == 4 else 1),)


def _turing(row: CvtRow, arch: Arch) -> Opcodes:
    """f32 to f16 before Ampere. nvdisasm does not know the word that ptxas emits for .satfinite."""
    conversion = row.conversion
    if conversion.saturate:
        return ()
    return (("HADD2", 1),) if conversion.rounding == "rz" else (("F2F.F16.F32", 1),)


def _float(row: CvtRow, arch: Arch) -> Opcodes:
    conversion = row.conversion
    direction = "" if conversion.rounding == "rne" else f".{conversion.rounding.upper()}"
    return ((f"F2F.{_name(conversion.target.name)}.{_name(conversion.source.name)}{direction}", 1),)


def _half(row: CvtRow, arch: Arch) -> Opcodes:
    return (("HADD2.F32", 1),)


def _shift(row: CvtRow, arch: Arch) -> Opcodes:
    """bf16 to f32: the 16 bits move up, by whatever instruction ptxas finds cheapest."""
    return ()


def _from_integer(row: CvtRow, arch: Arch) -> Opcodes:
    conversion = row.conversion
    source, target = conversion.source, conversion.target
    if target.name == "f32" and source.name != "s8" and arch.number > 80:
        return ((f"I2FP.F32.{'U32' if source.name == 'u8' else 'S32'}", 1),)
    kind = "" if source.bits == 32 else f".{source.name.upper()}"
    return ((f"I2F{'' if target.name == 'f32' else '.' + target.name.upper()}{kind}", 1),)


def _to_integer(row: CvtRow, arch: Arch) -> Opcodes:
    conversion = row.conversion
    source, target, direction = conversion.source, conversion.target, _DIRECTIONS[conversion.rounding]
    packed = target.name == "u8" and source.name == "f32" and conversion.rounding in ("rne", "rz") and arch.number > 80
    if packed:
        return ((f"F2IP.U8.F32{direction}.NTZ", 1),)
    of = "" if source.name == "f32" else f".{source.name.upper()}"
    to = "" if target.bits == 32 else f".{target.name.upper()}"
    return ((f"F2I{to}{of}{direction}.NTZ", 1),)


def _pack(row: CvtRow, arch: Arch) -> Opcodes:
    return ((f"I2IP.{row.conversion.target.name.upper()}.S32.SAT", 1),)


def _ties_away(row: CvtRow, arch: Arch) -> Opcodes:
    """cvt.rna: half a last place is added to the bits of a number, and the low 13 bits are cleared."""
    return (("FSETP.GEU.AND", 2 if row.conversion.saturate else 1),)


# --- lowering -------------------------------------------------------------------------------------------------------


def _canonical_nan(row: CvtRow) -> Conversion:
    """Every NaN becomes one code."""
    conversion = row.conversion
    return replace(conversion, nan=nan_code(conversion.target))


def _kept_nan(row: CvtRow) -> Conversion:
    """Sign and leading payload bits stay, and a signalling NaN becomes quiet."""
    return replace(row.conversion, nan=None)


def _float_nan(row: CvtRow) -> Conversion:
    """F2F keeps the payload of a NaN to or from f64, and of no other."""
    conversion = row.conversion
    return _kept_nan(row) if "f64" in (conversion.source.name, conversion.target.name) else _canonical_nan(row)


def _shifted_nan(row: CvtRow) -> Conversion:
    return replace(row.conversion, nan=None, quiet=False)


def _truncated_nan(row: CvtRow) -> Conversion:
    """A NaN loses its low 13 bits, which may make it an infinity; .satfinite takes NaN and infinity for too large."""
    conversion = row.conversion
    return replace(conversion, nan=None, quiet=False, nan_decrement=int(conversion.saturate))


@dataclass(frozen=True)
class _Rule:
    """What converts the rows of an arithmetic class from an arch on, up to the class's next rule."""

    arithmetic: str
    first: int  # arch number
    opcodes: Callable[[CvtRow, Arch], Opcodes]
    conversion: Callable[[CvtRow], Conversion] = _canonical_nan
    emulated: bool = False
    note: str = ""


_RULES = (
    _Rule("packed converter", 70, _turing, note="nvdisasm does not know the word for .satfinite"),
    _Rule("packed converter", 80, _packed),
    _Rule("float to float", 70, _float, _float_nan),
    _Rule("f16 to f32", 70, _half),
    _Rule("bf16 to f32", 80, _shift, _shifted_nan, True, "the bits move up by 16; no converter runs"),
    _Rule("integer to float", 70, _from_integer),
    _Rule("float to integer", 70, _to_integer),
    _Rule("integers packed", 72, _pack),
    _Rule("ties away", 80, _ties_away, _truncated_nan, True, "integer arithmetic on the bits"),
)


def lowering(row: CvtRow, arch: Arch) -> ConversionLowering:
    """The machine instructions of a row on an arch, and what they make of one element."""
    rule = [r for r in _RULES if r.arithmetic == row.arithmetic and r.first <= arch.number][-1]
    split = row.registers["d"].elements == 4
    kind: Kind = "emulated" if rule.emulated else "split" if split else "native"
    return ConversionLowering(kind, (ConvertEach(rule.conversion(row)),), rule.opcodes(row, arch), rule.note)


# --- evidence -------------------------------------------------------------------------------------------------------

_MEASURED = RECORDED["sm_90"]
_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section cvt, and the machine code that ptxas emits (nvdisasm)")
_STOCHASTIC = Evidence(
    "literature",
    f"{PTX_MANUAL}; the order of the random bits as FlashInfer (flashinfer/mamba/conversion.cuh) and torchao "
    "(nvidia_rs_bit_probe) found it on a B200",
)
_SIX_BITS = Evidence("inferred", "random bits of the fp6 formats in the order found for fp8 on a B200")
_UNREAD = Evidence("inferred", "as sm_80: nvdisasm does not show what ptxas emits for this spelling")

_ON_RTX_PRO_6000 = {
    *(f"cvt.rn.satfinite.{relu}e2m1x2.f32" for relu in ("", "relu.")),
    *(f"cvt.rn.satfinite.{type}x2.f32" for type in ("e3m2", "e2m3", "e4m3", "e5m2")),
    *(f"cvt.rn.f16x2.{type}x2" for type in ("e2m1", "e3m2", "e2m3", "e4m3", "e5m2")),
    *(f"cvt.{rounding}.satfinite.ue8m0x2.f32" for rounding in ("rz", "rp")),
    "cvt.rn.bf16x2.ue8m0x2",
}


def evidence(row: CvtRow, arch: Arch) -> Evidence:
    """How we know what `lowering` says."""
    if arch.name == "sm_90":
        return _MEASURED
    if arch.name == "sm_120" and row.mnemonic in _ON_RTX_PRO_6000:
        return RTX_PRO_6000
    if row.random:
        return _SIX_BITS if row.conversion.target.bits == 6 else _STOCHASTIC
    if arch.number <= 75 and row.conversion.saturate and row.arithmetic == "packed converter":
        return _UNREAD
    return _MANUAL


FAMILY = Family(NAME, rows, lowering, evidence, Convert)
