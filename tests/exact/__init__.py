"""A slow, exact, independently written model of mma.sync, to check the fast one against; see docs/numerics.md."""
