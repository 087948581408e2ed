"""Recordings of PyTorch's reductions and attention on a GPU: a fixed list of cases, their inputs by formula, their outputs by torch."""
