"""The golden store: what launches, checks, reports, sessions and examples of this tree answer, kept in a file, and what has changed since.

`python -m tests.evaluation.golden record FILE` writes it, `python -m tests.evaluation.golden compare FILE` asks all again. A kind of
answers is a function in `KINDS`, which gives names and, for each, a call that makes its text or bytes.
"""
