"""Texts that nobody vouches for, on their way in and out.

TOML and JSON: size, depth and length of words are checked before anything is parsed. What is shown, on a terminal, in a page or in JSON: control
characters, and others that cannot be seen, are escaped.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

from tcsim.core.errors import OperandError, printable, shortened

LARGEST = 64 << 20
"""Bytes of a text."""
DEEPEST = 64
"""Brackets that stand in each other, and parts of a dotted key."""
LONGEST_WORD = 1000
"""Letters of a number or a bare key: the parser's time grows with the square of the digits."""

_IN_TOML = r'"""(?:[^"\\]++|\\.|"(?!""))*+"{3,5}|\'\'\'(?:[^\']++|\'(?!\'\'))*+\'{3,5}|"(?:[^"\\\n]++|\\.)*+"|\'[^\'\n]*+\'|#[^\n]*+'
_IN_JSON = r'"(?:[^"\\]++|\\.)*+"'
_WORD = re.compile(rf"\w{{{LONGEST_WORD + 1}}}")
_BRACKET = re.compile(r"[\[\]{}]")
_PIECE = re.compile(r"[^=,\[\]{}\n]++")


def parsed_toml(data: bytes, what: str, most: int = LARGEST) -> dict[str, Any]:
    """The tables of a TOML file; `what` names it in errors.

    Raises OperandError for a file that is not TOML, has more than `most` bytes, or is too deep.

    >>> parsed_toml(b"grid = [1, 2]", "a.toml")
    {'grid': [1, 2]}
    """
    found: dict[str, Any] = _parsed(data, what, most, "TOML", _IN_TOML, tomllib.loads)
    return found


def parsed_json(data: bytes, what: str, most: int = LARGEST) -> Any:
    """The value of a JSON text; `what` names it in errors.

    Raises OperandError for a text that is not JSON, has more than `most` bytes, is too deep, or has a key twice in one object.

    >>> parsed_json(b'{"files": []}', "manifest.json")
    {'files': []}
    """
    return _parsed(data, what, most, "JSON", _IN_JSON, partial(json.loads, object_pairs_hook=_once))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once: of two that are equal each reader would believe another one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        key = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise ValueError(f"{shortened(key)} twice in one object")
    return found


def markup(text: str, quote: bool = True) -> str:
    """A text within a page: what HTML reads otherwise, and what cannot be seen, as escapes.

    >>> markup("a" + chr(27) + "<b>")
    'a\\\\x1b&lt;b&gt;'
    """
    return escape(printable(text), quote)


def shown(value: Any) -> Any:
    """Data with every text in it, keys too, as it may be shown.

    >>> shown({"line": [7, "st" + chr(7)]})
    {'line': [7, 'st\\\\x07']}
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {shown(key): shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, (list, tuple)) else value


def _parsed(data: bytes, what: str, most: int, kind: str, quoted: str, parse: Callable[[str], Any]) -> Any:
    if len(data) > most:
        raise OperandError(f"{what} has more than {most} bytes, which is all that is read")
    try:
        text = data.decode()
        _check(re.sub(quoted, "_", text, flags=re.DOTALL))
        return parse(text)
    except (ValueError, RecursionError) as error:  # also of letters that are not UTF-8, and of integers
        raise OperandError(f"{what} is not {kind}: {shortened(str(error), 200)}") from None


def _check(bare: str) -> None:
    """Raise ValueError for a text, without its strings, that would cost much."""
    if word := _WORD.search(bare):
        raise ValueError(f"a word of more than {LONGEST_WORD} letters: {shortened(word[0], 20)}")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > DEEPEST:
            raise ValueError(f"more than {DEEPEST} brackets in each other")
    if any(piece[0].count(".") >= DEEPEST for piece in _PIECE.finditer(bare)):
        raise ValueError(f"a key of more than {DEEPEST} parts")
