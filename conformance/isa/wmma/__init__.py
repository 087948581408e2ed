"""wmma."""
