"""Engines against each other and against the hardware: every arithmetic of the registry, and campaigns of many outputs."""
