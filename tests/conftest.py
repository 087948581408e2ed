"""Settings of the offline tests: hypothesis draws the same examples in every run and never measures time."""

from __future__ import annotations

from hypothesis import settings

# They need other projects (`tox -e oracles`), or a C++ compiler and minutes: `pytest tests/oracles`, `pytest tests/emulated` by name.
collect_ignore = ["oracles", "emulated"]

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=200)
settings.register_profile(
    "explore", derandomize=False, deadline=None, max_examples=2000
)  # --hypothesis-profile explore
settings.load_profile("repeatable")
