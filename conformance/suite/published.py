"""Hardware results that others published, and the instructions that they are replayed against.

Source: F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", ACM TACO, doi 10.1145/3830409; their
repository north-numerical-computing/MATLAB-tensor-core. conformance/recordings/published/ holds the data, its licence
and how it was made. One row of a set is one result element, d = a . b + c.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison import Comparison, Mismatch, Place, compare, operands_text, trace_of
from conformance.suite import recordings
from conformance.suite.recordings import RecordingError
from tcsim.arithmetic.steps import Lowering
from tcsim.core.evidence import Evidence
from tcsim.numbers.formats import FORMATS, Format
from tcsim.trace import show_code

Codes = npt.NDArray[Any]

SCHEMA = 1
FILE = Path("published", "dot_products.npz")  # below the folder of recordings
SOURCE = "Khattak and Mikaitis, ACM TACO, doi 10.1145/3830409"


@dataclass(frozen=True, eq=False)
class PublishedSet:
    """Dot products that one GPU computed with one instruction."""

    name: str  # "A100-f16-f32": GPU, format of a and b, format of c and d; then how it ran, if there are two
    gpu: str  # "A100"
    arch: str  # "sm_80"
    ran: Literal["wmma", "mma.sync", "wgmma"]  # the instruction that the authors ran
    multiplicand: str  # format of a and b
    accumulator: str  # format of c and d
    a: Codes  # (rows, K)
    b: Codes  # (rows, K)
    c: Codes  # (rows,)
    d: Codes  # (rows,), by the hardware

    @property
    def source(self) -> str:
        """The GPU and who published its results."""
        return f"{self.gpu}, {SOURCE}"

    @property
    def evidence(self) -> Evidence:
        """What a comparison with the set proves."""
        return Evidence("published", self.source)

    @property
    def formats(self) -> dict[str, Format]:
        """The number formats of a, b, c and d."""
        names = (self.multiplicand, self.multiplicand, self.accumulator, self.accumulator)
        return {name: FORMATS[format] for name, format in zip("abcd", names, strict=True)}

    @cached_property
    def mnemonic(self) -> str:
        """The instruction it is replayed against.

        Raises RecordingError if no rule knows what ran.
        """
        for rule in _RULES:
            fits = rule.ran == self.ran and self.multiplicand in rule.multiplicands
            if fits and (not rule.archs or self.arch in rule.archs):
                return rule.mnemonic.format(ab=self.multiplicand, cd=self.accumulator)
        valid = "; ".join(f"{rule.ran} of {', '.join(rule.multiplicands)}" for rule in _RULES)
        raise RecordingError(
            f"published set {self.name}: no instruction is known for {self.ran} of {self.multiplicand} on "
            f"{self.arch}; valid: {valid}"
        )

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """The same, as one of several."""
        return (self.mnemonic,)

    @cached_property
    def instruction(self) -> Any:
        """The same, on the arch of the GPU."""
        return tcsim.instruction(self.mnemonic, arch=self.arch)

    @property
    def family(self) -> str:
        """The family of the instruction."""
        return self.instruction.row.family

    def padded(self, codes: Codes) -> Codes:
        """Rows of K codes as the instruction takes them: zeros follow, as they did on the hardware."""
        out = np.zeros((*codes.shape[:-1], self.instruction.shape[2]), codes.dtype)
        out[..., : codes.shape[-1]] = codes
        return out

    def model(self, lowering: Lowering | None = None) -> Codes:
        """What the model (or another lowering) answers: one code a row. Each row is a product of 1 x K by K x 1."""
        formats = self.formats
        a, b, c = self.padded(self.a)[:, None, :], self.padded(self.b)[:, :, None], self.c[:, None, None]
        return (
            (lowering or self.instruction.lowering).run(a, b, c, (formats["a"], formats["b"], formats["c"])).reshape(-1)
        )

    def compare(self) -> Comparison:
        """Compare every row bit for bit."""
        model, formats = self.model(), self.formats

        def mismatch(place: Place) -> Mismatch:
            codes = {"a": self.a[place], "b": self.b[place], "c": self.c[place]}
            padded = codes | {name: self.padded(codes[name]) for name in "ab"}
            got, want = (show_code(array[place], formats["d"]) for array in (self.d, model))
            text = operands_text(codes, formats)
            return Mismatch(
                {f"{self.name} row": place[0]}, text, got, want, lambda: trace_of(self.instruction, padded, formats)
            )

        return compare(self.d, model, mismatch)


@dataclass(frozen=True)
class _Rule:
    """The registry's instruction for what the authors ran; the first rule that fits counts."""

    ran: str
    archs: tuple[str, ...]  # empty: all
    multiplicands: tuple[str, ...]
    mnemonic: str  # fields: {ab} the format of a and b, {cd} of c and d


_RULES = (
    # wmma m16n16k16 and m16n16k8 run as the machine instructions HMMA.884, HMMA.16816 and HMMA.1684 (ptxas 12.9, 13.5)
    _Rule("wmma", ("sm_70",), ("f16",), "mma.sync.aligned.m8n8k4.row.col.{cd}.{ab}.{ab}.{cd}"),
    _Rule("wmma", (), ("f16", "bf16"), "mma.sync.aligned.m16n8k16.row.col.{cd}.{ab}.{ab}.{cd}"),
    _Rule("wmma", (), ("tf32",), "mma.sync.aligned.m16n8k4.row.col.{cd}.{ab}.{ab}.{cd}"),
    _Rule("mma.sync", (), ("e4m3", "e5m2"), "mma.sync.aligned.m16n8k32.row.col.{cd}.{ab}.{ab}.{cd}"),
    # the authors do not say which N ran; every N has the same arithmetic
    _Rule("wgmma", (), ("e4m3", "e5m2"), "wgmma.mma_async.sync.aligned.m64n8k32.{cd}.{ab}.{ab}"),
)


# --- the file: codes as planes of bytes, which compress better; inputs that several sets share are there once


def write(sets: Iterable[PublishedSet], root: Path = recordings.ROOT) -> Path:
    """Write sets; the bytes depend on the content alone."""
    arrays: dict[str, Codes] = {}
    inputs: dict[tuple[str, bytes, bytes], str] = {}
    header: dict[str, Any] = {"schema": SCHEMA, "source": SOURCE, "sets": []}
    for item in sets:
        key = (item.multiplicand, item.a.tobytes(), item.b.tobytes())
        if key not in inputs:
            inputs[key] = f"inputs{len(inputs)}"
            arrays |= {f"{inputs[key]}.a": _planes(item.a), f"{inputs[key]}.b": _planes(item.b)}
        arrays |= {f"{item.name}.c": _planes(item.c), f"{item.name}.d": _planes(item.d)}
        fields = ("name", "gpu", "arch", "ran", "multiplicand", "accumulator")
        header["sets"].append({field: getattr(item, field) for field in fields} | {"inputs": inputs[key]})
    path = root / FILE
    recordings.write_arrays(path, header, arrays)
    return path


def read(arch: str | None = None, root: Path = recordings.ROOT) -> tuple[PublishedSet, ...]:
    """The sets of an arch, or all; an empty tuple without a file.

    Raises RecordingError if the file cannot be read.
    """
    path = root / FILE
    if not path.exists():
        return ()
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            if header["schema"] != SCHEMA:
                raise ValueError(f"schema {header['schema']}; valid: {SCHEMA}")
            return tuple(
                _set(archive, dict(fields)) for fields in header["sets"] if arch is None or fields["arch"] == arch
            )
    except Exception as error:  # any damage to the file: zip, NumPy or JSON structure, or content
        raise RecordingError(
            f"corrupt file {path}: {type(error).__name__}: {error}; restore the committed file"
        ) from error


def _set(archive: Any, fields: dict[str, Any]) -> PublishedSet:
    inputs, name = fields.pop("inputs"), fields["name"]
    formats = (FORMATS[fields["multiplicand"]], FORMATS[fields["accumulator"]])
    a, b = (_codes(archive[f"{inputs}.{x}"], formats[0]) for x in "ab")
    c, d = (_codes(archive[f"{name}.{x}"], formats[1]) for x in "cd")
    if not (a.shape == b.shape and a.ndim == 2 and c.shape == d.shape == a.shape[:1]):
        raise ValueError(f"{name} has shapes {a.shape}, {b.shape}, {c.shape} and {d.shape}")
    return PublishedSet(a=a, b=b, c=c, d=d, **fields)


def _planes(codes: Codes) -> npt.NDArray[np.uint8]:
    """Codes (...) as bytes (bytes of a code, ...), low byte first."""
    little = np.ascontiguousarray(codes, codes.dtype.newbyteorder("<"))
    return np.moveaxis(little[..., None].view(np.uint8), -1, 0)


def _codes(planes: npt.NDArray[np.uint8], format: Format) -> Codes:
    """Inverse of `_planes`."""
    little = np.ascontiguousarray(np.moveaxis(planes, 0, -1)).view(format.dtype.newbyteorder("<"))
    return little[..., 0].astype(format.dtype)
