"""Benchmarks against cuBLAS, and the search for the fastest choices."""
