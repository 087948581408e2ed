"""Whole kernels as cases."""
