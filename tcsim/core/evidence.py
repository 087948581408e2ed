"""How a fact is known. It is shown with every result, and never looks better than it is."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from tcsim.core.targets import Arch

Level = Literal["measured", "published", "literature", "inferred"]


@dataclass(frozen=True)
class Evidence:
    """Why we believe what the model says about one instruction on one arch.

    >>> print(tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_80").evidence)
    literature: PTX ISA, section movmatrix
    """

    level: Level
    source: str  # which GPU and run, whose results, which paper or manual, or which relative

    def __str__(self) -> str:
        return f"{self.level}: {self.source}"


RECORDED = MappingProxyType({"sm_90": Evidence("measured", "NVIDIA H200, conformance/recordings/sm_90")})
"""What this project ran, by arch: for the families all of whose instructions it ran there."""

RTX_PRO_6000 = Evidence("published", "RTX PRO 6000 Blackwell Server Edition, digests of pantheongpu/pantheonsim")
"""Of sm_120: conformance/recordings/published/rtx_pro_6000.json holds the digests, and says of which instructions."""


def inferred(arch: Arch) -> Evidence:
    """The evidence on an arch about which nothing is known: it is taken to do what its relative does."""
    return Evidence("inferred", f"as {arch.relative}: nothing is known of {arch.name} itself")


LEVELS: dict[Level, str] = {
    "measured": "this project ran the instruction on that GPU and compared every output bit; the recording is in the tree",
    "published": "others published results of that hardware, and the model reproduces them",
    "literature": "a manual, a paper or the assembler's own output says so; no hardware result was compared",
    "inferred": "taken from the nearest relative; nothing is known of this arch itself",
}
"""What each level means, strongest first."""
