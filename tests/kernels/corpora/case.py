"""What a case of the corpora is: where its PTX comes from, one launch, and the result that it must have.

A case says its launch once. `capture` makes device buffers of it, `replay` maps the same bytes into `tcsim.ptx.Memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tcsim
from conformance.stimuli.stream import Stream

Array = npt.NDArray[Any]
Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Source:
    """A module to compile: the compiler, the file, what of it, and the compile-time choices.

    compiler: "cuda", "triton", "gluon", "cute" or "gemm". options: macros, constants, the signature; as each compiler takes them.
    """

    compiler: str
    file: str
    function: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """Its name in a pack, without the target."""
        chosen = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.compiler}/{self.file}:{self.function}({chosen})"


@dataclass(frozen=True)
class Pointer:
    """A parameter, or eight bytes of a buffer: the address of a byte of a buffer."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True)
class Map:
    """A parameter of 128 bytes: a tensor map of a buffer."""

    buffer: str
    map: Any  # tcsim.TensorMap
    offset: int = 0

    def encode(self, addresses: Mapping[str, int]) -> bytes:
        """The driver's bytes."""
        return bytes(self.map.encode(addresses[self.buffer] + self.offset))


@dataclass(frozen=True)
class Struct:
    """A parameter of bytes, with addresses at some of them."""

    data: bytes
    pointers: tuple[tuple[int, Pointer], ...]

    def encode(self, addresses: Mapping[str, int]) -> bytes:
        """Its bytes."""
        out = bytearray(self.data)
        for byte, pointer in self.pointers:
            out[byte : byte + 8] = (addresses[pointer.buffer] + pointer.offset).to_bytes(8, "little")
        return bytes(out)


Parameter = Pointer | Map | Struct | np.generic | bytes


@dataclass(frozen=True)
class Close:
    """An expected buffer: its numbers in float64, and how far the kernel's may be from them."""

    values: Array  # float64, or integers that must be met exactly
    dtype: Any
    relative: float = 0.0
    absolute: Any = 0.0  # a number, or one for each element

    def wrong(self, data: Array) -> int:
        """How many elements of a buffer's bytes are not as expected."""
        found = data.view(np.uint8).reshape(-1).view(self.dtype).reshape(np.shape(self.values))
        if not (np.any(self.relative) or np.any(self.absolute)):
            return int((found != np.asarray(self.values)).sum())
        with np.errstate(all="ignore"):
            got, want = found.astype(np.float64), np.asarray(self.values, np.float64)
            near = np.abs(got - want) <= self.absolute + self.relative * np.abs(want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return int((~(near | same)).sum())


@dataclass
class Launch:
    """One launch: buffers by name, parameters in PTX's order, and the expected buffers."""

    buffers: dict[str, Array]
    params: tuple[Parameter, ...]
    expected: dict[str, Close]
    grid: Dim3 = (1, 1, 1)
    block: Dim3 | None = None  # None: as the PTX requires (.reqntid)
    cluster: Dim3 = (1, 1, 1)
    shared_bytes: int | None = None  # dynamic; None: as the compiler said
    pointers: dict[tuple[str, int], Pointer] = field(default_factory=dict)  # (buffer, byte): addresses in buffers
    scratch: frozenset[str] = frozenset()  # buffers that the kernel may leave in any state
    output: str | None = None  # what printf writes
    before: str | None = (
        None  # the entry of a launch with the same parameters that this one follows with programmatic dependence
    )


def call(
    given: Mapping[str, Array], expected: Mapping[str, Close], *more: Parameter, grid: int | Dim3 = 1, block: int | Dim3 | None = None, **options: Any,
) -> Launch:  # fmt: skip
    """A launch whose parameters are pointers to the buffers that it reads, then to those that it fills, which begin as zeros, then others."""
    buffers = dict(given) | {name: np.zeros(np.shape(own.values), own.dtype) for name, own in expected.items()}
    params = (*map(Pointer, buffers), *more)
    sizes = [(size, 1, 1) if isinstance(size, int) else size for size in (grid, block) if size is not None]
    return Launch(buffers, params, dict(expected), *sizes, **options)


@dataclass(frozen=True)
class Case:
    """A launch of a module, for some targets."""

    name: str
    source: Source
    entry: str  # "": the only one
    targets: tuple[str, ...]
    make: Callable[[Inputs], Launch]
    inputs: str = ""  # what seeds its inputs; cases of equal inputs share them in the recordings. "": its name

    def launch(self, seed: int = 0) -> Launch:
        """Its buffers and parameters; the same on every machine."""
        return self.make(Inputs(Stream("corpora", self.inputs or self.name, seed)))


class Inputs:
    """Random inputs of a case, exact in their types on every machine."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def normal(self, shape: tuple[int, ...], dtype: Any = np.float32, scale: float = 1.0) -> Array:
        """Numbers of about the normal distribution: sums of 12 uniform ones, rounded to a type."""
        words = self.stream.below(1 << 20, (12, *shape)).sum(axis=0)
        return ((words / (1 << 20) - 6) * scale).astype(dtype)

    def uniform(self, shape: tuple[int, ...], dtype: Any = np.float32, low: float = 0.0, high: float = 1.0) -> Array:
        """Numbers between two bounds."""
        return (self.stream.below(1 << 24, shape) / (1 << 24) * (high - low) + low).astype(dtype)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: Any = np.int32) -> Array:
        """Integers in [low, high]."""
        return self.stream.between(low, high, shape).astype(dtype)


DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "s8": np.int8, "s32": np.int32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip

CASES: dict[str, Case] = {}


def register(own: Case) -> None:
    """Make a case one of CASES. Raises ValueError for a name that is taken."""
    if own.name in CASES:
        raise ValueError(f"two cases are called {own.name}")
    CASES[own.name] = own


def case(
    source: Source,
    entry: str = "",
    targets: tuple[str, ...] = ("sm_80", "sm_90a"),
    name: str = "",
    inputs: str = "",
) -> Callable[[Callable[[Inputs], Launch]], Callable[[Inputs], Launch]]:
    """Register what the decorated function makes as a case. Raises ValueError for a name that is taken."""

    def registered(make: Callable[[Inputs], Launch]) -> Callable[[Inputs], Launch]:
        register(Case(f"{source.compiler}_{name or make.__name__}", source, entry, targets, make, inputs))
        return make

    return registered


def tensor_map(array: Array, data_type: str, box: tuple[int, ...], swizzle: str = "NONE", **more: Any) -> Any:
    """The map of an array in row-major order, box innermost first."""
    strides = tuple(int(step) for step in array.strides[::-1][1:])
    return tcsim.TensorMap(
        data_type=data_type, global_dim=tuple(array.shape[::-1]), global_strides=strides, box_dim=box,
        element_strides=(1,) * array.ndim, interleave="NONE", swizzle=swizzle, oob_fill="NONE", **more,
    )  # fmt: skip
