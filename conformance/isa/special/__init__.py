"""Special functions under test."""

from conformance.isa.special.testbench import SpecialTestbench
from tcsim.isa.special.rows import FUNCTIONS

TESTBENCHES = dict.fromkeys(FUNCTIONS, SpecialTestbench())
