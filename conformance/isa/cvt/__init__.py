"""cvt under test."""

from conformance.isa.cvt.testbench import ConversionTestbench

TESTBENCHES = {"cvt": ConversionTestbench()}
