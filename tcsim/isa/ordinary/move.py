"""Moves between registers, and addresses: mov, cvta, isspacep. What is said of the scalar instructions that hand bytes on."""

from __future__ import annotations

import numpy as np

from tcsim.isa.ordinary.special_registers import DIMENSIONED
from tcsim.isa.ordinary.table import SHARED, UNSIGNED, Ordinary, grammar, put_whole, type_of, wanted, whole
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.memory.windows import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from tcsim.model.emit import Emitter, Line, Lines, machine
from tcsim.model.grammar import apart, one, since, some
from tcsim.model.statement import TYPE_BYTES, Immediate, Instruction, Operand, Register, Special, Symbol, Vector


def _move(emitter: Emitter, item: Instruction) -> Lines:
    """Between registers, from constants, special registers and addresses; packing and unpacking of vectors."""
    type = type_of(emitter, item)
    to, what = item.operands
    count = next((int(word[1:]) for word in item.opcode.split(".") if word in ("v2", "v4")), 1)
    if count > 1:
        return _move_each(emitter, to, what, type, count)
    if isinstance(what, Special) and what.name in DIMENSIONED:
        raise emitter.error(f"%{what.name} is a vector; valid: %{what.name}.x, or mov.v4")
    if isinstance(to, Vector):
        if isinstance(what, Immediate):
            raise emitter.error("a vector is unpacked from a register")
        size = TYPE_BYTES[type] // len(to.items)
        unpacked = machine(f"x_ = T.unpack({whole(emitter, what, type)}, {size})")
        puts = (emitter.put(own, f"x_[..., {place}]", UNSIGNED[size]) for place, own in wanted(to.items))
        return [unpacked, *puts]
    if isinstance(what, Vector):
        size = TYPE_BYTES[type] // len(what.items)
        sources = ", ".join(emitter.value(own, UNSIGNED[size]) for own in what.items)
        return [put_whole(emitter, to, f"T.pack(({sources},), {size})", type)]
    if isinstance(what, Special):
        source = f"T.special({emitter.constant(what.name)})"
        return [emitter.put(to, f"np.asarray({source}) != 0" if type == "pred" else source, type, calls_machine=True)]
    if type == "b128":
        return [put_whole(emitter, to, whole(emitter, what, type), type)]
    value = emitter.value(what, type)
    shared = isinstance(what, Symbol) and emitter.space_of(what.name) == "shared"
    if shared:
        value = f"{value} + T.own_shared({emitter.constant(CONTAINERS[type])})"
    return [emitter.put(to, value, type, calls_machine=shared)]


def _move_each(emitter: Emitter, to: Operand, what: Operand, type: str, count: int) -> Lines:
    """Vectors element by element, all read before one is written; the last of a special register is 0."""
    if isinstance(what, Special) and what.name in DIMENSIONED and count == 4:
        what = Vector((*(Special(f"{what.name}.{axis}") for axis in "xyz"), Immediate(0)))
    if not isinstance(to, Vector) or not isinstance(what, Vector) or {len(to.items), len(what.items)} != {count}:
        raise emitter.error(f"valid: two vectors of {count}")
    sources = [
        f"T.special({emitter.constant(own.name)})" if isinstance(own, Special) else emitter.value(own, type)
        for own in what.items
    ]
    special = any(isinstance(own, Special) for own in what.items)
    copies = Line(f"x_ = ({', '.join(f'np.array({own})' for own in sources)},)", special)
    return [copies, *(emitter.put(own, f"x_[{place}]", type) for place, own in wanted(to.items))]


def _convert_address(emitter: Emitter, item: Instruction) -> Lines:
    """Between a generic address and one of a state space."""
    words = item.opcode.split(".")[1:]
    to, what = item.operands
    back = words[0] == "to"
    space = words[1 if back else 0]
    window = SHARED_WINDOW if space.startswith("shared") else LOCAL_WINDOW if space == "local" else 0
    type = "u64" if words[-1].endswith("64") else "u32"
    shared = isinstance(what, Symbol) and space.startswith("shared")
    if isinstance(what, Register) and not emitter.type_of(what).endswith("64"):
        value = f"{emitter.register(what)}.astype({emitter.constant(CONTAINERS['u64'])})"
    else:
        value = emitter.value(what, "u64")
    if shared:
        value = f"({value} + T.own_shared({emitter.constant(CONTAINERS['u64'])}))"
    if window:
        value = f"({value} {'-' if back else '+'} {emitter.constant(np.uint64(window))})"
    if space.startswith("param") and not back:
        value = f"({value} + {emitter.constant(np.uint64(PARAM_WINDOW))})"
    return [emitter.put(to, f"{value}.astype({emitter.constant(CONTAINERS[type])})", type, calls_machine=shared)]


def _is_space(emitter: Emitter, item: Instruction) -> Lines:
    """Whether a generic address lies in a state space."""
    to, what = item.operands
    space = item.opcode.split(".")[1]
    call = f"mem.is_space({emitter.value(what, 'u64')}, {emitter.constant(space)})"
    return [emitter.put(to, call, "pred", calls_machine=True)]


_PLACES = f"global {SHARED} local const param param::entry"
_PARAM = (since("7.7", 70, "param param::entry"),)
ROWS = (
    Ordinary(
        stem="mov",
        grammar=grammar(
            some("v2 v4"),
            one("b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64 pred"),
            operands=(2,),
            rules=(apart("v2 v4", "b128 pred"), apart("b64 u64 s64 f64", "v4")),
            vectors=(0, 1),
        ),
        emit=_move,
        path="move",
        carries="whole",
    ),
    Ordinary(
        stem="cvta",
        grammar=grammar(some("to"), one(_PLACES), one("u64"), operands=(2,), since=_PARAM, named="to"),
        emit=_convert_address,
        instead=True,
        path="address",
    ),
    Ordinary(stem="isspacep", grammar=grammar(one(_PLACES), operands=(2,), since=_PARAM), emit=_is_space),
    Ordinary(stem="cvt", path="convert", carries="elements"),
    Ordinary(stem="selp", carries="either"),
    Ordinary(stem="prmt", carries="bytes"),
    Ordinary(stem="shl", carries="up"),
    Ordinary(stem="shr", carries="down"),
)
