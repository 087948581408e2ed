"""Engines: what computes large products. Each gives the bits of NumPy, which is the reference; `contract` says what one is."""
