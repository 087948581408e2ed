"""Every parser with random inputs: it answers, or raises the error that it documents, within a second. More: `tox -e fuzz`."""

from __future__ import annotations

import pytest

from tests.unit.tcsim.fuzz_parsers import parsers, run

PARSERS = parsers()
INPUTS = {"mnemonic": 500, "ptx": 150}  # an unknown mnemonic is compared with thousands; a kernel is compiled and run


@pytest.mark.parametrize("name", PARSERS)
def test_parsers_raise_what_they_document(name: str) -> None:
    wanted = INPUTS.get(name, 3000)
    count = run(PARSERS[name], wanted)
    assert count.inputs >= wanted
    assert count.taken and count.refused, count
