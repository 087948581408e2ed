"""One instruction of a campaign: where each element of its operands lies in what a probe is given, and the same operands in NumPy.

The places are found by packing numbers that say which element they are, with the code that packs inputs of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.campaign import stimulus
from conformance.campaign.stimulus import OPERANDS, Recipe
from conformance.isa.wgmma.images import tiles
from hwkernels.engine.source import formats_text
from hwkernels.probes import Plan, body_of
from tcsim.arithmetic.steps import DotAdd
from tcsim.catalog import instruction as find
from tcsim.engines.contract import Matrices, Work
from tcsim.numbers.formats import Format

Array = npt.NDArray[Any]
SHOWN = 16
"""Places of mismatches that the comparison keeps."""
_PRECISION = {"f16": 11, "f32": 24, "e8m13": 14}
_NIBBLE = 4


class SubjectError(ValueError):
    """An instruction that campaigns do not run."""


@dataclass(frozen=True)
class Input:
    """An input of the probe, one sample of it: words, each of units that are elements or constants."""

    table: npt.NDArray[np.int32]  # (units,): operand << 24 | element, or -1
    constant: npt.NDArray[np.uint32]  # (words,)
    bits: int  # of a unit


@dataclass(frozen=True)
class Subject:
    """An instruction on an arch, for campaigns."""

    mnemonic: str
    arch: str

    def __reduce__(self) -> tuple[type[Subject], tuple[str, str]]:
        """What other processes get: they find the rest by themselves."""
        return Subject, (self.mnemonic, self.arch)

    @cached_property
    def instruction(self) -> Any:
        """As `tcsim.instruction` gives it. Raises SubjectError for one that campaigns do not run."""
        found = find(self.mnemonic, arch=self.arch)
        family = found.row.family
        if family not in _PACKERS or not 0 < _float_bits(found.work) <= 32:
            raise SubjectError(f"{self.mnemonic}: a campaign runs the float types of {', '.join(_PACKERS)}")
        if getattr(found, "matrices", 1) != 1 or (not isinstance(found.work.steps[-1], DotAdd) and found.work.kept < 8):
            raise SubjectError(f"{self.mnemonic}: several products, or no tensor core")
        return found

    @property
    def work(self) -> Work:
        """What the engine computes."""
        found: Work = self.instruction.work
        return found

    @property
    def family(self) -> str:
        """Of the row."""
        found: str = self.instruction.row.family
        return found

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and the dense K."""
        m, n, k = self.instruction.shape
        return m, n, k

    @property
    def outputs(self) -> int:
        """Of one sample."""
        return self.shape[0] * self.shape[1]

    @property
    def recipe(self) -> Recipe:
        """What the inputs aim at."""
        units = [step.unit for step in self.work.steps if isinstance(step, DotAdd)]
        return Recipe(units[0].fraction_bits, units[0].floor, _PRECISION[units[0].output])

    @cached_property
    def elements(self) -> Mapping[str, int]:
        """How many elements an operand has."""
        (m, n, k), kept = self.shape, self.work.kept
        sizes = {"a": m * kept, "b": k * n, "c": m * n}
        if self.work.sparse:
            sizes["groups"] = m * self.instruction.sparsity.groups
        return sizes

    # --- what the probe is given

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs of the probe, in the order of its parameters."""
        zeros = {name: np.zeros((1, size), np.uint64) for name, size in self.elements.items()}
        base = [_words(array) for array in self.plan_of(zeros).inputs]
        tables = [np.full(len(words) * 8, -1, np.int64) for words in base]  # of nibbles
        widths = [32] * len(base)
        for name, size in self.elements.items():
            bits = _NIBBLE if name == "groups" else self._format(name).container_bits
            found = [np.zeros(len(words) * 32 // bits, np.int64) for words in base]
            for shift in range(0, int(size).bit_length(), bits):
                digit = (np.arange(1, size + 1, dtype=np.uint64) >> np.uint64(shift)) & np.uint64((1 << bits) - 1)
                packed = self.plan_of({**zeros, name: digit[None]}).inputs
                for place, array in enumerate(packed):
                    changed = _units(_words(array) ^ base[place], bits)
                    found[place] |= changed.astype(np.int64) << shift
            for place, ids in enumerate(found):
                if ids.any():
                    widths[place] = bits
                    units = np.where(ids > 0, (OPERANDS.index(name) << 24) | (ids - 1), -1)
                    own = np.repeat(units, bits // _NIBBLE)
                    tables[place] = np.where(own >= 0, own, tables[place])
        return tuple(
            Input(table[:: bits // _NIBBLE].astype(np.int32), words, bits)
            for table, words, bits in zip(tables, base, widths, strict=True)
        )

    def plan(self, samples: int) -> Plan:
        """The launch of a batch, whose inputs have no contents yet."""
        one = {name: np.zeros((1, size), np.uint64) for name, size in self.elements.items()}
        return self.plan_of({name: np.repeat(array, samples, axis=0) for name, array in one.items()})

    @cached_property
    def places(self) -> npt.NDArray[np.int32]:
        """Of each output, its unit among those of a sample's result."""
        bits = self.work.result.container_bits
        m, n, _ = self.shape
        ids = np.arange(m * n, dtype=np.uint64)
        found = np.zeros(0, np.int64)
        for shift in range(0, max(1, (m * n - 1).bit_length()), bits):
            digit = (ids >> np.uint64(shift)) & np.uint64((1 << bits) - 1)
            codes = digit.astype(self.work.result.dtype).reshape(1, m, n)
            units = _units(_words(self.instruction.registers("d", codes)), bits).astype(np.int64)
            found = (found if len(found) else np.zeros_like(units)) | units << shift
        places = np.zeros(m * n, np.int32)
        places[found[::-1]] = np.arange(len(found), dtype=np.int32)[::-1]
        return places

    def _format(self, name: str) -> Format:
        return self.work.formats["abc".index(name)]

    def plan_of(self, flat: Mapping[str, Array]) -> Plan:
        """The launch for operands (samples, elements)."""
        (m, n, k), kept, samples = self.shape, self.work.kept, len(flat["a"])
        shapes = {"a": (m, kept), "b": (k, n), "c": (m, n)}
        codes = {
            name: flat[name].astype(self._format(name).dtype).reshape(samples, *shape) for name, shape in shapes.items()
        }
        given = _PACKERS[self.family](self.instruction, codes)
        if self.work.sparse:
            sparsity = self.instruction.sparsity
            groups = flat["groups"].astype(np.uint8).reshape(samples, sparsity.rows, sparsity.groups)
            given["metadata"] = sparsity.words_of(groups, sparsity.selectors[0])[..., None]
            given["selector"] = np.full(samples, sparsity.selectors[0], np.uint32)
        return body_of(self.instruction.row).plan(self.instruction.row, given)

    # --- the same in NumPy

    def matrices(self, seed: int, first: int, samples: int) -> Matrices:
        """The operands of samples first to first + samples - 1, as an engine takes them."""
        return self.matrices_of(self.operands(seed, first, samples))

    def operands(self, seed: int, first: int, samples: int) -> dict[str, Array]:
        """The same as codes (samples, elements), of a sparse A with the groups of its metadata."""
        (_, n, k), kept = self.shape, self.work.kept
        which = np.arange(first, first + samples, dtype=np.uint64)
        found = {}
        for name, size in self.elements.items():
            element = np.arange(size, dtype=np.uint64)
            if name == "groups":
                word, *_ = stimulus.philox(
                    element,
                    OPERANDS.index(name),
                    (which & np.uint64(0xFFFFFFFF))[:, None],
                    (which >> np.uint64(32))[:, None],
                    seed,
                )
                found[name] = np.array(self.legal, np.uint8)[(word % np.uint64(len(self.legal))).astype(np.int64)]
                continue
            width = {"a": kept, "b": n, "c": n}[name]
            row, column = element // np.uint64(width), element % np.uint64(width)
            along, pair = column, row * np.uint64(width) + (column & ~np.uint64(1))
            if name == "b":
                along, pair = row * np.uint64(kept) // np.uint64(k), (row & ~np.uint64(1)) * np.uint64(n) + column
            if name == "c":
                along, pair = element * np.uint64(0), element
            found[name] = stimulus.codes(self._format(name), name, self.recipe, seed, which, element, pair, along, kept)
        return found

    def matrices_of(self, flat: Mapping[str, Array]) -> Matrices:
        """Operands (samples, elements), of a sparse A with the groups of its metadata, as an engine takes them."""
        (m, n, k), kept, columns = self.shape, self.work.kept, None
        if self.work.sparse:
            sparsity = self.instruction.sparsity
            groups = flat["groups"].reshape(-1, sparsity.rows, sparsity.groups)
            columns = sparsity.columns(sparsity.positions_of(groups)).astype(np.int32)
        shapes = {"a": (m, kept), "b": (k, n), "c": (m, n)}
        a, b, c = (flat[name].reshape(-1, *shapes[name]) for name in "abc")
        return Matrices(a, b, c, columns=columns)

    @property
    def legal(self) -> tuple[int, ...]:
        """The 4-bit groups of metadata that are drawn: those that the manual defines."""
        return tuple(int(group) for group in self.instruction.sparsity.valid)

    # --- the kernels' constants

    def headers(self) -> dict[str, str]:
        """Those that campaign.cu includes, beside those of the tree."""
        (m, n, k), work, recipe = self.shape, self.work, self.recipe
        a, b, c = work.formats
        values = {"M": m, "N": n, "K": k, "KEPT": work.kept, "FRACTION": recipe.fraction, "FLOOR": recipe.floor}
        values |= {"PRECISION": recipe.precision, "SHOWN": SHOWN, "LEGAL": 1, "GROUP_KEPT": 1, "GROUP_WIDTH": 1}
        groups, places = [0], [0] * 16
        if work.sparse:
            sparsity = self.instruction.sparsity
            per = sparsity.kept // sparsity.groups
            values |= {"LEGAL": len(self.legal), "GROUP_KEPT": per, "GROUP_WIDTH": sparsity.group}
            every = np.repeat(np.arange(16, dtype=np.uint8)[:, None, None], sparsity.groups, axis=2)
            groups, places = list(self.legal), sparsity.positions_of(every)[:, 0, :per].reshape(-1).tolist()
        listed = ", ".join(f"{name} = {value}" for name, value in values.items())
        codes = {8: "u8", 16: "u16", 32: "u32"}
        types = {"A": a, "B": b, "C": c, "D": work.result}
        text = [
            f"enum {{ {listed} }};",
            *(f"typedef {codes[item.container_bits]} Code{name};" for name, item in types.items()),
        ]
        text += [f"typedef {item.name} Format{name};" for name, item in types.items()]
        for name, table in (("GROUP_CODES", groups), ("GROUP_PLACES", places)):
            text.append(f"CONSTANT int {name}[] = {{{', '.join(map(str, table))}}};")
        return {"formats.cuh": formats_text(), "subject.cuh": "#pragma once\n" + "\n".join(text) + "\n"}


def _float_bits(work: Work) -> int:
    """Of an element of A; 0 if it is an integer."""
    return work.formats[0].bits if work.formats[0].kind == "float" else 0


def _registers(instruction: Any, codes: Mapping[str, Array]) -> dict[str, Array]:
    return {name: instruction.registers(name, array) for name, array in codes.items()}


def _tiles(instruction: Any, codes: Mapping[str, Array]) -> dict[str, Array]:
    """Tiles without a swizzle, K-major."""
    found: dict[str, Array] = tiles(instruction, dict(codes), ("NONE", "NONE"), (0, 0))
    return found | {"scale_d": np.ones(len(codes["a"]), np.uint32)}


_PACKERS: Mapping[str, Callable[[Any, Mapping[str, Array]], dict[str, Array]]] = {
    "mma.sync": _registers,
    "mma.sp": _registers,
    "wgmma": _tiles,
    "wgmma.sp": _tiles,
}
"""How operands become the inputs of a family's probe."""


def _words(array: Array) -> npt.NDArray[np.uint32]:
    return (
        np.ascontiguousarray(array[0]).reshape(-1).view(np.uint8).view(np.uint32)
        if array[0].nbytes % 4 == 0
        else np.zeros(0, np.uint32)
    )


def _units(words: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return ((words[:, None] >> shifts) & np.uint32((1 << bits) - 1)).reshape(-1)
