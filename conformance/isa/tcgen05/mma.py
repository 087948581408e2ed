"""tcgen05.mma under test: operands in shared memory and Tensor Memory, every operand form, all of Tensor Memory compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.comparison import Array, Comparison, Mismatch, Place, check_shapes, compare
from conformance.isa.tcgen05.memory_models import executed, operands_of
from conformance.isa.tcgen05.mma_inputs import Described
from conformance.isa.tcgen05.mma_mutants import MUTANTS
from conformance.isa.tcgen05.mma_tiles import filled, placeable
from conformance.stimuli.stream import Stream
from conformance.testbench import Inputs, Testbench
from tcsim.core.errors import TcsimError
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.descriptors.kinds import shapes_of
from tcsim.isa.tcgen05.described import DescribedMultiply
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.memory.tmem_matrix import TmemLayout
from tcsim.model.form import Form, forms_for
from tcsim.numbers.formats import FORMATS
from tcsim.trace import show_code, trace

_SCALE_WORDS = {0: "zero", 3: "three", 15: "fifteen"}  # scale-input-d in the name of a class


@dataclass(frozen=True)
class _Case:
    """What an input class asks for."""

    form: Form
    numbers: str  # class of conformance.stimuli.classes
    scale_d: int | None = None
    vary: str = ""  # "shapes" or "formats": every one of them, a sample each


class TensorMemoryTestbench(Testbench):
    """tcgen05.mma: images, Tensor Memory, descriptors and addresses in, Tensor Memory out."""

    mutants = MUTANTS
    model = staticmethod(executed)

    def __init__(self) -> None:
        self._cases: dict[tuple[str, str], dict[str, _Case]] = {}  # by mnemonic and targets

    def cases(self, instruction: TensorMemoryMultiply) -> dict[str, _Case]:
        """Class -> what it asks for. One class a form; rows without collectors run every class of numbers too."""
        key = (instruction.mnemonic, " ".join(instruction.targets))
        if key not in self._cases:
            self._cases[key] = self._listed(instruction)
        return self._cases[key]

    def _listed(self, instruction: TensorMemoryMultiply) -> dict[str, _Case]:
        row = instruction.row
        kind = "integer" if "s32" in row.kind.d_formats else "float"
        plain = "wide" if kind == "float" else "uniform"
        forms = forms_for(row.forms, instruction.targets)
        cases = {}
        for form in forms:
            word = form.name.replace("_", "")
            if "scale_input_d" not in form:
                cases[word] = _Case(form, plain)
                continue
            for value, name in _SCALE_WORDS.items():
                rich = not ("disable_output_lane" in form or row.ashift or row.collectors)
                if (value == 3 or rich) and (value == 0 or kind == "float"):
                    cases[word + name] = _Case(form, plain, value)
        if row.ashift or row.collectors:
            return cases
        simple = [form for form in forms if form.name in ("desc", "tmem")]
        numbers = dict.fromkeys(
            name for desc in descriptors(instruction) for name in Described(instruction, desc).classes
        )
        for turn, name in enumerate(numbers):
            cases[name] = _Case(simple[turn % len(simple)], name)
        cases["shapes"] = _Case(simple[0], plain, vary="shapes")
        cases["formats"] = _Case(simple[-1], plain, vary="formats")
        return cases

    def classes(self, instruction: TensorMemoryMultiply) -> list[str]:
        """One class a form, and of rows without collectors every class of numbers, every shape, every mix of formats."""
        return list(self.cases(instruction))

    def samples(self, instruction: TensorMemoryMultiply, name: str) -> int:
        """Two; or every shape, or every mix of formats."""
        vary = self.cases(instruction)[name].vary
        return len(list(_varied(instruction, vary))) if vary else 2

    def kept(self, instruction: TensorMemoryMultiply, name: str) -> int:
        """One sample of the classes of numbers, none of the others."""
        return 0 if instruction.row.collectors or self.cases(instruction)[name].vary else 1

    def outputs(self, instruction: TensorMemoryMultiply, samples: int) -> int:
        """Cells of Tensor Memory, 128 columns of each CTA: no fewer than are compared."""
        return samples * 128 * 128 * instruction.row.cta_group

    def inputs(self, instruction: TensorMemoryMultiply, name: str, seed: int, samples: int) -> Inputs:
        """What hwkernels/probes/tcgen05_mma.py takes."""
        case = self.cases(instruction)[name]
        stream = Stream(instruction.mnemonic, name, seed)
        chosen = list(_varied(instruction, case.vary))
        if case.numbers in self.classes(instruction):  # not every class of numbers makes sense for every format
            chosen = [desc for desc in chosen if case.numbers in Described(instruction, desc).classes]
        offset = seed + sum(name.encode()) + len(instruction.mnemonic) + len(instruction.row.collectors)
        parts = []
        for sample in range(samples):
            place = sample if case.vary else sample + offset
            desc = chosen[place % len(chosen)]
            item = placeable(Described(instruction, desc, case.scale_d or 0), case.form)
            parts.append(filled(item, case.form, case.numbers, stream, place))
        size, columns = (max(part[key].shape[-1] for part in parts) for key in ("image", "tmem"))
        out: Inputs = {}
        for key in parts[0]:
            arrays = [_widened(part[key], {"image": size, "tmem": columns}.get(key)) for part in parts]
            out[key] = np.stack(arrays)
        if case.scale_d is not None:
            out["scale_d"] = np.full(samples, case.scale_d, np.int32)
        out["enable_d"] = (np.arange(samples) % 4 != 1).astype(np.uint32)
        return out

    def compare(self, instruction: TensorMemoryMultiply, inputs: Inputs, hardware: Array, model: Array) -> Comparison:
        """Cell by cell of Tensor Memory (samples, ctas, 128, columns), of an f16 D the low half of its words.

        PTX ISA, Packing format for matrix D: a 16-bit element is in the low half of its word; of the high half it says nothing.
        """
        check_shapes(hardware, model)
        layouts = [instruction.layout("d", int(idesc)) for idesc in inputs["idesc"]]
        elements = np.stack([_elements(*pair, model.shape[1:]) for pair in zip(layouts, inputs["d"], strict=True)])
        formats = [instruction.formats(int(idesc)) for idesc in inputs["idesc"]]
        narrow = np.array([own["d"].bits == 16 for own in formats])[:, None, None, None] & (elements >= 0)
        seen = np.where(narrow, np.uint32(0xFFFF), np.uint32(0xFFFFFFFF))

        def mismatch(place: Place) -> Mismatch:
            sample, cta, lane, column = place
            operands, element = operands_of(instruction, inputs, sample), int(elements[place])
            desc, text, own = instruction.descriptor(operands["idesc"]), "outside D", FORMATS["f32"]
            row, at = divmod(element, layouts[sample].columns)
            if element >= 0:
                text, own = f"row {row}, column {at} of D", formats[sample]["d"]
            memories = (inputs["tmem"], hardware, model)
            before, got, want = (show_code(int(memory[place] & seen[place]), own) for memory in memories)

            def steps() -> list[str]:
                lines = ["instruction descriptor:", *(f"  {line}" for line in desc.describe())]
                if element < 0:
                    return lines
                bound = DescribedMultiply(instruction, desc, operands.get("scale_input_d") or 0)
                return lines + trace(bound, **instruction.operands_of(row, at, **operands))

            where = {"sample": sample, "CTA": cta, "lane": lane, "column": column}
            return Mismatch(where, f"before {before}", got, want, steps, text)

        return compare(hardware & seen, model & seen, mismatch)


def _elements(layout: TmemLayout, address: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """row * N + column of the element of D that each cell (ctas, 128, columns) holds, or -1."""
    own = np.full(shape, -1, np.int64)
    cta, lane, column, _ = (x[0, 0] for x in layout.cells)
    place = (cta, lane + (int(address) >> 16), column + (int(address) & 0xFFFF))
    own[place] = np.arange(layout.rows * layout.columns).reshape(cta.shape)
    return own


# --- which descriptors a row is run with


_DESCRIPTORS: dict[tuple[str, int, bool, bool, bool, int, bool, str], tuple[InstructionDescriptor, ...]] = {}


def descriptors(instruction: TensorMemoryMultiply) -> tuple[InstructionDescriptor, ...]:
    """Descriptors that differ in everything but the number of their columns, which stays small.

    They are made once for instructions that take the same.
    """
    row = instruction.row
    key = (
        row.kind.name,
        row.cta_group,
        row.sparse,
        row.weight_stationary,
        row.ashift,
        row.block,
        row.lookup,
        instruction.arch.name,
    )
    if key not in _DESCRIPTORS:
        _DESCRIPTORS[key] = tuple(_descriptors(instruction))
    return _DESCRIPTORS[key]


def _descriptors(instruction: TensorMemoryMultiply) -> Iterator[InstructionDescriptor]:
    row = instruction.row
    kind = row.kind
    shapes = shapes_of(kind.name, row.cta_group, row.weight_stationary, row.sparse, a_in_tmem=True)
    whole = (128 * row.cta_group,) if row.ashift else (32, 64, 128, 256)
    sizes = [(m, n) for shape in shapes for m in shape.m if m in whole for n in shape.n[:3]]
    mixes = list(_mixes(instruction))
    depths = [one.k for one in kind.depths_on(instruction.arch, row.sparse)]
    flags = (
        list(product((False, True), repeat=4))
        if kind.negate
        else [(False, False, *x) for x in product((False, True), repeat=2)]
    )
    for turn in range(max(len(sizes) * 2, len(mixes), 16)):
        m, n = sizes[turn % len(sizes)]
        negate_a, negate_b, transpose_a, transpose_b = flags[(turn * 5 + turn // 16) % len(flags)]
        found = _legal(
            instruction,
            {**mixes[turn % len(mixes)], "m": m, "n": n, "negate_a": negate_a, "negate_b": negate_b},
            {"transpose_a": transpose_a, "transpose_b": transpose_b, "sparsity_selector": turn % 2,
             "k": depths[turn % len(depths)], "scale_a_lanes": (32, 128)[turn // 3 % 2], "saturate": bool(turn % 3 == 1), "scale_a_id": (0, 2, 1, 3)[turn % 4], "scale_b_id": (2, 0, 3, 1)[turn % 4]},
        )  # fmt: skip
        if found is not None:
            yield found


def _varied(instruction: TensorMemoryMultiply, vary: str) -> Iterator[InstructionDescriptor]:
    row = instruction.row
    mixes = list(_mixes(instruction))
    shapes = shapes_of(row.kind.name, row.cta_group, row.weight_stationary, row.sparse, a_in_tmem=True)
    if vary == "formats":
        m, n = shapes[-1].m[-1], shapes[-1].n[0]
        chosen = [{**mix, "m": m, "n": n} for mix in mixes]
    elif vary == "shapes":
        sizes = [(m, n) for shape in shapes for m in shape.m for n in shape.n]
        chosen = [{**mixes[turn % len(mixes)], "m": m, "n": n} for turn, (m, n) in enumerate(sizes)]
    else:
        yield from descriptors(instruction)
        return
    yield from (found for one in chosen if (found := _legal(instruction, one, {})) is not None)


def _mixes(instruction: TensorMemoryMultiply) -> Iterator[dict[str, Any]]:
    row, kind = instruction.row, instruction.row.kind
    scales = kind.scale_formats or {"": 0}
    for d, a, b, scale in product(kind.d_formats, kind.ab_formats, kind.ab_formats, scales):
        mix = {"d_format": d, "a_format": a, "b_format": b, "scale_format": scale}
        shape = shapes_of(kind.name, row.cta_group, row.weight_stationary, row.sparse, a_in_tmem=True)[-1]
        if _legal(instruction, {**mix, "m": shape.m[-1], "n": shape.n[0]}, {}) is not None:
            yield mix


def _legal(
    instruction: TensorMemoryMultiply, must: dict[str, Any], may: dict[str, Any]
) -> InstructionDescriptor | None:
    """A descriptor with `must`, and with each of `may` that can be."""
    row = instruction.row
    fields = {"kind": row.kind.name, "sparse": row.sparse, "arch": instruction.arch.name, **must}
    if row.lookup:
        fields["k"] = row.k
    try:
        found = InstructionDescriptor(**fields)
        instruction.descriptor(found)
        instruction.formats(found)
        if row.sparse:
            instruction.sparsity(found)
    except TcsimError:
        return None
    for name, value in may.items():
        try:
            better = replace(found, **{name: value})
            instruction.descriptor(better)
            found = better
        except TcsimError:
            continue
    return found


def _widened(array: Array, width: int | None) -> Array:
    if width is None or array.shape[-1] == width:
        return array
    more = np.zeros((*array.shape[:-1], width - array.shape[-1]), array.dtype)
    return np.concatenate([array, more], axis=-1)


TENSOR_MEMORY = TensorMemoryTestbench()
