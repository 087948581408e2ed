"""Products of cuBLAS, cuDNN and Triton on a GPU: what was asked of them, how they are recorded, and what `tcsim.explain` says of them."""
