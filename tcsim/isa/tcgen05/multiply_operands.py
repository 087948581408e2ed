"""How tcgen05.mma finds its operands: matrices in shared memory through descriptors, and in Tensor Memory by its layouts.

Sources: PTX ISA, sections of tcgen05.mma (operands, Data Path Layout Organization, packing formats); `tcsim.memory.tmem_layout`
for Tensor Memory, `tcsim.descriptors.matrix` for shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast, is_number
from tcsim.core.errors import OperandError, listing
from tcsim.descriptors.forms import Major
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.matrix import descriptor_values
from tcsim.descriptors.zero_column_mask import ZeroColumnMask
from tcsim.isa.tcgen05.lookup_table import looked_up
from tcsim.isa.tcgen05.mma_rows import MultiplyRow, form_name
from tcsim.isa.tcgen05.products import Codes, TensorMemoryProduct, shifted
from tcsim.isa.tcgen05.shared_matrices import SharedMemory
from tcsim.memory.tensor_memory import TensorMemory, require_tensor_memory, tmem_lane_column
from tcsim.memory.tmem_layout import CONTAINER_SHIFT
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.model.form import Form
from tcsim.numbers.codec import check_codes
from tcsim.numbers.formats import FORMATS


@dataclass(frozen=True)
class Given:
    """What `execute` is given beside the memories and the descriptor."""

    d: int
    a: Any
    b: Any
    enable_input_d: bool = True
    scale_a: int | None = None
    scale_b: int | None = None
    metadata: int | None = None
    lookup: int | None = None
    disable_output_lane: Any = None
    scale_input_d: int | None = None
    zero_column_mask: int | None = None


@dataclass(frozen=True)
class Operands:
    """One instruction with the memories that it works on."""

    instruction: TensorMemoryProduct
    desc: InstructionDescriptor
    tmem: TensorMemory
    smem: Any
    call: str

    @property
    def row(self) -> MultiplyRow:
        """What the spelling says."""
        return self.instruction.row

    def run(self, given: Given) -> TensorMemory:
        """Read, multiply, write: what `TensorMemoryMultiply.execute` answers."""
        result = self._checked(given)
        layout, base, parts = self._parts(given)
        products = [self.instruction._product(part, self.desc, given.scale_input_d or 0) for part in parts]
        self._store(result, layout, base, np.concatenate(products, axis=-1), given.disable_output_lane)
        return result

    def element(self, row: int, column: int, given: Given) -> dict[str, Codes]:
        """The codes that make one element of D: what `TensorMemoryMultiply.operands_of` answers."""
        desc = self.desc
        self._checked(given)
        if not (0 <= row < desc.m and 0 <= column < desc.n):
            raise OperandError(
                f"{self.call}: no element ({row}, {column}) of D; valid: 0 to {desc.m - 1}, 0 to {desc.n - 1}"
            )
        _, _, parts = self._parts(given)
        bank, place = divmod(column, desc.n // len(parts))
        part = parts[bank]
        a = shifted(part["a"], self.row.cta_group) if self.row.ashift else part["a"]
        b = part["b"][..., place]
        if self.row.sparse:
            kept = part["metadata"][..., row, :]
            batch = np.broadcast_shapes(b.shape[:-1], kept.shape[:-1])
            b = np.take_along_axis(
                np.broadcast_to(b, (*batch, b.shape[-1])), np.broadcast_to(kept, (*batch, kept.shape[-1])), axis=-1
            )
        found = {"a": a[..., row, :], "b": b, "c": part["c"][..., row, place]}
        if self.row.block:
            found |= {"scale_a": part["scale_a"][..., row, :], "scale_b": part["scale_b"][..., place]}
        return found

    def _checked(self, given: Given) -> TensorMemory:
        """The memory that the result goes to, if the operands are those of the instruction."""
        require_tensor_memory(self.tmem, self.call)
        result = self.tmem.copy(self._batch(given.a, given.b))
        result.use_cta_group(self.row.cta_group, self.call)
        if result.ctas != self.row.cta_group:
            raise OperandError(
                f"{self.call}: tmem has {result.ctas} CTAs; valid: TensorMemory(ctas={self.row.cta_group}) for "
                f".cta_group::{self.row.cta_group}"
            )
        self._check_steps(given)
        form = self._form(given)
        for name in ("scale_a", "scale_b", "metadata", "lookup"):
            if (getattr(given, name) is not None) != (name in form):
                raise OperandError(f"{self.call}: {name} is {'missing' if name in form else 'not an operand of it'}")
        if given.scale_input_d is not None:
            self.instruction._check_scale_d(given.scale_input_d, self.call)
        return result

    def _check_steps(self, given: Given) -> None:
        """The steps of N depend on where A is, which only the operands say."""
        row, in_tmem = self.row, self._in_tensor_memory(given.a)
        try:
            self.desc.check(cta_group=row.cta_group, ws=row.weight_stationary, a_in_tmem=in_tmem)
        except OperandError as error:
            raise OperandError(f"{self.call}: {error}") from None

    def _parts(self, given: Given) -> tuple[TmemLayout, tuple[int, int], list[dict[str, Codes]]]:
        """Where D lies, and the matrices that each bank of the data path multiplies: its own copy of A, its columns of B."""
        desc = self.desc
        mask = ZeroColumnMask.decode(int(given.zero_column_mask or 0))
        layout = self.instruction.layout("d", desc)
        base = self._base(given.d, layout, "d")
        arrays = {"b": self._matrix_b(given.b, mask, given.lookup)}
        if self.row.block:
            arrays |= self._scales(given.scale_a, given.scale_b)
        formats = self.instruction.formats(desc)
        if not is_number(given.enable_input_d, (0, 1)):
            raise OperandError(f"{self.call}: enable_input_d={given.enable_input_d!r}; valid: False, True")
        if given.enable_input_d:
            words = self._gather(layout, base, "d")[..., 0, 0, :, :]
            arrays["c"] = words.astype(formats["c"].dtype)
        else:
            arrays["c"] = np.zeros((desc.m, desc.n), formats["c"].dtype)
        in_tmem = self._in_tensor_memory(given.a)
        copies_a = self._matrix_a_tmem(given.a, base[0]) if in_tmem else self._matrix_a(given.a)[..., None, :, :]
        if self.row.sparse:
            copies_k = self._columns(given.metadata, base[0])
        banks = copies_a.shape[-3] if not self.row.sparse else max(copies_a.shape[-3], copies_k.shape[-3])
        width = desc.n // banks
        parts = []
        for bank in range(banks):
            columns = slice(bank * width, (bank + 1) * width)
            part = {name: x[..., columns] if name in ("b", "c", "scale_b") else x for name, x in arrays.items()}
            part["a"] = copies_a[..., bank % copies_a.shape[-3], :, :]
            if self.row.sparse:
                part["metadata"] = copies_k[..., bank % copies_k.shape[-3], :, :]
            parts.append(part)
        return layout, base, parts

    # --- what is there, and whether it may be

    def _batch(self, a: Any, b: Any) -> tuple[int, ...]:
        """The leading dimensions of all operands together."""
        inner = 1 + (self.row.cta_group == 2)
        shapes = [self.tmem.batch, np.shape(self.smem)[:-inner], np.shape(a), np.shape(b)]
        return broadcast(shapes, self.call)

    def _in_tensor_memory(self, a: Any) -> bool:
        """Whether `a` is a Tensor Memory address: a 32-bit integer, of an instruction that takes one."""
        value = np.asarray(descriptor_values(a))
        if value.dtype.kind not in "iu" or (value.dtype.kind == "i" and (value < 0).any()):
            raise OperandError(
                f"{self.call}: a is {value.dtype} {value.shape}; valid: a 64-bit matrix descriptor or a Tensor Memory address"
            )
        return value.ndim == 0 and value.dtype != np.uint64 and int(value) < 1 << 32

    def _form(self, given: Given) -> Form:
        """The form that takes what is given."""
        there = {
            "lanes": given.disable_output_lane is not None,
            "scale": given.scale_input_d is not None,
            "mask": given.zero_column_mask is not None,
        }
        place, targets = "tmem" if self._in_tensor_memory(given.a) else "desc", self.instruction.targets
        form = self.row.form(place, **there)
        if form is None:
            forms = listing(form.name for form in self.row.forms)
            raise OperandError(f"{self.call}: there is no form {form_name(place, **there)}; valid: {forms}")
        if not set(form.targets) & set(targets):
            raise OperandError(
                f"{self.call}: {listing(targets)} has no form {form.name}; it needs one of {listing(form.targets)}"
            )
        return form

    def _base(self, address: Any, layout: TmemLayout, name: str) -> tuple[int, int]:
        lane, column = tmem_lane_column(address)
        if lane not in layout.lane_bases:
            raise OperandError(
                f"{self.call}: {name} is at lane {lane}; {layout.name} begins at lane {listing(layout.lane_bases)}"
            )
        return lane, column

    # --- Tensor Memory

    def _gather(self, layout: TmemLayout, base: tuple[int, int], name: str) -> npt.NDArray[np.uint32]:
        """The elements (*batch, CTAs that repeat, copies, rows, columns) of a matrix."""
        cta, lane, column, slot = layout.cells
        out = np.zeros((*self.tmem.batch, *cta.shape), np.uint32)
        for number in range(self.tmem.ctas):
            own = cta == number
            if own.any():
                out[..., own] = self.tmem.read(
                    lane[own] + base[0], column[own] + base[1], cta=number, what=f"{self.call}: {name}: read"
                )
        bits = layout.element_bits
        return np.asarray(out >> (slot * bits).astype(np.uint32) & np.uint32((1 << bits) - 1), np.uint32)

    def _matrix_a_tmem(self, a: Any, lane: int) -> Codes:
        """A (..., copies, M, K) from Tensor Memory."""
        desc = self.desc
        if desc.transpose_a:
            raise OperandError(f"{self.call}: A in Tensor Memory is K-major; valid: transpose_a = 0")
        layout = self.instruction.layout("a", desc)
        base = self._base(int(a), layout, "a")
        self._check_lane("a", base[0], lane, layout)
        format = FORMATS[desc.a_format]
        words = self._gather(layout, base, "a")[..., 0, :, :, :]
        if format.bits < 8 and layout.element_bits == 8:
            words = words >> np.uint32(CONTAINER_SHIFT.get(format.name, 0)) & np.uint32(format.code_mask)
        codes = words.astype(format.dtype)
        check_codes(codes, format, f"{self.call}: a")
        return codes

    def _columns(self, metadata: Any, lane: int) -> Codes:
        """The dense column (..., copies, M, K / 2) of every kept element."""
        desc = self.desc
        sparsity = self.instruction.sparsity(desc)
        layout = self.instruction.layout("metadata", desc)
        base = self._base(metadata, layout, "metadata")
        self._check_lane("metadata", base[0], lane, layout)
        groups = self._gather(layout, base, "metadata")[..., 0, :, :, :].astype(np.uint8)
        try:
            sparsity.check_groups(groups)
        except OperandError as error:
            raise OperandError(f"{self.call}: {error}") from None
        return sparsity.columns(sparsity.positions_of(groups))

    def _check_lane(self, name: str, own: int, other: int, layout: TmemLayout) -> None:
        if len(layout.lane_bases) > 1 and own != other:
            raise OperandError(
                f"{self.call}: {name} begins at lane {own}, d at lane {other}; {layout.name} needs the same for both"
            )

    def _scales(self, scale_a: Any, scale_b: Any) -> dict[str, Codes]:
        """The scale factors of A (..., M, blocks) and of B (..., blocks, N)."""
        out = {}
        for name, address in (("scale_a", scale_a), ("scale_b", scale_b)):
            layout = self.instruction.layout(name, self.desc)
            codes = self._agreed(layout, self._base(address, layout, name), name, "factor")
            out[name] = codes.swapaxes(-1, -2) if name == "scale_b" else codes
        return out

    def _agreed(self, layout: TmemLayout, base: tuple[int, int], name: str, element: str) -> npt.NDArray[np.uint8]:
        """The bytes (..., rows, columns) of a matrix whose copies must be alike."""
        found = self._gather(layout, base, name)
        first = found[..., :1, :1, :, :]
        if (found != first).any():
            *_, repeat, copy, row, place = np.argwhere(found != first)[0]
            raise OperandError(
                f"{self.call}: {name}: {element} {place} of row {row} differs between its copies: copy {copy} of CTA {repeat} "
                f"is not copy 0 of CTA 0, and which one counts where is not documented; valid: all copies alike"
            )
        return first[..., 0, 0, :, :].astype(np.uint8)

    def _tables(self, lookup: Any) -> npt.NDArray[np.uint8]:
        """The lookup tables (..., N / 8, 8) of B."""
        layout = self.instruction.layout("lookup", self.desc)
        base = self._base(lookup, layout, "lookup")
        if base[1] % 2:
            raise OperandError(f"{self.call}: lookup is at column {base[1]}; valid: even ones")
        return self._agreed(layout, base, "lookup", "entry")

    def _store(
        self, result: TensorMemory, layout: TmemLayout, base: tuple[int, int], codes: Codes, disabled: Any
    ) -> None:
        """Write D, but for the lanes that are disabled."""
        cta, lane, column, _ = layout.cells
        lanes = self._disabled(disabled)
        for number in range(result.ctas):
            own = (cta == number)[0, 0]
            if own.any():
                own_lane = lane[0, 0][own] + base[0]
                result.write(
                    own_lane,
                    column[0, 0][own] + base[1],
                    codes[..., own].astype(np.uint32),
                    cta=number,
                    where=~lanes[number, own_lane],
                    what=f"{self.call}: d: write",
                )

    def _disabled(self, words: Any) -> npt.NDArray[np.bool_]:
        """(CTAs, lanes): which lanes keep what they hold."""
        ctas = self.row.cta_group
        if words is None:
            return np.zeros((ctas, TensorMemory.LANES), np.bool_)
        array = np.asarray(words)
        if array.shape != (4 * ctas,) or array.dtype.kind not in "iu" or (array.astype(object) >> 32 != 0).any():
            raise OperandError(
                f"{self.call}: disable_output_lane is {array.dtype} {array.shape}; valid: uint32 ({4 * ctas},), words of 32 bits"
            )
        bits = array.astype(np.uint64)[:, None] >> np.arange(32, dtype=np.uint64) & np.uint64(1)
        return bits.astype(np.bool_).reshape(ctas, TensorMemory.LANES)

    # --- shared memory

    @property
    def _shared(self) -> SharedMemory:
        return SharedMemory(self.smem, self.row.cta_group, self.desc.arch, self.desc.kind, self.call)

    def _matrix_a(self, a: Any) -> Codes:
        """A (..., M, K): each CTA holds its share of the rows."""
        desc = self.desc
        k = desc.k // 2 if desc.sparse else desc.k
        codes = self._shared.fetch(
            a, desc.m // self.row.cta_group, k, FORMATS[desc.a_format], "MN" if desc.transpose_a else "K", "a"
        )
        check_codes(codes, FORMATS[desc.a_format], f"{self.call}: a")
        return codes

    def _matrix_b(self, b: Any, mask: ZeroColumnMask, lookup: Any) -> Codes:
        """B (..., K, N): each CTA holds its share of the columns; those that are masked are zero."""
        desc = self.desc
        if self.row.lookup:
            return looked_up(self._shared.indices(b, desc.n // self.row.cta_group, desc.k), self._tables(lookup))
        columns = desc.n // self.row.cta_group
        format = FORMATS[desc.b_format]
        zero = mask.columns(desc.m, desc.n) if self.row.weight_stationary else np.zeros(desc.n, np.bool_)
        major: Major = "MN" if desc.transpose_b else "K"
        codes = self._shared.fetch(b, columns + mask.shift, desc.k, format, major, "b", skip=mask.shift)
        codes = np.where(zero[:, None], np.zeros((), codes.dtype), codes)
        check_codes(codes, format, f"{self.call}: b")
        return codes.swapaxes(-1, -2)
