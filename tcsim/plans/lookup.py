"""From the shape of a product to its plan: recorded, by a confirmed rule, or assumed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tcsim.core.errors import TargetError, listing, nearest, shortened
from tcsim.core.targets import ARCHS, PRODUCTS, accepting, product_named
from tcsim.isa.index import entry
from tcsim.numbers.formats import FORMATS
from tcsim.plans.kernels import order_of
from tcsim.plans.packed import Decision, Table
from tcsim.plans.ranking import Ranking
from tcsim.plans.record import FP8, MIXED, OUT, RECORDED, Kind, Plan, PlanError, reading, table

OPS = {
    "linear": "mm", "matmul": "mm", "mm": "mm", "addmm": "addmm", "bmm": "bmm", "scaled_mm": "scaled", "scaled_mm_rowwise": "scaled_row", "int_mm": "int_mm",
}  # fmt: skip
"""torch's names of products, and the call of cuBLAS that each makes without a bias."""
LAYOUTS = ("TN", "NN", "NT", "TT")
MOST = 1 << 31
ALIGNMENT = 16
PROMOTION = 128
"""Elements of k after which FP8 without fast accumulation adds to an f32 accumulator on Hopper."""


def plan(
    op: str = "linear", *, m: int, n: int, k: int, format: str = "bf16", gpu: str = "h200", out: str | None = None, layout: str = "TN", bias: bool = False,
    batch: int = 1, fast: bool = True, strict: bool = False,
) -> Plan:  # fmt: skip
    """The order of summation of a product of (M, K) and (K, N), as torch and cuBLAS compute it on a GPU.

    op: "linear", "matmul", "addmm", "bmm", "scaled_mm", "scaled_mm_rowwise" or "int_mm". linear of e4m3 is scaled_mm, of s8 int_mm; f32 is without tf32.
    format: of both operands, or of FP8 two, the activations' first: "e4m3.e5m2".
    gpu: a product ("H200", in any case) or an arch; a table exists for `tcsim.plans.recorded()`, everything else is assumed to be one plain chain.
    layout: of the weight and the activations as cuBLAS names them: "TN" is x @ w.T of row-major arrays, "NN" is x @ w. fast: fast accumulation of FP8.

    Raises PlanError for names and sizes that do not exist, and, if strict, where only an assumption is left or the order is not modelled.

    >>> tcsim.plan("linear", m=2048, n=14336, k=4096, format="f16", gpu="H200").split
    1
    >>> tcsim.plan("linear", m=16, n=4096, k=14336, format="bf16", gpu="b200").source
    'assumed'
    """
    kind = _kind(op, format, out, layout, bias, fast)
    for name, value in (("m", m), ("n", n), ("k", k), ("batch", batch)):
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value < MOST:
            raise PlanError(f"plan: {name} is {value!r}; valid: integers from 1 to {MOST - 1}")
    m, n, k, batch = int(m), int(n), int(k), int(batch)
    if batch > 1 and kind.call != "bmm":
        raise PlanError(f"plan: batch {batch} of {op}; valid: op 'bmm', or batch 1 with m the number of all rows")
    name, arch = chip(gpu)
    promotion = PROMOTION if not fast and kind.format in FP8 else 0

    def found(instruction: str | None, split: int, chunk: int, source: str, kernel: str, reason: str) -> Plan:
        own = promotion if instruction is not None and instruction.startswith("wgmma") else 0
        return Plan(op, m, n, k, batch, kind, bias, name, arch, instruction, split, chunk, own, source, kernel, reason)

    chain = instruction_of(kind.format, arch)
    answer = None
    if name in RECORDED and kind.format != "s8":
        recorded = table(name)
        with reading(name):
            decision, source, reason = decided(recorded, kind, m, n, k, batch)
        if kind.format in MIXED and source == "table":
            source, reason = "assumed", "as e4m3: where K is cut, one shape in nine of two formats is cut otherwise"
        if decision is None:
            answer = found(None, 0, 0, source, "", reason)
        elif decision.split:
            answer = found(chain, decision.split, decision.chunk(k), source, decision.kernel, reason)
        else:
            order = order_of(decision.kernel, decision.cuts, decision.reduction, kind, m, n, k, batch)
            words = reason if order is not None else f"{decision.kernel} has an order of summation of its own"
            answer = replace(found(None, 0, 0, source, decision.kernel, words), order=order)
    if answer is None and kind.format == "s8" and chain is not None:
        answer = found(chain, 1, k, "rule", "", "sums of integers in s32 have the same bits in every order")
    if answer is None and chain is None:
        answer = found(
            None,
            0,
            0,
            "assumed",
            "",
            f"{kind.format} runs on no tensor core of {arch}, and its order of summation was not recorded",
        )
    if answer is None:
        answer = found(chain, 1, k, "assumed", "", f"not recorded on {name}: one plain chain of its instruction")
    if strict and (answer.source == "assumed" or not answer.modelled):
        raise PlanError(
            f"plan: {op} {m}x{n}x{k} of {kind.format} on {name}: {answer.reason}; valid: a recorded shape of {listing(RECORDED)}, or strict=False"
        )
    return answer


def _kind(op: str, format: str, out: str | None, layout: str, bias: bool, fast: bool) -> Kind:
    """What to look up."""
    call = OPS.get(op)
    if call is None:
        raise PlanError(f"plan: no op {op!r}; nearest: {listing(nearest(str(op), OPS, 1))}; valid: {listing(OPS, 20)}")
    if format not in OUT:
        raise PlanError(
            f"plan: no products of {format!r}; nearest: {listing(nearest(str(format), OUT, 1))}; valid: {listing(OUT, 20)}"
        )
    if layout not in LAYOUTS:
        raise PlanError(f"plan: layout {layout!r}; valid: {listing(LAYOUTS)}")
    if format in FP8 and call == "mm":
        call = "scaled"
    if format == "s8" and call == "mm":
        call = "int_mm"
    if (format in FP8) != call.startswith("scaled") or (format == "s8") != (call == "int_mm"):
        raise PlanError(
            f"plan: {op} of {format}; valid: scaled_mm and scaled_mm_rowwise of e4m3, e5m2 and two of them (e4m3.e5m2), int_mm of s8, the others of f16, bf16, tf32 and f32"
        )
    if bias and call == "mm":
        call = "addmm"
    if bias and call != "addmm":
        raise PlanError(f"plan: {op} of {format} with a bias; valid: linear and addmm of f16, bf16, tf32 and f32")
    result = OUT[format] if out is None else out
    valid = ("s32",) if format == "s8" else ("f32", "f16", "bf16")
    if result not in valid:
        raise PlanError(f"plan: {format} to {result!r}; valid: {listing(valid)}")
    return Kind(call, format, result, layout, bool(fast) or not call.startswith("scaled"))


def decided(recorded: Table, kind: Kind, m: int, n: int, k: int, batch: int) -> tuple[Decision | None, str, str]:
    """What a library decides, how that is known, and why; None where nothing is known of its kernel."""
    decision = recorded.find(kind.key, m, n, k, batch)
    if decision is not None and (decision.split or kind.plain):
        return decision, "table", "recorded"
    rule, grown = recorded.rules.get(kind.key), recorded.trees.get(kind.key)
    if decision is None and rule is None and grown is not None and kind.plain and batch == 1:
        likely = recorded.decisions[grown.answers[grown.tree().answer(m, n, k, grown.number)]]
        return likely, "assumed", "not recorded: the kernel of most recorded shapes like it"
    if decision is not None or rule is None or not _aligned(kind, m, n, k):
        return (
            None,
            "assumed",
            f"not recorded: rows that are no multiple of {ALIGNMENT} bytes, or a format whose kernels vary",
        )
    plain = Decision(rule["kernel"], 1, rule["step"])
    if k <= rule["most_k"] and min(n, k) >= rule["least"]:
        return plain, "rule", rule["words"]
    within, beyond = zip((m, n, k), rule.get("extents", ()), strict=False), m * n > rule.get("results", m * n)
    if batch == 1 and beyond and all(low <= x <= high for x, (low, high) in within):
        return plain, "rule", rule["fits"]
    if grown is None or batch > 1 or beyond or k <= rule["most_k"]:
        return plain, "assumed", "not recorded: one plain chain"
    tree = grown.tree()
    said = "as the tile that is ranked first" if isinstance(tree, Ranking) else "as most recorded shapes like it"
    return replace(plain, split=tree.answer(m, n, k, grown.number)), "assumed", f"not recorded: cut {said}"


def _aligned(kind: Kind, m: int, n: int, k: int) -> bool:
    """Whether the rows of the operands, as the layout stores them, and of the result hold whole units of ALIGNMENT bytes of the operands' format."""
    unit = ALIGNMENT * 8 // FORMATS["f32" if kind.format == "tf32" else kind.formats[0]].bits
    return all(row % unit == 0 for row in (n if kind.layout[0] == "N" else k, m if kind.layout[1] == "T" else k, n))


def chip(gpu: str) -> tuple[str, str]:
    """The name and the arch of a GPU, a product in any case, an arch or a target.

    Raises PlanError for a name that is none of these.
    """
    try:
        arch = accepting(gpu)[0].name
    except TargetError:
        known = [*PRODUCTS, *ARCHS]
        raise PlanError(
            f"plan: no GPU {shortened(gpu)}; nearest: {listing(nearest(str(gpu).lower(), known, 2))}; valid: {listing(known, 90)}"
        ) from None
    product = product_named(gpu)
    return (product if product in RECORDED else str(gpu).replace(" ", "").replace("-", "").lower()), arch


_WGMMA = {"f16": "16.f32.f16.f16", "bf16": "16.f32.bf16.bf16", "tf32": "8.f32.tf32.tf32", "s8": "32.s32.s8.s8"}  # fmt: skip
_TCGEN05 = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "s8": "i8"} | dict.fromkeys(FP8, "f8f6f4")
_MMA = {
    "f16": "m16n8k16.row.col.f32.f16.f16.f32", "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32", "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "s8": "m16n8k32.row.col.s32.s8.s8.s32",
}  # fmt: skip
for _format in FP8:
    _pair = ".".join(Kind("", _format, "", "", True).formats)
    _WGMMA[_format], _MMA[_format] = f"32.f32.{_pair}", f"m16n8k32.row.col.f32.{_pair}.f32"
_OLD = {
    "f16": ("m16n8k8.row.col.f32.f16.f16.f32", "m8n8k4.row.col.f32.f16.f16.f32"),
    "s8": ("m8n8k16.row.col.s32.s8.s8.s32",),
}


@cache
def instruction_of(format: str, arch: str) -> str | None:
    """The instruction whose chain a product of a format is on an arch: the widest that it has; None if no tensor core multiplies the format.

    >>> tcsim.plans.lookup.instruction_of("bf16", "sm_90")
    'wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16'
    """
    names = [f"wgmma.mma_async.sync.aligned.m64n8k{_WGMMA[format]}"] if format in _WGMMA else []
    names += [f"tcgen05.mma.cta_group::1.kind::{_TCGEN05[format]}"] if format in _TCGEN05 else []
    names += [f"mma.sync.aligned.{_MMA[format]}"] if format in _MMA else []
    names += [f"mma.sync.aligned.{name}" for name in _OLD.get(format, ())]
    targets = set(accepting(arch)[1])
    return next((name for name in names if (row := entry(name)) is not None and targets & set(row.targets)), None)


def table_answers(gpu: str = "h200") -> dict[str, int]:
    """How many shapes the table answers, of each kind (call, format, layout).

    >>> sum(tcsim.plans.table_answers().values()) > 0
    True
    """
    name = chip(gpu)[0]
    with reading(name):
        return {key: sum(part.known for part in parts) for key, parts in table(name).parts.items()}
