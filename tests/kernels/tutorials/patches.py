"""How Triton's tutorials become small enough for a CPU: which lines change, and to what.

None of their text is here: a pattern finds a line, and says the new sizes. Every pattern has to be found, else the tutorial is another
version. The benchmarks at their ends are left out: they run the same kernels on larger and larger sizes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BENCHMARK = (r"^( *)(\w*bench\w*)\.run\(.*\)$", r"\1\2")
COMPARED = "\ntorch.testing.assert_close(output_triton, output_torch, atol=0, rtol=0)\n"


@dataclass(frozen=True)
class Tutorial:
    """A tutorial: its file, the lines that change, and what is appended."""

    file: str
    changes: tuple[tuple[str, str], ...] = ()
    appended: str = ""

    def patched(self, text: str) -> str:
        """Its text with smaller sizes.

        Raises ValueError for a text in which a pattern finds nothing.
        """
        for pattern, new in (BENCHMARK, *self.changes):
            text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
            if not count:
                raise ValueError(f"{self.file}: no line matches {pattern}")
        return text + self.appended


TUTORIALS = {
    "vector add": Tutorial("01-vector-add.py", ((r"^size = \d+$", "size = 4003"),), COMPARED),
    "softmax": Tutorial("02-fused-softmax.py", ((r"randn\(\d+, \d+,", "randn(37, 781,"),)),
    "matmul": Tutorial("03-matrix-multiplication.py", ((r"\(\(512, 512\)", "((256, 256)"),)),
    "layer norm": Tutorial("05-layer-norm.py", ((r"^test_layer_norm\(\d+, \d+,", "test_layer_norm(13, 1024,"),)),
    "attention": Tutorial(
        "06-fused-attention.py",
        appended="\nfor causal in (False, True):\n"
        "    test_op(1, 2, 128, 64, causal, False, 'bwd', 'triton-fp16')\n"
        "test_op(1, 2, 128, 64, False, False, 'fwd', 'triton-fp8')\n",
    ),
}
"""With these sizes each takes seconds. The last one's own tests are called with the smallest sizes that its kernels take."""
