"""Fences under test: no cases, since they change nothing that could be compared. A replay assembles them."""

from conformance.testbench import Testbench

TESTBENCHES = {"fence": Testbench()}
