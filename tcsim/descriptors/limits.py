"""What an instruction descriptor may say: its fields; formats, flags, K, M and N by kind and form; agreement with a mnemonic.

Every refusal quotes what was asked and lists what would be valid; the facts are in `tcsim.descriptors.kinds`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tcsim.core.arguments import is_name
from tcsim.core.errors import OperandError, TargetError, listing, nearest
from tcsim.core.targets import accepting
from tcsim.descriptors.kinds import (
    KINDS,
    LOOKUP_FORMAT,
    LOOKUP_K,
    MAX_SHIFTS,
    SCALE_IDS,
    TENSOR_ARCHS,
    Depth,
    Kind,
    fields_of,
    scale_vectors,
    shapes_of,
    tensor_arch,
)


@dataclass(frozen=True)
class DescriptorFields:
    """The fields of an instruction descriptor. What is left out is what the kind fixes, or 0."""

    kind: str
    m: int  # rows of A and D; of both CTAs together for cta_group::2
    n: int  # columns of B and D
    d_format: str = ""  # "" is the kind's only one, or f32
    a_format: str = ""  # "" is the kind's only one
    b_format: str = ""  # "" is that of A
    sparse: bool = False
    sparsity_selector: int = 0  # which half of the metadata's columns
    saturate: bool = False
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False  # M-major
    transpose_b: bool = False  # N-major
    max_shift: int = 0  # 0, 8, 16 or 32 (.ws)
    scale_format: str = ""  # "" is the kind's only one
    scale_a_id: int = 0  # first byte of A's scale factors in the words of TMEM
    scale_b_id: int = 0  # first byte of B's
    scale_a_lanes: int = 32  # 128 on sm_107 only
    k: int = 0  # elements along K of one instruction, zeros of a sparse A included; 0 is the smallest of the kind
    arch: str = "sm_100"  # whose bits and limits

    @property
    def depth(self) -> Depth:
        """The row of the kind that has this K."""
        return next(one for one in KINDS[self.kind].depths if (one.k, one.sparse) == (self.k, self.sparse))


def place(kind: str, arch: str) -> tuple[str, Kind]:
    """The arch and the row of a kind."""
    chip, _ = accepting(arch)
    if not is_name(kind, KINDS):
        close = nearest(str(kind), KINDS, 1)
        raise OperandError(f"no kind::{kind}; nearest: {close[0]}; all: {listing(KINDS)}")
    row, own = KINDS[kind], tensor_arch(chip)
    if own not in row.archs:
        has = listing(one for one, other in KINDS.items() if own in other.archs)
        where = f"{arch} has {has}" if has else f"tcgen05 is on {listing(TENSOR_ARCHS)}"
        raise TargetError(f"kind::{kind} needs {listing(row.archs)}; {where}")
    return chip.name, row


def check_fields(d: DescriptorFields, depths: list[int]) -> None:
    """What an instruction of the kind may have; `depths` are the K that it has on the descriptor's arch."""
    kind = KINDS[d.kind]
    _check_formats(d, kind)
    _check_flags(d, kind)
    _check_scales(d, kind)
    _check_depth(d, kind, depths)
    _check_shape(d, kind)


def check_form(
    d: DescriptorFields, cta_group: int, ws: bool, sparse: bool | None, block: int, a_in_tmem: bool | None = None
) -> None:
    """What `InstructionDescriptor.check` says."""
    row = KINDS[d.kind]
    form = f"kind::{d.kind} with cta_group::{cta_group}{' and .ws' if ws else ''}{' and .sp' if d.sparse else ''}"
    if cta_group not in (1, 2):
        raise OperandError(f"{form}: no such cta_group; valid: 1, 2")
    if sparse is not None and sparse != d.sparse:
        raise OperandError(
            f"the mnemonic is {'sparse (.sp)' if sparse else 'dense'}, the descriptor's sparse bit (bit 2) is "
            f"{int(d.sparse)}"
        )
    shapes = shapes_of(d.kind, cta_group, ws, d.sparse, a_in_tmem)
    if not shapes:
        raise OperandError(f"{form}: there is no such instruction; valid: {_forms(row)}")
    fitting = [shape for shape in shapes if d.m in shape.m]
    if not fitting:
        valid = sorted({m for shape in shapes for m in shape.m})
        raise OperandError(f"{form}: M = {d.m} cannot be; valid: {listing(valid)}")
    if not any(d.n in shape.n for shape in fitting):
        where = " and A in Tensor Memory" if a_in_tmem else ""
        raise OperandError(f"{form}: N = {d.n} with M = {d.m}{where} must be {fitting[0].rule}")
    if d.max_shift and not ws:
        raise OperandError(f"{form}: max_shift={d.max_shift} is for .ws only; valid: 0")
    _check_steps(d, form, cta_group, ws)
    if block:
        check_block(d, block)


def check_mnemonic(d: DescriptorFields, mnemonic: str) -> None:
    """What `InstructionDescriptor.check_mnemonic` says."""
    words = mnemonic.split(" ")[0].split(".")
    kind = re.search(r"kind::(\w+)", mnemonic)
    group = re.search(r"cta_group::(\d)", mnemonic)
    if words[:2] != ["tcgen05", "mma"] or kind is None or group is None:
        raise OperandError(f"{mnemonic!r} is not a tcgen05.mma with a kind and a cta_group")
    block = _block(KINDS[d.kind], mnemonic) if kind[1] == d.kind else 0
    lookup = ".decompress::lut::b" in mnemonic
    check_spelling(d, mnemonic, kind[1], int(group[1]), "ws" in words, "sp" in words, block, lookup)


def check_spelling(
    d: DescriptorFields, mnemonic: str, kind: str, cta_group: int, ws: bool, sparse: bool, block: int, lookup: bool
) -> None:
    """Raise OperandError unless a descriptor agrees with a mnemonic that says this."""
    if kind != d.kind:
        raise OperandError(
            f"{mnemonic}: the descriptor was made for kind::{d.kind}; its bits mean something else in kind::{kind}"
        )
    try:
        check_form(d, cta_group, ws, sparse, block)
        if lookup:
            _check_lookup(d)
    except OperandError as error:
        raise OperandError(f"{mnemonic}: {error}") from None


def _check_lookup(d: DescriptorFields) -> None:
    """What .decompress::lut::b asks of B (PTX ISA, Decompression of B)."""
    wanted = {"k": LOOKUP_K, "b_format": LOOKUP_FORMAT, "transpose_b": False}
    for name, value in wanted.items():
        if getattr(d, name) != value:
            raise _refuse(d, name, repr(value), "B is read through a lookup table")


def _refuse(d: DescriptorFields, name: str, valid: object, why: str = "") -> OperandError:
    given = getattr(d, name)
    text = f"kind::{d.kind} on {d.arch}: {name}={given!r}{': ' + why if why else ''}; valid: {valid}"
    return OperandError(text)


def _check_formats(d: DescriptorFields, kind: Kind) -> None:
    for name, formats in (
        ("d_format", kind.d_formats),
        ("a_format", kind.ab_formats),
        ("b_format", kind.ab_formats),
    ):
        if not is_name(getattr(d, name), formats):
            raise _refuse(d, name, listing(formats))
    if d.kind == "f16" and d.d_format == "f16" and {d.a_format, d.b_format} != {"f16"}:
        raise _refuse(d, "d_format", "f32", "an f16 result needs f16 A and B")


def _check_flags(d: DescriptorFields, kind: Kind) -> None:
    for side in "ab":
        if getattr(d, f"negate_{side}") and not kind.negate:
            raise _refuse(d, f"negate_{side}", "False", "only floating-point A and B can be negated")
        format = getattr(d, f"{side}_format")
        if getattr(d, f"transpose_{side}") and format not in kind.transposable:
            can = listing(sorted(kind.transposable)) or "none"
            why = kind.note or f"{format} cannot be MN-major (formats that can: {can})"
            raise _refuse(d, f"transpose_{side}", "False", why)
    if d.saturate and not kind.saturate:
        raise _refuse(d, "saturate", "False", "only integer kinds saturate")
    if not d.sparse and d.sparsity_selector:
        raise _refuse(d, "sparsity_selector", "0", "A is dense")
    if d.sparsity_selector not in kind.selectors:
        raise _refuse(d, "sparsity_selector", listing(kind.selectors))
    if d.max_shift not in MAX_SHIFTS:
        raise _refuse(d, "max_shift", listing(MAX_SHIFTS))
    if d.max_shift and not kind.ws:
        raise _refuse(d, "max_shift", "0", "the kind has no .ws")


def _check_scales(d: DescriptorFields, kind: Kind) -> None:
    if not kind.block_scaled:
        for name, plain in (("scale_format", ""), ("scale_a_id", 0), ("scale_b_id", 0), ("scale_a_lanes", 32)):
            if getattr(d, name) != plain:
                raise _refuse(d, name, repr(plain), "the kind has no scale factors")
        return
    formats = kind.scale_formats_on(d.arch)
    if d.scale_format not in formats:
        raise _refuse(d, "scale_format", listing(formats))
    ids = SCALE_IDS.get((d.kind, d.k, d.sparse), (0,))
    for name in ("scale_a_id", "scale_b_id"):
        if getattr(d, name) not in ids:
            raise _refuse(d, name, listing(ids), f"the byte of a word at which K = {d.k} may begin")
    movable = any(field.name == "scale_a_lanes" for field in fields_of(kind, d.arch))
    if d.scale_a_lanes not in ((32, 128) if movable else (32,)):
        raise _refuse(d, "scale_a_lanes", "32, and 128 on sm_107")


def _check_depth(d: DescriptorFields, kind: Kind, depths: list[int]) -> None:
    if d.k in depths:
        formats = d.depth.formats
        for name in ("a_format", "b_format"):
            if formats and getattr(d, name) not in formats:
                raise _refuse(d, name, listing(sorted(formats)), f"with K = {d.k}")
        return
    elsewhere = [one for one in kind.depths if (one.k, one.sparse) == (d.k, d.sparse)]
    density = "sparse" if d.sparse else "dense"
    if elsewhere:
        raise TargetError(
            f"kind::{d.kind}: {density} K = {d.k} needs {listing(elsewhere[0].archs)}; {d.arch} has {listing(depths)}"
        )
    raise _refuse(d, "k", listing(depths), f"K of a {density} instruction")


def _check_shape(d: DescriptorFields, kind: Kind) -> None:
    """M and N that some form of the instruction has; `check` asks for the one form."""
    forms = [shapes_of(d.kind, cta_group, ws, d.sparse) for cta_group, ws in ((1, False), (2, False), (1, True))]
    rows = [row for form in forms for row in form]
    fitting = [next(row for row in form if d.m in row.m) for form in forms if any(d.m in row.m for row in form)]
    if not fitting:
        valid = sorted({m for row in rows for m in row.m})
        raise OperandError(f"kind::{d.kind}: M = {d.m} cannot be; valid: {listing(valid)}")
    if not any(d.n in row.n for row in fitting):
        rules = [f"{row.rule} (cta_group::{row.cta_group}{', .ws' if row.ws else ''})" for row in fitting]
        raise OperandError(f"kind::{d.kind}: N = {d.n} with M = {d.m} must be {', or '.join(dict.fromkeys(rules))}")


def _check_steps(d: DescriptorFields, form: str, cta_group: int, ws: bool) -> None:
    """Rules of N and M that depend on more than the kind."""
    eight = {"e4m3", "e5m2", "s8", "u8"}
    if d.transpose_b and d.b_format in eight and not ws and d.n % (16 * cta_group):
        raise OperandError(f"{form}: N = {d.n} with an N-major {d.b_format} B must be a multiple of {16 * cta_group}")
    if d.depth.code and d.m != 128 * cta_group:
        raise OperandError(f"{form}: M = {d.m} with K = {d.k} must be {128 * cta_group}")
    if d.k == 96 and d.n % 16:
        raise OperandError(f"{form}: N = {d.n} with K = 96 must be a multiple of 16")


def check_block(d: DescriptorFields, block: int) -> None:
    """Whether one scale factor can cover `block` elements, with the descriptor's scale format and ids."""
    vectors = scale_vectors(d.kind, d.arch)
    if block not in vectors:
        raise OperandError(
            f"kind::{d.kind} has no scale factors of {block} elements; valid: {listing(vectors) or 'none'}"
        )
    if d.scale_format not in vectors[block]:
        raise OperandError(
            f"kind::{d.kind} with scale factors of {block} elements: the descriptor's scale_format={d.scale_format!r} "
            f"cannot be; valid: {listing(vectors[block])}"
        )
    ids = {(16, 64): (0,), (16, 128): (0,), (16, 96): (0, 2)}.get((block, d.k))
    for name in ("scale_a_id", "scale_b_id"):
        if ids is not None and getattr(d, name) not in ids:
            raise _refuse(d, name, listing(ids), f"K = {d.k} with scale factors of 16 elements")


def _forms(kind: Kind) -> str:
    return "cta_group::1 and ::2 without .ws" + (", cta_group::1 with .ws" if kind.ws else "")


def _block(kind: Kind, mnemonic: str) -> int:
    """Elements of a scale factor by the mnemonic's qualifier; 0 for a kind without."""
    if not kind.block_scaled:
        return 0
    if named := re.search(r"\.block(16|32)\b", mnemonic):
        return int(named[1])
    vector = re.search(r"\.scale_vec::\dX", mnemonic)
    spelling = vector[0] if vector else ""
    if spelling in kind.vectors:
        return kind.vectors[spelling]
    if not spelling:
        needs = "needs .block16, .block32, .scale_vec::2X or .scale_vec::4X"
    else:
        words = [word.partition("::")[2] for word in kind.vectors if "::" in word]
        needs = f"does not have {spelling}; valid: {listing(words)}"
    raise OperandError(f"{mnemonic}: kind::{kind.name} {needs}")
