"""Test vectors for other implementations: operands and expected bits of any instruction in files, and the check of another's answers.

`tcsim vectors make` and `tcsim vectors verify`; docs/vectors.md.
"""
