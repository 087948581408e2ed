"""The kernels of the matrix, of every generation, each with one launch that uses its ring more than once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from conformance.kernels.scaled import ScaledCase
from hwkernels.gemm.kernels import KERNELS
from hwkernels.gemm.tiles import Shape
from tcsim.core.targets import TARGETS
from tcsim.ptx import Limits, Memory, Module, Run
from tcsim.ptx.machine.cluster import Cluster
from tcsim.ptx.observer import Observer
from tests.kernels.corpora import compile_gemm, pack, place, recording
from tests.kernels.corpora.case import Array, Case
from tests.kernels.corpora.case import Launch as Made
from tests.kernels.corpora.cases import CASES
from tests.kernels.corpora.gemm.cases import dense
from tests.kernels.corpora.gemm.scaled_cases import block_scaled
from tests.kernels.corpora.pack import Compiled

Schedule = str | int


@dataclass(frozen=True)
class Ran:
    """A launch that ran on the machine."""

    run: Run
    after: dict[str, Array]  # buffers


@dataclass(frozen=True)
class Layout:
    """Memory in which the buffers of a launch have their addresses, and what is in them before."""

    memory: Memory
    addresses: dict[str, int]
    before: dict[str, Array]


@dataclass(frozen=True)
class Subject:
    """A kernel that is right, and a launch of it."""

    name: str
    generation: str
    case: Case
    target: str

    @cached_property
    def compiled(self) -> Compiled:
        """Its PTX: recorded, kept, or made by NVRTC. Raises ToolchainError without an NVRTC that is needed."""
        if self.case.name not in CASES:
            return compile_gemm.compiled(self.case.source, self.target)
        recorded = _recorded().get(recording.name_of(self.case.name, self.target))
        if recorded is not None:
            return Compiled(recorded["ptx"].tobytes().decode(), int(recorded["smem"]))
        return pack.read_all()[pack.key_of(self.case.source.key, self.target)]

    @cached_property
    def launch(self) -> Made:
        """The launch; its inputs are the same on every machine."""
        return self.case.launch()

    @cached_property
    def entry(self) -> str:
        """The kernel's name."""
        return place.entry_of(self.compiled, self.case.entry)

    @property
    def arch(self) -> str:
        """What it runs on."""
        return TARGETS[self.target].arch

    def laid_out(self) -> Layout:
        """Memory with its buffers. Programs are compiled for a memory: launches of one module should share it."""
        memory = Memory()
        addresses = {name: memory.allocate(max(1, array.nbytes)) for name, array in self.launch.buffers.items()}
        return Layout(memory, addresses, place.images(self.launch, addresses))

    def ran(
        self, module: Module, schedule: Schedule, at: Layout, observe: Callable[[Cluster], Observer] | None = None, limits: Limits | None = None,
    ) -> Ran:  # fmt: skip
        """Launch a module: its own text, or a mutant's."""
        launch, run = self.launch, None
        for name, data in at.before.items():
            at.memory.write(at.addresses[name], data)
        for name in (launch.before, self.entry):
            if name and (run is None or run.completed):
                run = module.kernel(name).launch(
                    at.memory, place.parameters(launch, at.addresses), launch.grid, place.block_of(self.compiled, launch),
                    launch.cluster, place.shared_of(self.compiled, launch), self.arch, schedule, observe=observe,
                    limits=limits, after=run,
                )  # fmt: skip
        assert run is not None
        return Ran(run, {name: at.memory.read(at.addresses[name], len(data)) for name, data in at.before.items()})

    def same(self, one: Ran, other: Ran) -> bool:
        """Whether two launches left the same bytes."""
        return all(
            np.array_equal(data, other.after[name])
            for name, data in one.after.items()
            if name not in self.launch.scratch
        )


@cache
def _recorded() -> dict[str, recording.Fields]:
    return recording.read()


def _gemm(name: str, kernel: str, target: str, shape: tuple[int, int, int], format_: str = "f16") -> Subject:
    case = dense(KERNELS[kernel], target, (format_, format_, "f32"), Shape(*shape))
    return Subject(name, target.removesuffix("a"), case, target)


def _scaled(name: str, kernel: str, target: str, shape: tuple[int, int, int], format_: str) -> Subject:
    case = block_scaled(ScaledCase(kernel, format_, format_, "f32", shape, "random"), target)
    return Subject(name, target.removesuffix("a"), case, target)


def _kept(name: str, case: str, target: str) -> Subject:
    return Subject(name, target.removesuffix("a"), CASES[case], target)


@cache
def subjects() -> dict[str, Subject]:
    """All of them by name."""
    found = (
        _gemm("mma_multistage", "sm80_mma_multistage", "sm_80", (64, 64, 256)),
        _gemm("mma_ldmatrix", "sm75_mma_ldmatrix", "sm_80", (64, 64, 128)),
        _gemm("mma_sparse", "sm80_mma_sparse", "sm_80", (64, 64, 320)),
        _kept("async_ring", "cuda_async_ring", "sm_80"),
        _kept("triton_matmul_80", "triton_matmul_f16", "sm_80"),
        _kept("triton_attention_80", "triton_attention_f16", "sm_80"),
        _kept("gluon_mma", "gluon_mma_pipelined", "sm_80"),
        _kept("cute_matmul", "cute_matmul", "sm_80"),
        _gemm("mma_fp8", "sm89_mma_multistage", "sm_89", (64, 64, 640), "e4m3"),
        _gemm("mma_multistage_90", "sm80_mma_multistage", "sm_90", (64, 64, 320)),
        _kept("async_arrive", "cuda_async_arrive", "sm_90a"),
        _kept("bulk_store", "cuda_bulk_store", "sm_90a"),
        _kept("tma_ring", "cuda_ring", "sm_90a"),
        _kept("tma_roles", "cuda_specialised", "sm_90a"),
        _kept("tma_swizzled", "cuda_tensor_swizzled", "sm_90a"),
        _kept("multicast", "cuda_multicast", "sm_90a"),
        _kept("dsmem_sum", "cuda_dsmem_sum", "sm_90a"),
        _kept("send", "cuda_send", "sm_90a"),
        _kept("dependent", "cuda_secondary", "sm_90a"),
        _gemm("wgmma_basic", "sm90_wgmma_basic", "sm_90a", (64, 64, 128)),
        _gemm("wgmma_tma", "sm90_wgmma_tma", "sm_90a", (64, 64, 320)),
        _gemm("wgmma_roles", "sm90_wgmma_specialized", "sm_90a", (128, 64, 320)),
        _gemm("wgmma_cluster", "sm90_wgmma_persistent", "sm_90a", (256, 64, 320)),
        _gemm("wgmma_sparse", "sm90_wgmma_sparse", "sm_90a", (128, 64, 640)),
        _kept("triton_matmul_90", "triton_matmul_f16", "sm_90a"),
        _kept("triton_attention_90", "triton_attention_f16", "sm_90a"),
        _kept("triton_persistent", "triton_persistent", "sm_90a"),
        _kept("triton_descriptors_90", "triton_descriptors", "sm_90a"),
        _kept("gluon_wgmma", "gluon_wgmma_pipelined", "sm_90a"),
        _kept("gluon_roles", "gluon_warp_specialised", "sm_90a"),
        _gemm("tcgen05_basic", "sm100_tcgen05_basic", "sm_100a", (128, 64, 384)),
        _gemm("tcgen05_persistent", "sm100_tcgen05_persistent", "sm_100a", (256, 64, 320)),
        _gemm("tcgen05_2cta", "sm100_tcgen05_2cta", "sm_100a", (256, 64, 320)),
        _scaled("tcgen05_block_scaled", "sm100_mxfp8", "sm_100a", (128, 64, 640), "e4m3"),
        _kept("gluon_tcgen05", "gluon_tcgen05", "sm_100a"),
        _kept("triton_matmul_100", "triton_matmul_f16", "sm_100a"),
        _kept("triton_attention_100", "triton_attention_f16", "sm_100a"),
        _kept("triton_scaled_100", "triton_scaled_e4m3_e5m2", "sm_100a"),
        _kept("triton_roles_100", "triton_warp_specialised", "sm_100a"),
        _scaled("mma_block_scaled", "sm120_nvfp4", "sm_120a", (64, 64, 1024), "e2m1"),
        _kept("triton_matmul_120", "triton_matmul_f16", "sm_120a"),
        _kept("triton_descriptors_120", "triton_descriptors", "sm_120a"),
        _kept("cute_matmul_120", "cute_matmul", "sm_120a"),
    )
    return {own.name: own for own in found}
