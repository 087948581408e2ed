"""Which targets have the fifth generation's tensor cores and their Tensor Memory: what the tcgen05 family modules share."""

from __future__ import annotations

from tcsim.core.targets import TARGETS, suffixed_since

_BEFORE = 120  # sm_120 has no Tensor Memory

FAMILY_TARGETS = tuple(name for name in suffixed_since("sm_100") if TARGETS[name].number < _BEFORE)
"""The f and a targets of sm_100 to sm_110."""
SINCE_SM_103 = tuple(name for name in FAMILY_TARGETS if TARGETS[name].number >= 103)
"""Those of sm_103, sm_107 and sm_110."""
ARCH_TARGETS = tuple(name for name in FAMILY_TARGETS if TARGETS[name].suffix == "a")
"""The a targets."""
SM_107 = tuple(name for name in FAMILY_TARGETS if TARGETS[name].number == 107)
"""sm_107f and sm_107a."""
SM_107A = ("sm_107a",)
"""sm_107a alone."""
