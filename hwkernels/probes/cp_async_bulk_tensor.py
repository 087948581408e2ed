"""Probes of the tensor copies: one block a sample, whose tensor map, box, shared and global memory are its own.

A load fills shared memory with poison, waits at an mbarrier for the exact number of bytes, and copies shared memory out. A
store or reduction copies shared memory in and the global memory over, and waits for its bulk group. Thread 0 issues.

Two operand forms: `table`, where each sample's map lies in global memory, gets its address there, and is fenced for the
tensor-map proxy; and `param`, where one sample's map is a kernel parameter of 128 bytes, .align 64.

Inputs by name, first axis the sample: `maps` uint8 (samples, 128), `memory` uint8 (samples, MEMORY_BYTES), `coordinates`
int32 (samples, 5), `offsets` uint32 (samples, 3), `address` uint32 (samples,) from the start of shared memory, `expect`
uint32 (samples,) bytes; of stores `image` uint8 (samples, IMAGE_BYTES). `maps` are as `hwkernels.device.map_bytes` carries them. That
the address of an im2col-wide map lies where that of other maps does is assumed.
"""

from __future__ import annotations

import numpy as np

from hwkernels.device.driver import POISON
from hwkernels.probes import Array, Body, Plan
from tcsim.isa.cp_async_bulk_tensor.semantics import TensorCopyRow
from tcsim.model.operand import Names

MEMORY_BYTES = 8192
"""Global memory of one sample."""
IMAGE_BYTES = 8192
"""Shared memory of one sample; it starts at a multiple of 1024 bytes, so that swizzles see the addresses of the model."""
W128_IMAGE_BYTES = 32768
"""Shared memory of one sample of .im2col::w::128: 128 pixels and up to 124 of halos, 128 bytes apart."""
THREADS = 128
VARIANTS = ("table", "param")
LOADED, STORED, HINTED = (
    ("memory", "coordinates", "offsets", "address", "expect"),
    ("memory", "coordinates", "address", "image"),
    ("memory", "coordinates", "offsets"),
)
"""Inputs of the three shapes, in the order of the parameters, without the maps."""
_STEP = THREADS * 16
_WIDTHS = {"memory": MEMORY_BYTES, "result": MEMORY_BYTES, "maps": 128, "coordinates": 20, "offsets": 12, "address": 4,
           "expect": 4}  # fmt: skip
_TYPES = {"memory": np.uint8, "image": np.uint8, "maps": np.uint8, "coordinates": np.int32, "offsets": np.uint32,
          "address": np.uint32, "expect": np.uint32}  # fmt: skip


def image_bytes(row: TensorCopyRow) -> int:
    """Shared memory of one sample of a spelling."""
    return W128_IMAGE_BYTES if row.wide_mode == "W128" else IMAGE_BYTES


class TensorBody(Body):
    """What the three shapes share."""

    ptx_version = "8.3"  # fence.proxy.tensormap

    def variants(self, row: TensorCopyRow) -> tuple[str, ...]:
        """The map in global memory, and as a parameter."""
        return VARIANTS

    def forms_on(self, row: TensorCopyRow, target: str) -> tuple[str, ...]:
        """Both: each has the row's only list of operands."""
        return VARIANTS

    def kernel(self, row: TensorCopyRow, name: str, variant: str) -> str:
        """PTX of the entry point."""
        names = [*_inputs(row), "image" if row.operation == "load" else "result"]
        if variant == "table":
            names.insert(0, "maps")
        listed = [f".param .u64 {name}" for name in names]
        if variant == "param":
            listed.append(".param .align 64 .b8 map[128]")
        body = [*_DECLARED, *_pointers(row, names), *_map_address(variant), *_coordinates(row)]
        shape = {"load": _load, "prefetch": _prefetch}.get(row.operation, _store)
        text = "\n".join(f"    {line}" for line in (*body, *shape(row, variant), "ret;"))
        return f"\n.visible .entry {name}({', '.join(listed)})\n{{\n{text}\n}}\n"

    def plan(self, row: TensorCopyRow, inputs: dict[str, Array]) -> Plan:
        """One block a sample; of a single sample the map is a parameter."""
        names = _inputs(row)
        samples = len(inputs["maps"])
        arrays = [_checked(row, name, inputs[name], samples) for name in names]
        maps = _checked(row, "maps", inputs["maps"], samples)
        output_bytes = image_bytes(row) if row.operation == "load" else MEMORY_BYTES
        output = ((samples, output_bytes // 4), np.dtype(np.uint32))
        tensor = names.index("memory") if row.operation in ("load", "prefetch") else len(names)  # or the result
        if samples == 1:
            return Plan(
                tuple(arrays), output, (), (1, 1, 1), (THREADS, 1, 1), "param",
                tensor_maps=(maps[0].tobytes(),), tensor_map_buffers=(tensor,), driver_maps=True,
            )  # fmt: skip
        return Plan(
            (maps, *arrays), output, (), (samples, 1, 1), (THREADS, 1, 1), "table", driver_map_table=0, driver_maps=True
        )  # fmt: skip


BODY = TensorBody()


def _inputs(row: TensorCopyRow) -> tuple[str, ...]:
    return {"load": LOADED, "prefetch": HINTED}.get(row.operation, STORED)


def _width(row: TensorCopyRow, name: str) -> int:
    return image_bytes(row) if name == "image" else _WIDTHS[name]


def _checked(row: TensorCopyRow, name: str, array: Array, samples: int) -> Array:
    width = _width(row, name) // np.dtype(_TYPES[name]).itemsize
    shape = (samples,) if width == 1 else (samples, width)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; this probe takes {shape}")
    return np.ascontiguousarray(array, _TYPES[name])


# --- PTX

_DECLARED = [
    ".reg .pred %other, %done, %more;",
    ".reg .b16 %mask, %h<3>;",
    ".reg .b32 %lane, %sample, %at, %shared, %bar, %expect, %word, %masks, %o<3>, %v<4>;",
    ".reg .s32 %c<5>;",
    ".reg .b64 %map, %tensor, %place, %policy, %state;",
    ".reg .b64 %p_maps, %p_memory, %p_coordinates, %p_offsets, %p_address, %p_expect, %p_image, %p_result;",
    "mov.u32 %lane, %tid.x;",
    "mov.u32 %sample, %ctaid.x;",
    "setp.ne.u32 %other, %lane, 0;",
]


def _pointers(row: TensorCopyRow, names: list[str]) -> list[str]:
    """The sample's part of every buffer; addresses of the global window are generic addresses too."""
    lines = []
    for name in names:
        step = _width(row, name)
        lines += [f"ld.param.u64 %p_{name}, [{name}];", f"mad.wide.u32 %p_{name}, %sample, {step}, %p_{name};"]
    return lines


def _map_address(variant: str) -> list[str]:
    return ["mov.b64 %map, %p_maps;"] if variant == "table" else ["mov.b64 %map, map;", "cvta.param.u64 %map, %map;"]


def _coordinates(row: TensorCopyRow) -> list[str]:
    lines = [f"ld.global.s32 %c{place}, [%p_coordinates+{4 * place}];" for place in range(row.coordinates)]
    for place in range(row.offsets):
        lines += [f"ld.global.u32 %o{place}, [%p_offsets+{4 * place}];", f"cvt.u16.u32 %h{place}, %o{place};"]
    return lines


def _adopt(tensor: str, variant: str) -> list[str]:
    """Thread 0 of a `table` puts the tensor's address into its map, and makes the tensor-map proxy see it."""
    if variant == "param":
        return []
    return [
        f"st.global.u64 [%map], {tensor};",
        "ld.global.u32 %word, [%map+8];",
        "and.b32 %word, %word, 0xffdfffff;",  # as tensormap.replace.tile.global_address does
        "st.global.u32 [%map+8], %word;",
        "fence.proxy.tensormap::generic.release.gpu;",
        "fence.proxy.tensormap::generic.acquire.gpu [%map], 128;",
    ]


def _own(row: TensorCopyRow) -> str:
    """The instruction. Only ptxas 13.5 knows those with .override; nothing runs them."""
    form, registers = row.forms[0], {"tensor_map": "%map", "global_address": "%tensor", "global_stride_bits": "%mask"}
    tensor: list[str] = []
    for part in form["tensor_map"].bracket:
        few = {"global_dim": "%h", "global_strides": "%v"}.get(part.name)
        size = 3 if few == "%h" else 4
        tensor += (f"{few}{place % size}" for place in range(part.count)) if few else ()
        tensor += [] if few or part.name == "coordinates" else [registers[part.name]]
    corner = (f"%c{place}" for place in range(row.coordinates))
    wide = "cta_mask" in form and form["cta_mask"].type == ".b32"
    names: Names = {
        "tensor_map": (*(tensor or ["%map"]), *corner),
        "address": "%shared",
        "barrier": "%bar",
        "offsets": tuple(f"%h{place}" for place in range(row.offsets)),
        "cta_mask": "%masks" if wide else "%mask",
        "cache_policy": "%policy",
    }
    return form.statement(row.mnemonic, names)


_ALWAYS = ["mov.b16 %mask, 1;", "mov.b32 %masks, 1;", "createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;"]


def _load(row: TensorCopyRow, variant: str) -> list[str]:
    poison, size = int.from_bytes(bytes([POISON]) * 4, "little"), image_bytes(row)
    return [
        f".shared .align 1024 .b8 box[{size}];",
        ".shared .align 8 .b64 bar;",
        "mov.u32 %shared, box;",
        "mov.u32 %bar, bar;",
        "mad.lo.u32 %at, %lane, 16, %shared;",
        f"mov.b32 %v0, {poison:#x};",
        *(f"st.shared.v4.b32 [%at+{step}], {{%v0, %v0, %v0, %v0}};" for step in range(0, size, _STEP)),
        "@%other bra ready;",
        "mbarrier.init.shared::cta.b64 [%bar], 1;",
        *_adopt("%p_memory", variant),
        "ready:",
        "fence.proxy.async.shared::cta;",  # poison and mbarrier were written through the generic proxy
        "bar.sync 0;",
        "@%other bra issued;",
        *_ALWAYS,
        "mov.b64 %tensor, %p_memory;",
        "ld.global.u32 %word, [%p_address];",
        "add.u32 %shared, %shared, %word;",
        "ld.global.u32 %expect, [%p_expect];",
        "mbarrier.arrive.expect_tx.shared::cta.b64 %state, [%bar], %expect;",
        _own(row),
        "issued:",
        "mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], 0;",
        "@!%done bra issued;",
        "mad.wide.u32 %place, %lane, 16, %p_image;",
        *_copy("%at", "shared", "%place", "global", size),
    ]


def _store(row: TensorCopyRow, variant: str) -> list[str]:
    return [
        f".shared .align 1024 .b8 box[{IMAGE_BYTES}];",
        "mov.u32 %shared, box;",
        "mad.lo.u32 %at, %lane, 16, %shared;",
        "mad.wide.u32 %place, %lane, 16, %p_image;",
        *_copy("%place", "global", "%at", "shared", IMAGE_BYTES),
        *_keep(),
        "@%other bra ready;",
        *_adopt("%p_result", variant),
        "ready:",
        "fence.proxy.async;",  # shared and global memory were written through the generic proxy
        "bar.sync 0;",
        "@%other bra issued;",
        *_ALWAYS,
        "mov.b64 %tensor, %p_result;",
        "ld.global.u32 %word, [%p_address];",
        "add.u32 %shared, %shared, %word;",
        _own(row),
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group 0;",
        "issued:",
    ]


def _prefetch(row: TensorCopyRow, variant: str) -> list[str]:
    return [
        *_keep(),
        "@%other bra ready;",
        *_adopt("%p_memory", variant),
        *_ALWAYS,
        "mov.b64 %tensor, %p_memory;",
        _own(row),
        "ready:",
    ]


def _keep() -> list[str]:
    """The sample's memory to its place in the result."""
    return [
        "mad.wide.u32 %place, %lane, 16, %p_memory;",
        "mad.wide.u32 %state, %lane, 16, %p_result;",
        *_copy("%place", "global", "%state", "global", MEMORY_BYTES),
    ]


def _copy(source: str, source_space: str, target: str, target_space: str, size: int) -> list[str]:
    lines = []
    for step in range(0, size, _STEP):
        lines += [
            f"ld.{source_space}.v4.b32 {{%v0, %v1, %v2, %v3}}, [{source}+{step}];",
            f"st.{target_space}.v4.b32 [{target}+{step}], {{%v0, %v1, %v2, %v3}};",
        ]
    return lines


BODIES = {"cp.async.bulk.tensor": BODY, "cp.reduce.async.bulk.tensor": BODY, "cp.async.bulk.prefetch.tensor": BODY}
