"""Registers that warpgroups give back and take while a kernel runs: the pool of a block, and what setmaxnreg does to it.

Source: PTX ISA 9.4, section setmaxnreg. Not measured. The instruction is a hint: a kernel that was compiled without a known
number of registers keeps what it has (ptxas says so, note C7508), which is not modelled.

setmaxnreg: the two spellings, and the counts that were assembled.

Sources: PTX ISA 9.4, section setmaxnreg; ptxas 13.5.37 (targets, versions, SASS). What it does is the manual's word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tcsim.arithmetic.steps import Lowering
from tcsim.core.errors import OperandError
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import Arch, suffixed_since
from tcsim.isa.plain_rows import plain_row
from tcsim.model.family import Family
from tcsim.model.formed import FormedInstruction
from tcsim.model.operand_form import OperandForm
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
    """Raise OperandError unless setmaxnreg could ask for so many."""
    if not FEWEST <= number <= MOST or number % STEP:
        raise OperandError(f"{what}={number}: valid: multiples of {STEP} from {FEWEST} to {MOST}")


@dataclass(frozen=True)
class PoolFacts:
    """What a row does."""

    increase: bool  # .inc: the warpgroup asks for more; .dec: it gives back
    forms: tuple[OperandForm, ...]


def pool_facts(row: Row) -> PoolFacts:
    """The facts of a row.

    Raises TypeError if it has none.
    """
    if not isinstance(row.facts, PoolFacts):
        raise TypeError(f"{row.mnemonic} does not move registers")
    return row.facts


@dataclass(frozen=True, eq=False, repr=False)
class MoveRegisters(FormedInstruction):
    """setmaxnreg, by the four warps of a warpgroup together."""

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
        call = f"{self!r}.execute"
        if not isinstance(pool, RegisterPool):
            raise OperandError(f"{call}: pool is a {type(pool).__name__}; valid: a RegisterPool")
        check_count(count, f"{call}: count")
        if not 0 <= warpgroup < len(pool.owned):
            raise OperandError(f"{call}: warpgroup={warpgroup}: valid: 0 to {len(pool.owned) - 1}")
        now, increase = pool.owned[warpgroup], pool_facts(self.row).increase
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


def bind(row: Row, *rest: Any) -> MoveRegisters:
    """The instruction of a row."""
    return MoveRegisters(row, *rest)


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
