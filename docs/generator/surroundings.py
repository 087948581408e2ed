"""The introductions of the families around a kernel: clusters, election, registers, barriers and copies without a tensor map."""

from __future__ import annotations

_INTRODUCTION = """\
Every spelling of {{name}} in the registry: {{count}}. [{title}](../{page}) says what they do.

- *Machine code* is what ptxas must emit for one instruction; the conformance suite checks it.
- *Evidence* is explained in [evidence](../evidence.md). Numbers in brackets are the sources:

"""
_CLUSTERS = _INTRODUCTION.format(title="Clusters", page="clusters.md")
_COPIES = _INTRODUCTION.format(title="mbarriers and copies", page="mbarriers-and-copies.md")

SURROUNDING_INTRODUCTIONS = {
    **dict.fromkeys(
        (
            "setmaxnreg",
            "elect.sync",
            "barrier.cluster",
            "mapa",
            "st.async",
            "red.async",
            "st.bulk",
            "clusterlaunchcontrol",
            "griddepcontrol",
        ),
        _CLUSTERS,
    ),
    **dict.fromkeys(("mbarrier", "cp.async", "cp.async.bulk", "cp.reduce.async.bulk", "fence", "wgmma.sync"), _COPIES),
}
"""By family: pages that hold no fragments and no arithmetic."""
