"""How the compiler writes sums that may be fused with products: both results, the one that the assembler chooses, and what they need.

Where a sum cannot take what a product multiplies from its sources, because they are written again or because threads may come from several
products, registers of the machine's own keep the factors on the way: two for each register that may hold a product, and whether it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tcsim.isa.scalar.table import CONTAINERS
from tcsim.model.emit import Line, machine
from tcsim.ptx.compile.contraction import Source, Sum, fused
from tcsim.ptx.compile.flow import written
from tcsim.ptx.compile.identities import SIGNS
from tcsim.ptx.compile.writer import Writer
from tcsim.ptx.text.syntax import Instruction


def registers(writer: Writer) -> dict[str, tuple[int, int, int]]:
    """By register that may hold a product: those that keep its factors, and whether it holds one."""
    made = {}
    for name in sorted(writer.choices.followed):
        type, new = writer.function.registers[name][0], writer.context.new_register
        made[name] = new(type), new(type), new("pred")
        writer.numbers |= {f"{name} {place}": number for place, number in enumerate(made[name])}
    return made


def followed(writer: Writer, item: Instruction, index: int) -> Iterator[Line]:
    """What happens to these registers before an instruction."""
    choices = writer.choices
    for name in written(item) if choices.followed else ():
        if name not in writer.factors:
            continue
        one, two, holds = writer.factors[name]
        if index in choices.followed_products:
            yield Line(f"x_, y_ = {_factors(writer, index)}; {_kept(writer, (one, two, holds), 'x_', 'y_', 'True')}")
        elif index in choices.passes and choices.passes[index][0] in writer.factors:
            source, sign = choices.passes[index]
            a, b, there = map(writer.array, writer.factors[source])
            kind = item.opcode.rpartition(".")[2]
            if sign < 0 and kind in SIGNS:
                a = f"{a} ^ {writer.constant(CONTAINERS[kind].type(SIGNS[kind]))}"
            if not sign and kind in SIGNS:  # of a square
                a, b = (f"{own} & ~{writer.constant(CONTAINERS[kind].type(SIGNS[kind]))}" for own in (a, b))
            yield Line(_kept(writer, (one, two, holds), a, b, there))
        else:
            yield Line(_kept(writer, (holds,), "False"))


def _kept(writer: Writer, numbers: Iterable[int], *sources: str) -> str:
    return "; ".join(
        f"copyto({writer.array(number)}, {source}, where=w)" for number, source in zip(numbers, sources, strict=True)
    )


def _factors(writer: Writer, product: int) -> str:
    item = writer.function.body[product]
    type = item.opcode.rpartition(".")[2]
    return f"{writer.constant(writer.choices.factors[product])}({', '.join(writer.value(own, type) for own in item.operands[1:])})"


def sum(writer: Writer, item: Instruction, own: Sum, sources: list[str], call: str, type: str) -> Line:
    """The statement of a sum with sources that may be products."""
    parts, fusions = [f"x_ = {call}"], []
    for number, source in enumerate(own.sources):
        parts.append(f"f{number}_ = {_fusion(writer, item, source, sources[1 - source.place])}")
        fusions.append(f"f{number}_")
    chosen = next((number for number, source in enumerate(own.sources) if source.fused), None)
    if own.sources:
        result = "x_" if chosen is None else fusions[chosen]
        others = ["x_", *fusions[:chosen]] if chosen is not None else fusions
        parts.append(
            f"inexact.contracted({writer.constant(item.opcode)}, {writer.constant(type)}, {result}, ({', '.join(others)},), w)"
        )
    else:
        result = "x_"
    if own.unknown:
        parts.append(f"inexact.note({writer.constant(f'mul + {item.opcode}')}, w)")
    return machine("; ".join([*parts, writer.put(item.operands[0], result, type).text]))


def _fusion(writer: Writer, item: Instruction, source: Source, other: str) -> str:
    one = writer.constant(fused(item, source))
    if source.kept:
        return f"{one}({other}, *{_factors(writer, source.product)})"
    a, b, holds = map(writer.array, writer.factors[source.register])
    return f"np.where({holds}, {one}({other}, {a}, {b}), x_)"
