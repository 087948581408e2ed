"""All kinds, by name."""

from tests.evaluation.reported_kernels import kinds_loop, kinds_memory, kinds_output, kinds_right, kinds_scales
from tests.evaluation.reported_kernels.case import KINDS, case

__all__ = ["KINDS", "case", "kinds_loop", "kinds_memory", "kinds_output", "kinds_right", "kinds_scales"]
