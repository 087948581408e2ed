"""Whole kernels as tests: our own CUDA, Triton, Gluon and CuTe DSL kernels, and what is launched of them.

`compile` makes their PTX without a GPU, `capture` launches it on one, `replay` runs it on the CPU. docs/corpora.md says how.
"""
