"""A kind of kernel is a function from a random generator to a run; its decorator says what a right report must name."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import tcsim

Array = npt.NDArray[Any]
Random = np.random.Generator


@dataclass(frozen=True)
class Multiply:
    """An instruction, and what one must know to feed it."""

    mnemonic: str
    arch: str
    a: str
    b: str
    d: str = "f32"
    kind: str = ""  # tcgen05: of its instruction descriptor
    scale: str = ""  # the format of scale factors
    block: int = 0  # elements of K that share one
    sparse: bool = False

    @property
    def extras(self) -> dict[str, Any]:
        """The instruction descriptor, where there is one."""
        if not self.kind:
            return {}
        return {"idesc": tcsim.InstructionDescriptor(kind=self.kind, a_format=self.a, b_format=self.b, m=128, n=64)}

    def __call__(self, a: Array, b: Array, c: Array | None = None, **extras: Any) -> Array:
        """Numbers of d = a b + c."""
        codes = tcsim.gemm(a, b, c, instruction=self.mnemonic, arch=self.arch, **{**self.extras, **extras})
        return np.asarray(codes).view(NUMBERS[self.d])


NUMBERS: dict[str, Any] = {"f32": np.float32, "s32": np.int32, "f64": np.float64, "f16": np.float16}
_MX = "kind::mxf8f6f4.block_scale."
FORMS = {
    "f16": Multiply("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", "f16", "f16"),
    "bf16": Multiply("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90", "bf16", "bf16"),
    "tf32": Multiply("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80", "tf32", "tf32"),
    "f64": Multiply("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80", "f64", "f64", "f64"),
    "s8": Multiply("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80", "s8", "s8", "s32"),
    "e4m3": Multiply("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", "e4m3", "e4m3"),
    "e5m2": Multiply("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", "sm_89", "e5m2", "e4m3"),
    "wmma": Multiply("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "sm_80", "f16", "f16"),
    "wgmma": Multiply("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "sm_90", "f16", "f16"),
    "wgmma bf16": Multiply("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "sm_90", "bf16", "bf16"),
    "wgmma tf32": Multiply("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", "sm_90", "tf32", "tf32"),
    "wgmma e4m3": Multiply("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", "sm_90", "e4m3", "e4m3"),
    "wgmma s8": Multiply("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", "sm_90", "s8", "s8", "s32"),
    "tcgen05": Multiply("tcgen05.mma.cta_group::1.kind::f16", "sm_100", "f16", "f16", kind="f16"),
    "tcgen05 bf16": Multiply("tcgen05.mma.cta_group::1.kind::f16", "sm_100", "bf16", "bf16", kind="f16"),
    "tcgen05 e4m3": Multiply("tcgen05.mma.cta_group::1.kind::f8f6f4", "sm_100", "e4m3", "e4m3", kind="f8f6f4"),
    "tcgen05 mx": Multiply("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale", "sm_100a", "e4m3", "e4m3",
                           kind="mxf8f6f4", scale="ue8m0", block=32),
    "mx": Multiply(f"mma.sync.aligned.{_MX}m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120", "e4m3", "e4m3",
                   scale="ue8m0", block=32),
    "mxf4": Multiply("mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
                     "sm_120", "e2m1", "e2m1", scale="ue8m0", block=32),
    "nvf4": Multiply("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
                     "sm_120", "e2m1", "e2m1", scale="ue4m3", block=16),
    "sparse": Multiply("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90", "f16", "f16", sparse=True),
    "sparse s8": Multiply("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", "sm_80", "s8", "s8", "s32", sparse=True),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What `tcsim.diagnose` is given, and the numbers that a right report names."""

    how: Multiply
    operands: dict[str, Any]
    observed: Array
    facts: dict[str, Any]
    right: Array | None  # the kernel's output without the mistake


@dataclass(frozen=True)
class Problem:
    """Codes of operands as `tcsim.gemm` takes them."""

    how: Multiply
    a: Array
    b: Array
    c: Array | None = None
    extras: dict[str, Array] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.a.shape[-2], self.b.shape[-1], self.b.shape[-2]

    def product(self, **changed: Any) -> Array:
        """Numbers of d = a b + c, with some operands replaced."""
        given = {"a": self.a, "b": self.b, "c": self.c, **self.extras, **changed}
        return self.how(**given)

    def part(self, lo: int, hi: int, c: Array | None = None) -> Array:
        """The product of a range of K, from accumulators of zero or of the codes c."""
        return self.how(self.a[..., lo:hi], self.b[..., lo:hi, :], c)

    def ran(self, observed: Array, **facts: Any) -> Run:
        """A run of these operands."""
        given = {"a": self.a, "b": self.b, **self.extras, **self.how.extras}
        return Run(self.how, given if self.c is None else {**given, "c": self.c}, observed, facts, self.product())


Size = int | tuple[int, ...]


def draw(random: Random, forms: str, m: Size, n: Size, k: Size, c: bool = False, batch: int = 0) -> Problem:
    """Operands for one of the forms (names separated by commas); a tuple is a choice of sizes."""
    how = FORMS[str(random.choice(forms.split(", ")))]
    m, n, k = (size if isinstance(size, int) else int(random.choice(size)) for size in (m, n, k))
    style = "bytes" if how.d == "s32" else str(random.choice(["normal", "uniform", "integers"], p=[0.6, 0.25, 0.15]))

    def numbers(*shape: int) -> Array:
        if style == "bytes":
            return random.integers(-128, 128, shape).astype(float)
        if style == "integers":
            return random.integers(-9, 10, shape).astype(float)
        return random.standard_normal(shape) if style == "normal" else random.uniform(-1, 1, shape)

    lead = (batch,) if batch else ()
    a, b = numbers(*lead, m, k), numbers(*lead, k, n)
    extras: dict[str, Array] = {}
    if how.sparse:
        a[a == 0] = 1
        keep = np.argsort(random.random((m, k // 4, 4)), axis=-1) < 2
        rule = tcsim.instruction(how.mnemonic, arch=how.arch).sparsity
        codes_a, extras["metadata"] = rule.compress_matrix(coded(np.where(keep.reshape(m, k), a, 0.0), how.a), how.a)
    else:
        codes_a = coded(a, how.a)
    if how.scale:
        for name, size in (("scale_a", (m, k // how.block)), ("scale_b", (k // how.block, n))):
            values = 2.0 ** random.integers(-4, 5, size)
            values *= random.choice([1.0, 1.25, 1.5, 1.75], size) if how.scale == "ue4m3" else 1.0
            extras[name] = tcsim.encode(values, how.scale)
    accumulators = accumulator(how, numbers(*lead, m, n) * 4) if c else None
    return Problem(how, codes_a, coded(b, how.b), accumulators, extras)


def coded(values: Array, name: str) -> Array:
    """Codes of a format; the small formats saturate."""
    return np.asarray(tcsim.encode(values, name, saturate=name in ("e4m3", "e5m2", "e2m1", "s8")))


def accumulator(how: Multiply, values: Array) -> Array:
    """Codes of an accumulator."""
    return np.ascontiguousarray(values.astype(NUMBERS[how.d])).view(f"u{np.dtype(NUMBERS[how.d]).itemsize}")


What = Literal["wrong", "right", "noise"]


@dataclass(frozen=True)
class Kind:
    """A kind: `needs` are patterns that a right report has, all of them; `half` those of one that has the place right."""

    make: Callable[[Random], Run]
    what: What
    hook: str
    source: str
    needs: tuple[str, ...]
    half: tuple[str, ...]
    equal: tuple[str, ...]
    rounds: bool

    @property
    def name(self) -> str:
        """The function's name."""
        return self.make.__name__

    @property
    def correct(self) -> bool:
        """Whether the kernel is right."""
        return self.what == "right"


SETS: dict[str, dict[str, Kind]] = {"reported": {}, "reported again": {}, "reported third": {}}
KINDS = SETS["reported"]
Maker = Callable[[Random], Run]


def _kind(what: What, hook: str, source: str, **patterns: Any) -> Callable[[Maker], Maker]:
    def enter(make: Maker) -> Maker:
        made = Kind(make, what, hook, source, **{"needs": (), "half": (), "equal": (), "rounds": False, **patterns})
        assert not any(made.name in kinds for kinds in SETS.values())
        module = make.__module__
        SETS["reported again" if ".again_" in module else "reported third" if ".third_" in module else "reported"][
            made.name
        ] = made
        return make

    return enter


def wrong(
    hook: str, source: str, *needs: str, half: tuple[str, ...], equal: tuple[str, ...] = (), rounds: bool = False
) -> Callable[[Maker], Maker]:
    """A kernel with one mistake; `rounds`: which may change no more than the rounding; `equal`: what cannot be told apart."""
    return _kind("wrong", hook, source, needs=needs, half=half, equal=equal, rounds=rounds)


def right(hook: str) -> Callable[[Maker], Maker]:
    """A right kernel."""
    return _kind("right", hook, "textbook")


def noise(hook: str) -> Callable[[Maker], Maker]:
    """An output that no mistake explains."""
    return _kind("noise", hook, "textbook")


@dataclass(frozen=True)
class Case:
    """A run of a kind; its fields are what `second_wrong_kernels.judge` reads."""

    kind: Kind
    seed: int
    run: Run
    says: str
    needs: tuple[str, ...]
    equal: tuple[str, ...]


def case(kind: Kind, seed: int) -> Case:
    """The case of a seed. A draw on which the mistake does not show is drawn again."""
    for attempt in range(20):
        random = np.random.default_rng([seed, zlib.crc32(kind.name.encode()), attempt])
        with np.errstate(all="ignore"):
            run = kind.make(random)
        if kind.what != "wrong" or shows(run, kind.rounds):
            says = " ".join((kind.make.__doc__ or "").split())
            needs, equal = (tuple(filled(each, run) for each in them) for them in (kind.needs, kind.equal))
            return Case(kind, seed, replace(run, right=None), filled(says, run), needs, equal)
    raise RuntimeError(f"{kind.name}: the mistake shows in none of 20 draws")


def shows(run: Run, rounds: bool) -> bool:
    """Whether the output differs, by more than rounding if not `rounds`."""
    assert run.right is not None
    x, y = run.observed.astype(np.float64), run.right.astype(np.float64)
    if rounds:
        return not np.array_equal(x, run.right.astype(run.observed.dtype).astype(np.float64))
    same = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= 0.02 * np.abs(y[np.isfinite(y)]).max())
    return not bool(same.all())


def filled(text: str, run: Run) -> str:
    """The text with the run's facts for their names in braces."""
    for name, value in run.facts.items():
        text = text.replace("{" + name + "}", f"{value:g}" if isinstance(value, float) else str(value))
    return text
