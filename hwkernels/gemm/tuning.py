"""Choices of a GEMM kernel that can be fixed by hand: tile width, cluster, ring, order; and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwkernels.gemm import tiles as gemm_tiles
from hwkernels.gemm.build import SHARED_LIMIT, Build


class GemmError(ValueError):
    """No kernel does what was asked; the text says what would be valid."""


@dataclass(frozen=True)
class Tuning:
    """Choices that `gemm_tiles.choose` would make, fixed by hand. None: choose."""

    block_n: int | None = None
    cluster: tuple[int, int] | None = None
    stages: int | None = None
    stagger: int | None = None
    group: int | None = None
    promote: int | None = None
    panels: int | None = None  # of shared memory for outputs, per consumer
    stream: bool | None = None  # B leaves L2 first
    defer: bool | None = None  # store a tile under the next one's multiplications
    direct: bool | None = None  # outputs go straight from registers to global memory
    clusters: int | None = None  # at most so many at a time
    promotion: str | None = None  # of tensor maps: "L2_128B", "L2_256B"; "NONE"


def tuned(build: Build, tuning: Tuning) -> Build:
    """A build with the choices made by hand.

    Raises GemmError for a choice that the kernel does not have, or that does not fit in shared memory.
    """
    if tuning == Tuning():
        return build
    if not build.row.persistent and tuning != Tuning(block_n=tuning.block_n, stages=tuning.stages):
        raise GemmError(f"{build.kernel} has no {tuning}; valid: block_n, stages")
    if build.row.ctas and (
        tuning.cluster
        or tuning.stagger
        or tuning.promote
        or tuning.panels
        or tuning.stream
        or tuning.defer
        or tuning.direct
    ):
        raise GemmError(f"{build.kernel} has no {tuning}; valid: block_n, stages, group, clusters, promotion")
    if build.row.sparse and (
        tuning.promote
        or tuning.stream
        or tuning.defer
        or tuning.panels not in (None, Build.panels)
        or (tuning.cluster and (tuning.cluster[1] != 1 or tuning.cluster[0] > 4))
    ):
        raise GemmError(
            f"{build.kernel} has no {tuning}; valid: block_n, stages, stagger, group, direct, clusters, promotion, and "
            "clusters of 1, 2 or 4 rows"
        )
    changes = {
        name: value
        for name in ("block_n", "cluster", "stagger", "promote", "panels", "stream", "defer")
        if (value := getattr(tuning, name)) is not None
    }
    build = replace(build, **changes)
    if tuning.direct:  # the choices of the other way have no effect
        build = replace(build, tma_store=False, defer=False, panels=Build.panels)
    if build.block_n not in build.row.block_n:
        raise GemmError(f"{build.kernel} has no tiles {build.block_n} wide; valid: {build.row.block_n}")
    if not gemm_tiles.parts_fit(build):
        raise GemmError(
            f"a tile of {build.block_m} x {build.block_n} has no parts for a cluster of {build.cluster}; valid: (1, 1)"
        )
    if not gemm_tiles.panels_fit(build):
        raise GemmError(
            f"{build.panels} panels cannot take a tile of {build.block_n} columns of {build.out}; valid: 2, 4"
        )
    if build.promote and build.block_n > 128:
        raise GemmError(
            f"promote needs a second set of accumulators; valid: tiles at most 128 wide, not {build.block_n}"
        )
    if build.row.persistent:
        build = replace(build, stages=tuning.stages or gemm_tiles.most_stages(build))
    elif tuning.stages:
        build = replace(build, stages=tuning.stages)
    if build.row.persistent and build.stagger >= build.stages:
        raise GemmError(f"stagger={build.stagger} needs more slots than {build.stages}; valid: below that")
    if build.shared_bytes > SHARED_LIMIT:
        raise GemmError(f"{build} does not fit: {build.shared_bytes} shared bytes, at most {SHARED_LIMIT}")
    return build
