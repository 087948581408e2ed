"""The mutation matrix: its mutants are what they say, the order of accesses tells equivalent ones from others, and a share of it is judged."""

from __future__ import annotations

from collections import Counter

import pytest

from tcsim.ptx import Memory, parse
from tcsim.ptx.machine.cluster import Cluster
from tests.hazards.matrix import page
from tests.hazards.matrix.history import Recorder
from tests.hazards.matrix.statements import Text
from tests.hazards.matrix.subjects import subjects
from tests.hazards.matrix.verdicts import (
    NAMED,
    REFUSED,
    SILENT,
    Verdict,
    every,
    executed,
    judged,
    originals,
    text_of,
)
from tests.support.ptx_copies import text

RECORDED = ("tma_ring", "gluon_mma", "gluon_roles", "multicast")  # they need no NVRTC


@pytest.mark.parametrize("name", RECORDED)
def test_a_statement_is_what_the_reader_says(name: str) -> None:
    own = text_of(subjects()[name])
    assert len(own.statements) == len(own.function.body) > 40
    for statement in own.statements:
        said, operands = own.parts(statement)
        assert said.split()[-1].rstrip(";") == statement.item.opcode, said
        assert said.startswith("@") == (statement.item.predicate is not None)
        assert len(operands) == len(statement.item.operands) or statement.item.opcode.startswith("call")


@pytest.mark.parametrize("name", RECORDED)
def test_a_mutant_keeps_every_line_but_one(name: str) -> None:
    """Deleted: one statement is gone. Moved: the same statements. Changed: one more, or one that is different. All at their lines."""
    subject = subjects()[name]
    before = [(own.opcode, own.line) for own in text_of(subject).function.body]
    kinds = Counter[str]()
    for mutant in every(subject)[:: 1 + len(every(subject)) // 20]:
        after = [(own.opcode, own.line) for own in parse(mutant.text).kernel(subject.entry).function.body]
        kinds[mutant.kind] += 1
        lost, more = Counter(before) - Counter(after), Counter(after) - Counter(before)
        assert lost.total() <= 1 and more.total() <= 1 and abs(len(after) - len(before)) <= 1, mutant
        assert mutant.text != subject.compiled.ptx and mutant.line in executed(subject)
        if "moved" in mutant.kind:
            assert len(after) == len(before) and {own for own, _ in lost} == {own for own, _ in more}
    assert len(kinds) >= 4


ORDER = """
    mov.u32 %r1, smem; setp.lt.u32 %p1, %r0, 32;
    @%p1 st.shared.u32 [%r1], 1;
    bar.sync 0;
    @!%p1 st.shared.u32 [%r1], 2;
    bar.sync 0;
    ld.shared.u32 %r2, [%r1+64]; ld.shared.u32 %r3, [%r1];
"""


def _signature(body: str) -> object:
    found: list[Recorder] = []

    def observe(cluster: Cluster) -> Recorder:
        found.append(Recorder(cluster))
        return found[-1]

    parse(text(".param .u64 unused", body, "sm_80")).kernel().launch(Memory(), [0], block=(64, 1, 1), observe=observe)
    return found[0].signature


@pytest.mark.parametrize(
    ("what", "other", "same"),
    [
        ("nothing", ("", ""), True),
        ("one more barrier", ("2;\n    bar.sync 0;", "2;\n    bar.sync 0; bar.sync 0;"), True),
        ("the reads before the writes", ("@%p1 st.shared.u32 [%r1], 1;", "ld.shared.u32 %r4, [%r1]; bar.sync 0; @%p1 st.shared.u32 [%r1], 1;"), False),
        ("another word", ("[%r1], 2", "[%r1+4], 2"), False),
        ("another warp", ("@!%p1", "@%p1"), False),
        ("no read", ("ld.shared.u32 %r3, [%r1];", ""), False),
        ("no write between others", ("@!%p1 st.shared.u32 [%r1], 2;", ""), False),
        ("a last write, which nobody reads", ("ld.shared.u32 %r3, [%r1];", "ld.shared.u32 %r3, [%r1]; bar.sync 0; @%p1 st.shared.u32 [%r1], 4;"), True),
        ("the same, with a read behind it", ("ld.shared.u32 %r3, [%r1];", "ld.shared.u32 %r3, [%r1]; bar.sync 0; @%p1 st.shared.u32 [%r1], 4; ld.shared.u32 %r4, [%r1];"), False),
        ("a write to a word that nobody else accesses", ("setp.lt.u32 %p1", "setp.eq.u32 %p1, %r0, 9; @%p1 st.shared.u32 [%r1+32], 3; setp.lt.u32 %p1"), True),
    ],
)  # fmt: skip
def test_pairs_of_conflicting_accesses(what: str, other: tuple[str, str], same: bool) -> None:
    assert (_signature(ORDER) == _signature(ORDER.replace(*other) if other[0] else ORDER)) is same


@pytest.mark.parametrize("name", RECORDED)
def test_a_share_of_the_matrix(name: str) -> None:
    """No mutant is silent, and each is named, or leaves all conflicting accesses in their order, or other bits whenever it runs."""
    subject = subjects()[name]
    assert all(own.ran.run.completed for own in originals(subject).values())
    found = [judged(subject, mutant) for mutant in every(subject)[3 :: 1 + len(every(subject)) // 5]]
    counts = Counter(own.verdict for own in found)
    assert counts[SILENT] == counts[REFUSED] == 0, [own for own in found if own.verdict == SILENT]
    assert counts[NAMED] >= 1 and len(found) >= 4


def test_the_text_of_a_kernel_is_found_where_lines_have_several_statements() -> None:
    source = text(".param .u64 unused", ORDER, "sm_80")
    own = Text(source, parse(source).kernel().function)
    at = next(found for found in own.statements if found.item.negated)
    assert own.source(at) == "@!%p1 st.shared.u32 [%r1], 2;"
    assert own.changed(at, "").count("\n") == source.count("\n")


def test_the_page_says_what_was_found() -> None:
    """Kernels of every generation, no mutant silent without a reason, few argued by hand, and the page as it is made."""
    found = page.verdicts()
    generations = {subjects()[own.subject].generation for own in found}
    assert len(found) > 2000 and generations == {"sm_80", "sm_89", "sm_90", "sm_100", "sm_120"}
    silent = [own for own in found if own.verdict == SILENT]
    assert all(page.reason(own) for own in silent) and len(silent) <= 0.05 * len(found)
    assert page.page() == page.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RECORDED)
def test_every_mutant_is_in_the_table(name: str) -> None:
    known = {own.key for own in page.verdicts() if own.subject == name}
    assert known == {Verdict(name, own.kind, own.line, own.what, "").key for own in every(subjects()[name])}


@pytest.mark.parametrize(("threads", "names"), [(64, set()), (32, {"BARRIER_COUNT"})])
def test_more_threads_than_a_barrier_is_for(threads: int, names: set[str]) -> None:
    """Where warps arrive together nothing waits for ever here; an H200 hangs."""
    body = f"bar.sync 1, {threads}; bar.sync 1, {threads};"
    run = parse(text(".param .u64 unused", body, "sm_80")).kernel().launch(Memory(), [0], block=(64, 1, 1))
    assert {own.name for own in run.errors} == names
