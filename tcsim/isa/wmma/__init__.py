"""wmma.mma, wmma.load and wmma.store."""
