"""Spellings of instructions: what ptxas takes, the reader takes, for the same versions and targets; what the reader takes, runs."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from tcsim.core.errors import TcsimError
from tcsim.core.targets import OLDER, TARGETS
from tcsim.core.versions import PTX_ISA, number
from tcsim.isa.ordinary.catalog import ORDINARY
from tcsim.model.spelling import spelling
from tcsim.ptx import LaunchError, Memory, PtxError, parse
from tcsim.ptx.compile.ordinary import row_of
from tcsim.ptx.text.fitting import fitting
from tcsim.ptx.text.spellings import known
from tcsim.ptx.text.syntax import Instruction, Pair
from tests.unit.tcsim.ptx.spelling_cases import CASES, HEAD, PAIRS, crashes, module, recorded, taken

ALONE = ("bra", "brx", "ret", "exit", "trap", "brkpt", "stackrestore")
"""Instructions behind which nothing runs, and one that faults with what others leave in its register."""
DISAGREEMENTS = (
    (r"vabsdiff[24]", 45, "of the video instructions there are those that compilers emit"),
    (r"(shfl|vote)\.(?!.*sync)", 12, "without .sync ptxas takes them for targets before sm_70 and versions before 6.4, where lanes have no masks"),
    (r"fma(?=\S*\.r[zmp]\b)(?=\S*bf16)", 10, "ptxas makes f16 arithmetic of it"),
    (r"ld\.param::func", 4, "ptxas looks for the call that it belongs to"),
    (r".*override::global_address", 1, "brackets that hold more than a map and coordinates are not read"),
)  # fmt: skip
"""Statements that ptxas takes and the reader does not, or the other way round: a pattern, how many of the recorded ones, and why."""


@cache
def ours(line: str) -> int:
    """A bit for each of PAIRS: whether the version and the target have a statement."""
    try:
        made: Any = parse(module([line], *PAIRS[0])).syntax.functions["tried"]
    except TcsimError:
        return 0
    (item, *_), registers = made.body, made.registers
    pair = bool(item.operands) and isinstance(item.operands[0], Pair)
    spelled, row = known(item.opcode, len(item.operands) - 1, pair), row_of(item.opcode)
    targets = spelled.targets
    if row is not None:
        targets = frozenset().union(*(form.targets for form in fitting(row.forms, item.operands, registers)))
    bits = 0
    for place, (version, target) in enumerate(PAIRS):
        needed = spelled.version_of(item.operands, registers, target) if spelled.forms else spelled.version
        has = target in targets if target in TARGETS else int(target.removeprefix("sm_")) >= spelled.number
        bits |= (has and number(needed) <= number(version)) << place
    return bits


@cache
def table() -> dict[str, int]:
    return recorded()


@cache
def accepted() -> list[str]:
    """What both take, for the newest version and target."""
    return [line for line, bits in table().items() if bits & 1 and ours(line) & 1]


def test_the_recorded_verdicts() -> None:
    """Of every statement for every version and target, but for those that are listed with their reason."""
    differ = [line for line, bits in table().items() if ours(line) != bits]
    found = Counter[str]()
    for line in differ:
        pattern = next((pattern for pattern, _, _ in DISAGREEMENTS if re.match(pattern, line)), line)
        found[pattern] += 1
    assert found == Counter({pattern: count for pattern, count, _ in DISAGREEMENTS if count})
    assert len(table()) > 12_000 and sum(bits.bit_count() for bits in table().values()) > 30_000


@pytest.mark.parametrize("pair", [0, 6, 12])
def test_the_record_is_what_the_assembler_says(pair: int) -> None:
    """Asked anew of a sample."""
    lines = random.Random(pair).sample(sorted(table()), 1500)
    assert taken(lines, *PAIRS[pair]) == {line for line in lines if table()[line] >> pair & 1}


def test_parsing_and_launching_say_the_same() -> None:
    """Of a sample with real modules: refused with our own errors exactly where the table says so."""
    choose, checked = random.Random(8), Counter[bool]()
    lines = [line for line in table() if not any(re.match(pattern, line) for pattern, _, _ in DISAGREEMENTS)]
    for line in choose.sample(lines, 700):
        place = choose.randrange(len(PAIRS))
        version, target = PAIRS[place]
        if "%q" in line and number(version) < (8, 3):
            continue
        arch = None if target in TARGETS else "sm_75"
        try:
            parse(module([line], version, target)).kernel().compiled(Memory(), arch or target.rstrip("af"))
            found = True
        except TcsimError:
            found = False
        assert found == bool(table()[line] >> place & 1), (line, version, target)
        checked[found] += 1
    assert min(checked[True], checked[False]) > 60 and checked.total() > 600


PROLOGUE = (
    "ld.param.u64 %d8, [given]; mov.u64 %d7, 0; mov.u64 %d6, shared_; mov.u64 %d5, local_; mov.b32 %r2, -1; mov.b32 %r3, 31; mov.b32 %r4, -1; "
    "cvt.u64.u32 %d1, %r3; "
)


def executed(lines: list[str]) -> None:
    """Run statements one after the other, each with valid addresses and masks, on one warp."""
    text = module([PROLOGUE + line for line in lines], *PAIRS[0])
    text = text.replace("TARGETS:", ".shared .align 32 .b8 shared_[512]; .local .align 32 .b8 local_[512]; TARGETS:", 1)
    memory = Memory()
    pointer = memory.allocate(4096)
    given = pointer.to_bytes(8, "little") + bytes(56)
    run = parse(text).kernel().launch(memory, [given], block=(32, 1, 1), check=False)
    assert run.completed or lines[0].startswith(("trap", "brkpt")), (lines, run.hazards)


def test_what_is_taken_runs() -> None:
    """No exception of any kind, and no fault: ordinary instructions, all together."""
    lines = [line for line in accepted() if not line.startswith("{") and "passed" not in line]
    single = [line for line in lines if re.match("|".join(ALONE), line)]
    rest = [line for line in lines if line not in set(single)]
    random.Random(5).shuffle(rest)
    for line in single:
        executed([line])
    for start in range(0, len(rest), 60):
        group = rest[start : start + 60]
        try:
            executed(group)
        except Exception:  # which of them is it?
            for line in group:
                executed([line])
            raise
    assert len(lines) > 4000


def test_every_word_of_a_grammar_is_tried() -> None:
    """The recorded statements have each modifier of each instruction, and what has it is taken somewhere."""
    seen: dict[str, set[str]] = {}
    grammars = {stem: row.grammar for stem, row in ORDINARY.items() if row.grammar is not None}
    for line, bits in table().items():
        stem, *words = line.split()[0].split(".")
        if bits:
            seen.setdefault(stem, set()).update(words)
    assert {stem.rstrip("|") for stem in CASES} | {"call"} == set(grammars)
    for stem in grammars.keys() - {"call"}:
        assert {word for slot in grammars[stem].slots for word in slot.words} <= seen.get(stem, set()) | {
            "param::func"
        }, stem  # its call is not there


def test_every_order_is_read_as_the_manuals() -> None:
    """Modifiers in other orders give the same instruction: what runs is the same."""
    by_spelling: dict[Any, set[str]] = {}
    orders = 0
    for line in accepted():
        if line.startswith("{"):
            continue
        item = parse(module([line], *PAIRS[0])).syntax.functions["tried"].body[0]
        head, _, operands = line.partition(" ")
        by_spelling.setdefault((spelling(head), operands), set()).add(item.opcode)
        orders += head != item.opcode
        assert known(item.opcode).opcode == item.opcode
    assert all(len(opcodes) == 1 for opcodes in by_spelling.values())
    assert orders > 1500


@pytest.mark.parametrize("schedule", ["late", "early", 1, 2, 3])
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("vote.sync.ballot.b32 %r2, %p, -1;", 0xFAFAFAFA),
        ("vote.ballot.sync.b32 %r2, %p, -1;", 0xFAFAFAFA),
        ("vote.b32.sync.ballot %r2, %p, -1;", 0xFAFAFAFA),
        ("vote.any.sync.pred %q, %p, -1; selp.b32 %r2, 1, 0, %q;", 1),
        ("vote.pred.all.sync %q, %p, -1; selp.b32 %r2, 1, 0, %q;", 0),
        ("vote.uni.sync.pred %q, %p, -1; selp.b32 %r2, 1, 0, %q;", 0),
        ("shfl.idx.sync.b32 %r2, %r0, 5, 31, -1;", 5),
        ("match.sync.any.b32 %r2, 7, -1;", 0xFFFFFFFF),
        ("match.b32.all.sync %r2|%q, 7, -1;", 0xFFFFFFFF),
        ("mov.u32 %r2, 3; mad.lo.u32 %r2, %r2, 5, 1;", 16),
        ("setp.u32.and.lt %q, 1, 2, true_; selp.b32 %r2, 8, 9, %q;", 8),
        ("atom.u32.add.sys.relaxed.global %r2, [%d3], 0;", 77),
        ("ld.u32.sys.mmio.global.relaxed %r2, [%d3];", 77),
        ("ld.v2.b32.global {%r2, _}, [%d3];", 77),
        ("mov.u32.v4 {%r2, _, _, _}, %ntid;", 32),
        ("mov.v4.u32 {_, _, _, %r2}, %ntid;", 0),
        ("mov.u32 %r1, 6; mov.u32 %r2, 7; mov.b32.v2 {%r1, %r2}, {%r2, %r1};", 6),
        ("prmt.f4e.b32 %r2, 0x33221100, 0, 1;", 0x00332211),
    ],
)  # fmt: skip
def test_other_orders_compute_the_same(statement: str, expected: int, schedule: Any) -> None:
    text = (
        ".version 8.2\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n"
        ".reg .pred %p, %q, true_; .reg .b32 %r<5>; .reg .b64 %d<5>;\n"
        "ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 5; setp.ne.u32 %p, %r1, 0; setp.eq.u32 true_, 1, 1;\n"
        f"add.s64 %d3, %d0, 128;\n{statement}\n"
        "mul.wide.u32 %d1, %r0, 4; add.s64 %d2, %d0, %d1; st.global.u32 [%d2], %r2; ret; }\n"
    )
    memory = Memory()
    out = memory.allocate(256)
    memory.write(out + 128, np.full(8, 77, np.uint32).view(np.uint8))
    run = parse(text).kernel().launch(memory, [out], block=(32, 1, 1), schedule=schedule)
    assert run.completed and not run.errors
    assert (memory.read(out, 128).view(np.uint32) == expected).all()


# --- versions


def refused(text: str) -> str:
    with pytest.raises(PtxError) as caught:
        parse(text)
    assert caught.value.line > 0, caught.value
    return str(caught.value)


def test_a_target_needs_its_version() -> None:
    """Each with the version that has it, and none with the one before."""
    versions = {**OLDER, **{name: target.ptx_version for name, target in TARGETS.items()}}
    for target, version in versions.items():
        text = ".version {}\n.target " + target + "\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
        assert parse(text.format(version)).kernel().target == target
        earlier = PTX_ISA[PTX_ISA.index(version) - 1]
        assert f".target {target} needs .version {version} or later; the module has {earlier}" in refused(
            text.format(earlier)
        )
    assert len(versions) > 35


@pytest.mark.parametrize("version", ["5.2", "6.6", "7.9", "8.9", "9.6", "7.10", "10.0"])
def test_versions_that_do_not_exist(version: str) -> None:
    assert f"no .version {version}" in refused(f".version {version}\n.target sm_90\n")


@pytest.mark.parametrize(
    ("version", "target", "statement", "needed"),
    [
        ("8.6", "sm_89", "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%r0,%r1}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r6,%r7};", "8.7"),
        ("8.3", "sm_89", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};", "8.4"),
        ("8.1", "sm_90", "ld.mmio.relaxed.sys.global.u32 %r0, [%d0];", "8.2"),
        ("9.2", "sm_90", "ld.mmio.acquire.sys.global.u32 %r0, [%d0];", "9.3"),
        ("7.7", "sm_80", "ld.shared::cta.u32 %r0, [%r1];", "7.8"),
        ("6.5", "sm_75", "tanh.approx.f32 %f0, %f1;", "7.0"),
        ("8.7", "sm_100", "max.f32 %f0, %f1, %f2, %f3;", "8.8"),
        ("8.0", "sm_90", "fma.rn.oob.f16x2 %r0, %r1, %r2, %r3;", "8.1"),
        ("7.4", "sm_80", "cp.async.ca.shared.global [%r0], [%d0], 4, %p;", "7.5"),
        ("8.8", "sm_100", "st.bulk.weak.shared::cta [%d0], %r0, 0;", "9.0"),
        ("8.0", "sm_90", "mov.u32 %r0, %aggr_smem_size;", "8.1"),
        ("8.2", "sm_90", ".reg .b128 %q;", "8.3"),
        ("6.3", "sm_75", "redux.sync.add.s32 %r0, %r1, %r2;", "7.0"),
    ],
)  # fmt: skip
def test_an_instruction_needs_its_version(version: str, target: str, statement: str, needed: str) -> None:
    """Refused with the version before, with line and what would do; taken with it, where the target has it."""
    text = (
        ".version {}\n.target "
        + target
        + "\n.address_size 64\n.visible .entry k() {{ .reg .pred %p; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>;\n{}\nret; }}\n"
    )
    message = refused(text.format(version, statement))
    assert "line 5" in message and f"needs .version {needed} or later; the module has {version}" in message
    assert parse(text.format(needed, statement)).kernel().target == target


@pytest.mark.parametrize("directive", [".explicitcluster", ".reqnctapercluster 2, 1, 1", ".maxclusterrank 4"])
def test_a_directive_needs_its_version(directive: str) -> None:
    text = ".version {}\n.target sm_80\n.address_size 64\n.visible .entry k() " + directive + " {{ ret; }}\n"
    assert "needs .version 7.8" in refused(text.format("7.7"))
    assert parse(text.format("7.8"))


# --- declarations


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (".reg .b32 %x; .reg .b64 %x;", ".reg .b32 %x; { .reg .b64 %x; }"),
        (".reg .b32 %r<9>; .reg .b32 %r3;", ".reg .b32 %r<9>; .reg .b32 %r9;"),
        (".reg .b32 %r3; .reg .b32 %r<9>;", ".reg .b32 %r9; .reg .b32 %r<9>;"),
        (".reg .b32 %r<9>; .reg .b32 %r<4>;", ".reg .b32 %r<9>; .reg .b32 %s<4>;"),
        (".reg .b32 %r<9>; .reg .b32 %r03;", ".reg .b32 %r<9>; .reg .b32 %r09;"),
        (".reg .b32 x; x:", ".reg .b32 x; { x: }"),
        (".reg .b32 x; .shared .b32 x;", ".reg .b32 x; { .shared .b32 x; }"),
        (".shared .b32 x; .local .b32 x;", ".shared .b32 x; { .local .b32 x; }"),
        ("x: x:", "x: { x: }"),
        (".reg .b32 a;", "{ .reg .b32 a; }"),
        (".shared .b32 a;", "{ .shared .b32 a; }"),
        (".reg .v2 .b32 %x; .reg .b32 %x;", ".reg .v2 .b32 %x; .reg .b32 %y;"),
        ("l: t: .branchtargets l; t:", "l: t: .branchtargets l;"),
    ],
)  # fmt: skip
def test_names_are_declared_once_in_a_block(wrong: str, right: str) -> None:
    text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a) {{\n{}\nret; }}\n"
    assert "is declared twice in one block" in refused(text.format(wrong))
    assert parse(text.format(right)).kernel().name == "k"


@pytest.mark.parametrize(
    ("wrong", "says", "right"),
    [
        (".entry k(.param .u32 a, .param .u32 a) { ret; }", "declared twice", ".entry k(.param .u32 a, .param .u32 b) { ret; }"),
        (".func (.param .b32 a) f(.param .b32 a) { ret; }", "declared twice", ".func (.param .b32 b) f(.param .b32 a) { ret; }"),
        (".entry k() { ret; } .entry k() { ret; }", "two bodies", ".entry k(); .entry k() { ret; }"),
        (".func f() { ret; } .func f();", "two bodies", ".func f(); .func f() { ret; }"),
        (".func f(.param .u32 a); .func f(.param .b32 a) { ret; }", "other parameters", ".func f(.param .u32 b); .func f(.param .u32 a) { ret; }"),
        (".func f(); .func (.param .b32 a) f() { ret; }", "other results", ".func (.param .b32 b) f(); .func (.param .b32 a) f() { ret; }"),
        (".entry f(); .func f() { ret; }", "an entry and a function", ".entry f(); .entry f() { ret; }"),
        (".extern .global .b32 g; .global .b64 g;", "another type", ".extern .global .b32 g[]; .global .b32 g[4];"),
        (".func f() { ret; } .func g(); .alias g, f; .alias g, f;", "an alias already", ".func f() { ret; } .func g(); .alias g, f;"),
        (".version 8.0", "stands once", ""),
        (".target sm_90", "stands once", ""),
    ],
)  # fmt: skip
def test_a_module_says_a_thing_once(wrong: str, says: str, right: str) -> None:
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    assert says in refused(head + wrong)
    assert parse(head + right)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ld.shared.b32 %r0, [g];", "ld.global.b32 %r0, [g];"),
        ("ld.global.b32 %r0, [s];", "ld.b32 %r0, [s];"),
        ("ld.b32 %r0, [a];", "ld.param.b32 %r0, [a];"),
        ("st.param.b32 [a], %r0;", "st.param.b32 [p], %r0;"),
        ("ld.param::func.b32 %r0, [a];", "ld.param::entry.b32 %r0, [a];"),
        ("ld.param::entry.b32 %r0, [p];", "ld.param.b32 %r0, [a];"),
        ("ld.param::func.b32 %r0, [%d0];", "ld.param.b32 %r0, [%d0];"),
        ("atom.global.add.u32 %r0, [s], 1;", "atom.shared.add.u32 %r0, [s], 1;"),
    ],
)  # fmt: skip
def test_a_named_variable_lies_in_the_state_space_of_its_access(wrong: str, right: str) -> None:
    text = (
        ".version 8.3\n.target sm_90\n.address_size 64\n.global .b32 g;\n.visible .entry k(.param .b32 a) {{ .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
        ".shared .b32 s; .param .b32 p;\n{}\nret; }}\n"
    )
    assert "line 7" in refused(text.format(wrong))
    assert parse(text.format(right)).kernel().name == "k"


def test_operands_choose_the_form() -> None:
    """cp.async with a predicate leaves its source out: it is not taken for a number of bytes."""
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a) {{ .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d<3>;\n"
        ".shared .align 16 .b8 s[16]; ld.param.u64 %d0, [a]; mov.u32 %r0, s; setp.eq.u32 %p, {}, 1;\n"
        "cp.async.ca.shared.global [%r0], [%d0], 4, %p; cp.async.wait_all; ld.shared.u32 %r1, [%r0]; st.global.u32 [%d0+4], %r1; ret; }}\n"
    )
    for ignored in (0, 1):
        memory = Memory()
        at = memory.allocate(np.uint32([5, 9]).view(np.uint8))
        assert parse(text.format(ignored)).kernel().launch(memory, [at]).completed
        assert memory.read(at, 8).view(np.uint32).tolist() == [5, 0 if ignored else 5]


def test_errors_say_what_is_valid() -> None:
    for line, says in (
        ("ld.release.gpu.b32 %r0, [%d0];", "no modifier .release; nearest"),
        ("ld.relaxed.b32 %r0, [%d0];", ".relaxed without one of cluster, cta, gpu, sys"),
        ("ld.shared.nc.b32 %r0, [%r1];", ".nc without one of global"),
        ("ld.global.global.b32 %r0, [%d0];", "valid: one of"),
        ("vote.sync.ballot.pred %p0, %p1, %r0;", ".ballot without one of b32"),
        ("atom.global.inc.u64 %d0, [%d1], %d2;", "no operation inc.u64; nearest"),
        ("vote.ballot.sync.b32 %r0, %p1;", "2 operands; valid: 3"),
        ("ld.global.L2::cache_hint.b32 %r0, [%d0];", "2 operands; valid: 3"),
        ("st.global.b32 [%d0], %r0, %d1;", "3 operands; valid: 2"),
        ("atom.global.cas.b32 %r0, [%d0], %r1;", "3 operands; valid: 4"),
        ("mov.v2.b32 {%r0, %r1}, %d0;", "operand 2 is not a vector"),
        ("ld.global.v4.b32 {%r0, %r1}, [%d0];", "valid: a vector of 4 registers"),
        ("st.global.v2.b32 [%d0], %r0;", "operand 2 is not a vector"),
        ("add.u32 %r0, %r1;", "1 sources; valid: 2"),
    ):
        message = refused(module([line], *PAIRS[0]))
        assert f"line {HEAD + 1}, column 1" in message and says in message, message


def test_what_the_table_leaves_out() -> None:
    """Vectors of eight narrow elements: ptxas takes some and crashes on others."""
    assert crashes("ld.global.v8.b16 {%h0}, [%d0];") and not crashes("ld.global.v8.b32 {%r0}, [%d0];")
    assert not any(map(crashes, table()))


def test_a_target_that_lacks_an_instruction_is_an_error_of_the_launch() -> None:
    text = module(["redux.sync.add.s32 %r0, %r1, %r2;"], "7.0", "sm_75").replace("TARGETS: .branchtargets END;", "")
    with pytest.raises(LaunchError, match="sm_75 does not have this instruction"):
        parse(text).kernel().launch(Memory(), [bytes(64)])
    assert isinstance(parse(text).syntax.functions["tried"].body[0], Instruction)
