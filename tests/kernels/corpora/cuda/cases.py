"""Every case of the CUDA kernels, registered by a module for each file."""

from __future__ import annotations

from tests.kernels.corpora.cuda import blocks, calls, clusters, copies, numbers, warps

MODULES = (blocks, calls, clusters, copies, numbers, warps)
