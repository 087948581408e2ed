"""griddepcontrol under test: no cases, since it changes nothing that could be compared. A replay assembles it."""

from conformance.testbench import Testbench

TESTBENCHES = {"griddepcontrol": Testbench()}
