"""The tensor copies."""
