"""`tcsim trace`: the sum of one output, drawn as columns of bits; the roundings of one conversion, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tcsim.cli import options
from tcsim.cli.files import read_arrays
from tcsim.cli.output import emit, width
from tcsim.core.errors import OperandError
from tcsim.inspection.conversion_inputs import Elementwise, conversion_steps, random_registers
from tcsim.inspection.outputs import output_problem
from tcsim.inspection.problems import described
from tcsim.inspection.products import formats_of
from tcsim.inspection.random_inputs import random_products
from tcsim.inspection.trace_report import trace_report
from tcsim.inspection.trace_steps import trace_steps


def trace(
    mnemonic: options.Mnemonic,
    arch: options.Arch = None,
    element: options.Element = "0,0",
    file: Annotated[
        str | None, typer.Option("--inputs", "-i", help=".npz with a, b, c by name.", metavar="FILE")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Random inputs instead of a file.")] = None,
    batch: Annotated[int, typer.Option("--batch", help="Which item of the leading dimensions.")] = 0,
    matrix: options.Matrix = 0,
    call: options.CallOption = None,
    idesc: options.Idesc = None,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Trace the sum of one output, as columns of bits.

    Every term is shown aligned to the largest exponent; what is right of the bar was cut. Of a cvt and of
    a special function, one result is followed element by element: --batch says which of the file's.
    """
    instruction = options.instruction_of(mnemonic, arch)
    place = options.element_of(element)
    given = options.with_idesc(_arrays(file, seed), idesc)
    instruction = described(instruction, given)
    if isinstance(instruction, Elementwise):
        steps = conversion_steps(instruction, given or random_registers(instruction, int(seed or 0)), batch)
    elif seed is not None:
        steps = trace_steps(instruction, *_random(instruction, seed))
    else:
        steps = trace_steps(
            instruction, *output_problem(instruction, given, place, batch, matrix, call.value if call else None)
        )
    data = {
        "mnemonic": instruction.mnemonic, "arch": instruction.arch.name, "element": list(place), "seed": seed,
        "evidence": str(instruction.evidence), "kind": instruction.lowering.kind,
        "steps": [step.as_dict() for step in steps],
    }  # fmt: skip
    emit(
        "trace",
        lambda: data,
        lambda: trace_report(instruction, place, steps, width()),
        json=json,
        html=html,
    )


def _arrays(file: str | None, seed: int | None) -> Mapping[str, Any]:

    if (file is None) == (seed is None):
        raise OperandError("trace: which inputs? valid: --inputs FILE.npz, or --seed N for random ones")
    return {} if file is None else read_arrays(file, "trace")


def _random(instruction: Any, seed: int) -> tuple[Any, ...]:
    """Random codes of one output: a, b, c and the scales."""
    if not formats_of(instruction):
        raise OperandError(f"{instruction!r} computes no products; valid: instructions with a, b and c")
    return tuple(codes.reshape(-1) for codes in random_products(instruction, 1, seed).codes.values())
