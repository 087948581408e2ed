"""Shared memory, Tensor Memory and the barriers in shared memory."""
