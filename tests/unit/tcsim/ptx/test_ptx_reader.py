"""The reader: what compilers emit is read, and what is not known is an error with line and column."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcsim.ptx import LaunchError, Memory, PtxError, parse
from tcsim.ptx.text.operands import constant
from tcsim.ptx.text.spellings import refusal

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
KERNEL = HEAD + ".visible .entry k()\n{{\n{0}\nret;\n}}\n"


def error(text: str | bytes) -> PtxError:
    """The error of a text that cannot be read: one short line."""
    with pytest.raises(PtxError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600, message
    return caught.value


def bytes_of(declarations: str, name: str = "x") -> bytes:
    """What a variable of a module holds in memory."""
    module, memory = parse(HEAD + declarations), Memory()
    return memory.read(memory.symbol(module, name), module.variables[name].size).tobytes()


def i32(*values: int) -> bytes:
    return np.array(values, np.int32).tobytes()


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (".global .b32 x[2][2] = {{1,2},{3}};", i32(1, 2, 3, 0)),
        (".global .b32 x[2][2] = {{1},{3,4}};", i32(1, 0, 3, 4)),
        (".global .b32 x[][2] = {{1},{3,4}};", i32(1, 0, 3, 4)),
        (".global .b32 x[2][2] = {1,2,3};", i32(1, 2, 3, 0)),
        (".global .b32 x[] = {1, -2, 0x10, 0b11, 017, 1U};", i32(1, -2, 16, 3, 15, 1)),
        (".global .align 16 .b8 x[3] = {255, -1, 300};", b"\xff\xff\x2c"),
        (".const .s64 x = -2;", (-2).to_bytes(8, "little", signed=True)),
        (".visible .global .u32 x = 4294967295;", b"\xff" * 4),
        (".global .s32 x = 1+2*(3<<4);", i32(97)),
        (".global .v4 .f32 x = {1.0, -2.5, 0f40400000, 4e0};", np.float32([1, -2.5, 3, 4]).tobytes()),
        (".global .v2 .f32 x[2] = {{1.0,2.0},{3.0,4.0}};", np.float32([1, 2, 3, 4]).tobytes()),
        (".global .f32 x = 0d3FF0000000000000;", np.float32(1).tobytes()),
        (".global .f64 x[2] = {0f3F800000, 0.1};", np.float64([1, 0.1]).tobytes()),
        (".global .b32 x[2];", bytes(8)),
        (".weak .global .b64 x = 5;", i32(5, 0)),
        (".common .global .b32 x;", bytes(4)),
        (".extern .global .b32 x; .global .b32 x = 7;", i32(7)),
        (".global .attribute(.managed) .s32 x = 9;", i32(9)),
        (".global .b128 x;", bytes(16)),
    ],
    ids=str,
)  # fmt: skip
def test_initial_values(declared: str, expected: bytes) -> None:
    assert bytes_of(declared) == expected


@pytest.mark.parametrize("type", ["u8", "s16", "b32", "u64"])
def test_tables_of_decimal_integers(type: str) -> None:
    """Long lists are read at once, and say what lists of hexadecimal numbers say."""
    values = [*np.random.default_rng(5).integers(-(2**40), 2**40, 4000).tolist(), 0, -1, 10**18 - 1]
    extents = ("", len(values), len(values) + 5)
    for extent in extents:
        found, other = (
            bytes_of(f".global .align 8 .{type} x[{extent}] = {{{', '.join(own)}}};")
            for own in ([str(own) for own in values], [hex(own % 2**64) for own in values])
        )
        assert found == other and len(found) == int(type[1:]) // 8 * (extent or len(values))
    listed = ", ".join(map(str, values))
    for wrong in (f"{listed}, 1 2", f"{listed}, 08", f"{listed},, 1", f"{listed}, 1-", f"{listed}, {{1}}"):
        with pytest.raises(PtxError):
            parse(f"{HEAD}.global .{type} x[] = {{{wrong}}};")
    assert bytes_of(f".global .b32 x[] = {{{listed}, 017, 3-1, 1U, {2**64 - 1}}};")[-16:] == i32(15, 2, 1, -1)
    with pytest.raises(PtxError, match="values where 10 are declared"):
        parse(f"{HEAD}.global .{type} x[10] = {{{listed}}};")


def test_what_is_not_initialised_costs_nothing() -> None:
    """A gibibyte of one value, in a list and in lists of lists, and very many values."""
    tracemalloc.start()
    try:
        for declared in ("x[268435456] = {1}", "x[2][134217728] = {{1},{2}}", "x[][4][33554432] = {{{1},{},{7}}}"):
            module = parse(f"{HEAD}.global .u32 {declared};")
            assert module.variables["x"].size in (1 << 30, 1 << 29)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(PtxError, match="more than 1048576 values"):
        parse(f"{HEAD}.global .f32 x[] = {{{'0.0,' * (1 << 20)}0.0}};")


def test_addresses_as_initial_values() -> None:
    text = (
        HEAD
        + """
.global .align 4 .b32 y[4] = {1, 2, 3, 4};
.global .u64 x[5] = {y, y+4, generic(y), generic(y)+8, 7};
.global .u8 m[8] = {0xFF(y), 0xFF00(y), 0xFF0000(y), 0xff000000(generic(y)), 0xFF00000000(y), 0xFF0000000000(y), 0xFF000000000000(y+4)};
.global .u64 f = g;
.func g() { ret; }
"""
    )
    module, memory = parse(text.replace(".global .u64 f", ".func g();\n.global .u64 f")), Memory()
    y = memory.symbol(module, "y")
    found = memory.read(memory.symbol(module, "x"), 40).view(np.uint64).tolist()
    assert found == [y, y + 4, y, y + 8, 7]
    assert memory.read(memory.symbol(module, "m"), 7).tobytes() == y.to_bytes(8, "little")[:6] + bytes([(y + 4) >> 48])
    assert memory.read(memory.symbol(module, "f"), 8).view(np.uint64)[0] > 0
    assert memory.read(y, 16).tobytes() == i32(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (".global .b32 x[2][2] = {1,{2,3}};", "where a list in braces should be"),
        (".global .b32 x[2] = {1,2,3};", "3 values where 2 are declared"),
        (".global .b32 x[2] = {{1},{2}};", "braces"),
        (".global .b32 x = {1};", "one element"),
        (".global .b32 x[2] = {1,,2};", "comma"),
        (".global .b32 x[2] = {1 2};", "integer constant"),
        (".global .b32 x[2] = {1,2", "';'"),
        (".global .f32 x = 1;", "an integer for a .f32"),
        (".global .b32 x = 1.0;", "floating-point number for a .b32"),
        (".shared .b32 x = 1;", "no initial value"),
        (".global .b8 x[0];", "extent"),
        (".global .b8 x[2][];", "only the first"),
        (".global .b8 x[99999999999];", "extent"),
        (".global .b8 x[65536][65536];", "elements"),
        (".global .align 3 .b8 x;", "powers of two"),
        (".global .pred x;", "type"),
        (".global x;", "type"),
        (".global .b33 x;", "nearest"),
        (".global .b32 x; .global .b32 x;", "declared twice"),
        (".global .b16 x = y;", "an address for 2 bytes"),
        (".global .b32 x = 0xFF(y);", "one byte of an address"),
        (".global .f32 x = 0f3F8;", "hexadecimal digits"),
        (".local .b32 x;", "outside a function"),
        (".gloabl .b32 x;", "nearest: global"),
    ],
    ids=str,
)
def test_declarations_that_cannot_be(declared: str, expected: str) -> None:
    found = error(HEAD + "\n" + declared)
    assert expected in str(found) and found.line == 5 and found.column >= 1


def test_directives_of_functions() -> None:
    module = parse(
        HEAD
        + """
.file 1 "a.cu", 1234, 5678
.pragma "nounroll";
.weak .func (.param .b32 r) f (.param .b32 a, .param .align 8 .b8 s[12]) .noreturn { trap; }
.extern .func g (.param .b64 p, .param .b8 v[]);
.visible .entry k(
  .param .u64 .ptr .global .align 16 k_param_0,
  .param .align 64 .b8 k_param_1[128],
  .param .f32 k_param_2
)
.maxntid 128, 1, 1
.minnctapersm 2
.maxnreg 168
.reqnctapercluster 2, 1, 1
.explicitcluster
{
  .pragma "nounroll";
  .loc 1 10 3
  .loc 1 11 3, function_name $L__info_string0, inlined_at 1 10 3
  ret;
}
.section .debug_str { $L__info_string0: .b8 95, 90, 0 }
.section .debug_loc { .b64 1 }
"""
    )
    kernel = module.kernel()
    assert [(own.name, own.type, own.size, own.align) for own in kernel.params] == [
        ("k_param_0", "u64", 8, 8),
        ("k_param_1", "b8", 128, 64),
        ("k_param_2", "f32", 4, 4),
    ]
    assert kernel.function.directives == {
        "maxntid": (128, 1, 1), "minnctapersm": (2,), "maxnreg": (168,), "reqnctapercluster": (2, 1, 1), "explicitcluster": (),
    }  # fmt: skip
    assert str(kernel.function.body[0].source) == "a.cu:11"


def test_blocks_have_registers_and_labels_of_their_own() -> None:
    body = """
  .reg .b32 %r<3>, a; .reg .b64 %rd<3>; .reg .v4 .b32 %v; .reg .pred p;
  { .reg .b32 a; .reg .pred p; mov.b32 a, 5; setp.ne.b32 p, a, 0; @p bra L; mov.b32 %r1, 9; L: add.u32 %r1, %r1, a; }
  { .reg .b32 a; .reg .pred p; mov.b32 a, 6; setp.ne.b32 p, a, 0; @p bra L; mov.b32 %r1, 9; L: add.u32 %r1, %r1, a; }
  mov.b32 a, 100;
  mov.b32 %v.x, 1; mov.b32 %v.y, 2; mov.b32 %v.b, 3; mov.b32 %v.w, 4;
  add.u32 %r1, %r1, a; add.u32 %r1, %r1, %v.y; add.u32 %r1, %r1, %v.z;
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], %r1; st.global.v4.b32 [%rd1+16], %v; ret;
"""
    memory = Memory()
    out = memory.allocate(32)
    run = parse(HEAD + f".entry k(.param .u64 out) {{ {body} }}").kernel().launch(memory, [out])
    assert run.completed, run.hazards
    assert memory.read(out, 32).view(np.uint32).tolist() == [116, 0, 0, 0, 1, 2, 3, 4]


def test_modifiers_may_stand_apart() -> None:
    """As in inline assembly that people write; ptxas takes it."""
    body = ".reg .b32 %r<2>; .reg .pred %p<1>; lop3 .b32 %r1, %r1, -256, %r1, 106; @!%p0 add\n\t.sat .s32 %r1, %r1, 1;"
    own = parse(KERNEL.format(body)).kernel()
    assert [item.opcode for item in own.function.body[:2]] == ["lop3.b32", "add.sat.s32"]


def test_modifiers_stand_in_any_order() -> None:
    for spelling in (
        "ld.v2.global.relaxed.gpu.f32",
        "ld.relaxed.gpu.global.v2.f32",
        "add.ftz.rn.f32",
        "add.rn.ftz.f32",
    ):
        assert refusal(spelling) is None, spelling


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("addd.s32 %r1, %r1, 1;", "'addd.s32' is not known; nearest: add.s32"),
        ("ld.globl.u32 %r1, [%rd1];", "no modifier .globl; nearest: global"),
        ("ld.global.global.u32 %r1, [%rd1];", "beside another modifier of its kind"),
        ("ld.global %r1, [%rd1];", "missing"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f33 %r1;", "nearest: mma.sync"),
        ("shfl.bfly.b32 %r1, %r1, 1, 31;", "missing: sync"),
        ("bar.sink 0;", "nearest: bar.sync"),
        ("tex.2d.v4.f32.f32 %r1, [%rd1, %r1];", "not known: textures and surfaces are not modelled"),
        ("sust.b.2d.b32.trap [%rd1, {%r1, %r1}], %r1;", "not known: textures and surfaces are not modelled"),
        ("vadd4.u32.u32.u32 %r1, %r1, %r1, %r1;", "there are vabsdiff2 and vabsdiff4"),
        ("vabsdiff4.u32.u32.u32 %r1.b10, %r1, %r1, %r1;", "%r1.b10"),
        ("mov.u32 %r1, %r9;", "no register %r9"),
        ("mov.u32 %r1, %tid.q;", "no register"),
        ("mov.u32 %r1, %r1.x;", "no register %r1.x"),
        ("@%q ret;", "no predicate"),
        ("@%r1 ret;", "is not a predicate"),
        (".reg .b32 %r1;", "declared twice"),
        ("L: L: ret;", "declared twice"),
        (".reg .b33 a;", "no type .b33; nearest: b32"),
        (".regg .b32 a;", "no directive .regg in a function; nearest: reg"),
        ("mov.u32 %r1, (1;", "do not match"),
        ("mov.u32 %r1, {{{{{{1}}}}}};", "nest deeper"),
        ("mov.u32 %r1, 99999999999999999999999;", "more than 64 bits"),
        ("mov.u32 %r1, 089;", "octal"),
        ("mov.u32 %r1, 1+;", "integer constant"),
        ("ts: .branchtargets NOWHERE;", "not a label"),
        ("mov.u32 %r1, 5", "integer constant"),
        ("?;", "not an instruction"),
    ],
    ids=str,
)
def test_an_unknown_spelling_says_where(statement: str, expected: str) -> None:
    found = error(KERNEL.format("  .reg .b32 %r<4>; .reg .b64 %rd<4>;\n   " + statement))
    assert expected in str(found), found
    assert found.line in (7, 8) and found.column >= 1
    assert str(found).startswith(f"line {found.line}, column {found.column}: ")


def test_an_unknown_instruction_of_another_kernel_is_not_hidden() -> None:
    assert error(KERNEL.format("") + ".entry other() { frobnicate.b32; ret; }").line == 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no .version"),
        ("int main() {}", "where a .version should be"),
        (".version 8.0\n", "no .target"),
        (".version x\n", "version"),
        (".version 8.0\n.target sm_91\n", "nearest: sm_90"),
        (".version 8.0\n.target sm_90\n.address_size 32\n", "valid: 64"),
        (HEAD + ".entry k() { ret;", "does not end"),
        (HEAD + ".entry k() { ret; } .entry k() { ret; }", "two bodies"),
        (HEAD + ".entry k() .maxntidd 3 { ret; }", "nearest: maxntid"),
        (HEAD + ".entry k() .maxntid 1,2,3,4 { ret; }", "takes 3"),
        (HEAD + "/* no end", "does not end"),
        (HEAD + '.file 1 "a', "a file"),
        (HEAD + "}", "directive"),
        (b"\xff\xfe", "UTF-8"),
        (HEAD + "\0.entry k() { ret; }", "directive"),
        (HEAD + ".entry k() " + "{" * 100 + "}" * 100, "deeper than 64"),
        (HEAD + ".entry k() { .reg .b32 r<99999999>; ret; }", "registers; valid"),
        (HEAD + ".entry k() { .reg .b32 r<\u0661>; ret; }", "where"),
    ],
)
def test_texts_that_are_not_ptx(text: str | bytes, expected: str) -> None:
    assert expected in str(error(text))


def test_bytes_may_end_in_nul_and_text_must_be_text() -> None:
    assert parse((KERNEL.format("") + "\0\0").encode()).kernels == ("k",)
    for wrong in (5, None, ["a"]):
        with pytest.raises(PtxError, match="valid: str or bytes"):
            parse(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7), ("(1+2)*3", 9), ("-7/2", -3), ("-7%2", -1), ("1<<63>>63", -1), ("0xFFFFFFFFFFFFFFFF+1", 0), ("~0", -1), ("!5", 0),
        ("3>2 && 2>=2 || 0", 1), ("1?2:3", 2), ("0?2:1?4:5", 4), ("5&6|8^1", 13), ("(.u64)-1>>60", 15), ("2==2 != 0", 1), ("WARP_SZ*4", 128),
        ("1U-2", 2**64 - 1),
    ],
)  # fmt: skip
def test_constant_expressions(text: str, value: int) -> None:
    assert constant(text) == value


@pytest.mark.parametrize(
    "text", ["", "1+", "(1", "1)", "a", "1/0", "1%0", "1<<64", "1<<-1", "((((((((((((((((((1))))))))))))))))))", "1" * 201, "1 2", "--" * 40 + "1", "0x", "1?2"]
)  # fmt: skip
def test_what_is_not_a_constant(text: str) -> None:
    with pytest.raises(PtxError):
        constant(text)


def test_recorded_texts_are_read_and_numbered() -> None:
    paths = sorted((Path(__file__).parents[3] / "data" / "launches").glob("*.npz"))
    counted = 0
    for path in paths:
        with np.load(path) as file:
            text = str(file["ptx"])
        lines = text.split("\n")
        module: Any = parse(text)
        for function in module.syntax.functions.values():
            for item in function.body:
                assert lines[item.line - 1][item.column - 1 :].startswith(("@", item.opcode)), (path.name, item)
                counted += 1
            assert all(a.line <= b.line for a, b in pairwise(function.body))
    assert len(paths) >= 19 and counted > 4500


def _body(statements: str) -> str:
    return HEAD + ".entry k() { .reg .b32 %r<9>; .reg .pred p; " + statements + " ret; }"


HOSTILE = {
    "comments that do not end": HEAD + "/*" * 50_000,
    "blocks": _body("{" * 5000),
    "blocks of their own": _body("{.reg .b32 a; L: mov.b32 a, 1;}" * 3000),
    "brackets": _body("mov.b32 %r1, " + "[" * 5000 + ";"),
    "operands": _body("mov.b32 %r1" + ",%r1" * 3000 + ";"),
    "pairs": _body("mov.b32 " + "%r1|" * 3000 + "%r1, 1;"),
    "negations": _body("mov.b32 %r1, " + "!" * 9000 + "%r1;"),
    "a long name": _body("mov.b32 %r1, " + "a" * 100_000 + ";"),
    "a long number": _body("mov.b32 %r1, " + "9" * 100_000 + ";"),
    "a long opcode": _body("mov" + ".x" * 5000 + " %r1;"),
    "labels": _body("".join(f"@p bra L{i}; L{i}: " for i in range(3000))),
    "branch targets": _body("ts: .branchtargets " + ",".join(["L"] * 3000) + "; L: brx.idx %r1, ts;"),
    "values": HEAD + ".global .b8 x[] = {" + "1," * 30_000 + "1};",
    "braces of values": HEAD + ".global .b8 x[2][2] = " + "{" * 5000 + "1" + "}" * 5000 + ";",
    "expressions": HEAD + "".join(f".global .b8 x{i}[{'(1+' * 14 + '1' + ')' * 14}];" for i in range(200)),
    "calls of calls": HEAD + ".func f0() { ret; }\n" + "".join(f".func f{i}() {{ call f{i - 1}, (); ret; }}\n" for i in range(1, 1500)),
    "parameters": HEAD + ".entry k(" + ",".join(f".param .u32 a{i}" for i in range(9000)) + ") { ret; }",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_no_time(name: str) -> None:
    """A second for each 10 kB, and a PtxError or LaunchError if anything."""
    text, said = HOSTILE[name], ""
    refusal("a.spelling.that.does.not.exist")  # builds tables, once in a process
    began = time.thread_time()
    try:
        module = parse(text)
        for kernel in module.kernels:
            module.kernel(kernel).compiled(Memory(), "sm_90")
    except (PtxError, LaunchError) as error:
        said = str(error)
    assert time.thread_time() - began < max(1.0, len(text) / 10_000)
    assert len(said) < 600 and "\n" not in said
