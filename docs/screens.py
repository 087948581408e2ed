"""Takes the picture of `tcsim step` in a terminal of 80 columns and 24 lines.

    PYTHONPATH=. python docs/screens.py        writes docs/figures/stepper.svg; needs the extra `desk`

It differs a little from one version of Textual to the next, so no test compares it; take it again when the screen changes.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tcsim.cli.step_screen import Screen
from tcsim.inspection.stepping import Console
from tests.support.stepped_kernels import Launched

FIGURE = Path(__file__).resolve().parent / "figures" / "stepper.svg"
SIZE = (80, 24)


async def taken() -> str:
    """The picture: the transposed kernel before its product, after a question about a register."""
    kernel = Launched("transposed")
    screen = Screen(Console(kernel.session()))
    line = kernel.line("mma.sync")
    async with screen.run_test(size=SIZE) as pilot:
        screen.action_command(f"run {line + 1}")
        screen.action_command(f"why {line} %f1 0")
        await pilot.pause()
        return screen.export_screenshot(title="tcsim step transposed.ptx --launch transposed.toml")


def main() -> None:
    """Write it, without the fonts that it would fetch."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", asyncio.run(taken()), flags=re.DOTALL)
    FIGURE.write_text(svg.strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
