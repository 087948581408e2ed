"""How tcgen05.mma finds its operands: matrices in shared memory through descriptors, and in Tensor Memory by its layouts.

Sources: PTX ISA, sections of tcgen05.mma (operands, Data Path Layout Organization, packing formats); `tcsim.memory.tmem_layout`
for Tensor Memory, `tcsim.descriptors.tile_bytes` for shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import is_number
from tcsim.core.errors import OperandError, listing
from tcsim.descriptors.forms import Major
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.matrix import descriptor_values
from tcsim.descriptors.zero_column_mask import ZeroColumnMask
from tcsim.isa.tcgen05.cells import Cells, Ints, Words, columns_of, ranks_of, read
from tcsim.isa.tcgen05.lookup_table import looked_up
from tcsim.isa.tcgen05.mma_rows import MultiplyRow, form_name
from tcsim.isa.tcgen05.products import Codes, TensorMemoryProduct, shifted
from tcsim.isa.tcgen05.shared_matrices import SharedIndices, SharedTile, descriptor_array
from tcsim.memory.tensor_memory import TensorMemory, tmem_lane_column
from tcsim.memory.tmem_layout import CONTAINER_SHIFT
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.model.effects import Access, Outcome, Pending, View
from tcsim.model.form import Form
from tcsim.numbers.codec import check_codes
from tcsim.numbers.formats import FORMATS, Format

T = TypeVar("T")
KEPT = 1024
"""Places of operands that an instruction with a descriptor remembers."""
Part = dict[str, Codes]
"""The matrices that one bank of the data path multiplies, by name."""


@dataclass(frozen=True)
class Given:
    """The operands: what `execute` is given beside the memories and the descriptor."""

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

    @property
    def a_in_tensor_memory(self) -> bool:
        """Whether `a` is a Tensor Memory address: a 32-bit integer."""
        value = np.asarray(descriptor_values(self.a))
        return value.ndim == 0 and value.dtype != np.uint64 and int(value) < 1 << 32


@dataclass(frozen=True, eq=False)
class Described:
    """An instruction with its descriptor: what does not depend on addresses."""

    instruction: TensorMemoryProduct
    desc: InstructionDescriptor

    @cached_property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c, d, and of the scales."""
        return self.instruction.formats(self.desc)

    @cached_property
    def _kept(self) -> dict[Any, Any]:
        return {}

    def kept(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made once for a key: a kernel comes back to the same few addresses."""
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = make()
        found: T = self._kept[key]
        return found

    def layout(self, name: str) -> TmemLayout:
        """Where d, a, metadata, scale_a, scale_b or lookup lies."""
        return self.kept(("layout", name), lambda: self.instruction.layout(name, self.desc))

    def form(self, given: Given) -> Form:
        """The form that takes what is given. Raises OperandError if there is none."""
        there = {
            "lanes": given.disable_output_lane is not None,
            "scale": given.scale_input_d is not None,
            "mask": given.zero_column_mask is not None,
        }
        return self.kept(
            ("form", given.a_in_tensor_memory, *there.values()), lambda: self._form(given.a_in_tensor_memory, there)
        )

    def _form(self, in_tmem: bool, there: dict[str, bool]) -> Form:
        row, targets = self.instruction.row, self.instruction.targets
        self.desc.check(cta_group=row.cta_group, ws=row.weight_stationary, a_in_tmem=in_tmem)  # N's steps: where A is
        place = "tmem" if in_tmem else "desc"
        form = row.form(place, **there)
        if form is None:
            forms = listing(form.name for form in row.forms)
            raise OperandError(f"there is no form {form_name(place, **there)}; valid: {forms}")
        if not set(form.targets) & set(targets):
            raise OperandError(f"{listing(targets)} has no form {form.name}; it needs one of {listing(form.targets)}")
        return form


@lru_cache(maxsize=128)
def described(instruction: TensorMemoryProduct, idesc: int | InstructionDescriptor) -> Described:
    """The instruction with a descriptor, which is checked. Raises OperandError for one that disagrees with it."""
    return Described(instruction, instruction.descriptor(idesc))


@dataclass(frozen=True, eq=False)
class Multiplication:
    """One instruction with its operands: what it reads and writes, and what it makes of it.

    Raises OperandError for operands that the mnemonic does not have or that do not fit.
    """

    plan: Described
    given: Given
    ranks: Ints  # of the CTAs whose memories it works on
    call: str

    @classmethod
    def of(cls, instruction: TensorMemoryProduct, idesc: Any, given: Given, rank: int, call: str) -> Multiplication:
        """The instruction that a CTA with this rank executes."""
        plan = (
            described(instruction, idesc) if _hashable(idesc) else Described(instruction, instruction.descriptor(idesc))
        )
        work = cls(plan, given, ranks_of(instruction.row.cta_group, rank), call)
        work._check()
        return work

    @property
    def row(self) -> MultiplyRow:
        """What the spelling says."""
        return self.plan.instruction.row

    @property
    def desc(self) -> InstructionDescriptor:
        """The instruction descriptor."""
        return self.plan.desc

    # --- what is accessed

    @cached_property
    def d(self) -> Cells:
        """Where D lies."""
        return self._cells("d", self.given.d)

    @cached_property
    def a(self) -> Cells | SharedTile:
        """Where A lies: each CTA holds its share of the rows."""
        desc, row = self.desc, self.row
        if not self.given.a_in_tensor_memory:
            k = desc.k // 2 if desc.sparse else desc.k
            major: Major = "MN" if desc.transpose_a else "K"
            return self._tile("a", self.given.a, desc.m // row.cta_group, k, self.plan.formats["a"], major)
        if desc.transpose_a:
            raise OperandError(f"{self.call}: A in Tensor Memory is K-major; valid: transpose_a = 0")
        return self._beside_d("a", int(self.given.a))

    @cached_property
    def mask(self) -> ZeroColumnMask:
        """Which columns of B count as zeros."""
        return ZeroColumnMask.decode(int(self.given.zero_column_mask or 0))

    @cached_property
    def b(self) -> SharedTile | SharedIndices:
        """Where B lies: each CTA holds its share of the columns."""
        desc, columns = self.desc, self.desc.n // self.row.cta_group
        if self.row.lookup:
            value = descriptor_array(self.given.b, f"{self.call}: b")
            return SharedIndices.of(value, columns, desc.k, desc.arch, desc.kind, self.ranks, f"{self.call}: b")
        major: Major = "MN" if desc.transpose_b else "K"
        shift = self.mask.shift
        return self._tile("b", self.given.b, columns + shift, desc.k, self.plan.formats["b"], major, shift)

    @cached_property
    def others(self) -> dict[str, Cells]:
        """Where scale factors, metadata and lookup tables lie."""
        found = {}
        for name in ("scale_a", "scale_b"):
            if self.row.block:
                found[name] = self._cells(name, getattr(self.given, name))
        if self.row.sparse:
            found["metadata"] = self._beside_d("metadata", self.given.metadata)
        if self.row.lookup:
            found["lookup"] = self._cells("lookup", self.given.lookup)
            if tmem_lane_column(self.given.lookup or 0)[1] % 2:
                column = tmem_lane_column(self.given.lookup or 0)[1]
                raise OperandError(f"{self.call}: lookup is at column {column}; valid: even ones")
        return found

    @property
    def tiles(self) -> dict[str, SharedTile]:
        """The matrices in shared memory."""
        found = {"a": self.a, "b": self.b.shared if isinstance(self.b, SharedIndices) else self.b}
        return {name: tile for name, tile in found.items() if isinstance(tile, SharedTile)}

    @property
    def reads(self) -> tuple[Access, ...]:
        """All that is read."""
        cells = {**self.others, **({"a": self.a} if isinstance(self.a, Cells) else {})}
        found = [one for name, own in cells.items() for one in own.named(name)]
        found += self.d.accesses if self.given.enable_input_d else ()
        return (*(tile.access for tile in self.tiles.values()), *found)

    def pending(self, thread: int) -> Pending:
        """The work, issued by one of the threads that execute the instruction."""
        chain, accumulator = None, None
        if not self.row.sparse and not self.given.scale_input_d and self._disabled is None:
            chain, accumulator = self.chain, (self.plan, self.d)
        adds = np.array([self.given.enable_input_d])
        return Pending(
            self.reads, self.d.accesses, self.fetch, self.finish, "tcgen05", threads=np.array([thread]), adds=adds, chain=chain,
            accumulator=accumulator,
        )  # fmt: skip

    # --- what is done

    def fetch(self, view: View) -> list[Part]:
        """The matrices that each bank of the data path multiplies: its own copy of A, its columns of B."""
        desc, formats = self.desc, self.plan.formats
        arrays = {"b": self._codes_b(view)}
        if self.row.block:
            arrays["scale_a"] = self._agreed(view, "scale_a", "factor")
            arrays["scale_b"] = self._agreed(view, "scale_b", "factor").swapaxes(-1, -2)
        if self.given.enable_input_d:
            words = self._elements(view, "d", self.d)[..., 0, 0, :, :]
            arrays["c"] = words.astype(formats["c"].dtype, copy=False)
        else:
            arrays["c"] = np.zeros((desc.m, desc.n), formats["c"].dtype)
        copies_a = self._codes_a(view)
        copies_k = self._kept_columns(view) if self.row.sparse else copies_a
        banks = max(copies_a.shape[-3], copies_k.shape[-3])
        width = desc.n // banks
        parts = []
        for bank in range(banks):
            columns = slice(bank * width, (bank + 1) * width)
            part = {name: x[..., columns] if name in ("b", "c", "scale_b") else x for name, x in arrays.items()}
            part["a"] = copies_a[..., bank % copies_a.shape[-3], :, :]
            if self.row.sparse:
                part["metadata"] = copies_k[..., bank % copies_k.shape[-3], :, :]
            parts.append(part)
        return parts

    def finish(self, parts: list[Part], count: int = 1) -> Outcome:
        """D, but for the lanes that are disabled. count: products along K."""
        scale = self.given.scale_input_d or 0
        products = [self.plan.instruction._product(part, self.desc, scale, range(count)) for part in parts]
        codes = products[0] if len(products) == 1 else np.concatenate(products, axis=-1)
        return Outcome(writes=self.d.writes(codes.astype(np.uint32, copy=False), self._disabled))

    def chain(self, found: Sequence[list[Part]]) -> Outcome:
        """D after several such products: what each has fetched beside the others, along K."""
        axes = {"a": -1, "scale_a": -1, "b": -2, "scale_b": -2}
        parts = []
        for same in zip(*found, strict=True):
            joined = {
                name: np.concatenate([own[name] for own in same], axis)
                for name, axis in axes.items()
                if name in same[0]
            }
            parts.append(same[0] | joined)
        return self.finish(parts, len(found))

    def element(self, row: int, column: int, view: View) -> dict[str, Codes]:
        """The codes that make one element of D: what `TensorMemoryMultiply.operands_of` answers."""
        desc = self.desc
        if not (0 <= row < desc.m and 0 <= column < desc.n):
            raise OperandError(
                f"{self.call}: no element ({row}, {column}) of D; valid: 0 to {desc.m - 1}, 0 to {desc.n - 1}"
            )
        parts = self.fetch(view)
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

    # --- what is there, and whether it may be

    def _check(self) -> None:
        """Raise OperandError for operands that the instruction does not have, or that disagree with one another."""
        given, call = self.given, self.call
        value = np.asarray(descriptor_values(given.a))
        if value.dtype.kind not in "iu" or (value.dtype.kind == "i" and (value < 0).any()):
            raise OperandError(
                f"{call}: a is {value.dtype} {value.shape}; valid: a 64-bit matrix descriptor or a Tensor Memory address"
            )
        try:
            form = self.plan.form(given)
        except OperandError as error:
            raise OperandError(f"{call}: {error}") from None
        for name in ("scale_a", "scale_b", "metadata", "lookup"):
            if (getattr(given, name) is not None) != (name in form):
                raise OperandError(f"{call}: {name} is {'missing' if name in form else 'not an operand of it'}")
        if given.scale_input_d is not None:
            self.plan.instruction._check_scale_d(given.scale_input_d, call)
        if not is_number(given.enable_input_d, (0, 1)):
            raise OperandError(f"{call}: enable_input_d={given.enable_input_d!r}; valid: False, True")

    def _cells(self, name: str, address: Any) -> Cells:
        if not isinstance(address, int):
            return self._cells_at(name, address)
        return self.plan.kept((name, address, self.ranks.tobytes()), lambda: self._cells_at(name, address))

    def _cells_at(self, name: str, address: Any) -> Cells:
        layout = self.plan.layout(name)
        lane, column = tmem_lane_column(address)
        if lane not in layout.lane_bases:
            raise OperandError(
                f"{self.call}: {name} is at lane {lane}; {layout.name} begins at lane {listing(layout.lane_bases)}"
            )
        columns = columns_of(self.plan.instruction.arch)
        return Cells.at(layout, (lane, column), columns, self.ranks, f"{self.call}: {name}")

    def _beside_d(self, name: str, address: Any) -> Cells:
        """A matrix whose rows lie in the lanes of D's."""
        found, lane = self._cells(name, address), tmem_lane_column(self.given.d)[0]
        if len(found.layout.lane_bases) > 1 and found.base[0] != lane:
            raise OperandError(
                f"{self.call}: {name} begins at lane {found.base[0]}, d at lane {lane}; {found.layout.name} needs the same for both"
            )
        return found

    def _tile(
        self, name: str, descriptor: Any, rows: int, k: int, format: Format, major: Major, skip: int = 0
    ) -> SharedTile:
        what, desc = f"{self.call}: {name}", self.desc
        value = descriptor_array(descriptor, what)

        def make() -> SharedTile:
            return SharedTile.of(
                value, rows, k, format, major, desc.arch, desc.kind, self.ranks, what, skip, operand=name
            )

        return make() if value.ndim else self.plan.kept((name, int(value), rows, self.ranks.tobytes()), make)

    # --- codes

    def _elements(self, view: View, name: str, cells: Cells) -> Words:
        """The elements (..., CTAs that repeat, copies, rows, columns) of a matrix in Tensor Memory."""
        return cells.elements(read(view, cells.accesses, f"{self.call}: {name}"))

    def _codes_a(self, view: View) -> Codes:
        """A (..., copies, M, K)."""
        format = FORMATS[self.desc.a_format]
        if isinstance(self.a, SharedTile):
            codes = self.a.codes(view.read(self.a.access))[..., None, :, :]
        else:
            words = self._elements(view, "a", self.a)[..., 0, :, :, :]
            if format.bits < 8 and self.a.layout.element_bits == 8:
                words = words >> np.uint32(CONTAINER_SHIFT.get(format.name, 0)) & np.uint32(format.code_mask)
            codes = words.astype(format.dtype)
        check_codes(codes, format, f"{self.call}: a")
        return codes

    def _codes_b(self, view: View) -> Codes:
        """B (..., K, N); columns that are masked are zero."""
        desc = self.desc
        if isinstance(self.b, SharedIndices):
            indices = self.b.indices(view.read(self.b.shared.access))
            return looked_up(indices, self._agreed(view, "lookup", "entry"))
        codes = self.b.codes(view.read(self.b.access))
        if self.row.weight_stationary:
            zero = self.mask.columns(desc.m, desc.n)
            codes = np.where(zero[:, None], np.zeros((), codes.dtype), codes)
        check_codes(codes, FORMATS[desc.b_format], f"{self.call}: b")
        return codes.swapaxes(-1, -2)

    def _kept_columns(self, view: View) -> Codes:
        """The dense column (..., copies, M, K / 2) of every kept element."""
        sparsity = self.plan.instruction.sparsity(self.desc)
        groups = self._elements(view, "metadata", self.others["metadata"])[..., 0, :, :, :].astype(np.uint8)
        try:
            sparsity.check_groups(groups)
        except OperandError as error:
            raise OperandError(f"{self.call}: {error}") from None
        return sparsity.columns(sparsity.positions_of(groups))

    def _agreed(self, view: View, name: str, element: str) -> npt.NDArray[np.uint8]:
        """The bytes (..., rows, columns) of a matrix whose copies must be alike."""
        found = self._elements(view, name, self.others[name])
        first = found[..., :1, :1, :, :]
        if (found != first).any():
            *_, repeat, copy, row, place = np.argwhere(found != first)[0]
            raise OperandError(
                f"{self.call}: {name}: {element} {place} of row {row} differs between its copies: copy {copy} of CTA {repeat} "
                f"is not copy 0 of CTA 0, and which one counts where is not documented; valid: all copies alike"
            )
        return first[..., 0, 0, :, :].astype(np.uint8)

    @cached_property
    def _disabled(self) -> npt.NDArray[np.bool_] | None:
        """(CTAs, lanes): which lanes keep what they hold."""
        ctas, words = self.row.cta_group, self.given.disable_output_lane
        if words is None:
            return None
        array = np.asarray(words)
        if array.shape != (4 * ctas,) or array.dtype.kind not in "iu" or (array.astype(object) >> 32 != 0).any():
            raise OperandError(
                f"{self.call}: disable_output_lane is {array.dtype} {array.shape}; valid: uint32 ({4 * ctas},), words of 32 bits"
            )
        bits = array.astype(np.uint64)[:, None] >> np.arange(32, dtype=np.uint64) & np.uint64(1)
        return bits.astype(np.bool_).reshape(ctas, TensorMemory.LANES)


def _hashable(idesc: Any) -> bool:
    return isinstance(idesc, (int, InstructionDescriptor))
