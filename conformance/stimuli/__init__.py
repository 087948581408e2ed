"""Inputs of cases: classes of numbers that can catch a mutant."""
