"""The GEMM kernels of hwkernels as cases."""
