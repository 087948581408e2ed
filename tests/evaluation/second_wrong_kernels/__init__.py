"""A second, independent set of GEMM kernels with one mistake each, and of right ones, for `tcsim.diagnose`.

It was written without reading the code or the tests of the diagnosis: kernels as people write them for CUDA, in NumPy, and mistakes as
they are reported in forums and issue trackers. `python -m tests.evaluation.second_wrong_kernels` judges the reports.
"""
