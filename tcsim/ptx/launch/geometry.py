"""The shape of a launch: grid, block, cluster and shared memory, against what the entry asks for and what the arch has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tcsim.core.errors import TargetError, listing, shortened
from tcsim.core.targets import ARCHS, TARGETS, Target, accepting
from tcsim.ptx.launch.parameters import LaunchError, refuse, whole
from tcsim.ptx.machine.limits import BLOCK, GRID, LOCAL_BYTES, STATIC_SHARED, THREADS, capacity
from tcsim.ptx.text.syntax import Function

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """A launch whose shape was checked."""

    grid: Shape  # of blocks
    block: Shape
    cluster: Shape
    dynamic_smem: int

    @property
    def clusters(self) -> int:
        """Clusters of the grid."""
        return prod(self.grid) // prod(self.cluster)


def arch_of(target_name: str, arch: str | None) -> str:
    """The arch that a launch runs on: the one asked for, or the target's own.

    Raises LaunchError for an arch that does not exist or does not run code of the target.

    >>> arch_of("sm_80", None), arch_of("sm_80", "sm_90"), arch_of("sm_90a", "sm_90")
    ('sm_80', 'sm_90', 'sm_90')
    """
    target = TARGETS.get(target_name, Target(target_name, ""))  # before sm_70: plain, and every later arch runs it
    if arch is None and target.arch not in ARCHS:
        raise LaunchError(f"no arch is known for .target {target_name}; valid: arch= one of {listing(ARCHS)}")
    if arch is None:
        return target.arch
    try:
        found = accepting(arch)[0].name
    except TargetError as error:
        raise LaunchError(f"arch={shortened(arch)}: {error}") from None
    valid = [name for name in ARCHS if _runs(target, name)]
    if found not in valid:
        raise LaunchError(f"arch={arch!r} does not run code for {target_name}; valid: {listing(valid)}")
    return found


def _runs(target: Target, arch: str) -> bool:
    """Plain targets run on later archs, those with an "f" on their family, those with an "a" only on their own."""
    number = ARCHS[arch].number
    if target.suffix == "a":
        return number == target.number
    if target.suffix == "f":
        return number >= target.number and number // 10 == target.number // 10
    return number >= target.number


def geometry(
    function: Function, arch: str, grid: Sequence[int], block: Sequence[int], cluster: Sequence[int], dynamic_smem: int,
) -> Geometry:  # fmt: skip
    """The shape of a launch. Raises LaunchError where it is not one that the arch and the entry's directives allow."""
    name = function.name
    blocks, threads, asked = (
        _shape(name, what, own) for what, own in (("grid", grid), ("block", block), ("cluster", cluster))
    )
    for what, own, limits in (("grid", blocks, GRID), ("block", threads, BLOCK)):
        axes = zip("xyz", own, limits, strict=True)
        refuse(name, *((size > limit, f"{what}.{axis}={size}; valid: 1 to {limit}") for axis, size, limit in axes))
    count, wanted = prod(threads), _directive(function, "reqntid")
    shown, most = f"block={threads} has {count} threads", prod(_directive(function, "maxntid") or threads)
    refuse(
        name,
        (count > THREADS, f"{shown}; valid: up to {THREADS}"),
        (wanted not in (None, threads), f"block={threads}; valid: {wanted}, as .reqntid says"),
        (count > most, f"{shown}; valid: up to {most}, as .maxntid says"),
    )
    given = _cluster(function, asked, arch)
    if "blocksareclusters" in function.directives:
        blocks = tuple(own * size for own, size in zip(blocks, given, strict=True))  # type: ignore[assignment]
    apart = any(own % size for own, size in zip(blocks, given, strict=True))
    refuse(
        name,
        (apart, f"grid={blocks} is not a multiple of the cluster {given}; valid: a multiple along each axis"),
        (not whole(dynamic_smem), f"dynamic_smem={shortened(dynamic_smem)}; valid: bytes from 0"),
    )
    return Geometry(blocks, threads, given, int(dynamic_smem))


def _shape(name: str, what: str, value: Any) -> Shape:
    try:
        found = tuple(int(own) for own in value if not isinstance(own, (bool, float, str)) and int(own) == own)
        if len(found) != 3 or len(value) != 3 or min(found) < 1:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise LaunchError(f"{name}: {what}={shortened(value)}; valid: three integers from 1") from None
    return found


def _directive(function: Function, name: str) -> Shape | None:
    """The numbers of a directive, 1 where it leaves one out; None if the function does not have it."""
    numbers = function.directives.get(name)
    if numbers is None:
        return None
    x, y, z = (*numbers, 1, 1, 1)[:3]
    return x, y, z


def _cluster(function: Function, asked: Shape, arch: str) -> Shape:
    wanted, most = _directive(function, "reqnctapercluster"), capacity(arch).clusters
    if wanted is not None and 0 in wanted:
        wanted = None
    found = wanted or asked
    count, shown = prod(found), f"cluster={found} has {prod(found)} blocks"
    rank = (_directive(function, "maxclusterrank") or (count,))[0]
    missing = "explicitcluster" in function.directives and wanted is None and asked == (1, 1, 1)
    refuse(
        function.name,
        (wanted and asked not in ((1, 1, 1), wanted), f"cluster={asked}; valid: {wanted}, as .reqnctapercluster says"),
        (missing, "no cluster is given; valid: a cluster of 2 or more blocks, because of .explicitcluster"),
        (count > 1 and most == 1, f"cluster={found} on {arch}; valid: clusters need sm_90 or later"),
        (count > most, f"{shown}; valid: up to {most} on {arch}"),
        (count > rank, f"{shown}; valid: up to {rank}, as .maxclusterrank says"),
    )
    return found


def check_memory(function: Function, arch: str, static: int, dynamic: int, local: int) -> None:
    """Raise LaunchError if a block's shared memory or a thread's local memory is more than the arch has."""
    most = capacity(arch).shared_kib << 10
    fixed, both = f"{static} bytes of static shared memory", f"{static} static bytes of shared memory"
    refuse(
        function.name,
        (static > STATIC_SHARED, f"{fixed}; valid: up to {STATIC_SHARED}, more must be dynamic"),
        (static + dynamic > most, f"dynamic_smem={dynamic} beside {both}; valid: up to {most - static} on {arch}"),
        (local > LOCAL_BYTES, f"{local} bytes of local memory for each thread; valid: up to {LOCAL_BYTES}"),
    )
