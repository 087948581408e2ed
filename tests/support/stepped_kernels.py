"""Three wrong kernels and what mends each: two as they stand in docs/stepper.md, and one of tests/support/stepped."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tcsim import MatrixDescriptor
from tcsim.launchers import launch_file
from tcsim.launchers.job import Execution, Job, execute
from tcsim.launchers.stepped import session
from tcsim.ptx import Session

Array = np.ndarray[Any, Any]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "stepper.md"
FOLDER = Path(__file__).parent / "stepped"
NAMES = ("transposed", "late", "swizzled")
_RIGHT = MatrixDescriptor(stride_byte_offset=1024, swizzle="128B").encode()
_WRONG = MatrixDescriptor(stride_byte_offset=512, swizzle="64B").encode()
MENDED = {
    "transposed": ("m8n8.x2.shared", "m8n8.x2.trans.shared"),
    "late": ("  cp.async.commit_group;\nNEXT:\n", "NEXT:\n  cp.async.commit_group;\n"),
    "swizzled": (f"%rd1, {_WRONG};", f"%rd1, {_RIGHT};"),
}
"""By kernel: what is wrong, and what would be right."""


@cache
def files() -> dict[str, str]:
    """The files of the page and of the folder by name."""
    page = re.finditer(r"^```\w+ file=([\w.]+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    return {own[1]: own[2] for own in page} | {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}


class Launched:
    """One of the kernels, wrong or mended."""

    def __init__(self, name: str, wrong: bool = True) -> None:
        self.ptx = files()[f"{name}.ptx"]
        assert self.ptx.count(MENDED[name][0]) == 1
        if not wrong:
            self.ptx = self.ptx.replace(*MENDED[name])
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.toml"
            path.write_text(files()[path.name], encoding="utf-8")
            self.job: Job = launch_file.read(path, self.ptx.encode())

    def session(self, **options: Any) -> Session:
        """A session that stands before the first instruction."""
        return session(self.job, **options)

    def execute(self) -> Execution:
        """The launch."""
        return execute(self.job)

    def array(self, name: str) -> Array:
        """An array as it is before the launch."""
        region = next(own for own in self.job.regions if own.name == name)
        return region.before.view(region.elements.natural).reshape(region.shape)

    @staticmethod
    def result(session: Session) -> Array:
        """The product as it is in a session's memory."""
        return np.array(session.global_matrix("c").values, np.float32)

    @property
    def expected(self) -> Array:
        """What the product should be; a b that lies K-major is transposed."""
        a, b = self.array("a").astype(np.float32), self.array("b").astype(np.float32)
        return a @ (b if len(b) == a.shape[1] and b.shape != (8, 64) else b.T)

    def line(self, beginning: str, which: int = 0) -> int:
        """The line of PTX on which an instruction stands."""
        found = [number for number, text in enumerate(self.ptx.splitlines(), 1) if text.strip().startswith(beginning)]
        return found[which]
