"""The C++ of the campaign over conversions: each row's formats and rounding as constants, and its kernel beside the instruction.

The same text is compiled by NVRTC for a GPU and by a C++ compiler. Kernels count as those of the special functions do
(conformance/special/source.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.special.source import HEAD, INPUTS, KERNEL, REGISTERS, SHOWN, mixed
from tcsim import catalog
from tcsim.catalog import instruction
from tcsim.isa.cvt.registers import Packed, registers_of
from tcsim.isa.cvt.rows import CvtRow
from tcsim.numbers.conversion import Conversion
from tcsim.numbers.formats import Format

ARCH, TARGET = "sm_90", "sm_90a"
CONVERT = Path(__file__).parent / "convert.cuh"
SPREAD = 0x9E3779B1
"""An odd number: i times it, modulo 2**32, is every code once, and the first few lie everywhere."""
_DOMAINS = f"""\
// Inputs of number i: every code of a register once, or of one of two registers, the other of random bits.
FN u32 spread(u64 i) {{ return (u32)i * {SPREAD:#x}u; }}
FN void every_8(u64 i, u64 seed, u64 *a, u64 *b) {{ *a = i & 0xFF, *b = 0; }}
FN void every_16(u64 i, u64 seed, u64 *a, u64 *b) {{ *a = i & 0xFFFF, *b = 0; }}
FN void every_32(u64 i, u64 seed, u64 *a, u64 *b) {{ *a = spread(i), *b = 0; }}
FN void every_64(u64 i, u64 seed, u64 *a, u64 *b) {{ *a = (u64)spread(i) << 32 | (mixed(i ^ seed << 40) & 0xFFFFFFFFull), *b = 0; }}
FN void every_a(u64 i, u64 seed, u64 *a, u64 *b) {{ *a = spread(i), *b = (u32)mixed(i ^ seed << 40); }}
FN void every_b(u64 i, u64 seed, u64 *a, u64 *b) {{ *a = (u32)mixed(i ^ seed << 40), *b = spread(i); }}
"""


@cache
def chosen() -> Mapping[str, CvtRow]:
    """The conversions of the arch from or to a float format, by mnemonic."""
    found: dict[str, CvtRow] = {}
    for mnemonic, row in catalog.rows().items():
        if isinstance(row, CvtRow) and not row.dropped and TARGET in row.targets:
            conversion = conversion_of(row)
            if "float" in (conversion.source.kind, conversion.target.kind):
                found[mnemonic] = row
    return found


def conversion_of(row: CvtRow) -> Conversion:
    """What becomes of one element on the arch."""
    found: Conversion = instruction(row.mnemonic, arch=ARCH).lowering.conversion  # type: ignore[attr-defined]
    return found


def sources(row: CvtRow) -> list[Packed]:
    """The registers that are converted, in PTX's order."""
    return [register for name, register in registers_of(row.forms[0]).items() if name != "d"]


def domains_of(row: CvtRow) -> tuple[str, ...]:
    """Which inputs a row gets."""
    own = sources(row)
    return ("every_a", "every_b") if len(own) == 2 else (f"every_{8 * own[0].dtype.itemsize}",)


def inputs_of(domain: str) -> int:
    """How many a domain has."""
    return {"every_8": 1 << 8, "every_16": 1 << 16}.get(domain, 1 << 32)


def operands(domain: str, first: int, count: int, seed: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Inputs first to first + count - 1 in NumPy, as the kernels make them.

    >>> [hex(int(one[0])) for one in operands("every_b", 3, 1, 1)]
    ['0x97775b8b', '0xdaa66d13']
    """
    low = np.uint64(0xFFFFFFFF)
    with np.errstate(over="ignore"):
        i = np.arange(first, first + count, dtype=np.uint64)
        random, spread = mixed(i ^ np.uint64(seed << 40)) & low, i * np.uint64(SPREAD) & low
    nothing = np.zeros_like(i)
    return {
        "every_8": (i & np.uint64(0xFF), nothing),
        "every_16": (i & np.uint64(0xFFFF), nothing),
        "every_32": (spread, nothing),
        "every_64": (spread << np.uint64(32) | random, nothing),
        "every_a": (spread, random),
        "every_b": (random, spread),
    }[domain]


def expected(row: CvtRow, domain: str, first: int, count: int, seed: int) -> npt.NDArray[np.uint64]:
    """The model's results for some inputs."""
    given = operands(domain, first, count, seed)
    arrays: dict[str, Any] = {
        register.name: codes.astype(register.dtype) for register, codes in zip(sources(row), given, strict=False)
    }
    return np.asarray(instruction(row.mnemonic, arch=ARCH).execute(**arrays)).astype(np.uint64)


def kernel_of(row: CvtRow, domain: str) -> str:
    """The kernel's name, without what it begins with."""
    return f"{row.mnemonic.replace('.', '_')}_{domain}"


def _format_text(name: str, own: Format) -> str:
    float_ = own.kind == "float"
    constants = {
        "FLOAT": int(float_), "BITS": own.bits, "SIGNED": int(own.signed), "EXPONENT_BITS": own.exponent_bits,
        "FRACTION_BITS": own.fraction_bits, "BIAS": own.bias, "SIGN_SHIFT": own.sign_shift,
        "IGNORED_LOW_BITS": own.ignored_low_bits, "HAS_INFINITY": int(float_ and own.infinity),
        "HAS_NAN": int(own.nan != "none"),
    }  # fmt: skip
    listed = ", ".join(f"{key} = {value}" for key, value in constants.items())
    largest = own.largest_code if float_ else 0
    return f"struct {name} {{ enum {{ {listed} }}; static constexpr u64 LARGEST = {largest}ull; }};\n"


def _conversion_text(name: str, own: Conversion, direction: str) -> str:
    constants = {
        "DIRECTION": direction.upper(), "SATURATE": int(own.saturate), "RELU": int(own.relu), "KEEPS_NAN": int(own.nan is None),
        "QUIET": int(own.quiet), "NAN_LESS": own.nan_decrement,
    }  # fmt: skip
    listed = ", ".join(f"{key} = {value}" for key, value in constants.items())
    types = f"typedef of_{own.source.name} Source; typedef of_{own.target.name} Target;"
    return f"struct {name} {{ {types} enum {{ {listed} }}; static constexpr u64 NAN_BECOMES = {own.nan or 0}ull; }};\n"


def _shifts(register: Packed) -> list[int]:
    """How far each element stands above the lowest bit, the highest first."""
    return [register.field_bits * place for place in reversed(range(register.elements))]


def _steps(row: CvtRow, name: str) -> Iterator[str]:
    conversion, d = conversion_of(row), registers_of(row.forms[0])["d"]
    source = conversion.source
    mask = (1 << (source.bits + source.ignored_low_bits)) - 1
    taken = [(register.name, shift) for register in sources(row) for shift in _shifts(register)]
    for (register, shift), to in zip(taken, _shifts(d), strict=True):
        yield f"d |= converted<{name}>(({register}_ >> {shift}) & {mask:#x}ull) << {to};"
    target = conversion.target
    if d.elements == 1 and target.kind == "integer" and target.signed:  # the register has its sign in all bits above
        top = 1 << (target.bits - 1)
        yield f"d = ((d ^ {top:#x}u) - {top:#x}u) & {(1 << 8 * d.dtype.itemsize) - 1:#x}ull;"


def _asm(row: CvtRow) -> Iterator[str]:
    form = row.forms[0]
    d, names = registers_of(form)["d"], {"d": "%0"}
    before, arguments = "", []
    type, constraint, _, given = REGISTERS[d.type[1:]]
    for place, register in enumerate(sources(row), 1):
        narrow = register.type == ".b8"  # no register of inline assembly: its low half
        _, letter, taken, _ = REGISTERS["b16" if narrow else register.type[1:]]
        arguments.append(f'"{letter}"({taken.format(register.name)})')
        names[register.name] = "narrow" if narrow else f"%{place}"
        before += f".reg .b8 narrow; cvt.u8.u16 narrow, %{place}; " if narrow else ""
    yield f"{type} d;"
    statement = (
        f"{{{{ {before}{form.statement(row.mnemonic, names)} }}}}" if before else form.statement(row.mnemonic, names)
    )
    yield f'asm volatile("{statement}" : "={constraint}"(d) : {", ".join(arguments)});'
    yield f"return (u64){given.format('d')};"


def source(mnemonics: Iterable[str], direction: str = "") -> str:
    """The text for some rows. direction: another rounding than the model's: a control that must be found wrong.

    >>> "converted<cvt_rz_tf32_f32>" in source(["cvt.rz.tf32.f32"])
    True
    """
    rows = [chosen()[mnemonic] for mnemonic in mnemonics]
    conversions = {row.mnemonic.replace(".", "_"): conversion_of(row) for row in rows}
    formats = {own.name: own for one in conversions.values() for own in (one.source, one.target)}
    parts = [HEAD, CONVERT.read_text(encoding="utf-8"), INPUTS, _DOMAINS]
    parts += [_format_text(f"of_{name}", own) for name, own in formats.items()]
    parts += [_conversion_text(name, own, direction or own.rounding) for name, own in conversions.items()]
    for row, name in zip(rows, conversions, strict=True):
        steps, asm = ("\n".join(f"    {line}" for line in lines) for lines in (_steps(row, name), _asm(row)))
        parts += [
            KERNEL.format(name=kernel_of(row, domain), type="u64", steps=steps, asm=asm, domain=domain, shown=SHOWN)
            for domain in domains_of(row)
        ]
    return "".join(parts)
