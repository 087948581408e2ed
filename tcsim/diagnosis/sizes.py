"""The usual sizes of tiles: what maps of whole tiles go through."""

from __future__ import annotations

TILES = (16, 32, 64, 128, 256)
"""Rows or columns of a tile."""
PARTS = (8, *TILES)
"""Rows or columns of a tile or of a part of one."""
STEPS = (1, 2, 4, 8, 16)
"""Instructions in a tile's K."""
