"""wgmma."""
