"""The introductions of families that hold no fragments and no arithmetic: by slice, the chapter that says what they do."""

from __future__ import annotations

from conformance.isa import slices

_INTRODUCTION = """\
Every spelling of {{name}} in the registry: {{count}}. [{title}](../{page}) says what they do.

- *Machine code* is what ptxas must emit for one instruction; the conformance suite checks it.
- *Evidence* is explained in [evidence](../evidence.md). Numbers in brackets are the sources:

"""
_CLUSTERS = ("setmaxnreg", "elect", "barrier_cluster", "mapa", "st_async", "st_bulk", "clusterlaunchcontrol")
_CHAPTERS = {
    ("Clusters", "clusters.md"): (*_CLUSTERS, "griddepcontrol", "multimem"),
    ("mbarriers and copies", "mbarriers-and-copies.md"): (
        "mbarrier",
        "cp_async",
        "cp_async_bulk",
        "fence",
        "wgmma_sync",
    ),
    ("TMA", "tma.md"): ("cp_async_bulk_tensor", "tensormap"),
}
INTRODUCTIONS = {
    family: _INTRODUCTION.format(title=title, page=page)
    for (title, page), names in _CHAPTERS.items()
    for name in names
    for family in slices()[name]
}
"""By family."""
