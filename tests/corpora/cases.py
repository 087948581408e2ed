"""Every case of the corpora, by name."""

from __future__ import annotations

from tests.corpora import case
from tests.corpora.cuda import cases as cuda
from tests.corpora.cute import cases as cute
from tests.corpora.gemm import cases as gemm
from tests.corpora.gluon import cases as gluon
from tests.corpora.triton import cases as triton

MODULES = (cuda, cute, gemm, gluon, triton)
CASES = dict(sorted(case.CASES.items()))
