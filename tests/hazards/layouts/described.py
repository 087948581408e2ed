"""What the kernels of layout mistakes have in common: the fields of descriptors, and how products advance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Described:
    """Operands behind matrix descriptors; a mistake is another value of one field."""

    swizzle_a: str = "128B"
    swizzle_b: str = "128B"
    stride_a: int = 1024
    stride_b: int = 1024
    start_a: int = 0
    start_b: int = 0
    advance_a: int = 32  # bytes from one product to the next
    advance_b: int = 32
    major_a: int = 0
    major_b: int = 0
    exchanged: bool = False  # the descriptors of A and B
    begin: int = 0  # bytes behind a multiple of 1024, of both tiles
    base: int = 0  # base offset of both descriptors
