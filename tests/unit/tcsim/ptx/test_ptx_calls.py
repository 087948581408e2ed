"""Functions called by kernels: arguments and results, recursion, addresses of functions, the stack, functions of the driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcsim.ptx import LaunchError, Limits, Memory, Run, parse

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
BEGIN = """
.visible .entry k(.param .u64 out)
{
  .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f64 %fd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
"""
END = "\n  st.global.u32 [%rd3], %r2;\n  ret;\n}\n"
T = np.arange(64)


def ran(
    before: str, body: str, threads: int = 64, given: Any = None, **options: Any
) -> tuple[Run, np.ndarray[Any, Any], Memory]:
    """A kernel of some functions and statements that leave a result in %r2: the run, one result for each thread, memory."""
    memory = Memory()
    out = memory.allocate(
        np.zeros(4 * threads, np.uint8) if given is None else np.asarray(given, np.int32).view(np.uint8)
    )
    run = parse(HEAD + before + BEGIN + body + END).kernel("k").launch(memory, [out], block=(threads, 1, 1), **options)
    return run, memory.read(out, 4 * threads).view(np.int32), memory


def good(*given: Any, **options: Any) -> np.ndarray[Any, Any]:
    run, found, _ = ran(*given, **options)
    assert run.completed and not run.hazards, run.hazards
    return found


FIB = """
.func (.param .b32 result) fib(.param .b32 n)
{
  .reg .pred %p; .reg .b32 %r<8>;
  ld.param.u32 %r1, [n];
  setp.lt.s32 %p, %r1, 2;
  @%p bra SMALL;
  add.s32 %r2, %r1, -1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a+0], %r2; call.uni (b), fib, (a); ld.param.b32 %r3, [b+0]; }
  add.s32 %r4, %r1, -2;
  { .param .b32 a; .param .b32 b; st.param.b32 [a+0], %r4; call.uni (b), fib, (a); ld.param.b32 %r5, [b+0]; }
  add.s32 %r1, %r3, %r5;
SMALL:
  st.param.b32 [result+0], %r1;
  ret;
}
"""
CALL = "{{ .param .b32 a; .param .b32 b; st.param.b32 [a+0], {0}; call (b), {1}, (a); ld.param.b32 %r2, [b+0]; }}"


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_recursion_in_threads_of_different_depth() -> None:
    found = good(FIB, "and.b32 %r3, %r1, 7;" + CALL.format("%r3", "fib"))
    assert found.tolist() == [fib(t & 7) for t in T]


def test_locals_of_each_activation_are_its_own() -> None:
    """A pointer to a local variable of the caller is passed down, and the callee changes what it points to."""
    walk = """
.func walk(.param .b64 from, .param .b32 depth)
{
  .local .align 8 .b8 mine[8]; .reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [from]; ld.param.u32 %r1, [depth];
  mov.u64 %rd2, mine; cvta.local.u64 %rd3, %rd2;
  ld.u32 %r2, [%rd1];
  st.u32 [%rd3], %r1; st.u32 [%rd3+4], %r2;
  setp.eq.s32 %p, %r1, 0; @%p bra DONE;
  add.s32 %r3, %r1, -1;
  { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd3; st.param.b32 [b], %r3; call.uni walk, (a, b); }
DONE:
  ld.u32 %r4, [%rd3]; ld.u32 %r5, [%rd3+4];
  add.s32 %r4, %r4, %r5; add.s32 %r4, %r4, %r2; st.u32 [%rd1], %r4;
  ret;
}
"""
    body = """
  .local .align 4 .b8 v[4]; mov.u64 %rd4, v; cvta.local.u64 %rd5, %rd4; st.u32 [%rd5], %r1; rem.u32 %r3, %r1, 5;
  { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd5; st.param.b32 [b], %r3; call.uni walk, (a, b); }
  ld.u32 %r2, [%rd5];
"""

    def reference(value: list[int], depth: int) -> None:
        given, mine = value[0], [depth, value[0]]
        if depth:
            reference(mine, depth - 1)
        value[0] = mine[0] + mine[1] + given

    expected = []
    for t in T.tolist():
        value = [t]
        reference(value, t % 5)
        expected.append(value[0])
    assert good(walk, body).tolist() == expected


def test_functions_that_call_each_other() -> None:
    pair = """
.func (.param .b32 r) odd(.param .b32 n);
.func (.param .b32 r) even(.param .b32 n)
{ .reg .pred %p; .reg .b32 %r<4>; ld.param.u32 %r1, [n]; mov.u32 %r2, 1; setp.eq.u32 %p, %r1, 0; @%p bra E; add.s32 %r1, %r1, -1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), odd, (a); ld.param.b32 %r2, [b]; }
E: st.param.b32 [r], %r2; ret; }
.func (.param .b32 r) odd(.param .b32 n)
{ .reg .pred %p; .reg .b32 %r<4>; ld.param.u32 %r1, [n]; mov.u32 %r2, 0; setp.eq.u32 %p, %r1, 0; @%p bra E; add.s32 %r1, %r1, -1;
  { .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), even, (a); ld.param.b32 %r2, [b]; }
E: st.param.b32 [r], %r2; ret; }
"""
    assert good(pair, CALL.format("%r1", "even")).tolist() == [1 - t % 2 for t in T]


OPERATIONS = "".join(
    f".func (.param .b32 r) {name}(.param .b32 a, .param .b32 b) {{ .reg .b32 %r<4>; ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b]; "
    f"{op} %r3, %r1, %r2; st.param.b32 [r], %r3; ret; }}\n"
    for name, op in (("plus", "add.s32"), ("minus", "sub.s32"), ("times", "mul.lo.s32"))
)  # fmt: skip
TABLE = ".global .align 8 .u64 table[3] = {plus, minus, times};\n.const .align 8 .u64 one = times;\n"
THROUGH = """
{{ .param .b32 x; .param .b32 y; .param .b32 z; st.param.b32 [x], %r1; st.param.b32 [y], 7;
  proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
  {0}call (z), %rd6, (x, y), proto; {0}ld.param.b32 %r2, [z]; }}
"""
PICK = """
  rem.u32 %r3, %r1, 3; mul.wide.u32 %rd4, %r3, 8; mov.u64 %rd5, table; add.s64 %rd5, %rd5, %rd4; ld.global.u64 %rd6, [%rd5];
"""


def test_calls_through_a_table_of_addresses() -> None:
    found = good(OPERATIONS + TABLE, PICK + THROUGH.format(""))
    assert found.tolist() == [[t + 7, t - 7, t * 7][t % 3] for t in T]


def test_a_predicated_call_of_some_threads() -> None:
    body = PICK + "mov.u32 %r2, -1; setp.gt.u32 %p1, %r1, 20;" + THROUGH.format("@%p1 ")
    assert good(OPERATIONS + TABLE, body).tolist() == [[t + 7, t - 7, t * 7][t % 3] if t > 20 else -1 for t in T]


def test_the_address_of_a_function_in_a_register() -> None:
    assert good(OPERATIONS, "mov.u64 %rd6, minus;" + THROUGH.format("")).tolist() == [t - 7 for t in T]


def test_a_call_to_where_no_function_is() -> None:
    run, _, _ = ran(OPERATIONS, "mov.u64 %rd6, 4660;" + THROUGH.format(""))
    (found,) = run.hazards
    assert not run.completed and (found.name, found.detail) == ("INVALID_PC", {"address": 4660})


def test_structures_pass_as_bytes() -> None:
    scale = """
.func (.param .align 8 .b8 r[24]) scale(.param .align 8 .b8 s[24], .param .b32 by)
{ .reg .b32 %r<4>; .reg .f64 %d<3>; .reg .b16 %h;
  ld.param.u32 %r1, [s]; ld.param.u32 %r2, [by]; mul.lo.s32 %r1, %r1, %r2; st.param.b32 [r], %r1;
  ld.param.f64 %d1, [s+8]; add.f64 %d1, %d1, %d1; st.param.f64 [r+8], %d1;
  ld.param.u8 %h, [s+17]; st.param.b8 [r+17], %h; ret; }
"""
    body = """
  .reg .b16 %h<3>;
  { .param .align 8 .b8 x[24]; .param .b32 y; .param .align 8 .b8 z[24];
    st.param.b32 [x], %r1; st.param.f64 [x+8], 0d3FF8000000000000; st.param.b8 [x+17], 5; st.param.b32 [y], 3;
    call.uni (z), scale, (x, y);
    ld.param.b32 %r2, [z]; ld.param.f64 %fd1, [z+8]; ld.param.u8 %h1, [z+17]; }
  cvt.rzi.s32.f64 %r4, %fd1; cvt.u32.u16 %r5, %h1; mad.lo.s32 %r2, %r2, 100, %r4; mad.lo.s32 %r2, %r2, 10, %r5;
"""
    assert good(scale, body).tolist() == [(3 * t * 100 + 3) * 10 + 5 for t in T]


def test_registers_pass_as_registers() -> None:
    before = (
        ".func (.reg .u32 r) f(.reg .u32 a, .reg .u64 b) { .reg .u32 c; cvt.u32.u64 c, b; mul.lo.u32 r, a, c; ret; }"
    )
    assert good(before, "cvt.u64.u32 %rd4, %r1; call (%r2), f, (%r1, %rd4);").tolist() == [t * t for t in T]
    assert good(before, "call (%r2), f, (%r1, 3);").tolist() == [3 * t for t in T]


def test_an_alias_is_its_function() -> None:
    before = ".func (.param .b32 r) other(.param .b32 n);" + FIB + ".alias other, fib;"
    assert good(before, "and.b32 %r3, %r1, 3;" + CALL.format("%r3", "other")).tolist() == [fib(t & 3) for t in T]


def test_exit_in_a_function_ends_the_thread() -> None:
    before = ".func f(.param .b32 n) { .reg .pred %p; .reg .b32 %r; ld.param.u32 %r, [n]; setp.gt.u32 %p, %r, 9; @%p exit; ret; }"
    body = "{ .param .b32 a; st.param.b32 [a], %r1; call f, (a); } mov.u32 %r2, 1;"
    assert good(before, body).tolist() == [int(t <= 9) for t in T]


def test_a_barrier_in_a_function_that_all_threads_call_from_two_places() -> None:
    before = ".shared .b32 total; .func f() { bar.sync 0; ret; }"
    body = """
  setp.eq.u32 %p1, %r1, 0; @%p1 st.shared.u32 [total], 0;
  setp.lt.u32 %p2, %r1, 32;
  @%p2 bra A;
  call f, ();
  bra B;
A: call f, ();
B: atom.shared.add.u32 %r3, [total], 1;
  call f;
  ld.shared.u32 %r2, [total];
"""
    assert good(before, body).tolist() == [64] * 64


def test_lanes_in_a_function_hear_each_other() -> None:
    before = """
.func (.param .b32 r) sum(.param .b32 a) { .reg .b32 %r<4>; ld.param.u32 %r1, [a];
  redux.sync.add.u32 %r2, %r1, 0xffffffff; st.param.b32 [r], %r2; ret; }
"""
    assert good(before, CALL.format("%r1", "sum")).tolist() == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32


def test_the_stack_ends() -> None:
    before = ".func f(.param .b32 n) { .local .b8 x[1024]; .reg .b32 %r; ld.param.u32 %r, [n]; st.local.b32 [x], %r;\n{ .param .b32 a; st.param.b32 [a], %r; call f, (a); } ret; }"
    body = "{ .param .b32 a; st.param.b32 [a], %r1; call f, (a); }"
    run, _, _ = ran(before, body, threads=4, limits=Limits(stack=8192))
    (found,) = run.hazards
    assert not run.completed and found.name == "STACK_OVERFLOW" and 5 <= found.detail["calls"] <= 8


def test_alloca_takes_and_gives_back() -> None:
    body = """
  stacksave.u64 %rd8;
  mul.wide.u32 %rd4, %r1, 4; alloca.u64 %rd5, %rd4; alloca.u64 %rd6, 64, 32;
  st.local.u32 [%rd6], 5; and.b64 %rd7, %rd6, 31; cvt.u32.u64 %r4, %rd7; ld.local.u32 %r2, [%rd6]; add.s32 %r2, %r2, %r4;
  setp.gt.u32 %p1, %r1, 0; @%p1 st.local.u32 [%rd5], %r1; @%p1 ld.local.u32 %r5, [%rd5]; @%p1 add.s32 %r2, %r2, %r5;
  sub.s64 %rd9, %rd6, %rd5; setp.lt.s64 %p2, %rd9, %rd4; @%p2 mov.u32 %r2, -1;
  stackrestore.u64 %rd8; stacksave.u64 %rd10; setp.ne.u64 %p3, %rd8, %rd10; @%p3 mov.u32 %r2, -2;
"""
    assert good("", body).tolist() == [5 + t for t in T]
    run, _, _ = ran("", "alloca.u64 %rd5, 100000;")
    assert [found.name for found in run.hazards] == ["STACK_OVERFLOW"]


VPRINTF = ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);\n"


def printed(text: str, values: bytes, **options: Any) -> tuple[Run, np.ndarray[Any, Any]]:
    data = ", ".join(str(byte) for byte in text.encode() + b"\0")
    before = (
        VPRINTF
        + f".global .b8 text[{len(text.encode()) + 1}] = {{{data}}};\n.global .align 8 .b8 word[4] = {{104, 105, 0, 0}};\n"
    )
    stores = "".join(f"st.local.b8 [list+{place}], {byte};" for place, byte in enumerate(values))
    body = f"""
  .local .align 8 .b8 list[{max(len(values), 8)}]; .reg .b16 %h<2>;
  {stores} mov.u64 %rd4, list; cvta.local.u64 %rd5, %rd4; mov.u64 %rd6, text; cvta.global.u64 %rd7, %rd6;
  {{ .param .b64 f; .param .b64 v; .param .b32 n; st.param.b64 [f], %rd7; st.param.b64 [v], %rd5; call (n), vprintf, (f, v); ld.param.b32 %r2, [n]; }}
"""
    run, found, _ = ran(before, body, threads=1, **options)
    return run, found


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("plain %% text\n", (), "plain % text\n"),
        ("%d|%5d|%-5d|%05d|%+d", (np.int32(-7),) + (np.int32(42),) * 4, "-7|   42|42   |00042|+42"),
        ("%u %x %X %o %#x", (np.uint32(2**32 - 1),) * 5, "4294967295 ffffffff FFFFFFFF 37777777777 0xffffffff"),
        ("%lld %llx %ld %zu", (np.int64(-(2**40)),) * 3 + (np.uint64(2**63),), "-1099511627776 ffffff0000000000 -1099511627776 9223372036854775808"),
        ("%f %.2f %8.3e %g %E", (np.float64(1.5),) * 5, "1.500000 1.50 1.500e+00 1.5 1.500000E+00"),
        ("%c%c%c", (np.int32(65), np.int32(66), np.int32(67)), "ABC"),
        ("%hd %hhu", (np.int32(65535), np.int32(257)), "-1 1"),
        ("%d %f %d", (np.int32(1), np.float64(0.25), np.int32(2)), "1 0.250000 2"),
        ("%*d|%-*d|%.*f", (np.int32(4), np.int32(7), np.int32(3), np.int32(8), np.int32(1), np.float64(2.25)), "   7|8  |2.2"),
        ("%a", (np.float64(1.5),), "0x1.8p+0"),
        ("%p", (np.uint64(4096),), "0x1000"),
        ("%k %d", (np.int32(1),), "%k 1"),
        ("ü %s", (np.uint64(0),), "ü (null)"),
    ],
    ids=str,
)  # fmt: skip
def test_vprintf(text: str, values: tuple[Any, ...], expected: str) -> None:
    packed = bytearray()
    for value in values:
        packed += bytes(-len(packed) % value.nbytes) + value.tobytes()
    run, found = printed(text, bytes(packed))
    assert run.completed and run.output == expected
    assert found.tolist() == [len(values)]


def test_a_string_is_printed_and_threads_write_in_order() -> None:
    text = ", ".join(str(byte) for byte in b"%s%d;\0")
    before = VPRINTF + f".global .b8 text[6] = {{{text}}};\n.global .b8 word[3] = {{104, 105}};\n"
    body = """
  .local .align 8 .b8 list[16]; mov.u64 %rd4, word; cvta.global.u64 %rd4, %rd4; st.local.u64 [list], %rd4; st.local.u32 [list+8], %r1;
  mov.u64 %rd5, list; cvta.local.u64 %rd5, %rd5; mov.u64 %rd7, text; setp.lt.u32 %p1, %r1, 3;
  { .param .b64 f; .param .b64 v; .param .b32 n; st.param.b64 [f], %rd7; st.param.b64 [v], %rd5; @%p1 call (n), vprintf, (f, v); }
"""
    run, _, _ = ran(before, body, grid=(2, 1, 1))
    assert run.output == "hi0;hi1;hi2;" * 2


def test_output_has_a_limit() -> None:
    run, _ = printed("%d bytes of text", np.int32(7).tobytes(), limits=Limits(output=10))
    assert [(found.name, found.detail) for found in run.hazards] == [("LIMIT", {"limit": "output"})]
    run, _ = printed("%999999999d", np.int32(7).tobytes())
    assert [found.name for found in run.hazards] == ["LIMIT"]


HEAP = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n"
MALLOC = "{ .param .b64 n; .param .b64 p; st.param.b64 [n], %rd4; call (p), malloc, (n); ld.param.b64 %rd5, [p]; }"
FREE = "{ .param .b64 p; st.param.b64 [p], %rd5; call free, (p); }"


def test_the_heap() -> None:
    body = "mov.u64 %rd4, 8;" + MALLOC + "st.u32 [%rd5+4], %r1; ld.u32 %r2, [%rd5+4];" + FREE
    run, found, memory = ran(HEAP, body)
    assert run.completed and found.tolist() == T.tolist() and not memory.heap


def test_the_heap_ends_and_notices_what_is_not_its_own() -> None:
    body = "mov.u64 %rd4, 1024;" + MALLOC + "setp.ne.u64 %p1, %rd5, 0; selp.u32 %r2, 1, 0, %p1;"
    assert good(HEAP, body, limits=Limits(heap=10 * 1024)).sum() == 10
    run, _, _ = ran(HEAP, "mov.u64 %rd4, 8;" + MALLOC + FREE + FREE, threads=1)
    assert [found.name for found in run.hazards] == ["INVALID_OPERAND"] and "free" in run.hazards[0].message
    run, _, _ = ran(HEAP, "mov.u64 %rd4, 8;" + MALLOC + FREE + "ld.u32 %r2, [%rd5];", threads=1)
    assert [found.name for found in run.hazards] == ["GMEM_UNMAPPED"]


def test_an_assert_that_does_not_hold() -> None:
    def text(name: str, value: str) -> str:
        data = value.encode() + b"\0"
        return f".global .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"

    before = (
        ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;\n"
        + text("m", "t != 5") + text("f", "k.cu") + text("n", "k")
    )  # fmt: skip
    body = """
  setp.ne.u32 %p1, %r1, 5; @%p1 bra GOOD;
  mov.u64 %rd4, m; mov.u64 %rd5, f; mov.u64 %rd6, n;
  { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    st.param.b64 [a], %rd4; st.param.b64 [b], %rd5; st.param.b32 [c], 23; st.param.b64 [d], %rd6; st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e); }
GOOD: mov.u32 %r2, 1;
"""
    run, _, _ = ran(before, body)
    (found,) = run.hazards
    assert not run.completed and (found.name, found.thread) == ("ASSERT", 5)
    assert found.message == "k.cu:23: k: assertion `t != 5` failed" and found.detail["file_line"] == 23


def test_an_indexed_branch() -> None:
    body = """
  rem.u32 %r3, %r1, 4;
  ts: .branchtargets A, B, C;
  setp.eq.u32 %p1, %r3, 3; mov.u32 %r2, 40;
  @!%p1 brx.idx %r3, ts;
  bra D;
A: mov.u32 %r2, 10; bra D;
B: mov.u32 %r2, 20; bra D;
C: mov.u32 %r2, 30;
D:
"""
    assert good("", body).tolist() == [10 * (t % 4 + 1) for t in T]
    run, _, _ = ran("", body.replace("@!%p1 ", ""))
    (found,) = run.hazards
    assert (found.name, found.thread, found.detail) == ("INVALID_PC", 3, {"index": 3})


@pytest.mark.parametrize(
    ("before", "body", "expected"),
    [
        ("", "call nothing, ();", "no function 'nothing'"),
        (".extern .func outside();", "call outside, ();", "declared and not defined"),
        (OPERATIONS, "{ .param .b32 a; st.param.b32 [a], 1; call plus, (a); }", "2 arguments"),
        (FIB, "{ .param .b64 a; .param .b32 b; call (b), fib, (a); }", "8 bytes; valid: 4"),
        ("", "call (%r2), %rd1, (%r1), missing;", "prototype"),
        (
            ".extern .func (.param .b32 r) malloc(.param .b64 n);",
            "call (%r2), malloc, (%rd1);",
            "malloc is declared with",
        ),
        ("", "bra NOWHERE;", "no label"),
    ],
)
def test_calls_that_cannot_be(before: str, body: str, expected: str) -> None:
    with pytest.raises(LaunchError, match=expected) as caught:
        ran(before, body)
    assert caught.value.line > 0 and caught.value.column > 0
