"""Random machines that answer dot products, for tests of programs that find out how an unknown instruction computes.

    from tests.evaluation.random_machines import inputs, random_machines

    for machine in random_machines(200, seed=1):
        x = inputs(machine.signature, 10_000)     # a, b, c[, scale_a, scale_b]: codes, made to tell machines apart
        d = machine.dot(*x)                       # the only question that a program may ask
        ...                                       # its answer is a dict with the keys of machine.truth
        assert agrees(machine.signature, machine.truth, answer)

`compare(signature, truth, answer)` says "same", "different" with the input that shows it, or "not told apart" by the inputs tried;
`observable` says which keys no input can show. `outside_machines()` are machines that must be refused. `slow.dot` is a second
implementation on fractions, and `known.KNOWN` are real instructions, both to check the first.

What the keys leave open is read so: `truncation` is of every term, c and earlier results too. Inputs are widened before subnormal
numbers become zeros. `subnormal_c` is of c only, not of earlier results. A subnormal number that becomes zero keeps its sign.
`zero` = "ieee": also a negative sum that rounds to zero is -0, but a sum of shifted terms that is zero is +0 unless every term was -0.
`addend` = "last": the steps start from +0, and the addition at the end is IEEE's throughout (overflow to infinity, subnormal
results kept, -0 only as -0 + -0), whatever the keys say of a step's result; only `nan` is everywhere. `significand`: subnormal results have the
quantum 2**(emin + 1 - significand). `overflow` = "largest": the largest number of that significand. A run's term of ("group", g) is zero if
all of its products are, or a scale is.
"""

from .generate import random_machine, random_machines
from .machine import Machine, Signature, Truth
from .outside import outside_machines
from .same import NOT_OBSERVABLE, Verdict, agrees, compare, observable
from .stimuli import Inputs, inputs

__all__ = [
    "NOT_OBSERVABLE",
    "Inputs",
    "Machine",
    "Signature",
    "Truth",
    "Verdict",
    "agrees",
    "compare",
    "inputs",
    "observable",
    "outside_machines",
    "random_machine",
    "random_machines",
]
