"""Predicates on instructions that lanes execute as one: the others branch around, and may meet them at another instruction.

`@p shfl.sync ...; @!p shfl.sync ...;` with one mask is one exchange of all its lanes (PTX ISA, shfl.sync: a thread waits until the
members have executed it with the same qualifiers and the same mask).
"""

from __future__ import annotations

from dataclasses import replace

from tcsim.ptx.compile.convergence import collective
from tcsim.ptx.text.syntax import Function, Instruction, Symbol


def branched(function: Function) -> Function:
    """The function with a branch around each of them in the place of its predicate; itself if there is none."""
    if not any(_guarded(item) for item in function.body):
        return function
    body: list[Instruction] = []
    moved: list[int] = []  # of each instruction: where it begins now
    ends: dict[str, int] = {}
    for item in function.body:
        moved.append(len(body))
        if _guarded(item):
            label = f"behind {item.line}:{item.column}"  # no label of PTX has a space
            body.append(item._replace(opcode="bra", operands=(Symbol(label),), negated=not item.negated))
            item = item._replace(predicate=None, negated=False)
            ends[label] = len(body) + 1
        body.append(item)
    moved.append(len(body))
    return replace(function, body=body, labels={name: moved[at] for name, at in function.labels.items()} | ends)


def _guarded(item: Instruction) -> bool:
    return item.predicate is not None and collective(item)
