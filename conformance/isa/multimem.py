"""multimem under test: no machine that we have makes a multicast object, so nothing is run. A replay assembles one of those that are alike."""

from __future__ import annotations

from conformance.testbench import Testbench
from tcsim.isa.multimem import rows as multimem
from tcsim.isa.multimem.rows import MultimemRow


class MultimemTestbench(Testbench):
    """Rows without cases."""

    no_machine = (
        "a multicast object is needed, and the hosts at hand forbid cuMulticastCreate; tests/unit/tcsim/isa/test_multimem.py compares the model with an "
        "independent one"
    )

    def alike(self, row: MultimemRow) -> object:
        """One of a family and target: tests/unit/tcsim/isa/test_multimem.py has the assembler take every spelling."""
        return row.family, row.forms[0].targets


TESTBENCHES = dict.fromkeys(
    (
        multimem.LOAD, multimem.STORE, multimem.REDUCE, multimem.STORE_ASYNC, multimem.REDUCE_ASYNC, multimem.COPY, multimem.COPY_REDUCE,
    ),
    MultimemTestbench(),
)  # fmt: skip
