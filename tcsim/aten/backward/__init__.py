"""Gradients of PyTorch's operations on NumPy arrays, as its CUDA kernels compute them: the backward pass of what `tcsim.aten` has."""
