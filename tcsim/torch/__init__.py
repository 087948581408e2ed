"""What a model returns on a GPU that is not there: torch's operations with that GPU's bits. Needs torch (the extra `torch`).

    with tcsim.torch.emulate("H200") as run:
        y = model(x)

`str(run)` lists the operations, their calls and seconds, and whether their bits are exact.
"""

from __future__ import annotations

from tcsim.torch.emulation import emulate
from tcsim.torch.log import Run, first_difference
from tcsim.torch.low_precision import Quantized, linear, quantized

__all__ = ["Quantized", "Run", "emulate", "first_difference", "linear", "quantized"]
