"""Scalar instructions on a GPU and in the model: every spelling on the same inputs, and what the manual leaves open."""
