"""Our CUDA kernels."""
