"""Every case of the corpora, by name."""

from __future__ import annotations

from tests.kernels.corpora import case
from tests.kernels.corpora.cuda import cases as cuda
from tests.kernels.corpora.cute import cases as cute
from tests.kernels.corpora.gemm import cases as gemm
from tests.kernels.corpora.gluon import cases as gluon
from tests.kernels.corpora.triton import cases as triton

MODULES = (cuda, cute, gemm, gluon, triton)
CASES = dict(sorted(case.CASES.items()))
