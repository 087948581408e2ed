"""wgmma and wgmma.sp under test."""

from conformance.isa.wgmma.dense import WARPGROUP
from conformance.isa.wgmma.sparse import SPARSE_WARPGROUP

TESTBENCHES = {"wgmma": WARPGROUP, "wgmma.sp": SPARSE_WARPGROUP}
