"""cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, cp.async.bulk.prefetch.tensor: the rows that the assembler accepts.

Sources: PTX ISA 9.2, sections cp.async.bulk.tensor, cp.reduce.async.bulk.tensor, cp.async.bulk.prefetch.tensor; ptxas
13.5.37 (targets, versions, SASS, and what only it knows: override, mbarrier::report, evict_last, 32-bit masks of sm_107).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Literal

from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import RECORDED, Evidence
from tcsim.core.targets import TARGETS, Arch, since, suffixed_since
from tcsim.core.versions import latest
from tcsim.isa.copies import CACHE_POLICY, MAP_BOUNDARY, MAP_SPACES
from tcsim.isa.cp_async_bulk_tensor.semantics import CLASSES, TensorCopyRow
from tcsim.model.family import Family
from tcsim.model.form import Form
from tcsim.model.operand import Operand, Role, Space
from tcsim.tma.reduce import REDUCTIONS

COPY, REDUCE, PREFETCH = "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor"

_HOPPER = since("sm_90")
_BLACKWELL = since("sm_100")
_DATACENTER = tuple(target for target in suffixed_since("sm_100") if TARGETS[target].number < 120)
_RUBIN = ("sm_107f", "sm_107a")

ALL, FROM_2, FROM_3, ONE, TWO = (1, 2, 3, 4, 5), (2, 3, 4, 5), (3, 4, 5), (1,), (2,)


@dataclass(frozen=True)
class CopyMode:
    """How a copy walks through the tensor, as the spelling names it."""

    name: str  # without its dot; empty: the same as tile
    dims: tuple[int, ...] = ALL
    opcode: str = ""  # what it adds to the opcode
    map_mode: Literal["", "im2col", "im2col_wide"] = ""  # TensorMap.im2col_mode of the maps that it takes
    wide_mode: str = ""  # their TensorMap.wide_mode
    rows4: bool = False  # the coordinates are a column and four rows
    loads: bool = True
    stores: bool = True
    new: bool = False  # not before sm_100

    @property
    def text(self) -> str:
        """The mode in a spelling."""
        return f".{self.name}" if self.name else ""


MODES: tuple[CopyMode, ...] = (
    CopyMode(""),
    CopyMode("tile"),
    CopyMode("tile::gather4", TWO, ".GATHER4", rows4=True, stores=False, new=True),
    CopyMode("tile::scatter4", TWO, ".SCATTER4", rows4=True, loads=False, new=True),
    CopyMode("im2col", FROM_3, ".IM2COL", "im2col", stores=False),
    CopyMode("im2col::w", FROM_3, ".W", "im2col_wide", "W", stores=False, new=True),
    CopyMode("im2col::w::128", FROM_3, ".W128", "im2col_wide", "W128", stores=False, new=True),
    CopyMode("im2col_no_offs", FROM_3, ".IM2COL", "im2col", loads=False),
    CopyMode("im2col_no_offs::w", FROM_3, ".W", "im2col_wide", "W", loads=False, new=True),
)
"""The modes of loads, which prefetches share, and of stores and reductions."""

_OVERRIDE = "what .override puts in place of the map's fields is not documented for sm_107"
_REPORT = "what .mbarrier::report puts into the mbarrier is not documented"
_SCATTERED = (
    "ptxas turns this spelling, which the manual does not list, into a plain UTMASTG.SCATTER4: the reduction is lost"
)


@dataclass(frozen=True)
class Ending:
    """What may follow the completion mechanism of a load, or the cache level of a prefetch."""

    text: str
    opcode: str  # what it adds to the opcode
    targets: tuple[str, ...]  # where the spelling without it has them too
    version: str  # lowest `.version`, if the spelling without it has an earlier one
    modes: tuple[str, ...] = ()  # load modes; none: all
    dims: tuple[int, ...] = ALL
    hint: bool = False  # .L2::cache_hint may follow
    mask_bits: int = 0
    override: str = ""
    unmodelled: str = ""
    pair: bool = False  # .cta_group::2


_TILED = ("", "tile")
_GROUPS = tuple((f".cta_group::{group}", ".2CTA" if group == 2 else "") for group in (1, 2))
_MULTICASTS = (
    (".multicast::cluster", ".MULTICAST", _HOPPER, "8.0", True, 16),
    (".multicast::cluster::16b", ".MULTICAST", _HOPPER, "9.4", False, 16),
    (".multicast::cluster::32b", ".MULTICAST32", _RUBIN, "9.4", True, 32),
)

LOAD_ENDINGS: tuple[Ending, ...] = (
    Ending("", "", _HOPPER, "8.0", hint=True),
    *(Ending(text, opcode, _DATACENTER, "8.6", hint=True, pair=bool(opcode)) for text, opcode in _GROUPS),
    Ending(".override::global_address", ".TENSOR_GADDR", _RUBIN, "9.4", override="global_address", unmodelled=_OVERRIDE),
    Ending(".override::global_address.override::global_dim", ".TENSOR_GADDR.TENSOR_STRIDE_SIZE_MAX256", _RUBIN, "9.4",
           _TILED, ONE, override="global_dim", unmodelled=_OVERRIDE),
    Ending(".override::global_address.override::global_dim_stride", ".TENSOR_GADDR.TENSOR_STRIDE_SIZE_MAX256", _RUBIN,
           "9.4", _TILED, FROM_2, override="global_dim_stride", unmodelled=_OVERRIDE),
    *(Ending(f".mbarrier::report::{text}", opcode, _RUBIN, "9.4", ("tile", "im2col"), unmodelled=_REPORT if opcode else "")
      for text, opcode in (("disabled", ""), ("validity::per_16bytes::8000", ".VALIDCHK_XXXX8000"),
                           ("validity::per_element::ff", ".VALIDCHK_EVERY_FF"))),
)  # fmt: skip
"""What may end a load; .multicast::cluster, which only .shared::cluster takes, is in MULTICAST_ENDINGS."""

MULTICAST_ENDINGS: tuple[Ending, ...] = tuple(
    Ending(text + group, opcode + pair, tuple(t for t in targets if not group or t in _DATACENTER),
           latest(version, "8.6" if group else version),
           hint=hint, mask_bits=bits, pair=bool(pair))
    for text, opcode, targets, version, hint, bits in _MULTICASTS
    for group, pair in (("", ""), *_GROUPS)
)  # fmt: skip


_ROLES: Mapping[str, Role] = MappingProxyType(
    {"load": "source", "prefetch": "source", "store": "destination", "reduce": "both"}
)
"""What becomes of the tensor."""


def _tensor(role: Role, dim: int, mode: CopyMode, override: str) -> Operand:
    """The tensor map, the coordinates, and what an .override puts in place of the map's fields."""
    count = 5 if mode.rows4 else dim
    bracket: tuple[Operand, ...] = ()
    if override:
        bracket = (Operand("global_address", type=".b64"), Operand("tensor_map", type=".b64"))
        if override != "global_address":
            bracket += (Operand("global_dim", kind="vector", type=".b16", count=dim),)
        if override == "global_dim_stride":
            strides = Operand("global_strides", kind="vector", count=dim - 1)
            bracket += (strides, Operand("global_stride_bits", type=".b16"))
        bracket += (Operand("coordinates", kind="vector", type=".s32", count=count),)
    return Operand(
        "tensor_map", role, "tensor", type=".b64", count=count, space="global", proxy="async", bracket=bracket,
        within=MAP_SPACES, boundary=MAP_BOUNDARY,
    )  # fmt: skip


def _row(
    family: str,
    mnemonic: str,
    operation: str,
    dim: int,
    mode: CopyMode,
    targets: tuple[str, ...],
    version: str,
    opcode: str,
    *,
    space: Space = "shared::cta",
    op: str = "",
    mask_bits: int = 0,
    hint: bool = False,
    override: str = "",
    unmodelled: str = "",
    documented: bool = True,
    pair: bool = False,
) -> TensorCopyRow:
    operands = [_tensor(_ROLES[operation], dim, mode, override)]
    if operation != "prefetch":
        role: Role = "destination" if operation == "load" else "source"
        operands.insert(operation != "load", Operand("address", role, "address", space=space, proxy="async"))
    if operation == "load":
        operands.append(Operand("barrier", "both", "address", space=space, proxy="async"))
    if operation in ("load", "prefetch") and mode.map_mode:
        operands.append(Operand("offsets", kind="vector", type=".b16", count=2 if mode.wide_mode else dim - 2))
    operands += [Operand("cta_mask", type=f".b{mask_bits}")] if mask_bits else []
    operands += [CACHE_POLICY] if hint else []
    return TensorCopyRow(
        mnemonic,
        family,
        forms=(Form(tuple(operands), targets, version, "thread", documented=documented),),
        arithmetic=op or operation,
        documented=documented,
        modifiers=MappingProxyType({"opcode": opcode}),
        operation=operation,
        dim=dim,
        mode=mode.name or "tile",
        map_mode=mode.map_mode,
        wide_mode=mode.wide_mode,
        rows4=mode.rows4,
        op=op,
        unmodelled=unmodelled,
        pair=pair,
    )


def _loads() -> Iterator[TensorCopyRow]:
    spaces: tuple[Space, ...] = ("shared::cta", "shared::cluster")
    for space, mode in product(spaces, (mode for mode in MODES if mode.loads)):
        narrow = mode.wide_mode == "W128" or (mode.new and space == "shared::cluster")
        only = _DATACENTER if narrow else _BLACKWELL if mode.new else _HOPPER
        version = "8.6" if mode.new or space == "shared::cta" else "8.0"
        for ending in LOAD_ENDINGS + (MULTICAST_ENDINGS if space == "shared::cluster" else ()):
            if ending.modes and mode.name not in ending.modes:
                continue
            targets = tuple(target for target in ending.targets if target in only)
            for dim in mode.dims:
                if dim not in ending.dims:
                    continue
                base = f"{COPY}.{dim}d.{space}.global{mode.text}.mbarrier::complete_tx::bytes{ending.text}"
                opcode = f"UTMALDG.{dim}D{mode.opcode}{ending.opcode}"
                for hint in (False, True)[: 1 + ending.hint]:
                    yield _row(
                        COPY, base + ".L2::cache_hint" * hint, "load", dim, mode, targets,
                        latest(version, ending.version), opcode, space=space, mask_bits=ending.mask_bits, hint=hint,
                        override=ending.override, unmodelled=ending.unmodelled, pair=ending.pair,
                    )  # fmt: skip


def _stored(family: str, direction: str, op: str = "", known: bool = True) -> Iterator[TensorCopyRow]:
    """Stores, or one reduction; of a reduction that is not add, overrides and .tile::scatter4 are not known.

    The inventory of spellings tried them with add alone.
    """
    word = f".{op}" if op else ""
    for mode in (mode for mode in MODES if mode.stores and (known or not mode.rows4)):
        targets, version = (_HOPPER, "8.0") if not mode.new else (_DATACENTER, "8.6") if mode.rows4 else (_RUBIN, "9.4")
        lost = bool(mode.rows4 and op)
        for dim in mode.dims:
            base = f"{family}.{dim}d.global.shared::cta{word}{mode.text}.bulk_group"
            opcode = f"UTMAREDG.{dim}D" if op and not lost else f"UTMASTG.{dim}D"
            opcode += mode.opcode + (f".{op.upper()}" if op and not lost else "")
            for hint in (False, True):
                text = base + ".L2::cache_hint" * hint
                yield _row(
                    family, text, direction, dim, mode, targets, version, opcode, op=op, hint=hint,
                    unmodelled=_SCATTERED if lost else "", documented=not lost,
                )  # fmt: skip
                if known:
                    yield _row(
                        family, f"{text}.override::global_address", direction, dim, mode, _RUBIN, "9.4",
                        f"{opcode}.TENSOR_GADDR", op=op, hint=hint, override="global_address", unmodelled=_OVERRIDE,
                        documented=not lost,
                    )  # fmt: skip


def _copies() -> tuple[TensorCopyRow, ...]:
    return (*_loads(), *_stored(COPY, "store"))


def _reductions() -> tuple[TensorCopyRow, ...]:
    return tuple(row for op in REDUCTIONS for row in _stored(REDUCE, "reduce", op, op == "add"))


def _prefetches() -> Iterator[TensorCopyRow]:
    for mode in (mode for mode in MODES if mode.loads):
        targets, version = (_DATACENTER, "8.6") if mode.new else (_HOPPER, "8.0")
        for dim in mode.dims:
            base, shape = f"{PREFETCH}.{dim}d.L2.global{mode.text}", f".{dim}D{mode.opcode}"
            row = partial(_row, PREFETCH, operation="prefetch", dim=dim, mode=mode)
            for hint in (False, True):
                text, opcode = base + ".L2::cache_hint" * hint, f"UTMAPF.L2{shape}"
                yield row(text, targets=targets, version=version, opcode=opcode, hint=hint)
            yield row(f"{base}.L2::evict_last", targets=_RUBIN, version="9.4", opcode=f"UTMAL2CCTL.PM{shape}")
            yield row(
                f"{base}.override::global_address", targets=_RUBIN, version="9.4",
                opcode=f"UTMAL2CCTL.PF{shape}.TENSOR_GADDR", override="global_address", unmodelled=_OVERRIDE,
            )  # fmt: skip
        for dim in ALL if mode.rows4 else mode.dims:
            text = f"applypriority.async.bulk.tensor.{dim}d.global{mode.text}.bulk_group.L2::evict_normal"
            known = min(dim, 2) if mode.rows4 else dim  # ptxas makes 2D of more dimensions
            opcode, listed = f"UTMAL2CCTL.DM.{known}D{mode.opcode}", not mode.rows4 or dim == 2
            yield _row(PREFETCH, text, "prefetch", dim, mode, _RUBIN, "9.4", opcode, documented=listed)


def lowering(row: TensorCopyRow, arch: Arch) -> Lowering:
    """One machine instruction, which multicast on sm_120 loops over."""
    opcode = row.modifiers["opcode"]
    if arch.name == "sm_107":  # its prefetch is a cache control
        opcode = opcode.replace("UTMAPF.L2", "UTMAL2CCTL.PF")
    if arch.number >= 120 and ".MULTICAST" in opcode:
        note = "a loop over the CTAs of the mask, one copy each"
        return Lowering("emulated", (), ((opcode.replace(".MULTICAST", ""), 1),), note)
    return Lowering("native", (), ((opcode, 1),), "the TMA unit moves the bytes: tcsim.tma.copy")


_MANUAL = Evidence("literature", "PTX ISA, sections Tensors and cp.async.bulk.tensor")
_IM2COL = Evidence(
    "literature",
    "PTX ISA, section Im2col mode; CUTLASS, copy_traits_sm90_im2col; as on an NVIDIA H200",
)
_WIDE = Evidence(
    "literature",
    "PTX ISA, section im2col::w and im2col::w::128 modes; NumSim (mlc-ai/TIRx-harness), whose authors checked its rows on an "
    "sm_100: along N, and where halos lie",
)
_REDUCED = Evidence("literature", "PTX ISA, cp.reduce.async.bulk.tensor; NaNs, types and row ends as on an NVIDIA H200")
_NO_EFFECT = Evidence("literature", "PTX ISA, cp.async.bulk.prefetch.tensor: a hint")
_UNKNOWN = Evidence("literature", "accepted by ptxas 13.5.37; its effect is not modelled")


def evidence(row: TensorCopyRow, arch: Arch) -> Evidence:
    """A recording, or what the model of a spelling rests on."""
    if row.unmodelled:
        return _UNKNOWN
    if arch.name in RECORDED:
        return RECORDED[arch.name]
    if row.operation == "prefetch":
        return _NO_EFFECT
    if row.map_mode:
        return _WIDE if row.wide_mode else _IM2COL
    return _REDUCED if row.op else _MANUAL


def _family(name: str, rows: tuple[TensorCopyRow, ...]) -> Family[TensorCopyRow]:
    return Family(name, lambda: rows, lowering, evidence, CLASSES)


COPY_FAMILY = _family(COPY, _copies())
REDUCE_FAMILY = replace(
    _family(REDUCE, _reductions()),
    without_steps="none of a product: each element is combined with the one that is there",
)
PREFETCH_FAMILY = replace(_family(PREFETCH, tuple(_prefetches())), also=("applypriority",))
