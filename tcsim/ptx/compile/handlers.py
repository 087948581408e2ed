"""How the compiler writes instructions that are more than arithmetic: moves, memory, atomics, warps, barriers.

A handler takes the compiler and an instruction and gives lines of source. `ends(opcode)`, if it has one, says whether the
instruction ends its basic block, because threads may wait or part there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tcsim.isa.scalar.atomic import COMMUTING
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.memory.windows import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from tcsim.ptx.compile.emit import Emitter
from tcsim.ptx.text.grammar import SPACES
from tcsim.ptx.text.operands import DIMENSIONED
from tcsim.ptx.text.spellings import atomic as row_of_atomic
from tcsim.ptx.text.syntax import (
    TYPE_BYTES,
    Address,
    Immediate,
    Instruction,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)

Lines = list[str]
HANDLERS: dict[str, Callable[[Emitter, Instruction], Lines]] = {}
UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "b128"}


def handles(*stems: str, instead: bool = False) -> Callable[[Any], Any]:
    """Register a handler. instead: also of instructions that the catalog has, which otherwise run through their effects."""

    def put(function: Any) -> Any:
        function.instead = instead
        for stem in stems:
            HANDLERS[stem] = function
        return function

    return put


def _type(compiler: Emitter, words: list[str]) -> str:
    type = words[-1]
    if type not in TYPE_BYTES:
        raise compiler.error(f"no type .{type}")
    return type


# --- moves ----------------------------------------------------------------------------------------------------------


@handles("mov")
def move(compiler: Emitter, item: Instruction) -> Lines:
    """Between registers, from constants, special registers and addresses; packing and unpacking of vectors."""
    type = _type(compiler, item.opcode.split("."))
    to, what = item.operands
    count = next((int(word[1:]) for word in item.opcode.split(".") if word in ("v2", "v4")), 1)
    if count > 1:
        return _move_each(compiler, to, what, type, count)
    if isinstance(what, Special) and what.name in DIMENSIONED:
        raise compiler.error(f"%{what.name} is a vector; valid: %{what.name}.x, or mov.v4")
    if isinstance(to, Vector):
        if isinstance(what, Immediate):
            raise compiler.error("a vector is unpacked from a register")
        parts = len(to.items)
        size = TYPE_BYTES[type] // parts
        lines = [f"x_ = M.unpack({_whole(compiler, what, type)}, {size})"]
        part = UNSIGNED[size]
        return lines + [
            compiler.put(own, f"x_[..., {place}]", part)
            for place, own in enumerate(to.items)
            if not isinstance(own, Sink)
        ]
    if isinstance(what, Vector):
        parts = len(what.items)
        part = UNSIGNED[TYPE_BYTES[type] // parts]
        sources = ", ".join(compiler.value(own, part) for own in what.items)
        return [_put_whole(compiler, to, f"M.pack(({sources},), {TYPE_BYTES[type] // parts})", type)]
    if isinstance(what, Special) and type == "pred":
        return [compiler.put(to, f"np.asarray(M.special({compiler.constant(what.name)})) != 0", type)]
    if isinstance(what, Special):
        return [compiler.put(to, f"M.special({compiler.constant(what.name)})", type)]
    if type == "b128":
        return [_put_whole(compiler, to, _whole(compiler, what, type), type)]
    if isinstance(what, Symbol) and compiler.space_of(what.name) == "shared":
        return [
            compiler.put(
                to, f"{compiler.value(what, type)} + M.own_shared({compiler.constant(CONTAINERS[type])})", type
            )
        ]
    return [compiler.put(to, compiler.value(what, type), type)]


def _move_each(compiler: Emitter, to: Operand, what: Operand, type: str, count: int) -> Lines:
    """Vectors element by element, all read before one is written; the last of a special register is 0."""
    if isinstance(what, Special) and what.name in DIMENSIONED and count == 4:
        what = Vector((*(Special(f"{what.name}.{axis}") for axis in "xyz"), Immediate(0)))
    if not isinstance(to, Vector) or not isinstance(what, Vector) or {len(to.items), len(what.items)} != {count}:
        raise compiler.error(f"valid: two vectors of {count}")
    found = [
        f"M.special({compiler.constant(own.name)})" if isinstance(own, Special) else compiler.value(own, type)
        for own in what.items
    ]
    copies = ", ".join(f"np.array({own})" for own in found)
    puts = [compiler.put(own, f"x_[{place}]", type) for place, own in enumerate(to.items) if not isinstance(own, Sink)]
    return [f"x_ = ({copies},)", *puts]


def _whole(compiler: Emitter, operand: Operand, type: str) -> str:
    if type == "b128":
        return _wide(compiler, operand)
    return compiler.value(operand, {2: "b16", 4: "b32", 8: "b64"}[TYPE_BYTES[type]])


def _put_whole(compiler: Emitter, operand: Operand, source: str, type: str) -> str:
    if type == "b128" and not isinstance(operand, Sink):
        return f"M.assign({_wide(compiler, operand)}, {source}, w)"
    return compiler.put(operand, source, type)


def _wide(compiler: Emitter, operand: Operand) -> str:
    if not isinstance(operand, Register) or compiler.type_of(operand) != "b128":
        raise compiler.error("128 bits; valid: a register of type .b128")
    return compiler.register(operand)


@handles("cvta", instead=True)
def convert_address(compiler: Emitter, item: Instruction) -> Lines:
    """Between a generic address and one of a state space."""
    words = item.opcode.split(".")[1:]
    to, what = item.operands
    back = words[0] == "to"
    space = words[1 if back else 0]
    window = SHARED_WINDOW if space.startswith("shared") else LOCAL_WINDOW if space == "local" else 0
    type = "u64" if words[-1].endswith("64") else "u32"
    if isinstance(what, Symbol):
        value = compiler.value(what, "u64")
        if space.startswith("shared"):
            value = f"({value} + M.own_shared({compiler.constant(CONTAINERS['u64'])}))"
    else:
        value = (
            compiler.value(what, "u64")
            if not isinstance(what, Register) or compiler.type_of(what).endswith("64")
            else (f"{compiler.register(what)}.astype({compiler.constant(CONTAINERS['u64'])})")
        )
    if window:
        sign = "-" if back else "+"
        value = f"({value} {sign} {compiler.constant(np.uint64(window))})"
    if space.startswith("param") and not back:
        value = f"({value} + {compiler.constant(np.uint64(PARAM_WINDOW))})"
    return [compiler.put(to, f"{value}.astype({compiler.constant(CONTAINERS[type])})", type)]


@handles("isspacep")
def is_space(compiler: Emitter, item: Instruction) -> Lines:
    """Whether a generic address lies in a state space."""
    to, what = item.operands
    space = item.opcode.split(".")[1]
    return [compiler.put(to, f"M.is_space({compiler.value(what, 'u64')}, {compiler.constant(space)})", "pred")]


@handles("prefetch", "prefetchu", "pmevent")
def nothing(compiler: Emitter, item: Instruction) -> Lines:
    """What changes neither registers nor memory here."""
    return ["pass"]


@handles("membar")
def fence(compiler: Emitter, item: Instruction) -> Lines:
    """Order: accesses happen in order here."""
    return ["M.fenced(w)"] if compiler.context.watched else ["pass"]


# --- loads and stores -----------------------------------------------------------------------------------------------


def _access(compiler: Emitter, item: Instruction) -> tuple[str, int, str]:
    """State space, elements of the vector, and type."""
    words = item.opcode.split(".")[1:]
    space, count = "", 1
    for word in words[:-1]:
        if word in SPACES:
            space = word
        elif word in ("v2", "v4", "v8"):
            count = int(word[1:])
    type = _type(compiler, words)
    compiler.narrow(space, TYPE_BYTES[type] * count)
    return space, count, type


def _alone(operand: Operand, count: int) -> Operand:
    """A vector of one register is that register."""
    return operand.items[0] if count == 1 and isinstance(operand, Vector) and len(operand.items) == 1 else operand


def _signed(type: str) -> bool:
    return type[0] == "s"


@handles("ld", "ldu")
def load(compiler: Emitter, item: Instruction) -> Lines:
    """Loads of registers or vectors of them from any state space."""
    space, count, type = _access(compiler, item)
    to, where = item.operands[:2]
    address, space = compiler.place(where, space)
    size = TYPE_BYTES[type]
    found = f"M.load({compiler.constant(space.split('::')[0] if space != 'shared::cluster' else space)}, {address}, {size * count}, w)"
    to = _alone(to, count)
    if count == 1:
        if type == "b128":
            return [_put_whole(compiler, to, found, type)]
        return [_put_loaded(compiler, to, found, type)]
    if not isinstance(to, Vector) or len(to.items) != count:
        raise compiler.error(f"a vector of {count} registers is loaded")
    lines = [f"x_ = M.split({found}, {size})"]
    return lines + [
        _put_loaded(compiler, own, f"x_[..., {place}]", type)
        for place, own in enumerate(to.items)
        if not isinstance(own, Sink)
    ]


def _put_loaded(compiler: Emitter, to: Operand, source: str, type: str) -> str:
    """Into a register of the type's width, or a wider one with the sign or zeros above."""
    if _signed(type) and isinstance(to, Register) and CONTAINERS[compiler.type_of(to)].itemsize > TYPE_BYTES[type]:
        wide = f"i{CONTAINERS[compiler.type_of(to)].itemsize}"
        source = f"{source}.view({compiler.constant(f'i{TYPE_BYTES[type]}')}).astype({compiler.constant(wide)})"
        return f"copyto({compiler.register(to)}.view({compiler.constant(wide)}), {source}, where=w)"
    return compiler.put(to, source, UNSIGNED[TYPE_BYTES[type]])


@handles("st")
def store(compiler: Emitter, item: Instruction) -> Lines:
    """Stores of registers or vectors of them to any state space."""
    space, count, type = _access(compiler, item)
    where, what = item.operands[:2]
    address, space = compiler.place(where, space)
    what = _alone(what, count)
    size = TYPE_BYTES[type]
    part = UNSIGNED[size]
    shown = compiler.constant(space.split("::")[0] if space != "shared::cluster" else space)
    if type == "b128":
        return [f"M.store({shown}, {address}, {_whole(compiler, what, type)}, 16, w)"]
    if count == 1:
        return [f"M.store({shown}, {address}, {compiler.value(what, part)}, {size}, w)"]
    if not isinstance(what, Vector) or len(what.items) != count:
        raise compiler.error(f"a vector of {count} registers is stored")
    sources = ", ".join(compiler.value(own, part) for own in what.items)
    return [f"M.store({shown}, {address}, M.join(({sources},), {size}), {size * count}, w)"]


@handles("atom", "red")
def atomic(compiler: Emitter, item: Instruction) -> Lines:
    """Atomics and reductions: threads in the order of their numbers."""
    stem, *words = item.opcode.split(".")
    space = next((word for word in words if word in SPACES), "")
    own = row_of_atomic(item.opcode)
    if own is None:
        raise compiler.error("no such operation")
    compiler.narrow(space, TYPE_BYTES[own.type] * own.count)
    operands = list(item.operands)
    to = operands.pop(0) if stem == "atom" else Sink()
    address, space = compiler.place(operands[0], space)
    if space not in own.spaces or (stem == "red" and own.returns_only):
        raise compiler.error(
            f"{stem} has no .{own.mnemonic} in this state space; valid: {', '.join(filter(None, own.spaces))}"
        )
    parts = UNSIGNED[TYPE_BYTES[own.type]]
    given = operands[1 : 1 + own.operands]
    if own.count > 1:
        (vector,) = given
        if not isinstance(vector, Vector) or not isinstance(to, (Vector, Sink)) or len(vector.items) != own.count:
            raise compiler.error(f"a vector of {own.count} registers is given")
        sources = "(" + ", ".join(f"({compiler.value(one, parts)},)" for one in vector.items) + ",)"
    elif own.type == "b128":
        sources = "((" + ", ".join(_whole(compiler, one, own.type) for one in given) + ",),)"
    else:
        sources = "((" + ", ".join(compiler.value(one, parts) for one in given) + ",),)"
    needed = compiler.needed(to)
    compiler.context.tells_order |= not own.rounds and (needed != 0 or own.operation not in COMMUTING)
    call = f"M.atomic({compiler.constant(space)}, {address}, {compiler.constant(own)}, {sources}, w, {needed})"
    if stem == "red" or isinstance(to, Sink):
        return [call]
    if own.type == "b128":
        return [f"x_ = {call}", _put_whole(compiler, to, "x_[0]", own.type)]
    targets = to.items if isinstance(to, Vector) else (to,)
    return [
        f"x_ = {call}",
        *(compiler.put(one, f"x_[{place}]", parts) for place, one in enumerate(targets) if not isinstance(one, Sink)),
    ]


# --- warps ----------------------------------------------------------------------------------------------------------


@handles("shfl")
def shuffle(compiler: Emitter, item: Instruction) -> Lines:
    """shfl.sync: a register of another lane."""
    mode = item.opcode.split(".")[2]
    to, a, b, c = item.operands[:4]
    values = ", ".join(compiler.value(own, "u32") for own in (a, b, c))
    lines = [f"x_, y_ = M.shuffle({compiler.constant(mode)}, {values}, w)"]
    if isinstance(to, Pair):
        second = [] if isinstance(to.second, Sink) else [compiler.put(to.second, "y_", "pred")]
        return [*lines, compiler.put(to.first, "x_", "u32"), *second]
    return [*lines, compiler.put(to, "x_", "u32")]


@handles("vote")
def vote(compiler: Emitter, item: Instruction) -> Lines:
    """vote.sync: all, any, uni or the ballot of a predicate."""
    mode = item.opcode.split(".")[2]
    to, what = item.operands[:2]
    mask = compiler.value(item.operands[2], "u32") if len(item.operands) > 2 else "None"
    call = f"M.vote({compiler.constant(mode)}, {compiler.value(what, 'pred')}, {mask}, w)"
    return [compiler.put(to, call, "u32" if mode == "ballot" else "pred")]


@handles("activemask")
def active_mask(compiler: Emitter, item: Instruction) -> Lines:
    """The lanes of the warp that execute together."""
    return [compiler.put(item.operands[0], f"M.active(w, {compiler.number_of_block})", "u32")]


@handles("match")
def match(compiler: Emitter, item: Instruction) -> Lines:
    """match.any and match.all: lanes with equal values."""
    words = item.opcode.split(".")
    to, what = item.operands[:2]
    type = "b64" if words[-1] == "b64" else "b32"
    if words[1] == "any" and isinstance(to, Pair):
        raise compiler.error("match.any has no predicate; valid: one destination")
    mask = compiler.value(item.operands[2], "u32")
    lines = [f"x_, y_ = M.match({compiler.constant(words[1])}, {compiler.value(what, type)}, {mask}, w)"]
    if isinstance(to, Pair):
        return [*lines, compiler.put(to.first, "x_", "u32"), compiler.put(to.second, "y_", "pred")]
    return [*lines, compiler.put(to, "x_", "u32")]


# --- barriers and time ----------------------------------------------------------------------------------------------


class _Ending:
    """A handler that ends its basic block, of instructions that the catalog has too."""

    instead = True

    def __init__(self, function: Callable[[Emitter, Instruction], Lines]) -> None:
        self.function = function
        self.__doc__ = function.__doc__

    def __call__(self, compiler: Emitter, item: Instruction) -> Lines:
        return self.function(compiler, item)

    def ends(self, item: Instruction) -> bool:
        """Always."""
        return True


def _barrier(compiler: Emitter, item: Instruction) -> Lines:
    """bar and barrier: sync, arrive and red of a block; bar.warp.sync needs nothing more than lockstep."""
    words = [word for word in item.opcode.split(".")[1:] if word not in ("cta", "aligned")]
    after = compiler.after(compiler.index + 1)
    if words[0] == "warp":
        return [f"return M.warp_sync({compiler.value(item.operands[0], 'b32')}, w, {after}, {compiler.constant(item)})"]
    if words[0] == "cluster":
        return _cluster(compiler, words, after)
    operands = list(item.operands)
    to = operands.pop(0) if words[0] == "red" else None
    number = compiler.value(operands.pop(0), "u32")
    predicate = compiler.value(operands.pop(), "pred") if words[0] == "red" else "None"
    count = compiler.value(operands[0], "u32") if operands else "None"
    if words[0] == "arrive":
        return [f"M.arrive({number}, {count}, w)"]
    into = compiler.register(to) if isinstance(to, Register) else "None"
    kind = compiler.constant(words[1] if words[0] == "red" else "sync")
    own = compiler.constant(item)
    return [f"return M.barrier({number}, {count}, w, {after}, {kind}, {predicate}, {into}, {own})"]


def _cluster(compiler: Emitter, words: list[str], after: int) -> Lines:
    if "arrive" in words:
        return ["M.cluster_arrive(w)"]
    return [f"return M.cluster_wait(w, {after}, {compiler.constant(compiler.instruction)})"]


class _Barrier(_Ending):
    """The handler of barriers: arriving and bar.warp.sync do not wait."""

    def ends(self, item: Instruction) -> bool:
        """Whether threads may wait."""
        words = item.opcode.split(".")
        return "arrive" not in words


HANDLERS["bar"] = HANDLERS["barrier"] = _Barrier(_barrier)


@handles("nanosleep")
def sleep(compiler: Emitter, item: Instruction) -> Lines:
    """Waits: nothing here takes time."""
    return ["M.sleeps = 256"]


def address_of(compiler: Emitter, operand: Operand, space: str) -> str:
    """The source of an address alone."""
    if not isinstance(operand, Address):
        raise compiler.error("an address stands in brackets")
    return compiler.place(operand, space)[0]
