"""Recordings of PyTorch's reductions, attention, gradients, optimizers and models on a GPU: fixed lists of cases, their inputs by formula, their outputs by torch."""
