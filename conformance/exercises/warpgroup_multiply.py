"""Exercise of warpgroup matrix multiplies: tiles in shared memory, random descriptors, A in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance import inputs as input_classes
from conformance.compare import compare_matrices
from conformance.exercises import Array, Comparison, Inputs, WrongModel
from conformance.inputs import Codes, Matrices, Problem
from conformance.stream import Stream
from conformance.wrong_models import WRONG_MODELS
from tcsim.formats import Format
from tcsim.matrix_descriptor import FORMS, Major, MatrixDescriptor
from tcsim.warpgroup_multiply import WarpgroupMultiply

FULL_N = 64  # the N whose rows run every class; the others run one class with A in shared memory, one with registers
_IMAGE_BYTES = 32 * 1024
_DESCRIPTOR_SAMPLES = 72  # for each swizzle, majors and type: three 16-bit rows make 216 pairs
_MODES = {"none": "NONE", "small": "32B", "medium": "64B", "large": "128B"}
_MAJORS: tuple[Major, Major] = ("K", "MN")
_SIGNS = {"negated": ((1, -1), (-1, 1)), "negatedtwice": ((-1, -1),)}  # class -> (scale_a, scale_b), taken in turn


@dataclass(frozen=True)
class _TileProblem(Problem):
    """The dense problem of one warpgroup multiply."""

    multiply: WarpgroupMultiply

    def format(self, name: str) -> Format:
        """The format of an operand, B's too."""
        return self.multiply.formats[name]

    def dimensions(self, name: str) -> tuple[int, int, int]:
        """(count, rows, columns)."""
        m, n, k = self.multiply.shape
        return {"a": (self.count, m, k), "b": (self.count, k, n), "c": (self.count, m, n)}[name]


def _problem(instruction: WarpgroupMultiply, count: int) -> _TileProblem:
    return _TileProblem(instruction, count, instruction)  # type: ignore[arg-type]


class WarpgroupExercise:
    """wgmma: an image of shared memory, descriptors or registers, accumulators and immediates in, accumulators out."""

    wrong_models: tuple[WrongModel, ...]

    def __init__(self) -> None:
        self.wrong_models = _WRONG_MODELS

    def classes(self, instruction: WarpgroupMultiply) -> list[str]:
        """Numerics, registers, signs, and random descriptors of every swizzle and major; few for other N."""
        if instruction.shape[1] != FULL_N:
            return ["tile", "registers"]
        kind, problem = instruction.formats["a"].kind, _problem(instruction, 1)
        names = [c.name for c in input_classes.CLASSES.values() if kind in c.kinds and c.applies(problem)]
        names += ["tile", "registers"] + (["negated", "negatedtwice"] if instruction.facts.signs else [])
        majors = ("kk", "kn", "nk", "nn") if instruction.facts.majors else ("kk",)
        return names + [f"descriptors{mode}{major}" for mode in _MODES for major in majors]

    def samples(self, instruction: WarpgroupMultiply, name: str) -> int:
        """One instruction for other N; two for numerics; enough descriptors."""
        if name.startswith("descriptors"):
            return _DESCRIPTOR_SAMPLES
        return 1 if instruction.shape[1] != FULL_N else 2

    def kept(self, instruction: WarpgroupMultiply, name: str) -> int:
        """One sample of the rows that run every class, none of the others."""
        return 1 if instruction.shape[1] == FULL_N else 0

    def outputs(self, instruction: WarpgroupMultiply, samples: int) -> int:
        """Elements of D."""
        return samples * 64 * instruction.shape[1]

    def inputs(self, instruction: WarpgroupMultiply, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/warpgroup.py takes."""
        stream = Stream(instruction.mnemonic, name, seed)
        if name.startswith("descriptors"):
            return _random_descriptors(instruction, name, stream, samples)
        base = (
            name if name in input_classes.CLASSES else "wide" if instruction.formats["a"].kind == "float" else "uniform"
        )
        matrices = input_classes.CLASSES[base].make(_problem(instruction, samples), stream)
        turn = self.classes(instruction).index(name) + instruction.shape[1] // 8 + len(instruction.mnemonic)
        swizzles = list(_MODES.values())
        majors = (
            (turn // 4 % 2, turn // 8 % 2) if instruction.facts.majors and instruction.shape[1] == FULL_N else (0, 0)
        )
        out = _tiles(instruction, matrices, (swizzles[turn % 4], swizzles[turn // 2 % 4]), majors)
        if name == "registers":
            out["a"] = instruction.registers("a", matrices["a"])
            out["trans_a"] = np.zeros(samples, np.int32)
        if name in _SIGNS:
            signs = _SIGNS[name][turn % len(_SIGNS[name])]
            out["scale_a"], out["scale_b"] = (np.full(samples, value, np.int32) for value in signs)
        out["scale_d"] = (np.arange(samples) % 3 != 1).astype(np.uint32)
        return out

    def model(self, instruction: WarpgroupMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
        """Accumulator registers."""
        return _execute(instruction, inputs)

    def compare(self, instruction: WarpgroupMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Element by element of D."""
        if not len(hardware):
            return Comparison(0, 0, ())
        trans = int(inputs["trans_a"][0]), int(inputs["trans_b"][0])
        a, b = instruction.fetch(inputs["image"], inputs["a"], inputs["b"], *trans)
        c = instruction.matrix("c", inputs["c"]) * inputs["scale_d"][:, None, None].astype(inputs["c"].dtype)

        def terms(sample: int, matrix: int, row: int, column: int) -> tuple[Array, Array, Array]:
            return a[sample, row], b[sample, :, column], c[sample, row, column]

        return compare_matrices(instruction, terms, hardware, model)


def _execute(instruction: WarpgroupMultiply, inputs: Inputs) -> npt.NDArray[np.uint32]:
    immediates: dict[str, Any] = {name: int(inputs[name][0]) for name in ("scale_a", "scale_b", "trans_a", "trans_b")}
    registers = np.where(inputs["scale_d"][:, None, None] != 0, inputs["c"], np.uint32(0))
    return instruction.execute(smem=inputs["image"], a=inputs["a"], b=inputs["b"], c=registers, **immediates)


def _immediates(samples: int, trans_a: int = 0, trans_b: int = 0) -> Inputs:
    values = {"scale_a": 1, "scale_b": 1, "trans_a": trans_a, "trans_b": trans_b}
    return {name: np.full(samples, value, np.int32) for name, value in values.items()}


# --- tiles laid out as a kernel would lay them out


def canonical(rows: int, k_bytes: int, major: int, swizzle: str) -> dict[str, Any]:
    """Descriptor offsets of a packed tile of 16-bit or K-major elements, one instruction deep."""
    span = {"NONE": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle]
    if major == 0:  # K-major: 8-row groups of 16 (or span) bytes
        if swizzle == "NONE":
            return {"leading_byte_offset": 128, "stride_byte_offset": 8 * k_bytes}
        return {"leading_byte_offset": 16, "stride_byte_offset": 8 * span}
    groups = k_bytes // 16  # of 8 k
    if swizzle == "NONE":  # a core matrix is 8 k of 16 bytes along MN
        return {"leading_byte_offset": 128, "stride_byte_offset": 128 * groups}
    return {"leading_byte_offset": 8 * span * groups, "stride_byte_offset": 8 * span}


def _tiles(
    instruction: WarpgroupMultiply, matrices: Matrices, swizzles: tuple[str, str], majors: tuple[int, int]
) -> Inputs:
    m, n, k = instruction.shape
    samples = len(matrices["a"])
    format_a, format_b = instruction.formats["a"], instruction.formats["b"]
    k_bytes = k * (format_a.bits if format_a.bits < 8 else format_a.container_bits) // 8
    image = np.zeros((samples, _IMAGE_BYTES + (n > FULL_N) * _IMAGE_BYTES), np.uint8)
    a = MatrixDescriptor(0, **canonical(m, k_bytes, majors[0], swizzles[0]), swizzle=swizzles[0])
    start = 8192 if n <= FULL_N else 16384
    b = MatrixDescriptor(start, **canonical(n, k_bytes, majors[1], swizzles[1]), swizzle=swizzles[1])
    _place(image, a, matrices["a"], format_a, _MAJORS[majors[0]])
    _place(image, b, matrices["b"].swapaxes(-1, -2), format_b, _MAJORS[majors[1]])
    return {
        "image": image,
        "a": np.full(samples, a.encode(), np.uint64),
        "b": np.full(samples, b.encode(), np.uint64),
        "c": instruction.registers("c", matrices["c"]),
        **_immediates(samples, *majors),
    }


def _place(image: Codes, descriptor: MatrixDescriptor, codes: Codes, format: Format, major: Major) -> None:
    """Write a tile (samples, rows, k) where a descriptor reads it."""
    rows, k = codes.shape[1:]
    address = descriptor.addresses(rows, k, format, major)
    if format.kind == "bit":
        octets = np.packbits(codes, axis=-1, bitorder="little")
        image[:, address[:, ::8]] = octets
        return
    size = format.container_bits // 8
    octets = np.ascontiguousarray(codes).view(np.uint8).reshape(*codes.shape, size)
    image[:, address[..., None] + np.arange(size)] = octets


# --- random descriptors over random bytes


def _random_descriptors(instruction: WarpgroupMultiply, name: str, stream: Stream, samples: int) -> Inputs:
    mode, majors = name.removeprefix("descriptors")[:-2], tuple(int(letter == "n") for letter in name[-2:])
    problem = _problem(instruction, samples)
    format_a = instruction.formats["a"]
    size = max(1, format_a.container_bits // 8)
    shape = (samples, _IMAGE_BYTES // size)
    if format_a.kind == "float":
        values = input_classes.window(format_a, stream, shape, -4, 4)
    else:
        values = stream.words(shape).astype(format_a.dtype)
    image = np.ascontiguousarray(values).view(np.uint8).reshape(samples, _IMAGE_BYTES)
    c = input_classes.CLASSES["wide" if format_a.kind == "float" else "uniform"].make(problem, stream)["c"]
    out: Inputs = {"image": image, "c": instruction.registers("c", c), **_immediates(samples, *majors)}
    for operand in "ab":
        start, leading, stride = (stream.below(limit, (samples,)).astype(np.uint64) for limit in (512, 128, 128))
        if mode != "none" and majors["ab".index(operand)] == 0:
            leading = stream.below(1 << 14, (samples,)).astype(np.uint64)  # not read: anything
        code = np.uint64(FORMS["sm_90"].modes[_MODES[mode]])
        out[operand] = start | leading << np.uint64(16) | stride << np.uint64(32) | code << np.uint64(62)
    out["scale_d"] = np.ones(samples, np.uint32)
    return out


# --- wrong models


def _relowered(model: WrongModel) -> WrongModel:
    """A dense wrong model that changes the lowering, run on this family's inputs."""

    def run(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
        def execute(self: WarpgroupMultiply, **_: Array) -> npt.NDArray[np.uint32]:
            plain = WarpgroupMultiply(self.row, self.arch, self.targets, self.lowering, self.evidence)
            return _execute(plain, inputs)

        bound = type("_Bound", (WarpgroupMultiply,), {"execute": execute})
        stand_in = bound(
            instruction.row, instruction.arch, instruction.targets, instruction.lowering, instruction.evidence
        )
        return model.run(stand_in, {})

    def applies(instruction: WarpgroupMultiply) -> bool:
        return instruction.shape[1] == FULL_N and model.applies(_Dense(instruction))

    return replace(model, run=run, applies=applies)


class _Dense:
    """What the dense wrong models' conditions ask of an instruction."""

    def __init__(self, instruction: WarpgroupMultiply) -> None:
        self.lowering = instruction.lowering
        self.formats = instruction.formats
        operands = {name: type("_Operand", (), {"format": format}) for name, format in instruction.formats.items()}
        self.operands = operands


_LOWERED = ("F-1", "F+1", "whole f32", "other rounding", "addend last", "products renormalised", "K halves chained",
            "saturation flipped")  # fmt: skip


def _with_descriptors(
    change: Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.uint64]],
) -> Callable[[WarpgroupMultiply, Inputs], Array]:
    def run(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
        out = dict(inputs)
        for name in "ab":
            if inputs[name].dtype == np.uint64:
                out[name] = change(inputs[name])
        out["image"] = _roomy(inputs["image"])
        return _execute(instruction, out)

    return run


def _swap_offsets(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mask = np.uint64(0x3FFF)
    leading, stride = value >> np.uint64(16) & mask, value >> np.uint64(32) & mask
    kept = value & ~(mask << np.uint64(16) | mask << np.uint64(32))
    return kept | stride << np.uint64(16) | leading << np.uint64(32)


def _no_swizzle(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return value & np.uint64((1 << 62) - 1)


def _next_swizzle(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """128 bytes taken for 64, 64 for 32, 32 for 128; none stays."""
    mode = value >> np.uint64(62)
    return _no_swizzle(value) | np.where(mode == 0, mode, mode % np.uint64(3) + np.uint64(1)) << np.uint64(62)


def _previous_swizzle(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """64 bytes taken for 128, 32 for 64, 128 for 32; none stays."""
    return _next_swizzle(_next_swizzle(value))


class _OffsetsSwizzled(WarpgroupMultiply):
    """Reads at the start address plus the swizzled offset, where the hardware swizzles the sum."""

    def fetch(
        self, smem: npt.NDArray[np.uint8], a: Any, b: Any, trans_a: int = 0, trans_b: int = 0
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The codes of A and B, each from memory that begins where its tile does."""

        def own(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
            start = (value & np.uint64(0x3FFF)).astype(np.int64)[:, None] * 16
            place = (start + np.arange(smem.shape[-1])) % smem.shape[-1]
            return np.take_along_axis(smem, place, axis=-1)

        offset_b = b & ~np.uint64(0x3FFF)
        descriptors = a.dtype == np.uint64
        offset_a = a & ~np.uint64(0x3FFF) if descriptors else a
        _, codes_b = super().fetch(own(b), offset_a, offset_b, trans_a, trans_b)
        codes_a, _ = super().fetch(own(a) if descriptors else own(b), offset_a, offset_b, trans_a, trans_b)
        return codes_a, codes_b


def _swizzled_before_start(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    bound = _OffsetsSwizzled(
        instruction.row, instruction.arch, instruction.targets, instruction.lowering, instruction.evidence
    )
    return _execute(bound, {**inputs, "image": _roomy(inputs["image"])})


def _roomy(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The image, and zeros as far as any descriptor reaches."""
    return np.concatenate([image, np.zeros((len(image), (1 << 19) - image.shape[1]), np.uint8)], axis=1)


def _majors_flipped(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    flipped = {"trans_b": 1 - inputs["trans_b"], "image": _roomy(inputs["image"])}
    return _execute(instruction, {**inputs, **flipped})


def _full(instruction: WarpgroupMultiply) -> bool:
    return instruction.shape[1] == FULL_N


def _has_majors(instruction: WarpgroupMultiply) -> bool:
    return _full(instruction) and instruction.facts.majors


def _has_signs(instruction: WarpgroupMultiply) -> bool:
    return _full(instruction) and instruction.facts.signs


def _unsigned(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    ones = np.ones_like(inputs["scale_a"])
    return _execute(instruction, {**inputs, "scale_a": ones, "scale_b": ones})


def _always_added(instruction: WarpgroupMultiply, inputs: Inputs) -> Array:
    return _execute(instruction, {**inputs, "scale_d": np.ones_like(inputs["scale_d"])})


_WRONG_MODELS = (
    *(_relowered(model) for model in WRONG_MODELS if model.name in _LOWERED),
    WrongModel("LBO and SBO swapped", "the two offsets change places", _full, _with_descriptors(_swap_offsets)),
    WrongModel(
        "swizzle ignored",
        "addresses are not swizzled, nor rows as wide as the span",
        _full,
        _with_descriptors(_no_swizzle),
    ),
    WrongModel(
        "next swizzle", "128B is taken for 64B, 64B for 32B, 32B for 128B", _full, _with_descriptors(_next_swizzle)
    ),
    WrongModel(
        "previous swizzle",
        "64B is taken for 128B, 32B for 64B, 128B for 32B",
        _full,
        _with_descriptors(_previous_swizzle),
    ),
    WrongModel(
        "swizzle before start", "the offset is swizzled, then the start address added", _full, _swizzled_before_start
    ),
    WrongModel("major flipped", "B is read in the other major", _has_majors, _majors_flipped),
    WrongModel("signs ignored", "scale_a and scale_b are one", _has_signs, _unsigned),
    WrongModel("scale_d ignored", "the old accumulator is always added", _full, _always_added),
)
WARPGROUP = WarpgroupExercise()
