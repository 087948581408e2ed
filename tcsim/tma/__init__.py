"""Tensor maps, and what the TMA unit moves."""
