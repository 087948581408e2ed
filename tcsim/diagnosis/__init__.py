"""Which common mistake turns the given operands into the observed result."""

from tcsim.diagnosis.report import Diagnosis, Explanation
from tcsim.diagnosis.search import diagnose

__all__ = ["Diagnosis", "Explanation", "diagnose"]
