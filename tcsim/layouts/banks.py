"""Shared memory banks: how many passes a warp's access takes, and which banks are the busiest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import integer_addresses, require_alignment
from tcsim.core.arguments import is_number
from tcsim.core.display import Shown
from tcsim.core.errors import OperandError, listing

BANKS = 32
"""Banks of shared memory."""
WORD_BYTES = 4
"""Bytes that a bank serves in one pass; successive words lie in successive banks."""
WARP_LANES = 32
INACTIVE = -1
"""In place of the address of a lane that takes no part."""
WIDTHS = (1, 2, 4, 8, 16)
"""Bytes that one lane can access at a time."""
ACCESSES = ("load", "store", "matrix", "turns")
"""What accesses shared memory: ld; st; rows of ldmatrix and stmatrix; and what lets equal words take turns: atom, red and cp.async."""
_PARTNERS = (1, 2)
"""Lanes i and i ^ 1, or i and i ^ 2, by which a load is merged."""


@dataclass(frozen=True, eq=False)
class BankConflicts(Shown):
    """The cost of one shared memory access of a warp, or of a batch of them.

    A *phase* is a group of lanes that the memory serves together; a *wavefront* is one pass through the banks. A phase
    takes one wavefront for each different word that its busiest bank has to deliver.

    >>> cost = tcsim.bank_conflicts(64 * np.arange(32), width=4)  # a column of a matrix with rows of 64 bytes
    >>> cost.degree, cost.wavefronts, cost.ideal
    (16, 16, 1)
    """

    degrees: npt.NDArray[np.int64]  # (..., phases): wavefronts of each phase; 1 is free of conflicts, 0 has no lane
    words: npt.NDArray[np.int64]  # (..., phases, 32): words wanted from each bank

    @property
    def degree(self) -> Any:
        """The worst phase: 1 without conflicts, n for an n-way conflict. An int, or an array over the batch."""
        return _plain(self.degrees.max(axis=-1))

    @property
    def wavefronts(self) -> Any:
        """All passes of the access: the sum over its phases. An int, or an array over the batch."""
        return _plain(self.degrees.sum(axis=-1))

    @property
    def ideal(self) -> Any:
        """Passes that the same lanes would need without conflicts: one for each phase that has a lane."""
        return _plain((self.degrees > 0).sum(axis=-1))


def bank_conflicts(address: Any, width: int = 16, active: Any = None, access: str = "load") -> BankConflicts:
    """The bank conflicts of one access of `width` bytes by every lane, at `address` (..., lanes), for up to 32 lanes.

    Shared memory has 32 banks of 4 bytes. Lanes that want the same word share it; different words of one bank wait for
    each other. Up to 4 bytes a lane, all lanes are one phase; 8-byte accesses are served by half warps and 16-byte
    accesses by quarter warps: {0 .. 7}, {8 .. 15}, and so on. `active` (..., lanes) leaves lanes out.

    access: "load", "store", "matrix" (the rows of ldmatrix and stmatrix), or "turns" (atom, red, cp.async: lanes that want the same word take turns).
    A load of 8 or 16 bytes serves two neighbouring phases as one if, over the whole warp, all lanes i and i ^ 1, or all lanes i and i ^ 2,
    have the same address or one of them is inactive; the first of the two then has the cost of both.

    Source: measured on an H200, Nsight Compute's counter of wavefronts (`tcsim.ptx.counters.rules` says how often each rule was confirmed).

    Raises OperandError for another width, shape or access, MisalignedAddressError for an address that is not a multiple of the width.

    Pre-conditions:
        width in WIDTHS
        access in ACCESSES
        1 <= np.shape(address)[-1] <= WARP_LANES
        not np.any(np.asarray(address)[... if active is None else np.asarray(active)] % width)
    Post-conditions:
        result.ideal <= result.wavefronts
        result.wavefronts == result.degrees.sum(axis=-1)
        result.degrees == result.words.max(axis=-1)
        result.degrees.shape[-1] == -(-np.shape(address)[-1] // (WARP_LANES // max(1, width // WORD_BYTES)))
        result.words.sum() <= np.size(address) * max(1, width // WORD_BYTES)

    >>> lanes = np.arange(32)
    >>> tcsim.bank_conflicts(lanes * 16).wavefronts  # 512 bytes side by side
    4
    >>> tcsim.bank_conflicts(lanes * 128).degree  # the same four banks for all lanes of a phase
    8
    >>> tcsim.bank_conflicts(lanes * 128 + (lanes % 8) * 16).degree  # each row of a phase 16 bytes further
    1
    >>> [tcsim.bank_conflicts(lanes // 2 * 16, access=access).wavefronts for access in ("load", "store")]  # pairs of equal lanes
    [2, 4]
    """
    call = "tcsim.bank_conflicts"
    if not is_number(width, WIDTHS):
        raise OperandError(f"{call}: width={width!r}: no access of that many bytes; valid: {listing(WIDTHS)}")
    if access not in ACCESSES:
        raise OperandError(f"{call}: access={access!r}; valid: {listing(ACCESSES)}")
    places = integer_addresses(address, call)
    if places.ndim == 0 or not 1 <= places.shape[-1] <= WARP_LANES:
        raise OperandError(
            f"{call}: address has shape {places.shape}; valid: (..., lanes) with 1 to {WARP_LANES} lanes"
        )
    taking = np.ones(places.shape, bool) if active is None else _mask(active, places.shape, call)
    require_alignment(np.where(taking, places, 0), width, f"an access of {width} bytes", call)
    rows = np.full((places.size // places.shape[-1], WARP_LANES), INACTIVE)
    rows[:, : places.shape[-1]] = np.where(taking, places, INACTIVE).reshape(len(rows), -1)
    phases = -(-places.shape[-1] // (WARP_LANES // max(1, width // WORD_BYTES)))
    wanted = words_wanted(rows, width, access)[:, :phases].reshape(*places.shape[:-1], phases, BANKS)
    return BankConflicts(wanted.max(axis=-1), wanted)


def words_wanted(rows: npt.NDArray[np.int64], width: int, access: str) -> npt.NDArray[np.int64]:
    """The words that each phase wants from each bank, (warps, phases, 32), of `rows` (warps, 32) with INACTIVE for lanes that take no part."""
    each = max(1, width // WORD_BYTES)
    lanes, count = WARP_LANES // each, len(rows)
    words = np.where(rows[..., None] == INACTIVE, INACTIVE, rows[..., None] // WORD_BYTES + np.arange(each))
    phase = np.broadcast_to(np.arange(WARP_LANES) // lanes, rows.shape)
    if access == "load" and each > 1:
        phase = np.where(_merges(rows)[:, None], phase & ~1, phase)
    group = (np.arange(count)[:, None] * each + phase)[..., None] * BANKS + words % BANKS
    taking = words != INACTIVE
    if access == "turns":
        return np.bincount(group[taking], minlength=count * each * BANKS).reshape(count, each, BANKS).astype(np.int64)
    if not taking.any():
        return np.zeros((count, each, BANKS), np.int64)
    row = words // BANKS - words[taking].min() // BANKS
    span = int(row.max()) + 1
    keys = np.sort((group * span + row)[taking])
    found = np.bincount(keys[np.append(True, keys[1:] != keys[:-1])] // span, minlength=count * each * BANKS)
    return found.reshape(count, each, BANKS).astype(np.int64)


def _merges(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Of each warp whether neighbouring phases of a load are served together."""
    found = np.zeros(len(rows), bool)
    for partner in _PARTNERS:
        other = rows[:, np.arange(WARP_LANES) ^ partner]
        found |= ((rows == other) | (rows == INACTIVE) | (other == INACTIVE)).all(1)
    return found


def _mask(active: Any, shape: tuple[int, ...], call: str) -> npt.NDArray[np.bool_]:
    mask = np.asarray(active)
    if mask.dtype != np.bool_ or mask.shape[-1:] != shape[-1:] or mask.ndim > len(shape):
        raise OperandError(f"{call}: active is {mask.dtype} {mask.shape}; valid: bool {shape}, or its last dimensions")
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise OperandError(f"{call}: active has shape {mask.shape}; valid: {shape}, or its last dimensions") from None


def _plain(array: npt.NDArray[Any]) -> Any:
    return int(array) if array.ndim == 0 else array
