"""Shadow state: who touched which word last, what orders it with what comes next, and the hazards that follow.

- `clocks`: which events of which warp come before what a warp does now
- `lanes`: which of its lanes know that
- `operations`: asynchronous work, and who knows that it is complete
- `words`: of every word of a memory, the last write and reads
- `findings`: hazards, one for each name and pair of lines
- `mbarriers`, `barriers`, `blocks`, `registers`: what only they can get wrong
- `signals`: what mbarriers are told, and tell
- `conflicts`, `naming`: two accesses to one word that nothing orders, by name
- `everywhere`, `dependents`: global memory of one cluster, and of launches that follow each other
- `deadlocks`: what those wait for who wait for ever
- `checker`: the observer that a launch with check=True attaches to each cluster

A rule is a row of `tcsim.ptx.hazards.rules`, and a place here that reports it; tests/hazards has a planted defect and its mended twin for each.
"""
