"""The steps that instructions lower to: fused dot-adds, integer dots, reductions."""
