"""In which order cuBLASLt's kernels sum, by the algorithm that its heuristic answers (CUDA 13.0, sm_90): what differs from plain chains of wgmma.

Found on an H200 with masks (a large product, its opposite and ones: an output counts the ones that were added after the two had met) and confirmed on
products of other shapes, every output (docs/explain.md). An algorithm that is not here has an order that is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from tcsim.plans.orders import Order
from tcsim.plans.record import Kind

NAME = re.compile(r"cublasLt (\d+)\.(\d+)\.(\d+)")


class Choice(NamedTuple):
    """What the heuristic answered, and for what."""

    stages: int  # CUBLASLT_ALGO_CONFIG_STAGES_ID
    custom: int  # CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION
    cuts: int  # CUBLASLT_ALGO_CONFIG_SPLITK_NUM; 1 for -1 without a workspace
    reduction: int  # CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME: 1 in place, 2 in f32, 4 in the type of the result
    kind: Kind
    m: int
    n: int
    k: int

    @property
    def size(self) -> int:
        """Bytes of an operand's element."""
        return 2 if self.kind.format in ("f16", "bf16") else 4


STAGES = MappingProxyType(
    {number + i: tile for number, tile in ((1, 16), (7, 32), (13, 64), (19, 128)) for i in range(6)} | {0: 32, 25: 32, 27: 16}
)  # fmt: skip
"""Elements of K in a tile, by cublasLtMatmulStages_t; 0, which no stage has: the kernels of sm_75."""
GEMVX = MappingProxyType({
    32: 8, 40: 4, 42: 8, 46: 32, 48: 2, 50: 4, 56: 2, 58: 4, 62: 2, 66: 8, 68: 4, 72: 16, 74: 32, 76: 4, 78: 8, 80: 16, 82: 32, 84: 2, 86: 4, 88: 8, 92: 32,
    94: 2, 96: 4, 98: 8, 100: 16, 102: 2, 106: 8, 110: 4, 112: 8, 114: 4,
})  # fmt: skip
"""Threads of gemvx that share K, by the even custom option; the next option has as many."""
GEMVX_BLOCK = 64
"""Elements of K that such a thread takes at once, at most, if the option is even; of an odd one, one."""
GEMV_NSP_WIDE = 129
"""Results of f32 from which gemvNSP has 24 threads for each instead of 32."""
GEMV_NSP_MOST = 7760
"""Results up to which the number of its threads is known: of more it has 8 to 24."""
LARGE_K, LARGE_K_CUT, LARGE_K_MOST = 512, 544, 768
"""Elements of a part of sgemm_largek with split 0; the shortest K that was seen cut so, and the longest K that was seen, both rounded."""
LINE, VECTOR = 128, 16
"""Bytes that CUTLASS aligns the parts of a split K to: a line where K is contiguous in an operand and a multiple of it, or a vector."""


def order_of(
    kernel: str, cuts: int, reduction: int, kind: Kind, m: int, n: int, k: int, batch: int = 1
) -> Order | None:
    """The order of a decision of cuBLASLt's heuristic, whose kernel is spelled "cublasLt ID.STAGES.CUSTOM"; None where it is not known.

    >>> from tcsim.plans.record import Kind
    >>> order_of("cublasLt 24.0.0", 2, 4, Kind("mm", "bf16", "bf16", "TN", True), 64, 63, 777)
    Order(instruction='mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32', parts=2, chunk=392, turn=0, residue=32, lanes=1, block=1, run=0, vector=1, lanes_by='ascending', parts_by='rounded', bias='rounded', operands='')
    """
    found = NAME.fullmatch(kernel)
    if found is None:
        return None
    number, stages, custom = map(int, found.groups())
    rule = ALGORITHMS.get(number)
    return None if rule is None else rule(Choice(stages, custom, cuts, reduction, kind, m, n, k))


def likened(stages: int, custom: int, cuts: int, reduction: int, number: int) -> tuple[int, int, int, int]:
    """One of the answers (stages, custom, cuts, reduction) of an algorithm that have the same order for every shape: a table that holds it alone is shorter.

    >>> likened(stages=10, custom=0, cuts=1, reduction=2, number=21), likened(10, 0, 4, 2, 21)
    ((7, 0, 1, 0), (7, 0, 4, 2))
    """
    rule = ALGORITHMS.get(number)
    if rule is None:
        return stages, custom, cuts, reduction
    whole = cuts <= 1
    in_turn, cutlass = rule in (_xmma, _xmma_tf32), rule in (_simt, _tensor)
    if rule is _tensor or (rule is _xmma_tf32 and not whole):
        stages = next((x for x, tile in STAGES.items() if x and stages and tile == STAGES.get(stages)), stages)
    else:
        stages = 0
    if rule is _vector:
        even = custom - custom % 2
        custom = next((x for x, threads in GEMVX.items() if threads == GEMVX.get(even)), even) + custom % 2
    elif rule is not _small_n:
        custom = int(in_turn and not whole and custom == 1)
    if rule in (_chain, _small_n):
        cuts = 1
    return stages, custom, cuts, reduction if cutlass and not whole else 0


def _chain(choice: Choice) -> Order:
    """One chain of FMA."""
    return Order()


def _cutlass(choice: Choice, instruction: str, residue: int) -> Order | None:
    """Split K as CUTLASS splits it, and as the reduction scheme adds the parts."""
    operands = "tf32" if choice.kind.format == "tf32" else ""
    parts, chunk = 1, choice.k
    if choice.cuts > 1:
        line = LINE // choice.size
        contiguous = choice.kind.layout != "NT" and choice.k % line == 0
        unit = line if contiguous else VECTOR // choice.size
        chunk = _up(ceil(choice.k / choice.cuts), unit)
        parts = ceil(choice.k / chunk)
    plain = Order(instruction, parts, chunk, residue=residue, operands=operands)
    if choice.cuts <= 1:
        return plain
    added = {
        1: {"parts_by": "in place"}, 2: {"bias": "rounded"}, 4: {"parts_by": "rounded", "bias": "rounded"},
    }.get(choice.reduction)  # fmt: skip
    return None if added is None else Order(**(vars(plain) | added))


def _up(x: int, unit: int) -> int:
    return ceil(x / unit) * unit


def _tensor(choice: Choice) -> Order | None:
    """cutlass_75 and cutlass_80 on tensor cores: mma.sync m16n8k8 (tf32, and sm_75's without stages) or k16, wmma too."""
    format, tile = choice.kind.format, STAGES.get(choice.stages)
    if tile is None or format not in ("f16", "bf16", "tf32"):
        return None
    k = 8 if format == "tf32" or choice.stages == 0 else 16
    return _cutlass(choice, f"mma.sync.aligned.m16n8k{k}.row.col.f32.{format}.{format}.f32", tile)


def _simt(choice: Choice) -> Order | None:
    """cutlass_80_simt_sgemm: FMA."""
    return _cutlass(choice._replace(kind=choice.kind._replace(format="f32")), "", 0)


def _in_turn(choice: Choice, instruction: str, tile: int, operands: str = "") -> Order:
    """Parts that take tiles in turn; with custom option 1 they are added in buffers."""
    if choice.cuts <= 1:
        return Order(instruction, operands=operands)
    added = "buffers" if choice.custom == 1 else "ascending"
    return Order(instruction, choice.cuts, turn=tile, parts_by=added, operands=operands)


def _xmma(choice: Choice) -> Order:
    """sm80_xmma with FMA."""
    return _in_turn(choice, "", 8)


def _xmma_tf32(choice: Choice) -> Order | None:
    """sm80_xmma on tensor cores, without a residue."""
    if choice.cuts > 1 and not (choice.stages and choice.stages in STAGES):
        return None
    return _in_turn(choice, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", STAGES.get(choice.stages, 0), "tf32")


def _whole(choice: Choice) -> Order | None:
    """sm90_xmma: one chain of wgmma, whose bits are those of mma.sync. With split -1 and a workspace it cuts some tiles along K."""
    k, format = {"tf32": (8, "tf32"), "f16": (16, "f16"), "bf16": (16, "bf16")}.get(choice.kind.format, (0, ""))
    if choice.cuts != 1 or not k:
        return None
    return Order(f"mma.sync.aligned.m16n8k{k}.row.col.f32.{format}.{format}.f32", operands="tf32" if k == 8 else "")


def _large_k(choice: Choice) -> Order | None:
    """sgemm_largek: chunks of a multiple of 8."""
    if choice.cuts == 0:  # it cuts K itself
        known = choice.k <= LARGE_K or LARGE_K_CUT <= choice.k <= LARGE_K_MOST
        return Order(parts=ceil(choice.k / LARGE_K), chunk=LARGE_K) if known else None
    chunk = max(8, _up(choice.k // choice.cuts, 8)) if choice.cuts > 1 else choice.k
    return Order(parts=ceil(choice.k / chunk), chunk=chunk)


def _small_n(choice: Choice) -> Order:
    """gemmSN: of TN 16 lanes, else 4 or, with custom option 0, 2 that have a run of K each."""
    if choice.kind.layout == "TN":
        return Order(lanes=16, block=1, run=16)
    lanes = 4 if choice.custom == 1 else 2
    return Order(lanes=lanes, block=ceil(choice.k / lanes), run=512 // lanes)


def _vector(choice: Choice) -> Order | None:
    """A matrix times a vector."""
    if choice.m == choice.n == 1 and (choice.kind.call != "bmm" or choice.kind.layout[0] == "N"):
        return None  # other kernels run than the heuristic answers
    parts = choice.cuts if choice.cuts > 1 else 1
    chunk, bias = ceil(choice.k / parts), "rounded" if parts > 1 else "sum"
    parts = ceil(choice.k / chunk)
    option = choice.custom
    if option in (0, 1, 2, 7):  # gemv2N
        lanes = (1, 2, 4)[option % 7]
        return Order(parts=parts, chunk=chunk, lanes=lanes, block=ceil(chunk / lanes), run=512 // lanes, bias=bias)
    if option == 10:  # gemvNSP
        results = max(choice.m, choice.n)
        if results > GEMV_NSP_MOST:
            return None
        wide = choice.size == 4 and results >= GEMV_NSP_WIDE
        return Order(parts=parts, chunk=chunk, lanes=24 if wide else 32, block=4, lanes_by="halves", bias=bias)
    if option in (11, 12, 13, 14):  # gemv2T
        return Order(parts=parts, chunk=chunk, lanes=16, block=1, run=32 if option == 11 else 16, bias=bias)
    threads = GEMVX.get(option - option % 2)
    if threads is None:
        return None
    block = 1 if option % 2 else min(GEMVX_BLOCK, ceil(chunk / threads))
    return Order(parts=parts, chunk=chunk, lanes=threads, block=block, lanes_by="halves", bias=bias)


def _dot(choice: Choice) -> Order:
    """dot_kernel and reduce_1Block: blocks of 128 threads; two neighbouring elements a thread where the matrix is contiguous along K."""
    letter = choice.kind.layout[0] == "T" if choice.m == 1 and choice.n > 1 else choice.kind.layout[1] == "N"
    vector = 2 if letter or choice.m == choice.n == 1 else 1
    return Order(
        parts=choice.cuts,
        turn=128 * vector,
        lanes=128,
        block=vector,
        vector=vector,
        lanes_by="halves",
        parts_by="block",
    )


ALGORITHMS: Mapping[int, Callable[[Choice], Order | None]] = MappingProxyType({
    10: _large_k, 11: _small_n, 12: _chain, 13: _vector, 14: _dot, 16: _chain, 20: _simt, 21: _tensor, 23: _tensor, 24: _tensor, 41: _whole, 42: _whole,
    43: _whole, 55: _xmma, 56: _chain, 63: _xmma_tf32,
})  # fmt: skip
"""By CUBLASLT_ALGO_CONFIG_ID."""
