"""Probes of tcgen05.mma: a CTA, or a pair, fills its Tensor Memory, issues one instruction, waits, and stores all of it.

Inputs by name, first axis the sample (one CTA of 128 threads, or a cluster of two, each):
`image` uint8 (samples, ctas, bytes), copied into shared memory at a multiple of 1024 bytes, from whose start
descriptors count; `tmem` uint32 (samples, ctas, 128, columns), written to Tensor Memory before the instruction: columns
must be a number that tcgen05.alloc takes, and addresses count from what it returns; and of one value a sample `d`, `idesc`,
`enable_d`, `a` and `b` (uint64 descriptors; `a` uint32 for an address), `scale_a`, `scale_b`, `metadata`, `lookup` (uint32
addresses), `mask` (uint64), `lanes` uint32 (samples, 4 or 8), and the immediate `scale_d`, the same for all samples.
The result is Tensor Memory afterwards, shaped as `tmem`: what the instruction must leave alone is compared too.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from hwkernels.probes.templates import filled, pointers
from tcsim.isa.tcgen05.mma_rows import MultiplyRow
from tcsim.model.form import Form
from tcsim.model.operand import Names

THREADS = 128
WAITS = 1 << 16  # tries of the barrier before the kernel gives up and traps
_WORDS = (
    "d",
    "a",
    "idesc",
    "enable_d",
    "scale_a",
    "scale_b",
    "metadata",
    "lookup",
)  # 32-bit operands, then 8 lane masks
_WIDE = ("a", "b", "mask")  # 64-bit operands
_ALONE = 120 * 1024  # bytes of shared memory: more than half of an SM's, so that no two CTAs share its Tensor Memory
_PER_STORE = 8  # columns that one tcgen05.st or .ld moves


def immediates(row: MultiplyRow, form: Form) -> tuple[int | None, ...]:
    """The values of scale-input-d that a form has a kernel for: the ends too where nothing else is said."""
    if "scale_input_d" not in form:
        return (None,)
    if "disable_output_lane" in form or row.ashift or row.collectors:
        return (3,)
    return (0, 3, 15) if form["scale_input_d"].values else (0, 3, 15, 16)


class TensorMemoryMultiplyBody(Body):
    """D = A B + D in Tensor Memory."""

    def forms(self, row: MultiplyRow) -> dict[str, tuple[Form, int | None]]:
        """Variant -> its operand form and its immediate scale-input-d."""
        return {
            form.name + ("" if value is None else str(value)): (form, value)
            for form in row.forms
            for value in immediates(row, form)
        }

    def variants(self, row: MultiplyRow) -> tuple[str, ...]:
        """Every form."""
        return tuple(self.forms(row))

    def forms_on(self, row: MultiplyRow, target: str) -> tuple[str, ...]:
        """The forms that a target takes: sm_110 has no scale-input-d."""
        return tuple(name for name, (form, _) in self.forms(row).items() if target in form.targets)

    def scaffold(self, row: MultiplyRow) -> dict[str, int]:
        """Opcodes around the instruction: allocate and free, fill and drain, commit."""
        pair = ".2CTA" if row.cta_group == 2 else ""
        moves = {f"STTM.x{_PER_STORE}": 1, f"LDTM.x{_PER_STORE}": 1}
        return {f"UTCATOMSWS{pair}.FIND_AND_SET.ALIGN": 2, "UTCATOMSWS.AND": 1, f"UTCBAR{pair}": 1, **moves}

    def kernel(self, row: MultiplyRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        form, value = self.forms(row)[variant]
        return _kernel(row, name, form, value)

    def variant(self, row: MultiplyRow, inputs: dict[str, Array]) -> str:
        """The form that a batch needs."""
        scales = np.unique(inputs["scale_d"]).tolist() if "scale_d" in inputs else [None]
        if len(scales) != 1:
            raise ValueError(f"a batch has one scale_d, not {scales}")
        a = "desc" if inputs["a"].dtype == np.uint64 else "tmem"
        form = row.form(a, lanes="lanes" in inputs, scale=scales[0] is not None, mask="mask" in inputs)
        if form is None:
            raise ValueError(f"{row.mnemonic} has no form with {sorted(inputs)}")
        return form.name + ("" if scales[0] is None else str(scales[0]))

    def plan(self, row: MultiplyRow, inputs: dict[str, Array]) -> Plan:
        """One CTA, or a cluster of two, for each sample."""
        image, tmem = inputs["image"], inputs["tmem"]
        samples, ctas, size = image.shape
        if size % 16 or tmem.shape[:3] != (samples, ctas, 128) or ctas != row.cta_group:
            raise ValueError(f"{row.mnemonic}: image {image.shape} and tmem {tmem.shape} do not fit it")
        words, wide = np.zeros((samples, 16), np.uint32), np.zeros((samples, 4), np.uint64)
        for place, name in enumerate(_WORDS):
            if name in inputs and inputs[name].dtype != np.uint64:
                words[:, place] = inputs[name]
        for place, name in enumerate(_WIDE):
            if name in inputs and inputs[name].dtype == np.uint64:
                wide[:, place] = inputs[name]
        if "lanes" in inputs:
            words[:, 8 : 8 + inputs["lanes"].shape[1]] = inputs["lanes"]
        columns = tmem.shape[3]
        return Plan(
            inputs=(np.ascontiguousarray(image), np.ascontiguousarray(tmem, np.uint32), words, wide),
            output=(tmem.shape, np.dtype(np.uint32)),
            scalars=(np.uint32(size), np.uint32(columns)),
            grid=(samples * ctas, 1, 1),
            block=(THREADS, 1, 1),
            variant=self.variant(row, inputs),
            shared_bytes=max(size + 1024, _ALONE),
            cluster=(ctas, 1, 1) if ctas > 1 else None,
        )


BODY = TensorMemoryMultiplyBody()


_NAMES: Names = {"b": "%desc_b", "enable_input_d": "%enable", "zero_column_mask": "%mask"}


def statement(row: MultiplyRow, form: Form, scale_d: int | None) -> str:
    """The instruction, its operands in the registers that the kernel loads."""
    lanes = tuple(f"%lanes{i}" for i in range(4 * row.cta_group))
    a = "%a" if form["a"].space else "%desc_a"
    return form.statement(row.mnemonic, {**_NAMES, "a": a, "disable_output_lane": lanes, "scale_input_d": str(scale_d)})


def _loads(row: MultiplyRow, form: Form) -> list[str]:
    """The operands of this sample into registers, rebased onto the image and the allocation."""
    lines = ["mad.wide.u32 %address, %sample, 64, %base_words;", "mad.wide.u32 %place, %sample, 32, %base_wide;"]
    cells = [name for name in ("a", "metadata", "lookup", "scale_a", "scale_b") if name in form and form[name].space]
    for name in ("d", "idesc", *cells):
        lines.append(f"ld.global.u32 %{name}, [%address+{4 * _WORDS.index(name)}];")
        lines += [f"add.u32 %{name}, %{name}, %tmem;"] if name != "idesc" else []
    lines += [f"ld.global.u32 %flag, [%address+{4 * _WORDS.index('enable_d')}];", "setp.ne.u32 %enable, %flag, 0;"]
    if "disable_output_lane" in form:
        lines += [f"ld.global.u32 %lanes{i}, [%address+{32 + 4 * i}];" for i in range(4 * row.cta_group)]
    lines += ["shr.u32 %flag, %image, 4;", "cvt.u64.u32 %image64, %flag;"]
    for name in ("a", "b"):
        if not form[name].space:
            lines.append(f"ld.global.u64 %desc_{name}, [%place+{8 * _WIDE.index(name)}];")
            lines.append(f"add.u64 %desc_{name}, %desc_{name}, %image64;")
    lines += [f"ld.global.u64 %mask, [%place+{8 * _WIDE.index('mask')}];"] if "zero_column_mask" in form else []
    return lines


def _kernel(row: MultiplyRow, entry: str, form: Form, scale_d: int | None) -> str:
    pair = row.cta_group == 2
    barrier = ["barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;"] if pair else ["bar.sync 0;"]
    parameters = ["image", "tmem", "words", "wide", "result"]
    names = [*_WORDS, "flag", "image", "thread", "warp", "sample", "rank", "cta", "bytes", "columns", "offset"]
    names += ["tmem", "own", "column", "count", "slot", "bar", "tries"]
    listed = [*(f".param .u64 {name}" for name in parameters), ".param .u32 bytes", ".param .u32 columns"]
    values = {
        "entry": entry,
        "parameters": ", ".join(listed),
        "threads": THREADS,
        "all_threads_bytes": THREADS * 16,
        "words": ", ".join("%" + name for name in names),
        "pair": int(pair),
        "group": f".cta_group::{row.cta_group}",
        "shape": f"sync.aligned.32x32b.x{_PER_STORE}.b32",
        "vector": "{" + ", ".join(f"%w{i}" for i in range(_PER_STORE)) + "}",
        "per_store": _PER_STORE,
        "per_store_bytes": 4 * _PER_STORE,
        "waits": WAITS,
    }
    blocks = {
        "bases": [f".reg .b64 %base_{name};" for name in parameters],
        "pointers": pointers(parameters),
        "meet": ["tcgen05.fence::before_thread_sync;", *barrier, "tcgen05.fence::after_thread_sync;"],
        "fetches": [f"ld.global.u32 %w{i}, [%place+{4 * i}];" for i in range(_PER_STORE)],
        "loads": _loads(row, form),
        "statement": [statement(row, form, scale_d)],
        "puts": [f"st.global.u32 [%place+{4 * i}], %w{i};" for i in range(_PER_STORE)],
    }
    return filled("tcgen05_mma", values, blocks)


BODIES = {"tcgen05.mma": BODY, "tcgen05.mma.sp": BODY, "tcgen05.mma.ws": BODY, "tcgen05.mma.ws.sp": BODY}
