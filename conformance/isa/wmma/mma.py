"""wmma.mma under test: a dense matrix multiply on fragments that may hold elements several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from conformance.isa.mma.dense import DenseTestbench
from conformance.isa.mma.mutants import MUTANTS
from conformance.stimuli import classes as input_classes
from conformance.stimuli.stream import Stream
from conformance.testbench import Array, Inputs, Mutant
from tcsim.arithmetic.dot import Datapath
from tcsim.arithmetic.steps import Arithmetic, DotAdd, Step
from tcsim.core.targets import ARCHS
from tcsim.isa.wmma.multiply import FragmentMultiply
from tcsim.numbers.codec import encode

COPIES_CLASS = "duplicates"
"""The class whose later copies of an element differ from the first."""
TIES_CLASS = "ties"
"""The class whose sums lie next to the middle of two f16 numbers, by less than the last bit of f32."""

_OUTPUTS_PER_CASE = 256
_MORE = {"boundaries": 2, "edges": 2, "floor": 4}
"""Classes that hold what they are for in few places: by what their number of outputs is multiplied."""
_ONEHOT_SAMPLES = 2  # A, then B


class FragmentTestbench(DenseTestbench):
    """wmma.mma: registers of a, b and c in, registers of d out."""

    def classes(self, instruction: FragmentMultiply) -> list[str]:
        """The dense classes; `duplicates` where a lane holds elements several times; `ties` where f32 is rounded to f16."""
        names = super().classes(instruction)
        names += [COPIES_CLASS] if _unread_copies(instruction) else []
        return [*names, TIES_CLASS] if _is_mixed("f16")(instruction) else names

    def samples(self, instruction: FragmentMultiply, name: str) -> int:
        """Enough for 256 results, or a few times that."""
        m, n, _ = instruction.shape
        if name in input_classes.LEVEL_2:
            return super().samples(instruction, name)
        return _ONEHOT_SAMPLES if name == "onehot" else _MORE.get(name, 1) * _OUTPUTS_PER_CASE // (m * n)

    def inputs(self, instruction: FragmentMultiply, name: str, seed: int, samples: int) -> Inputs:
        """Registers (samples, 32, registers) of a, b and c, all copies alike but for `duplicates`."""
        if name == TIES_CLASS:
            return _ties(instruction, Stream(instruction.mnemonic, name, seed), samples)
        base = "normal" if name == COPIES_CLASS else name
        given = dict(input_classes.registers(instruction, input_classes.EVERY[base], seed, samples))
        if name == COPIES_CLASS:
            stream = Stream(instruction.mnemonic, name, seed)
            for operand in "ab":
                copies = _later_copies(instruction, operand)
                noise = stream.words(given[operand].shape).astype(np.uint32)
                given[operand] = np.where(copies, noise, given[operand])
        return given


def _later_copies(instruction: FragmentMultiply, name: str) -> npt.NDArray[np.bool_]:
    """Which registers (n,) hold copies of what earlier ones of the lane hold."""
    layout = instruction.operands[name].layout
    own = 1 if layout.copies_in_lanes else layout.copies
    return np.arange(layout.registers) >= layout.registers // own


def _unread_copies(instruction: FragmentMultiply) -> bool:
    return any(_later_copies(instruction, name).any() for name in "ab")


def _ties(instruction: FragmentMultiply, stream: Stream, samples: int) -> Inputs:
    """2**e + 2**(e - 10) + 2**(e - 11), half a unit above an odd f16 number, more or less 2**(e - 25), times 2**j; C = 0."""
    m, n, k = instruction.shape
    exponent = stream.between(2, 8, (samples, m, 1)) - np.array([0, 10, 11, 25])
    values = np.ldexp(1.0, exponent)
    values[..., 3] *= np.where(stream.chance(1, 2, (samples, m)), 1, -1)
    values *= np.where(stream.chance(1, 2, (samples, m, 1)), 1, -1)
    a = np.zeros((samples, m, k))
    places = np.argsort(stream.words((samples, m, k)), axis=-1)[..., :4]
    np.put_along_axis(a, places, values, axis=-1)
    b = np.broadcast_to(np.ldexp(1.0, stream.between(0, 3, (samples, 1, n))), (samples, k, n))
    matrices = {"a": a, "b": b, "c": np.zeros((samples, m, n))}
    return {
        name: instruction.registers(name, encode(values, instruction.operands[name].format))
        for name, values in matrices.items()
    }


# --- mutants

Run = Callable[[FragmentMultiply, Inputs], Array]


def _relowered(change: Callable[[FragmentMultiply], tuple[Step, ...]]) -> Run:
    def run(instruction: FragmentMultiply, inputs: Inputs) -> Array:
        lowering = replace(instruction.lowering, steps=change(instruction))
        return replace(instruction, lowering=lowering).execute(**inputs)

    return run


def _dots(instruction: FragmentMultiply) -> list[DotAdd]:
    return [step for step in instruction.lowering.steps if isinstance(step, DotAdd)]


def _is_chain(instruction: FragmentMultiply) -> bool:
    return len(_dots(instruction)) > 1


def _with_dots(instruction: FragmentMultiply, dots: list[DotAdd]) -> tuple[Step, ...]:
    """The lowering with its dot-adds, which follow each other, replaced."""
    steps = instruction.lowering.steps
    first = next(place for place, step in enumerate(steps) if isinstance(step, DotAdd))
    return (*steps[:first], *dots, *steps[first + len(_dots(instruction)) :])


def _one_step(instruction: FragmentMultiply) -> tuple[Step, ...]:
    dots = _dots(instruction)
    whole = tuple(k for step in dots for k in step.k)
    return _with_dots(instruction, [replace(dots[0], k=whole, result=dots[-1].result)])


def _reversed(instruction: FragmentMultiply) -> tuple[Step, ...]:
    dots = _dots(instruction)
    return _with_dots(instruction, [replace(step, k=other.k) for step, other in zip(dots, dots[::-1], strict=True)])


def _is_mixed(d: str) -> Callable[[FragmentMultiply], bool]:
    """D has this format and C another one."""
    return lambda i: i.operands["d"].format.name == d and i.operands["c"].format.name != d


def _f16(unit: Datapath) -> Datapath:
    """The same unit with an f16 result: its floor lies as far above the least exponent of f16."""
    return replace(unit, output="f16", rounding="rne", floor=unit.floor + 126 - 14)


def _rounded_once(instruction: FragmentMultiply) -> tuple[Step, ...]:
    """D of f16 straight from the last dot-add."""
    dots = _dots(instruction)
    last = replace(dots[-1], unit=_f16(dots[-1].unit), result="d")
    return tuple(_with_dots(instruction, [*dots[:-1], last]))[: instruction.lowering.steps.index(dots[-1]) + 1]


def _kept_in_f16(instruction: FragmentMultiply) -> tuple[Step, ...]:
    """D of f32 from dot-adds that accumulate in f16."""
    dots = [replace(step, unit=_f16(step.unit), result="acc") for step in _dots(instruction)]
    dots[0] = replace(dots[0], addend="c")
    return (*dots, Arithmetic("convert", "d", ("acc",), "f32"))


def _addend_rounded(instruction: FragmentMultiply) -> tuple[Step, ...]:
    """C of f32 rounded to f16, the format of D, before it is added."""
    dots = _dots(instruction)
    first = replace(dots[0], addend="acc")
    narrowed = Arithmetic("convert", "acc", ("c",), "f16")
    return (narrowed, *_with_dots(instruction, [first, *dots[1:]]))


def _copies_read(instruction: FragmentMultiply, inputs: Inputs) -> Array:
    """The last copy of every element instead of the first."""
    changed = dict(inputs)
    for name in "ab":
        later = _later_copies(instruction, name)
        changed[name] = np.roll(inputs[name], int((~later).sum()), axis=-1) if later.any() else inputs[name]
    return instruction.execute(**changed)


def _tiles_exchanged(instruction: FragmentMultiply, inputs: Inputs) -> Array:
    d = instruction.execute(**inputs)
    return np.roll(d, d.shape[-1] // 2, axis=-1)


def _rows_exchanged(instruction: FragmentMultiply, inputs: Inputs) -> Array:
    codes = instruction.matrix("a", inputs["a"])
    rows = np.arange(instruction.shape[0]) ^ 8
    return instruction.execute(**{**inputs, "a": instruction.registers("a", codes[..., rows, :])})


def _k_exchanged(instruction: FragmentMultiply, inputs: Inputs) -> Array:
    """A read with the halves of K exchanged, B not."""
    codes = instruction.matrix("a", inputs["a"])
    half = instruction.shape[2] // 2
    return instruction.execute(**{**inputs, "a": instruction.registers("a", np.roll(codes, half, axis=-1))})


def _volta(instruction: FragmentMultiply, inputs: Inputs) -> Array:
    """All fragments laid out as on Volta."""
    relaid = replace(instruction, arch=ARCHS["sm_70"])
    changed = {name: relaid.registers(name, relaid.matrix(name, inputs[name])) for name in "ab"}  # equal copies
    return relaid.execute(**{**inputs, **changed})


def _is_f16(instruction: FragmentMultiply) -> bool:
    return instruction.operands["a"].format.name == "f16" and instruction.arch.number >= 75


_FRAGMENT_MUTANTS = (
    Mutant("chain in one step", "all of K in one dot-add", _is_chain, _relowered(_one_step)),
    Mutant("chain reversed", "from the last block of K to the first", _is_chain, _relowered(_reversed)),
    Mutant("f16 rounded once", "no f32 in between", _is_mixed("f16"), _relowered(_rounded_once)),
    Mutant("addend rounded to f16", "C is rounded before it is added", _is_mixed("f16"), _relowered(_addend_rounded)),
    Mutant("f32 from f16", "the accumulator is f16, widened at the end", _is_mixed("f32"), _relowered(_kept_in_f16)),
    Mutant("later copies read", "the last copy of an element counts", _unread_copies, _copies_read),
    Mutant("tiles exchanged", "the halves of D's registers change places",
           lambda i: i.shape[0] * i.shape[1] > 64, _tiles_exchanged),
    Mutant("rows exchanged", "rows r and r + 8 of A change places", lambda i: i.shape[0] >= 16, _rows_exchanged),
    Mutant("K halves exchanged", "A's halves of K change places, B's do not", lambda i: True, _k_exchanged),
    Mutant("Volta's fragments", "the layouts of sm_70", _is_f16, _volta),
)  # fmt: skip

FRAGMENT = FragmentTestbench((*MUTANTS, *_FRAGMENT_MUTANTS))
