"""What ptxas says that it changed, as hazards: notes C75xx of its log. Running it is for others (`hwkernels.device.repairs`).

The numbers of the notes move between releases, so their words are read. ptxas adds a missing wgmma.fence without a note: for that
the shadow state has a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tcsim.ptx.hazards.hazard import Hazard

_RULES = (
    (re.compile(r"wgmma\.mma_async instructions are serialized"), "WGMMA_SERIALISED"),
    (re.compile(r"wgmma\.\w+ is injected"), "WGMMA_INJECTED"),
    (re.compile(r"'setmaxnreg' ignored"), "SETMAXNREG_IGNORED"),
)
_LINE = re.compile(r"\bline (\d+)")
_CODE = re.compile(r"\((C75\d\d)\)")


def hazards_in(log: str | Iterable[str]) -> list[Hazard]:
    """The hazards that lines of ptxas name; lines that name none are left out.

    >>> note = "ptxas info    : (C7517) wgmma.wait_group is injected in around line 14 by compiler to allow use of registers"
    >>> [(own.name, own.severity, own.line, own.detail) for own in hazards_in(note)]
    [('WGMMA_INJECTED', 'repaired', 14, {'note': 'C7517'})]
    """
    found = []
    for text in log.splitlines() if isinstance(log, str) else log:
        rule = next((name for pattern, name in _RULES if pattern.search(text)), None)
        if rule is not None:
            line, code = _LINE.search(text), _CODE.search(text)
            message = text.partition(") ")[2] or text
            detail = {"note": code[1]} if code else {}
            found.append(Hazard(rule, message.strip(), int(line[1]) if line else None, detail=detail))
    return found
