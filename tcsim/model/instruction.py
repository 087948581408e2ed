"""One instruction on one arch. Each family adds what its instructions can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar

from tcsim.arithmetic.steps import Lowering
from tcsim.core.arguments import as_array
from tcsim.core.display import Shown
from tcsim.core.errors import NotModelledError, OperandError, TcsimError
from tcsim.core.evidence import Evidence
from tcsim.core.targets import Arch
from tcsim.engines.choice import using
from tcsim.model.effects import Array, Effects, View
from tcsim.model.form import Form, forms_for
from tcsim.model.operand import Fragment
from tcsim.model.row import Row
from tcsim.numbers.formats import Format


class CallError(OperandError, TypeError):
    """An argument that the instruction's `execute` or `matmul` does not have, or one that is missing."""


@dataclass(frozen=True, eq=False)
class Instruction(Shown):
    """An instruction bound to an arch. Make one with `tcsim.instruction`; the family's class has `execute`.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> mma.shape, mma.targets, mma.operands["b"].registers, mma.evidence.level
    ((16, 8, 8), ('sm_90', 'sm_90a'), 1, 'measured')
    """

    # Whether its accesses say which thread each is of, so that it can be asked for several blocks at once.
    batched: ClassVar[bool] = False
    # Whether it can where nobody hears of it.
    joined: ClassVar[bool] = False
    # Whether what it reads may have further leading dimensions, which what it writes then has too.
    replicated: ClassVar[bool] = False
    changes_nothing: ClassVar[bool] = False  # whether all that it does is to order what others do
    cuts: ClassVar[bool] = False  # whether the assembler begins a basic block behind it
    heard: ClassVar[bool] = True  # whether a thread may wait for what another one does with it
    moves: ClassVar[bool] = (
        False  # whether elements of its registers go elsewhere as they are, to memory or to other lanes
    )
    reads_tiles: ClassVar[bool] = False  # whether it reads operands in shared memory through matrix descriptors
    multiplies: ClassVar[bool] = False  # whether `execute` and `matmul` multiply matrices, and take `engine=`

    row: Row
    arch: Arch
    targets: tuple[str, ...]  # the arch's PTX targets that accept it
    lowering: Lowering  # what runs on the arch
    evidence: Evidence  # how we know

    def __init_subclass__(cls) -> None:
        for name in ("execute", "matmul"):
            if name in vars(cls):
                method = _checked(vars(cls)[name])
                setattr(cls, name, _with_engine(method) if cls.multiplies else method)

    def __repr__(self) -> str:
        return f'tcsim.instruction("{self.mnemonic}", arch="{self.arch.name}")'

    @property
    def mnemonic(self) -> str:
        """The full PTX spelling."""
        return self.row.mnemonic

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.row.shape

    @property
    def operands(self) -> Mapping[str, Fragment]:
        """The register operands by name, in PTX's order."""
        return self.row.operands

    @property
    def forms(self) -> tuple[Form, ...]:
        """The lists of operands that the spelling takes on this arch, each with every operand that PTX writes.

        >>> [form.names for form in tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90").forms]
        [('d', 'a')]
        """
        return self._forms

    @cached_property
    def _forms(self) -> tuple[Form, ...]:
        return forms_for(self.row.forms, self.targets)

    @property
    def inexact(self) -> bool:
        """Whether its bits on the arch are not known exactly: it writes something, and no hardware was seen to agree.

        Evidence "inferred" never suffices; "literature" does for what is moved, and not for what is computed (`lowering.steps`).

        >>> mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        >>> [tcsim.instruction(mma, arch=arch).inexact for arch in ("sm_80", "sm_90", "sm_120")]  # published, measured, literature
        [False, False, True]
        """
        written = any(operand.role != "source" for form in self.row.forms for operand in form.operands)
        unconfirmed = {"inferred": True, "literature": bool(self.lowering.steps)}
        return written and unconfirmed.get(self.evidence.level, False)

    @property
    def executed_by(self) -> tuple[str, ...]:
        """Who executes it, in words, where its operands do not say so."""
        return ()

    @property
    def rules(self) -> tuple[str, ...]:
        """What it takes and what it orders, in words, beyond what its operands say."""
        return ()

    @property
    def _call(self) -> str:
        """How errors quote a call."""
        return f"{self!r}.execute"

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """What the instruction does to registers, memory and barriers, said without doing it (`tcsim.model.effects`).

        Operands are those of the form by name, one entry per lane. Raises NotModelledError where it is not known.

        >>> wait = tcsim.instruction("cp.async.wait_group", arch="sm_80")
        >>> wait.effects(wait.forms[0], {"groups": np.array(1)}, view=None).groups
        (GroupOp(kind='cp.async', op='wait', pending=1, reads_only=False, then=()),)
        """
        raise NotModelledError(f"{self!r}.effects: not modelled")

    if TYPE_CHECKING:
        # What the classes of the families add, so that a type checker knows the names. Each class has those that its
        # instructions can do and no others: `hasattr(instruction, "matmul")` says whether one multiplies matrices.
        def execute(self, *args: Any, **kwargs: Any) -> Any:
            """Operands in, result out, as the hardware holds them."""

        def matmul(self, *args: Any, **kwargs: Any) -> Any:
            """Matrices of codes in, matrix of codes out."""

        def matrix(self, *args: Any, **kwargs: Any) -> Any:
            """The matrix that registers hold."""

        def negated(self, name: str, codes: Any) -> Any:
            """The codes of an operand as they are multiplied."""

        def scale_registers(self, *args: Any, **kwargs: Any) -> Any:
            """The registers that hold scale factors."""

        def scale_matrix(self, *args: Any, **kwargs: Any) -> Any:
            """The scale factors that registers hold."""

        def compress(self, *args: Any, **kwargs: Any) -> Any:
            """A sparse A as the kept elements and their positions."""

        def encode_metadata(self, *args: Any, **kwargs: Any) -> Any:
            """Positions as metadata registers."""

        def decode_metadata(self, *args: Any, **kwargs: Any) -> Any:
            """Metadata registers as positions."""

        def bank_conflicts(self, *args: Any, **kwargs: Any) -> Any:
            """How many passes the accesses to shared memory take."""

        def fetch(self, *args: Any, **kwargs: Any) -> Any:
            """A and B, read from shared memory through descriptors."""

        @property
        def registers(self) -> Any:
            """The registers that hold a matrix; of cvt, its operands."""

        @property
        def formats(self) -> Any:
            """The formats of the operands; of tcgen05.mma, those for a descriptor."""

        @property
        def scale_formats(self) -> Mapping[str, Format]:
            """The formats of the scale factors."""

        @property
        def sparsity(self) -> Any:
            """How A is sparse; of tcgen05.mma, for a descriptor."""

        @property
        def matrices(self) -> int:
            """Matrix products of one execution."""

        @property
        def work(self) -> Any:
            """What an engine computes; of tcgen05.mma, for a descriptor."""

    RESULTS: ClassVar[tuple[str, ...]] = ()
    """Names of what `execute` gives, where that is several arrays which are not the first operands."""


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose wrong arguments are errors that name the instruction and the arguments that it takes."""

    @wraps(method)
    def call(self: Instruction, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except TypeError:
            takes = signature(method)
            try:
                takes.bind(self, *args, **named)
            except TypeError as error:
                valid = ", ".join(list(takes.parameters)[1:])
                raise CallError(f"{self!r}.{method.__name__}: {error}; valid: {valid}") from None
            raise
        except ValueError as error:
            if not isinstance(error, TcsimError):
                given = signature(method).bind(self, *args, **named).arguments
                for name, value in given.items():
                    as_array(value, f"{self!r}.{method.__name__}: {name}")
            raise

    return call


_ENGINE = Parameter("engine", Parameter.KEYWORD_ONLY, default=None, annotation="str | Engine | None")


def _with_engine(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method with one more keyword: which engine multiplies (`tcsim.engines.choice.using`)."""

    @wraps(method)
    def call(self: Instruction, *args: Any, engine: Any = None, **named: Any) -> Any:
        if engine is None:
            return method(self, *args, **named)
        with using(engine):
            return method(self, *args, **named)

    known = signature(method)
    parameters = sorted([*known.parameters.values(), _ENGINE], key=lambda one: one.kind)
    call.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call
