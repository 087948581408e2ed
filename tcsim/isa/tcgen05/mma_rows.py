"""tcgen05.mma, .mma.sp, .mma.ws and .mma.ws.sp: the spellings that the assembler accepts, by rules.

Sources: PTX ISA, section TensorCore 5th Generation Family Instructions (which modifiers go together, in which version);
ptxas 13.5 (which targets accept which spelling with which operands).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import MappingProxyType
from typing import Literal

from tcsim.core.targets import TARGETS
from tcsim.descriptors.kinds import KINDS, Kind
from tcsim.isa.tcgen05.mma_form import MultiplyForm, OperandForm
from tcsim.model.row import Row

_ARCHS = ("sm_100", "sm_103", "sm_107", "sm_110")  # that have tcgen05
_EVERY = tuple(t.name for t in TARGETS.values() if t.arch in _ARCHS and t.suffix)
_SPECIFIC = tuple(t for t in _EVERY if TARGETS[t].suffix == "a")
_LATEST = ("sm_107f", "sm_107a")  # what PTX 9.4 added
_INTEGER = ("sm_100a", "sm_110a")
_UNSCALED_D = ("sm_110f", "sm_110a")  # that refuse scale-input-d

_OPERATIONS = ("fill", "use", "lastuse", "discard")
_BUFFERS = tuple(f".collector::b{n}" for n in range(4))  # of .ws
_A = tuple(f".collector::a::{op}" for op in _OPERATIONS)
_B = tuple(f".collector::b::{op}" for op in _OPERATIONS)

_VECTORS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "mxf8f6f4": ("", ".scale_vec::1X", ".block32"),
        "mxf4": ("", ".scale_vec::2X", ".block32"),
        "mxf4nvf4": (".scale_vec::2X", ".scale_vec::4X", ".block16", ".block32"),
    }
)
"""How each kind's scale vector may be spelled; "" leaves it to the kind."""

_SCALE_D = ("f16", "tf32", "i8")  # take scale-input-d: the manual says f16 and tf32, the assembler takes i8 too


def common(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """The targets that are in both, in the order of the first."""
    return tuple(target for target in first if target in second)


def _targets(kind: Kind, sparse: bool, vector: str) -> tuple[str, ...]:
    """Who accepts a kind at all."""
    if kind.name == "i8":
        return _INTEGER
    if kind.name == "ti16":
        return _LATEST
    if ".scale_vec" in vector or (sparse and kind.name in ("mxf4", "mxf4nvf4")):
        return _SPECIFIC
    return _EVERY


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
            yield (_B[0],)
        return
    yield from ((usage,) for usage in _A if not ashift or usage.endswith(("lastuse", "discard")))
    yield from ((usage,) for usage in _B)
    if not ashift and not kind.block_scaled:
        yield from ((_A[0], usage) for usage in _B)


def _forms(
    kind: Kind, targets: tuple[str, ...], *, sparse: bool, ashift: bool, buffered: bool, lookup: bool, documented: bool
) -> tuple[OperandForm, ...]:
    """The operand forms of a spelling of tcgen05.mma or .mma.sp; `buffered`: it says how B is collected."""
    places: tuple[Literal["desc", "tmem"], ...] = ("tmem",) if ashift else ("desc", "tmem")
    lanes = (False,) if kind.block_scaled or (buffered and not lookup) else (False, True)
    scales = (False, True) if kind.name in _SCALE_D and not buffered and not lookup else (False,)
    both = not (sparse and kind.name == "i8")  # the assembler refuses scale-input-d beside the mask there
    without = tuple(target for target in targets if target not in _UNSCALED_D or kind.name == "i8")
    return tuple(
        OperandForm(
            a,
            without if scale else targets,
            lanes=lane,
            scale=scale,
            documented=documented and not (scale and kind.name == "i8"),
        )
        for a, lane, scale in product(places, lanes, scales)
        if both or not (lane and scale)
    )


def _row(family: str, middle: str, version: str, facts: MultiplyForm) -> Row:
    targets = dict.fromkeys(target for form in facts.forms for target in form.targets)
    return Row(
        family + middle,
        family,
        (0, 0, facts.k),  # M and N come with the instruction descriptor
        MappingProxyType({}),
        tuple(target for target in TARGETS if target in targets),
        version,
        facts.kind.name,
        documented=all(form.documented for form in facts.forms if not form.scale),
        facts=facts,
    )


def plain_rows(family: str, sparse: bool) -> Iterator[Row]:
    """The rows of tcgen05.mma or tcgen05.mma.sp."""
    for kind, group in product(KINDS.values(), (1, 2)):
        for lookup, vector, ashift in product((False, True), _VECTORS.get(kind.name, ("",)), (False, True)):
            if lookup and (sparse or ashift or kind.name not in ("f8f6f4", "mxf8f6f4")):
                continue
            if ashift and kind.block_scaled:
                continue
            for collectors in _collectors(kind, ashift, lookup):
                buffered = any(usage in _B for usage in collectors)
                targets = _targets(kind, sparse, vector)
                if buffered or lookup:
                    targets = common(targets, _LATEST)
                if not targets:  # kind::i8, which sm_107 does not have
                    continue
                words = [f".cta_group::{group}.kind::{kind.name}", ".block_scale" * kind.block_scaled]
                words += [".decompress::lut::b" * lookup, vector, ".ashift" * ashift, *collectors]
                forms = _forms(
                    kind,
                    targets,
                    sparse=sparse,
                    ashift=ashift,
                    buffered=buffered,
                    lookup=lookup,
                    documented=not (ashift and buffered),
                )
                facts = MultiplyForm(kind, group, sparse, False, vector, ashift, collectors, lookup, forms)
                yield _row(family, "".join(words), _version(kind, vector, buffered or lookup), facts)


def weight_stationary_rows(family: str, sparse: bool) -> Iterator[Row]:
    """The rows of tcgen05.mma.ws or tcgen05.mma.ws.sp: one CTA, no scale factors, four collectors of B."""
    for kind in KINDS.values():
        if kind.block_scaled:
            continue
        usages = ["", *(f"{buffer}::{op}" for buffer, op in product(_BUFFERS, _OPERATIONS))]
        targets = _targets(kind, sparse, "")
        places: tuple[Literal["desc", "tmem"], ...] = ("desc", "tmem")
        forms = tuple(OperandForm(a, targets, mask=mask) for a, mask in product(places, (False, True)))
        for usage in usages:
            facts = MultiplyForm(kind, 1, sparse, True, "", False, (usage,) if usage else (), False, forms)
            yield _row(family, f".cta_group::1.kind::{kind.name}{usage}", _version(kind, "", False), facts)
