"""wgmma.mma_async, dense and sparse."""
