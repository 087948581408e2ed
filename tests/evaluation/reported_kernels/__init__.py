"""Wrong kernels that were reported in public, and others that people write, for `tcsim.diagnose`; right kernels; and noise.

Written without reading the diagnosis, its documentation or the kinds of the other sets. A kind is a function: from a random
generator to the operands and the output of one kernel. `python -m tests.evaluation.reported_kernels` judges the reports; the
modules `again_*.py` and `third_*.py` are further sets, which `--set "reported again"` and `--set "reported third"` ask.
"""
