"""PTX targets and the chip generations that run them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import TypeVar

from tcsim.core.errors import TargetError, listing, nearest, shortened
from tcsim.core.versions import PTX_MANUAL

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A PTX target: what `ptxas --gpu-name` takes."""

    name: str  # "sm_90a"
    ptx_version: str  # lowest PTX ISA `.version` that has it

    @property
    def suffix(self) -> str:
        """ "" for a base target, "f" for a family target, "a" for an arch-specific one."""
        return self.name[-1] if self.name[-1] in "af" else ""

    @cached_property
    def number(self) -> int:
        """90 for sm_90a."""
        return int(self.name.removeprefix("sm_").rstrip("af"))

    @property
    def arch(self) -> str:
        """The arch that runs its code: `sm_90` for `sm_90a`."""
        return f"sm_{self.number}"


@dataclass(frozen=True)
class Arch:
    """A chip generation: what `--arch` and a GPU's compute capability name. A new one is one more entry in the table below."""

    name: str  # "sm_90"
    generation: str  # NVIDIA's name
    example: str  # a product of this compute capability
    relative: str  # the arch that stands in where nothing is known about this one; itself if there is none
    targets: tuple[Target, ...]  # its PTX targets, the plain one first
    source: str = ""  # the manual and the assembler that were asked about it; empty: all of it is inferred

    @cached_property
    def number(self) -> int:
        """90 for sm_90: archs and targets compare by it."""
        return int(self.name.removeprefix("sm_"))

    @property
    def lineage(self) -> tuple[str, ...]:
        """Its name, then those of the archs that stand in for it, the nearest first.

        >>> ARCHS["sm_121"].lineage, ARCHS["sm_90"].lineage
        (('sm_121', 'sm_120'), ('sm_90',))
        """
        names, following = [self.name], self.relative
        while following not in names:
            names.append(following)
            following = ARCHS[following].relative
        return tuple(names)


_PTXAS_12 = f"{PTX_MANUAL}, ptxas 12.9.86"
_PTXAS_13 = f"{PTX_MANUAL}, ptxas 13.5.37"

# A new chip is one more entry. Without a source it does what its relative does, and all of that counts as inferred.
#
# Versions are the lowest `.version` with which ptxas takes an empty kernel for the target. Each was found by trying every
# version from 5.0 to 9.5 (there is no 8.9) with the ptxas that the entry names; the comment says which one was refused.
# An instruction may need a later version than its target.
_ENTRIES = (
    Arch("sm_70", "Volta", "V100", "sm_70", (
        Target("sm_70", "5.1"),  # 5.0 refused
    ), _PTXAS_12),
    Arch("sm_72", "Volta", "Xavier", "sm_70", (
        Target("sm_72", "6.1"),  # 6.0 refused
    ), _PTXAS_12),
    Arch("sm_75", "Turing", "T4", "sm_75", (
        Target("sm_75", "6.3"),  # 6.2 refused
    ), _PTXAS_13),
    Arch("sm_80", "Ampere", "A100", "sm_80", (
        Target("sm_80", "7.0"),  # 6.5 refused
    ), _PTXAS_13),
    Arch("sm_86", "Ampere", "A2, RTX 3090", "sm_86", (
        Target("sm_86", "7.1"),  # 7.0 refused
    ), _PTXAS_13),
    Arch("sm_87", "Ampere", "Jetson Orin", "sm_86", (
        Target("sm_87", "7.4"),  # 7.3 refused
    ), _PTXAS_13),
    Arch("sm_88", "Ampere", "sm_88", "sm_86", (
        Target("sm_88", "9.0"),  # 8.8 refused, though its neighbours are far older
    ), _PTXAS_13),
    Arch("sm_89", "Ada", "L40S, RTX 4090", "sm_89", (
        Target("sm_89", "7.8"),  # 7.7 refused
    ), _PTXAS_13),
    Arch("sm_90", "Hopper", "H100, H200", "sm_90", (
        Target("sm_90", "7.8"),  # 7.7 refused
        Target("sm_90a", "8.0"),  # 7.8 refused: the a-target came one version after sm_90
    ), _PTXAS_13),
    Arch("sm_100", "Blackwell", "B200", "sm_100", (
        Target("sm_100", "8.6"),  # 8.5 refused
        Target("sm_100f", "8.8"),  # 8.7 refused: f-targets begin with 8.8
        Target("sm_100a", "8.6"),  # 8.5 refused
    ), _PTXAS_13),
    Arch("sm_103", "Blackwell", "B300", "sm_100", (
        Target("sm_103", "8.8"),  # 8.7 refused
        Target("sm_103f", "8.8"),  # 8.7 refused
        Target("sm_103a", "8.8"),  # 8.7 refused
    ), _PTXAS_13),
    Arch("sm_107", "Rubin", "sm_107", "sm_100", (
        Target("sm_107", "9.4"),  # 9.3 refused
        Target("sm_107f", "9.4"),  # 9.3 refused
        Target("sm_107a", "9.4"),  # 9.3 refused
    ), _PTXAS_13),
    Arch("sm_110", "Blackwell", "Jetson Thor", "sm_100", (
        Target("sm_110", "9.0"),  # 8.8 refused
        Target("sm_110f", "9.0"),  # 8.8 refused
        Target("sm_110a", "9.0"),  # 8.8 refused
    ), _PTXAS_13),
    Arch("sm_120", "Blackwell", "RTX 5090", "sm_120", (
        Target("sm_120", "8.7"),  # 8.6 refused
        Target("sm_120f", "8.8"),  # 8.7 refused: f-targets begin with 8.8
        Target("sm_120a", "8.7"),  # 8.6 refused
    ), _PTXAS_13),
    Arch("sm_121", "Blackwell", "GB10", "sm_120", (
        Target("sm_121", "8.8"),  # 8.7 refused
        Target("sm_121f", "8.8"),  # 8.7 refused
        Target("sm_121a", "8.8"),  # 8.7 refused
    ), _PTXAS_13),
)  # fmt: skip

ARCHS: MappingProxyType[str, Arch] = MappingProxyType({arch.name: arch for arch in _ENTRIES})
"""The archs by name, the earliest first."""

TARGETS: MappingProxyType[str, Target] = MappingProxyType({one.name: one for arch in _ENTRIES for one in arch.targets})
"""The targets of all archs by name."""

OLDER: MappingProxyType[str, str] = MappingProxyType(
    {
        "sm_20": "2.3", "sm_21": "2.3", "sm_30": "3.0", "sm_32": "4.0", "sm_35": "3.1", "sm_37": "4.1", "sm_50": "4.0", "sm_52": "4.1",
        "sm_53": "4.2", "sm_60": "5.0", "sm_61": "5.0", "sm_62": "5.0",
    }
)  # fmt: skip
"""The targets before those of ARCHS, whose code later archs run, each with the lowest `.version` that has it and 64-bit addresses."""


@cache
def at_least(number: int) -> frozenset[str]:
    """The targets of a compute capability and of all later ones.

    >>> sorted(at_least(121))
    ['sm_121', 'sm_121a', 'sm_121f']
    """
    return frozenset(name for name, target in TARGETS.items() if target.number >= number)


@cache
def since(name: str) -> tuple[str, ...]:
    """All targets of an arch and every later one, suffixed targets included.

    >>> since("sm_120")
    ('sm_120', 'sm_120f', 'sm_120a', 'sm_121', 'sm_121f', 'sm_121a')
    """
    later = at_least(ARCHS[name].number)
    return tuple(target for target in TARGETS if target in later)


def nearest_known(table: Mapping[str, T], arch: Arch) -> tuple[str, T] | None:
    """The entry of a table by arch that holds for an arch, and its key: the arch itself, or the nearest one that stands in.

    None if none of them has an entry.

    >>> nearest_known({"sm_100": "UMMA", "sm_90": "GMMA"}, ARCHS["sm_103"])
    ('sm_100', 'UMMA')
    """
    return next(((name, table[name]) for name in arch.lineage if name in table), None)


@cache
def suffixed_since(name: str) -> tuple[str, ...]:
    """The f and a targets of an arch and every later one."""
    return tuple(t for t in since(name) if TARGETS[t].suffix)


_SOLD: dict[str, str] = {
    "sm_70": "v100 gv100", "sm_72": "xavier", "sm_75": "t4 2060 2070 2080 2080ti titan", "sm_80": "a100 a800 a30",
    "sm_86": "a2 a10 a10g a16 a40 a4000 a5000 a6000 3050 3060 3070 3080 3090", "sm_87": "orin", "sm_89": "l4 l20 l40 l40s 4050 4060 4070 4080 4090",
    "sm_90": "h100 h200 h20 h800 gh200", "sm_100": "b200 b100 gb200", "sm_103": "b300 gb300", "sm_110": "thor",
    "sm_120": "pro6000 pro5000 pro4500 pro4000 5050 5060 5070 5080 5090", "sm_121": "gb10 spark",
}  # fmt: skip
PRODUCTS: MappingProxyType[str, str] = MappingProxyType(
    {product: arch for arch, products in _SOLD.items() for product in products.split()}
)
"""Products in lower case, each with its arch: https://developer.nvidia.com/cuda-gpus."""

_GENERATIONS = {arch.generation.lower(): arch.name for arch in reversed(_ENTRIES)}
_SPELLED = re.compile(r"(?:sm_?|compute_?)?([0-9]{2,3}[af]?)", re.ASCII)
_ABOUT = re.compile(
    r"nvidia|geforce|tesla|quadro|jetson|agx|dgx|rtx|gpu|[0-9]+gb|hbm[0-9]e?|sxm[0-9]?|pcie|nvl|ti|super|ada|generation|blackwell|workstation|server|edition|laptop|max|q"
)
_LONGEST_NAME = 100


def product_named(name: str) -> str | None:
    """The key of PRODUCTS that a name of a product means, a driver's too, in any case; None for any other.

    >>> product_named("NVIDIA A100-SXM4-80GB"), product_named("RTX 5090"), product_named("h900")
    ('a100', '5090', None)
    """
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        return None
    text = re.sub(r"\bpro[ _-]*(?=[0-9]{4})", "pro", re.sub(r"(?<=rtx)(?=[0-9p])", " ", name.lower()))
    words = [word for word in re.split(r"[\s_-]+", text) if word and not _ABOUT.fullmatch(word)]
    return words[0] if len(words) == 1 and words[0] in PRODUCTS else None


def named(name: str) -> str | None:
    """The arch or target that a name means: a target's, a product's, or a generation's (its first arch), in any case; None for any other.

    >>> named("H100"), named("RTX 5090"), named("blackwell"), named("sm90a"), named("h900")
    ('sm_90', 'sm_120', 'sm_100', 'sm_90a', None)
    """
    if not isinstance(name, str) or name in TARGETS:
        return name if isinstance(name, str) else None
    low = name.lower()
    spelled = _SPELLED.fullmatch(low)
    if spelled and f"sm_{spelled[1]}" in TARGETS:
        return f"sm_{spelled[1]}"
    product = product_named(name)
    return _GENERATIONS.get(low) if product is None else PRODUCTS[product]


def arch_named(name: str) -> str:
    """The arch of a name, as `accepting` finds it: what an option of a command line means. Raises TargetError.

    >>> arch_named("H100"), arch_named("sm_90a")
    ('sm_90', 'sm_90')
    """
    return accepting(name)[0].name


def accepting(arch_or_target: str) -> tuple[Arch, tuple[str, ...]]:
    """The arch, and the targets whose instructions it has: all targets of an arch, or just the one named.

    `sm_90` names both an arch and a target; it is taken as the arch, which runs sm_90a code too. Products and generations are archs (`named`).

    Raises TargetError for a name that is none of these.
    """
    name = named(arch_or_target)
    if name is not None and name in ARCHS:
        return ARCHS[name], tuple(target.name for target in ARCHS[name].targets)
    if name is not None:
        return ARCHS[TARGETS[name].arch], (name,)
    known = [*ARCHS, *(t for t in TARGETS if t not in ARCHS)]
    text = str(arch_or_target)[:_LONGEST_NAME].lower()
    close = nearest(text, known if text.startswith("sm") else [*PRODUCTS, *known], 2)
    raise TargetError(
        f"no arch or target {shortened(arch_or_target)}; nearest: {listing(close)}; all: {listing(known, 40)}; or a product, such as h100"
    )
