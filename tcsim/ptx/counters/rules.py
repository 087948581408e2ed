"""What one access of a warp adds to the GPU's counters: a row for each kind of access and counter, with how well it is known.

Counters have Nsight Compute's names. A rule is *exact* if it gave the counter of every launch of one instruction that it was compared with on an
H200 (`Rule.confirmed` of as many; `tests/unit/tcsim/ptx/counters/test_rules.py` compares again), and *approximate* if not of every one, or if
nothing was compared. What has no rule is left out: a counter that an access changes in a way that is not known is missing from a run that has the access.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from tcsim.layouts.banks import INACTIVE, WARP_LANES, words_wanted
from tcsim.layouts.coalescing import (
    LINE_BYTES,
    SECTOR_BYTES,
    TAG_SPAN,
    Rows,
    atomic_data_passes,
    atomic_passes,
    bulk_requests,
    bulk_sectors,
    by_pass,
    bypassing_misses,
    bypassing_sectors,
    copy_passes,
    data_passes,
    distinct,
    lines,
    sectors,
    tag_passes,
)
from tcsim.ptx.counters import boxes
from tcsim.tma.map import TensorMap

_WAVES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_"
REQUESTS, SECTORS = "l1tex__t_requests_pipe_lsu_mem_global_op_", "l1tex__t_sectors_pipe_lsu_mem_global_op_"
_TAGS = "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_"
TAG_PASSES = tuple(f"{_TAGS}{name}.sum" for name in ("ld", "st"))
COPY_SECTORS = tuple(f"{SECTORS}ldgsts_cache_{name}.sum" for name in ("access", "bypass"))
IDEAL, IDEAL_SECTORS = "memory_l1_wavefronts_shared_ideal", "memory_l2_theoretical_sectors_global_ideal"
ACTUAL_SECTORS = "memory_l2_theoretical_sectors_global"
SHARED_WAVES = "memory_l1_wavefronts_shared"
L2_REQUESTS, L2_SECTORS = "lts__t_requests_srcunit_tex.sum", "lts__t_sectors_srcunit_tex.sum"
DATA = "l1tex__data_pipe_lsu_wavefronts_mem_lgds_cmd_read.sum"
LOAD_WAVES, STORE_WAVES, ATOM_WAVES = (f"{_WAVES}{name}.sum" for name in ("ld", "st", "atom"))
COPY_WAVES = f"{_WAVES}ldgsts.sum"
WGMMA_WAVES = f"{_WAVES}gmma.sum"
REMOTE = "ptx__requests_mem_shared_cluster.sum"
TENSOR_CYCLES = "smsp__pipe_tensor_cycles_active.sum"
TMA_BYTES = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
STORED_BYTES = "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"
INSTRUCTIONS, THREADS = "ptx__inst_executed.sum", "ptx__thread_inst_executed.sum"
FLOPS = "ptx__tensor_ops.sum"

UNSURE = (TENSOR_CYCLES, TMA_BYTES, STORED_BYTES, "smsp__inst_executed_pipe_tensor_op_hmma.sum")
"""Counters that are not exact in every launch: copies by im2col, gathers and interleaved tensors were not measured, ptxas moves constants by HFMA2.MMA."""
CONTENDED = (LOAD_WAVES, STORE_WAVES, SHARED_WAVES)
"""Counters that asynchronous work and other blocks of the cluster raise where they contend for shared memory: two runs differ."""
Count = Callable[..., Rows]
"""What takes the addresses of each side, int64 (warps, 32), and the bytes of a lane, and gives a number for each warp."""


@dataclass(frozen=True)
class Rule:
    """What each access of a kind adds to one counter."""

    counter: str
    count: Count
    kind: str = ""  # of evidence, a key of `EVIDENCE`; empty: it is taken over from a related access, or is a definition of ours
    confirmed: int = 0  # launches of one instruction whose counter it gave
    compared: int = 0  # of those that it was compared with

    @property
    def status(self) -> str:
        """How well it is known."""
        return "exact" if self.compared and self.confirmed == self.compared else "approximate"


@dataclass(frozen=True)
class Operation:
    """A kind of access."""

    name: str
    rules: tuple[Rule, ...]
    spans: tuple[int, ...] = (
        4,
    )  # of each side, bytes by whose multiples all lanes may move without a change of any count
    unknown: tuple[str, ...] = ()  # counters that it changes in a way that no rule gives
    sides: tuple[str, ...] = ("shared",)
    more: tuple[str, ...] = ()  # counters that it raises, besides, by what no rule gives: they are lower bounds


# --- shared memory


def _waves(access: str, rows: Rows, width: int, factor: int = 1) -> Rows:
    return factor * words_wanted(rows, width, access).max(2).sum(1)


def _ideal(access: str, rows: Rows, width: int) -> Rows:
    return np.asarray((words_wanted(rows, width, access).max(2) > 0).sum(1))


def _loops(counts: str, rows: Rows, width: int) -> Rows:
    """A loop around compare and swap: each turn loads what all lanes want that are left, and of each place modulo 128 bytes the first lane swaps.

    Of 8 bytes half a warp at a time. counts: "load", or "swap", which costs two wavefronts.
    """
    left, found = rows.copy(), np.zeros(len(rows), np.int64)
    half = np.arange(WARP_LANES) // (16 if width == 8 else WARP_LANES)
    lanes = np.arange(WARP_LANES)
    while (left != INACTIVE).any():
        place = np.where(left == INACTIVE, INACTIVE, left % 128 + 128 * half)
        earlier = ((place[:, :, None] == place[:, None, :]) & (lanes[:, None] > lanes)).any(2)
        now = np.where(earlier, INACTIVE, left)
        found += _waves("load", left, width) if counts == "load" else _waves("turns", now, width, 2)
        left = np.where(earlier, left, INACTIVE)
    return found


def _shared(name: str, counter: str, access: str, factor: int = 1) -> Operation:
    waves = partial(_waves, access, factor=factor)
    ideal = partial(_ideal, access if access != "turns" else "store")
    return Operation(name, (Rule(counter, waves, "waves"), Rule(SHARED_WAVES, waves, "waves"), Rule(IDEAL, ideal)))


def _one(rows: Rows, *given: object) -> Rows:
    return np.asarray((rows != INACTIVE).any(1).astype(np.int64))


# --- global memory


def _global(name: str, more: tuple[Rule, ...] = ()) -> Operation:
    """Loads and stores."""
    rules = (
        Rule(f"{REQUESTS}{name}.sum", _one, "requests"),
        Rule(f"{SECTORS}{name}.sum", sectors, "sectors"),
        Rule(L2_REQUESTS, lines, "lines"),
        Rule(L2_SECTORS, sectors, "cold sectors"),
        Rule(f"{_TAGS}{name}.sum", tag_passes, "tags"),
        Rule(ACTUAL_SECTORS, sectors, "sectors"),
        Rule(IDEAL_SECTORS, _least),
    )
    return Operation(f"{name}.global", (*rules, *more), (TAG_SPAN,), sides=("global",))


def _least(rows: Rows, *given: int) -> Rows:
    """Sectors that would hold all different elements of an access."""
    return np.asarray(-(-distinct(rows) * given[-1] // SECTOR_BYTES))


def _atomic(name: str, kind: str, unit: int = LINE_BYTES) -> Operation:
    """unit: bytes that an L2 request of it has at the most."""
    requests, in_sectors = partial(by_pass, unit=unit, piece=unit), partial(by_pass, unit=unit, piece=SECTOR_BYTES)
    gives = (Rule(DATA, partial(atomic_data_passes, unit=unit), "data"),) if kind == "atom" else ()
    rules = (
        Rule(f"{REQUESTS}{kind}.sum", _one, "requests"),
        Rule(f"{SECTORS}{kind}.sum", in_sectors, "sectors"),
        Rule(L2_REQUESTS, requests, "lines"),
        Rule(L2_SECTORS, in_sectors, "cold sectors"),
        Rule(f"{_TAGS}{kind}.sum", partial(atomic_passes, unit=unit), "tags"),
        Rule(ACTUAL_SECTORS, in_sectors, "sectors"),
        Rule(IDEAL_SECTORS, _least),
    )
    return Operation(name, (*rules, *gives), (TAG_SPAN,), sides=("global",))


def _copied(cache: str, count: Count) -> tuple[Rule, ...]:
    """cp.async: its requests and sectors are counted among those of loads, too."""
    requests: Count = lambda source, *given: _one(source)  # noqa: E731
    return tuple(
        Rule(f"{prefix}{kind}.sum", own, shown)
        for kind in (f"ldgsts_cache_{cache}", "ld")
        for prefix, own, shown in ((REQUESTS, requests, "requests"), (SECTORS, count, "sectors"))
    )


def _copied_sectors(source: Rows, destination: Rows, width: int) -> Rows:
    return sectors(source, width)


def _bulk(name: str, loads: bool) -> Operation:
    """A copy of TMA. Each row is a piece: its first address in global memory, and the one behind its last."""
    requests: Count = lambda starts, ends, *given: bulk_requests(starts, ends, loads)  # noqa: E731
    in_sectors: Count = lambda starts, ends, *given: bulk_sectors(starts, ends)  # noqa: E731
    return Operation(
        name, (Rule(L2_REQUESTS, requests, "lines"), Rule(L2_SECTORS, in_sectors, "cold sectors")), more=CONTENDED
    )


def _box(what: str, tmap: TensorMap, base: int, coordinates: Rows, shared: int, blocks: int = 1) -> Rows:
    """Requests, sectors or bytes of a load of a tile."""
    found = boxes.asked(tmap, base, coordinates, shared, blocks)
    return np.array([0 if found is None else getattr(found, what)])


_OF_BOX = (
    Rule(L2_REQUESTS, partial(_box, "requests"), "lines"),
    Rule(L2_SECTORS, partial(_box, "sectors"), "cold sectors"),
)

EVIDENCE: Mapping[str, Mapping[str, tuple[int, int]]] = MappingProxyType({
    "ld.shared": {"waves": (282, 282)},
    "st.shared": {"waves": (205, 205)},
    "ldmatrix": {"waves": (154, 154)},
    "stmatrix": {"waves": (153, 153)},
    "atom.shared": {"waves": (218, 218)},
    "atom.shared.cas": {"waves": (57, 57)},
    "atom.shared.popc": {"waves": (11, 11)},
    "atom.shared.loop": {"waves": (150, 156), "loaded": (147, 156)},
    "ld.global": {"requests": (125, 125), "sectors": (125, 125), "lines": (125, 125), "cold sectors": (125, 125), "tags": (70, 70), "data": (125, 125)},
    "st.global": {"requests": (117, 117), "sectors": (117, 117), "lines": (117, 117), "cold sectors": (117, 117), "tags": (62, 62)},
    "red.global": {"requests": (133, 133), "sectors": (133, 133), "lines": (133, 133), "cold sectors": (133, 133), "tags": (48, 48)},
    "red.global.vector": {"requests": (51, 51), "sectors": (51, 51), "lines": (51, 51), "cold sectors": (51, 51), "tags": (16, 16)},
    "atom.global": {"requests": (198, 198), "sectors": (198, 198), "lines": (198, 198), "cold sectors": (198, 198), "tags": (80, 80), "data": (190, 190)},
    "atom.global.cas": {"requests": (49, 49), "sectors": (49, 49), "lines": (49, 49), "cold sectors": (49, 49), "tags": (16, 16), "data": (38, 38)},
    "cp.async.ca": {"requests": (130, 130), "sectors": (130, 130), "waves": (86, 86), "lines": (130, 130), "cold sectors": (130, 130)},
    "cp.async.cg": {"requests": (133, 133), "sectors": (133, 133), "lines": (54, 104), "cold sectors": (53, 104)},
    "bulk.load": {"lines": (43, 43), "cold sectors": (43, 43)},
    "bulk.store": {"lines": (46, 46), "cold sectors": (46, 46)},
    "bulk.multicast": {"lines": (320, 320), "cold sectors": (320, 320)},
    "bulk.edge": {"lines": (180, 220), "cold sectors": (180, 220)},
    "bulk.tile": {"box": (640, 640)},
})  # fmt: skip
"""By operation and kind: in how many launches of one instruction an H200 counted what the rule says, and in how many it was compared."""

_OPERATIONS = (
    _shared("ld.shared", LOAD_WAVES, "load"),
    _shared("st.shared", STORE_WAVES, "store"),
    _shared("ldmatrix", LOAD_WAVES, "matrix"),
    _shared("stmatrix", STORE_WAVES, "matrix"),
    _shared("atom.shared", ATOM_WAVES, "turns"),
    _shared("atom.shared.cas", ATOM_WAVES, "turns", 2),
    _shared("atom.shared.popc", ATOM_WAVES, "store"),
    Operation("atom.shared.loop", (
        Rule(ATOM_WAVES, partial(_loops, "swap"), "waves"),
        Rule(LOAD_WAVES, partial(_loops, "load"), "loaded"),
        Rule(SHARED_WAVES, lambda rows, width: _loops("swap", rows, width) + _loops("load", rows, width), "loaded"),
        Rule(IDEAL, partial(_ideal, "store")),
    ), more=(ATOM_WAVES, LOAD_WAVES, SHARED_WAVES)),
    Operation("atom.shared.extreme", (), unknown=(ATOM_WAVES, LOAD_WAVES, SHARED_WAVES)),
    Operation("atom.shared.cluster", (Rule(REMOTE, _one),), more=(*CONTENDED, ATOM_WAVES)),
    _global("ld", (Rule(DATA, data_passes, "data"),)),
    _global("st"),
    _atomic("red.global", "red"),
    _atomic("red.global.vector", "red"),
    _atomic("atom.global", "atom"),
    _atomic("atom.global.cas", "atom", 64),
    Operation("cp.async.ca", (
        *_copied("access", _copied_sectors),
        Rule(COPY_WAVES, copy_passes, "waves"),
        Rule(SHARED_WAVES, copy_passes, "waves"),
        Rule(IDEAL, lambda source, destination, width: _ideal("store", destination, width)),
        Rule(L2_REQUESTS, lambda source, destination, width: lines(source, width), "lines"),
        Rule(L2_SECTORS, _copied_sectors, "cold sectors"),
    ), (TAG_SPAN, 4), (), ("global", "shared"), CONTENDED),
    Operation("cp.async.cg", (
        *_copied("bypass", bypassing_sectors),
        Rule(L2_REQUESTS, lambda source, destination, *given: bypassing_misses(source, destination, True), "lines"),
        Rule(L2_SECTORS, lambda source, destination, *given: bypassing_misses(source, destination, False), "cold sectors"),
    ), (128, 128), (), ("global", "shared"), CONTENDED),
    _bulk("bulk.load", loads=True),
    _bulk("bulk.store", loads=False),
    Operation("bulk.multicast", _OF_BOX, more=CONTENDED),
    Operation("bulk.edge", _OF_BOX, more=CONTENDED),
    Operation("bulk.other", (), more=(L2_REQUESTS, L2_SECTORS, *CONTENDED)),
    Operation("bulk.tile", (Rule(TMA_BYTES, partial(_box, "bytes"), "box"),)),
    Operation("wgmma", (), more=CONTENDED),
    Operation("wgmma.sp", (), unknown=(LOAD_WAVES,), more=(STORE_WAVES, SHARED_WAVES)),
    Operation("tensormap", (), more=CONTENDED),
)  # fmt: skip


def _known(own: Operation) -> Operation:
    """An operation with what its rules rest on."""
    numbers = (EVIDENCE.get(own.name, {}).get(rule.kind, (0, 0)) for rule in own.rules)
    rules = tuple(
        replace(rule, confirmed=right, compared=every) for rule, (right, every) in zip(own.rules, numbers, strict=True)
    )
    return replace(own, rules=rules)


OPERATIONS: Mapping[str, Operation] = MappingProxyType({own.name: _known(own) for own in _OPERATIONS})
"""By name."""
