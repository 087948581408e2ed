"""Shadow state: who touched which word last, what orders it with what comes next, and the hazards that follow.

- `state`: all that is known of a cluster, in a table at its head, and the hazards that were found; no rule is there
- `clocks`, `lanes`: which events of which warp, and of which of its lanes, come before what a warp does now
- `flags`: what accesses that release tell those that acquire
- `operations`: asynchronous work, who knows that it is complete, and the mbarriers that follow it
- `words`: of every word of a memory the last write and reads, and those that nothing orders with an access now
- `places`: where accesses lie
- `order`: what is executed that orders memory
- `rules`: what is wrong, by subject
- `layout`: which elements the operands of products are
- `checker`: the observer that a launch with check=True attaches to each cluster: which subject hears of what

A rule is a row of `tcsim.ptx.hazards.rules`, and a place in `rules` that reports it; tests/hazards has a planted defect and its mended twin for each.
"""
