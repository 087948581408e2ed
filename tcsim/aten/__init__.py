"""PyTorch's operations on NumPy arrays as its CUDA kernels compute them; needs no torch."""

from tcsim.aten.evidence import known

__all__ = ["known"]
