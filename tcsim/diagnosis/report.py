"""What a diagnosis found, as data and as text."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tcsim.core.display import Shown
from tcsim.diagnosis.error_map import ErrorMap

Verdict = Literal["correct", "explained", "ambiguous", "partly explained", "not explained"]

CAUSES = "the same comes of: "  # before what else in a kernel makes the same, in an advice
_OPERAND = re.compile(r"^(K blocks of )?[ab]\b")


@dataclass(frozen=True)
class Explanation:
    """One mistake and how much of the observed result it reproduces."""

    mistake: str  # its name, the same for all its forms
    detail: str  # which form; may be empty
    advice: str  # what to look at
    matched: int  # outputs that it reproduces bit for bit; up to rounding if not `bits`
    bits: bool = True  # every bit is reproduced: else the order of summation is not known
    also: tuple[str, ...] = ()  # other names of the same: no operands could tell them apart
    left: str = ""  # where outputs are that it does not reproduce
    combined: int = 0  # combinations of two or more mistakes that give the same, beside this one

    def __str__(self) -> str:
        return f"{self.mistake} ({self.detail})" if self.detail else self.mistake

    def said(self) -> list[str]:
        """What to look at, what else makes the same, and its other names, a line each."""
        advice, mark, causes = self.advice.partition(f"; {CAUSES}")
        if " + " in self.mistake or not mark:
            lines = [self.advice]
        else:
            lines = [advice, *(CAUSES + cause for cause in causes.split("; "))]
        lines += [f"the same as: {other}" for other in _together(self.also)]
        if self.combined:
            lines.append(f"also {self.combined} combination{'s' * (self.combined > 1)} of two or more mistakes")
        return lines


def _together(names: tuple[str, ...]) -> list[str]:
    """Names that differ in the operand alone, as one.

    >>> _together(("a: swizzle wrong (x)", "b: swizzle wrong (x)", "a negated", "b transposed"))
    ['a or b: swizzle wrong (x)', 'a negated', 'b transposed']
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_OPERAND.sub(r"\1{}", name), []).append(name)
    return [_OPERAND.sub(r"\1a or b", same[0]) if len(same) > 1 else same[0] for same in found.values()]


@dataclass(frozen=True)
class Diagnosis(Shown):
    """Why a result differs from the model's.

    `correct`: it does not. `explained`: one mistake reproduces every output bit for bit; `ambiguous`: several different
    ones do, and the data cannot tell them apart. `partly explained`: the first of `nearest` reproduces clearly more
    outputs than the model. `not explained`: nothing does.

    >>> mma = tcsim.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", arch="sm_90")
    >>> a, b = (np.arange(size, dtype=np.float16).reshape(-1, 8) for size in (128, 64))
    >>> found = tcsim.diagnose(mma, a=a, b=b, observed=mma.matmul(a, b.T, np.zeros((16, 8), np.float32)))
    >>> found.verdict, found.mistake, found.as_dict()["fraction"]
    ('explained', 'b transposed', 1.0)
    >>> found.lines()[0]
    '127 of 128 outputs differ from the model: rows 0-15, columns 0-7'
    >>> found.summary()[1]
    'explained: this mistake reproduces every output bit for bit'
    """

    verdict: Verdict
    outputs: int  # compared
    right: int  # of them as the model says, without any mistake
    explanations: tuple[Explanation, ...]  # each reproduces all outputs
    nearest: tuple[Explanation, ...]  # the best of the others, best first
    attempts: int  # mistakes tried, each in all its forms
    where: str = ""  # which outputs differ from the model
    note: str = ""  # what else there is to say
    errors: ErrorMap | None = None  # where and how a product differs from the model's; None if it is right

    @property
    def mistake(self) -> str | None:
        """The name of the mistake, if one explains everything."""
        return self.explanations[0].mistake if self.verdict == "explained" else None

    @property
    def fraction(self) -> float:
        """The part of the outputs that the best explanation reproduces."""
        best = self.explanations or self.nearest
        return max([self.right, *(item.matched for item in best)]) / self.outputs

    def as_dict(self) -> dict[str, Any]:
        """The keys of JSON."""
        errors = None if self.errors is None else self.errors.as_dict()
        return {
            **asdict(replace(self, errors=None)), "errors": errors, "mistake": self.mistake, "fraction": self.fraction,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """The diagnosis in sentences; with a map of the errors where they are not explained."""
        errors = () if self.errors is None or self.explanations else self.errors.lines()
        return [*self.summary(), *errors]

    def summary(self) -> list[str]:
        """The diagnosis in sentences, without the map."""
        if self.verdict == "correct":
            if self.right == self.outputs:
                said = f", {self.note}" if self.note else ""
                return [f"correct: all {self.outputs:,} outputs are what the model says{said}"]
            lines = [f"correct: all {self.outputs:,} outputs are {self.note}"]
            return lines + [
                f"  this order reproduces every bit: {item.detail or item.mistake}" for item in self.explanations
            ]
        lines = [f"{self.outputs - self.right:,} of {self.outputs:,} outputs differ from the model: {self.where}"]
        if self.explanations:
            head = "this mistake reproduces" if len(self.explanations) == 1 else "each of these mistakes reproduces"
            how = "bit for bit" if all(item.bits for item in self.explanations) else "within rounding"
            lines.append(f"{self.verdict}: {head} every output {how}")
        elif self.verdict == "partly explained":
            lines.append(
                f"partly explained: the nearest mistake reproduces {_share(self.nearest[0].matched, self.outputs)}"
            )
        else:
            lines.append(f"not explained: none of {self.attempts} mistakes reproduces what was observed")
        if self.note:
            lines.append(f"  {self.note}")
        for item in self.explanations:
            lines += [f"  {item}", *(f"    {said}" for said in item.said())]
        return lines if self.explanations else lines + self._closest()

    def _closest(self) -> list[str]:
        """What comes nearest, and what it leaves open."""
        least = self.right + (_SLIGHTLY * self.outputs if self.verdict == "not explained" else 0)
        near = [item for item in self.nearest if item.matched > least]
        lines = []
        for item in near if self.verdict == "partly explained" else near[:1]:
            head = "" if self.verdict == "partly explained" else "closest: "
            lines += [f"  {head}{item} [{_share(item.matched, self.outputs)}]", f"    {item.advice}"]
            lines += [f"    it does not reproduce {item.left}"] if item.left else []
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _share(part: int, whole: int) -> str:
    """How much, never rounded up to all.

    >>> _share(1, 3), _share(9999, 10000)
    ('33.3% of the outputs', 'all but 1 of the outputs')
    """
    text = f"{part / whole:.1%}"
    return f"all but {whole - part:,} of the outputs" if text == "100.0%" and part < whole else f"{text} of the outputs"


_SLIGHTLY = 0.05  # and this part to be shown at all: fewer are right by chance
_CLEARLY = 0.25  # a partial explanation must reproduce this part of the outputs more than the model does


def described(
    outputs: int,
    right: int,
    exact: list[Explanation],
    nearest: list[Explanation],
    attempts: int,
    where: str,
    alike: str = "",
    telling: str = "",
) -> Diagnosis:
    """The diagnosis that follows from what reproduces the result, and from what comes nearest, best first.

    alike: why the operands cannot tell mistakes apart, if they cannot; telling: which operands would tell some apart.
    """
    note = f"the data cannot tell: {alike}; try random operands" if alike else telling
    if exact:
        names = {item.mistake for item in exact}
        verdict: Verdict = "explained" if len(names) == 1 and not alike else "ambiguous"
        return Diagnosis(verdict, outputs, right, tuple(exact), (), attempts, where, note)
    clear = bool(nearest) and nearest[0].matched >= right + _CLEARLY * outputs
    verdict = "partly explained" if clear else "not explained"
    return Diagnosis(verdict, outputs, right, (), tuple(nearest), attempts, where, note)
