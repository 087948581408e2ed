"""The C++ of an instruction: its lowering and formats, as constants and calls of the functions in hwkernels/kernels/engine_steps.cuh.

The text is compiled by NVRTC for a GPU and by a C++ compiler for tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Arithmetic, DotAdd, ScaledDotAdd, Widen
from tcsim.engines.contract import Work
from tcsim.numbers.formats import FORMATS, Format

KERNELS = Path(__file__).parent.parent / "kernels"
HEADERS = ("engine_numbers.cuh", "engine_steps.cuh", "engine_exact.cuh")
_CODES = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}
_ORDINARY = {("add", "f16"), ("add", "f32"), ("mul", "f32"), ("fma", "f32")}


class UnsupportedError(ValueError):
    """Arithmetic that the engine does not have; the text says which."""


def sources() -> dict[str, str]:
    """The headers in the tree."""
    return {name: (KERNELS / name).read_text(encoding="utf-8") for name in HEADERS}


def headers_of(work: Work) -> dict[str, str]:
    """All headers that the kernel includes."""
    return {**sources(), "formats.cuh": formats_text(), "instruction.cuh": instruction_text(work)}


def formats_text() -> str:
    """The registry's float formats as types."""
    return "#pragma once\n" + "".join(_format_text(item) for item in FORMATS.values() if item.kind == "float")


def _format_text(item: Format) -> str:
    constants = {
        "EXPONENT_BITS": item.exponent_bits,
        "FRACTION_BITS": item.fraction_bits,
        "BIAS": item.bias,
        "MINIMUM_EXPONENT": item.minimum_exponent,
        "SIGN_SHIFT": item.sign_shift,
        "IGNORED_LOW_BITS": item.ignored_low_bits,
        "SIGNED": int(item.signed),
        "HAS_ZERO": int(item.zero),
        "HAS_INFINITY": int(item.infinity),
        "NAN_CODES": ("none", "ieee", "all_ones").index(item.nan),
    }
    listed = ", ".join(f"{name} = {value}" for name, value in constants.items())
    return f"struct {item.name} {{ enum {{ {listed} }}; static constexpr u64 CANONICAL_NAN = {item.canonical_nan or 0}ull; }};\n"


def instruction_text(work: Work) -> str:
    """The types of the codes, and `instruction`: the code of one output after one instruction.

    Raises UnsupportedError for steps or formats that are not floating-point, or a unit that no registry has.
    """
    for item in (*work.formats, work.result, *filter(None, [work.scale])):
        if item.kind != "float":
            raise UnsupportedError(f"{item.name} is an integer format")
    names = dict(zip("ABCD", (*work.formats, work.result), strict=True)) | {"S": work.scale or work.formats[0]}
    lines = ["#pragma once"]
    lines += [f"typedef {_CODES[item.container_bits]} Code{name};" for name, item in names.items()]
    lines.append(
        f"enum {{ KEPT = {work.kept}, DEPTH = {work.k}, SCALES = {work.blocks}, SPARSE = {int(work.sparse)} }};"
    )
    types, body = list[str](), list[str]()
    _Writer(work, types, body).write()
    lines += types
    lines += [
        "template <class In>",
        "FN u64 instruction(const In &in, u64 c) {",
        *(f"    {line}" for line in body),
        "}",
    ]
    return "\n".join(lines) + "\n"


class _Writer:
    """The steps one after the other: which name holds which value in which format."""

    def __init__(self, work: Work, types: list[str], body: list[str]) -> None:
        self.work, self.types, self.body = work, types, body
        a, b, c = work.formats
        self.read = {"a": (a, a), "b": (b, b)}  # the format of the codes, and as what they are read
        self.values: dict[str, tuple[str, Format]] = {"c": ("c", c), "+0": ("0", FORMATS["f32"])}

    def write(self) -> None:
        for number, step in enumerate(self.work.steps):
            if isinstance(step, Widen):
                self.read = {name: (codes, FORMATS[step.format]) for name, (codes, _) in self.read.items()}
            elif isinstance(step, DotAdd):
                self._dot(step, number)
            elif isinstance(step, Arithmetic):
                self._ordinary(step, number)
            else:
                raise UnsupportedError(f"{type(step).__name__} is not floating-point arithmetic")
        name, format = self.values.get("d", ("", None))
        if format is None or format.container_bits != self.work.result.container_bits:
            raise UnsupportedError("no step writes d in its format")
        self.body.append(f"return {name};")

    def _bind(self, result: str, format: Format, expression: str, number: int) -> None:
        name = f"{result}{number}"
        self.body.append(f"const u64 {name} = {expression};")
        self.values[result] = name, format

    def _dot(self, step: DotAdd, number: int) -> None:
        c, format_c = self.values[step.addend]
        if step.addend == "+0":
            format_c = step.output
        a, b = (f"Read<{codes.name}, {as_.name}>" for codes, as_ in (self.read["a"], self.read["b"]))
        unit, places = f"Unit{number}", f"Places{number}"
        self.types += [*_unit_text(unit, step.unit), *_places_text(places, step.k)]
        common = f"{a}, {b}, {format_c.name}"
        if isinstance(step, ScaledDotAdd):
            if self.work.scale is None:
                raise UnsupportedError("a scaled step without a format of factors")
            length, scale = self.work.kept // self.work.blocks, self.work.scale.name
            call = f"scaled_dot_add<{common}, {scale}, {unit}, {places}, {length}>"
            if step.group:
                call = f"grouped_dot_add<{common}, {scale}, {unit}, {places}, {length}, {step.group}>"
        else:
            call = f"dot_add<{common}, {unit}, {places}>"
        self._bind(step.result, step.output, f"{call}(in, {c})", number)

    def _ordinary(self, step: Arithmetic, number: int) -> None:
        operands = [self._operand(name) for name in step.arguments]
        codes, formats = [code for code, _ in operands], [format for _, format in operands]
        out = FORMATS[step.format]
        if {item.name for item in formats} | {out.name} == {"f64"} and step.op == "fma" and step.nan_order == "bca":
            call = f"fma_f64<{step.rounding.upper()}>"
        elif step.rounding != "rne" or step.nan_order or any(item.name not in ("f16", "f32") for item in formats):
            raise UnsupportedError(f"{step.op} of {', '.join(item.name for item in formats)}, {step.rounding}")
        elif step.op == "convert":
            call = f"converted<{formats[0].name}, {out.name}>"
        elif (step.op, out.name) in _ORDINARY and (out.name == "f32" or {item.name for item in formats} == {"f16"}):
            call = f"{step.op}_{out.name}<{', '.join(item.name for item in formats)}>"
        else:
            raise UnsupportedError(f"{step.op} to {out.name}")
        self._bind(step.result, out, f"{call}({', '.join(codes)})", number)

    def _operand(self, name: str) -> tuple[str, Format]:
        if name[1:2] == "[":  # a[2]: the element at that place of K
            codes, as_ = self.read[name[0]]
            if codes is not as_:
                raise UnsupportedError(f"{name} widened")
            return f"in.{name[0]}({name[2:-1]})", codes
        return self.values[name]


def _unit_text(name: str, unit: Datapath) -> Iterator[str]:
    if unit.renormalise_products or unit.keep_negative_zero or unit.addend_last:
        raise UnsupportedError("a unit that renormalises products, keeps -0 or adds c last")
    output, dropped = ("f32", 10) if unit.output == "e8m13" else (unit.output, 0)
    if unit.rounding not in ("rz", "rne"):
        raise UnsupportedError(f"a unit that rounds {unit.rounding}")
    yield (
        f"struct {name} {{ enum {{ FRACTION_BITS = {unit.fraction_bits}, FLOOR = {unit.floor}, ROUNDING = {unit.rounding.upper()}, "
        f"DROPPED = {dropped}, ADDEND_SHIFT = {unit.addend_shift} }}; typedef {output} Output; }};"
    )


def _places_text(name: str, k: Iterable[int]) -> Iterator[str]:
    places = tuple(k)
    listed = ", ".join(map(str, places))
    yield f"struct {name} {{"
    yield f"    enum {{ COUNT = {len(places)} }};"
    if places == tuple(range(places[0], places[0] + len(places))):
        yield f"    FN constexpr int at(int i) {{ return i + {places[0]}; }}"
    else:
        yield f"    FN constexpr int at(int i) {{ constexpr int places[] = {{{listed}}}; return places[i]; }}"
    yield "};"
