"""Digests that others published of what one GPU answered, the inputs rebuilt, and the instructions that they are replayed against.

Source: pantheongpu/pantheonsim (Apache-2.0), nvidia/tests/data/lowprec/ptx120.rtx-pro-6000-server.txt at ee69b1f4: digests of an RTX PRO
6000; nvidia/tests/e2e/{mma_blockscale,narrow_cvt,ldmatrix_forms}.cu there say what was run on which inputs. A digest is one number of all
results of an instruction: that it is equal proves them all, and where it is not, it does not say which is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import tcsim
from conformance.comparison import Comparison, Mismatch
from conformance.suite import recordings
from conformance.suite.recordings import RecordingError
from tcsim.core.evidence import Evidence

Words = npt.NDArray[np.uint32]

SCHEMA = 1
FILE = Path("published", "rtx_pro_6000.json")  # below the folder of recordings
ARCH = "sm_120"

# --- digests: FNV-1a over 32-bit words, of each lane's words, and then of the lanes

_BASIS, _PRIME = {32: 2166136261, 64: 1469598103934665603}, {32: 16777619, 64: 1099511628211}


def folded(words: Sequence[int], bits: int = 32) -> int:
    """The digest of words.

    >>> hex(folded([1, 2]))
    '0xed74208a'
    """
    found = _BASIS[bits]
    for word in words:
        found = (found ^ word) * _PRIME[bits] % (1 << bits)
    return found


def digest(results: Words, bits: int = 32) -> str:
    """The digest of results (lanes, words): a word for each lane, its digest if it has several, and the digest of these.

    >>> digest(np.array([[1], [2]], np.uint32))
    'ed74208a'
    """
    lanes = [row[0] if len(row) == 1 else folded(row) for row in results.tolist()]
    return f"{folded(lanes, bits):0{bits // 4}x}"


# --- what was run: inputs, and the results that the model gives


@dataclass(frozen=True)
class Question:
    """What one digest is of."""

    mnemonics: tuple[str, ...]  # what ran; then the other spellings of the same machine instruction
    run: Callable[[], Iterator[Words]]  # the results (lanes, words) of what ran, and of each other spelling
    bits: int = 32


def _execute(mnemonic: str, *operands: Any, **named: Any) -> Any:
    return tcsim.instruction(mnemonic, arch=ARCH).execute(*operands, **named)


@cache
def _products() -> dict[str, Words]:
    """The registers of one warp: 11 words for each lane. Scales are near 1, and indices of kept elements increase."""
    index = np.arange(352, dtype=np.uint64)
    words = ((index * np.uint64(2654435761)) ^ ((index >> np.uint64(3)) * np.uint64(40503))).astype(np.uint32)
    scale = 123 + (np.arange(192, 256)[:, None] * 7 + np.arange(4) * 3) % 8
    words[192:256] = scale.astype(np.uint8).view("<u4")[:, 0]
    words[256:288] = np.tile(np.array([0x4E4E4E4E, 0x44444444], np.uint32), 16)
    lanes = words.reshape(11, 32)
    addend = np.stack([np.arange(32) / 2, *np.broadcast_to([[1.0], [-2.0], [0.25]], (3, 32))], axis=-1)
    return {
        "a": lanes[:4].T, "b": lanes[4:6].T, "c": addend.astype(np.float32).view(np.uint32),
        "scale_a": lanes[6], "scale_b": lanes[7], "metadata": lanes[8], "b of mma.sp": lanes[[4, 5, 9, 10]].T,
    }  # fmt: skip


_SELECTORS = ("byte_id_a", "thread_id_a", "byte_id_b", "thread_id_b")
_DENSE, _SPARSE = "mma.sync.aligned.kind::", "mma.sp::ordered_metadata.sync.aligned.kind::"


def _multiplied(mnemonics: tuple[str, ...], selectors: str) -> Iterator[Words]:
    given = _products()
    names = ["a", "b", "c", *(("scale_a", "scale_b") if selectors else ())]
    operands: dict[str, Any] = {name: given[name] for name in names}
    operands |= dict(zip(_SELECTORS, map(int, selectors), strict=False))
    if mnemonics[0].startswith(_SPARSE):
        operands |= {"b": given["b of mma.sp"], "metadata": given["metadata"]}
    for mnemonic in mnemonics:
        yield _execute(mnemonic, **operands)


def _of_products() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Name, mnemonics, and the four selectors of scales as digits."""
    for a, b in product(("e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), ("e4m3", "e2m1")):
        own = f"m16n8k32.row.col.f32.{a}.{b}.f32"
        plain = (f"mma.sync.aligned.{own}",) if {a, b} <= {"e4m3", "e5m2"} else ()
        yield f"f8f6f4_{a}_{b}", (f"{_DENSE}f8f6f4.{own}", *plain), ""
    scaled = (
        *((f"mx8_{a}_{b}", "mxf8f6f4", "1X", f"{a}.{b}.f32.ue8m0", "0000 1123 3012")
          for a, b in (("e4m3", "e4m3"), ("e2m1", "e3m2"), ("e5m2", "e2m3"))),
        ("mxf4", "mxf4", "2X", "e2m1.e2m1.f32.ue8m0", "0000 2123"),
        ("nvf4_2X_ue8m0", "mxf4nvf4", "2X", "e2m1.e2m1.f32.ue8m0", "0000 2121"),
        ("nvf4_4X_ue4m3", "mxf4nvf4", "4X", "e2m1.e2m1.f32.ue4m3", "0000 0103"),
        ("sp_mx8", "mxf8f6f4", "1X", "e4m3.e4m3.f32.ue8m0", "0000 1132"),
    )  # fmt: skip
    for name, kind, vector, types, every in scaled:
        sparse = name.startswith("sp")
        k = 64 if sparse or vector != "1X" else 32
        spelled = f"{_SPARSE if sparse else _DENSE}{kind}.block_scale{{}}.m16n8k{k}.row.col.f32.{types}"
        short = (spelled.format(""),) if kind != "mxf4nvf4" else ()
        for selectors in every.split():
            yield f"{name}_s{selectors}", (spelled.format(f".scale_vec::{vector}"), *short), selectors


@cache
def _numbers() -> tuple[Words, Words]:
    """4,096 numbers of f32, with NaN, infinities, subnormal numbers, numbers beyond each range and zeros; and another for each."""
    index = np.arange(4096)
    spread = index.astype(np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32) % np.uint64(40001)
    x = (spread.astype(np.float32) - np.float32(20000)) / np.float32(1999)
    special = (
        (97, np.nan, np.nan),
        (89, np.inf, -np.inf),
        (83, 1e-40, -3e-39),
        (79, 1e30, -7e5),
        (73, 0.0, 0.0),
        (71, -0.0, -0.0),
    )
    for every, odd, even in special:
        x[::every] = np.where(index[::every] % 2 == 1, np.float32(odd), np.float32(even))
    codes = x.view(np.uint32)
    return codes, codes[(index * 7 + 3) % 4096]


@cache
def _narrowed(mnemonic: str) -> Words:
    """The results of a conversion of numbers; of their magnitudes to ue8m0."""
    a, b = (codes & np.uint32(0x7FFFFFFF if "ue8m0" in mnemonic else 0xFFFFFFFF) for codes in _numbers())
    return np.asarray(_execute(mnemonic, a, b)).astype(np.uint32)


def _converted(mnemonics: tuple[str, ...], source: str) -> Iterator[Words]:
    """Of narrowing conversions the results side by side in a word; of a widening one, of what `source` gave."""
    if source:
        given = _narrowed(source).astype(np.uint8 if "e2m1" in source else np.uint16)
        yield _execute(mnemonics[0], given)[:, None]
        return
    parts, width = [_narrowed(mnemonic) for mnemonic in mnemonics], 8 if "e2m1" in mnemonics[0] else 16
    word = sum(part << np.uint32(width * place) for place, part in enumerate(parts))
    yield np.asarray(word | word << np.uint32(16) if width == 8 else word, np.uint32)[:, None]


_NARROW = {
    name: f"cvt.{how}{name.removesuffix(' .relu')}.f32"
    for name, how in (
        ("e2m1x2", "rn.satfinite."), ("e2m1x2 .relu", "rn.satfinite.relu."), ("e3m2x2", "rn.satfinite."), ("e2m3x2", "rn.satfinite."),
        ("e4m3x2", "rn.satfinite."), ("e5m2x2", "rn.satfinite."), ("ue8m0x2", "rz.satfinite."),
    )
}  # fmt: skip


def _of_numbers() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Name, mnemonics, and what gave the operand of a widening conversion."""
    yield "e2m1x2 (and .relu)", (_NARROW["e2m1x2"], _NARROW["e2m1x2 .relu"]), ""
    yield "e3m2x2, e2m3x2", (_NARROW["e3m2x2"], _NARROW["e2m3x2"]), ""
    yield "e4m3x2, e5m2x2", (_NARROW["e4m3x2"], _NARROW["e5m2x2"]), ""
    yield "ue8m0x2 .rz", (_NARROW["ue8m0x2"],), ""
    yield "ue8m0x2 .rp", ("cvt.rp.satfinite.ue8m0x2.f32",), ""
    for name, source in _NARROW.items():
        wide, type = "bf16x2" if name == "ue8m0x2" else "f16x2", name.removesuffix(" .relu")
        yield f"{wide} from {name}", (f"cvt.rn.{wide}.{type}",), source


def _loaded(mnemonics: tuple[str, ...]) -> Iterator[Words]:
    """Rows of 16 bytes, one for each lane, of a pattern of bytes."""
    memory = (np.arange(1024) * 37 + 11).astype(np.uint8)
    yield _execute(mnemonics[0], smem=memory, address=16 * np.arange(32))


def _of_loads() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in ("m8n8.x4.b16", "m8n8.x4.trans.b16", "m8n16.x4.b4x16_p64", "m8n16.x4.b6x16_p32", "m8n16.x2.b4x16_p64", "m8n16.x1.b6x16_p32",
                 "m16n16.x1.trans.b8", "m16n16.x2.trans.b8", "m16n16.x2.trans.b4x16_p64", "m16n16.x1.trans.b6x16_p32"):  # fmt: skip
        head, _, type = name.rpartition(".")
        yield name, (f"ldmatrix.sync.aligned.{head}.shared.{'b8x16.' * ('_p' in type)}{type}",)


@cache
def questions() -> dict[tuple[str, str], Question]:
    """What every digest is of, by program and name."""
    found = {}
    for name, mnemonics, selectors in _of_products():
        found["mma_blockscale", name] = Question(mnemonics, partial(_multiplied, mnemonics, selectors), 64)
    for name, mnemonics, source in _of_numbers():
        found["narrow_cvt", name] = Question(mnemonics, partial(_converted, mnemonics, source))
    for name, mnemonics in _of_loads():
        found["ldmatrix_forms", name] = Question(mnemonics, partial(_loaded, mnemonics))
    return found


# --- the digests


@dataclass(frozen=True)
class PublishedDigest:
    """The digest of all results of one instruction, or of several together, on one GPU."""

    name: str  # "RTX-PRO-6000-mx8_e4m3_e4m3_s0000"
    gpu: str
    arch: str
    source: str  # who published it
    digest: str
    question: Question

    @property
    def evidence(self) -> Evidence:
        """What an equal digest proves."""
        return Evidence("published", f"{self.gpu}, digests of {self.source}")

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """The instructions that it is replayed against."""
        return self.question.mnemonics

    @property
    def mnemonic(self) -> str:
        """The first of them."""
        return self.mnemonics[0]

    @cached_property
    def instruction(self) -> Any:
        """The same, on the arch of the GPU."""
        return tcsim.instruction(self.mnemonic, arch=self.arch)

    @property
    def family(self) -> str:
        """The family of the instructions."""
        return str(self.instruction.row.family)

    def compare(self) -> Comparison:
        """Compare the digest of what the model answers, of each spelling; a difference counts once."""
        outputs, wrong = 0, []
        for results in self.question.run():
            outputs += results.size
            if (found := digest(results, self.question.bits)) != self.digest:
                wrong.append(
                    Mismatch(
                        {self.name: "digest"}, f"{results.size} results,", self.digest, found, lambda: [self.mnemonic]
                    )
                )
        return Comparison(outputs, len(wrong), tuple(wrong))


def _id(name: str) -> str:
    """A name without what a command line would have to quote.

    >>> _id("e2m1x2 (and .relu)")
    'e2m1x2-and-.relu'
    """
    return re.sub(r"[^\w.]+", "-", name).strip("-")


def read(arch: str | None = None, root: Path = recordings.ROOT) -> tuple[PublishedDigest, ...]:
    """The digests of an arch, or all; an empty tuple without a file.

    Raises RecordingError if the file cannot be read, or holds other digests than those whose inputs are known.
    """
    path = root / FILE
    if not path.exists():
        return ()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}; valid: {SCHEMA}")
        held = {(program, name): text for program, own in data["digests"].items() for name, text in own.items()}
        if held.keys() != questions().keys():
            raise ValueError(f"{min(held.keys() ^ questions().keys())} is in the file or known, and not both")
        gpu, source = str(data["gpu"]), str(data["source"]).partition(",")[0]
        every = (
            PublishedDigest(
                f"RTX-PRO-6000-{_id(name)}", gpu, str(data["arch"]), source, str(held[program, name]), question
            )
            for (program, name), question in questions().items()
        )
        return tuple(item for item in every if arch in (None, item.arch))
    except Exception as error:  # any damage to the file: JSON structure, or content
        raise RecordingError(
            f"corrupt file {path}: {type(error).__name__}: {error}; restore the committed file"
        ) from error
