"""Files of CUDA C++, compiled by what an installed package brings."""

from __future__ import annotations

from tcsim.core.errors import OperandError

COMPILERS = "tcsim.compilers"
"""The entry points that compile CUDA C++ to PTX (`hwkernels.device.cuda_source`)."""


def ptx_of(path: str, arch: str, call: str) -> bytes:
    """The PTX of a file for an arch. Raises OperandError, quoting the call, with what the compiler says."""
    from importlib.metadata import entry_points  # 15 ms, where it is asked for

    found = list(entry_points(group=COMPILERS))
    if not found:
        raise OperandError(
            f"{call}: {path!r} is CUDA C++, and no compiler is installed; valid: pip install 'tcsim[assemble]', or its PTX"
        )
    try:
        made: str = found[0].load()(path, arch)
    except RuntimeError as error:
        raise OperandError(f"{call}: {error}") from None
    return made.encode()
