"""Statements of PTX in the inline assembly of C++ texts. The scripts that ask other projects import it, so it imports nothing of this one."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CALL = re.compile(r"\basm\s*(?:volatile)?\s*\(")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}


def statements(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each template of assembly in a text, and the constraint letters of its operands: "%0" is the first of them.

    >>> list(statements('asm volatile("mov.b32 %0, " "%1;" : "=r"(d) : "r"(f(a, 1)) : "memory");'))
    [('mov.b32 %0, %1;', ['r', 'r'])]
    """
    for call in _CALL.finditer(text):
        template, *operands = _parts(text, call.end(), ":")
        found = [_LITERAL.search(operand) for part in operands[:2] for operand in _parts(part + ")", 0, ",")]
        constraints = [match[1].lstrip("=+&") for match in found if match is not None]
        joined = "".join(_LITERAL.findall(template))
        yield re.sub(r"\\.", lambda match: _ESCAPES[match[0]], joined), constraints


def _parts(text: str, start: int, separator: str) -> list[str]:
    """The parts of a text up to the parenthesis that closes the one before it, at separators outside of brackets and literals."""
    parts, begin, depth, at = [], start, 0, start
    while depth >= 0:
        letter = text[at]
        if letter == '"':
            literal = _LITERAL.match(text, at)
            assert literal is not None
            at = literal.end()
            continue
        if text.startswith("::", at):
            at += 2
            continue
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (letter == separator and depth == 0):
            parts.append(text[begin:at])
            begin = at + 1
        at += 1
    return parts
