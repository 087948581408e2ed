"""Loads and stores of registers, and prefetches: ld, ldu, st, prefetch, prefetchu."""

from __future__ import annotations

from tcsim.isa.ordinary.table import (
    HINT,
    L1S,
    SCOPE,
    SCOPES,
    SHARED,
    SPACES,
    UNSIGNED,
    VECTOR,
    Ordinary,
    effect,
    grammar,
    nothing,
    put_whole,
    space_in,
    type_of,
    wanted,
    whole,
)
from tcsim.isa.scalar.table import CONTAINERS
from tcsim.model.emit import Emitter, Line, Lines, machine
from tcsim.model.grammar import Rule, Slot, apart, need, one, since, some, words_of
from tcsim.model.statement import TYPE_BYTES, Instruction, Operand, Register, Vector


def _access(emitter: Emitter, item: Instruction) -> tuple[str, int, str]:
    """State space, elements of the vector, and type."""
    space, type = space_in(item.opcode), type_of(emitter, item)
    count = next((int(word[1:]) for word in item.opcode.split(".") if word in VECTOR.words), 1)
    emitter.narrow(space, TYPE_BYTES[type] * count)
    return space, count, type


def _alone(operand: Operand, count: int) -> Operand:
    """A vector of one register is that register."""
    return operand.items[0] if count == 1 and isinstance(operand, Vector) and len(operand.items) == 1 else operand


def _memory(emitter: Emitter, space: str) -> str:
    """The name of the memory of a state space."""
    return emitter.constant(space if space == "shared::cluster" else space.split("::")[0])


def _load(emitter: Emitter, item: Instruction) -> Lines:
    """Loads of registers or vectors of them from any state space."""
    space, count, type = _access(emitter, item)
    to, where = item.operands[:2]
    address, space = emitter.place(where, space)
    size = TYPE_BYTES[type]
    loaded = f"mem.load({_memory(emitter, space)}, {address}, {size * count}, w)"
    to = _alone(to, count)
    if type == "b128":
        return [put_whole(emitter, to, loaded, type)]
    if count == 1:
        return [_put_loaded(emitter, to, loaded, type, calls_machine=True)]
    if not isinstance(to, Vector) or len(to.items) != count:
        raise emitter.error(f"a vector of {count} registers is loaded")
    puts = (_put_loaded(emitter, own, f"x_[..., {place}]", type) for place, own in wanted(to.items))
    return [machine(f"x_ = T.split({loaded}, {size})"), *puts]


def _put_loaded(emitter: Emitter, to: Operand, source: str, type: str, calls_machine: bool = False) -> Line:
    """Into a register of the type's width, or a wider one with the sign or zeros above."""
    if type[0] == "s" and isinstance(to, Register) and CONTAINERS[emitter.type_of(to)].itemsize > TYPE_BYTES[type]:
        wide = f"i{CONTAINERS[emitter.type_of(to)].itemsize}"
        source = f"{source}.view({emitter.constant(f'i{TYPE_BYTES[type]}')}).astype({emitter.constant(wide)})"
        return Line(f"copyto({emitter.register(to)}.view({emitter.constant(wide)}), {source}, where=w)", calls_machine)
    return emitter.put(to, source, UNSIGNED[TYPE_BYTES[type]], calls_machine)


def _store(emitter: Emitter, item: Instruction) -> Lines:
    """Stores of registers or vectors of them to any state space."""
    space, count, type = _access(emitter, item)
    where, what = item.operands[:2]
    address, space = emitter.place(where, space)
    what = _alone(what, count)
    size = TYPE_BYTES[type]
    memory = _memory(emitter, space)
    if type == "b128":
        stored = whole(emitter, what, type)
    elif count == 1:
        stored = emitter.value(what, UNSIGNED[size])
    elif isinstance(what, Vector) and len(what.items) == count:
        stored = f"T.join(({', '.join(emitter.value(own, UNSIGNED[size]) for own in what.items)},), {size})"
    else:
        raise emitter.error(f"a vector of {count} registers is stored")
    return [machine(f"mem.store({memory}, {address}, {stored}, {size * count}, w)")]


_BITS = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_WORDS, _DOUBLE = "b32 u32 s32 f32", "b64 u64 s64 f64"
_L2S, _FETCHES = "L2::evict_normal L2::evict_first L2::evict_last", "L2::64B L2::128B L2::256B"
_WIDE = (since("8.8", 100, "v8", _WORDS), since("8.8", 100, "v4", _DOUBLE))


def _rules(orders: str, ways: str) -> tuple[Rule, ...]:
    """What combines in ld and st: orders with a scope, and caching policies (PTX ISA, sections ld and st)."""
    private = "local const param param::entry param::func"
    elsewhere = f"{SHARED} {private}"
    return (
        need(SCOPES, orders), need(orders, SCOPES), need(orders, "mmio"), need("sys", "mmio"),
        apart(f"{elsewhere} {L1S} {_L2S} {_FETCHES} L2::cache_hint v2 v4 v8", "mmio"),
        apart(private, orders), apart(private.replace("local", ""), "volatile"), apart(ways, f"{orders} volatile"),
        apart(f"{L1S} L2::cache_hint", "volatile"), apart(L1S, ways), apart(f"{L1S} {_L2S} {_FETCHES} L2::cache_hint", elsewhere),
        need("v4 v8", _L2S), need(_DOUBLE, _L2S, "v4"), need(_WORDS, _L2S, "v8"),
        apart("v2 v4 v8", "b128"), apart(_DOUBLE, "v8"), apart(elsewhere, "v4", _DOUBLE), apart(elsewhere, "v8", _WORDS),
    )  # fmt: skip


ROWS = (
    Ordinary(
        stem="ld",
        grammar=grammar(
            some("mmio"), some("weak volatile relaxed acquire"), SCOPE, Slot(False, SPACES), some("nc"), some("ca cg cs lu cv"),
            some(L1S), some(_L2S), HINT, some(_FETCHES), VECTOR, one(_BITS),
            operands=(2,),
            rules=(*_rules("relaxed acquire", "ca cg cs lu cv"), need("global", "nc"), apart("weak volatile relaxed acquire lu cv", "nc")),
            since=_WIDE,
            vectors=(0,),
        ),
        emit=_load,
        polls=True,
        path="load",
        declared=True,
    ),
    Ordinary(
        stem="ldu",
        grammar=grammar(
            some("global"), some("v2 v4"), one(_BITS),
            operands=(2,), rules=(apart("v2 v4", "b128"), apart(_DOUBLE, "v4")), vectors=(0,),
        ),
        emit=_load,
        path="load",
    ),
    effect(
        stem="st",
        grammar=grammar(
            some("mmio"), some("weak volatile relaxed release"), SCOPE, Slot(False, SPACES - words_of("const param::entry")),
            some("wb cg cs wt"), some(L1S), some(_L2S), HINT, VECTOR, one(_BITS),
            operands=(2,),
            rules=_rules("relaxed release", "wb cg cs wt"),
            since=_WIDE,
            vectors=(1,),
        ),
        emit=_store,
        path="store",
        declared=True,
    ),
    Ordinary(
        stem="prefetch",
        grammar=grammar(
            some("global local const param"), one("L1 L2 L1::32B L2::evict_last L2::evict_normal tensormap"), some("valid_addr"),
            operands=(1,),
            rules=(
                apart("local", "L2::evict_last L2::evict_normal"), need("tensormap", "const param"), apart("global local", "tensormap"),
                need("valid_addr", "L1::32B"), need("L1::32B", "valid_addr"), apart("local const param", "L1::32B"),
            ),
            since=(since("7.4", 80, "L2::evict_last L2::evict_normal"), since("8.0", 90, "tensormap"), since("9.4", 90, "L1::32B")),
        ),
        emit=nothing,
        writes=False,
    ),
    Ordinary(stem="prefetchu", grammar=grammar(one("L1"), operands=(1,)), emit=nothing, writes=False),
)  # fmt: skip
