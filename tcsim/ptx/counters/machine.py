"""How often each machine instruction is executed: from its line of the PTX, how often that was, and the flow of control in the machine code.

A block of machine code is executed as often as warps come into it and leave it: that holds exactly. Instructions that ptxas never moves or doubles without need (memory,
barriers, matrices, branches) say how often their blocks are executed together; those that only compute may have been moved, and say so with little weight. What
fits most of it, by the least absolute differences, is found by a linear program.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.errors import OperandError, listing
from tcsim.ptx.counters.linear_program import minimum

_FUNCTION = re.compile(r"//-+ \.text\.(\S+)\s")
_LINE = re.compile(r'//## File "[^"]*", line (\d+)(?! inlined)')
_LABEL = re.compile(r"(\.L_x_\d+|\$[\w$]+|[\w$.]+):\s*$")
_CODE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?(.*?);?\s*(?:/\* (\w+) \*/)?\s*$")
_ENCODING = re.compile(r"/\* 0x[0-9a-f]{16} \*/\s*\n\s*/\* 0x([0-9a-f]{16}) \*/")
_TARGET = re.compile(r"`\(([^)]+)\)")
_CONDITION = re.compile(r"(BRA|JMP)(\.\w+)*\s+!?U?P\d")
_KEPT = frozenset((
    "LDG", "STG", "LDS", "STS", "LDSM", "STSM", "ATOM", "ATOMS", "ATOMG", "RED", "BAR", "HMMA", "IMMA", "BMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA",
    "BGMMA", "SHFL", "LDGSTS", "SYNCS", "UTMALDG", "UTMASTG", "UBLKCP", "LD", "ST", "VOTE", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "MUFU", "REDUX",
    "MATCH", "BRA", "WARPGROUP",
))  # fmt: skip
"""Machine instructions that stay where their PTX stands."""
SINGLE = ("ld.", "st.", "ldmatrix", "stmatrix", "shfl", "bar.sync", "cp.async.c")
"""Beginnings of instructions of PTX that become one of these: where there are more, the loop around it was unrolled."""
_ACTING = _KEPT - {"BRA", "BAR", "SHFL", "VOTE", "WARPSYNC"}
"""Of these, those that are executed where their predicate holds."""
_BESIDE = ("BSSY", "BSYNC", "PLOP3", "NOP")
"""Machine instructions that belong to no line."""
_FLOW, _SURE, _ACTED, _MOVED, _HARDLY, _MEET, _WHOLE = 6.0, 4.0, 8.0, 0.15, 0.02, 0.3, 4.0
"""How much is given to where warps part, to what stays where it stands, to what ptxas made branch for its predicate, to what may move, to what a predicate may switch off (ptxas makes
that of branches), and to flow where parts of a warp meet."""
_SLOW = 0.5
"""How much is given to it that blocks are not executed which serve arguments that are seldom, or poll again."""
_SELDOM = re.compile("slowpath|_full$")
_MERGED = ("BRA", "ISETP", "UISETP")
"""What an unrolled loop does once for several iterations: where it stands several times it says nothing."""
_LEAST, _BACK = 1e-4, 1e-3
"""What an execution more costs where nothing else tells, and one that goes back to where its block begins: more iterations of an unrolled loop fit into one."""
Equation = tuple[Mapping[int, float], float, float]
"""Factors of unknowns, what they add up to, and how much is given to it."""


NONE: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True)
class Code:
    """A machine instruction."""

    address: int
    text: str  # without its predicate
    predicate: str
    line: int  # of the PTX
    cycles: int = 1  # after which the next one may be issued, at least

    @property
    def opcode(self) -> str:
        """What it does: "LDG"."""
        return self.text.split()[0].split(".")[0]


@dataclass
class Block:
    """Machine instructions that are executed one after the other."""

    code: list[Code] = field(default_factory=list)
    following: list[str | None] = field(default_factory=list)  # labels, "" for the next block, None for the end
    calls: list[str] = field(default_factory=list)

    @property
    def parts_at(self) -> int:
        """The line of the branch at its end, where it may go two ways."""
        return self.code[-1].line if self.code and len(self.following) > 1 else 0

    @property
    def polls(self) -> bool:
        """Whether it looks at an mbarrier. The first look waits, so that there is seldom a second."""
        return any("PHASECHK" in code.text for code in self.code)

    @property
    def joins(self) -> bool:
        """Whether parts of a warp meet behind it, so that fewer go on than came."""
        return bool(self.code) and self.code[-1].opcode == "BSYNC"


@dataclass(frozen=True, eq=False)
class Machine:
    """The machine code of a kernel, executed."""

    instructions: tuple[tuple[Code, int], ...]  # each with how many warps executed it
    unknown: frozenset[int] = (
        frozenset()
    )  # addresses of those whose number does not follow from the PTX's: what is said is a guess

    @property
    def executed(self) -> int:
        """All of it: `smsp__inst_executed.sum`."""
        return sum(count for _, count in self.instructions)

    @property
    def mix(self) -> dict[str, int]:
        """By opcode, the most executed first."""
        found: Counter[str] = Counter()
        for code, count in self.instructions:
            found[code.opcode] += count
        return dict(found.most_common())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [
            {
                "address": own.address,
                "text": f"{own.predicate} {own.text}".strip(),
                "line": own.line,
                "executed": None if own.address in self.unknown else count,
            }
            for own, count in self.instructions
        ]
        return {"executed": self.executed, "mix": self.mix, "instructions": rows}


def blocks_of(text: str, kernel: str) -> tuple[list[Block], dict[str, int]]:
    """The blocks of a kernel in what `nvdisasm -gp -c` prints, and where labels are. Raises OperandError if it has no such kernel."""
    found, where, inside, line, names = [Block()], dict[str, int](), False, 0, list[str]()
    for row in _ENCODING.sub(r"/* \1 */", text).splitlines():
        head = _FUNCTION.match(row)
        if head or row.startswith("//---"):
            inside = bool(head) and head is not None and head[1] == kernel
            names += [head[1]] if head else []
            continue
        if not inside:
            continue
        if own := _LINE.search(row):
            line = int(own[1])
        elif own := _LABEL.match(row):
            if found[-1].code:
                found[-1].following.append("")
                found.append(Block())
            where[own[1]] = len(found) - 1
            line = 0 if own[1].startswith("$") else line  # a function that ptxas brings
        elif own := _CODE.match(row):
            _add(found, Code(int(own[1], 16), own[3], own[2] or "", line, _issue(int(own[4] or "0", 16))))
    if not found[0].code:
        raise OperandError(f"machine code: no kernel {kernel!r}; it has {listing(names)}")
    return _together(found if found[-1].code else found[:-1], where)


def _issue(control: int) -> int:
    """Cycles until the next instruction, as the upper half of an encoding says.

    More than 11 without a yield mean one or two (Huerta et al., arXiv 2503.20481, as measured here).

    >>> _issue(0x000FD60003F24070), _issue(0x000FF80000000000)
    (11, 1)
    """
    stall, stays = control >> 41 & 15, control >> 45 & 1
    return 1 if stall > 11 and stays else max(stall, 1)


def _together(blocks: Sequence[Block], where: Mapping[str, int]) -> tuple[list[Block], dict[str, int]]:
    """The same with what runs through a label that nothing executed goes to as one block."""
    edges, called = _edges(blocks, where)
    reached = _behind(_onward([*edges, *called]), [0])
    entered = {end for start, end in [*edges, *called] if start in reached and blocks[start].following != [""]} | {
        end for _, end in called
    }
    found, place = [blocks[0]], [0]
    for number, block in enumerate(blocks[1:], 1):
        before = found[-1]
        if (
            before.following == [""]
            and number not in entered
            and not before.joins
            and not before.calls
            and number - 1 in reached
        ):
            found[-1] = Block(before.code + block.code, block.following, block.calls)
        else:
            found.append(block)
        place.append(len(found) - 1)
    return found, {name: place[number] for name, number in where.items() if number < len(place)}


def _edges(
    blocks: Sequence[Block], where: Mapping[str, int]
) -> tuple[list[tuple[int, int | None]], list[tuple[int, int]]]:
    """From which block control goes to which (None: the end), and from which a function is called that begins with which."""
    edges = [
        (number, None if name is None else number + 1 if name == "" else where.get(name, len(blocks)))
        for number, block in enumerate(blocks)
        for name in block.following
    ]
    called = [(number, where[name]) for number, block in enumerate(blocks) for name in block.calls if name in where]
    return [(start, end) for start, end in edges if end is None or end < len(blocks)], called


def _add(found: list[Block], code: Code) -> None:
    """An instruction, and the end of its block if it is one that goes elsewhere."""
    block = found[-1]
    block.code.append(code)
    targets = _TARGET.findall(code.text)
    if code.opcode in ("BRA", "JMP", "BRX", "JMX"):
        name = code.text.split()[0]
        diverged = (
            ".DIV" in name
        )  # taken by warps that are not whole: there each lane does alone what lanes do together
        block.following += [] if diverged else targets
        if code.predicate or diverged or ".CONV" in name or _CONDITION.match(code.text):
            block.following.append("")
    elif code.opcode in ("EXIT", "RET", "KILL"):
        block.following += [None, *([""] if code.predicate else [])]
    elif code.opcode == "BSYNC":
        block.following.append("")
    elif code.opcode == "CALL":
        block.calls += targets
        block.following.append("")
    else:
        return
    found.append(Block())


def machine(
    text: str,
    kernel: str,
    counts: Mapping[int, int],
    warps: int,
    acted: Mapping[int, int] = NONE,
    parted: Mapping[int, int] = NONE,
    single: Set[int] = frozenset(),
    undecided: Set[int] = frozenset(),
) -> Machine:
    """The machine code in a listing, executed.

    counts: how many warps executed each line of the PTX. warps: of the launch. acted: of lines with a predicate, of how many warps it
    held in a thread. parted: of lines that branch, how many parts of warps that made beyond one for each. single: lines of instructions that become
    one (`SINGLE`). undecided: lines of which the order of threads decides how often they are executed.

    Raises OperandError if the listing does not have the kernel.

    >>> text = '''//---- .text.k ----
    ... k:
    ... //## File "x", line 3
    ...   /*0000*/ LDG.E R1, desc[UR4][R2.64] ;
    ... //## File "x", line 4
    ...   /*0010*/ @P0 EXIT ;
    ... //## File "x", line 5
    ...   /*0020*/ STG.E desc[UR4][R2.64], R1 ;
    ...   /*0030*/ EXIT ;'''
    >>> [count for _, count in machine(text, "k", {3: 8, 4: 8, 5: 2}, 8).instructions]
    [8, 8, 2, 2]
    """
    blocks, where = blocks_of(text, kernel)
    found = executions(blocks, where, counts, warps, acted, parted, single)
    counted = tuple((code, int(own)) for block, own in zip(blocks, found, strict=True) for code in block.code)
    untold = _untold(blocks, where)
    untold |= {
        number
        for number, block in enumerate(blocks)
        if any(code.line in undecided and code.opcode in _KEPT for code in block.code)
    }
    return Machine(counted, frozenset(code.address for number in untold for code in blocks[number].code))


def executions(
    blocks: Sequence[Block],
    where: Mapping[str, int],
    counts: Mapping[int, int],
    warps: int,
    acted: Mapping[int, int] = NONE,
    parted: Mapping[int, int] = NONE,
    single: Set[int] = frozenset(),
) -> npt.NDArray[np.int64]:
    """How many warps execute each block."""
    edges, called = _edges(blocks, where)
    onward = _onward(edges)
    reached = _behind(_onward([*edges, *called]), [0])
    joining = {number for number, block in enumerate(blocks) if block.joins}
    number_of = _numbered(edges, len(blocks), joining)
    more = max(len(blocks), *(number + 1 for number in number_of), 0)
    splits: defaultdict[int, dict[int, float]] = defaultdict(dict)
    equations: list[Equation] = []
    exact: list[Equation] = [({number: 1.0}, 0.0, 0.0) for number in range(len(blocks)) if number not in reached]
    for number in sorted(reached):
        for side in (0, 1):
            flow: Counter[int] = Counter({number: 1})
            flow.subtract(Counter(number_of[place] for place, edge in enumerate(edges) if edge[side] == number))
            if side:
                flow.subtract(Counter(start for start, end in called if end == number))
            elif parted.get(blocks[number].parts_at) or number in joining:
                more += 1  # what comes beyond one part for each warp, or what is lost where parts meet
                flow[more - 1] = -1 if number in joining else 1
                if number in joining:
                    equations.append(({more - 1: 1.0}, 0.0, _MEET))
                else:
                    splits[blocks[number].parts_at][more - 1] = 1.0
            through = {place: float(many) for place, many in flow.items() if many}
            if through and (side or blocks[number].following):
                exact.append((through, float(warps) if side and not number else 0.0, 0.0))
    equations += _whole(blocks, where, edges, number_of)
    places: defaultdict[tuple[int, str, bool, bool], Counter[int]] = defaultdict(Counter)
    equations += [(parts, float(parted[line]), _FLOW) for line, parts in splits.items()]
    slow = _slow(blocks) | {start for start, end in edges if start == end and blocks[start].polls}
    for number in sorted(reached):
        for code in blocks[number].code if number not in slow else ():
            if code.opcode not in _BESIDE and not (code.opcode == "BRA" and len(blocks[number].following) == 1):
                switched = bool(code.predicate) and code.opcode not in ("BRA", "EXIT")
                leaves = bool(code.predicate) and code.opcode == "EXIT"
                places[code.line, code.text.split()[0], switched, leaves][number] += 1
    said: defaultdict[tuple[tuple[tuple[int, float], ...], int], float] = defaultdict(float)
    once = {number for number in _behind(onward, [0]) if number not in _behind(onward, onward.get(number, ()))}
    for (line, name, switched, leaves), own_places in places.items():
        if line in counts:
            kept = name.split(".")[0] in _KEPT and not (name.startswith("BRA") and len(own_places) > 1)
            merged = len(own_places) > 1 and name.startswith(_MERGED)
            sure, count = _SURE if kept or leaves else _LEAST if merged else _MOVED, counts[line]
            if line in acted and "PHASECHK" in name:  # of another line
                switched = True
            elif (
                line in acted and not switched and name.split(".")[0] in _ACTING
            ):  # ptxas made a branch of its predicate
                sure, count = _ACTED, acted[line]
            unit = min(own_places.values())  # machine instructions of one kind that a PTX instruction becomes
            if line in single and kept:
                unit = 1
            elif once.issuperset(
                own_places
            ):  # each of them at most once by each warp: the copies are of an unrolled loop
                unit = max(1, min(unit, own_places.total() * warps // max(counts[line], 1)))
            factors = tuple((number, many / unit) for number, many in own_places.items())
            said[factors, count] += _HARDLY if switched else sure
    equations += [({number: 1.0}, 0.0, _SLOW) for number in slow]
    equations += [(dict(factors), float(count), weight) for (factors, count), weight in said.items()]
    equations += [({number_of[place]: 1.0}, 0.0, _BACK) for place, (start, end) in enumerate(edges) if start == end]
    scale = float(max(warps, 1))
    found, differs = _entered(exact, equations, edges, number_of, more, scale)
    unrolled: defaultdict[int, set[int]] = defaultdict(set)
    for factors, own in said:
        for number, _ in factors if len(factors) > 1 else ():
            unrolled[number].add(own)
    copies = Counter(block.parts_at for block in blocks)
    for number in sorted(unrolled):
        guard = _guard(edges, number)
        turns, entries = found[number] / max(found[guard], 1e-9), max(round(found[guard]), 1)
        alike = copies[blocks[guard].parts_at] > 1 and any(own % entries == 0 for own in unrolled[number])
        if alike and abs(turns - round(turns)) > 1e-3:
            for whole in (turns // 1, turns // 1 + 1):  # all warps go the same way, if nothing speaks against it
                tried = [*exact, ({number: 1.0, guard: -float(whole)}, 0.0, 0.0)]
                other, differ = _entered(tried, equations, edges, number_of, more, scale)
                if differ < differs + 0.01:
                    exact, found, differs = tried, other, max(differ, differs)
                    break
    return np.rint(found[: len(blocks)]).astype(np.int64)


def _entered(
    exact: list[Equation],
    equations: Sequence[Equation],
    edges: Sequence[tuple[int, int | None]],
    number_of: Sequence[int],
    count: int,
    warps: float,
) -> tuple[npt.NDArray[np.float64], float]:
    """What fits best (`_least_absolute`) without loops of one block that are executed though nothing enters them: `exact` gets what forbids them."""
    into: defaultdict[int, list[int]] = defaultdict(list)
    for place, (start, end) in enumerate(edges):
        if end is not None and (end, end) in edges and start != end:
            into[end].append(number_of[place])
    while True:
        found, differs = _least_absolute(exact, equations, count, warps)
        least = 1e-6 * warps
        alone = [number for number, own in into.items() if found[number] > least > found[own].sum()]
        new = [own for number in alone if (own := ({number: 1.0}, 0.0, 0.0)) not in exact]
        if not new:
            return found, differs
        exact += new


def _untold(blocks: Sequence[Block], where: Mapping[str, int]) -> set[int]:
    """Blocks of which no line of the PTX says how often they are executed: of loops that ptxas makes of one line or that ask an mbarrier, and what it brings for seldom values."""
    edges, called = _edges(blocks, where)
    onward = _onward(edges)
    brought = [end for _, end in called if not any(code.line for code in blocks[end].code)]
    found = (_slow(blocks) | _behind(onward, brought)) & _behind(_onward([*edges, *called]), [0])
    for start, end in edges:
        turn = range(start if end is None else end, start + 1)
        lines = {code.line for number in turn for code in blocks[number].code if code.opcode not in _BESIDE}
        if (
            end is not None
            and start in _behind(onward, [0])
            and (len(lines) == 1 or (start == end and blocks[end].polls))
        ):
            found |= set(turn)
    return found


def _whole(
    blocks: Sequence[Block], where: Mapping[str, int], edges: Sequence[tuple[int, int | None]], number_of: Sequence[int]
) -> Iterator[Equation]:
    """As often as BSSY says where the parts of a warp meet, a warp goes on there."""
    begun: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for number, block in enumerate(blocks):
        for code in block.code:
            if code.opcode == "BSSY" and (place := _TARGET.search(code.text)) and place[1] in where:
                begun[where[place[1]]][number] += 1
    for end, starts in begun.items():
        met = Counter(number_of[place] for place, edge in enumerate(edges) if edge[1] == end and blocks[edge[0]].joins)
        if met:
            met.subtract(starts)
            yield {number: float(many) for number, many in met.items() if many}, 0.0, _WHOLE


def _guard(edges: Sequence[tuple[int, int | None]], number: int) -> int:
    """The block that decides whether a loop of one block is entered."""
    out = Counter(start for start, _ in edges)
    while True:
        before = [start for start, end in edges if end == number and start != number]
        if len(before) != 1:
            return number
        number = before[0]
        if out[number] > 1:
            return number


def _slow(blocks: Sequence[Block]) -> set[int]:
    """Blocks that call what ptxas brings for arguments that are seldom, with what follows: taken not to be executed where nothing else says so."""
    found = {number for number, block in enumerate(blocks) if any(_SELDOM.search(name) for name in block.calls)}
    return found | {number + 1 for number in found if number + 1 < len(blocks) and len(blocks[number + 1].code) <= 3}


def _numbered(edges: Sequence[tuple[int, int | None]], blocks: int, joining: Set[int]) -> list[int]:
    """Of each edge the number whose unknown says how often it is taken: that of a block of which it is the only way out, or in, else one of its own."""
    out, into = Counter(start for start, _ in edges), Counter(end for _, end in edges)
    found, more = [], blocks
    for start, end in edges:
        if out[start] == 1 and start not in joining:
            found.append(start)
        elif end is not None and end and into[end] == 1:
            found.append(end)
        else:
            found.append(more)
            more += 1
    return found


def _onward(edges: Sequence[tuple[int, int | None]]) -> dict[int, list[int]]:
    """Of each block those that may follow."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for start, end in edges:
        if end is not None:
            found[start].append(end)
    return found


def _behind(onward: Mapping[int, Sequence[int]], first: Sequence[int]) -> set[int]:
    """Some blocks with all that can be executed after them."""
    found, left = set(first), [*first]
    while left:
        new = [end for end in onward.get(left.pop(), ()) if end not in found]
        found.update(new)
        left += new
    return found


def _least_absolute(
    exact: Sequence[Equation], equations: Sequence[Equation], count: int, scale: float
) -> tuple[npt.NDArray[np.float64], float]:
    """Numbers that fulfil equations (factors, sum, weight) and fit others with the least weighted sum of absolute differences; that of what is sure.

    None is negative. The linear program is solved by an interior point method.
    """
    rows, beside = [*exact, *equations], len(equations)
    matrix = np.zeros((len(rows), count + 2 * beside))
    for row, (factors, _, _) in enumerate(rows):
        matrix[row, list(factors)] = list(factors.values())
    place = np.arange(beside)
    matrix[len(exact) + place, count + place] = 1
    matrix[len(exact) + place, count + beside + place] = -1
    wanted = np.array([own[1] for own in rows]) / scale
    costs = np.concatenate([np.full(count, _LEAST), *2 * [[own[2] for own in equations]]])
    found = minimum(matrix, wanted, costs)
    return found[:count] * scale, float((costs * found)[costs >= _SURE].sum())
