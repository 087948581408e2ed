"""Convolutions as implicit matrix products: the persistent wgmma kernel, fed by TMA's im2col copies."""
