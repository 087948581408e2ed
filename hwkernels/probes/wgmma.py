"""Probes of wgmma, dense and sparse: one warpgroup copies an image into shared memory, issues one instruction, waits, stores.

Inputs by name, first axis the sample (one block of 128 threads each): `image` uint8 (samples, bytes), `a` uint64
(samples,) descriptors or uint32 (samples, 128, registers), `b` uint64 (samples,), `c` uint32 (samples, 128, registers),
`scale_d` uint32 (samples,), and the immediates `scale_a`, `scale_b`, `trans_a`, `trans_b`, each (samples,) of one value. Of a sparse A also
`metadata` uint32 (samples, 128, 1), and `selector` (samples,) of one value.
Descriptors count addresses from the start of the image, which lies at a multiple of 1024 bytes.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.mma import declaration, transfer
from tcsim.model.form import Form

THREADS = 128
ALL_FORMS_N = 64  # the N for which every combination of immediates has a kernel; others: all ones and zeros

Immediates = dict[str, int]


class WarpgroupBody(Body):
    """d = c + a b, each warpgroup by itself."""

    def variants(self, row: Any) -> tuple[str, ...]:
        """A in shared memory or in registers, and the values of the immediates."""
        return tuple(_variants(row))

    def kernel(self, row: Any, name: str, variant: str) -> str:
        """PTX of the entry point."""
        return _kernel(row, name, *_variants(row)[variant])

    def plan(self, row: Any, inputs: dict[str, Array]) -> Plan:
        """One block for each sample."""
        form = row.forms[inputs["a"].ndim == 3]
        variant = _variant(form, {name: _one(inputs, name) for name in _immediates(form)})
        if variant not in _variants(row):
            raise ValueError(f"{row.mnemonic} has no probe of {variant}; valid: {', '.join(_variants(row))}")
        d, samples = row.operands["d"], len(inputs["image"])
        size = inputs["image"].shape[1]
        if size % 16:
            raise ValueError(f"an image of {size} bytes is not a multiple of 16")
        return Plan(
            inputs=tuple(np.ascontiguousarray(inputs[name]) for name in _arrays(form)),
            output=((samples, d.lanes, d.registers), np.dtype(np.uint32)),
            scalars=(np.uint32(size),),
            grid=(samples, 1, 1),
            block=(THREADS, 1, 1),
            variant=variant,
            shared_bytes=size + 1024,
        )


def _immediates(form: Form) -> dict[str, tuple[int, ...]]:
    """The values of each immediate."""
    return {operand.name: operand.values for operand in form.operands if operand.kind == "immediate"}


def _variant(form: Form, immediates: Immediates) -> str:
    """A form and the values of its immediates in the name of a kernel."""
    values = (("s" if name == "selector" else "") + str(value).replace("-", "m") for name, value in immediates.items())
    return "_".join((form.name, *values))


def _variants(row: Any) -> dict[str, tuple[Form, Immediates]]:
    """The kernels of a row by variant: all values of the metadata's selector; of other immediates the first, or all for one N."""
    found = {}
    for form in row.forms:
        names = _immediates(form)
        every = [v if row.shape[1] == ALL_FORMS_N or name == "selector" else v[:1] for name, v in names.items()]
        for values in product(*every):
            immediates = dict(zip(names, values, strict=True))
            found[_variant(form, immediates)] = form, immediates
    return found


def _arrays(form: Form) -> list[str]:
    """The inputs of a kernel, in the order of its parameters."""
    return ["image", "a", "b", "c", "scale_d", *(["metadata"] if "metadata" in form else [])]


BODY = WarpgroupBody()


def _one(inputs: dict[str, Array], name: str) -> int:
    """The value that an immediate has in a whole batch."""
    values = np.unique(inputs[name])
    if len(values) != 1:
        raise ValueError(f"a batch has one {name}, not {values.tolist()}")
    return int(values[0])


def _kernel(row: Any, entry: str, form: Form, immediates: Immediates) -> str:
    d, a = form["d"], form["a"]
    metadata = [form["metadata"]] if "metadata" in form else []
    parameters = [*_arrays(form), "d"]
    names = {name: str(value) for name, value in immediates.items()}
    names |= {"b": "%descriptor_b", "scale_d": "%scale", "metadata": "%metadata0"}
    body = [
        ".reg .pred %more, %scale;",
        ".reg .u32 %thread, %lane, %sample, %bytes, %offset, %shared, %flag, %w<4>;",
        ".reg .u64 %address, %place, %base64, %descriptor_b, %descriptor_a;",
        *(f".reg .u64 %base_{name};" for name in parameters),
        declaration(d),
        *((declaration(a),) if form.name == "rs" else ()),
        *map(declaration, metadata),
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
    if form.name == "ss":
        names["a"] = "%descriptor_a"
        body += [
            "mad.wide.u32 %address, %sample, 8, %base_a;",
            "ld.global.u64 %descriptor_a, [%address];",
            "add.u64 %descriptor_a, %descriptor_a, %base64;",
        ]
    else:
        body += transfer(a, "ld")
    body += transfer(d, "ld", base="c")  # the accumulator, in place
    for operand in metadata:
        body += transfer(operand, "ld")
    body += [
        "wgmma.fence.sync.aligned;",
        form.statement(row.mnemonic, names),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
        *transfer(d, "st"),
        "ret;",
    ]
    text = "\n".join(line if line.endswith(":") else f"    {line}" for line in body)
    listed = ", ".join([*(f".param .u64 {name}" for name in parameters), ".param .u32 bytes"])
    return (
        f"\n.extern .shared .align 1024 .b8 image_{entry}[];\n.visible .entry {entry}({listed})\n.maxntid {THREADS}, 1, 1\n"
        f"{{\n{text}\n}}\n"
    )


BODIES = {"wgmma": BODY, "wgmma.sp": BODY}
