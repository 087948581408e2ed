"""What is shown of the counters of a launch: the bound in a line, the facts, the costliest lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tcsim.inspection.report import Facts, Lines, Report, Table, table
from tcsim.ptx.counters import rules
from tcsim.ptx.counters.bound import cost
from tcsim.ptx.counters.counters import Counters

SHOWN = 12
"""Lines that a report shows."""
WIDE = 48
"""Letters of each."""
_COLUMNS = (
    ("shared", rules.SHARED_WAVES), ("ideal", rules.IDEAL), ("sectors", rules.ACTUAL_SECTORS), ("least", rules.IDEAL_SECTORS),
    ("tensor", rules.TENSOR_CYCLES),
)  # fmt: skip


def bound_line(counters: Counters) -> str:
    """The least time in a line."""
    bound = counters.bound
    if bound is None:
        return f"no unit of {counters.arch} was measured"
    shares = ", ".join(f"{unit} {100 * share:.0f} %" for unit, share in bound.shares.items() if share >= 0.005)
    said = f"at least {bound.microseconds:.1f} us on an {bound.gpu}: bound by {bound.unit}"
    return said + f" ({shares})" * bool(shares)


def facts(counters: Counters) -> tuple[tuple[str, str], ...]:
    """The bound, the occupancy, what the order of threads decides, and what people ask for."""
    varies = sorted(counters.undecided)
    others = f" and {len(varies) - 1} more" * (len(varies) > 1)
    return (
        ("time", bound_line(counters)),
        *([("occupancy", f"{counters.occupancy}")] if counters.occupancy is not None else []),
        *(
            [("varies", f"line {varies[0]}{others}: executed as often as the order of threads decides")]
            if varies
            else []
        ),
        *((name, f"{value:,.1f}".removesuffix(".0")) for name, value in counters.derived.items()),
    )


def costliest(counters: Counters, text: Callable[[int, str], str]) -> Table:
    """The lines that cost most: of the source where there is .loc, else of the PTX. text: of a line of the PTX and its source."""
    total: dict[str, tuple[int, str, Counter[str]]] = {}  # the costliest line of the PTX stands for its source
    for line, source, counted in counters.by_line():
        total.setdefault(source or str(line), (line, source, Counter()))[2].update(counted)
    kept = [(place, own) for place, own in total.items() if any(name in own[2] for _, name in _COLUMNS)]
    kept = sorted(kept, key=lambda row: -cost(row[1][2], counters.arch))[:SHOWN]
    used = [(head, name) for head, name in _COLUMNS if any(name in own for _, (_, _, own) in kept)]
    rows = [
        (
            place.rpartition("/")[2],
            *(f"{own[name]:,}" if name in own else "" for _, name in used),
            text(line, source)[:WIDE],
        )
        for place, (line, source, own) in kept
    ]
    head = ("line", *(head for head, _ in used), "source" if any(source for _, (_, source, _) in kept) else "PTX")
    return table(head, rows, "The costliest lines", right=tuple(range(1, len(used) + 1)))


def counters_report(counters: Counters) -> Report:
    """What a notebook shows of `run.counters`."""
    said = tuple(f"line {own.line}: {own.reason}" if own.line else own.reason for own in counters.advice[:SHOWN])
    advice = [Lines(said, "Where it costs more than it must, the worst first", wrap=True)] * bool(said)
    items = counters.tally.items
    return Report(
        f"counters on {counters.arch}",
        (Facts(facts(counters)), *advice, costliest(counters, lambda line, source: items[line].opcode)),
    )
