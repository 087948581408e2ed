"""GEMM kernels: what each is, how it is built, called and fed."""
