"""What is recorded of a launch, whatever launched it: memory before and after, in a file of its own, or why not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwkernels.capture.gpu import Gpu
from hwkernels.device.errors import CudaError
from tcsim.core.errors import TcsimError, shortened
from tcsim.launchers import recording
from tcsim.launchers.elements import OCTETS, Bytes, Elements
from tcsim.launchers.recording import Buffer, Recording
from tcsim.ptx import parse
from tcsim.ptx.text.syntax import Variable

Dim3 = tuple[int, int, int]
MAX_BYTES, MAX_LAUNCHES = 64 << 20, 100
FOLLOWED_BYTES = 64 << 10
"""Of a buffer that is searched for addresses of others."""
MOST_FOLLOWED = 64


class Refused(Exception):
    """A launch that cannot be recorded, and why."""


@dataclass(frozen=True)
class Extent:
    """Memory that a launcher knows: where an array lies, and what is in it."""

    address: int
    size: int
    name: str = ""
    elements: Elements = OCTETS
    shape: tuple[int, ...] = ()
    scratch: bool = False  # not compared


@dataclass(frozen=True, eq=False)
class Call:
    """A launch as its launcher describes it."""

    launcher: str
    ptx: bytes
    entry: str
    grid: Dim3
    block: Dim3 | None  # None: what .reqntid says
    params: Callable[[Sequence[Variable]], Sequence[bytes]]  # from what the kernel declares
    cluster: Dim3 = (1, 1, 1)
    dynamic_smem: int = 0
    stream: int = 0
    extents: tuple[Extent, ...] = ()
    notes: tuple[str, ...] = ()
    cooperative: bool = False


@dataclass
class Snapshot:
    """A launch before it ran."""

    call: Call
    params: tuple[bytes, ...]
    extents: tuple[Extent, ...]
    before: tuple[Bytes, ...]
    block: Dim3
    notes: tuple[str, ...]


class Session:
    """The launches of a program that are recorded.

    folder: where the files go. max_launches, max_bytes: of all launches, and of the memory of one; what is beyond is not recorded,
    and said. kernels: record only entries whose name contains one of these.
    """

    def __init__(
        self, folder: str | Path, max_bytes: int = MAX_BYTES, max_launches: int = MAX_LAUNCHES, kernels: Sequence[str] = (), gpu: Any = None,
    ) -> None:  # fmt: skip
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.max_bytes, self.max_launches, self.kernels = max_bytes, max_launches, tuple(kernels)
        self.gpu = gpu or Gpu()
        self.files: list[Path] = []
        self.refused: list[tuple[str, str]] = []  # kernel, why
        self._one = threading.Lock()
        self._owner: int | None = None  # the thread whose launch is being recorded

    def around(self, name: str, describe: Callable[[], Call], launch: Callable[[], Any]) -> Any:
        """Launch, and record it if that can be done; what the launch returns or raises. Nothing else is raised."""
        if self.kernels and not any(own in name for own in self.kernels):
            return launch()
        if self._owner == threading.get_ident():  # a launcher that is made of another one
            return launch()
        if not self._one.acquire(blocking=False):
            self._refuse(name, "a launch of another thread was being recorded")
            return launch()
        try:
            self._owner = threading.get_ident()
            taken = self._try(name, lambda: self._before(describe()))
            result = launch()
            if taken is not None:
                self._try(name, lambda: self._after(taken))
            return result
        finally:
            self._owner = None
            self._one.release()

    def _try(self, name: str, step: Callable[[], Any]) -> Any:
        """Do a step of recording; if it fails, say so: the program goes on."""
        try:
            return step()
        except Refused as error:
            self._refuse(name, str(error))
        except (TcsimError, CudaError) as error:
            self._refuse(name, shortened(str(error), 300).strip("'\""))
        except Exception as error:  # whatever a launcher's objects may raise
            self._refuse(name, f"{type(error).__name__}: {shortened(str(error), 200)}")
        return None

    def _refuse(self, name: str, why: str) -> None:
        self.refused.append((name, why))

    def _before(self, call: Call) -> Snapshot:
        if len(self.files) >= self.max_launches:
            raise Refused(f"{self.max_launches} launches are recorded, as many as max_launches allows")
        module = parse(call.ptx)
        kernel = module.kernel(call.entry or None)
        if self.gpu.recording(call.stream):
            raise Refused("it is recorded into a CUDA graph, in which nothing runs")
        params = tuple(call.params(kernel.params))
        if len(params) != len(kernel.params):
            raise Refused(f"{len(params)} arguments for {len(kernel.params)} parameters of its PTX")
        params = tuple(_fitted(data, own) for data, own in zip(params, kernel.params, strict=True))
        self.gpu.synchronize()
        extents, before = self._memory(call, params)
        notes = list(call.notes)
        variables = [
            own.name for own in module.variables.values() if own.space in ("global", "const") and own.name[0] != "$"
        ]
        if variables:
            notes.append(f"module variables {', '.join(variables[:8])}: a replay starts from their initial values")
        x, y, z = call.block or (*kernel.function.directives.get("reqntid", ()), 1, 1, 1)[:3]
        return Snapshot(call, params, extents, before, (x, y, z), tuple(notes))

    def _memory(self, call: Call, params: Sequence[bytes]) -> tuple[tuple[Extent, ...], tuple[Bytes, ...]]:
        """What the parameters point to, and what that points to, as it is now."""
        found = [own for own in _united(call.extents) if own.size]
        contents: dict[int, Bytes] = {}
        left = self.max_bytes

        def take(own: Extent) -> None:
            nonlocal left
            left -= own.size
            if left < 0:
                raise Refused(f"its memory is more than max_bytes={self.max_bytes} bytes")
            contents[own.address] = self.gpu.read(own.address, own.size)

        def follow(words: Sequence[int]) -> None:
            for word in words:
                if any(own.address <= word < own.address + own.size for own in found):
                    continue
                place = self.gpu.range_of(word) if word else None
                if place is not None and len(found) < len(call.extents) + MOST_FOLLOWED:
                    found.append(_gap(place, word, found))

        follow([word for data in params for word in _words(data)])
        at = 0
        while at < len(found):
            take(found[at])
            if found[at].size <= FOLLOWED_BYTES:
                follow(_addresses(contents[found[at].address]))
            at += 1
        return tuple(found), tuple(contents[own.address] for own in found)

    def _after(self, taken: Snapshot) -> None:
        try:
            self.gpu.synchronize()
        except CudaError as error:
            raise Refused(f"it failed: {error}") from None
        call, buffers, names = taken.call, list[Buffer](), set[str]()
        for own, before in zip(taken.extents, taken.before, strict=True):
            name = own.name or f"memory{len(buffers)}"
            name = name if name not in names else f"{name}_{len(buffers)}"
            names.add(name)
            after = before if own.scratch else self.gpu.read(own.address, own.size)
            buffers.append(Buffer(name, own.address, before, after, own.elements, own.shape, own.scratch))
        info = self.gpu.info
        made = Recording(
            call.ptx, call.entry, call.grid, taken.block, taken.params, tuple(buffers), call.cluster, call.dynamic_smem,
            arch=info.arch, gpu=info.name, driver=info.driver_version, launcher=call.launcher, notes=taken.notes,
            cooperative=call.cooperative,
        )  # fmt: skip
        path = self.folder / recording.name_of(made, len(self.files))
        recording.write(path, made)
        self.files.append(path)

    def lines(self) -> list[str]:
        """What was recorded and what was not, a line each; of one kernel and reason one."""
        counts: dict[tuple[str, str], int] = {}
        for own in self.refused:
            counts[own] = counts.get(own, 0) + 1
        said = [f"recorded      {path}" for path in self.files]
        said += [
            f"not recorded  {name}: {why}" + (f" ({count} times)" if count > 1 else "")
            for (name, why), count in counts.items()
        ]
        return [*said, f"{len(self.files)} launches recorded, {len(self.refused)} not"]


def _fitted(data: bytes, own: Variable) -> bytes:
    """A parameter's bytes: a longer number is cut, as the driver reads no more of it."""
    if len(data) < own.size:
        raise Refused(f"parameter {own.name} has {own.size} bytes, its argument {len(data)}")
    return data[: own.size]


def _words(data: bytes) -> list[int]:
    """The 64-bit words of a parameter, which may be addresses; a tensor map's first word is that of its tensor."""
    return np.frombuffer(data[: len(data) // 8 * 8], "<u8").tolist()


def _addresses(data: Bytes) -> list[int]:
    """The aligned words of a buffer that could be addresses of device memory."""
    words = np.unique(data[: len(data) // 8 * 8].view("<u8"))
    return words[(words >= 1 << 32) & (words < 1 << 56)].tolist()


def _gap(place: tuple[int, int], word: int, found: Sequence[Extent]) -> Extent:
    """The part of an allocation around an address that no memory which is taken lies in: arrays share allocations."""
    low, high = place[0], place[0] + place[1]
    low = max([low, *(own.address + own.size for own in found if own.address <= word)])
    high = min([high, *(own.address for own in found if own.address > word)])
    return Extent(low, high - low)


def _united(extents: Sequence[Extent]) -> list[Extent]:
    """Extents without overlaps: those that overlap become one of bytes."""
    found: list[Extent] = []
    for own in sorted(set(extents), key=lambda own: (own.address, -own.size)):
        last = found[-1] if found else None
        if last is None or own.address >= last.address + last.size:
            found.append(own)
        elif own.address + own.size > last.address + last.size:
            found[-1] = Extent(last.address, own.address + own.size - last.address, last.name)
    return found
