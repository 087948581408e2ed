"""All kinds, by name."""

from tests.evaluation.reported_kernels import (
    again_loop,
    again_memory,
    again_output,
    again_right,
    again_scales,
    kinds_loop,
    kinds_memory,
    kinds_output,
    kinds_right,
    kinds_scales,
    third_loop,
    third_memory,
    third_output,
    third_right,
    third_scales,
)
from tests.evaluation.reported_kernels.case import KINDS, SETS, case

__all__ = [
    "KINDS",
    "SETS",
    "again_loop",
    "again_memory",
    "again_output",
    "again_right",
    "again_scales",
    "case",
    "kinds_loop",
    "kinds_memory",
    "kinds_output",
    "kinds_right",
    "kinds_scales",
    "third_loop",
    "third_memory",
    "third_output",
    "third_right",
    "third_scales",
]
