"""st.bulk: zeros in a range of a block's own shared memory.

Sources: PTX ISA, section st.bulk (sizes, the value); ptxas 13.5.37 (targets, versions), whose machine code (UMEMSETS.64: 8
bytes at a time, the size divided by 8) says how an address is aligned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.addresses import Bytes, byte_memory, integer_addresses, require_alignment, require_inside
from tcsim.core.errors import OperandError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch, since
from tcsim.core.versions import PTX_MANUAL
from tcsim.isa.copies import space_of
from tcsim.model.effects import Access, Array, Effects, Memories, Outcome, View, Write, completed
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand, Space
from tcsim.model.row import Row, present

UNIT_BYTES = 8
"""What the size is a multiple of."""
MOST_BYTES = 16_777_216
"""The largest size."""


@dataclass(frozen=True, eq=False, repr=False)
class ZeroFill(Instruction):
    """st.bulk, whose value must be zero."""

    @property
    def rules(self) -> tuple[str, ...]:
        """Sizes and the value."""
        return (f"size: a multiple of {UNIT_BYTES} bytes from 0 to {MOST_BYTES}; the value is 0",)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """A write of zeros for each lane. Raises as `execute` does for a size or an address."""
        addresses = operands["address"].astype(np.int64)
        require_alignment(addresses, UNIT_BYTES, "the range", self._call)
        space, writes = space_of(form["address"]), []
        for lane, size in enumerate(np.broadcast_to(operands["size"], addresses.shape).tolist()):
            self._require_size(size)
            at = Access(space, addresses[lane : lane + 1], size, thread=np.array([lane]))
            writes += [Write(at, np.zeros((1, size), np.uint8))] if size else []
        return Effects(Outcome(writes=tuple(writes)))

    def _require_size(self, size: int) -> None:
        if not 0 <= size <= MOST_BYTES or size % UNIT_BYTES:
            raise OperandError(f"{self._call}: size={size}: valid: multiples of {UNIT_BYTES} from 0 to {MOST_BYTES}")

    def execute(self, smem: Any, address: int, size: int) -> Bytes:
        """The new shared memory: uint8 (..., bytes) -> uint8 (..., bytes).

        Raises OperandError for a size that is not a multiple of 8 from 0 to 16777216, MisalignedAddressError for an address
        that is not a multiple of 8 (the manual says nothing of it), OutsideMemoryError.

        >>> fill = tcsim.instruction("st.bulk.weak.shared::cta", arch="sm_100")
        >>> fill.execute(np.full(24, 255, np.uint8), address=8, size=8).tolist()[6:18]
        [255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255]
        """
        image = byte_memory(smem, self._call)
        self._require_size(size)
        place = integer_addresses(address, self._call)
        require_alignment(place, UNIT_BYTES, "the range", self._call)
        require_inside(place, size, image.shape[-1], "a range", self._call)
        view = Memories({"shared": image, "generic": image}, self._call)
        form = self.forms[0]
        effects = self.effects(form, {"address": place.reshape(1), "size": np.array([size])}, view)
        return view.after(completed(effects, view))[space_of(form["address"])].copy()


NAME = "st.bulk"

_TARGETS = since("sm_100")
_SPACES: dict[str, Space] = {".shared::cta": "shared::cta", "": "generic"}
_ZERO = Operand("initval", kind="immediate", values=(0,))


def _forms(space: Space) -> tuple[Form, ...]:
    address = Operand("address", "destination", "address", space=space)
    return tuple(
        Form((address, Operand("size", type=type), _ZERO), _TARGETS, version, together="thread", name=name)
        for name, type, version in (("", ".u64", "8.6"), ("size32", ".u32", "9.0"))
    )


def rows() -> tuple[Row, ...]:
    """With and without .weak, which is the default, and a state space."""
    return tuple(
        Row(f"{NAME}{order}{text}", NAME, arithmetic="fill", forms=_forms(space), modifiers=present(space=text))
        for order, (text, space) in product((".weak", ""), _SPACES.items())
    )


def lowering(row: Row, arch: Arch) -> Lowering:
    """One machine instruction, which is given the size divided by 8."""
    return Lowering("native", (), (("UMEMSETS.64", 1),))


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section st.bulk")


def evidence(row: Row, arch: Arch) -> Evidence:
    """The manual's word."""
    return _MANUAL


FAMILY = Family(NAME, rows, lowering, evidence, ZeroFill)
