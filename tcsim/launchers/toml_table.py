"""A table of a TOML file, read key by key: what is wrong is named by its place, and what is left over is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tcsim.core.errors import OperandError, listing, nearest, shortened


class Table:
    """A table, and where it stands. Each method raises OperandError for a value that is something else."""

    def __init__(self, values: Any, where: str, file: str) -> None:
        self.where, self.file = where, file
        if not isinstance(values, dict):
            raise OperandError(f"{file}: {where or 'the file'} is {shortened(values)}; valid: a table")
        self.values: dict[str, Any] = values

    def wrong(self, key: str, valid: str, said: str | None = None) -> OperandError:
        """An error about a key of this table."""
        value = said if said is not None else f"={shortened(self.values.get(key))}"
        return OperandError(f"{self.file}: {self.place(key)}{value}; valid: {valid}")

    def place(self, key: str) -> str:
        """The whole name of a key; with "" that of the table."""
        return ".".join(part for part in (self.where, key) if part)

    def only(self, keys: Iterable[str]) -> None:
        """Refuse every other key."""
        valid = tuple(keys)
        for key in self.values:
            if key not in valid:
                close = f"nearest: {listing(nearest(key, valid, 1))}; " if valid else ""
                raise OperandError(
                    f"{self.file}: unknown key {shortened(self.place(key))}; {close}valid: {listing(valid)}"
                )

    def has(self, key: str) -> bool:
        """Whether it has a key."""
        return key in self.values

    def table(self, key: str) -> Table:
        """A table in it, empty if there is none."""
        return Table(self.values.get(key, {}), self.place(key), self.file)

    def tables(self, key: str) -> list[Table]:
        """A list of tables."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, f"a list of tables, [[{key}]]")
        return [Table(own, f"{self.place(key)}[{number}]", self.file) for number, own in enumerate(value)]

    def text(self, key: str, default: str | None = None, choices: Iterable[str] = ()) -> str:
        """A text, perhaps one of some."""
        value, valid = self.values.get(key, default), tuple(choices)
        if not isinstance(value, str) or (valid and value not in valid):
            close = f"{listing(valid)}" if valid else "a text"
            raise self.wrong(key, close) if key in self.values else self.wrong(key, close, " is missing")
        return value

    def integer(self, key: str, default: int | None = None, least: int = 0, most: int = 2**63 - 1) -> int:
        """An integer in a range."""
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            valid = f"an integer from {least}" + (f" to {most}" if most != 2**63 - 1 else "")
            raise self.wrong(key, valid) if key in self.values else self.wrong(key, valid, " is missing")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A float, or an integer of at most 64 bits; it must be there unless there is a default."""
        value = self.values.get(key, default)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, (int, float)) or not (
            isinstance(value, float) or (whole and -(1 << 63) <= value < 1 << 64)
        ):
            valid = "a number; integers of at most 64 bits"
            raise self.wrong(key, valid) if key in self.values else self.wrong(key, valid, " is missing")
        return value

    def sizes(
        self, key: str, default: tuple[int, ...] | None = None, least: int = 1, most: int = 32
    ) -> tuple[int, ...]:
        """An integer, or a list of at most `most` of them; a list of sizes that may not be 0 is not empty."""
        value = self.values.get(key, default)
        given = [value] if isinstance(value, int) else list(value) if isinstance(value, (list, tuple)) else None
        good = given is not None and all(
            isinstance(own, int) and not isinstance(own, bool) and own >= least for own in given
        )
        if given is None or not good or len(given) > most or (least > 0 and not given):
            valid = f"an integer from {least}, or a list of up to {most}"
            raise self.wrong(key, valid) if key in self.values else self.wrong(key, valid, " is missing")
        return tuple(given)
