"""Probes of wgmma, dense and sparse: one warpgroup copies an image into shared memory, issues one instruction, waits, stores.

Inputs by name, first axis the sample (one block of 128 threads each): `image` uint8 (samples, bytes), `a` uint64
(samples,) descriptors or uint32 (samples, 128, registers), `b` uint64 (samples,), `c` uint32 (samples, 128, registers),
`scale_d` uint32 (samples,), and the immediates `scale_a`, `scale_b`, `trans_a`, `trans_b`, each (samples,) of one value. Of a sparse A also
`metadata` uint32 (samples, 128, 1), and `selector` (samples,) of one value.
Descriptors count addresses from the start of the image, which lies at a multiple of 1024 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from hwkernels.probes import Array, Plan
from hwkernels.probes.mma import Vector, operand_vectors
from tcsim.isa.wgmma.multiply import WarpgroupFacts
from tcsim.model.row import Row

THREADS = 128
ALL_FORMS_N = 64  # the N for which every combination of immediates has a kernel; others: all ones and zeros
IMMEDIATES = ("scale_a", "scale_b", "trans_a", "trans_b")


def _facts(row: Row) -> WarpgroupFacts:
    if not isinstance(row.facts, WarpgroupFacts):
        raise TypeError(f"{row.mnemonic} has no warpgroup facts")
    return row.facts


@dataclass(frozen=True)
class Form:
    """One way to write the instruction's operands."""

    source: str  # where A is: "ss" in shared memory, "rs" in registers
    immediates: tuple[int, ...]  # those after scale-d, in PTX order
    selector: int | None = None  # of metadata

    @property
    def name(self) -> str:
        """The form in the name of a kernel."""
        selector = () if self.selector is None else (f"s{self.selector}",)
        return "_".join([self.source, *selector, *(str(value).replace("-", "m") for value in self.immediates)])


class WarpgroupBody:
    """d = c + a b, each warpgroup by itself."""

    def forms(self, row: Row) -> dict[str, Form]:
        """Variant -> its operands."""
        facts = _facts(row)
        everything = row.shape[1] == ALL_FORMS_N
        signs = list(product((1, -1), repeat=2)) if facts.signs and everything else [(1, 1)] if facts.signs else [()]
        forms = {}
        for source in ("ss", "rs"):
            count = 0 if not facts.majors else 2 if source == "ss" else 1
            majors = list(product((0, 1), repeat=count)) if everything else [(0,) * count]
            for selector, sign, major in product(
                facts.sparsity.selectors if facts.sparsity else (None,), signs, majors
            ):
                form = Form(source, (*sign, *major), selector)
                forms[form.name] = form
        return forms

    def variants(self, row: Row) -> tuple[str, ...]:
        """Every form."""
        return tuple(self.forms(row))

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return _kernel(row, name, self.forms(row)[variant])

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """One block a sample."""
        facts, samples = _facts(row), len(inputs["image"])
        source = "rs" if inputs["a"].ndim == 3 else "ss"
        names = [*(("scale_a", "scale_b") if facts.signs else ())]
        names += [*(("trans_a", "trans_b") if source == "ss" else ("trans_b",))] if facts.majors else []
        arrays = ["image", "a", "b", "c", "scale_d"] + (["metadata"] if facts.sparsity else [])
        selector = _one(inputs, "selector") if facts.sparsity else None
        form = Form(source, tuple(_one(inputs, name) for name in names), selector)
        if form.name not in self.forms(row):
            raise ValueError(f"{row.mnemonic} has no probe of {form.name}; valid: {', '.join(self.forms(row))}")
        d = row.operands["d"]
        size = inputs["image"].shape[1]
        if size % 16:
            raise ValueError(f"an image of {size} bytes is no multiple of 16")
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[name]) for name in arrays),
            output=((samples, d.lanes, d.registers), np.dtype(np.uint32)),
            scalars=(np.uint32(size),),
            grid=(samples, 1, 1),
            block=(THREADS, 1, 1),
            variant=form.name,
            shared_bytes=size + 1024,
        )


BODY = WarpgroupBody()


def _one(inputs: dict[str, Array], name: str) -> int:
    """The value that an immediate has in a whole batch."""
    values = np.unique(inputs[name])
    if len(values) != 1:
        raise ValueError(f"a batch has one {name}, not {values.tolist()}")
    return int(values[0])


def _kernel(row: Row, entry: str, form: Form) -> str:
    vectors, source = operand_vectors(row), form.source
    d = vectors["d"]
    loaded = Vector("d", d.kind, d.count, d.words)  # the accumulator, in place
    metadata = [Vector("metadata", ".b32", 1, 1, bare=True)] if form.selector is not None else []
    parameters = ["image", "a", "b", "c", "scale_d", *(vector.name for vector in metadata), "d"]
    body = [
        ".reg .pred %more, %scale;",
        ".reg .u32 %thread, %lane, %sample, %bytes, %offset, %shared, %flag, %w<4>;",
        ".reg .u64 %address, %place, %base64, %descriptor_b, %descriptor_a;",
        *(f".reg .u64 %base_{name};" for name in parameters),
        f".reg {d.kind} %d<{d.count}>;",
        *((f".reg .b32 %a<{vectors['a'].count}>;",) if source == "rs" else ()),
        *(f".reg {vector.kind} %{vector.name}<{vector.count}>;" for vector in metadata),
        "mov.u32 %lane, %tid.x;",
        "mov.u32 %sample, %ctaid.x;",
        f"mad.lo.u32 %thread, %sample, {THREADS}, %lane;",
        "ld.param.u32 %bytes, [bytes];",
    ]
    for name in parameters:
        body += [f"ld.param.u64 %base_{name}, [{name}];", f"cvta.to.global.u64 %base_{name}, %base_{name};"]
    body += [  # the image, 16 bytes a thread at a time
        f"mov.u32 %shared, image_{entry};",
        "mad.wide.u32 %base_image, %sample, %bytes, %base_image;",
        "shl.b32 %offset, %lane, 4;",
        "copy:",
        "setp.lt.u32 %more, %offset, %bytes;",
        "@!%more bra copied;",
        "cvt.u64.u32 %place, %offset;",
        "add.u64 %address, %base_image, %place;",
        "ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%address];",
        "add.u32 %flag, %shared, %offset;",
        "st.shared.v4.u32 [%flag], {%w0, %w1, %w2, %w3};",
        f"add.u32 %offset, %offset, {THREADS * 16};",
        "bra copy;",
        "copied:",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "shr.u32 %shared, %shared, 4;",
        "cvt.u64.u32 %base64, %shared;",
        "mad.wide.u32 %address, %sample, 8, %base_b;",
        "ld.global.u64 %descriptor_b, [%address];",
        "add.u64 %descriptor_b, %descriptor_b, %base64;",
        "mad.wide.u32 %address, %sample, 4, %base_scale_d;",
        "ld.global.u32 %flag, [%address];",
        "setp.ne.u32 %scale, %flag, 0;",
    ]
    if source == "ss":
        body += [
            "mad.wide.u32 %address, %sample, 8, %base_a;",
            "ld.global.u64 %descriptor_a, [%address];",
            "add.u64 %descriptor_a, %descriptor_a, %base64;",
        ]
    else:
        body += vectors["a"].transfer("ld")
    body += [line.replace("%base_d", "%base_c") for line in loaded.transfer("ld")]
    a = "%descriptor_a" if source == "ss" else vectors["a"].text
    for vector in metadata:
        body += vector.transfer("ld")
    sparse = [word for vector in metadata for word in (vector.text, str(form.selector))]
    operands = ", ".join([d.text, a, "%descriptor_b", *sparse, "%scale", *map(str, form.immediates)])
    body += [
        "wgmma.fence.sync.aligned;",
        f"{row.mnemonic} {operands};",
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        *d.transfer("st"),
        "ret;",
    ]
    text = "\n".join(line if line.endswith(":") else f"    {line}" for line in body)
    listed = ", ".join([*(f".param .u64 {name}" for name in parameters), ".param .u32 bytes"])
    return (
        f"\n.extern .shared .align 1024 .b8 image_{entry}[];\n.visible .entry {entry}({listed})\n.maxntid {THREADS}, 1, 1\n"
        f"{{\n{text}\n}}\n"
    )


BODIES = {"wgmma": BODY, "wgmma.sp": BODY}
