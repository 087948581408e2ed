"""Special registers: which there are, which are vectors, since when, and which hold what only the machine knows."""

from __future__ import annotations

DIMENSIONED = ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
VARYING = frozenset(
    (
        "clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi", "smid", "nsmid", "warpid", "nwarpid", "gridid",
        "locality_domain_id", "locality_domain_supplemental_sm",
        *(f"pm{index}" for index in range(8)), *(f"pm{index}_64" for index in range(8)),
        *(f"envreg{index}" for index in range(32) if index not in (1, 2)),
    )
)  # fmt: skip
"""Special registers whose values are the machine's own: time, where a block runs, what the driver put there.

%envreg1 and %envreg2 are no more so than other addresses: they point to the workspace of a cooperative launch."""
SPECIAL_REGISTERS = VARYING.union(
    (f"{name}{axis}" for name in DIMENSIONED for axis in ("", ".x", ".y", ".z")),
    (
        "laneid", "is_explicit_cluster", "cluster_ctarank", "cluster_nctarank", "envreg1", "envreg2",
        "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
        "total_smem_size", "aggr_smem_size", "dynamic_smem_size", "current_graph_exec", "reserved_smem_offset_begin",
        "reserved_smem_offset_end", "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1",
    ),
)  # fmt: skip
"""Special registers, without the percent sign (PTX ISA, section Special Registers)."""
_SINCE = {
    "aggr_smem_size": "8.1",
    "clock_hi": "5.0",
    "current_graph_exec": "8.0",
    "dynamic_smem_size": "4.1",
    "locality_domain_id": "9.5",
    "locality_domain_supplemental_sm": "9.5",
    "total_smem_size": "4.1",
}
_SINCE_PREFIX = {"cluster": "7.8", "ncluster": "7.8", "is_explicit": "7.8", "reserved_smem": "7.6"}


def since(special: str) -> str | None:
    """The version of PTX ISA that a special register came with, if it came after 4.0 (read off with ptxas 13.5.37).

    >>> since("cluster_ctaid.x"), since("tid.x")
    ('7.8', None)
    """
    group = next((own for start, own in _SINCE_PREFIX.items() if special.startswith(start)), None)
    return _SINCE.get(special, group)
