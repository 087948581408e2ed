"""How the compiler writes sums that may be fused with products: both results, the one that the assembler chooses, and what they need.

Where a sum cannot take what a product multiplies from its sources, because they are written again or because threads may come from several
products, registers of the machine's own keep the factors on the way: two for each register that may hold a product, and whether it does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tcsim.isa.scalar.table import CONTAINERS
from tcsim.ptx.compile.contraction import Source, Sum, fused
from tcsim.ptx.compile.emit import Emitter
from tcsim.ptx.compile.flow import written
from tcsim.ptx.compile.identities import SIGNS
from tcsim.ptx.text.syntax import Instruction


def registers(compiler: Emitter) -> dict[str, tuple[str, str, str]]:
    """By register that may hold a product: those that keep its factors, and whether it holds one."""
    made = {}
    for name in sorted(compiler.choices.followed):
        type, first = compiler.function.registers[name][0], len(compiler.context.registers)
        compiler.context.registers += [(type, CONTAINERS[type], 1)] * 2 + [("pred", np.dtype(bool), 1)]
        compiler.numbers |= {f"{name} {place}": first + place for place in range(3)}
        made[name] = f"r{first}", f"r{first + 1}", f"r{first + 2}"
    return made


def followed(compiler: Emitter, item: Instruction, index: int) -> Iterator[str]:
    """What happens to these registers before an instruction."""
    choices = compiler.choices
    for name in written(item) if choices.followed else ():
        if name not in compiler.factors:
            continue
        one, two, holds = compiler.factors[name]
        if index in choices.followed_products:
            yield f"x_, y_ = {_factors(compiler, index)}; copyto({one}, x_, where=w); copyto({two}, y_, where=w); copyto({holds}, True, where=w)"
        elif index in choices.passes and choices.passes[index][0] in compiler.factors:
            source, sign = choices.passes[index]
            a, b, there = compiler.factors[source]
            kind = item.opcode.rpartition(".")[2]
            if sign < 0 and kind in SIGNS:
                a = f"{a} ^ {compiler.constant(CONTAINERS[kind].type(SIGNS[kind]))}"
            if not sign and kind in SIGNS:  # of a square
                a, b = (f"{own} & ~{compiler.constant(CONTAINERS[kind].type(SIGNS[kind]))}" for own in (a, b))
            yield f"copyto({one}, {a}, where=w); copyto({two}, {b}, where=w); copyto({holds}, {there}, where=w)"
        else:
            yield f"copyto({holds}, False, where=w)"


def _factors(compiler: Emitter, product: int) -> str:
    item = compiler.function.body[product]
    type = item.opcode.rpartition(".")[2]
    return f"{compiler.constant(compiler.choices.factors[product])}({', '.join(compiler.value(own, type) for own in item.operands[1:])})"


def sum(compiler: Emitter, item: Instruction, own: Sum, sources: list[str], call: str, type: str) -> str:
    """The statement of a sum with sources that may be products."""
    parts, fusions = [f"x_ = {call}"], []
    for number, source in enumerate(own.sources):
        parts.append(f"f{number}_ = {_fusion(compiler, item, source, sources[1 - source.place])}")
        fusions.append(f"f{number}_")
    chosen = next((number for number, source in enumerate(own.sources) if source.fused), None)
    if own.sources:
        result = "x_" if chosen is None else fusions[chosen]
        others = ["x_", *fusions[:chosen]] if chosen is not None else fusions
        parts.append(
            f"inexact.contracted({compiler.constant(item.opcode)}, {compiler.constant(type)}, {result}, ({', '.join(others)},), w)"
        )
    else:
        result = "x_"
    if own.unknown:
        parts.append(f"inexact.note({compiler.constant(f'mul + {item.opcode}')}, w)")
    return "; ".join([*parts, compiler.put(item.operands[0], result, type)])


def _fusion(compiler: Emitter, item: Instruction, source: Source, other: str) -> str:
    one = compiler.constant(fused(item, source))
    if source.kept:
        return f"{one}({other}, *{_factors(compiler, source.product)})"
    a, b, holds = compiler.factors[source.register]
    return f"np.where({holds}, {one}({other}, {a}, {b}), x_)"
