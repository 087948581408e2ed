"""Where elements lie: places, closed formulas, maps and feeds agree with the layouts and with what instructions do."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest

import tcsim
from hwkernels.probes.probe import emit
from tcsim import catalog
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.inspection import fragment_map
from tcsim.inspection.description import describe
from tcsim.inspection.feeds import feed_of
from tcsim.inspection.formulas import Formula, formulas_of
from tcsim.inspection.places import all_places, contents_of, operand_of, places_of
from tcsim.model.operand import Fragment
from tcsim.model.row import Row
from tcsim.numbers.packing import unpack
from tests.support.extent import WHOLE, part

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def distinct_operands() -> list[tuple[Any, Fragment]]:
    """One operand of every layout and number format of the registry, on the first and the last arch of its rows."""
    found: dict[str, tuple[Any, Fragment]] = {}
    for row in catalog.rows().values():
        if row.dropped or not row.operands:
            continue
        archs = [arch for arch in ARCHS if arch in {TARGETS[target].arch for target in row.targets}]
        for arch in (archs[0], archs[-1]):
            instruction = tcsim.instruction(row.mnemonic, arch=arch)
            for operand in instruction.operands.values():
                found.setdefault(f"{operand.layout!r} {operand.format.name} {operand.name}", (instruction, operand))
    return list(found.values())


OPERANDS = distinct_operands()


def evaluate(formula: Formula, **variables: Any) -> Any:
    """What the text of a formula says, read as C reads it: / is integer division."""
    _, _, expression = str(formula).partition(" = ")
    return eval(expression.replace("/", "//"), {}, variables) + np.zeros_like(next(iter(variables.values())))


def test_formulas_say_what_layouts_say() -> None:
    """Both ways, for every lane, register, slot and element of every distinct operand; the text as well as the data."""
    compared = 0
    for instruction, operand in OPERANDS:
        layout, formulas = operand.layout, formulas_of(operand)
        each = 1 if layout.element_bits == 64 else layout.slots
        lane, value = np.divmod(np.arange(layout.lanes * layout.value.size), layout.value.size)
        place = {"lane": lane, "register": value // each, "slot": value % each}
        rest, column = np.divmod(layout.flat_element, layout.columns)
        element = {"row": rest % layout.rows, "column": column, "matrix": rest // layout.rows}
        for name in element.keys() & formulas.keys():
            assert (formulas[name].value(**place) == element[name]).all(), (instruction, operand.name, name)
            assert (evaluate(formulas[name], **place) == element[name]).all(), (instruction, operand.name, name)
        assert "matrix" in formulas or layout.matrices == 1
        matrix, row, column = np.indices(layout.holder.shape)
        lane, value = np.divmod(layout.holder, layout.value.size)
        element = {"row": row, "column": column, "matrix": matrix}
        place = {"lane": lane, "register": value // each, "slot": value % each}
        for name in place.keys() & formulas.keys():
            assert (formulas[name].value(**element) == place[name]).all(), (instruction, operand.name, name)
            assert (evaluate(formulas[name], **element) == place[name]).all(), (instruction, operand.name, name)
        assert "slot" in formulas or each == 1
        compared += len(formulas) * layout.holder.size
    assert len(OPERANDS) >= 159
    assert compared > 1_000_000


def test_the_formula_of_the_manual() -> None:
    """PTX ISA, Matrix Fragments for mma.m16n8k16 with f16: groupID and threadID_in_group of A, for i = 0 to 7."""
    a = tcsim.instruction(MMA, arch="sm_90").operands["a"]
    texts = [str(formula) for formula in formulas_of(a).values()]
    assert texts[:2] == ["row = lane/4 + 8*(register%2)", "column = 2*(lane%4) + 8*(register/2) + slot"]
    for lane in range(32):
        for i in range(8):
            row = lane // 4 + (0 if i in (0, 1, 4, 5) else 8)
            column = lane % 4 * 2 + (i & 1) + (0 if i < 4 else 8)
            assert (contents_of(a, lane, i // 2)[i % 2].row, contents_of(a, lane, i // 2)[i % 2].column) == (
                row,
                column,
            )


def test_places_hold_the_bits() -> None:
    """A code written to the bits of a place, and nowhere else, is what unpacking finds at its element."""
    checked, planned = 0, 0
    for index, (_, operand) in enumerate(OPERANDS):
        layout = operand.layout
        if layout.flat_element.size > 4096 and index % 8:  # the large ones are alike
            continue
        planned += 3
        places = all_places(operand)
        stream = np.random.default_rng(len(places))
        for number in stream.choice(len(places), 3, replace=False):
            place = places[number]
            registers = np.zeros((layout.lanes, operand.registers), np.uint32)
            width = place.high - place.low + 1
            whole = ((1 << width) - 1) << place.low
            for half, word in enumerate(place.words):
                registers[place.lane, word] = whole >> 32 * half & 0xFFFFFFFF
            codes = unpack(registers, operand.format, layout.element_bits).reshape(-1)
            found = np.flatnonzero(codes)
            assert found.tolist() == [number], place
            assert int(codes[number]) == (1 << width) - 1
            flat = (place.matrix * layout.rows + place.row) * layout.columns + place.column
            assert layout.flat_element[number] == flat
            assert place in places_of(operand, place.row, place.column, place.matrix)
            assert place in contents_of(operand, place.lane, place.register)
            checked += 1
    assert checked == planned > 300


def test_a_place_is_written_as_an_assembler_writes_it() -> None:
    """The examples of the documentation, a pair of registers, and fp4 in a byte."""
    a = tcsim.instruction(MMA, arch="sm_90").operands["a"]
    assert str(places_of(a, 3, 7)[0]) == "a0[31:16] of lane 15"
    f64 = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", arch="sm_90").operands["a"]
    place = places_of(f64, 8, 1)[0]
    assert (place.name, place.words) == ("a1[63:0]", (2, 3))
    fp4 = tcsim.instruction(
        "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32", arch="sm_120a"
    ).operands["a"]
    assert [place.name for place in contents_of(fp4, 0, 0)] == ["a0[5:2]", "a0[13:10]", "a0[21:18]", "a0[29:26]"]


def test_every_copy_is_a_place() -> None:
    """wmma on Volta and Hopper: as many places as the layout has copies, the one of `where` first."""
    for arch in ("sm_70", "sm_90"):
        load = tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.f16", arch=arch)
        layout = load.operands["a"].layout
        places = places_of(load.operands["a"], 3, 5)
        assert len(places) == layout.copies == 2
        assert (places[0].lane, places[0].register, places[0].slot) == layout.where(3, 5)


def test_operands_are_found_in_any_case() -> None:
    """And a wrong one lists the right ones."""
    mma = tcsim.instruction(MMA, arch="sm_90")
    assert operand_of(mma, "B") is mma.operands["b"]
    with pytest.raises(tcsim.OperandError, match="valid: d, a, b, c"):
        operand_of(mma, "e")
    with pytest.raises(tcsim.OperandError, match="which operand"):
        operand_of(mma, None)
    move = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_90")
    assert operand_of(move, None).name == "d"


# --- maps


def test_maps_hold_every_place_once() -> None:
    """CSV, both tables and SVG of a fragment with matrices, of one with copies, and of one with single bits."""
    names = (
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "wmma.load.b.sync.aligned.col.m8n32k16.f16",
        "wmma.load.a.sync.aligned.row.m8n8k128.b1",
    )
    for name in names:
        instruction = tcsim.instruction(name, arch="sm_90")
        (operand,) = instruction.operands.values()
        layout = operand.layout
        found = fragment_map.map_of(instruction, operand)
        for by in ("lane", "element"):
            rows = list(csv.DictReader(io.StringIO(fragment_map.as_csv(found, by))))
            assert len(rows) == layout.lanes * layout.value.size
            for row in rows[:: len(rows) // 16]:
                where = layout(int(row["lane"]), int(row["register"]), int(row["slot"]))
                assert where == (int(row["row"]), int(row["column"]))
            picture = ElementTree.fromstring(fragment_map.as_svg(found, by))
            cells = [node for node in picture.iter() if node.tag.endswith("rect")]
            registers = layout.lanes * operand.count
            assert len(cells) == (registers if by == "lane" else layout.matrices * layout.rows * layout.columns)
        by_lane, by_element = fragment_map.tables(found, "lane"), fragment_map.tables(found, "element")
        assert [len(part.rows) for part in by_lane.parts] == [32]
        assert [len(part.rows) for part in by_element.parts] == [layout.rows] * layout.matrices


def test_elements_of_a_register_in_few_characters() -> None:
    """Neighbours of a row, of a column, and of neither."""
    b1 = tcsim.instruction("wmma.load.a.sync.aligned.row.m8n8k128.b1", arch="sm_90").operands["a"]
    assert fragment_map.elements_text(contents_of(b1, 5, 0), 1) == "1,32-63"
    b = tcsim.instruction(MMA, arch="sm_90").operands["b"]
    assert fragment_map.elements_text(contents_of(b, 5, 1), 1) == "10-11,1"
    load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x4.shared.b16", arch="sm_90").operands["d"]
    assert fragment_map.elements_text(contents_of(load, 5, 2), 4) == "2:1,2-3"


# --- feeds


PRODUCTS = (
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.and.popc",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
)


@pytest.mark.parametrize("mnemonic", PRODUCTS)
def test_what_feeds_an_output_is_what_changes_it(mnemonic: str) -> None:
    """A code at a source changes the output, a code at any place that is no source leaves it."""
    instruction = tcsim.instruction(mnemonic, arch="sm_90")
    m, n = instruction.operands["d"].shape
    matrix = instruction.operands["d"].layout.matrices - 1
    row, column = m - 3, n - 2
    feed = feed_of(instruction, row, column, matrix)
    one = {
        name: 1 if operand.format.kind != "float" else int(tcsim.encode(1.0, operand.format))
        for name, operand in instruction.operands.items()
    }
    full = {
        name: instruction.registers(
            name,
            np.full((*((layout.matrices,) if layout.matrices > 1 else ()), layout.rows, layout.columns), one[name],
                    operand.format.dtype),
        )
        for name, operand in instruction.operands.items()
        if (layout := operand.layout) and name != "d"
    }  # fmt: skip
    sources: dict[str, set[tuple[int, int, int]]] = {"a": set(), "b": set(), "c": set()}
    for _, a, (b,) in feed.products:
        for source in (a, b):
            sources[source.operand] |= {(p.lane, p.register, p.slot) for p in source.places}
    assert feed.addend is not None
    sources["c"] = {(p.lane, p.register, p.slot) for p in feed.addend.places}
    d = feed.output.places[0]

    def result(registers: dict[str, np.ndarray]) -> int:
        return int(instruction.execute(**registers)[d.lane, d.words[0]])

    before = result(full)
    for name, own in sources.items():
        operand = instruction.operands[name]
        changed = {True: 0, False: 0}
        for place in all_places(operand)[:: max(1, len(all_places(operand)) // 96)] + tuple(
            p for p in all_places(operand) if (p.lane, p.register, p.slot) in own
        ):
            element = (place.matrix, place.row, place.column)
            registers = dict(full)
            for copy in places_of(operand, place.row, place.column, place.matrix):
                registers[name] = registers[name].copy()
                mask = np.uint32(((1 << (copy.high - copy.low + 1)) - 1) << copy.low & 0xFFFFFFFF)
                registers[name][copy.lane, copy.words[0]] &= ~mask
            is_source = (place.lane, place.register, place.slot) in own
            assert (result(registers) != before) == is_source, (name, element)
            changed[is_source] += 1
        assert all(changed.values()), (name, changed)


def test_a_move_names_its_one_source() -> None:
    """movmatrix and ldmatrix: what the feed names is what arrives."""
    move = tcsim.instruction("movmatrix.sync.aligned.m8n8.trans.b16", arch="sm_90")
    codes = np.arange(64, dtype=np.uint16).reshape(8, 8)
    d = move.matrix("d", move.execute(a=move.registers("a", codes)))
    (source,) = feed_of(move, 2, 5).others
    assert codes[source.row, source.column] == d[2, 5]
    load = tcsim.instruction("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", arch="sm_90")
    smem = np.arange(512, dtype=np.uint16).view(np.uint8)
    address = np.arange(32) * 32 % 512
    found = load.matrix("d", load.execute(smem=smem, address=address))
    (source,) = feed_of(load, 3, 6, 1).others
    assert source.memory == "bits 63:48 from the address of lane 14"
    assert smem.view(np.uint16)[address[14] // 2 + 3] == found[1, 3, 6]


def test_sparse_outputs_name_metadata_and_candidates() -> None:
    """The bits of metadata are those that encode_metadata writes, and B's candidates are the whole group."""
    mma = tcsim.instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", arch="sm_90")
    feed = feed_of(mma, 9, 3, selector=1)
    positions = np.tile([0, 1], (16, 8))
    other = positions.copy()
    other[9] = [2, 3] * 8
    difference = mma.encode_metadata(positions, 1) ^ mma.encode_metadata(other, 1)
    named = np.zeros(32, np.uint32)
    for source in feed.others:
        for place in source.places:
            named[place.lane] |= np.uint32(((1 << (place.high - place.low + 1)) - 1) << place.low)
    assert ((difference & ~named) == 0).all() and (difference & named).any()
    assert len(feed.others) == 8
    assert [[b.row for b in sources] for _, _, sources in feed.products[4:6]] == [[8, 9, 10, 11]] * 2


def test_stores_and_tiles_name_bytes() -> None:
    """stmatrix, wmma.load and wmma.store, by executing them."""
    load = tcsim.instruction("wmma.load.a.sync.aligned.col.m16n16k16.global.f16", arch="sm_90")
    memory = np.arange(16 * 32, dtype=np.uint16).view(np.uint8)
    codes = load.matrix(load.execute(memory=memory, address=0, stride=32))
    (source,) = feed_of(load, 5, 7).others
    assert source.memory == "address + 7 * stride * 16/8 + 10 bytes"
    assert codes[5, 7] == memory.view(np.uint16)[(7 * 32 * 2 + 10) // 2]
    store = tcsim.instruction("stmatrix.sync.aligned.m8n8.x1.shared.b16", arch="sm_90")
    feed = feed_of(store, 2, 3)
    assert feed.output.memory == "bits 63:48 from the address of lane 2"
    assert str(feed.others[0]) == str(places_of(store.operands["registers"], 2, 3)[0])
    with pytest.raises(tcsim.OperandError, match="valid: products and moves"):
        feed_of(tcsim.instruction("cvt.rn.satfinite.e4m3x2.f32", arch="sm_90"), 0, 0)


# --- descriptions


def shape_of(text: str) -> str:
    """A statement without the names of its registers and without its numbers."""
    return re.sub(r"(?<=[ ,{\[|@])-?\d+(?=[,;}\]])|%\w+|(?<=[ {])_(?=[,}])", "%", text)


def rows_of_every_family() -> list[Row]:
    """A part of every family's rows; all of them with TCSIM_WHOLE=1."""
    rows = [row for row in catalog.rows().values() if not row.dropped]
    families = {row.family for row in rows}
    return [row for name in sorted(families) for row in part([own for own in rows if own.family == name], 80, name)]


def test_examples_are_what_the_probes_run() -> None:
    """A statement of every row's first form, registers apart, stands in its probe on a target that has the form."""
    families, compared = set(), 0
    for row in rows_of_every_family():
        form = row.forms[0]
        lines = {shape_of(line.strip()) for line in emit(row, form.targets[-1]).splitlines()}
        assert shape_of(form.statement(row.mnemonic)) in {re.sub(r"^@!?% ", "", line) for line in lines}, row.mnemonic
        families.add(row.family)
        compared += 1
    assert compared >= (6000 if WHOLE else 1500)
    assert families == {family.name for family in catalog.families()}


def test_every_instruction_can_be_described() -> None:
    """On its first and last arch; the description repeats the registry."""
    described = 0
    for row in rows_of_every_family():
        archs = [arch for arch in ARCHS if arch in {TARGETS[target].arch for target in row.targets}]
        for arch in {archs[0], archs[-1]}:
            instruction = tcsim.instruction(row.mnemonic, arch=arch)
            found = describe(instruction)
            assert found.evidence_level == instruction.evidence.level
            assert found.machine_code == dict(instruction.lowering.opcodes)
            assert [operand.layout for operand in found.operands] == [
                str(operand.layout) for operand in instruction.operands.values()
            ]
            assert found.steps and found.execution
            described += 1
    assert described > (2065 if WHOLE else 1500)
