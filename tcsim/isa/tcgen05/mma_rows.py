"""tcgen05.mma, .mma.sp, .mma.ws and .mma.ws.sp: the spellings that the assembler accepts, and their operands, by rules.

Sources: PTX ISA, section TensorCore 5th Generation Family Instructions (which modifiers go together, in which version);
ptxas 13.5 (which targets accept which spelling with which operands).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tcsim.core.targets import TARGETS
from tcsim.descriptors.kinds import KINDS, LOOKUP_K, Kind
from tcsim.isa.tcgen05.targets import ARCH_TARGETS, FAMILY_TARGETS, SM_107
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Role
from tcsim.model.row import Row


@dataclass(frozen=True, kw_only=True)
class MultiplyRow(Row):
    """What a spelling of tcgen05.mma says beyond its name."""

    kind: Kind
    cta_group: int  # 1, or 2 for a pair of CTAs
    sparse: bool  # .sp: A is structured sparse, its metadata in Tensor Memory
    weight_stationary: bool = False  # .ws
    vector: str = ""  # how the scale vector is spelled: "", ".block32", ".scale_vec::4X"
    ashift: bool = False  # .ashift: the rows of A one up
    collectors: tuple[str, ...] = ()  # ".collector::a::fill"; no effect on values
    lookup: bool = False  # .decompress::lut::b: B through a lookup table

    @property
    def k(self) -> int:
        """The smallest K of one instruction, zeros of a sparse A included; some descriptors ask for more."""
        return _least_k(self.kind, self.sparse, self.lookup)

    @property
    def block(self) -> int:
        """Elements (of a sparse A, kept ones) that share a scale factor; 0 if there are no scale factors."""
        return self.kind.vectors.get(self.vector, 0)

    def form(self, a: str, *, lanes: bool = False, scale: bool = False, mask: bool = False) -> Form | None:
        """The form with these operands, or None if the spelling does not have it."""
        name = form_name(a, lanes, scale, mask)
        return next((form for form in self.forms if form.name == name), None)


def form_name(a: str, lanes: bool, scale: bool, mask: bool) -> str:
    """A form in one word: where A is ("desc" or "tmem"), with disable-output-lane, scale-input-d, zero-column-mask-desc.

    >>> form_name("tmem", True, True, False)
    'tmem_lanes_scale'
    """
    return "_".join([a, *["lanes"] * lanes, *["scale"] * scale, *["mask"] * mask])


def _least_k(kind: Kind, sparse: bool, lookup: bool) -> int:
    return next(one.k for one in kind.depths if one.sparse == sparse and (not lookup or one.k == LOOKUP_K))


def _cells(name: str, role: Role = "source") -> Operand:
    return Operand(name, role, "address", space="tensor", proxy="async")


_D = _cells("d", "both")
_A = {"desc": Operand("a", type=".b64"), "tmem": _cells("a")}
_B = Operand("b", type=".b64")
_METADATA, _LOOKUP, _SCALES = _cells("metadata"), _cells("lookup"), (_cells("scale_a"), _cells("scale_b"))
_DESCRIPTOR = Operand("idesc")
_LANES = {group: Operand("disable_output_lane", kind="vector", count=4 * group) for group in (1, 2)}
_ENABLE = Operand("enable_input_d", kind="predicate", type=".pred")
_SCALE_D = Operand("scale_input_d", kind="immediate", values=tuple(range(16)))
_ANY_SCALE_D = Operand("scale_input_d", kind="immediate")  # what the assembler takes for kind::i8
_MASK = Operand("zero_column_mask", type=".b64")

_INTEGER = ("sm_100a", "sm_110a")
_UNSCALED_D = ("sm_110f", "sm_110a")  # that refuse scale-input-d

_OPERATIONS = ("fill", "use", "lastuse", "discard")
_BUFFERS = tuple(f".collector::b{n}" for n in range(4))  # of .ws
_COLLECT_A = tuple(f".collector::a::{op}" for op in _OPERATIONS)
_COLLECT_B = tuple(f".collector::b::{op}" for op in _OPERATIONS)

_TAKE_SCALE_D = ("f16", "tf32", "i8")  # the manual says f16 and tf32, the assembler takes i8 too


def _targets(kind: Kind, sparse: bool, vector: str) -> tuple[str, ...]:
    """Who accepts a kind at all."""
    if kind.name == "i8":
        return _INTEGER
    if kind.name == "ti16":
        return SM_107
    if ".scale_vec" in vector or (sparse and kind.table == "mxf4"):
        return ARCH_TARGETS
    return FAMILY_TARGETS


def _version(kind: Kind, vector: str, latest: bool) -> str:
    """The lowest PTX version of a spelling."""
    if latest or kind.name == "ti16":
        return "9.4"
    if ".block" in vector:
        return "8.8"
    return "8.7" if kind.name == "mxf4nvf4" else "8.6"


def _collectors(kind: Kind, ashift: bool, lookup: bool) -> Iterator[tuple[str, ...]]:
    """The collector usages that go with a spelling of tcgen05.mma or .mma.sp.

    A shifted A can be neither filled nor used. B's came with PTX 9.4; beside A's, only where A is filled.
    """
    yield ()
    if lookup:
        if not kind.block_scaled:
            yield (_COLLECT_B[0],)
        return
    yield from ((usage,) for usage in _COLLECT_A if not ashift or usage.endswith(("lastuse", "discard")))
    yield from ((usage,) for usage in _COLLECT_B)
    if not ashift and not kind.block_scaled:
        yield from ((_COLLECT_A[0], usage) for usage in _COLLECT_B)


def _row(
    family: str, kind: Kind, version: str, targets: tuple[str, ...], options: list[tuple[bool, bool, bool]],
    cta_group: int, sparse: bool, *, documented: bool = True, weight_stationary: bool = False, vector: str = "",
    ashift: bool = False, collectors: tuple[str, ...] = (), lookup: bool = False,
) -> MultiplyRow:  # fmt: skip
    """A row whose forms have A in one place or the other, with or without lanes, scale-input-d and mask."""
    words = [f".cta_group::{cta_group}.kind::{kind.name}", ".block_scale" * kind.block_scaled]
    words += [".decompress::lut::b" * lookup, vector, ".ashift" * ashift, *collectors]
    integer = kind.name == "i8"
    unscaled = () if integer else _UNSCALED_D
    places = ("tmem",) if ashift else ("desc", "tmem")
    forms = []
    for a, (lanes, scale, mask) in product(places, options):
        operands = [
            _D,
            _A[a],
            _B,
            *[_METADATA] * sparse,
            *[_LOOKUP] * lookup,
            _DESCRIPTOR,
            *_SCALES * kind.block_scaled,
        ]
        operands += [*[_LANES[cta_group]] * lanes, _ENABLE]
        operands += [*[_ANY_SCALE_D if integer else _SCALE_D] * scale, *[_MASK] * mask]
        own = tuple(target for target in targets if not (scale and target in unscaled))
        listed = documented and not (scale and integer)
        name = form_name(a, lanes, scale, mask)
        forms.append(Form(tuple(operands), own, version, "thread", name=name, documented=listed))
    return MultiplyRow(
        family + "".join(words), family, (0, 0, _least_k(kind, sparse, lookup)),  # M and N come with the instruction descriptor
        targets=tuple(target for target in TARGETS if target in targets), ptx_version=version, arithmetic=kind.name,
        documented=documented, forms=tuple(forms), kind=kind, cta_group=cta_group, sparse=sparse,
        weight_stationary=weight_stationary, vector=vector, ashift=ashift, collectors=collectors, lookup=lookup,
    )  # fmt: skip


def plain_rows(family: str, sparse: bool) -> Iterator[MultiplyRow]:
    """The rows of tcgen05.mma or tcgen05.mma.sp."""
    for kind, group in product(KINDS.values(), (1, 2)):
        for lookup, vector, ashift in product((False, True), kind.vectors or ("",), (False, True)):
            if lookup and (sparse or ashift or kind.name not in ("f8f6f4", "mxf8f6f4")):
                continue
            if ashift and kind.block_scaled:
                continue
            for collectors in _collectors(kind, ashift, lookup):
                buffered = any(usage in _COLLECT_B for usage in collectors)
                targets = _targets(kind, sparse, vector)
                if buffered or lookup:
                    targets = tuple(target for target in targets if target in SM_107)
                if not targets:  # kind::i8, which sm_107 does not have
                    continue
                lanes = (False,) if kind.block_scaled or (buffered and not lookup) else (False, True)
                scales = (False, True) if kind.name in _TAKE_SCALE_D and not buffered and not lookup else (False,)
                both = not (sparse and kind.name == "i8")  # the assembler refuses scale-input-d beside the lanes there
                yield _row(
                    family, kind, _version(kind, vector, buffered or lookup), targets,
                    [(lane, scale, False) for lane, scale in product(lanes, scales) if both or not (lane and scale)],
                    group, sparse, documented=not (ashift and buffered),
                    vector=vector, ashift=ashift, collectors=collectors, lookup=lookup,
                )  # fmt: skip


def weight_stationary_rows(family: str, sparse: bool) -> Iterator[MultiplyRow]:
    """The rows of tcgen05.mma.ws or tcgen05.mma.ws.sp: one CTA, no scale factors, four collectors of B."""
    usages = [(), *((f"{buffer}::{op}",) for buffer, op in product(_BUFFERS, _OPERATIONS))]
    options = [(False, False, mask) for mask in (False, True)]
    for kind in KINDS.values():
        if kind.block_scaled:
            continue
        for usage in usages:
            yield _row(
                family, kind, _version(kind, "", False), _targets(kind, sparse, ""), options, 1, sparse,
                weight_stationary=True, collectors=usage,
            )  # fmt: skip
