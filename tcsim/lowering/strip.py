"""One step of compiled code that reaches memory: `WIDTH` threads at once, which leave it where NumPy has to go on.

Loads and stores look for the piece of memory that holds all addresses of a step. What is not there, is not aligned, or has to be kept account of
otherwise is not done: the step is left, and nothing of it has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tcsim.lowering.llvm import WIDTH, Body, element, vector
from tcsim.lowering.traced import Node

SHARED_AT, SHARED_STEP, SHARED_SIZE, OWN, THREADS, PIECES, AT_PIECES, CHANGED = range(8)
"""The words of 8 bytes in which compiled code finds a block's memory: the address of shared memory, the distance from one block's to the next, its
size, the rank above the offset in the block's own addresses; threads of a block; the number of pieces of global memory, and the address of their rows;
the address of a byte for each block that is set when memory changes."""
START, SIZE, DELTA, MARKS, TOUCHED = range(5)
"""A row about a piece of global memory: its address, its bytes, what is added to addresses, and to those of marks of reads (0: there are none),
and whether it was read."""
LANES = 32  # of a warp
STORED_AT_ONCE = 128
"""Bytes that the lanes of a warp store together (`tcsim.ptx.machine.accesses.store_order`)."""
_BITS = f"i{WIDTH}"
_SEEK = f"""
define internal ptr @seek(ptr %world, {vector("u8")} %a, {vector("b1")} %on, i64 %less, {vector("u8")} %low) noinline {{
start:
  %np = getelementptr i64, ptr %world, i64 {PIECES}
  %n = load i64, ptr %np
  %rp = getelementptr i64, ptr %world, i64 {AT_PIECES}
  %rows = load ptr, ptr %rp
  %odd = icmp ne {vector("u8")} %low, zeroinitializer
  br label %next
next:
  %k = phi i64 [ 0, %start ], [ %more, %other ]
  %left = icmp ult i64 %k, %n
  br i1 %left, label %look, label %none
look:
  %at = mul i64 %k, {TOUCHED + 1}
  %row = getelementptr i64, ptr %rows, i64 %at
  %first = load i64, ptr %row
  %sp = getelementptr i64, ptr %row, i64 {SIZE}
  %size = load i64, ptr %sp
  %limit = call i64 @llvm.usub.sat.i64(i64 %size, i64 %less)
  %f1 = insertelement {vector("u8")} poison, i64 %first, i32 0
  %fs = shufflevector {vector("u8")} %f1, {vector("u8")} poison, <{WIDTH} x i32> zeroinitializer
  %l1 = insertelement {vector("u8")} poison, i64 %limit, i32 0
  %ls = shufflevector {vector("u8")} %l1, {vector("u8")} poison, <{WIDTH} x i32> zeroinitializer
  %d = sub {vector("u8")} %a, %fs
  %out = icmp uge {vector("u8")} %d, %ls
  %bad = or {vector("b1")} %out, %odd
  %wrong = and {vector("b1")} %bad, %on
  %bits = bitcast {vector("b1")} %wrong to {_BITS}
  %some = icmp ne {_BITS} %bits, 0
  br i1 %some, label %other, label %found
other:
  %more = add i64 %k, 1
  br label %next
found:
  ret ptr %row
none:
  ret ptr null
}}"""
"""The first row whose piece holds the addresses of all lanes that are on; null if there is none."""


@dataclass(eq=False)
class Stored:
    """A store: where, and the words that go there one after the other."""

    place: Node
    words: tuple[Node, ...]
    size: int  # bytes of each thread


@dataclass(eq=False)
class Strip(Body):
    """The lines of a step. done: what a step that is left says of how many threads were done; checks: whether places are looked at."""

    done: str = "%i"
    checks: bool = True
    label: str = "work"  # the basic block that is written
    hints: list[str] = field(default_factory=list)  # where the row is kept that the last step found, for each place

    def begin(self, label: str) -> None:
        """A further basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def leave(self, wrong: str) -> None:
        """Leave the step if a condition holds in a lane; all of them are done that `done` says."""
        self.count += 1
        some = self.line(f"icmp ne {_BITS} {self.bits(wrong)}, 0")
        self.lines.append(f"  br i1 {some}, label %leave, label %on{self.count}")
        self.begin(f"on{self.count}")

    def bits(self, condition: str) -> str:
        """In which lanes a condition holds, as an integer."""
        return self.line(f"bitcast {vector('b1')} {condition} to {_BITS}")

    def splat(self, type: str, value: str) -> str:
        """A number in all lanes."""
        one = self.line(f"insertelement {vector(type)} poison, {element(type)} {value}, i32 0")
        zeros = f"<{WIDTH} x i32> zeroinitializer"
        return self.line(f"shufflevector {vector(type)} {one}, {vector(type)} poison, {zeros}")

    def word(self, word: int) -> str:
        """A word about the block's memory."""
        return self.line(f"load i64, ptr {self.line(f'getelementptr i64, ptr %world, i64 {word}')}, !invariant.load !0")

    def _own(self, node: Node) -> str:
        """What addresses of the block's own shared memory have above the offset."""
        own = self.splat("u8", self.word(OWN))
        return own if node.type == "u8" else self.recast("trunc", "u8", node.type, own)

    # --- other lanes

    def _lane(self, node: Node) -> str:
        """Which lane of its warp a thread is."""
        first = self.line(f"and i64 %s, {LANES - 1}")
        places = f"<{', '.join(f'i64 {lane}' for lane in range(WIDTH))}>"
        return self.two("add", "u8", self.splat("u8", first), places)

    def _other(self, node: Node, lane: str) -> str:
        """What a register holds in another lane of the warp; of one that does not execute 0. extra: its number."""
        self.registers.add(node.extra)
        warp = self.line(f"and i64 %s, -{LANES}")
        threads = self.two("add", "u8", lane, self.splat("u8", warp))
        kind = element(node.type)
        places = self.line(f"getelementptr {kind}, ptr %r{node.extra}, {vector('u8')} {threads}")
        octets = self.line(f"load <{LANES} x i8>, ptr {self.line(f'getelementptr i8, ptr %mask, i64 {warp}')}, align 1")
        on = self.line(f"icmp ne <{LANES} x i8> {octets}, zeroinitializer")
        bits = self.splat("u4", self.line(f"bitcast <{LANES} x i1> {on} to i32"))
        moved = self.two("lshr", "u4", bits, self.recast("trunc", "u8", "u4", lane))
        there = self.two("icmp ne", "u4", self.two("and", "u4", moved, self.constant("u4", 1)), self.constant("u4", 0))
        return self.pick(there, node.type, self._gathered(node.type, places, "%m"), "zeroinitializer")

    # --- places

    def _place(self, node: Node, address: str, *guard: str) -> str:
        """Where an access lies in the memory of this process. extra: the state space and the bytes."""
        space, size = node.extra
        on = self.two("and", "b1", "%m", guard[0]) if guard else "%m"
        way = self._in_shared if space == "shared" else self._in_global
        return way(address, on, size)

    def _in_shared(self, address: str, on: str, size: int) -> str:
        own = self.recast("trunc", "u8", "u4", self.splat("u8", self.word(OWN)))
        offset = self.two("sub", "u4", self.recast("trunc", "u8", "u4", address), own)
        wide = self.recast("zext", "u4", "u8", offset)
        if self.checks:
            end = self.splat("u8", self.word(SHARED_SIZE))
            beyond = self.two("icmp ugt", "u8", self.two("add", "u8", wide, self.constant("u8", size)), end)
            odd = self.two("and", "u4", offset, self.constant("u4", min(size, 16) - 1))
            wrong = self.two("or", "b1", beyond, self.two("icmp ne", "u4", odd, self.constant("u4", 0)))
            self.leave(self.two("and", "b1", wrong, on))
        number = self.line(f"udiv i64 %s, {self.word(THREADS)}")
        start = self.line(f"mul i64 {number}, {self.word(SHARED_STEP)}")
        return self.two("add", "u8", wide, self.splat("u8", self.line(f"add i64 {start}, {self.word(SHARED_AT)}")))

    def _in_global(self, address: str, on: str, size: int) -> str:
        """In a piece of global memory: most often the one of the step before."""
        self.unit.declared["usub"] = "declare i64 @llvm.usub.sat.i64(i64, i64)"
        self.unit.declared["seek"] = _SEEK
        self.count += 1
        number, before = self.count, self.label
        hint = f"%hint{len(self.hints)}"
        self.hints.append(hint)
        low = self.two("and", "u8", address, self.constant("u8", min(size, 16) - 1))
        self.lines += [
            f"  %last{number} = load ptr, ptr {hint}",
            f"  %first{number} = load i64, ptr %last{number}",
            f"  %sp{number} = getelementptr i64, ptr %last{number}, i64 {SIZE}",
            f"  %size{number} = load i64, ptr %sp{number}",
            f"  %limit{number} = call i64 @llvm.usub.sat.i64(i64 %size{number}, i64 {size - 1})",
        ]
        inside = self.two("sub", "u8", address, self.splat("u8", f"%first{number}"))
        beyond = self.two("icmp uge", "u8", inside, self.splat("u8", f"%limit{number}"))
        wrong = self.two("or", "b1", beyond, self.two("icmp ne", "u8", low, self.constant("u8", 0)))
        bits = self.bits(self.two("and", "b1", wrong, on))
        given = f"ptr %world, {vector('u8')} {address}, {vector('b1')} {on}, i64 {size - 1}, {vector('u8')} {low}"
        self.lines += [
            f"  %some{number} = icmp ne {_BITS} {bits}, 0",
            f"  br i1 %some{number}, label %miss{number}, label %there{number}",
            f"miss{number}:",
            f"  %new{number} = call ptr @seek({given})",
            f"  %none{number} = icmp eq ptr %new{number}, null",
            f"  br i1 %none{number}, label %leave, label %found{number}",
            f"found{number}:",
            f"  store ptr %new{number}, ptr {hint}",
            f"  br label %there{number}",
        ]
        self.begin(f"there{number}")
        row = f"%row{number}"
        self.lines.append(f"  {row} = phi ptr [ %last{number}, %{before} ], [ %new{number}, %found{number} ]")
        words = [self.line(f"getelementptr i64, ptr {row}, i64 {word}") for word in (DELTA, MARKS, TOUCHED)]
        delta, marks = (self.line(f"load i64, ptr {own}") for own in words[:2])
        some = self.line(f"zext {_BITS} {self.bits(on)} to i64")
        self.lines += [
            f"  %seen{number} = load i64, ptr {words[2]}",
            f"  %read{number} = or i64 %seen{number}, {some}",
            f"  store i64 %read{number}, ptr {words[2]}",
            f"  %kept{number} = icmp ne i64 {marks}, 0",
            f"  br i1 %kept{number}, label %mark{number}, label %go{number}",
        ]
        known = dict(self.known)
        self.begin(f"mark{number}")
        marked = self.two("add", "u8", address, self.splat("u8", marks))
        unit = min(size, 8)
        ones = self.constant(f"u{unit}", int.from_bytes(b"\1" * unit, "little"))
        for part in range(0, size, unit):
            self.scatter(f"u{unit}", self._behind(marked, part), ones, on)
        self.lines.append(f"  br label %go{number}")
        self.known = known  # what is computed there is not known behind it
        self.begin(f"go{number}")
        return self.two("add", "u8", address, self.splat("u8", delta))

    def _behind(self, place: str, part: int) -> str:
        return self.two("add", "u8", place, self.constant("u8", part)) if part else place

    # --- values

    def _loaded(self, node: Node, place: str, *guard: str) -> str:
        """A word of what lies at a place. extra: bytes behind it."""
        on = self.two("and", "b1", "%m", guard[0]) if guard else "%m"
        return self._gathered(node.type, self.pointers(self._behind(place, node.extra)), on)

    def _gathered(self, type: str, pointers: str, on: str) -> str:
        """Values at addresses of this process, of the lanes that are on."""
        own, size = vector(type), int(type[1:])
        name = f"llvm.masked.gather.v{WIDTH}i{8 * size}.v{WIDTH}p0"
        self.unit.declared[name] = f"declare {own} @{name}(<{WIDTH} x ptr>, i32, {vector('b1')}, {own})"
        given = f"<{WIDTH} x ptr> {pointers}, i32 {size}, {vector('b1')} {on}, {own} zeroinitializer"
        return self.line(f"call {own} @{name}({given})")

    def pointers(self, place: str) -> str:
        """Addresses of this process."""
        return self.line(f"inttoptr {vector('u8')} {place} to <{WIDTH} x ptr>")

    def scatter(self, type: str, place: str, value: str, on: str) -> None:
        """Put values at places, lane after lane."""
        own, kind = vector(type), f"i{8 * int(type[1:])}"
        name = f"llvm.masked.scatter.v{WIDTH}{kind}.v{WIDTH}p0"
        self.unit.declared[name] = f"declare void @{name}({own}, <{WIDTH} x ptr>, i32, {vector('b1')})"
        given = f"{own} {value}, <{WIDTH} x ptr> {self.pointers(place)}, i32 {type[1:]}, {vector('b1')} {on}"
        self.lines.append(f"  call void @{name}({given})")

    def store(self, own: Stored) -> None:
        """Store; of lanes that meet, the lowest of a part of a warp comes last (`tcsim.ptx.machine.accesses.store_order`)."""
        place, words = self.value(own.place), [self.value(word) for word in own.words]
        guard = own.place.args[1:]
        on = self.two("and", "b1", "%m", self.value(guard[0])) if guard else "%m"
        part = min(WIDTH, STORED_AT_ONCE // own.size)
        order = [lane ^ (part - 1) for lane in range(WIDTH)]
        on, place = self._ordered("b1", on, order), self._ordered("u8", place, order)
        at = 0
        for word, node in zip(words, own.words, strict=True):
            self.scatter(node.type, self._behind(place, at), self._ordered(node.type, word, order), on)
            at += int(node.type[1:])
        any_on = self.line(f"icmp ne {_BITS} {self.bits(on)}, 0")
        some = self.line(f"zext i1 {any_on} to i8")
        number = self.line(f"udiv i64 %s, {self.word(THREADS)}")
        changed = self.line(f"inttoptr i64 {self.word(CHANGED)} to ptr")
        at_block = self.line(f"getelementptr i8, ptr {changed}, i64 {number}")
        self.count += 1
        self.lines += [
            f"  %was{self.count} = load i8, ptr {at_block}",
            f"  %is{self.count} = or i8 %was{self.count}, {some}",
            f"  store i8 %is{self.count}, ptr {at_block}",
        ]

    def _ordered(self, type: str, value: str, order: Sequence[int]) -> str:
        """Lanes in another order."""
        places = f"<{WIDTH} x i32> <{', '.join(f'i32 {lane}' for lane in order)}>"
        return self.line(f"shufflevector {vector(type)} {value}, {vector(type)} poison, {places}")


def pairs(size: int) -> bool:
    """Whether the parts of a warp that store one after the other are longer than a step: then its last step comes first."""
    return min(LANES, STORED_AT_ONCE // size) > WIDTH
