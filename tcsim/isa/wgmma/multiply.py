"""Warpgroup matrix multiply-accumulate with operands in shared memory: what wgmma instructions do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.core.arguments import broadcast, is_number
from tcsim.core.errors import OperandError
from tcsim.descriptors.matrix import CORE_ROWS, FORMS, Major, descriptor_values, element_addresses
from tcsim.descriptors.tile_bytes import tile_bytes
from tcsim.engines.choice import accumulate, execute
from tcsim.engines.contract import Accumulators, Lanes, Matrices, Stored, Words
from tcsim.engines.places import Places, at_bits
from tcsim.isa.mma.product import MatrixProduct, as_words, matrices_of
from tcsim.isa.mma.sparse_operand import SparseRow
from tcsim.model.effects import Access, Array, Effects, Outcome, Pending, View
from tcsim.model.form import Form
from tcsim.model.fragment_codes import places_of
from tcsim.model.row import check_registers
from tcsim.numbers.codec import negated
from tcsim.numbers.formats import Format

_MAJORS: tuple[Major, Major] = ("K", "MN")


class Fetched(NamedTuple):
    """What a product has read: the codes of A (..., 64, K), of B (..., K, N), which rows of B a sparse A meets, and C."""

    a: Array
    b: Array
    columns: Array | None
    c: Callable[
        [], Array | Lanes
    ]  # only the first of a chain needs it; where it lies in registers, if all of it is read


KNOWN_BITS = np.uint64(FORMS["sm_90"].known)
"""The bits of a descriptor that belong to a field."""


@dataclass(frozen=True, kw_only=True)
class WarpgroupRow(SparseRow):
    """A row of wgmma. B lies in shared memory, behind a descriptor; the first form has A there too, the second in registers."""

    @cached_property
    def format_b(self) -> Format:
        """The number format of B."""
        (found,) = (operand.format for operand in self.forms[0].operands if operand.name == "b" and operand.format)
        return found

    @cached_property
    def signs(self) -> bool:
        """Whether it takes scale_a and scale_b, which are 1 or -1."""
        return "scale_a" in self.forms[0]

    @cached_property
    def majors(self) -> bool:
        """Whether it takes trans_a and trans_b: 16-bit elements only."""
        return "trans_b" in self.forms[0]


@dataclass(frozen=True, eq=False, repr=False)
class WarpgroupMultiply(MatrixProduct):
    """d = (scale_a a) (scale_b b) + c on 128 lanes: A from shared memory or registers, B from shared memory."""

    batched = True
    reads_tiles = True
    row: WarpgroupRow

    @property
    def executed_by(self) -> tuple[str, ...]:
        """A warpgroup, which goes on before the product is done."""
        return (
            "one warpgroup: four warps, 128 lanes together",
            ".aligned: all of them execute the same instruction",
            "asynchronous: wgmma.fence before it; wgmma.commit_group and wgmma.wait_group before d is read",
        )

    @property
    def rules(self) -> tuple[str, ...]:
        """Where A and B lie, signs, and majors."""
        majors = "K-major (0) or MN-major (1)" if self.row.majors else "K-major only"
        return (
            "B, and A unless it is in registers, lie in shared memory behind a matrix descriptor",
            "scale_a, scale_b: 1 or -1" if self.row.signs else "no signs scale_a, scale_b",
            f"trans_a, trans_b: {majors}; core matrices of {CORE_ROWS} rows x 16 bytes",
        )

    @cached_property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c and d."""
        return {name: operand.format for name, operand in self.operands.items()} | {"b": self.row.format_b}

    def execute(
        self,
        smem: Any,
        a: Any,
        b: Any,
        c: Any,
        scale_d: bool = True,
        scale_a: int = 1,
        scale_b: int = 1,
        trans_a: int = 0,
        trans_b: int = 0,
    ) -> npt.NDArray[np.uint32]:
        """The accumulator registers (..., 128, registers) after the instruction.

        smem: uint8 (..., bytes), its index the shared address. a: a descriptor, an int, uint64 (...) or MatrixDescriptor, or registers
        uint32 (..., 128, n). b: a descriptor. c: registers uint32 (..., 128, registers), read if scale_d: else None will do. Leading
        dimensions broadcast. scale_a, scale_b: 1 or -1; trans_a, trans_b: 0 for K-major, 1 for MN-major.

        Raises OperandError for another dtype or shape, immediates that the type does not have, or reads outside smem.

        >>> wgmma = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", arch="sm_90a")
        >>> tile = tcsim.MatrixDescriptor.for_tile(8, 16, "f16", swizzle="NONE")
        >>> ones = np.full((128, 4), 0x3C003C00, np.uint32)  # A in registers
        >>> smem = tile.image(np.full((8, 16), 2, np.float16))
        >>> d = wgmma.execute(smem=smem, a=ones, b=tile.descriptor.encode(), c=np.zeros((128, 4), np.uint32))
        >>> float(d.view(np.float32)[0, 0])
        32.0
        """
        signs, trans = (scale_a, scale_b), (trans_a, trans_b)
        memory, accumulator = self._checked(smem, c, scale_d, signs, trans)
        found = self._in_place(memory, a, b, accumulator, trans) if signs == (1, 1) else None
        if found is not None:
            return found
        codes = self.multiplicands(smem, a, b, c, scale_d, signs, trans)
        return self.registers("d", self.matmul(*codes))

    def _in_place(self, smem: Array, a: Any, b: Any, c: Array, trans: tuple[int, int]) -> npt.NDArray[np.uint32] | None:
        """The registers of d, by an engine that gets the operands where they lie; None where a descriptor is not one for all.

        Raises OperandError for reads outside smem.
        """
        if smem.shape[-1] % 4 or any(format.kind != "float" for format in self.formats.values()):
            return None
        call, words = f"{self!r}.execute", np.ascontiguousarray(smem).view("<u4")[..., None, :]
        arrays, places = {"a": words, "b": words, "c": c}, {}
        for name, given in (("b", b), ("a", a)):
            value, major = np.asarray(descriptor_values(given)), _MAJORS[trans["ab".index(name)]]
            if name == "a" and _in_registers(value):
                if trans[0]:
                    return None
                check_registers(value, self.operands["a"], call)
                arrays["a"] = value
                continue
            rows, k, format = self._tile(name)
            self._located(smem.shape[-1], value, rows, k, format, major, f"{call}: {name}")
            if value.ndim:
                return None
            places[name] = _places(int(value), rows, k, format, major, words.shape[-1])
        d = self.operands["d"]
        of_a = places.get("a") or places_of(self.operands["a"].layout, self.operands["a"].format)
        of_c, of_d = places_of(self.operands["c"].layout, self.operands["c"].format), places_of(d.layout, d.format)
        if of_a is None or of_c is None or of_d is None:
            return None
        batch = broadcast([array.shape[:-2] for array in arrays.values()], call)

        def matrices() -> Matrices:
            return matrices_of([*self.fetch(smem, a, b, *trans), self.matrix("c", c)], batch)

        def packed(codes: Array) -> Words:
            return self.registers("d", codes).reshape(-1, d.lanes * d.registers)

        at = as_words(arrays["a"], batch), as_words(arrays["b"], batch), as_words(c, batch)
        stored = Stored((prod(batch), *d.shape), at, (of_a, places["b"].transposed, of_c, of_d), matrices, packed)
        return np.asarray(execute(self.work, stored)).reshape(*batch, d.lanes, d.registers)

    def effects(self, form: Form, operands: Mapping[str, Array], view: View) -> Effects:
        """The product goes on after the instruction, in a group: it reads shared memory and the accumulator when it is fetched.

        A and metadata in registers are those at the instruction: ptxas lets nothing overwrite them before the product has read them.
        Descriptors and the predicate are those of the first lane of each warpgroup; the machine takes one for all.
        """
        m, n, k = self.shape
        call = f"{self!r}.effects"
        given = {name: int(operands[name]) for name in ("scale_a", "scale_b", "trans_a", "trans_b") if name in operands}
        self._check_immediates(call, *(given.get(name, 1) for name in ("scale_a", "scale_b")),
                               *(given.get(name, 0) for name in ("trans_a", "trans_b")))  # fmt: skip
        sizes = {"b": (n, k, self.row.format_b)}
        if form["a"].kind == "register":
            sizes["a"] = (m, self.operands["a"].shape[1], self.operands["a"].format)
        tiles = {
            name: tile_bytes(
                _known(operands[name][..., 0].astype(np.uint64), f"{call}: {name}"), rows, depth, format,
                _MAJORS[given.get(f"trans_{name}", 0)],
            )
            for name, (rows, depth, format) in sizes.items()
        }  # fmt: skip
        own = np.asarray(view.rank)  # a descriptor's addresses do not say whose memory it is
        accesses = {
            name: Access("shared", x.address, x.size, proxy="async", cta=own, tile=x, operand=name)
            for name, x in tiles.items()
        }
        adds = operands["scale_d"][..., 0]
        registers = {} if "a" in tiles else {"a": self.matrix("a", operands["a"])}
        columns = self._columns(operands, call)

        def fetch(view: View) -> Fetched:
            found = registers | {name: tiles[name].codes(view.read(access)) for name, access in accesses.items()}
            for name in "ab":
                if given.get(f"scale_{name}", 1) == -1:
                    found[name] = negated(found[name], self.formats[name])

            def c() -> Array | Lanes:
                registers = view.held("d")
                if isinstance(registers, Lanes) and adds.all():
                    return registers
                held = self.matrix("c", registers)
                return held if adds.all() else np.where(adds[..., None, None], held, held.dtype.type(0))

            return Fetched(found["a"], found["b"].swapaxes(-1, -2), columns, c)

        def chain(found: Sequence[Fetched]) -> Outcome:
            a, b, columns = (
                own[0] if own[0] is None or len(own) == 1 else np.concatenate(own, axis)
                for own, axis in zip(list(zip(*(each[:3] for each in found), strict=True)), (-1, -2, -1), strict=True)
            )
            c, order = found[0].c(), range(len(found))
            if isinstance(c, Lanes):
                self._accumulate(c, (a, b), columns, order)
                return Outcome()
            return Outcome({"d": self.registers("d", self._product((a, b, c), call, columns, order))})

        holds = {"d": "write"} | ({} if "a" in tiles else {"a": "read"})
        work = Pending(
            tuple(accesses.values()), (), fetch, lambda found: chain([found]), "wgmma", holds, adds=adds, chain=chain
        )
        return Effects(pending=(work,))

    def _accumulate(self, lanes: Lanes, factors: Sequence[Array], columns: Array | None, order: Sequence[int]) -> None:
        """Multiply into registers where they lie."""
        d = self.operands["d"]
        places = places_of(d.layout, d.format)
        assert places is not None
        zeros = np.broadcast_to(d.format.dtype.type(0), (len(lanes.first), *d.shape))
        held = Accumulators(
            lanes, places, lambda: self.matrix("c", lanes), lambda codes: lanes.put(self.registers("d", codes))
        )
        accumulate(self.work, matrices_of((*factors, zeros), zeros.shape[:1], columns), order, held)

    def _columns(self, operands: Mapping[str, Array], call: str) -> Array | None:
        """Of a sparse A, the row of B that each kept element meets."""
        return None

    def multiplicands(
        self, smem: Any, a: Any, b: Any, c: Any, scale_d: bool, scales: tuple[int, int], trans: tuple[int, int]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """The codes of A, B (negated where asked) and C (zero where it is not read) that the operands of `execute` mean."""
        memory, accumulator = self._checked(smem, c, scale_d, scales, trans)
        codes_a, codes_b = self.fetch(memory, a, b, *trans, *scales)
        return codes_a, codes_b, self.matrix("c", accumulator)

    def _checked(
        self, smem: Any, c: Any, scale_d: bool, scales: tuple[int, int], trans: tuple[int, int]
    ) -> tuple[Array, Array]:
        """smem, and the registers of C: zeros where it is not read."""
        call = f"{self!r}.execute"
        if not is_number(scale_d, (0, 1)):
            raise OperandError(f"{call}: scale_d={scale_d!r}; valid: False, True, one for all of a batch")
        self._check_immediates(call, *scales, *trans)
        memory = np.asarray(smem)
        if memory.dtype != np.uint8 or memory.ndim < 1:
            raise OperandError(f"{call}: smem is {memory.dtype} {memory.shape}; valid: uint8 (..., bytes)")
        if c is None and not scale_d:
            c = np.zeros((128, self.operands["c"].registers), np.uint32)
        accumulator = np.asarray(c)
        check_registers(accumulator, self.operands["c"], call)
        return memory, accumulator if scale_d else np.zeros_like(accumulator)

    def fetch(
        self,
        smem: npt.NDArray[np.uint8],
        a: Any,
        b: Any,
        trans_a: int = 0,
        trans_b: int = 0,
        scale_a: int = 1,
        scale_b: int = 1,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The codes of A (..., 64, K; of a sparse one K / 2) and B (..., K, N) that the instruction multiplies.

        Raises OperandError for reads outside smem.
        """
        codes_a, codes_b = self._fetched(smem, a, b, trans_a, trans_b)
        format_a, format_b = self.operands["a"].format, self.row.format_b
        return (
            codes_a if scale_a == 1 else negated(codes_a, format_a),
            codes_b if scale_b == 1 else negated(codes_b, format_b),
        )

    def _fetched(
        self, smem: npt.NDArray[np.uint8], a: Any, b: Any, trans_a: int, trans_b: int
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        call = f"{self!r}.execute"
        codes_b = self._fetch(smem, b, *self._tile("b"), _MAJORS[trans_b], f"{call}: b").swapaxes(-1, -2)
        registers = np.asarray(a)
        if _in_registers(registers):
            check_registers(registers, self.operands["a"], call)
            if trans_a:
                raise OperandError(f"{call}: A in registers has no trans_a; valid: 0")
            return self.matrix("a", registers), codes_b
        return self._fetch(smem, a, *self._tile("a"), _MAJORS[trans_a], f"{call}: a"), codes_b

    def _tile(self, name: str) -> tuple[int, int, Format]:
        """Rows, elements of k, and format of what a descriptor of A or B names."""
        m, n, k = self.shape
        return (n, k, self.row.format_b) if name == "b" else (m, self.operands["a"].shape[1], self.operands["a"].format)

    @staticmethod
    def addresses(
        descriptors: npt.NDArray[np.uint64], rows: int, k: int, format: Format, major: Major
    ) -> npt.NDArray[np.int64]:
        """The shared byte addresses (..., rows, k) that descriptors (...) read: `tcsim.descriptors.matrix.element_addresses`."""
        return element_addresses(descriptors, rows, k, format, major)

    def matmul(self, a: Any, b: Any, c: Any) -> npt.NDArray[Any]:
        """Codes in, codes out: a (..., 64, K), b (..., K, N), c and the result (..., 64, N); leading dimensions broadcast.

        Raises OperandError for another shape, FormatError for another dtype.

        >>> wgmma = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", arch="sm_90a")
        >>> d = wgmma.matmul(np.ones((64, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((64, 8), np.float32))
        >>> float(tcsim.decode(d, "f32")[0, 0])
        16.0
        """
        call = f"{self!r}.matmul"
        return self._product(self._codes(call, a=a, b=b, c=c), call)

    def _shape(self, name: str) -> tuple[int, int]:
        _, n, k = self.shape
        return (k, n) if name == "b" else super()._shape(name)

    def _check_immediates(self, call: str, scale_a: int, scale_b: int, trans_a: int, trans_b: int) -> None:
        types = " and ".join(dict.fromkeys(self.formats[name].name for name in "ab"))
        why = "" if self.row.signs else f" ({types} have no imm-scale)"
        for name, value in (("scale_a", scale_a), ("scale_b", scale_b)):
            valid = (1, -1) if self.row.signs else (1,)
            if not is_number(value, valid):
                raise OperandError(f"{call}: {name}={value!r}; valid: {', '.join(map(str, valid))}{why}")
        why = "" if self.row.majors else f" ({types} must be K-major: only 16-bit elements can be MN-major)"
        for name, value in (("trans_a", trans_a), ("trans_b", trans_b)):
            valid = (0, 1) if self.row.majors else (0,)
            if not is_number(value, valid):
                raise OperandError(f"{call}: {name}={value!r}; valid: {', '.join(map(str, valid))}{why}")

    def _located(
        self, end: int, descriptor: Any, rows: int, k: int, format: Format, major: Major, what: str
    ) -> tuple[Array, Array]:
        """Descriptors, and the addresses (..., rows, k) that they read, all of them below `end`."""
        value = np.asarray(descriptor_values(descriptor))
        if value.dtype.kind not in "iu" or (value.dtype.kind == "i" and (value < 0).any()):
            raise OperandError(
                f"{what} is {value.dtype} {value.shape}; valid: a 64-bit descriptor, or registers where A may be"
            )
        descriptors = _known(value.astype(np.uint64), what)
        if value.ndim:
            address = self.addresses(descriptors, rows, k, format, major)
        else:
            address = _addresses(int(value), rows, k, format, major)
        outside = address + format.container_bits // 8 > end
        if outside.any():
            *_, row, column = np.argwhere(outside)[0]
            raise OperandError(
                f"{what}: element (row {row}, k {column}) lies at byte {int(address[outside][0])}, outside the {end} bytes of smem"
            )
        return value, address

    def _fetch(
        self, smem: npt.NDArray[np.uint8], descriptor: Any, rows: int, k: int, format: Format, major: Major, what: str
    ) -> npt.NDArray[Any]:
        """The codes (..., rows, k) that descriptors read."""
        end, size = smem.shape[-1], format.container_bits // 8
        value, address = self._located(end, descriptor, rows, k, format, major, what)
        batch = broadcast([smem.shape[:-1], value.shape], what)
        elements = np.ascontiguousarray(smem[..., : end // size * size]).view(f"<u{size}")
        if value.ndim == 0:
            codes = elements.take(address // size, axis=-1)
        else:
            flat = np.broadcast_to(address, (*batch, rows, k)).reshape(*batch, rows * k)
            elements = np.broadcast_to(elements, (*batch, elements.shape[-1]))
            codes = np.take_along_axis(elements, flat // size, axis=-1).reshape(*batch, rows, k)
        if format.kind == "bit":
            codes = codes >> (np.arange(k) % 8).astype(np.uint8) & np.uint8(1)
        return codes.astype(format.dtype, copy=False)


@lru_cache(maxsize=256)
def _addresses(descriptor: int, rows: int, k: int, format: Format, major: Major) -> npt.NDArray[np.int64]:
    """The addresses (rows, k) that one descriptor reads."""
    found = element_addresses(np.array(descriptor, np.uint64), rows, k, format, major)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=256)
def _places(descriptor: int, rows: int, k: int, format: Format, major: Major, words: int) -> Places:
    """Where the elements (rows, k) that a descriptor names lie in `words` of shared memory."""
    return at_bits(8 * _addresses(descriptor, rows, k, format, major), words)


def _in_registers(a: Array) -> bool:
    """Whether A is given as registers, not as descriptors."""
    return a.ndim >= 2 and a.shape[-2] == 128


def _known(descriptors: npt.NDArray[np.uint64], what: str) -> npt.NDArray[np.uint64]:
    """Descriptors whose set bits all belong to a field. Raises OperandError for others."""
    foreign = descriptors & ~KNOWN_BITS
    if foreign.any():
        raise OperandError(
            f"{what}: descriptor {int(descriptors[foreign != 0].flat[0]):#x}: bits {int(foreign[foreign != 0].flat[0]):#x} "
            "belong to no field; has a start address been added beyond its 14 bits?"
        )
    return descriptors
