"""Kernels with one mistake: a tiled GEMM whose every address can be wrong, kinds of mistakes, and how `tcsim.diagnose` names them."""
