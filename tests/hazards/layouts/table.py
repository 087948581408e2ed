"""The mistakes that are planted: which kernel, which field has which value, what the check must say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from tcsim.ptx import Run
from tests.hazards.layouts.scaled import Scaled
from tests.hazards.layouts.tensor_memory import Tensor
from tests.hazards.layouts.warpgroups import Warpgroup
from tests.hazards.layouts.warps import Warp

Kernel = Warp | Warpgroup | Tensor | Scaled

PADDED, SWIZZLED, ROWS = Warp(), Warp("cp.async", pitch=64, swizzle=(1, 3)), Warp("cvt", b_rows=True)
BOXES, STORED, COPIED = Warpgroup(), Warpgroup(fill="st"), Warpgroup(fill="cp.async", registers=True)
BLACKWELL, BY_THREADS, IN_TMEM = Tensor(), Tensor(fill="st"), Tensor(a_in_tmem=True)
KERNELS: dict[str, Kernel] = {
    "mma.sync, st.shared, padded rows": PADDED, "mma.sync, cp.async, swizzled": SWIZZLED,
    "mma.sync, cvt from f32, B by rows": ROWS, "mma.sync, cp.async of 4 bytes": Warp("cp.async.4"),
    "mma.sync, cp.async of 8 bytes": Warp("cp.async.8", pitch=64, swizzle=(1, 3)), "mma.sync, shfl": Warp("shfl"),
    "mma.sync, st.async": Warp("st.async"), "mma.sync, bulk copy in shared memory": Warp("bulk"), "mma.sync, movmatrix": Warp(read="movmatrix", b_rows=True),
    "mma.sync, st.shared, swizzled": Warp(pitch=64, swizzle=(1, 3)), "mma.sync, ld.shared": Warp(read="ld"),
    "wgmma, TMA": BOXES, "wgmma, st.shared": STORED, "wgmma, A in registers": COPIED, "wgmma, TMA, A in registers": Warpgroup(registers=True),
    "wgmma, TMA, off the pattern": Warpgroup(begin=128), "wgmma, st.shared, base offset": Warpgroup(fill="st", begin=256, base=2),
    "tcgen05.mma, TMA": BLACKWELL, "tcgen05.mma, st.shared": BY_THREADS, "tcgen05.mma, A in Tensor Memory": IN_TMEM,
    "tcgen05.mma, scale factors": Scaled(), "tcgen05.mma, A copied to Tensor Memory": Tensor(copied=True),
}  # fmt: skip
"""Each is right, and must be silent."""
FIELDS = {
    "pitch_a": "pitch of A as read", "pitch_b": "pitch of B as read", "swizzle_a": "swizzle of A", "swizzle_b": "swizzle of B",
    "phase_a": "phase of A's swizzle as read, rows", "trans_a": ".trans of A", "trans_b": ".trans of B", "start_a": "start of A, bytes on",
    "start_b": "start of B, bytes on", "step_a": "k of A, pieces of 16 bytes a product", "step_b": "k of B, pieces or rows a product",
    "swapped": "second and third register of A exchanged", "stride_a": "SBO of A", "stride_b": "SBO of B", "advance_a": "A, bytes a product",
    "advance_b": "B, bytes a product", "major_a": "A MN-major", "major_b": "B MN-major", "store_phase": "phase of the swizzle as stored, rows",
    "load_pitch": "pitch of ldmatrix", "load_phase": "phase of ldmatrix, rows", "load_trans": ".trans of ldmatrix",
    "load_advance": "ldmatrix, pieces of 16 bytes a product", "turned": "movmatrix of B", "scale_a": "columns of A's factors as read", "scale_b": "columns of B's factors as read", "copied_a": "columns to which A's factors are copied", "exchanged": "descriptors of A and B exchanged", "m": "M of the instruction descriptor", "n": "N of the instruction descriptor", "begin": "tiles, bytes behind a multiple of 1024", "column": "column of A", "columns": "A, columns a product",
}  # fmt: skip
"""What a field is, in words."""


@dataclass(frozen=True)
class Mistake:
    """One field of a kernel with another value."""

    kernel: str
    field: str
    value: object
    rule: str
    mend: str  # words of the mend that must be named

    @property
    def wrong(self) -> Kernel:
        """The kernel with it."""
        return replace(KERNELS[self.kernel], **{self.field: self.value})  # type: ignore[arg-type]

    def named(self, run: Run) -> bool:
        """Whether a run names it."""
        return any(
            own.name == self.rule and self.mend in own.detail["mend"] for own in run.hazards if "mend" in own.detail
        )

    @property
    def right(self) -> object:
        """The value that the field has in the kernel that is right."""
        return next(
            getattr(KERNELS[self.kernel], own.name) for own in fields(KERNELS[self.kernel]) if own.name == self.field
        )


def _rows() -> Iterator[tuple[str, str, object, str, str]]:
    fragment, k, start, major = "FRAGMENT_LAYOUT", "K_ADVANCE", "DESC_START", "DESC_MAJOR"
    mma = "mma.sync, st.shared, padded rows"
    yield mma, "pitch_a", 64, fragment, "80 bytes from row to row instead of 64"
    yield mma, "pitch_a", 96, fragment, "80 bytes from row to row instead of 96"
    yield mma, "pitch_b", 64, fragment, "80 bytes from row to row instead of 64"
    yield mma, "trans_a", ".trans", fragment, "ldmatrix without .trans"
    yield mma, "trans_b", ".trans", fragment, "ldmatrix without .trans"
    yield mma, "start_a", 16, fragment, "addresses 16 bytes lower"
    yield mma, "start_a", 80, fragment, "addresses 80 bytes lower"
    yield mma, "start_b", 16, fragment, "addresses 16 bytes lower"
    yield mma, "step_a", 1, k, "addresses 16 bytes higher"
    yield mma, "step_a", 0, k, "addresses 32 bytes higher"
    yield mma, "step_a", 4, k, "addresses 32 bytes lower"
    yield mma, "step_b", 0, k, "addresses 32 bytes higher"
    yield mma, "swapped", True, fragment, "the 8 x 8 matrices in the other order"
    mma = "mma.sync, cp.async, swizzled"
    yield mma, "swizzle_a", (0, 0), fragment, "exchanged by address bits 7 to 8"
    yield mma, "swizzle_b", (0, 0), fragment, "exchanged by address bits 7 to 8"
    yield mma, "swizzle_a", (0, 3), fragment, "address bits 7 to 8 instead of address bits 6 to 7"
    yield mma, "phase_a", 1, fragment, "phase 1 rows back"
    yield mma, "phase_a", 2, fragment, "phase 2 rows back"
    yield mma, "pitch_a", 96, fragment, "64 bytes from row to row instead of 96"
    yield mma, "trans_b", ".trans", fragment, "ldmatrix without .trans"
    yield mma, "step_a", 1, k, "instead of"
    mma = "mma.sync, cvt from f32, B by rows"
    yield mma, "trans_b", "", fragment, "ldmatrix with .trans"
    yield mma, "step_b", 1, k, "instead of"
    yield mma, "step_b", 0, k, "addresses 256 bytes higher"
    yield mma, "pitch_a", 64, fragment, "80 bytes from row to row instead of 64"
    mma = "mma.sync, ld.shared"
    yield mma, "pitch_a", 96, fragment, "80 bytes from row to row instead of 96"
    yield mma, "step_a", 1, k, "addresses 16 bytes higher"
    for mma in (
        "mma.sync, cp.async of 4 bytes",
        "mma.sync, st.async",
        "mma.sync, bulk copy in shared memory",
        "mma.sync, shfl",
    ):
        yield mma, "pitch_a", 96, fragment, "80 bytes from row to row instead of 96"
        yield mma, "step_b", 0, k, "addresses 32 bytes higher"
    yield (
        "mma.sync, cp.async of 8 bytes",
        "swizzle_a",
        (0, 3),
        fragment,
        "address bits 7 to 8 instead of address bits 6 to 7",
    )
    yield "mma.sync, cp.async of 8 bytes", "phase_a", 1, fragment, "phase 1 rows back"
    yield "mma.sync, movmatrix", "turned", False, fragment, "ldmatrix with .trans"
    yield "mma.sync, movmatrix", "step_b", 0, k, "addresses 256 bytes higher"
    for wgmma in ("wgmma, TMA", "wgmma, st.shared", "tcgen05.mma, TMA", "tcgen05.mma, st.shared"):
        yield wgmma, "stride_a", 64, "DESC_UNITS", "SBO 1024 instead of 64"
        yield wgmma, "stride_a", 16384, "DESC_UNITS", "SBO 1024 instead of 16384"
        yield wgmma, "start_a", -960, "DESC_UNITS", "start address 1024 instead of 64"
        yield wgmma, "stride_b", 8192, "DESC_UNITS", "SBO 1024 instead of 8192"
        yield wgmma, "stride_b", 512, "DESC_LBO_SBO", "SBO 1024 instead of 512"
        yield wgmma, "swizzle_a", "32B", "DESC_SWIZZLE_MODE", "swizzle 128B instead of 32B"
        yield wgmma, "swizzle_b", "64B", "DESC_SWIZZLE_MODE", "swizzle 128B instead of 64B"
        yield wgmma, "start_a", 16, start, "start address 1120 instead of 1136"
        yield wgmma, "start_b", 32, start, "start address"
        yield wgmma, "advance_a", 16, k, "start address 1056 instead of 1040"
        yield wgmma, "advance_a", 64, k, "start address 1056 instead of 1088"
        yield wgmma, "advance_b", 0, k, "start address"
        yield wgmma, "major_a", 1, major, "K-major instead of MN-major"
        yield wgmma, "major_b", 1, major, "K-major instead of MN-major"
    yield "wgmma, st.shared", "store_phase", 1, "DESC_SWIZZLE_MODE", "1 row back"
    for filled in ("wgmma, st.shared", "tcgen05.mma, st.shared"):
        yield (
            filled,
            "begin",
            128,
            "SWIZZLE_PHASE_1024",
            "the tile at a multiple of 1024 bytes instead of 1152, or base offset 1,",
        )
    for wgmma in ("wgmma, TMA", "wgmma, st.shared", "tcgen05.mma, TMA", "tcgen05.mma, st.shared"):
        yield wgmma, "exchanged", True, "OPERANDS_EXCHANGED", "the descriptors of A and B exchanged"
    for mma in ("tcgen05.mma, TMA", "tcgen05.mma, st.shared"):
        yield mma, "n", 16, "IDESC_SHAPE", "N 32 instead of 16"
        yield mma, "m", 64, "IDESC_SHAPE", "M 128 instead of 64"
    yield "tcgen05.mma, A in Tensor Memory", "n", 16, "IDESC_SHAPE", "N 32 instead of 16"
    factors = "tcgen05.mma, scale factors"
    yield factors, "scale_a", 72, "SCALE_COLUMN", "column 64 instead of 72 for one of them"
    yield factors, "scale_b", 64, "SCALE_COLUMN", "column 72 instead of 64 for one of them"
    yield factors, "scale_a", 65, "SCALE_COLUMN", "column 64 instead of 65"
    yield factors, "scale_a", 68, "SCALE_COLUMN", "column 64 instead of 68"
    yield factors, "scale_b", 76, "SCALE_COLUMN", "column 72 instead of 76"
    yield factors, "copied_a", 60, "SCALE_COLUMN", "column 60 instead of 64"
    yield "wgmma, TMA, A in registers", "begin", 384, "SWIZZLE_PHASE_1024", "the tile at a multiple of 1024 bytes"
    yield "tcgen05.mma, st.shared", "store_phase", 3, "DESC_SWIZZLE_MODE", "3 rows back"
    for held in ("wgmma, A in registers", "wgmma, TMA, A in registers"):
        yield held, "load_pitch", 144, fragment, "128 bytes from row to row instead of 144"
        yield held, "load_phase", 1, fragment, "phase 1 rows back"
        yield held, "load_trans", ".trans", fragment, "ldmatrix without .trans"
        yield held, "load_advance", 1, k, "instead of"
        yield held, "advance_b", 16, k, "start address"
    for held in ("tcgen05.mma, A in Tensor Memory", "tcgen05.mma, A copied to Tensor Memory"):
        yield held, "column", 66, "TMEM_COLUMN", "column 88 instead of 90"
        yield held, "column", 60, "TMEM_COLUMN", "column 64 instead of 60"
        yield held, "columns", 4, k, "column 72 instead of 68"
        yield held, "columns", 0, k, "column 72 instead of 64"
        yield held, "advance_b", 16, k, "start address"
        yield held, "major_b", 1, major, "K-major instead of MN-major"


MISTAKES = tuple(Mistake(*row) for row in _rows())
