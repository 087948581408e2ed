"""cvta.param: generic addresses of a kernel's parameters, and back.

Sources: PTX ISA, section cvta; ptxas 13.5.37 (targets, versions, SASS): a window's beginning, which the driver writes to the
constant bank, is added or subtracted. The other state spaces are ordinary PTX, which is not part of the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand
from tcsim.model.registers import RegisterInstruction
from tcsim.model.row import Row, present

WINDOW = 1 << 40
"""Where the parameters begin in the generic address space, if nothing else is said: the driver chooses, no result depends on it."""


@dataclass(frozen=True, eq=False, repr=False)
class ConvertAddress(RegisterInstruction):
    """cvta.param and cvta.to.param."""

    def compute(self, form: Form, operands: Mapping[str, Array]) -> dict[str, Array]:
        """The converted addresses (..., lanes), with the default window."""
        return {"converted": self.execute(operands["address"])}

    def execute(self, address: Any, window: int = WINDOW) -> npt.NDArray[np.uint64]:
        """The addresses (...), uint64: generic ones of addresses in .param, or with .to the other way.

        window: where the parameters begin in the generic address space. Raises OperandError for addresses that are no integers.

        >>> to = tcsim.instruction("cvta.to.param.u64", arch="sm_90")
        >>> int(to.execute(tcsim.instruction("cvta.param.u64", arch="sm_90").execute(24)))
        24
        """
        given = np.asarray(address)
        if given.dtype.kind not in "iu":
            raise OperandError(f"{self._call}: address is {given.dtype}; valid: integers of 64 bits")
        moved = given.astype(np.uint64)
        with np.errstate(over="ignore"):
            return np.asarray(moved - np.uint64(window) if self.row.operation == "to" else moved + np.uint64(window))


NAME = "cvta.param"

_CONVERTED, _ADDRESS = Operand("converted", "destination", type=".b64"), Operand("address", type=".b64")


def rows() -> tuple[Row, ...]:
    """Both ways; the source of the one may be the name of a parameter."""
    return tuple(
        Row(
            f"cvta{to}{space}.u64", NAME, arithmetic="to" if to else "from", operation="to" if to else "from",
            modifiers=present(to=to, space=space),
            forms=tuple(
                Form((_CONVERTED, _ADDRESS), since("sm_70"), version, together="thread", name=name)
                for name in (("",) if to else ("", "variable"))
            ),
        )
        for to, (space, version) in product(("", ".to"), ((".param", "7.7"), (".param::entry", "8.3")))
    )  # fmt: skip


def lowering(row: Row, arch: Arch) -> Lowering:
    """An ordinary addition."""
    return Lowering("native", (), (), "an ordinary addition of 64 bits")


def evidence(row: Row, arch: Arch) -> Evidence:
    """A recording, or the manual's word and what the machine code does."""
    return RECORDED.get(arch.name) or Evidence(
        "literature", f"{PTX_MANUAL}, section cvta, and the machine code of ptxas 13.5"
    )


FAMILY = Family(NAME, rows, lowering, evidence, ConvertAddress)
