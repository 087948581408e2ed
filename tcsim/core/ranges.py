"""Indices as ranges, as lists for readers show them."""

from __future__ import annotations


def runs(k: tuple[int, ...]) -> str:
    """Indices as ranges, for readers.

    >>> runs((0, 1, 4, 5, 8, 9)), runs((0, 1, 2, 4))
    ('0-1,4-5,8-9', '0-2,4')
    """
    parts: list[list[int]] = []
    for index in k:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
