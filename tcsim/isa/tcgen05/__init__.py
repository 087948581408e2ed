"""tcgen05: Tensor Memory and the instructions on it."""
