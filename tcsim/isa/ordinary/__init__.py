"""Ordinary PTX: instructions that move data, order threads, or say where they go; one row each."""
