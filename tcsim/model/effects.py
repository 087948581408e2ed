"""What an instruction does, in words that a machine can run: reads, writes, signals, orders, groups, and what is still pending.

`instruction.effects(form, operands, view)` answers with `Effects`; the view only reads. Whoever asked applies the writes, and
decides when pending work is fetched and finished. `execute` does both at once. Arrays have one entry per lane (or thread), with
inactive lanes masked by whoever asks. The contract is frozen (docs/effects.md): fields may be added, with defaults that change nothing.

Addresses. In "shared", bits 0 to 23 are the offset in a CTA's shared memory and bits 24 to 31 its rank in the cluster, as mapa makes
them; where `cta` is given only the offset counts. In "tmem", a byte address in one CTA's Tensor Memory: lane * 4 * columns + 4 * column.
"generic" is resolved by whoever has the memories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tcsim.core.addresses import Bytes, bytes_at, require_uncontested, with_bytes_at
from tcsim.descriptors.tile_bytes import TileBytes
from tcsim.model.operand import Proxy, Scope, Space

Array = npt.NDArray[Any]
Semantics = Literal["weak", "relaxed", "acquire", "release", "acq_rel"]
GroupKind = Literal["cp.async", "bulk", "wgmma", "tcgen05", "tcgen05.ld", "tcgen05.st"]
NONE: Mapping[str, Array] = MappingProxyType({})
EVERY_CTA = -1
"""In `Access.cta`: the memory of every CTA of the cluster."""


@dataclass(frozen=True)
class Access:
    """Bytes that one instruction touches: `size` bytes at an address for each thread.

    Leading dimensions of the arrays are a batch. The space of shared memory is "shared", however a spelling calls it. That of
    Tensor Memory is "tmem", where byte 4 * (lane * columns + column) begins the cell at (lane, column) of a CTA.
    """

    space: Space
    address: Array  # int64 (..., accesses)
    size: int  # bytes of each
    mask: Array | None = None  # bool (..., accesses, size): which of the bytes are touched; None: all
    proxy: Proxy = "generic"
    cta: Array | None = None  # whose memory it is: rank in the cluster, one an access; None: as the address says
    thread: Array | None = None  # who accesses; None: entry i is lane i
    sem: Semantics = "weak"
    scope: Scope = "cta"
    tile: TileBytes | None = None  # what a matrix descriptor makes of the bytes, if it is read through one
    operand: str = ""  # which operand the tile is, or the cells are
    cells: Any = None  # of Tensor Memory: the layout (`tcsim.memory.tmem_matrix`) of the operand that the accesses of one operand are


@dataclass(frozen=True)
class Write:
    """Bytes to be written, uint8 (..., accesses, size); of them those of the access's mask."""

    at: Access
    data: Array
    combine: Callable[[Array, Array], Array] | None = None  # (old, data) -> new, on landing: atomics and reductions
    old: str | None = None  # the register that gets the previous value
    adds: tuple[str, str] | None = (
        None  # of a sum of floating-point numbers: the instruction, and the type of an element
    )


@dataclass(frozen=True)
class Signal:
    """A change to an mbarrier, at 8 bytes; whoever has the memories changes the object's bits.

    Signals of one outcome are applied in order; of one signal, what the threads of a warp tell one object is added up, except
    what their copies tell it, each on its own.
    """

    kind: Literal["init", "inval", "arrive", "drop", "expect_tx", "complete_tx", "increment"]
    at: Access
    count: Array  # of increment: arrivals more that the phase under way waits for
    layout: str = "v0"  # of init: of the object that it makes
    no_complete: bool = False  # of arrive and drop: .noComplete, so that the arrival must not end the phase
    copied: bool = False  # of complete_tx: by copies that are done, not by an instruction of the threads


@dataclass(frozen=True)
class Order:
    """A fence: which proxies and spaces it orders, for whom."""

    kind: str
    proxies: tuple[Proxy, ...] = ("generic",)
    spaces: tuple[Space, ...] = ()  # empty: all
    sem: Semantics = "acq_rel"
    scope: Scope = "cta"


@dataclass(frozen=True)
class GroupOp:
    """Work collected in groups: a commit closes one, a wait is for all but the latest, track signals when earlier work is done."""

    kind: GroupKind
    op: Literal["commit", "wait", "track"]
    pending: int = 0  # groups that a wait leaves
    reads_only: bool = False  # a wait for the reads of a group, not its writes
    then: tuple[Signal, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What is changed."""

    registers: Mapping[str, Array] = field(default_factory=lambda: NONE)  # by operand
    writes: tuple[Write, ...] = ()
    signals: tuple[Signal, ...] = ()
    undefined: tuple[Access, ...] = ()  # bytes that nobody may rely on any more; they may stay as they are


@dataclass(frozen=True)
class Resource:
    """What a CTA takes or gives back. Where it is not there the thread waits, and is asked again: nothing else happened.

    - "tmem": `delta` columns of Tensor Memory are taken, and `then` is called with their address; or -`delta` are given back.
    - "tmem.permit": the right to take more is given up.
    - "registers": the threads of the warp have `delta` registers each from now on.
    - "launch": a cluster that has not started yet is cancelled, if there is one; `then` is called with the 128 bits of the answer.
    """

    kind: str
    cta: int
    delta: int
    address: int = 0  # of what is given back
    pair: bool = False  # both CTAs of the pair take or give it together
    exclusive: bool = False  # while nothing else of the kind is taken
    then: Callable[[int], Outcome] | None = None  # what follows from what was granted: a TMEM address


@dataclass(frozen=True)
class BarrierOp:
    """What threads do at a named barrier of their CTA, at the barrier of the cluster, or at the launch before."""

    scope: Literal["cta", "cluster", "grid"]
    op: Literal["sync", "arrive", "wait", "red"]
    number: Array | int = 0  # one of the 16 of a CTA
    count: Array | int | None = None  # threads that it is for; None: all of the CTA
    reduce: Literal["", "popc", "and", "or"] = ""
    predicate: Array | None = None  # what is reduced
    into: str = ""  # the operand that gets the result


class View(Protocol):
    """The machine as an instruction may look at it: it only reads."""

    @property
    def rank(self) -> int:
        """The rank in its cluster of the CTA that executes the instruction; 0 without a cluster."""
        ...

    @property
    def warp(self) -> Array:
        """The number in its CTA of each warp of the batch that executes the instruction: integers (...)."""
        ...

    def read(self, access: Access) -> npt.NDArray[np.uint8]:
        """The bytes of an access: uint8 (..., accesses, size), zero where its mask is false."""
        ...

    def held(self, name: str) -> Any:
        """The registers of an operand that pending work holds, as they are when it is fetched: (..., lanes, n), or where they lie (`Lanes`)."""
        ...


@dataclass(frozen=True)
class Memories:
    """Memories as arrays, by space: what `execute` is given, as a view, and what outcomes make of them."""

    images: Mapping[Space, Bytes]  # uint8 (..., bytes)
    call: str = "Memories"  # how errors quote the call
    registers: Mapping[str, Array] = field(default_factory=lambda: NONE)  # what pending work holds, by operand
    rank: int = 0
    warp: Array = field(default_factory=lambda: np.zeros((), np.int64))
    cta_bytes: int = 0  # of the memories of several CTAs in one image, one behind the other; 0: of one alone
    each: str = "thread"  # how errors call whoever makes an access
    apart: str = "addresses of their own"  # what they say is valid of two that write different bytes to one address

    def read(self, access: Access) -> Bytes:
        """The bytes of an access."""
        return bytes_at(self.images[access.space], self._places(access), access.size, access.mask)

    def _places(self, access: Access) -> Array:
        if access.cta is None or not self.cta_bytes:
            return access.address
        return access.address + access.cta * self.cta_bytes

    def held(self, name: str) -> Array:
        """The registers of an operand that pending work holds."""
        return self.registers[name]

    def after(self, outcomes: tuple[Outcome, ...]) -> Mapping[Space, Bytes]:
        """The memories, new, after the writes of some outcomes.

        Raises ContestedRowError for two threads that write different bytes to one address.
        """
        images = dict(self.images)
        for write in (write for outcome in outcomes for write in outcome.writes):
            at, data, image = write.at, write.data, images[write.at.space]
            places, mask = self._places(at), at.mask
            if write.combine is None:
                require_uncontested(places, data, self.call, mask, self.each, self.apart)
                images[at.space] = with_bytes_at(image, places, data, mask)
                continue
            for turn in turns(places, at.size):  # those of one place one after the other
                own = None if mask is None else mask[..., turn, :]
                new = write.combine(bytes_at(image, places[..., turn], at.size, own), data[..., turn, :])
                image = with_bytes_at(image, places[..., turn], new, own)
            images[at.space] = image
        return images


def turns(places: Array, size: int) -> list[slice]:
    """The accesses (..., accesses) of a combining write: all together where none touches another, else one by one.

    >>> turns(np.array([0, 8, 4]), 4), turns(np.array([0, 4, 0]), 4)
    ([slice(None, None, None)], [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)])
    """
    if (np.diff(np.sort(places, axis=-1), axis=-1) >= size).all():
        return [slice(None)]
    return [slice(place, place + 1) for place in range(places.shape[-1])]


@dataclass(frozen=True)
class Pending:
    """Work that goes on after the instruction: its extents are known at issue; fetching and finishing may happen apart.

    Work of "wgmma" and of "tcgen05" is executed in the order of issue, of other groups in any order. The outcome's writes come
    before its signals.
    """

    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    fetch: Callable[[View], Any]
    finish: Callable[[Any], Outcome]
    group: GroupKind | None = None  # which groups it is collected in
    holds: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({})
    )  # registers in flight: "read" or "write"
    threads: Array | None = None  # whose it is: entries of the operands, from 0 on; None: all of them
    adds: Array | None = None  # of wgmma: whether each warpgroup adds to what its accumulator holds; None: all do
    tells: tuple[Signal, ...] = ()  # what `finish` will signal, as far as it is known at issue
    chain: Callable[[Sequence[Any]], Outcome] | None = None
    """What work of one instruction on the same accumulator comes to, the last of it this: from what each has fetched, in order."""
    accumulator: Any = (
        None  # of work that can be part of a chain and holds no registers: what the work before has to have too
    )
    box: tuple[Any, int, Any] | None = (
        None  # of a copy of a tile: its map, the tensor's address and the coordinates of the box
    )


@dataclass(frozen=True)
class Condition:
    """Why an instruction cannot go on: ask again when it holds.

    "mbarrier": when the object at `at` changes; `value` is the parity, or the state, that is waited for.
    """

    kind: str
    at: Access | None = None
    value: int = 0


@dataclass(frozen=True)
class Seen:
    """Of a test of mbarriers: which of them were found with the phase complete that was asked for."""

    at: Access  # with the order and scope of the test
    complete: Array  # bool, one for each access


@dataclass(frozen=True)
class Effects:
    """All of it. A blocked instruction has done nothing."""

    now: Outcome = Outcome()
    reads: tuple[Access, ...] = ()
    pending: tuple[Pending, ...] = ()
    orders: tuple[Order, ...] = ()
    groups: tuple[GroupOp, ...] = ()
    resources: tuple[Resource, ...] = ()
    blocked: Condition | None = None
    barriers: tuple[BarrierOp, ...] = ()
    seen: tuple[Seen, ...] = ()


def completed(effects: Effects, view: View) -> tuple[Outcome, ...]:
    """What all of it comes to if pending work is fetched and finished at once: what `execute` shows.

    Signals that wait for earlier work come last.
    """
    finished = [work.finish(work.fetch(view)) for work in effects.pending]
    return (effects.now, *finished, *(Outcome(signals=group.then) for group in effects.groups if group.then))
