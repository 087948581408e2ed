"""Every case of the Triton kernels, registered by a module for each file."""

from __future__ import annotations

from tests.kernels.corpora.triton import attention_cases, matmul_cases, row_cases

MODULES = (attention_cases, matmul_cases, row_cases)
