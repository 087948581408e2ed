"""Bugs that real projects have had, each as a small kernel with the one line that was missing or wrong, beside its mended twin."""
