"""setmaxnreg: the two spellings, and the counts that were assembled.

Sources: PTX ISA 9.4, section setmaxnreg; ptxas 13.5.37 (targets, versions, SASS). What it does is the manual's word.
"""

from __future__ import annotations

from tcsim.evidence import RECORDED, Evidence
from tcsim.families.plain_rows import plain_row
from tcsim.operand_form import OperandForm
from tcsim.register_pool import PoolFacts, bind
from tcsim.registry import Family, Row
from tcsim.steps import Lowering
from tcsim.targets import Arch, suffixed_since

NAME = "setmaxnreg"

_TARGETS = ("sm_90a", *suffixed_since("sm_100"))
_VERSION = "8.0"
COUNTS = (24, 40, 128, 232, 240, 256)
"""Counts that were assembled; any multiple of 8 from 24 to 256 is taken."""
_OPCODES = {"inc": "USETMAXREG.TRY_ALLOC.CTAPOOL", "dec": "USETMAXREG.DEALLOC.CTAPOOL"}


def rows() -> tuple[Row, ...]:
    """.inc and .dec."""
    forms = tuple(OperandForm(f"n={count}", (), ("count",), _TARGETS, _VERSION) for count in COUNTS)
    return tuple(
        plain_row(
            NAME, f"setmaxnreg.{word}.sync.aligned.u32", _TARGETS, _VERSION, word, PoolFacts(word == "inc", forms)
        )
        for word in _OPCODES
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction; an .inc is followed by a test whether it was given, and tried again."""
    return Lowering("native", (), ((_OPCODES[row.arithmetic], 1),))


_MANUAL = Evidence("literature", "PTX ISA 9.4, section setmaxnreg")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, bind)
