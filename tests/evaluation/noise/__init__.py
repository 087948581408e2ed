"""Outputs that are not the product of the operands: `tcsim.diagnose` must explain none."""
