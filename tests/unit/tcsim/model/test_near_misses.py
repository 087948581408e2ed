"""Mnemonics one edit away from valid ones: what ptxas refuses, tcsim refuses, and what the one takes, the other takes.

The edits and the operands that go with them are made from the registry's rows, so a family added later is covered too.
Like the tests of the assemblers these need ptxas 13.5 or later and ptxas 12.9, and fail without them.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import pytest

import tcsim
from hwkernels.device.sass import code_sha256
from hwkernels.device.toolchain import AssembleError, Assembly, Job, assemble, assemble_many, toolchain_for
from hwkernels.probes import body_of
from hwkernels.probes.probe import emit, kernel_name
from tcsim import catalog
from tcsim.core.errors import InstructionError
from tcsim.core.targets import TARGETS
from tcsim.model.row import Row

NEAR_MISSES = 2600  # and as many valid pairs
FORMS = 6  # operand forms tried for each near miss
HEAD = 5  # lines of a module before its first instruction

# What a word of a mnemonic is. The first pattern that fits counts.
KINDS = {
    "shape": r"m\d+n\d+(k\d+)?",
    "type": r"((bf|tf|[subf])\d+|u?e\d+m\d+)(x\d)?|s\df\dx2|b\d+x\d+_p\d+",
    "layout": r"row|col",
    "number": r"x\d+",
    "kind": r"(kind|scaled)::[\w:]+",
    "saturation": r"satfinite|sat|relu|ftz",
    "rounding": r"r[nzmpas]i?|rna",
    "bits": r"xor|and|popc",
    "space": r"(shared|global|local)(::\w+)?",
    "sync": r"sync|aligned|mma_async",
    "operand": r"[abcd]",
    "other": r".*",
}
# Words that are put where they do not belong, beside those of the family's own rows.
EXTRA = {
    "mma.sync": ("satfinite", "rn", "trans", "x2", "shared", "relu"),
    "mma.sp": ("satfinite", "rn", "trans", "x2", "shared", "relu"),
    "ldmatrix": ("trans", "x3", "x8", "global", "satfinite", "row"),
    "stmatrix": ("trans", "x3", "x8", "global", "satfinite", "row"),
    "wmma.load": ("trans", "x4", "rn", "satfinite", "local"),
    "wmma.store": ("trans", "x4", "rn", "satfinite", "local"),
    "wmma.mma": ("trans", "x4", "rn", "satfinite", "kind::f8f6f4", "and", "shared"),
    "wgmma": ("satfinite", "row", "trans", "rn", "kind::f16", "x2"),
    "movmatrix": ("trans", "x2", "x4", "shared", "satfinite", "row", "m16n16", "m8n16", "b8", "b32"),
    "cvt": ("satfinite", "relu", "rn", "rz", "rna", "rs", "sync", "trans"),
}
EXTRA_ELSEWHERE = ("satfinite", "trans", "x2", "relu", "rn")
# Where the registry has a part of what PTX calls by a name, what belongs to it: an ordinary conversion is no near miss.
SCOPE = {"cvt": r"tf32|\w+x[24]"}
SUBSTITUTED = ("shape", "type", "layout", "number", "kind", "saturation", "rounding", "bits", "space", "operand")


def kind_of(word: str) -> str:
    """The kind of a word of a mnemonic."""
    return next(kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, word))


# --- what the assembler does not mind


@dataclass(frozen=True)
class Tolerated:
    """A habit of ptxas 13.5 (or 12.9): it takes other spellings for a plain one, and emits the same machine code.

    The registry has the plain spelling, which is the manual's; `tcsim.instruction` refuses the others. Another order of the
    modifiers is not one of them: tcsim takes it too (tests/unit/tcsim/model/test_spellings.py).
    """

    why: str
    name: str  # pattern of the mnemonics' beginnings
    words: str  # pattern of the words that it does not mind ...
    read_as: str  # ... and what it takes them for; empty: nothing
    beside: str  # pattern of a word that must be among them; empty: any
    spelling: str  # an example, ...
    plain: str  # ... what it is taken for, ...
    target: str  # ... and where


TOLERATED = (
    Tolerated("modifiers may be repeated", ".*", "", "", "",
              "mma.sync.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
              "sm_90"),
    Tolerated("any .kind that the target has will do for fp8 operands", r"mma\.", r"kind::\w+", "kind", "e[45]m[23]",
              "mma.sync.aligned.kind::f16.m16n8k32.row.col.f32.e4m3.e4m3.f32",
              "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_110a"),
    Tolerated("an operation on bits may stand beside int4 operands", r"mma\.", "xor|and|popc", "", "[su]4",
              "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32.xor.popc", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
              "sm_80"),
    Tolerated(".x8 and greater are taken for .x1, with a vector of 1, 2 or 4 registers", "(ld|st)matrix", r"x(8|\d{2,})", "x1",
              "", "ldmatrix.sync.aligned.m8n8.x8.shared.b16", "ldmatrix.sync.aligned.m8n8.x1.shared.b16", "sm_90"),
    Tolerated(".row and .col may stand where there is no matrix product", "(ld|st|mov)matrix|wgmma", "row|col", "", "",
              "movmatrix.sync.aligned.row.m8n8.trans.b16", "movmatrix.sync.aligned.m8n8.trans.b16", "sm_90"),
    Tolerated(".f32 is taken for .s32 in the shapes of int4 and b1", r"wmma\.(load\.c|store\.d)", "f32", "s32",
              "m8n8k(32|128)", "wmma.store.d.sync.aligned.row.m8n8k128.global.f32",
              "wmma.store.d.sync.aligned.row.m8n8k128.global.s32", "sm_80"),
    Tolerated("a missing type is taken for .f16 (by ptxas 12.9)", r"wmma\.load\.[ab]", "f16", "", "",
              "wmma.load.b.sync.aligned.col.m16n16k16.global", "wmma.load.b.sync.aligned.col.m16n16k16.global.f16", "sm_70"),
    Tolerated("a state space may stand beside a one-way proxy fence", r"fence\.proxy\.((shared|global|local)\S*\.)?(tensormap|async)::generic",
              r"(shared|global|local)(::\w+)?", "", "", "fence.proxy.tensormap::generic.release.gpu.global",
              "fence.proxy.tensormap::generic.release.gpu", "sm_90"),
    Tolerated(".aligned may be missing", "wgmma", "aligned", "", "", "wgmma.mma_async.sync.m64n8k16.f32.bf16.bf16",
              "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", "sm_90a"),
    Tolerated(".global may be missing", "applypriority", "global", "", "",
              "applypriority.async.bulk.tensor.1d.tile.bulk_group.L2::evict_normal",
              "applypriority.async.bulk.tensor.1d.global.tile.bulk_group.L2::evict_normal", "sm_107a"),
    Tolerated("a missing dimension is taken for .1d", "applypriority", "1d", "", "tile::gather4",
              "applypriority.async.bulk.tensor.global.tile::gather4.bulk_group.L2::evict_normal",
              "applypriority.async.bulk.tensor.1d.global.tile::gather4.bulk_group.L2::evict_normal", "sm_107a"),
)  # fmt: skip


def reading(mnemonic: str) -> tuple[object, ...]:
    """A mnemonic as ptxas takes it: types and layouts in order, other words in any, without what it does not mind."""
    name, *words = mnemonic.split(".")
    habits = [
        habit
        for habit in TOLERATED
        if re.match(habit.name, mnemonic)
        and (not habit.beside or any(re.fullmatch(habit.beside, word) for word in words))
    ]
    for habit in habits:
        words = [habit.read_as if re.fullmatch(habit.words, word) else word for word in words]
    in_order = tuple(word for word in words if kind_of(word) in ("type", "layout"))
    return name, in_order, frozenset(words) - set(in_order) - {""}


# --- near misses


@dataclass(frozen=True)
class Pair:
    """A spelling of a family and a target."""

    family: str
    mnemonic: str
    target: str


@cache
def families() -> dict[str, tuple[Row, ...]]:
    """The rows of each family that assemble to something."""
    names = dict.fromkeys(row.family for row in catalog.rows().values())
    return {name: tuple(r for r in catalog.rows().values() if r.family == name and not r.dropped) for name in names}


@cache
def vocabulary(family: str) -> dict[str, tuple[str, ...]]:
    """The words of a family's mnemonics by kind, the extra ones, and shapes with one number doubled or halved."""
    words = {word for row in families()[family] for word in row.mnemonic.split(".")[1:]}
    words |= set(EXTRA.get(family, EXTRA_ELSEWHERE))
    for shape in [word for word in words if kind_of(word) == "shape"]:
        numbers = [int(number) for number in re.findall(r"\d+", shape)]
        for i, number in enumerate(numbers):
            for other in (2 * number, number // 2):
                changed = [*numbers[:i], other, *numbers[i + 1 :]]
                words.add("".join(letter + str(n) for letter, n in zip("mnk", changed, strict=False)))
    return {kind: tuple(sorted(word for word in words if kind_of(word) == kind)) for kind in KINDS}


def edited(row: Row, choose: random.Random) -> tuple[str, str]:
    """One edit of a row: (mnemonic, target)."""
    words, known = row.mnemonic.split("."), vocabulary(row.family)
    target = choose.choice(row.targets)
    at = choose.randrange(1, len(words))
    match choose.choice(("substitute", "substitute", "substitute", "remove", "insert", "target")):
        case "substitute":
            places = [i for i in range(1, len(words)) if kind_of(words[i]) in SUBSTITUTED]
            if places:
                at = choose.choice(places)
                words[at] = choose.choice(known[kind_of(words[at])])
        case "remove":
            del words[at]
        case "insert":
            kind = choose.choice([kind for kind in SUBSTITUTED if known[kind] and kind != "type"])
            words.insert(at + 1, choose.choice(known[kind]))
        case "target":
            target = choose.choice(tuple(TARGETS))
    return ".".join(words), target


@cache
def near_misses() -> tuple[Pair, ...]:
    """Different spellings that are no instruction of their target, an equal share of each family where it has so many."""
    taken: dict[tuple[object, ...], set[str]] = {}
    for row in catalog.rows().values():
        taken.setdefault(reading(row.mnemonic), set()).update(row.targets)

    def of_family(name: str) -> Iterator[Pair]:
        choose, seen = random.Random(f"near misses of {name}"), set()
        for _ in range(100_000):
            mnemonic, target = edited(choose.choice(families()[name]), choose)
            inside = any(re.fullmatch(SCOPE.get(name, ".*"), word) for word in mnemonic.split("."))
            if inside and target not in taken.get(reading(mnemonic), ()) and (mnemonic, target) not in seen:
                seen.add((mnemonic, target))
                yield Pair(name, mnemonic, target)

    return shared_out({name: of_family(name) for name in families()})


@cache
def valid_pairs() -> tuple[Pair, ...]:
    """As many valid pairs, likewise."""

    def of_family(name: str) -> Iterator[Pair]:
        pairs = [Pair(name, row.mnemonic, target) for row in families()[name] for target in row.targets]
        random.Random(f"valid pairs of {name}").shuffle(pairs)
        return iter(pairs)

    return shared_out({name: of_family(name) for name in families()})


def shared_out(sources: dict[str, Iterator[Pair]]) -> tuple[Pair, ...]:
    """The first pairs of each source in turn, until there are enough."""
    pairs: list[Pair] = []
    while sources and len(pairs) < NEAR_MISSES:
        for name in list(sources):
            pair = next(sources[name], None)
            if pair is None:
                del sources[name]
            else:
                pairs.append(pair)
    return tuple(pairs[:NEAR_MISSES])


# --- what the assembler says


@dataclass(frozen=True)
class Form:
    """Operands of an instruction, and the declarations that they need."""

    declarations: tuple[str, ...]
    operands: str

    def line(self, mnemonic: str) -> str:
        """One line of PTX, in a scope of its own."""
        return f"{{ {' '.join(self.declarations)} {mnemonic} {self.operands} }}"


def forms_of(row: Row) -> Iterator[Form]:
    """The operand forms of a row, as its probes have them."""
    for variant in body_of(row).variants(row):
        lines = [line.strip() for line in body_of(row).kernel(row, "probe", variant).splitlines()]
        own = re.compile(rf"(?:@\S+ )?{re.escape(row.mnemonic)}(?= |;)(.*)")  # perhaps by one thread only
        found = dict.fromkeys(match[1].strip() for line in lines if (match := own.match(line)))
        assert found, f"the probe of {row.mnemonic} has no line of its own"
        for operands in found:
            names = {name.rstrip("0123456789") for name in re.findall(r"%\w+", operands)} | set(
                re.findall(r"%?\w+", operands)
            )
            declarations = (line for line in lines if re.match(r"\.(reg|shared)\b", line))
            needed = (line for line in declarations if names & set(re.findall(r"(%?\w+)(?=<|,|;|\[)", line)))
            yield Form(tuple(needed), operands)


@cache
def forms(family: str) -> dict[Form, tuple[frozenset[str], ...]]:
    """The operand forms of a family, each with the words of the mnemonics that have it."""
    table: dict[Form, list[frozenset[str]]] = {}
    for row in families()[family]:
        for form in forms_of(row):
            table.setdefault(form, []).append(frozenset(row.mnemonic.split(".")))
    return {form: tuple(words) for form, words in table.items()}


def likely_forms(pair: Pair) -> list[Form]:
    """The operand forms of the mnemonics that share most words with a spelling."""
    words = frozenset(pair.mnemonic.split("."))
    table = forms(pair.family)
    return sorted(table, key=lambda form: min(len(words ^ other) for other in table[form]))[:FORMS]


def all_forms(pair: Pair) -> list[Form]:
    """Every operand form of a family, and those with one vector of registers in other lengths and types."""
    table = dict.fromkeys(forms(pair.family))
    for form in list(table):
        vectors = re.findall(r"\{(%\w+?)0[^}]*\}", form.operands)
        if len(vectors) == 1:
            (name,) = vectors
            others = tuple(line for line in form.declarations if f" {name}<" not in line)
            for kind, length in product((".b32", ".f32", ".s32", ".f64"), (1, 2, 4, 8)):
                vector = ", ".join(f"{name}{i}" for i in range(length))
                operands = re.sub(r"\{[^}]*\}", f"{{{vector}}}", form.operands)
                table[Form((*others, f".reg {kind} {name}<{length}>;"), operands)] = None
    return list(table)


@cache
def newest_version(target: str) -> str:
    """The newest `.version` of the target's assembler."""
    with pytest.raises(AssembleError) as refused:
        assemble(".version 99.0\n", target)
    found = re.search(r"current version is '([\d.]+)'", refused.value.log)
    assert found, refused.value.log
    return found[1]


def module(target: str, lines: Sequence[str]) -> str:
    """A kernel of instructions that nothing depends on."""
    head = (f".version {newest_version(target)}", f".target {target}", ".address_size 64", ".visible .entry all()", "{")
    assert len(head) == HEAD
    return "\n".join((*head, *lines, "ret;", "}", ""))


def complaints(target: str, lines: Sequence[str]) -> dict[int, list[str]]:
    """What ptxas says of each line that it refuses.

    It names every wrong line, but looks for some errors only where there are none of others: so the rest is assembled
    again until nothing is wrong with it. Where it names none, because it crashed or failed at what it made of a line,
    each half is assembled by itself.
    """
    refused: dict[int, list[str]] = {}
    left = list(range(len(lines)))
    while left:
        (made,) = assemble_many([Job(module(target, [lines[i] for i in left]), target, allow_notes=True)])
        if isinstance(made, Assembly):
            break
        assert isinstance(made, AssembleError), made
        crashed = "(exit status -" in made.summary  # then the log is cut short, perhaps inside a line
        named = [] if crashed else re.findall(r"kernel\.ptx, line (\d+); (?:error|fatal)\s*: (.*)", made.log)
        if not named and len(left) == 1:
            refused[left[0]] = ["the assembler crashes" if crashed else made.log]
        elif not named:
            for half in (left[: len(left) // 2], left[len(left) // 2 :]):
                refused |= {half[i]: texts for i, texts in complaints(target, [lines[i] for i in half]).items()}
            break
        for number, text in named:
            refused.setdefault(left[int(number) - HEAD - 1], []).append(text)
        left = [i for i in left if i not in refused]
    return refused


ABOUT_OPERANDS = re.compile(r"[Aa]rgument|vector size")


def refusals(pairs: Sequence[Pair], with_forms: Callable[[Pair], list[Form]]) -> dict[Pair, list[list[str]]]:
    """What the assembler of a target says of each spelling with each operand form."""
    asked = [(pair, form) for pair in pairs for form in with_forms(pair)]
    refused = complaints(pairs[0].target, [form.line(pair.mnemonic) for pair, form in asked]) if pairs else {}
    said: dict[Pair, list[list[str]]] = {pair: [] for pair in pairs}
    for i, (pair, _) in enumerate(asked):
        said[pair].append(refused.get(i, []))
    return said


def refusal(pair: Pair, said: list[list[str]]) -> list[str]:
    """All that is said of a spelling that is refused with each form."""
    assert said
    assert all(said), f"ptxas takes {pair.mnemonic} for {pair.target}, and the registry does not have it"
    return [text for texts in said for text in texts]


@pytest.fixture
def no_suggestions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the search for the nearest spellings, which takes most of the time of a refusal."""
    monkeypatch.setattr(catalog, "nearest", lambda word, choices, count=3: [])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.usefixtures("no_suggestions")
def test_near_misses_are_refused_by_both(target: str) -> None:
    """Every near miss of a target, with whatever operands, is an error for ptxas, and tcsim has no such instruction."""
    wanted = [pair for pair in near_misses() if pair.target == target]
    said = {pair: refusal(pair, texts) for pair, texts in refusals(wanted, likely_forms).items()}
    # a spelling whose only fault is its operands might be right with others
    doubtful = [pair for pair, texts in said.items() if all(ABOUT_OPERANDS.search(text) for text in texts)]
    said |= {pair: refusal(pair, texts) for pair, texts in refusals(doubtful, all_forms).items()}
    for pair in wanted:
        with pytest.raises(InstructionError, match=re.escape(f'tcsim.instruction("{pair.mnemonic}", arch="{target}")')):
            ask(pair.mnemonic, target)
    assert len(said) == len(wanted) > 0


def ask(mnemonic: str, target: str) -> None:
    """`tcsim.instruction`, where `sm_90` means the target and not the arch that runs sm_90a code too."""
    instruction = tcsim.instruction(mnemonic, arch=target)
    if target not in instruction.row.targets:
        raise InstructionError(f'tcsim.instruction("{mnemonic}", arch="{target}"): only on {instruction.targets}')


@pytest.mark.parametrize("target", TARGETS)
def test_valid_pairs_are_taken_by_both(target: str) -> None:
    """The other side of the same coin: what the registry has for a target, ptxas assembles."""
    wanted = [pair for pair in valid_pairs() if pair.target == target]
    lines = [next(forms_of(catalog.rows()[pair.mnemonic])).line(pair.mnemonic) for pair in wanted]
    refused = complaints(target, lines)
    assert {lines[i]: texts for i, texts in refused.items()} == {}
    for pair in wanted:
        instruction = tcsim.instruction(pair.mnemonic, arch=target)
        assert instruction.mnemonic == pair.mnemonic
        assert target in instruction.targets
    assert len(wanted) > 0


def test_there_are_enough_of_them() -> None:
    """At least 2,000 near misses and as many valid pairs, different ones, over all families and targets."""
    for pairs in (near_misses(), valid_pairs()):
        assert len(set(pairs)) == len(pairs) == NEAR_MISSES
        assert {pair.family for pair in pairs} == set(families())
        assert {pair.target for pair in pairs} == set(TARGETS)
    assert not {(p.mnemonic, p.target) for p in near_misses()} & {(p.mnemonic, p.target) for p in valid_pairs()}
    wrong_target = [pair for pair in near_misses() if pair.mnemonic in catalog.rows()]
    assert len(wrong_target) > NEAR_MISSES // 20
    assert len({pair.mnemonic for pair in near_misses()}) > NEAR_MISSES // 2


def test_the_suggestions_of_a_refusal_are_valid() -> None:
    """The error names spellings that exist: asked here of a few near misses, with the search that the others leave out."""
    spelled_wrong = [pair for pair in near_misses() if pair.mnemonic not in catalog.rows()][:: NEAR_MISSES // 20]
    for pair in spelled_wrong:
        with pytest.raises(InstructionError) as refused:
            tcsim.instruction(pair.mnemonic, arch=pair.target)
        nearest = str(refused.value).split("nearest: ")[1].partition(";")[0].split(", ")
        assert len(nearest) == 3
        assert set(nearest) <= set(catalog.rows())
    assert len(spelled_wrong) > 10


@pytest.mark.parametrize("habit", TOLERATED, ids=lambda habit: habit.spelling)
def test_spellings_that_only_the_assembler_tolerates(habit: Tolerated) -> None:
    """ptxas makes the same machine code of them as of the plain spelling; the registry has the plain spelling alone."""
    assert reading(habit.spelling) == reading(habit.plain)
    row = catalog.rows()[habit.plain]
    texts = [emit(row, habit.target).replace(".reg .s32", ".reg .b32")]  # untyped registers suit both
    texts.append(re.sub(rf" {re.escape(habit.plain)}(?=[ ;])", f" {habit.spelling}", texts[0]))
    assert texts[0] != texts[1]
    name = f".text.{kernel_name(row, body_of(row).variants(row)[0])}"
    plain, tolerated = (code_sha256(assemble(text, habit.target).cubin, name) for text in texts)
    assert plain == tolerated
    with pytest.raises(InstructionError, match="no such instruction"):
        tcsim.instruction(habit.spelling, arch=habit.target)


def test_complaints_name_the_wrong_lines() -> None:
    """Among right ones, also where errors are of different kinds and where the assembler crashes."""
    right = "{ .reg .b32 %a<1>; .reg .b32 %d<1>; movmatrix.sync.aligned.m8n8.trans.b16 %d0, %a0; }"
    lines = [
        right,
        right.replace("m8n8", "m8n9"),  # an unknown word
        right,
        "{ .reg .b32 %a<4>; mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "  # no metadata: ptxas 13.5 crashes
        "{%a0, %a1}, {%a0, %a1}, {%a0, %a1}, {%a0, %a1}; }",
        right.replace("%a0", "%a1"),  # an unknown register
    ]
    assert sorted(complaints("sm_90", lines)) == [1, 3, 4]


def test_the_assemblers_are_there() -> None:
    """Each target has one."""
    assert Counter(toolchain_for(target).version.split(".")[0] for target in TARGETS)["12"] == 2
