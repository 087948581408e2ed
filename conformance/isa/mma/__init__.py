"""mma.sync and mma.sp under test, plain and with block scales."""

from conformance.isa.mma.dense import DenseTestbench
from conformance.isa.mma.scaled import ScaledTestbench
from conformance.isa.mma.sparse import SPARSE

_SCALED = ScaledTestbench()
TESTBENCHES = {
    "mma.sync": DenseTestbench(),
    "mma.sp": SPARSE,
    "mma.sync.block_scale": _SCALED,
    "mma.sp.block_scale": _SCALED,
}
