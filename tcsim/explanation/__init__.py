"""Which instruction, order of summation and epilogue give the bits of a library's product."""

from tcsim.explanation.filters import filter_orders
from tcsim.explanation.report import Explanation, Summation
from tcsim.explanation.search import explain

__all__ = ["Explanation", "Summation", "explain", "filter_orders"]
