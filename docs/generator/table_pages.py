"""The pages of docs/tables: what is data, with the words that a reader needs to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from generator import diagnosis_tables
from generator.markdown import NOTICE


@dataclass(frozen=True)
class Part:
    """A table under a heading; without a heading, under the page's title."""

    title: str
    text: str
    table: Callable[[], str]

    def lines(self) -> str:
        """The part in Markdown."""
        heading = f"## {self.title}\n\n" if self.title else ""
        return f"{heading}{self.text}\n\n{self.table()}"


@dataclass(frozen=True)
class TablePage:
    """A page of tables."""

    title: str
    text: str
    parts: tuple[Part, ...]

    def markdown(self) -> str:
        """The whole page."""
        return "\n\n".join([NOTICE, f"# {self.title}", self.text, *(part.lines() for part in self.parts)]) + "\n"


TABLE_PAGES = {
    "diagnosis": TablePage(
        "Diagnosis: results by set and by kind",
        "How `tcsim.diagnose` judges simulated kernels with one mistake of a kind, or with none. [How diagnosis searches](../diagnosis-search.md) says how the sets were made and how a report is judged. "
        "`python -m tests.evaluation.second_wrong_kernels --json FILE` asks, `python -m tests.evaluation.second_wrong_kernels.keep SET FILE` keeps what came out; of the first set, `python -m tests.evaluation.wrong_kernels --write` does both.",
        (
            Part(
                "By set",
                "*First sight*: before anybody who works on the diagnosis had seen a report of the set. *Later*: after the reports had been read and the diagnosis was changed.",
                diagnosis_tables.by_set,
            ),
            Part(
                "Seeds that nobody had used",
                "One case of each kind of all sets but the first.",
                diagnosis_tables.unseen,
            ),
            Part("By kind", "The last run of each set.", diagnosis_tables.by_kind),
        ),
    ),
}
"""By the name of the page."""
