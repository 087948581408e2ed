"""PTX ISA and other dotted versions: which is later."""

from __future__ import annotations


def number(version: str) -> tuple[int, ...]:
    """A version as numbers, which compare as versions do.

    >>> number("9.10") > number("9.2")
    True
    """
    return tuple(int(part) for part in version.split("."))


def latest(*versions: str) -> str:
    """The latest of some versions: what a module needs that uses them all.

    >>> latest("8.1", "10.0", "9.2")
    '10.0'
    """
    return max(versions, key=number)


def earliest(*versions: str) -> str:
    """The earliest of some versions.

    >>> earliest("8.1", "10.0", "9.2")
    '8.1'
    """
    return min(versions, key=number)


_LAST_MINOR = {1: 5, 2: 3, 3: 2, 4: 3, 5: 1, 6: 5, 7: 8, 8: 8, 9: 5}
"""The last version of PTX ISA with each major number, up to that of ptxas 13.5."""
PTX_ISA: tuple[str, ...] = tuple(f"{major}.{minor}" for major, last in _LAST_MINOR.items() for minor in range(last + 1))
"""Every version of PTX ISA, the earliest first."""
PTX_MANUAL = "PTX ISA 9.4"
"""The edition of NVIDIA's manual that is cited, in docstrings as PTX ISA. The assembler that was asked is later: ptxas 13.5, which takes PTX ISA 9.5."""
