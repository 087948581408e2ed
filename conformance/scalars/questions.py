"""What the manual leaves open, asked of the hardware: warps that store to one address, atomics of a warp to one address, lanes out of range.

A question is a kernel with inputs; `ask` runs it on a GPU, `answer` in `tcsim.ptx`, and both give the same bytes where the model is right.
Every warp is a block of its own with a region of memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim.ptx
from conformance.stimuli.stream import Stream
from tcsim.core.errors import TcsimError

Codes = npt.NDArray[Any]
WARPS, LANES, REGION = 32, 32, 512
VERSION, TARGET = "8.8", "sm_90a"
_FILL = 0xA5  # of memory before a launch, on both sides


@dataclass(frozen=True, eq=False)
class Question:
    """A kernel whose parameters are inputs (a value for each thread) and one output."""

    name: str
    body: tuple[str, ...]  # %t: the thread, %l: its lane, %in<n>: the addresses of inputs, %out: of the warp's region
    inputs: tuple[Codes, ...]

    @property
    def ptx(self) -> str:
        """The module."""
        params = ", ".join(f".param .u64 p{place}" for place in range(len(self.inputs) + 1))
        loads = []
        for place, codes in enumerate(self.inputs):
            loads += [
                f"ld.param.u64 %in{place}, [p{place}];",
                f"mad.wide.u32 %in{place}, %t, {codes.dtype.itemsize}, %in{place};",
            ]
        return "\n".join(
            [
                f".version {VERSION}", f".target {TARGET}", ".address_size 64", f".visible .entry ask({params})", ".reqntid 32, 1, 1", "{",
                ".reg .b32 %t, %l, %w, %s, %m, %r<16>; .reg .b64 %out, %g, %in<8>, %d<16>; .reg .b16 %h<16>; .reg .f32 %f<8>;",
                f".reg .f64 %e<4>; .reg .pred %p<8>, %on; .reg .b128 %q<4>; .shared .align 16 .b8 region[{REGION}];",
                "mov.u32 %w, %ctaid.x;", "mov.u32 %l, %tid.x;", "mad.lo.u32 %t, %w, 32, %l;",
                f"ld.param.u64 %out, [p{len(self.inputs)}];", f"mad.wide.u32 %out, %w, {REGION}, %out;", "mov.u32 %s, region;", *loads,
                *self.body, "ret;", "}", "",
            ]
        )  # fmt: skip

    @property
    def out_bytes(self) -> int:
        """Bytes of the output."""
        return WARPS * REGION


_CLEAR = (
    "mad.lo.u32 %m, %l, 16, %s;",
    "mov.b32 %r15, 0;",
    "st.shared.v4.b32 [%m], {%r15, %r15, %r15, %r15};",
    "bar.warp.sync -1;",
)
_SHOW = (
    "bar.warp.sync -1;", "mad.lo.u32 %m, %l, 16, %s;", "ld.shared.v4.b32 {%r12, %r13, %r14, %r15}, [%m];",
    "mad.wide.u32 %g, %l, 16, %out;", "st.global.v4.b32 [%g], {%r12, %r13, %r14, %r15};",
)  # fmt: skip


def _offsets(stream: Stream, step: int, room: int) -> Codes:
    """An offset for each thread: some warps have all lanes at one place, some few places, some many."""
    slots = room // step
    places = np.zeros((WARPS, LANES), np.int64)
    for warp in range(WARPS):
        many = min(slots, (1, 2, 3, 5, 8, 13, 21, 32)[warp % 8])
        chosen = stream.below(slots, (many,))
        places[warp] = chosen[stream.below(many, (LANES,))]
        if warp % 8 == 7:  # runs of neighbours
            places[warp] = np.arange(LANES) // (1 + warp // 8) % slots
    return (places * step).astype(np.uint32).reshape(-1)


def _active(stream: Stream) -> Codes:
    """Which lanes execute: all of them in half the warps."""
    on = stream.chance(3, 4, (WARPS, LANES)) | (np.arange(WARPS) % 2 == 0)[:, None]
    on[:, 5] = True
    return on.astype(np.uint32).reshape(-1)


_ENABLE = ("ld.global.u32 %r1, [%in1];", "setp.ne.u32 %on, %r1, 0;")
_STORES = {  # bytes, registers
    "b8": (1, "%h1"), "b16": (2, "%h1"), "b32": (4, "%r2"), "b64": (8, "%d1"), "v2.b8": (2, "{%h1, %h2}"), "v4.b8": (4, "{%h1, %h2, %h1, %h2}"),
    "v2.b16": (4, "{%h1, %h2}"), "v4.b16": (8, "{%h1, %h2, %h1, %h2}"), "v2.b32": (8, "{%r2, %r3}"), "v4.b32": (16, "{%r2, %r3, %r4, %r5}"),
    "v2.b64": (16, "{%d1, %d2}"), "b128": (16, "%q0"),
}  # fmt: skip


def _stores() -> Iterator[Question]:
    """Which lane's bytes stay: each stores bytes that are its number plus 64."""
    for type, (size, registers) in _STORES.items():
        for space in ("global", "shared"):
            stream = Stream("stores", type, space)
            value = [
                "add.u32 %r2, %l, 64;",
                "mul.lo.u32 %r2, %r2, 0x01010101;",
                *(f"mov.b32 %r{k}, %r2;" for k in (3, 4, 5)),
            ]
            value += [
                "mov.b64 %d1, {%r2, %r3};",
                "mov.b64 %d2, %d1;",
                "cvt.u16.u32 %h1, %r2;",
                "mov.b16 %h2, %h1;",
                "mov.b128 %q0, {%d1, %d2};",
            ]
            at = "%g" if space == "global" else "%m"
            where = ["cvt.u64.u32 %g, %r0;", "add.u64 %g, %g, %out;"] if space == "global" else ["add.u32 %m, %r0, %s;"]
            own = [
                *_ENABLE,
                "ld.global.u32 %r0, [%in0];",
                *value,
                *where,
                f"@%on st.{space}.{type} [{at}], {registers};",
            ]
            body = own if space == "global" else [*_CLEAR, *own, *_SHOW]
            yield Question(f"st.{space}.{type}", tuple(body), (_offsets(stream, size, REGION), _active(stream)))


_ATOMICS = {  # bytes of an element, register of the operand
    "exch.b32": (4, "%r2"), "exch.b64": (8, "%d1"), "exch.b128": (16, "%q0"), "cas.b32": (4, "%l, %r2"), "cas.b64": (8, "%d4, %d6"),
    "cas.b16": (2, "%h4, %h2"), "cas.b128": (16, "%q1, %q3"), "add.u32": (4, "%r2"), "add.u64": (8, "%d1"), "inc.u32": (4, "%r2"), "dec.u32": (4, "%r2"),
    "max.s32": (4, "%r2"), "min.u64": (8, "%d1"), "xor.b32": (4, "%r2"), "add.f32": (4, "%f0"), "add.f64": (8, "%e0"), "add.noftz.f16": (2, "%h1"),
    "add.noftz.bf16": (2, "%h1"), "add.noftz.f16x2": (4, "%r4"), "add.noftz.bf16x2": (4, "%r4"), "add.v2.f32": (8, "{%f0, %f1}"),
    "add.v4.f32": (16, "{%f0, %f1, %f0, %f1}"), "add.noftz.v4.f16x2": (16, "{%r4, %r5, %r4, %r5}"),
}  # fmt: skip
_BEFORE = {"b128": "%q2", "b16": "%h3", "b32": "%r6", "b64": "%d3", "u32": "%r6", "u64": "%d3", "s32": "%r6", "f32": "%f2", "f64": "%e1", "f16": "%h3", "bf16": "%h3"}  # fmt: skip


def _operands() -> list[str]:
    """Operands that tell the lanes apart, and whose sums depend on their order."""
    return [
        "ld.global.u32 %r4, [%in2];", "ld.global.u32 %r5, [%in2];", "add.u32 %r2, %l, 1;", "mov.b32 %r3, 0;",
        "mov.b64 %d1, {%r2, %r4};", "mov.b64 %d4, {%l, %r3};", "mov.b64 %d6, {%r2, %r3};", "mov.b64 %d2, 0;", "cvt.u16.u32 %h1, %r4;",
        "cvt.u16.u32 %h2, %r2;", "cvt.u16.u32 %h4, %l;", "mov.b128 %q0, {%d1, %d4};", "mov.b128 %q1, {%d4, %d2};", "mov.b128 %q3, {%d6, %d2};", "ld.global.u32 %r7, [%in3];", "mov.b32 %f0, %r7;", "neg.f32 %f1, %f0;",
        "cvt.f64.f32 %e0, %f0;", "mul.f64 %e0, %e0, 0d3FF0000000000001;",
    ]  # fmt: skip


def _atomics() -> Iterator[Question]:
    """In which order the lanes of a warp come: what stays in memory (the upper half of a region), and for atom what each saw."""
    for name, (size, registers) in _ATOMICS.items():
        for space in ("global", "shared") if ".v" not in name else ("global",):
            for stem in ("atom",) if name.startswith(("exch", "cas")) else ("atom", "red"):
                stream = Stream("atomics", name, space)
                half = REGION // 2
                offsets = _offsets(stream, size, half)
                halves = stream.below(0x1400, (2, WARPS * LANES)).astype(np.uint32) + np.uint32(
                    0x3000
                )  # f16 and bf16 of many sizes
                halves |= (stream.below(2, (2, WARPS * LANES)) << 15).astype(np.uint32)
                floats = (
                    stream.below(1 << 23, (WARPS * LANES,)) | (stream.between(110, 140, (WARPS * LANES,)) << 23)
                ).astype(np.uint32)
                floats ^= (stream.below(2, floats.shape) << 31).astype(np.uint32)
                given = (offsets, _active(stream), halves[0] | halves[1] << np.uint32(16), floats)
                zero = [
                    "mad.wide.u32 %g, %l, 16, %out;",
                    "mov.b32 %r15, 0;",
                    "st.global.v4.b32 [%g], {%r15, %r15, %r15, %r15};",
                ]
                at = "%g" if space == "global" else "%m"
                where = (
                    ["cvt.u64.u32 %g, %r0;", "add.u64 %g, %g, %out;"] if space == "global" else ["add.u32 %m, %r0, %s;"]
                )
                type = name.split(".")[-1]
                before = _BEFORE.get(type, "%r6") if ".v" not in name else None
                returns = stem == "atom" and before is not None and size <= 8
                destination = (
                    f"{before}, "
                    if before
                    else "{%f2, %f3}, "
                    if "v2" in name
                    else "{%f2, %f3, %f4, %f5}, "
                    if "f32" in name
                    else "{%r6, %r8, %r9, %r10}, "
                )
                call = f"@%on {stem}.{space}.{name} {destination if stem == 'atom' else ''}[{at}], {registers};"
                body = [*zero, *_ENABLE, "ld.global.u32 %r0, [%in0];", *_operands(), *where, "bar.warp.sync -1;"]
                body = [*_CLEAR, *body] if space == "shared" else body
                body += [call, "bar.warp.sync -1;"]
                if space == "shared":
                    body += [
                        "mad.lo.u32 %m, %l, 8, %s;",
                        "ld.shared.b64 %d5, [%m];",
                        "mad.wide.u32 %g, %l, 8, %out;",
                        "st.global.b64 [%g], %d5;",
                    ]
                if returns:
                    body += ["mad.wide.u32 %g, %l, 8, %out;", f"@%on st.global.{_stored(type)} [%g+{half}], {before};"]
                yield Question(f"{stem}.{space}.{name}", tuple(body), given)


def _stored(type: str) -> str:
    return (
        type
        if type in ("f32", "f64")
        else {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}.get(type, "b" + type[1:])
    )


_MASK = ("vote.sync.ballot.b32 %m, %on, -1;",)


def _warps() -> Iterator[Question]:
    """Shuffles with any control word and source lane, votes, matches and reductions of the lanes that execute."""
    for mode in ("up", "down", "bfly", "idx"):
        for who in ("all", "some"):
            stream = Stream("shfl", mode, who)
            values = stream.words((WARPS * LANES,)).astype(np.uint32)
            delta = stream.below(40, values.shape).astype(np.uint32) | (
                stream.chance(1, 8, values.shape) * np.uint32(0x12340040)
            )
            control = (stream.below(32, values.shape) | stream.below(32, values.shape) << 8).astype(np.uint32)
            plain = stream.chance(1, 2, values.shape)
            control = np.where(plain, np.uint32(0 if mode == "up" else 31), control).astype(np.uint32)
            control |= (stream.below(8, values.shape) << 13).astype(np.uint32)
            on = _active(stream) if who == "some" else np.ones(WARPS * LANES, np.uint32)
            body = [
                *_ENABLE, "ld.global.u32 %r2, [%in0];", "ld.global.u32 %r3, [%in2];", "ld.global.u32 %r4, [%in3];", *_MASK,
                "mov.u32 %r5, 0xeeeeeeee;", "setp.ne.u32 %p1, 0, 0;",
                f"@%on shfl.sync.{mode}.b32 %r5|%p1, %r2, %r3, %r4, %m;", "selp.u32 %r6, 1, 0, %p1;",
                "mad.wide.u32 %g, %l, 8, %out;", "st.global.v2.b32 [%g], {%r5, %r6};",
            ]  # fmt: skip
            yield Question(f"shfl.sync.{mode} of {who} lanes", tuple(body), (values, on, delta, control))
    for name, result in (
        ("vote.sync.all.pred", "p"),
        ("vote.sync.any.pred", "p"),
        ("vote.sync.uni.pred", "p"),
        ("vote.sync.ballot.b32", "r"),
    ):
        stream = Stream("vote", name)
        often = stream.below(9, (WARPS,))
        flags = np.concatenate([stream.chance(int(one), 8, (LANES,)) for one in often]).astype(np.uint32)
        to = "%p2" if result == "p" else "%r5"
        body = [
            *_ENABLE, "ld.global.u32 %r2, [%in0];", "setp.ne.u32 %p1, %r2, 0;", *_MASK, "mov.u32 %r5, 0;", "setp.ne.u32 %p2, 0, 0;",
            f"@%on {name} {to}, %p1, %m;", *(("selp.u32 %r5, 1, 0, %p2;",) if result == "p" else ()), "mad.wide.u32 %g, %l, 4, %out;", "st.global.b32 [%g], %r5;",
        ]  # fmt: skip
        yield Question(name, tuple(body), (flags, _active(stream)))
    for name in ("match.any.sync.b32", "match.any.sync.b64", "match.all.sync.b32", "match.all.sync.b64"):
        stream = Stream("match", name)
        few = np.repeat(stream.between(1, 6, (WARPS,)), LANES)
        values = (stream.below(1 << 20, few.shape) % few).astype(np.uint32)
        what = "%r2" if name.endswith("32") else "%d1"
        to = "%r5|%p1" if ".all." in name else "%r5"
        body = [
            *_ENABLE, "ld.global.u32 %r2, [%in0];", "mov.b64 %d1, {%r2, %r2};", *_MASK, "mov.u32 %r5, 0;", "setp.ne.u32 %p1, 0, 0;",
            f"@%on {name} {to}, {what}, %m;", "selp.u32 %r6, 1, 0, %p1;", "mad.wide.u32 %g, %l, 8, %out;", "st.global.v2.b32 [%g], {%r5, %r6};",
        ]  # fmt: skip
        yield Question(name, tuple(body), (values, _active(stream)))
    for name in ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"):
        stream = Stream("redux", name)
        values = stream.words((WARPS * LANES,)).astype(np.uint32)
        body = [
            *_ENABLE, "ld.global.u32 %r2, [%in0];", *_MASK, "mov.u32 %r5, 0;", f"@%on redux.sync.{name} %r5, %r2, %m;", "mad.wide.u32 %g, %l, 4, %out;",
            "st.global.b32 [%g], %r5;",
        ]  # fmt: skip
        yield Question(f"redux.sync.{name}", tuple(body), (values, _active(stream)))
    stream = Stream("activemask")
    body = [
        *_ENABLE,
        "mov.u32 %r5, 0;",
        "@%on activemask.b32 %r5;",
        "mad.wide.u32 %g, %l, 4, %out;",
        "st.global.b32 [%g], %r5;",
    ]
    yield Question("activemask", tuple(body), (_active(stream), _active(stream)))


def _arrivals() -> Iterator[Question]:
    """The states that the lanes of a warp get of arriving at one mbarrier, and what it holds then; of some lanes, with counts, twice."""
    for name, times, operand in (("once", 1, ""), ("twice", 2, ""), ("with a count", 1, ", %r2")):
        for expected in (32, 64, 20):
            stream = Stream("arrive", name, expected)
            counts = stream.between(1, 3, (WARPS * LANES,)).astype(np.uint32)
            arrive = [f"@%on mbarrier.arrive.shared.b64 %d{1 + k}, [%s]{operand};" for k in range(times)]
            if expected < 32 and (operand or times > 1):  # more arrivals than are pending fault
                continue
            body = [
                *_ENABLE, "ld.global.u32 %r2, [%in0];", "setp.eq.u32 %p1, %l, 0;", f"@%p1 mbarrier.init.shared.b64 [%s], {expected * 3};",
                "mov.b64 %d1, 0;", "mov.b64 %d2, 0;", "bar.warp.sync -1;", *arrive, "bar.warp.sync -1;", "ld.shared.b64 %d3, [%s];",
                "mad.wide.u32 %g, %l, 16, %out;", "st.global.v2.b64 [%g], {%d1, %d2};", "setp.eq.u32 %p2, %l, 7;", "@%p2 st.global.b64 [%g], %d3;",
            ]  # fmt: skip
            yield Question(f"mbarrier.arrive {name} of {expected * 3}", tuple(body), (counts, _active(stream)))


def _flushing() -> Iterator[Question]:
    """Whether an atomic sum of f32 takes subnormal numbers as zeros, and makes zeros of them, where the address is generic or of the cluster."""
    small = np.array(
        [
            0,
            1,
            0x007FFFFF,
            0x00800000,
            0x00800001,
            0x00FFFFFF,
            0x3F800000,
            0x7F7FFFFF,
            0x7F800000,
            0x7FC12345,
            0x7F812345,
        ],
        np.uint32,
    )
    small = np.concatenate([small, small | np.uint32(1 << 31)])
    stream = Stream("flushing")
    old, add = (stream.choice(small, (WARPS * LANES,)) for _ in range(2))
    at = {
        "global": "[%g]",
        "shared": "[%m]",
        "shared::cluster": "[%m]",
        "generic at global": "[%g]",
        "generic at shared": "[%d8]",
    }
    for where, address in at.items():
        dot = "" if where.startswith("generic") else f".{where}"
        shared = "shared" in where
        for stem in ("atom", "red"):
            for type in ("f32", "f64"):
                register = "%f" if type == "f32" else "%e"
                ask = f"{stem}{dot}.add.{type} {f'{register}3, ' if stem == 'atom' else ''}{address}, {register}2;"
                body = [
                    "ld.global.u32 %r1, [%in0];", "ld.global.u32 %r2, [%in1];", "mov.b32 %f1, %r1;", "mov.b32 %f2, %r2;", "mov.b64 %d1, {0, %r1};",
                    "mov.b64 %d2, {0, %r2};", "mov.b64 %e1, %d1;", "mov.b64 %e2, %d2;", "mad.lo.u32 %m, %l, 8, %s;", "cvt.u64.u32 %d8, %m;",
                    "cvta.shared.u64 %d8, %d8;", "mad.wide.u32 %g, %l, 8, %out;", f"st.global.{type} [%g], {register}1;", f"st.shared.{type} [%m], {register}1;",
                    ask, *((f"ld.shared.{type} {register}1, [%m];", f"st.global.{type} [%g], {register}1;") if shared else ()),
                    *((f"st.global.{type} [%g+{REGION // 2}], {register}3;",) if stem == "atom" else ()),
                ]  # fmt: skip
                yield Question(f"{stem}.add.{type} {where}", tuple(body), (old, add))


_CONSTANT = (
    "laneid", "nwarpid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "tid.x", "tid.y", "ntid.x", "ntid.z", "ctaid.x",
    "ctaid.y", "nctaid.x", "nctaid.y", "clusterid.x", "nclusterid.x", "cluster_ctaid.x", "cluster_nctaid.x", "cluster_ctarank", "cluster_nctarank",
    "total_smem_size", "aggr_smem_size", "dynamic_smem_size", "nsmid", "envreg1", "envreg2", "envreg31", "reserved_smem_offset_0",
    "reserved_smem_offset_1",
)  # fmt: skip


def _specials() -> Iterator[Question]:
    """Special registers that do not change from run to run, and where a block's shared memory begins.

    Not %warpid, which on an H200 is a warp's place on its multiprocessor and changes from run to run, nor %envreg0, where the driver keeps
    something of its own (0x38432c8 on the day).
    """
    show = ["mad.wide.u32 %g, %l, 4, %out;", "st.global.u32 [%g], %r2;"]
    given = (_active(Stream("specials")),)
    for name in _CONSTANT:
        yield Question(f"mov.u32 of {name}", (f"mov.u32 %r2, %{name};", *show), given)
    for name in ("is_explicit_cluster",):
        yield Question(f"mov.pred of {name}", (f"mov.pred %p1, %{name};", "selp.u32 %r2, 1, 0, %p1;", *show), given)
    for name in ("reserved_smem_offset_begin", "reserved_smem_offset_end", "reserved_smem_offset_cap"):
        yield Question(f"mov.b32 of {name}", (f"mov.b32 %r2, %{name};", *show), given)
    yield Question(
        "mov.u64 of current_graph_exec", ("mov.u64 %d1, %current_graph_exec;", "cvt.u32.u64 %r2, %d1;", *show), given
    )
    yield Question("address of shared memory", ("mov.u32 %r2, region;", *show), given)


_LOADED = "a plain load gives what memory held before mbarrier.init: an H200 keeps the object elsewhere until mbarrier.inval (conformance.isa.mbarrier.held)"
DIFFERENT = {
    f"mbarrier.arrive {how}": (range(7 * 16, 7 * 16 + 8), _LOADED)
    for how in ("once of 96", "once of 192", "once of 60", "twice of 96", "twice of 192", "with a count of 96", "with a count of 192")
}  # fmt: skip
"""Questions that the model answers otherwise than an H200: which bytes of a warp's region, and why. All other bytes are equal."""


@cache
def questions() -> dict[str, Question]:
    """Every question by its name."""
    return {own.name: own for part in (_stores, _atomics, _flushing, _warps, _specials, _arrivals) for own in part()}


def answer(question: Question) -> Codes:
    """The output that the model of a kernel gives: uint8 (bytes). Raises TcsimError where the kernel cannot be run."""
    memory = tcsim.ptx.Memory()
    pointers = [memory.allocate(codes.view(np.uint8)) for codes in question.inputs]
    out = memory.allocate(np.full(question.out_bytes, _FILL, np.uint8))
    run = (
        tcsim.ptx.parse(question.ptx).kernel().launch(memory, [*pointers, out], grid=(WARPS, 1, 1), block=(LANES, 1, 1))
    )
    if not run.completed:
        raise ValueError(f"{question.name}: {run.hazards[0].message}")
    return np.asarray(memory.read(out, question.out_bytes))


def judged(question: Question, hardware: Codes) -> str:
    """Whether the model gives the hardware's answer, in words."""
    try:
        model = answer(question)
    except (TcsimError, ValueError) as error:
        return f"not modelled: {error}"[:200]
    wrong = np.flatnonzero(model != hardware)
    if not len(wrong):
        return "equal"
    at = int(wrong[0])
    return f"{len(wrong)} bytes differ, first {at}: hardware {hardware[at]:#x} model {model[at]:#x}"
