"""Planted defects: small kernels that are right, and what each of them needs to be right."""
