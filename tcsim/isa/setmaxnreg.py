"""setmaxnreg: registers that warpgroups give back and take while a kernel runs, and the pool of a block that they come from.

Sources: PTX ISA, section setmaxnreg; ptxas 13.5.37 (targets, versions, SASS). The instruction is a hint: a kernel that was
compiled without a known number of registers keeps what it has (ptxas says so, note C7508), which is not modelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, suffixed_since
from tcsim.core.versions import PTX_MANUAL
from tcsim.model.effects import Array, Effects, Resource, View
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.operand import Operand
from tcsim.model.row import Row

FEWEST, MOST, STEP = 24, 256, 8
"""What setmaxnreg can ask for: a multiple of 8 from 24 to 256, both included."""


@dataclass(frozen=True)
class RegisterPool:
    """The registers of a block: what the threads of each warpgroup own, and what waits in the pool.

    Raises OperandError for numbers of registers that a warpgroup cannot own.

    >>> RegisterPool.at_launch(warpgroups=3, registers=168)
    RegisterPool(owned=(168, 168, 168), free=0)
    """

    owned: tuple[int, ...]  # registers of each thread, by warpgroup
    free: int = 0  # in the pool, counted for each thread of one warpgroup: 8 are 8 * 128 registers

    def __post_init__(self) -> None:
        for number in self.owned:
            check_count(number, "RegisterPool: owned")
        if not self.owned or self.free < 0:
            raise OperandError(
                f"RegisterPool({self.owned}, {self.free}): valid: a warpgroup or more, and 0 or more free"
            )

    @classmethod
    def at_launch(cls, warpgroups: int, registers: int) -> RegisterPool:
        """A block whose threads were all given the same number, as `.maxnreg` or the compiler says; nothing is free.

        Raises OperandError as the constructor does.
        """
        return cls((registers,) * warpgroups)

    @property
    def total(self) -> int:
        """What the block has in all, in the unit of `free`: no setmaxnreg changes it."""
        return sum(self.owned) + self.free


def check_count(number: int, what: str) -> None:
    """Raise OperandError unless setmaxnreg can ask for this number of registers."""
    if not FEWEST <= number <= MOST or number % STEP:
        raise OperandError(f"{what}={number}: valid: multiples of {STEP} from {FEWEST} to {MOST}")


@dataclass(frozen=True, kw_only=True)
class PoolRow(Row):
    """A spelling of setmaxnreg."""

    increase: bool  # .inc: the warpgroup asks for more; .dec: it gives back


@dataclass(frozen=True, eq=False, repr=False)
class MoveRegisters(Instruction):
    """setmaxnreg, by the four warps of a warpgroup together."""

    row: PoolRow
    cuts = True

    @property
    def executed_by(self) -> tuple[str, ...]:
        """One warpgroup."""
        return (
            "one warpgroup: its four warps execute the same instruction, and synchronise before the next one",
            ".aligned: all threads of a warp execute the same instruction",
        )

    @property
    def rules(self) -> tuple[str, ...]:
        """Which counts it takes, and what the kernel must say."""
        return (
            f"count: a multiple of {STEP} from {FEWEST} to {MOST}; .inc to no fewer, .dec to no more than the warpgroup owns",
            "the kernel's number of registers must be known (.maxnreg, .maxntid): else ptxas leaves it out (note C7508)",
        )

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The registers that each thread owns afterwards; whoever has the pool says whether they are there."""
        count = int(np.asarray(operands["count"]).flat[0])
        check_count(count, f"{self._call}: count")
        return Effects(resources=(Resource("registers", view.rank, count),))

    def execute(self, pool: RegisterPool, warpgroup: int, count: int) -> tuple[bool, RegisterPool]:
        """Whether the warpgroup goes on, and the block's registers then.

        count: the registers that each of its threads owns afterwards. An .inc for which the pool has too little waits: then
        the answer is False, and the pool is as it was. What new registers hold is undefined.

        Raises OperandError for a count that is not a multiple of 8 from 24 to 256, a warpgroup that the block does not have,
        and where the manual leaves the behaviour undefined: .inc to fewer, or .dec to more, than the warpgroup owns.

        >>> give, take = (tcsim.instruction(f"setmaxnreg.{w}.sync.aligned.u32", arch="sm_90") for w in ("dec", "inc"))
        >>> pool = RegisterPool.at_launch(warpgroups=3, registers=168)
        >>> take.execute(pool, warpgroup=1, count=232)[0]
        False
        >>> _, pool = give.execute(pool, warpgroup=0, count=40)
        >>> take.execute(pool, warpgroup=1, count=232)
        (True, RegisterPool(owned=(40, 232, 168), free=64))
        """
        call = self._call
        if not isinstance(pool, RegisterPool):
            raise OperandError(f"{call}: pool is a {type(pool).__name__}; valid: a RegisterPool")
        check_count(count, f"{call}: count")
        if not 0 <= warpgroup < len(pool.owned):
            raise OperandError(f"{call}: warpgroup={warpgroup}: valid: 0 to {len(pool.owned) - 1}")
        now, increase = pool.owned[warpgroup], self.row.increase
        if count < now if increase else count > now:
            other = "dec" if increase else "inc"
            raise OperandError(
                f"{call}: count={count}: warpgroup {warpgroup} owns {now}, and the behaviour is undefined; valid: {now} or "
                f"{'more' if increase else 'less'}, or setmaxnreg.{other}"
            )
        if count - now > pool.free:
            return False, pool
        owned = (*pool.owned[:warpgroup], count, *pool.owned[warpgroup + 1 :])
        return True, replace(pool, owned=owned, free=pool.free - (count - now))


NAME = "setmaxnreg"
OPCODES = MappingProxyType({"inc": "USETMAXREG.TRY_ALLOC.CTAPOOL", "dec": "USETMAXREG.DEALLOC.CTAPOOL"})

_COUNT = Operand("count", kind="immediate", values=tuple(range(FEWEST, MOST + 1, STEP)), per="warpgroup")
_FORM = Form((_COUNT,), ("sm_90a", *suffixed_since("sm_100")), "8.0", together="warpgroup")


def rows() -> tuple[PoolRow, ...]:
    """.inc and .dec."""
    return tuple(
        PoolRow(
            f"{NAME}.{word}.sync.aligned.u32",
            NAME,
            arithmetic=word,
            forms=(_FORM,),
            may_wait=True,
            warps_apart=True,
            increase=increase,
        )
        for word, increase in (("inc", True), ("dec", False))
    )


def lowering(row: PoolRow, arch: Arch) -> Lowering:
    """One machine instruction; an .inc is followed by a test whether it was granted, and tried again."""
    return Lowering("native", (), ((OPCODES[row.arithmetic], 1),))


_MANUAL = Evidence("literature", f"{PTX_MANUAL}, section setmaxnreg")


def evidence(row: PoolRow, arch: Arch) -> Evidence:
    """A recording, or the manual's word."""
    return RECORDED.get(arch.name, _MANUAL)


FAMILY = Family(NAME, rows, lowering, evidence, MoveRegisters)
