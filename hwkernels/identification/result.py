"""What was found of an unknown machine, with the questions that decided it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hwkernels.identification.machine import NOT_OBSERVABLE, OPEN, Batch, Machine, Signature
from tcsim.core.ranges import runs
from tcsim.numbers.formats import FORMATS

_LISTED = 6  # products of a question, and rivals that remain, that are printed


@dataclass(frozen=True)
class Question:
    """One dot product: its codes."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int
    scale_a: tuple[int, ...] | None = None
    scale_b: tuple[int, ...] | None = None

    @classmethod
    def of(cls, batch: Batch, row: int) -> Question:
        """A row of a batch."""
        scales = (None if s is None else tuple(s[row].tolist()) for s in (batch.scale_a, batch.scale_b))
        return cls(tuple(batch.a[row].tolist()), tuple(batch.b[row].tolist()), int(batch.c[row]), *scales)

    def text(self, signature: Signature) -> str:
        """The nonzero products and the addend, as codes."""
        wide = [FORMATS[name].container_bits // 4 for name in (signature.a, signature.b, signature.c)]
        used = [i for i, pair in enumerate(zip(self.a, self.b, strict=True)) if all(pair)]
        parts = [f"[{i}] {self.a[i]:0{wide[0]}x} * {self.b[i]:0{wide[1]}x}" for i in used[:_LISTED]]
        more = f" and {len(used) - _LISTED} more" if len(used) > _LISTED else ""
        return f"c {self.c:0{wide[2]}x} + " + (" + ".join(parts) or "no product") + more


@dataclass(frozen=True)
class Evidence:
    """Why a key has its value and not a rival's."""

    key: str
    value: Any
    rival: Any
    question: Question
    answer: int
    rival_answer: int  # what a machine with the rival's value would have answered

    @classmethod
    def of(cls, key: str, value: Any, rival: Any, batch: Batch, row: int, answer: int, rival_answer: int) -> Evidence:
        """From a row of a batch."""
        return cls(key, value, rival, Question.of(batch, row), answer, rival_answer)


@dataclass(frozen=True)
class Mismatch:
    """A question that the nearest hypothesis answers wrongly."""

    question: Question
    answer: int
    predicted: int

    @classmethod
    def of(cls, batch: Batch, answer: int, predicted: int) -> Mismatch:
        """From a batch of one."""
        return cls(Question.of(batch, 0), answer, predicted)


@dataclass(frozen=True)
class Identified:
    """The answer of `identify`."""

    signature: Signature
    found: dict[str, Any]  # by key, `widened` for `as`; empty if outside the hypotheses
    nearest: Machine  # a machine that answers as the unknown one, or the nearest hypothesis
    evidence: tuple[Evidence, ...]
    asked: int  # dot products
    mismatch: Mismatch | None  # the smallest question that no hypothesis explains
    tied: tuple[str, ...] = ()  # keys that show only if another changes too: `found` has what goes with the others
    reason: str = "no hypothesis explains every answer"  # why it was refused
    open: tuple[str, ...] = ()  # keys with a rival that neither a question nor a proof excludes
    remaining: tuple[dict[str, Any], ...] = ()  # what hypotheses change that neither a question nor a proof excludes
    spent: bool = False  # whether the limit of questions ended the search

    @property
    def outside(self) -> bool:
        """Whether no hypothesis fits."""
        return self.mismatch is not None

    @property
    def undecided(self) -> bool:
        """Whether the questions did not reach to find the steps: nothing was found, and nothing refuted."""
        return not self.found and self.mismatch is None

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.outside:
            return f"outside my hypotheses: {self.reason}"
        if self.undecided:
            return "undecided: the limit of questions was reached before the steps were known"
        return "identified" + (" as far as the limit of questions allowed" if self.spent else "")

    @property
    def keys(self) -> dict[str, Any]:
        """What was found by key, `as` under its own name."""
        return {("as" if key == "widened" else key): value for key, value in self.found.items()}

    @property
    def answer(self) -> dict[str, Any]:
        """`keys`, an open one with the value of the machine that explains every answer."""
        own = {("as" if key == "widened" else key): getattr(self.nearest, key) for key in self.found}
        return {key: own[key] if value == OPEN else value for key, value in self.keys.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "signature": asdict(self.signature),
            "verdict": self.verdict,
            "found": self.keys,
            "tied": ["as" if key == "widened" else key for key in self.tied],
            "open": ["as" if key == "widened" else key for key in self.open],
            "remaining": [{"as" if key == "widened" else key: x for key, x in own.items()} for own in self.remaining],
            "asked": self.asked,
            "evidence": [asdict(item) for item in self.evidence],
            "mismatch": asdict(self.mismatch) if self.mismatch else None,
        }

    def lines(self) -> list[str]:
        """For readers: a line for each key, and one for each rival that a question refuted."""
        digits = FORMATS[self.signature.d].container_bits // 4
        if self.mismatch is not None:
            case = self.mismatch
            return [
                f"{self.verdict} ({self.asked:,} dot products asked)",
                f"smallest case: {case.question.text(self.signature)}",
                f"answer {case.answer:0{digits}x}, not {case.predicted:0{digits}x}",
            ]
        lines = [f"{self.verdict} ({self.asked:,} dot products asked)"]
        for key, value in self.keys.items():
            name = "widened" if key == "as" else key
            tied = " (goes with another key)" if name in self.tied else ""
            left = " (not told from every neighbour)" if name in self.open and value != OPEN else ""
            lines.append(f"{key:14} {shown(key, value, digits)}{tied}{left}")
            for item in self.evidence:
                if item.key == name and value not in (NOT_OBSERVABLE, OPEN):
                    told = item.question.text(self.signature)
                    lines.append(
                        f"    {told}: {item.answer:0{digits}x}, with {shown(key, item.rival, digits)} {item.rival_answer:0{digits}x}"
                    )
        return lines + [f"{'not told from':14} {rival}" for rival in self.rivals()]

    def rivals(self) -> list[str]:
        """`remaining` in words: values of one key, or changes that go together."""
        digits = FORMATS[self.signature.d].container_bits // 4
        alone: dict[str, list[str]] = {}
        both = []
        for values in self.remaining:
            each = [("as" if key == "widened" else key, shown(key, value, digits)) for key, value in values.items()]
            if len(each) == 1:
                alone.setdefault(each[0][0], []).append(each[0][1])
            else:
                both.append(" with ".join(map(" ".join, each)))
        return [f"{key} {_few(values)}" for key, values in alone.items()] + [_few(both)] * bool(both)


def _few(values: list[str]) -> str:
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return ", ".join(values[:_LISTED]) + more


def shown(key: str, value: Any, digits: int) -> str:
    """A value as text.

    >>> shown("step", ((0, 1, 2, 3), (4, 5, 6, 7)), 8), shown("nan", 0x7FFF, 4)
    ('0-3 | 4-7', '0x7fff')
    """
    if key == "nan":
        return f"0x{value:0{digits}x}"
    if key == "step" and value not in (NOT_OBSERVABLE, OPEN):
        return " | ".join(runs(step) for step in value)
    if isinstance(value, tuple):
        return " of ".join(map(str, value))
    return str(value)
