"""Launches that were recorded on a GPU: one .npz file each, to be run and compared anywhere.

A recording is a dictionary of arrays, numbers and texts. What it must have: `ptx` and `entry` (texts), `grid`, `block`, `cluster` (three
integers each), `smem` (dynamic shared bytes), `param0` ... (the bytes of each parameter), and of each buffer in global memory
`buf0_address`, `buf0_before` and, if the launch changed it, `buf0_after` (bytes). What it may have: `before_entry` (a kernel that
is launched first), `output` (what printf wrote), `cooperative` (1: its blocks wait for the whole grid), of each buffer `_name`, `_format`, `_shape` and `_scratch` (1: nobody reads it after the launch), and
what made it: `version`, `arch`, `gpu`, `driver`, `launcher`, `notes`. Other entries are left alone. Texts are bytes of UTF-8.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.core.array_files import ArrayFile
from tcsim.core.errors import OperandError, listing, shortened
from tcsim.core.files import replacing
from tcsim.launchers.elements import OCTETS, Bytes, Elements, elements
from tcsim.launchers.job import Dim3, Job, Region
from tcsim.ptx import Limits

VERSION = 1
"""Of the entries that are written. A reader refuses later ones."""
REQUIRED = ("ptx", "entry", "grid", "block", "cluster", "smem")
_NUMBERED = re.compile(r"(param|buf)(0|[1-9][0-9]{0,3})(_address)?")


@dataclass(frozen=True, eq=False)
class Buffer:
    """A piece of global memory before and after a launch."""

    name: str
    address: int
    before: Bytes
    after: Bytes
    elements: Elements = OCTETS
    shape: tuple[int, ...] = ()  # (): all elements in a row
    scratch: bool = False  # not compared


@dataclass(frozen=True, eq=False)
class Recording:
    """A launch that a GPU answered."""

    ptx: bytes
    entry: str
    grid: Dim3
    block: Dim3
    params: tuple[bytes, ...]
    buffers: tuple[Buffer, ...]
    cluster: Dim3 = (1, 1, 1)
    dynamic_smem: int = 0
    before_entry: str = ""
    output: str | None = None
    arch: str = ""  # of the GPU
    gpu: str = ""
    driver: str = ""
    launcher: str = ""
    notes: tuple[str, ...] = ()  # what could not be recorded
    cooperative: bool = False

    def job(self, arch: str | None = None, schedule: str | int = "late", limits: Limits | None = None) -> Job:
        """The launch, to be run and compared byte for byte on an arch: its GPU's if none is named."""
        regions = tuple(
            Region(own.name, own.elements, own.shape or (len(own.before) * 8 // own.elements.bits,), own.before, own.address,
                   None if own.scratch else own.after)
            for own in self.buffers
        )  # fmt: skip
        return Job(
            self.ptx, self.params, regions, self.entry, self.before_entry, self.grid, self.block, self.cluster, self.dynamic_smem,
            arch or self.arch or None, schedule, limits or Limits(), self.output, self.notes,
            self.cooperative,
        )  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """The entries of its file."""
        found: dict[str, Any] = {
            "version": VERSION, "ptx": self.ptx, "entry": self.entry, "grid": self.grid, "block": self.block, "cluster": self.cluster,
            "smem": self.dynamic_smem, "before_entry": self.before_entry, "arch": self.arch, "gpu": self.gpu, "driver": self.driver,
            "launcher": self.launcher, "notes": "\n".join(self.notes),
        }  # fmt: skip
        if self.cooperative:
            found["cooperative"] = 1
        if self.output is not None:
            found["output"] = self.output
        found |= {f"param{number}": np.frombuffer(data, np.uint8) for number, data in enumerate(self.params)}
        for number, own in enumerate(self.buffers):
            found |= {
                f"buf{number}_name": own.name,
                f"buf{number}_address": own.address,
                f"buf{number}_before": own.before,
            }
            found |= {f"buf{number}_format": own.elements.name, f"buf{number}_shape": own.shape} if own.shape else {}
            found |= {f"buf{number}_scratch": 1} if own.scratch else {}
            if not own.scratch and not np.array_equal(own.before, own.after):
                found[f"buf{number}_after"] = own.after
        return found


def read(path: str | os.PathLike[str]) -> Recording:
    """The recording of a file.

    Raises FileNotFoundError if there is none, OperandError for a file that is damaged, too large, or something else.
    """
    return from_fields(ArrayFile(path, texts=True), shortened(os.fspath(path), 200))


def write(path: str | os.PathLike[str], recording: Recording) -> None:
    """Write a recording; the same one gives the same bytes. Raises OSError where that cannot be done."""
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in recording.fields().items():
            data = value.encode() if isinstance(value, str) else value
            array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)
            with archive.open(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), "w", force_zip64=False) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def from_fields(fields: Mapping[str, Any], what: str) -> Recording:
    """The recording of a dictionary of arrays, numbers and texts. Raises OperandError, which names the entry that is wrong."""
    missing = [name for name in REQUIRED if name not in fields]
    if missing:
        raise OperandError(
            f"{what} is not a recorded launch: it has no {listing(missing)}; valid: what hwkernels.capture writes"
        )
    own = _Fields(fields, what)
    version = own.integer("version", 1) if "version" in fields else VERSION
    if version > VERSION:
        raise OperandError(
            f"{what} has version {version} of a recorded launch; valid: up to {VERSION}; a later tcsim reads it"
        )
    counts = {"param": -1, "buf": -1}
    for name in fields:
        found = _NUMBERED.fullmatch(name)
        if found and (found[1] == "param") != bool(found[3]):
            counts[found[1]] = max(counts[found[1]], int(found[2]))
    params = tuple(own.bytes(f"param{number}").tobytes() for number in range(counts["param"] + 1))
    buffers = tuple(own.buffer(number) for number in range(counts["buf"] + 1))
    names = [item.name for item in buffers]
    if len(set(names)) != len(names):
        raise OperandError(
            f"{what}: two buffers are named {next(x for x in names if names.count(x) > 1)!r}; valid: different names"
        )
    return Recording(
        own.bytes("ptx").tobytes(), own.text("entry"), own.dim3("grid"), own.dim3("block"), params, buffers, own.dim3("cluster"),
        own.integer("smem", 0), own.text("before_entry", ""), own.text("output") if "output" in fields else None, own.text("arch", ""),
        own.text("gpu", ""), own.text("driver", ""), own.text("launcher", ""), tuple(own.text("notes", "").splitlines()),
        "cooperative" in fields and own.integer("cooperative", 0) == 1,
    )  # fmt: skip


class _Fields:
    """Entries as what they must be. Every method raises OperandError for one that is missing or is something else."""

    def __init__(self, fields: Mapping[str, Any], what: str) -> None:
        self.fields, self.what = fields, what

    def _wrong(self, name: str, said: str, valid: str) -> OperandError:
        return OperandError(f"{self.what}: {name} is {said}; valid: {valid}")

    def _get(self, name: str) -> Any:
        if name not in self.fields:
            raise OperandError(f"{self.what} is not a whole recording: it has no {name}")
        return self.fields[name]

    def bytes(self, name: str) -> Bytes:
        """Bytes, of an array of anything."""
        value = self._get(name)
        if isinstance(value, (str, bytes)):
            value = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in "iufb":
            raise self._wrong(name, f"an array of {array.dtype}", "bytes")
        return array.reshape(-1).view(np.uint8)

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        if name not in self.fields and default is not None:
            return default
        try:
            return self.bytes(name).tobytes().decode()
        except UnicodeDecodeError:
            raise self._wrong(name, "not a text", "UTF-8") from None

    def integers(self, name: str, count: int | None, least: int, most: int) -> tuple[int, ...]:
        """Integers in a range, `count` of them."""
        array = np.asarray(self._get(name))
        good = (
            array.dtype.kind in "iu" and array.ndim <= 1 and (count is None or array.size == count) and array.size <= 32
        )
        if not good or not all(least <= int(value) <= most for value in array.reshape(-1)):
            plural = "integers" if count is None else "one integer" if count == 1 else f"{count} integers"
            raise self._wrong(
                name, shortened(array.tolist() if array.size < 10 else array.shape), f"{plural} from {least} to {most}"
            )
        return tuple(int(value) for value in array.reshape(-1))

    def integer(self, name: str, least: int) -> int:
        """One integer."""
        return self.integers(name, 1, least, 2**63 - 1)[0]

    def dim3(self, name: str) -> Dim3:
        """Three sizes."""
        x, y, z = self.integers(name, 3, 1, 2**31 - 1)
        return x, y, z

    def buffer(self, number: int) -> Buffer:
        """One buffer."""
        start = f"buf{number}"
        address, before = self.integers(f"{start}_address", 1, 1, 2**64 - 1)[0], self.bytes(f"{start}_before")
        after = self.bytes(f"{start}_after") if f"{start}_after" in self.fields else before
        if len(after) != len(before):
            raise self._wrong(f"{start}_after", f"{len(after)} bytes", f"{len(before)}, as {start}_before has")
        kind, shape = OCTETS, tuple[int, ...]()
        if f"{start}_format" in self.fields:
            kind = elements(self.text(f"{start}_format"), f"{self.what}: {start}_format")
            shape = self.integers(f"{start}_shape", None, 0, 2**40)
            if prod(shape) * kind.bits != 8 * len(before):
                raise self._wrong(f"{start}_shape", f"{shape} of {kind.name}", f"what has {len(before)} bytes")
        scratch = f"{start}_scratch" in self.fields and bool(self.integer(f"{start}_scratch", 0))
        return Buffer(self.text(f"{start}_name", start), address, before, after, kind, shape, scratch)


def name_of(recording: Recording, number: int) -> Path:
    """The file of the `number`-th launch of a program: its number and kernel, letters of which a file system takes.

    >>> name_of(Recording(b"", "_Z3addPf", (1, 1, 1), (1, 1, 1), (), ()), 7).name
    '0007__Z3addPf.npz'
    """
    return Path(f"{number:04d}_{re.sub(r'[^A-Za-z0-9_.-]', '_', recording.entry)[:100]}.npz")
