"""PTX targets and the chip generations that run them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from tcsim.core.errors import TargetError, listing, nearest


@dataclass(frozen=True)
class Arch:
    """A chip generation: what `--arch` and a GPU's compute capability name."""

    name: str  # "sm_90"
    generation: str  # NVIDIA's name
    example: str  # a product of this compute capability
    relative: str  # the arch whose arithmetic stands in where this one's was never measured; itself if it was

    @property
    def number(self) -> int:
        """90 for sm_90: archs and targets compare by it."""
        return int(self.name.removeprefix("sm_"))


@dataclass(frozen=True)
class Target:
    """A PTX target: what `ptxas --gpu-name` takes."""

    name: str  # "sm_90a"
    arch: str  # the generation that runs its code
    ptx_version: str  # lowest PTX ISA `.version` that has it

    @property
    def suffix(self) -> str:
        """ "" for a base target, "f" for a family target, "a" for an arch-specific one."""
        return self.name[-1] if self.name[-1] in "af" else ""

    @property
    def number(self) -> int:
        """90 for sm_90a."""
        return int(self.name.removeprefix("sm_").rstrip("af"))


ARCHS: MappingProxyType[str, Arch] = MappingProxyType(
    {
        arch.name: arch
        for arch in (
            Arch("sm_70", "Volta", "V100", "sm_70"),
            Arch("sm_72", "Volta", "Xavier", "sm_70"),
            Arch("sm_75", "Turing", "T4", "sm_75"),
            Arch("sm_80", "Ampere", "A100", "sm_80"),
            Arch("sm_86", "Ampere", "A2, RTX 3090", "sm_86"),
            Arch("sm_87", "Ampere", "Jetson Orin", "sm_86"),
            Arch("sm_88", "Ampere", "sm_88", "sm_86"),
            Arch("sm_89", "Ada", "L40S, RTX 4090", "sm_89"),
            Arch("sm_90", "Hopper", "H100, H200", "sm_90"),
            Arch("sm_100", "Blackwell", "B200", "sm_100"),
            Arch("sm_103", "Blackwell", "B300", "sm_100"),
            Arch("sm_107", "Blackwell", "sm_107", "sm_100"),
            Arch("sm_110", "Blackwell", "Jetson Thor", "sm_100"),
            Arch("sm_120", "Blackwell", "RTX 5090", "sm_120"),
            Arch("sm_121", "Blackwell", "GB10", "sm_120"),
        )
    }
)

# The lowest `.version` with which ptxas takes an empty kernel for the target. Each row was found by trying every
# version from 5.0 to 9.5 (there is no 8.9) with ptxas 12.9.86 for sm_70 and sm_72, and ptxas 13.5.37 for the others.
# An instruction may need a later version than its target.
TARGETS: MappingProxyType[str, Target] = MappingProxyType(
    {
        target.name: target
        for target in (
            Target("sm_70", "sm_70", "5.1"),  # 5.0 refused
            Target("sm_72", "sm_72", "6.1"),  # 6.0 refused
            Target("sm_75", "sm_75", "6.3"),  # 6.2 refused
            Target("sm_80", "sm_80", "7.0"),  # 6.5 refused
            Target("sm_86", "sm_86", "7.1"),  # 7.0 refused
            Target("sm_87", "sm_87", "7.4"),  # 7.3 refused
            Target("sm_88", "sm_88", "9.0"),  # 8.8 refused, though its neighbours are far older
            Target("sm_89", "sm_89", "7.8"),  # 7.7 refused
            Target("sm_90", "sm_90", "7.8"),  # 7.7 refused
            Target("sm_90a", "sm_90", "8.0"),  # 7.8 refused: the a-target came one version after sm_90
            Target("sm_100", "sm_100", "8.6"),  # 8.5 refused
            Target("sm_100f", "sm_100", "8.8"),  # 8.7 refused: f-targets begin with 8.8
            Target("sm_100a", "sm_100", "8.6"),  # 8.5 refused
            Target("sm_103", "sm_103", "8.8"),  # 8.7 refused
            Target("sm_103f", "sm_103", "8.8"),  # 8.7 refused
            Target("sm_103a", "sm_103", "8.8"),  # 8.7 refused
            Target("sm_107", "sm_107", "9.4"),  # 9.3 refused
            Target("sm_107f", "sm_107", "9.4"),  # 9.3 refused
            Target("sm_107a", "sm_107", "9.4"),  # 9.3 refused
            Target("sm_110", "sm_110", "9.0"),  # 8.8 refused
            Target("sm_110f", "sm_110", "9.0"),  # 8.8 refused
            Target("sm_110a", "sm_110", "9.0"),  # 8.8 refused
            Target("sm_120", "sm_120", "8.7"),  # 8.6 refused
            Target("sm_120f", "sm_120", "8.8"),  # 8.7 refused: f-targets begin with 8.8
            Target("sm_120a", "sm_120", "8.7"),  # 8.6 refused
            Target("sm_121", "sm_121", "8.8"),  # 8.7 refused
            Target("sm_121a", "sm_121", "8.8"),  # 8.7 refused
        )
    }
)


def since(name: str) -> tuple[str, ...]:
    """All targets of an arch and every later one, suffixed targets included.

    >>> since("sm_120")
    ('sm_120', 'sm_120f', 'sm_120a', 'sm_121', 'sm_121a')
    """
    return tuple(t.name for t in TARGETS.values() if t.number >= ARCHS[name].number)


def suffixed_since(name: str) -> tuple[str, ...]:
    """The f and a targets of an arch and every later one."""
    return tuple(t for t in since(name) if TARGETS[t].suffix)


def accepting(arch_or_target: str) -> tuple[Arch, tuple[str, ...]]:
    """The arch, and the targets whose instructions count: all of an arch's own, or the one target named.

    `sm_90` names both an arch and a target; it is taken as the arch, which runs sm_90a code too.

    Raises TargetError for a name that is neither.
    """
    if isinstance(arch_or_target, str) and arch_or_target in ARCHS:
        own = tuple(t.name for t in TARGETS.values() if t.arch == arch_or_target)
        return ARCHS[arch_or_target], own
    if isinstance(arch_or_target, str) and arch_or_target in TARGETS:
        return ARCHS[TARGETS[arch_or_target].arch], (arch_or_target,)
    known = [*ARCHS, *(t for t in TARGETS if t not in ARCHS)]
    close = nearest(str(arch_or_target), known, 2)
    raise TargetError(f"no arch or target {arch_or_target!r}; nearest: {listing(close)}; all: {listing(known, 40)}")
