"""Mutants of the model's source: every constant and branch, one at a time, against recorded hardware results and the tests."""
