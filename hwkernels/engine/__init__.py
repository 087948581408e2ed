"""The arithmetic of every arch's tensor cores on a GPU: the engine `gpu` of `tcsim.gemm` and `execute`."""
