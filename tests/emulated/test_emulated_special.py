"""The campaign's datapath of the special functions (conformance/special), compiled by g++, against the array model and the slow one.

Needs g++. `SPECIAL_INPUTS` in the environment says how many inputs a spelling gets.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.special.source import chosen, domain_of, name_of, source
from tcsim.arithmetic import mufu
from tcsim.isa.special.semantics import computed
from tests.exact.special import special

COUNT = int(os.environ.get("SPECIAL_INPUTS", 1 << 15))
SLOW = 200


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All spellings as functions of arrays."""
    folder: Path = tmp_path_factory.mktemp("special")
    (folder / "special.cpp").write_text(source(chosen()))
    options = ["-O2", "-ffp-contract=off", "-shared", "-fPIC", "-w"]
    subprocess.run(["g++", *options, "-o", "special.so", "special.cpp"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "special.so"))


@pytest.mark.parametrize("mnemonic", chosen())
def test_the_datapath_is_the_models(mnemonic: str, library: Any) -> None:
    """On inputs of the campaign's own kind; of those that are counted up, on random ones."""
    row = chosen()[mnemonic]
    function = getattr(library, f"model_of_{name_of(row)}")
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_uint64] * 3 + [ctypes.c_int]
    a, b, d = (np.zeros(COUNT, np.uint64) for _ in range(3))
    random, domain = np.random.default_rng(3), domain_of(row)
    given = domain in ("every_f32", "every_high")
    if given:
        a[:] = random.integers(0, (1 << (32 if domain == "every_f32" else 64)) - 1, COUNT, np.uint64, endpoint=True)
    function(a.ctypes.data, b.ctypes.data, d.ctypes.data, 0, COUNT, 1, int(given))
    own = row.registers["a"].dtype
    operands = {name: array.astype(own) for name, array in (("a", a), ("b", b)) if name in row.registers}
    model = computed(row, row.steps, operands, mufu.unit()).astype(np.uint64)
    wrong = np.flatnonzero(model != d)
    assert not len(wrong), [hex(int(array[wrong[0]])) for array in (a, b, d, model)]
    for place in range(0, COUNT, COUNT // SLOW):
        assert int(d[place]) == special(mnemonic, *(int(array[place]) for array in operands.values()))
