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
from tcsim.core.errors import OperandError

FORMS = {"npz": ".npz", "jsonl": ".jsonl", "hex": ".hex"}
"""Form -> the end of its files' names."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


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
    """The records of a file of vectors, at most some thousands at a time."""
    if form == "npz":
        with np.load(path) as file:
            arrays = dict(file)
        expected = arrays.pop("d")
        if subject.records:
            yield from _blocks(subject.as_records(arrays, expected))
        return
    with path.open() as file:
        read = _hex_record if form == "hex" else _json_record
        while lines := list(islice(_content(file), BLOCK)):
            rows = [read(line, fields) for line in lines]
            yield {field.name: np.array([row[field.name] for row in rows], np.uint64) for field in fields}


def _blocks(records: Matrices) -> Iterator[Matrices]:
    for start in range(0, len(records["d"]), BLOCK):
        yield {name: array[start : start + BLOCK] for name, array in records.items()}


def _content(file: IO[str]) -> Iterator[str]:
    """Lines that hold something: without comments, addresses (@...) and blanks."""
    for line in file:
        text = line.partition("//")[0].strip()
        if text and not text.startswith("@"):
            yield text


def _hex_record(line: str, fields: list[Field]) -> dict[str, list[int]]:
    out, at = {}, 0
    for field in fields:
        end = at + field.elements * field.digits
        text = line[at:end]
        starts = range(len(text) - field.digits, -1, -field.digits)
        out[field.name] = [int(text[start : start + field.digits], 16) for start in starts]
        at = end
    return out


def _json_record(line: str, fields: list[Field]) -> dict[str, list[int]]:
    said = json.loads(line)
    return {
        field.name: [int(x, 16) for x in (said[field.name] if field.elements > 1 else [said[field.name]])]
        for field in fields
    }


def answers(path: Path) -> Iterator[tuple[Codes, Codes]]:
    """Another implementation's answers in the order of the vectors: codes (n,) and whether each is known.

    Files may be .npz with `d`, .npy, JSON lines with `d` (with `id`, if given, counting up from 0), or text with one hexadecimal number a
    line; a number with the digits x or z is unknown.

    Raises OperandError for a file that is none of these.
    """
    if path.suffix in (".npz", ".npy"):
        loaded = np.load(path)
        if path.suffix == ".npz" and "d" not in loaded:
            raise OperandError(f"vectors: {path} holds {', '.join(loaded)}; valid: an array d")
        array = np.ascontiguousarray(loaded["d"] if path.suffix == ".npz" else loaded)
        codes = array.view(f"u{array.itemsize}").ravel()
        for start in range(0, len(codes), BLOCK):
            part = codes[start : start + BLOCK].astype(np.uint64)
            yield part, np.ones(len(part), bool)
        return
    with path.open() as file:
        number = 0
        while lines := list(islice(_content(file), BLOCK)):
            texts = [_answer(line, path, number + at) for at, line in enumerate(lines)]
            known = np.array([text is not None for text in texts])
            yield np.array([int(text, 16) if text is not None else 0 for text in texts], np.uint64), known
            number += len(lines)


def _answer(line: str, path: Path, number: int) -> str | None:
    """The hexadecimal digits of one answer; None if a simulator does not know it."""
    text = line
    if line.startswith("{"):
        said = json.loads(line)
        if said.get("id", number) != number:
            raise OperandError(f"vectors: {path}: answer {number} has id {said['id']}; valid: the order of the vectors")
        text = str(said.get("d"))
    text = text.removeprefix("0x").replace("_", "")
    if re.fullmatch("[0-9a-fA-FxXzZ]+", text) is None:
        raise OperandError(
            f"vectors: {path}: answer {number} is {line[:60]!r}; valid: a hexadecimal number, or JSON with d"
        )
    return None if re.search("[xXzZ]", text) else text
