"""mbarrier under test."""

from conformance.isa.mbarrier.testbench import BarrierTestbench

TESTBENCHES = {"mbarrier": BarrierTestbench()}
