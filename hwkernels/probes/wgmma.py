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
from hwkernels.probes.templates import filled, pointers
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
    if form.name == "ss":
        names["a"] = "%descriptor_a"
        loads = [
            "mad.wide.u32 %address, %sample, 8, %base_a;",
            "ld.global.u64 %descriptor_a, [%address];",
            "add.u64 %descriptor_a, %descriptor_a, %base64;",
        ]
    else:
        loads = transfer(a, "ld")
    loads += transfer(d, "ld", base="c")  # the accumulator, in place
    for operand in metadata:
        loads += transfer(operand, "ld")
    values = {
        "entry": entry,
        "parameters": ", ".join([*(f".param .u64 {name}" for name in parameters), ".param .u32 bytes"]),
        "threads": THREADS,
        "all_threads_bytes": THREADS * 16,
    }
    blocks = {
        "bases": [f".reg .u64 %base_{name};" for name in parameters],
        "registers": [declaration(operand) for operand in (d, *((a,) if form.name == "rs" else ()), *metadata)],
        "pointers": pointers(parameters),
        "loads": loads,
        "statement": [form.statement(row.mnemonic, names)],
        "stores": transfer(d, "st"),
    }
    return filled("wgmma", values, blocks)


BODIES = {"wgmma": BODY, "wgmma.sp": BODY}
