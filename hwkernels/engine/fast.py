"""Which work the fast kernel computes (hwkernels/kernels/engine_gemm.cu), and the constants that it is compiled with."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hwkernels.engine.source import KERNELS, UnsupportedError, headers_of
from tcsim.arithmetic.steps import Arithmetic, DotAdd, ScaledDotAdd, Widen
from tcsim.engines.contract import Work
from tcsim.numbers.formats import FORMATS, Format

_SHARED = 227 * 1024  # bytes of a block on sm_90; 163 KB on sm_80
_MULTIPROCESSOR = 228 * 1024  # bytes of all its blocks, each with 1024 of the system's
_FEWEST = 16  # places along K of a stage


@dataclass(frozen=True)
class Tile:
    """The shape of a block's work."""

    block_m: int
    block_n: int
    thread_m: int
    thread_n: int
    ring: int  # stages in shared memory

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.block_m // self.thread_m * (self.block_n // self.thread_n)


TILE = Tile(64, 64, 4, 8, 2)
"""Of every work."""


@dataclass(frozen=True)
class Constants:
    """What the kernel is compiled with."""

    length: int  # places along the dense K of one step
    kept_length: int  # of them those that A keeps
    steps: int  # of one instruction
    span: int  # places that are computed one after another: a short step, or a part of a long one
    parts: int  # of a step: products of each sum to less than 32 bits
    apart: bool  # c is added after the steps of an instruction
    within: bool  # the addend fits into the sum of the products
    ahead: bool  # the exponents of a step come one step before its products
    wide: bool  # results may overflow, or be subnormal, or exponents of products lie below those of f32
    tile: Tile

    @property
    def spans_of_stage(self) -> int:
        """A stage has at least so many places."""
        return max(1, _FEWEST // self.span)

    def stages(self, steps: int) -> int:
        """Of a product of some steps."""
        return -(-(steps + self.ahead) * (self.length // self.span) // self.spans_of_stage)

    @property
    def chunks(self) -> tuple[int, int]:
        """Bytes of a chunk of A and of one of B."""
        return (
            self.tile.block_m * self.spans_of_stage * (12 * self.span + 4 * (self.span + 1)),
            self.tile.block_n * self.spans_of_stage * (10 * self.span + 4 * (self.span + 1)),
        )

    @property
    def blocks(self) -> int:
        """Of a multiprocessor, if registers are to allow it: more than two where an addend needs none of its own."""
        return max(
            1, min(3 if self.within and self.tile.threads <= 128 else 1, _MULTIPROCESSOR // (self.shared_bytes + 1024))
        )

    @property
    def shared_bytes(self) -> int:
        """Of a block: the ring of chunks, the sums that c is added to apart and the parts of sums."""
        outputs = self.tile.block_m * self.tile.block_n
        return self.tile.ring * sum(self.chunks) + (8 * self.apart + 4 * (self.parts - 1)) * outputs


def _parts_of(work: Work) -> tuple[Format | None, list[DotAdd], bool]:
    """As what a and b are read, the dot-adds, and whether c is added after them by an ordinary addition."""
    steps, read, apart = list(work.steps), None, False
    if steps and isinstance(steps[0], Widen):
        read = FORMATS[steps[0].format]
        steps = steps[1:]
    if steps and steps[-1] == Arithmetic("add", "d", ("acc", "c"), work.result.name):
        apart = True
        steps.pop()
    return read, [step for step in steps if isinstance(step, DotAdd)], apart


def why_not(work: Work) -> str:
    """Why the fast kernel does not compute this; empty if it does."""
    read, steps, apart = _parts_of(work)
    units = {step.unit for step in steps}
    if len(units) != 1 or len(work.steps) != len(steps) + apart + (read is not None):
        return "its steps are not all dot-adds of one unit"
    if any(isinstance(step, ScaledDotAdd) and step.group for step in steps):
        return "its products are summed before they are scaled"
    lengths, places = {len(step.k) for step in steps}, [k for step in steps for k in step.k]
    if len(lengths) != 1 or sorted(places) != list(range(work.kept)):
        return "its steps do not cut K into parts of one length"
    if work.sparse and (
        min(lengths) % 4 or any(k % 2 or after != k + 1 for k, after in zip(places[::2], places[1::2], strict=True))
    ):
        return "its steps part the elements that are kept of one group"
    (unit,) = units
    if (
        unit.addend_shift
        or steps[0].addend != ("+0" if apart else "c")
        or any(step.addend != "acc" for step in steps[1:])
    ):
        return "its addend is not the result of the step before"
    if work.formats[2].container_bits != work.result.container_bits or unit.fraction_bits > 25:
        return "its result is not its addend, or has too many bits"
    return ""


def constants_of(work: Work, shared: int = _SHARED, tile: Tile | None = None) -> Constants:
    """The constants of a work. Raises UnsupportedError."""
    reason = why_not(work)
    if reason:
        raise UnsupportedError(reason)
    read, dots, apart = _parts_of(work)
    unit, steps = dots[0].unit, len(dots)
    length, kept = work.k // steps, work.kept // steps
    factors = (work.scale,) * 2 if work.scale else ()
    multiplied = (*((read, read) if read else work.formats[:2]), *factors)
    codes, parts = (*work.formats[:2], *factors), 1
    while not _fits(kept // parts, codes, unit.fraction_bits) or length // parts > 64:
        parts *= 2
    within = _fits(kept // parts, codes, unit.fraction_bits, 2 << unit.fraction_bits)
    lowest = sum(item.minimum_exponent - (item.fraction_bits if item.zero else 0) for item in multiplied)
    span = min(_FEWEST, length // parts)
    wide = lowest < -126
    ahead = span < length or (within and not apart and (span == _FEWEST or not wide))  # it must be, or it is faster
    found = Constants(length, kept, steps, span, parts, apart, within, ahead, wide, tile or TILE)
    if found.shared_bytes > shared:
        raise UnsupportedError(f"a stage needs more than {shared} bytes of shared memory")
    return found


def _fits(products: int, formats: tuple[Format, ...], fraction_bits: int, more: int = 0) -> bool:
    """Whether the sum of products is less than 2**31 in units of 2**-fraction_bits of the largest exponent, also with something more."""
    top, below = 1, 0
    for item in formats:
        top *= (2 << item.fraction_bits) - 1
        below += item.fraction_bits
    return (products * top << fraction_bits) + (more << below) < 1 << 31 + below


def headers(work: Work, constants: Constants) -> dict[str, str]:
    """All headers that the kernel includes."""
    a, b, c = work.formats
    values = {item.name.upper(): getattr(constants, item.name) for item in fields(constants) if item.type == "int"}
    values["SPANS_OF_STAGE"] = constants.spans_of_stage
    values |= {item.name.upper(): getattr(constants.tile, item.name) for item in fields(constants.tile)}
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    scale = work.scale.name if work.scale else "ue8m0"
    read, dots, _ = _parts_of(work)
    places = ", ".join("{" + ", ".join(map(str, step.k)) + "}" for step in dots)
    first = next(number for number, step in enumerate(work.steps) if isinstance(step, DotAdd))
    text = (
        f"#pragma once\nenum {{ {listed}, IS_WIDE = {int(constants.wide)}, APART = {int(constants.apart)}, "
        f"WITHIN = {int(constants.within)}, AHEAD = {int(constants.ahead)}, BLOCKS = {constants.blocks} }};\n"
        f"CONSTANT int STEP_PLACES[STEPS][KEPT_LENGTH] = {{{places}}};\ntypedef Unit{first} TheUnit;\n"
        f"typedef Read<{a.name}, {(read or a).name}> ReadA;\ntypedef Read<{b.name}, {(read or b).name}> ReadB;\n"
        f"typedef {c.name} CFormat;\ntypedef {scale} ScaleFormat;\n"
    )
    fast = (KERNELS / "engine_fast.cuh").read_text(encoding="utf-8")
    return {**headers_of(work), "engine_fast.cuh": fast, "constants.cuh": text}
