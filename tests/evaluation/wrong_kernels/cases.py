"""A case: a kernel with one mistake on seeded operands, and which answers of `tcsim.diagnose` are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

import tcsim
from tcsim.multiplication import Machine, machine_of
from tests.evaluation.wrong_kernels.kernel import Kernel, Operands, Tile

Random = np.random.Generator


@dataclass(frozen=True)
class Target:
    """An instruction that kernels are made of."""

    mnemonic: str
    arch: str
    idesc: Any = None

    @property
    def family(self) -> str:
        """mma.sync, wgmma, tcgen05, sparse or scaled."""
        head = self.mnemonic.split(".")[0]
        if "block_scale" in self.mnemonic:
            return "scaled"
        return "sparse" if ".sp" in self.mnemonic else {"mma": "mma.sync", "wgmma": "wgmma"}.get(head, "tcgen05")


MX = "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.{}.f32.ue8m0"
TENSOR = "tcgen05.mma.cta_group::1.kind::{}"
TARGETS = (
    Target("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    Target("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80"),
    Target("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    Target("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_90"),
    Target("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89"),
    Target("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "sm_90a"),
    Target("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", "sm_90a"),
    Target("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "sm_90a"),
    Target("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", "sm_90a"),
    Target("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", "sm_90a"),
    Target(TENSOR.format("f16"), "sm_100a", tcsim.InstructionDescriptor("f16", a_format="bf16", m=128, n=64)),
    Target(TENSOR.format("f8f6f4"), "sm_100a", tcsim.InstructionDescriptor("f8f6f4", a_format="e4m3", m=128, n=128)),
    Target(TENSOR.format("tf32"), "sm_100a", tcsim.InstructionDescriptor("tf32", a_format="tf32", m=64, n=64)),
    Target(TENSOR.format("f16"), "sm_100a", tcsim.InstructionDescriptor("f16", a_format="f16", m=128, n=256)),
    Target("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90"),
    Target("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.bf16.bf16", "sm_90a"),
    Target("mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32", "sm_90"),
    Target("mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_80"),
    Target(MX.format("e4m3.e4m3"), "sm_120a"),
    Target(MX.format("e5m2.e2m1"), "sm_120a"),
    Target(
        "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"
    ),
    Target("mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", "sm_120a"),
)


@dataclass(frozen=True)
class Scene:
    """What a kind of mistake is made in: the right kernel and its operands."""

    random: Random
    target: Target
    instruction: Any
    machine: Machine
    tile: Tile
    operands: Operands

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.operands.a.shape[0], self.operands.b.shape[1], self.operands.b.shape[0]

    def kernel(self, **wrong: Any) -> Kernel:
        """The kernel with some fields changed."""
        return Kernel(self.machine, self.tile, **wrong)

    def pick(self, *choices: Any) -> Any:
        """One of several."""
        return choices[int(self.random.integers(len(choices)))]


@dataclass(frozen=True)
class Plant:
    """A wrong kernel, the names that are right for it, and those that are half right."""

    kernel: Kernel
    right: frozenset[str]
    half: frozenset[str] = frozenset()
    operands: Operands | None = None  # what the kernel reads, if not the scene's
    observed: Callable[[Any], Any] | None = None  # what is handed over, of the output


@dataclass(frozen=True)
class Kind:
    """A kind of mistake."""

    name: str
    make: Callable[[Scene], Plant | None]
    families: tuple[str, ...] = ("mma.sync", "wgmma", "tcgen05", "sparse", "scaled")
    correct: bool = False  # not a mistake: another order of summation
    ragged: bool = False  # M, N, K that are not multiples of the tile


@dataclass(frozen=True)
class Case:
    """What `tcsim.diagnose` is asked, and what is right."""

    kind: Kind
    target: Target
    seed: int
    instruction: Any
    arguments: dict[str, Any] = field(repr=False)
    plant: Plant = field(repr=False)


@cache
def machine(target: Target) -> tuple[Any, Machine]:
    """The instruction and its machine."""
    instruction = tcsim.instruction(target.mnemonic, arch=target.arch)
    return instruction, machine_of(instruction, "wrong kernels", target.idesc)


def _codes(random: Random, shape: tuple[int, ...], format: Any) -> Any:
    if format.kind == "integer":
        low, high = (-100, 100) if format.bits > 8 else (-(1 << (format.bits - 1)), 1 << (format.bits - 1))
        return tcsim.encode(random.integers(low, high, shape), format.name)
    return tcsim.encode(random.standard_normal(shape), format.name)


def _scene(kind: Kind, target: Target, seed: int) -> Scene:
    random = np.random.default_rng((seed, len(kind.name)))
    instruction, made = machine(target)
    bm, bn = (int(random.choice([32, 32, 64, 64, 128])) for _ in "mn")
    if made.sparsity is not None or made.blocks:
        bm, bn = max(bm, made.shape[0]), max(bn, made.shape[1])  # whole instructions
    tile = Tile(bm, bn, int(random.choice([1, 2, 4])) * made.shape[2])
    m, n = bm * (2 if bm > 64 else int(random.choice([2, 3]))), bn * (2 if bn > 64 else int(random.choice([2, 3])))
    k = tile.bk * int(random.choice([4, 6] if tile.bk < 64 else [3, 4]))
    if kind.ragged:
        m, n, k = m - int(random.integers(1, 16)), n - int(random.integers(1, 16)), k - 8
    a = _codes(random, (m, k * made.kept // made.shape[2]), made.formats["a"])
    b, c = _codes(random, (k, n), made.formats["b"]), _codes(random, (m, n), made.formats["c"])
    if random.integers(2):
        c = np.zeros_like(c)
    own = Operands(a, b, c)
    if made.sparsity is not None:
        group = made.sparsity.kept // made.sparsity.groups
        words = random.choice(np.array(made.sparsity.valid, np.uint8), (m, a.shape[1] // group))
        whole = replace(made.sparsity, rows=m, k=2 * a.shape[1])
        own = replace(own, positions=whole.positions_of(words))
    if made.blocks:
        factors = [
            tcsim.encode(2.0 ** random.integers(-3, 4, shape), made.formats["scale"].name)
            for shape in ((m, k // made.block), (k // made.block, n))
        ]
        own = replace(own, scale_a=factors[0], scale_b=factors[1])
    return Scene(random, target, instruction, made, tile, own)


def case(kind: Kind, target: Target, seed: int) -> Case | None:
    """The case of a seed; None if this kernel cannot make the mistake, or the mistake changes nothing."""
    if target.family not in kind.families:
        return None
    scene = _scene(kind, target, seed)
    if kind.ragged and (scene.machine.sparsity is not None or scene.machine.blocks):
        return None
    plant = kind.make(scene)
    if plant is None:
        return None
    own = scene.operands
    observed = plant.kernel.run(plant.operands or own)
    observed = observed if plant.observed is None else plant.observed(observed)
    if not kind.correct and np.array_equal(observed, scene.kernel().run(own)):
        return None
    given = {"a": own.a, "b": own.b, "c": own.c, "observed": observed}
    given |= {"idesc": target.idesc} if target.idesc is not None else {}
    given |= {"metadata": own.positions} if own.positions is not None else {}
    given |= {"scale_a": own.scale_a, "scale_b": own.scale_b} if own.scale_a is not None else {}
    return Case(kind, target, seed, scene.instruction, given, plant)


def cases(kinds: tuple[Kind, ...], each: int, first: int = 0) -> Iterator[Case]:
    """`each` cases of every kind, over its families in turn."""
    for number, kind in enumerate(kinds):
        families = {name: [target for target in TARGETS if target.family == name] for name in kind.families}
        made = 0
        for turn in range(8 * each):
            own = families[kind.families[(turn + number) % len(families)]]
            found = case(kind, own[(turn // len(families) + number) % len(own)], first + turn)
            if found is not None:
                made += 1
                yield found
            if made == each:
                break


OUTCOMES = ("right", "half", "not explained", "wrong")


def outcome(asked: Case, found: Any) -> str:
    """right: named, and alone. half: among several, or one of its parts. wrong: another name with confidence.

    Names that the report gives for the same thing (`also`) count as the name. Two mistakes are named in any order.
    """
    right, half = ({_parts(name) for name in names} for names in (asked.plant.right, asked.plant.half))
    names = {_parts(item.mistake) for item in found.explanations}
    said = {_parts(also.partition(" (")[0]) for item in found.explanations for also in item.also}
    if asked.kind.correct:
        return "right" if found.verdict == "correct" else ("wrong" if found.verdict == "explained" else "not explained")
    if found.verdict == "correct":
        return "wrong"
    if found.verdict == "explained":
        if (names | said) & right:
            return "right"
        return "half" if names & half else "wrong"
    if found.verdict == "ambiguous":
        return "half" if (names | said) & (right | half) else "not explained"
    near = {_parts(item.mistake) for item in found.nearest[:1]}
    return "half" if found.verdict == "partly explained" and near & (right | half) else "not explained"


def _parts(name: str) -> frozenset[str]:
    return frozenset(name.split(" + "))
