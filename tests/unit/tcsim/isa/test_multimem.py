"""multimem: rows as the assembler takes them, and what they do to a multicast object, against an independent model."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from tcsim import catalog
from tcsim.arithmetic.reduction import Reduction
from tcsim.core.errors import OperandError, TcsimError
from tcsim.core.versions import PTX_ISA
from tcsim.isa.multimem import rows as spelled
from tcsim.isa.multimem import semantics as model
from tcsim.isa.multimem.rows import MultimemRow
from tcsim.model.effects import Memories
from tests.exact import multimem as exact
from tests.support.ordinary_inventory import MULTIMEM, accepted, multimem

BUILDERS = (
    spelled.load_rows, spelled.store_rows, spelled.reduce_rows, spelled.async_store_rows, spelled.async_reduce_rows, spelled.copy_rows, spelled.copy_reduce_rows,
)  # fmt: skip
ROWS = {row.mnemonic: row for builder in BUILDERS for row in builder()}
COUNTS = {
    "multimem.ld_reduce": 2340, "multimem.st": 680, "multimem.red": 954, "multimem.st.async": 56, "multimem.red.async": 12,
    "multimem.cp.async.bulk": 2, "multimem.cp.reduce.async.bulk": 28,
}  # fmt: skip
Bytes = npt.NDArray[np.uint8]


def inventory() -> Iterator[tuple[str, tuple[tuple[str, ...], str, bool]]]:
    """Mnemonics with targets, version and whether they are documented."""
    for line in csv.DictReader(line for line in MULTIMEM.read_text().splitlines() if not line.startswith("#")):
        for before in line["before"].split(" "):
            name = ".".join(word for word in (line["family"], before, line["end"]) if word)
            yield name, (tuple(line["targets"].split()), line["min_ptx_isa"], line["documented"] == "1")


def test_the_rows_are_the_inventory() -> None:
    """Each spelling with its targets and version, and no other."""
    found = dict(inventory())
    assert {name: (row.targets, row.ptx_version, row.documented) for name, row in ROWS.items()} == found
    assert Counter(row.family for row in ROWS.values()) == COUNTS
    assert all(catalog.rows()[name].family == row.family for name, row in ROWS.items())


@pytest.mark.parametrize("target", ["sm_89", "sm_90a", "sm_100", "sm_103f", "sm_120a"])
def test_the_inventory_is_what_the_assembler_says(target: str) -> None:
    """Asked anew; the statements that forms make are taken too."""
    wanted = {name for name, (targets, _, _) in inventory() if target in targets}
    assert {one.mnemonic for one in accepted(multimem(), target, PTX_ISA[-1])} == wanted


def one_of_each() -> list[str]:
    """A spelling for each operation and type: those that differ in order, scope or state space alone do the same."""
    kept: dict[tuple[object, ...], str] = {}
    for name, row in ROWS.items():
        kept.setdefault(
            (row.family, row.reduction, row.type, row.count, row.accumulator, len(row.forms[0].operands)), name
        )
    return list(kept.values())


def on(name: str) -> Any:
    """The instruction on the earliest arch that has it."""
    return tcsim.instruction(name, arch=ROWS[name].first_arch.name)


def numbers(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> Bytes:
    """Bytes of numbers: random bits, and among floats many of alike size, zeros, infinities and NaN."""
    size = exact.bits_of(element) // 8
    codes = rng.integers(0, 1 << 8 * size, shape, dtype=np.uint64).astype(f"<u{size}")
    if element in ("f16", "bf16", "f32", "f64", "e4m3", "e5m2"):
        plain = tcsim.quantize(rng.normal(size=shape) * 3, element).astype(codes.dtype)
        special = rng.choice(
            np.array([0, 1, 1 << 8 * size - 1, (1 << 8 * size - 1) - 1, exact_infinity(element)], np.uint64), shape
        )
        pick = rng.integers(0, 4, shape)
        codes = np.select([pick < 2, pick == 2], [plain, special.astype(codes.dtype)], codes)
    return np.ascontiguousarray(codes).view(np.uint8)


def exact_infinity(element: str) -> int:
    """The code of infinity, or e4m3's largest."""
    return {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0 << 48, "e5m2": 0x7C, "e4m3": 0x7E}[element]


def loads(name: str, replicas: int, rng: np.random.Generator) -> tuple[Any, list[list[int]]]:
    """What ld_reduce gives, and what it should, number by number."""
    row: MultimemRow = ROWS[name]
    assert row.reduction is not None
    each = row.bytes // row.element_bytes
    memory = numbers(rng, row.element, (replicas, 12 * each))
    address = np.array([3, 0, 7, 7, 11]) * row.bytes
    found = on(name).execute(memory, address)
    found = np.ascontiguousarray(found).view(f"<u{row.element_bytes}").reshape(5, each)
    codes = memory.view(f"<u{row.element_bytes}").reshape(replicas, 12, each)
    wanted = [
        [
            exact.load_reduced(
                row.reduction.operation, row.element, row.accumulator, [int(own[at, place]) for own in codes]
            )
            for place in range(each)
        ]
        for at in (3, 0, 7, 7, 11)
    ]
    return found.tolist(), wanted


@pytest.mark.parametrize("name", [name for name in one_of_each() if ROWS[name].family == spelled.LOAD])
def test_ld_reduce(name: str) -> None:
    """Of one, two, three and eight replicas."""
    compared = 0
    for replicas in (1, 2, 3, 8):
        found, wanted = loads(name, replicas, np.random.default_rng(replicas))
        assert found == wanted
        compared += sum(map(len, wanted))
    assert compared >= 20


def stored(name: str, rng: np.random.Generator) -> tuple[Bytes, Bytes]:
    """Replicas after st or red, and what they should be, number by number."""
    row: MultimemRow = ROWS[name]
    each = row.bytes // row.element_bytes
    memory, value = numbers(rng, row.element, (3, 12 * each)), numbers(rng, row.element, (4, each))
    codes = value.view(f"<u{row.register_bytes}").reshape((4, row.count) if row.count > 1 else (4,))
    places = [1, 9, 4, 0]
    after = on(name).execute(memory, np.array(places) * row.bytes, codes)
    wanted = memory.view(f"<u{row.element_bytes}").reshape(3, 12, each).copy()
    given = value.view(f"<u{row.element_bytes}")
    for replica in range(3):
        for thread, at in enumerate(places):
            for place in range(each):
                new, old = int(given[thread, place]), int(wanted[replica, at, place])
                wanted[replica, at, place] = (
                    exact.combined(row.reduction.operation, row.element, old, new) if row.reduction else new
                )
    return after, wanted.view(np.uint8).reshape(memory.shape)


@pytest.mark.parametrize(
    "name",
    [name for name in one_of_each() if ROWS[name].family not in (spelled.LOAD, spelled.COPY, spelled.COPY_REDUCE)],
)
def test_stores_and_reductions(name: str) -> None:
    """In every replica; bytes between stay."""
    after, wanted = stored(name, np.random.default_rng(3))
    assert np.array_equal(after, wanted)


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name].family in (spelled.COPY, spelled.COPY_REDUCE)])
def test_bulk_copies(name: str) -> None:
    """Bytes of shared memory in every replica, combined where the spelling says so; with a mask only some."""
    after, wanted = copied(name)
    assert np.array_equal(after, wanted)


def copied(name: str) -> tuple[Bytes, Bytes]:
    """Two replicas after a bulk copy to both, and as they should be."""
    row: MultimemRow = ROWS[name]
    rng = np.random.default_rng(4)
    element, size = row.type, exact.bits_of(row.type) // 8
    memory, smem = numbers(rng, element, (2, 96 // size)), numbers(rng, element, (64 // size,))
    mask = {"byte_mask": 0x8421} if "byte_mask" in row.forms[0] else {}
    after = on(name).execute(memory, smem, 16, 32, 48, **mask)
    wanted = memory.copy()
    old, new = wanted.view(f"<u{size}"), smem.view(f"<u{size}")
    for replica in range(2):
        for place in range(48 // size):
            if not mask or 0x8421 >> place % 16 & 1:
                at = 32 // size + place
                given = int(new[16 // size + place])
                old[replica, at] = (
                    exact.combined(row.reduction.operation, row.type, int(old[replica, at]), given)
                    if row.reduction
                    else given
                )
    return after, wanted


def test_effects_of_one_device() -> None:
    """A view that knows nothing of replicas has one: plain memory; .async and copies are pending."""
    view = Memories({"global": np.arange(64, dtype=np.uint8), "shared": np.zeros(64, np.uint8)})
    add = on("multimem.red.relaxed.gpu.global.add.u32")
    done = add.effects(add.forms[0], {"address": np.array([0, 4]), "value": np.array([1, 2], np.uint32)}, view)
    assert len(done.now.writes) == 1
    assert (done.now.writes[0].at.sem, done.now.writes[0].at.scope, done.now.writes[0].at.cta.tolist()) == (
        "relaxed",
        "gpu",
        [0, 0],
    )
    load = on("multimem.ld_reduce.acquire.sys.global.add.f32")
    found = load.effects(load.forms[0], {"address": np.array([8])}, view)
    assert (found.reads[0].sem, found.reads[0].scope, found.reads[0].size) == ("acquire", "sys", 4)
    assert found.now.registers["d"].tolist() == [0x0B0A0908]
    for name, operands in (
        ("multimem.st.async.release.gpu.global.b32", {"address": np.array([0]), "value": np.array([1], np.uint32)}),
        (
            "multimem.cp.async.bulk.global.shared::cta.bulk_group",
            {"destination": np.array([0]), "source": np.array([16]), "size": np.array([16])},
        ),
    ):
        item = on(name)
        made = item.effects(item.forms[0], operands, view)
        assert not made.now.writes
        assert [work.group for work in made.pending] == ["bulk" if "cp" in name else None]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: on("multimem.st.relaxed.gpu.global.u32").execute(np.zeros((2, 8), np.uint8), 2, 1), "multiple"),
        (lambda: on("multimem.st.relaxed.gpu.global.u32").execute(np.zeros((2, 8), np.uint8), 8, 1), "8 bytes"),
        (lambda: on("multimem.st.relaxed.gpu.global.u32").execute(np.zeros(8, np.uint8), 0, 1), "valid: uint8 (..., replicas, bytes)"),
        (lambda: on("multimem.st.relaxed.gpu.global.u32").execute(np.zeros((2, 8), np.uint8), 0, 1 << 32), "valid: codes of 32 bits"),
        (lambda: on("multimem.st.relaxed.gpu.global.u32").execute(np.zeros((2, 8), np.uint8), [0, 0], [1, 2]), "0x0"),
        (lambda: on("multimem.cp.async.bulk.global.shared::cta.bulk_group").execute(np.zeros((2, 32), np.uint8), np.zeros(32, np.uint8), 0, 0, 8), "multiples of 16"),
        (lambda: on("multimem.cp.async.bulk.global.shared::cta.bulk_group").execute(np.zeros((2, 32), np.uint8), np.zeros(32, np.uint8), 0, 0, 16, 1), "byte_mask=1; valid: none"),
    ],
)  # fmt: skip
def test_wrong_use(call: Any, words: str) -> None:
    """Quoted, with what is valid."""
    with pytest.raises(TcsimError) as caught:
        call()
    assert words in str(caught.value)
    assert isinstance(caught.value, (OperandError, TcsimError))


def _reduced_first(own: Reduction, old: Any, new: Any) -> Any:
    return old


MUTANTS: dict[str, tuple[str, Any, str]] = {
    "sums in the type of the elements": ("FORMATS", {**model.FORMATS, "f32": model.FORMATS["f16"]}, "multimem.ld_reduce.add.acc::f32.v2.f16"),
    "the first replica alone": ("reduce_codes", _reduced_first, "multimem.ld_reduce.add.u32"),
    "one replica written": ("replicas_of", lambda view: 1, "multimem.st.u32"),
    "two replicas read": ("replicas_of", lambda view: 2, "multimem.ld_reduce.add.u32"),
    "fp8 sums not saturated": ("quantize", lambda x, format: tcsim.quantize(x, format, saturate=False), "multimem.ld_reduce.add.e5m2x4"),
    "reductions replace": ("reduce_codes", lambda own, old, new: new, "multimem.red.add.u32"),
    "minimum for maximum": ("reduce_codes", lambda own, old, new: INTACT(Reduction("min", own.type), old, new), "multimem.red.max.s32"),
    "unsigned extremes": ("reduce_codes", lambda own, old, new: INTACT(Reduction(own.operation, own.type.replace("s", "u")), old, new), "multimem.red.max.s32"),
    "one replica copied to": ("replicas_of", lambda view: 1, "multimem.cp.async.bulk.global.shared::cta.bulk_group"),
    "bulk reductions replace": ("reduce_codes", lambda own, old, new: new, "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"),
}  # fmt: skip
INTACT = model.reduce_codes


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_model_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is contradicted by the cases above."""
    attribute, replacement, mnemonic = MUTANTS[name]
    monkeypatch.setattr(model, attribute, replacement)
    if ROWS[mnemonic].family == spelled.LOAD:
        results = [
            loads(mnemonic, replicas, np.random.default_rng(seed)) for replicas in (2, 3, 8) for seed in range(6)
        ]
    elif ROWS[mnemonic].family in (spelled.COPY, spelled.COPY_REDUCE):
        results = [tuple(array.tolist() for array in copied(mnemonic))]  # type: ignore[misc]
    else:
        results = [
            tuple(array.tolist() for array in stored(mnemonic, np.random.default_rng(seed))) for seed in range(6)
        ]  # type: ignore[misc]
    assert any(found != wanted for found, wanted in results)
