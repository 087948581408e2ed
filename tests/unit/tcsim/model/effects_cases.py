"""Operands for any form of barriers and copies, a view that writes down what is read of it, and the contract of effects as checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from tcsim import catalog
from tcsim.core.targets import TARGETS
from tcsim.isa.clusterlaunchcontrol import encode_response
from tcsim.model.effects import Access, Effects, Outcome, Pending
from tcsim.model.form import Form
from tcsim.model.instruction import Instruction
from tcsim.model.row import Row

FAMILIES = (
    "applypriority", "bar.warp.sync", "barrier.cluster", "barrier.cta", "clusterlaunchcontrol", "cp.async", "cp.async.bulk",
    "cp.async.bulk.prefetch.tensor", "cp.async.bulk.tensor", "cp.reduce.async.bulk", "cp.reduce.async.bulk.tensor",
    "createpolicy", "cvta.param", "discard", "elect.sync", "fence", "getctarank", "griddepcontrol", "mapa", "mbarrier",
    "red.async", "redux.sync", "setmaxnreg", "spcompress", "st.async", "st.bulk", "tensormap", "wgmma.sync",
)  # fmt: skip
"""The families of barriers and copies, and of what a kernel does between them."""

BYTES = 1 << 16
"""Of each memory."""
BARRIER, MAP = 0x8000, 0x9000
"""Where the barriers and the tensor map are."""
CTAS = 2
Array = npt.NDArray[Any]


@dataclass
class Watched:
    """Memories that cannot be changed, and every access that was made of them. A CTA of rank 1 has the bytes of rank 0, inverted."""

    images: dict[str, Array]
    accesses: list[Access] = field(default_factory=list)
    rank: int = 0
    warp: Array = field(default_factory=lambda: np.zeros((), np.int64))

    def __post_init__(self) -> None:
        for image in self.images.values():
            image.flags.writeable = False

    def read(self, access: Access) -> Array:
        """The bytes of an access."""
        self.accesses.append(access)
        image = self.images[access.space]
        places = access.address[..., None] + np.arange(access.size)
        assert ((places >= 0) & (places < BYTES) | (False if access.mask is None else ~access.mask)).all()
        found = image[np.where((places >= 0) & (places < BYTES), places, 0)]
        return found if access.mask is None else np.where(access.mask, found, 0).astype(np.uint8)

    def held(self, name: str) -> Array:
        """Nothing is held."""
        raise AssertionError(name)


def tensor_map(row: Any) -> tcsim.TensorMap:
    """A small map that a tensor copy takes."""
    strides = tuple(64 * 8**dim for dim in range(row.dim - 1))
    sizes = (64, *(8 for _ in range(row.dim - 1)))
    box = (16, *((1 if row.rows4 else 2) for _ in range(row.dim - 1)))
    data_type = "UINT32" if row.op else "UINT8"
    if row.op:
        sizes, box = (16, *sizes[1:]), (4, *box[1:])
    if row.map_mode == "im2col":
        zeros = (0,) * (row.dim - 2)
        return tcsim.TensorMap.im2col(data_type, sizes, strides, zeros, zeros, box[0], 8, swizzle="NONE")
    return tcsim.TensorMap(data_type, sizes, strides, box, swizzle="NONE")


def view_of(row: Row, arch: str, seed: int = 0) -> Watched:
    """Random memories with barriers of 3 arrivals, a tensor map where the row takes one."""
    random = np.random.default_rng(seed)
    images = {name: random.integers(0, 256, BYTES, np.uint8) for name in ("global", "shared")}
    if TARGETS[arch].number >= 80:
        barrier = np.array([tcsim.MBarrier(3).encode(arch=arch)], "<u8").view(np.uint8)
        for lane in range(64):
            images["shared"][BARRIER + 8 * lane : BARRIER + 8 * lane + 8] = barrier
    if hasattr(row, "map_mode") and not row.wide_mode:
        images["shared"][MAP : MAP + 128] = np.frombuffer(tensor_map(row).encode(0), np.uint8)
    images["generic"] = images["shared"]
    return Watched({**images, "param": images["shared"], "const": images["shared"]})


VALUES: dict[str, int] = {
    "size": 64, "source_size": 4, "byte_mask": 0x0FF1, "ignore_left": 3, "ignore_right": 5, "cta_mask": 3, "count": 1,
    "tx_count": 16, "parity": 0, "time_hint": 10, "rank": 1, "fraction": 0x3F00_0000, "primary_size": 0x2000,
    "total_size": 0x10000, "membermask": 0xFFFF_FFFF, "threads": 64, "barrier": 3, "spdesc": 0,
}  # fmt: skip
"""Numbers in registers by operand."""
_WORDS = {
    ".b128": np.uint64,
    ".b64": np.uint64,
    ".u64": np.uint64,
    ".s64": np.uint64,
    ".f64": np.uint64,
    ".b16": np.uint16,
}


def lanes_of(form: Form) -> int:
    """How many entries an operand has: all threads that execute together, or a few of those that do not."""
    return {"warp": 32, "member_mask": 32, "warpgroup": 128}.get(form.together, 3)


def operands_of(row: Any, form: Form) -> dict[str, Array]:
    """What the registers of each lane hold, as a machine would give it."""
    lanes, found = lanes_of(form), dict[str, Array]()
    numbers = np.arange(lanes, dtype=np.int64)
    for operand in form.operands:
        name = operand.name
        if operand.role == "destination" and operand.kind in ("register", "vector", "predicate", "sink"):
            continue
        if operand.kind == "tensor":
            found[name] = np.full(lanes, MAP)
            found["coordinates"] = np.zeros((lanes, operand.count), np.uint32)
            if row.rows4:
                found["coordinates"] += np.arange(operand.count, dtype=np.uint32) * (np.arange(operand.count) > 0)
        elif operand.kind == "address":
            found[name] = BARRIER + 8 * numbers if name == "barrier" else 0x400 * numbers
        elif operand.kind == "immediate":
            found[name] = np.asarray(operand.values[0] if operand.values else 1)
        elif operand.kind == "predicate":
            found[name] = numbers % 2 == 0
        else:
            found[name] = _register(row, name, operand, lanes)
    return found


def _register(row: Any, name: str, operand: Any, lanes: int) -> Array:
    word: Any = _WORDS.get(operand.type, np.uint32)
    if name == "response":
        return np.frombuffer(encode_response((1, 2, 3)).to_bytes(16, "little"), np.uint64)[None].repeat(lanes, 0)
    if name in ("mdata", "cdata"):  # an index beyond its group is refused
        return np.zeros((lanes, operand.count), word)
    if operand.kind == "vector":
        return np.zeros((lanes, operand.count), word) + np.arange(lanes, dtype=word)[:, None]
    if operand.type == ".b128":
        return np.arange(2 * lanes, dtype=np.uint64).reshape(lanes, 2)
    if name in VALUES:
        return np.full(lanes, VALUES[name], word)
    return np.arange(lanes).astype(word)


def instructions() -> Iterator[tuple[Instruction, Form]]:
    """Every form of every row of the families, on the latest arch that has it."""
    for row in catalog.rows().values():
        if row.family in FAMILIES:
            for form in row.forms:
                yield tcsim.instruction(row.mnemonic, arch=TARGETS[form.targets[-1]].arch), form


# --- the contract


def check_access(access: Access) -> None:
    """One entry for each access, of bytes that there are."""
    count = len(access.address)
    assert access.address.shape == (count,) and access.address.dtype == np.int64 and access.size > 0 and count > 0
    assert access.mask is None or (access.mask.shape == (count, access.size) and access.mask.dtype == bool)
    for own in (access.cta, access.thread):
        assert own is None or own.shape == (count,)


def places(access: Access) -> set[tuple[str, int, int]]:
    """The bytes of an access, by space, CTA and address; the executing CTA is -2."""
    ctas = np.full(len(access.address), -2) if access.cta is None else access.cta
    all_of_them = access.address[:, None] + np.arange(access.size)
    mask = np.ones(all_of_them.shape, bool) if access.mask is None else access.mask
    owners = np.broadcast_to(ctas[:, None], mask.shape)
    return set(zip([access.space] * int(mask.sum()), owners[mask].tolist(), all_of_them[mask].tolist(), strict=True))


def extent(accesses: tuple[Access, ...]) -> set[tuple[str, int, int]]:
    """The bytes of several accesses."""
    return set().union(*map(places, accesses))


def check_outcome(outcome: Outcome, form: Form, lanes: int) -> None:
    """Registers are the form's, with an entry for each lane or one for all; writes have their bytes, signals their counts."""
    for name, array in outcome.registers.items():
        operand = form[name]
        assert operand.role != "source" and operand.kind in ("register", "vector", "predicate", "sink")
        assert array.shape in ((lanes, operand.count) if operand.kind == "vector" else (lanes,), ()), name
        assert array.dtype.kind in "ub", name
    for write in outcome.writes:
        check_access(write.at)
        assert write.data.dtype == np.uint8 and write.data.shape == (len(write.at.address), write.at.size)
    for signal in outcome.signals:
        check_access(signal.at)
        assert signal.at.size == 8 and signal.count.shape == signal.at.address.shape
    for access in outcome.undefined:
        check_access(access)


def check(effects: Effects, form: Form, view: Watched) -> list[Outcome]:
    """The contract of an answer, and what its pending work comes to; the view wrote down what was read for it."""
    lanes = lanes_of(form)
    assert list(effects.reads) == view.accesses or extent(tuple(view.accesses)) <= extent(effects.reads)
    check_outcome(effects.now, form, lanes)
    if effects.blocked is not None:
        assert effects == Effects(reads=effects.reads, blocked=effects.blocked)
    return [effects.now, *(finished(work, form, view) for work in effects.pending)]


def finished(work: Pending, form: Form, view: Watched) -> Outcome:
    """What work comes to, which reads and writes what it said when it was issued."""
    for access in (*work.reads, *work.writes):
        check_access(access)
    if work.threads is not None:
        assert set(work.threads.tolist()) <= set(range(lanes_of(form)))
    view.accesses.clear()
    data = work.fetch(view)
    assert extent(tuple(view.accesses)) == extent(work.reads)
    outcome = work.finish(data)
    assert len(view.accesses) == len(work.reads)
    check_outcome(outcome, form, lanes_of(form))
    assert extent(tuple(write.at for write in outcome.writes)) == extent(work.writes)
    return outcome
