"""Which targets have Tensor Memory, and what is known of an arch: what the tcgen05 modules share."""

from __future__ import annotations

from tcsim.core.evidence import Evidence
from tcsim.core.targets import TARGETS, Arch, suffixed_since
from tcsim.descriptors.kinds import TENSOR_ARCHS

_ENDED = 120  # sm_120 does not have Tensor Memory

FAMILY_TARGETS = tuple(name for name in suffixed_since("sm_100") if TARGETS[name].number < _ENDED)
"""The f and a targets from sm_100 on."""
SINCE_SM_103 = tuple(name for name in FAMILY_TARGETS if TARGETS[name].number >= 103)
"""Those from sm_103 on."""
ARCH_TARGETS = tuple(name for name in FAMILY_TARGETS if TARGETS[name].suffix == "a")
"""The a targets."""
SM_107 = tuple(name for name in FAMILY_TARGETS if TARGETS[name].number == 107)
"""sm_107f and sm_107a: what PTX 9.4 added; ptxas 13.5 refuses it for sm_110."""
SM_107A = ("sm_107a",)
"""sm_107a alone, as ptxas 13.5 has it."""


def known(arch: Arch, evidence: Evidence) -> Evidence:
    """The evidence on an arch: what a manual says holds for the archs that it describes.

    >>> known(tcsim.instruction("tcgen05.wait::ld.sync.aligned", arch="sm_103").arch, Evidence("literature", "a manual")).level
    'literature'
    """
    if arch.name in TENSOR_ARCHS:
        return evidence
    return Evidence("inferred", f"{arch.name} is not described; its relatives have: {evidence.source}")
