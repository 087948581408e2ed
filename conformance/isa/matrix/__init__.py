"""ldmatrix, stmatrix and movmatrix under test."""

from conformance.isa.matrix.moves import LoadTestbench, MoveTestbench, StoreTestbench

TESTBENCHES = {"ldmatrix": LoadTestbench(), "stmatrix": StoreTestbench(), "movmatrix": MoveTestbench()}
