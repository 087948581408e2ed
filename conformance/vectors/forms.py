"""Files of vectors and of answers: .npz with whole matrices, JSON lines and $readmemh lines with one output each. All are read in blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from conformance.stimuli.problem import Codes, Matrices
from conformance.vectors.subjects import BLOCK, Field
from tcsim.core.array_files import ArrayFile
from tcsim.core.errors import OperandError, listing, shortened
from tcsim.core.texts import parsed_json

FORMS = {"npz": ".npz", "jsonl": ".jsonl", "hex": ".hex"}
"""Form -> the end of its files' names."""
LONGEST_LINE = 1 << 16
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_HEX, _UNKNOWN = re.compile("[0-9a-fA-F]+"), re.compile("[0-9a-fA-FxXzZ]+")


# --- writing


def hex_lines(fields: Iterable[Field], records: Matrices) -> bytes:
    """One line an output: all fields side by side, element 0 of each at its right end, as a Verilog memory of one word each.

    >>> hex_lines([Field("d", 1, "f32", 8), Field("a", 2, "f16", 4)], {"d": np.array([[1]]), "a": np.array([[2, 0xABC]])})
    b'000000010abc0002\\n'
    """
    parts = []
    for field in fields:
        codes = np.asarray(records[field.name]).astype(np.uint64)[:, ::-1, None]
        shifts = 4 * np.arange(field.digits - 1, -1, -1, dtype=np.uint64)
        parts.append(_DIGITS[codes >> shifts & np.uint64(15)].reshape(len(codes), -1))
    lines = np.concatenate([*parts, np.full((len(parts[0]), 1), ord("\n"), np.uint8)], axis=1)
    return lines.tobytes()


def json_lines(fields: Iterable[Field], records: Matrices, first: int) -> bytes:
    """One object an output: `id`, and each field in hexadecimal, a list where it has several elements."""
    own = list(fields)[::-1]
    width = {field.name: field.digits for field in own}
    columns = {field.name: records[field.name].tolist() for field in own}
    lines = []
    for at in range(len(records["d"])):
        line: dict[str, Any] = {"id": first + at}
        for name, rows in columns.items():
            texts = [f"0x{code:0{width[name]}x}" for code in rows[at]]
            line[name] = texts[0] if len(texts) == 1 else texts
        lines.append(json.dumps(line, separators=(",", ":")))
    return ("\n".join(lines) + "\n").encode()


# --- reading


def records_of(path: Path, form: str, fields: list[Field], subject: Any) -> Iterator[Matrices]:
    """The records of a file of vectors, at most some thousands at a time. Raises OperandError for a file that is damaged."""
    if form == "npz":
        arrays = dict(ArrayFile(path))
        if "d" not in arrays:
            raise OperandError(f"vectors: {path} holds {listing(arrays)}; valid: an array d")
        expected = arrays.pop("d")
        if subject.records:
            try:
                records = subject.as_records(arrays, expected)
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise OperandError(
                    f"vectors: {path} does not hold the operands of its instruction: {shortened(str(error))}"
                ) from None
            yield from _blocks(records)
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        read = _hex_record if form == "hex" else _json_record
        count = 0
        while lines := list(islice(_content(file, path), BLOCK)):
            rows = [
                read(text, f"vectors: {path}: line {number}", fields, count + at)
                for at, (number, text) in enumerate(lines)
            ]
            count += len(lines)
            yield {field.name: np.array([row[field.name] for row in rows], np.uint64) for field in fields}


def _blocks(records: Matrices) -> Iterator[Matrices]:
    for start in range(0, len(records["d"]), BLOCK):
        yield {name: array[start : start + BLOCK] for name, array in records.items()}


def _content(file: IO[str], path: Path) -> Iterator[tuple[int, str]]:
    """Lines that hold something, with their numbers from 1: without comments, addresses (@...) and blanks."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise OperandError(f"vectors: {path}: line {number} has more than {LONGEST_LINE} characters")
        text = line.partition("//")[0].strip()
        if text and not text.startswith("@"):
            yield number, text


def _hex_record(line: str, where: str, fields: list[Field], number: int) -> dict[str, list[int]]:
    digits = sum(field.elements * field.digits for field in fields)
    if len(line) != digits or _HEX.fullmatch(line) is None:
        raise OperandError(f"{where} is {shortened(line)}; valid: {digits} hexadecimal digits")
    out, at = {}, 0
    for field in fields:
        end = at + field.elements * field.digits
        text = line[at:end]
        starts = range(len(text) - field.digits, -1, -field.digits)
        out[field.name] = [int(text[start : start + field.digits], 16) for start in starts]
        at = end
    return out


def _json_record(line: str, where: str, fields: list[Field], number: int) -> dict[str, list[int]]:
    record, out = parsed_json(line.encode(), where), {}
    if not isinstance(record, dict) or record.get("id") != number:
        raise OperandError(f"{where} is {shortened(line)}; valid: an object with id {number}")
    for field in fields:
        texts = record.get(field.name)
        texts = texts if field.elements > 1 else [texts]
        if (
            not isinstance(texts, list)
            or len(texts) != field.elements
            or not all(_is_code(text, field.digits) for text in texts)
        ):
            raise OperandError(
                f"{where}: {field.name} is {shortened(texts)}; valid: {field.elements} x {field.digits} hexadecimal digits"
            )
        out[field.name] = [int(text, 16) for text in texts]
    return out


def _is_code(text: Any, digits: int) -> bool:
    return (
        isinstance(text, str)
        and _HEX.fullmatch(text.removeprefix("0x")) is not None
        and len(text.removeprefix("0x")) <= digits
    )


def answers(path: Path) -> Iterator[tuple[Codes, Codes]]:
    """Another implementation's answers in the order of the vectors: codes (n,) and whether each is known.

    Files may be .npz with `d`, .npy, JSON lines with `d` (with `id`, if given, counting up from 0), or text with one hexadecimal number a
    line; a number with the digits x or z is unknown.

    Raises OperandError for a file that is none of these.
    """
    if path.suffix in (".npz", ".npy"):
        loaded = ArrayFile(path)
        name = "d" if path.suffix == ".npz" else "x"
        if name not in loaded:
            raise OperandError(f"vectors: {path} holds {listing(loaded)}; valid: an array d")
        array = np.ascontiguousarray(loaded[name])
        if array.itemsize not in (1, 2, 4, 8):
            raise OperandError(f"vectors: {path} holds {array.dtype}; valid: answers of at most 64 bits")
        codes = array.view(f"u{array.itemsize}").ravel()
        for start in range(0, len(codes), BLOCK):
            part = codes[start : start + BLOCK].astype(np.uint64)
            yield part, np.ones(len(part), bool)
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        count = 0
        while lines := list(islice(_content(file, path), BLOCK)):
            texts = [
                _answer(text, f"vectors: {path}: line {number}", count + at) for at, (number, text) in enumerate(lines)
            ]
            known = np.array([text is not None for text in texts])
            yield np.array([int(text, 16) if text is not None else 0 for text in texts], np.uint64), known
            count += len(lines)


def _answer(line: str, where: str, number: int) -> str | None:
    """The hexadecimal digits of one answer; None if a simulator does not know it."""
    text = line
    if line.startswith("{"):
        answer = parsed_json(line.encode(), where)
        own = answer.get("id", number)
        if isinstance(own, bool) or own != number:
            raise OperandError(f"{where}: answer {number} has id {shortened(own)}; valid: the order of the vectors")
        text = str(answer.get("d"))
    text = text.removeprefix("0x").replace("_", "")
    if _UNKNOWN.fullmatch(text) is None:
        raise OperandError(
            f"{where}: answer {number} is {shortened(line)}; valid: a hexadecimal number, or JSON with d"
        )
    if len(text.lstrip("0")) > 16:
        raise OperandError(
            f"{where}: answer {number} is {shortened(text)}, of more than 64 bits; valid: 16 hexadecimal digits"
        )
    return text if _HEX.fullmatch(text) else None
