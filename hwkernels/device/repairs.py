"""What an assembler changes of a kernel: its notes as hazards, beside those that a launch on the model has."""

from __future__ import annotations

from hwkernels.device.toolchain import Toolchain, assemble
from tcsim.ptx import Hazard
from tcsim.ptx.hazards.notes import hazards_in


def repairs(ptx: str, target: str, toolchain: Toolchain | None = None) -> list[Hazard]:
    """Assemble a PTX text: one hazard for each note about wgmma that was serialised or completed, and setmaxnreg that was left out.

    Raises ToolchainError where no assembler takes the target, AssembleError where it does not take the text.
    """
    return hazards_in(assemble(ptx, target, toolchain, allow_notes=True).notes)
