"""Probes of cvta.param: one thread reads each parameter through an address that the instruction made.

cvta.param: the generic address of the parameter is loaded from. cvta.to.param: the address in .param, made of the generic one.
Kernel parameters: one input that is not used, the result, then the numbers.
"""

from __future__ import annotations

import numpy as np

from hwkernels.probes import Array, Body, Plan
from tcsim.model.row import Row

NUMBERS = 8


class ParameterBody(Body):
    """The parameters as they are read."""

    def kernel(self, row: Row, name: str, variant: str) -> str:
        """PTX of the entry point."""
        (form,) = (each for each in row.forms if each.name == variant)
        numbers = ", ".join(f".param .u64 given{place}" for place in range(NUMBERS))
        back = row.operation == "to"
        lines = [
            ".reg .u64 %result, %address, %converted, %number;",
            "ld.param.u64 %result, [result];",
            "cvta.to.global.u64 %result, %result;",
        ]
        for place in range(NUMBERS):
            own = form.statement(row.mnemonic, {"address": f"given{place}"} if variant == "variable" else {})
            lines += [
                f"mov.b64 %address, given{place};",
                "cvta.param.u64 %address, %address;" if back else "",
                own,
                f"ld{'.param' if back else ''}.u64 %number, [%converted];",
                f"st.global.u64 [%result+{8 * place}], %number;",
            ]
        text = "\n".join(f"    {line}" for line in [*lines, "ret;"])
        return f"\n.visible .entry {name}(.param .u64 unused, .param .u64 result, {numbers})\n{{\n{text}\n}}\n"

    def plan(self, row: Row, inputs: dict[str, Array]) -> Plan:
        """given uint64 (samples,), 8 at most, form (samples,) -> uint32 (8, 2), of which those of the samples count.

        Raises ValueError for another shape.
        """
        given = inputs["given"]
        if given.dtype != np.uint64 or given.ndim != 1 or len(given) > NUMBERS:
            raise ValueError(f"given is {given.dtype} {given.shape}; this probe takes uint64, {NUMBERS} at most")
        scalars = [*given, *np.zeros(NUMBERS - len(given), np.uint64)]
        output = ((NUMBERS, 2), np.dtype(np.uint32))
        variant = self.variants(row)[int(inputs["form"][0])]
        return Plan((given,), output, tuple(scalars), (1, 1, 1), (1, 1, 1), variant)


BODIES = {"cvta.param": ParameterBody()}
