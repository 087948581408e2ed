"""What the parsers are fuzzed with: random inputs for each, what it may raise, and how long it may take.

`python -m tests.unit.tcsim.fuzz_parsers 1000000` gives every parser a million inputs and prints how many it took and refused;
`... 1000000 number layout` only those two. tests/unit/tcsim/test_fuzz.py runs a small share. One draw of bytes is many inputs: each byte
is a token of the parser's language, and some end an input, so that a million inputs take minutes. A failure names its input.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tcsim
from conformance.suite.cases import Case
from tcsim import catalog
from tcsim.cli import options
from tcsim.core.array_files import ArrayFileError, header_of
from tcsim.core.errors import TcsimError
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.descriptors.kinds import KINDS
from tcsim.inspection.numbers import inspect_number
from tcsim.inspection.swizzle_view import find_swizzle, swizzle_view
from tcsim.layouts.algebra import coalesce, cosize
from tcsim.memory.mbarrier_object import decode_barrier
from tests.unit.tcsim import fuzz_ptx

LIMIT = 5.0
"""Seconds of this thread's own time that one input may take."""
DRAWN = 2048
"""Bytes of one draw, at most."""


@dataclass
class Count:
    """What became of the inputs of one parser."""

    taken: int = 0
    refused: int = 0
    slowest: float = 0.0

    @property
    def inputs(self) -> int:
        """All of them."""
        return self.taken + self.refused


@dataclass(frozen=True)
class Parser:
    """One parser under test: what it is called with, made of drawn bytes, and what it may raise."""

    name: str
    inputs: Callable[[bytes], Iterator[Any]]
    call: Callable[[Any], object]
    raises: type[ValueError] = TcsimError
    count: Count = field(default_factory=Count)

    def check(self, drawn: bytes) -> None:
        """Give the parser every input of a draw: it answers or raises what it documents, in time and in one short line."""
        for given_input in self.inputs(drawn):
            began = time.thread_time()
            message = None
            try:
                self.call(given_input)
            except self.raises as error:
                message = str(error)
            except Exception as error:
                raise AssertionError(f"{self.name}: {error!r:.300} for {given_input!r:.500}") from error
            took = time.thread_time() - began
            self.count.taken += message is None
            self.count.refused += message is not None
            if message is not None:
                said = self.raises is not ValueError or message.startswith("no case id")
                assert said and "\n" not in message and len(message) < 3000, f"{message:.300}: {given_input!r:.500}"
            self.count.slowest = max(self.count.slowest, took)
            assert took < LIMIT, f"{self.name}: {took:.1f} s for {given_input!r:.500}"


LETTERS = (*map(chr, range(32, 127)), "\0", "\n", "\t", "\u00e9", "\u0661", "\u00bd", "\u221e", "\ud800", "\U0001f600")
"""Single letters that are no tokens: some of them digits to Python, one that no encoding takes."""


def texts(*tokens: str, samples: tuple[str, ...], repeated: str) -> Callable[[bytes], Iterator[str]]:
    """Inputs of tokens, letters and thousands of a letter; and samples as they are, or changed in one or two places."""

    def inputs(drawn: bytes) -> Iterator[str]:
        parts: list[str] = []
        source = iter(drawn)
        for byte in source:
            if byte < 20:
                yield "".join(parts)
                parts = []
            elif byte < 40:
                changed = samples[next(source, 0) % len(samples)]
                for _ in range(byte % 3):
                    place, length, new = next(source, 0) % (len(changed) + 1), next(source, 0) % 3, next(source, 0)
                    word = tokens[new % len(tokens)] if new < 128 else LETTERS[new % len(LETTERS)]
                    changed = changed[:place] + word + changed[place + length :]
                yield changed
            elif byte < 42:
                parts.append(repeated[next(source, 0) % len(repeated)] * (next(source, 0) * 40))
            elif byte < 64:
                parts.append(LETTERS[next(source, 0) % len(LETTERS)])
            else:
                parts.append(tokens[byte % len(tokens)])
        yield "".join(parts)

    return inputs


def words(bits: int, *samples: int) -> Callable[[bytes], Iterator[tuple[int, int]]]:
    """Samples with at most two bits flipped; random words, of few set bits, too wide, negative; and two bytes that choose the rest."""

    def inputs(drawn: bytes) -> Iterator[tuple[int, int]]:
        for at in range(0, len(drawn) - 11, 12):
            piece = drawn[at : at + 12]
            word = int.from_bytes(piece[:8], "little") & (1 << bits) - 1
            if piece[8] < 128:
                word &= int.from_bytes(piece[4:8] + piece[:4], "big")
            if piece[8] < 64:
                word = sum(1 << place % bits for place in piece[: piece[8] % 5])
            if piece[8] >= 160 and samples:
                word = samples[piece[0] % len(samples)]
                for place in piece[1 : 1 + piece[8] % 3]:
                    word ^= 1 << place % bits
            if piece[9] < 8:
                word = (-word, word << 8, word << 4000, -1)[piece[9] % 4]
            yield word, piece[10] << 8 | piece[11]

    return inputs


# --- mnemonics


@cache
def _mnemonics() -> tuple[str, ...]:
    return tuple(catalog.rows())


def _mnemonic_inputs(drawn: bytes) -> Iterator[tuple[str, str]]:
    """A mnemonic with parts left out, doubled, moved or taken from another; and an arch."""
    archs = [*ARCHS, *TARGETS, "sm_99", "", "sm_90 "]
    for at in range(0, len(drawn) - 7, 8):
        a, b, kind, x, y, arch, more, _ = drawn[at : at + 8]
        name = _mnemonics()[(a << 8 | b) % len(_mnemonics())]
        parts = name.split(".")
        if kind < 60:
            del parts[x % len(parts)]
        elif kind < 120:
            parts.insert(y % (len(parts) + 1), parts[x % len(parts)])
        elif kind < 170:
            other = _mnemonics()[(x << 8 | y) % len(_mnemonics())].split(".")
            parts[more % len(parts)] = other[y % len(other)]
        elif kind < 200:
            parts[x % len(parts)] = chr(y) * (more * 40 if more < 3 else more % 20)
        elif kind < 230:
            place = x % len(parts)
            parts[place] = parts[place][::-1]
        yield ".".join(parts), archs[arch % len(archs)]


# --- layouts


def _layout_inputs(drawn: bytes) -> Iterator[tuple[Any, Any]]:
    """Nested tuples, lists and numbers: shapes and strides that often nest alike."""
    source = iter(drawn)
    odd = (-1, 0, True, 1.5, None, "4", np.int64(6), np.arange(3), 1 << 40, 1 << 70, 10**5000, ())

    def number() -> Any:
        byte = next(source, 1)
        return odd[next(source, 0) % len(odd)] if byte < 12 else (1, 2, 3, 4, 8, 16, 32, 64)[byte % 8]

    def nested(depth: int) -> Any:
        byte = next(source, 255)
        if depth > 5 or byte > 90:
            return number()
        return (list if byte < 6 else tuple)(nested(depth + 1) for _ in range(byte % 4))

    def alike(shape: Any) -> Any:
        return type(shape)(alike(mode) for mode in shape) if isinstance(shape, (tuple, list)) else number()

    while (byte := next(source, None)) is not None:
        shape: Any = nested(0)
        if byte < 3:
            for _ in range(2000):
                shape = (shape,)
            yield shape, ()
        elif byte < 160:
            yield shape, alike(shape)
        else:
            yield shape, () if byte < 220 else nested(0)


def _layout(given_input: tuple[Any, Any]) -> object:
    layout = tcsim.layouts.layout.Layout(*given_input)
    str(layout)
    return layout(0), layout(layout.size - 1), cosize(layout), coalesce(layout)


# --- tensor maps


_MAPS = tuple(
    tmap.encode(0x7FFF00010000)
    for tmap in (
        tcsim.TensorMap("FLOAT16", (256, 128), (512,), (64, 64)),
        tcsim.TensorMap("FLOAT32", (64,), (), (32,), swizzle="NONE"),
        tcsim.TensorMap("UINT8", (64, 8, 8, 8, 8), (64, 512, 4096, 32768), (16, 1, 2, 3, 4), swizzle="32B"),
        tcsim.TensorMap("16U4_ALIGN16B", (128, 2), (64,), (128, 2)),
        tcsim.TensorMap.im2col(
            "FLOAT16", (64, 9, 14, 64), (128, 1152, 16128), (-1, -1), (-1, -1), 8, 64, swizzle="NONE"
        ),
    )
)


def _map_inputs(drawn: bytes) -> Iterator[bytes]:
    """A map with bits flipped or bytes replaced, sometimes cut; and random bytes."""
    for at in range(0, len(drawn) - 7, 8):
        which, kind, *places = drawn[at : at + 8]
        if kind < 10:
            yield drawn[at : at + 64 * (kind % 4)]
            continue
        data = bytearray(_MAPS[which % len(_MAPS)])
        for place in places[: kind % 4]:
            data[place % 128] ^= 1 << (place + kind) % 8
        if kind > 200:
            data[places[4] % 64] = places[5]
        yield bytes(data[:64] if kind % 7 == 0 else data)


def _map(data: bytes) -> object:
    tmap = tcsim.TensorMap.decode(data, strict=False)
    lines = tcsim.TensorMap.unexplained(data)
    try:
        again = tcsim.TensorMap.decode(data)
        assert not lines and again == tmap
        large = int.from_bytes(data, "little") >> 85 & 1
        image = tmap.encode(tcsim.TensorMap.address_of(data), "LARGE" if large else "SMALL")
        apart = int.from_bytes(image[:64], "little") ^ int.from_bytes(data[:64], "little")
        assert apart in (0, 1 << 65)
        assert not any(data[64:]) or data[64:] == image[64:]
    except TcsimError:
        assert lines
    return str(tmap), tmap.loaded


# --- NumPy's headers


_HEADER = texts(
    "'descr': ", "'<f2'", "'|u1'", "'<V2'", "'|O'", "'fortran_order': ", "False", "True", "'shape': ", "(16, 16)", "()", "(3,)",
    ", ", "{", "}", "{'descr': '<f2', 'fortran_order': False, 'shape': (", ", 4), }", "-1", "nan", "1e9", "99999999999",
    "{'descr': '", "', 'fortran_order': False, 'shape': (2, 3), }", "f4", "b", "c", "[('a', '<f4')]", "0x", "*", "**", "lambda: 0",
    samples=tuple(f"{{'descr': '{d}', 'fortran_order': {o}, 'shape': {x}, }}" for d in ("<f2", "|u1", "<V2") for o in (True, False) for x in ((), (16,), (2, 3, 4))),
    repeated="(9[{-fx 1,",
)  # fmt: skip


def _header_inputs(drawn: bytes) -> Iterator[bytes]:
    for number, text in enumerate(_HEADER(drawn)):
        body = text.encode("utf-8", "surrogatepass") + b"\n"
        version = (1, 1, 1, 2, 3, 9)[number % 6]
        size = len(body) if number % 11 else len(body) * 257 + 5
        yield b"\x93NUMPY" + bytes((version, 0)) + (
            (size & 0xFFFF).to_bytes(2, "little") if version == 1 else size.to_bytes(4, "little")
        ) + body  # fmt: skip


# --- the table


_ARCHS = (*ARCHS, "sm_90a", "sm_99")
_KINDS = (*KINDS, "", "f17")
_FORMATS = (*tcsim.FORMATS, "f17")


def _number_inputs(drawn: bytes) -> Iterator[tuple[str, str]]:
    for number, text in enumerate(_NUMBER(drawn)):
        yield _FORMATS[number % len(_FORMATS)], text


_DIGITS = tuple("0123456789")
_NUMBER = texts(
    *_DIGITS, "0x", "0b", "e", "E+", "e-", ".", "-", "+", "/", "_", "inf", "nan", "infinity", " ", "1e", "99999", "1.5", "1/3",
    "0x3c", "e400", samples=("1.5", "-1e-3", "1/3", "0x3c", "0b101", "-inf", "nan", "448", "+0", "1e400", "-0.0"), repeated="0123456789e-+._/f ",
)  # fmt: skip
_TEXTS: dict[str, tuple[Callable[[bytes], Iterator[str]], Callable[[str], object], type[ValueError]]] = {
    "element": (
        texts(*_DIGITS, ",", ",", "(", ")", " ", "-", "3,7", samples=("3,7", "(0, 15)", "12,3"), repeated="0(,9 "),
        options.element_of,
        TcsimError,
    ),
    "integer": (
        texts(
            *_DIGITS,
            "0x",
            "0b",
            "0o",
            "_",
            "-",
            "+",
            "f",
            " ",
            samples=("0x4000", "-12", "1_000", "0b11"),
            repeated="0f_1- ",
        ),
        lambda text: options.integer_of(text, "value"),
        TcsimError,
    ),
    "swizzle": (
        texts(
            *_DIGITS,
            ",",
            ",",
            "3,4,3",
            "2,4,3",
            "Swizzle<",
            ">",
            "128B",
            "64b",
            "NONE",
            " ",
            "-",
            samples=("3,4,3", "Swizzle<2,4,3>", "128B", "64b", "NONE", "1,4,9"),
            repeated="0,9S",
        ),
        lambda text: (find_swizzle(text)[1](0x1234), swizzle_view(text, rows=9)),
        TcsimError,
    ),
    "case id": (
        texts(
            "mma.sync",
            "-",
            "-",
            "wide",
            "random",
            *_DIGITS,
            "a-",
            "-1",
            samples=("mma.sync.aligned.m8n8k4-wide-0", "ldmatrix.x4-random-12"),
            repeated="-a1.\n",
        ),
        lambda text: Case.parse(text).id,
        ValueError,
    ),
}


_MATRIX = tuple(
    tcsim.MatrixDescriptor(0x4000, 16, 1024, 0, "128B", 0, 0, arch).encode() for arch in ("sm_90", "sm_100", "sm_103")
)
_INSTRUCTION = tuple(
    tcsim.InstructionDescriptor(kind=kind, m=128, n=64, a_format=a, b_format=a, d_format=d).encode()
    for kind, a, d in (
        ("f16", "f16", "f32"),
        ("f16", "bf16", "f32"),
        ("tf32", "tf32", "f32"),
        ("f8f6f4", "e4m3", "f16"),
    )
)


def _described(given_input: tuple[int, int], decode: Callable[..., Any]) -> object:
    value, chosen = given_input
    found = decode(value, arch=_ARCHS[chosen % len(_ARCHS)])
    assert found.encode() == value
    return found


def _idesc(given_input: tuple[int, int]) -> object:
    value, chosen = given_input
    kind = _KINDS[chosen % len(_KINDS)]
    found = tcsim.InstructionDescriptor.decode(
        value, kind=kind, arch=("sm_100", "sm_103", "sm_90", "sm_107")[chosen >> 8 & 3]
    )
    assert found.encode() == value
    return found.describe()


def parsers() -> dict[str, Parser]:
    """Every parser by name."""
    every = [
        Parser("mnemonic", _mnemonic_inputs, lambda pair: tcsim.instruction(pair[0], arch=pair[1])),
        Parser("number", _number_inputs, lambda pair: inspect_number(*pair).as_dict()),
        *(Parser(name, *parts) for name, parts in _TEXTS.items()),
        Parser("layout", _layout_inputs, _layout),
        Parser("descriptor", words(64, *_MATRIX), lambda pair: _described(pair, tcsim.MatrixDescriptor.decode)),
        Parser("instruction descriptor", words(32, *_INSTRUCTION), _idesc),
        Parser("barrier", words(64), lambda pair: decode_barrier(pair[0], _ARCHS[pair[1] % len(_ARCHS)])),
        Parser("map", _map_inputs, _map),
        Parser("ptx", fuzz_ptx.inputs, fuzz_ptx.call),
        Parser("npz header", _header_inputs, lambda data: header_of(io.BytesIO(data), "fuzz"), ArrayFileError),
    ]
    return {parser.name: parser for parser in every}


def run(parser: Parser, inputs: int, first_seed: int = 0) -> Count:
    """Draw until the parser has had this many inputs. A failure names the one input."""
    number = first_seed
    while parser.count.inputs < inputs:

        @seed(number)
        @settings(
            max_examples=max(2, min(50, inputs // 100)), database=None, deadline=None, derandomize=False, phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.binary(min_size=DRAWN // 8, max_size=DRAWN))
        def draw(drawn: bytes) -> None:
            parser.check(drawn)

        draw()
        number += 1
    return parser.count


def main(arguments: list[str]) -> None:
    """Print a line for each parser."""
    wanted = int(arguments[0]) if arguments else 1_000_000
    table = parsers()
    for name in arguments[1:] or table:
        began = time.perf_counter()
        count = run(table[name], wanted)
        print(
            f"{name:24}{count.inputs:>12,} inputs {count.taken:>10,} taken {count.refused:>10,} refused"
            f"   slowest {1000 * count.slowest:.0f} ms   {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
