"""From NumPy code to compiled code: arrays that record what is computed of them, and LLVM that computes it again."""
