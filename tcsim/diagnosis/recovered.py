"""What no rule explains, solved for: maps of K, of parts and of blocks, tables of values, and memory taken for another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tcsim.diagnosis.beneath import beneath
from tcsim.diagnosis.candidate import Candidate
from tcsim.diagnosis.hypothesis import Hypothesis
from tcsim.diagnosis.in_part import in_part
from tcsim.diagnosis.k_steps import k_steps
from tcsim.diagnosis.line_sums import group_factors
from tcsim.diagnosis.misread import other_buffers
from tcsim.diagnosis.mixed import k_maps, line_maps_by_k
from tcsim.diagnosis.mixed_parts import part_maps
from tcsim.diagnosis.problem import Problem
from tcsim.diagnosis.reals import Mask, Reals
from tcsim.diagnosis.solve import WHOLE, Scored, Solver, clean, foremost
from tcsim.diagnosis.some_tiles import in_some_tiles
from tcsim.diagnosis.stage_phases import stage_phases
from tcsim.diagnosis.tables import tables
from tcsim.diagnosis.tile_stages import tile_stages
from tcsim.diagnosis.tile_sums import tile_sums
from tcsim.diagnosis.transposed_parts import transposed_parts

Source = Callable[[Problem, Reals, Mask], Iterator[Hypothesis]]
SOURCES: tuple[Source, ...] = (
    other_buffers,
    k_steps,
    transposed_parts,
    in_some_tiles,
    stage_phases,
    part_maps,
    tables,
    beneath,
    group_factors,
    k_maps,
    line_maps_by_k,
    tile_sums,
    tile_stages,
    in_part,
)
"""Where hypotheses come from; each is made from the outputs and then checked on all of them."""


def recovered(solver: Solver, wrong: Mask, sources: tuple[Source, ...] = SOURCES) -> list[Scored]:
    """Hypotheses that give all wrong outputs, simplest first, of the first source that has any."""
    for source in sources:
        found = []
        for item in source(solver.problem, solver.reals, wrong):
            one = solver.reckoned(item, wrong) if isinstance(item, Candidate) else _of_whole(solver, item, wrong)
            if one is not None and one.clean > 0 and not (wrong & solver.reals.finite & ~one.gives).any():
                found.append(one)
        if found:
            return foremost(found)
    return []


def _of_whole(solver: Solver, item: Hypothesis, wrong: Mask) -> Scored:
    gives = item.gives(solver.reals)
    everywhere = bool(gives[solver.reals.finite].all())
    own = gives & wrong
    return Scored(item, gives, WHOLE if everywhere else clean(gives, wrong), int(own.sum()), None, everywhere)
