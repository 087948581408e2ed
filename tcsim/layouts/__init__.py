"""Where elements live: CuTe layouts, swizzles, banks, structured sparsity, block scales."""
