"""The tcgen05 instructions under test."""

from conformance.isa.tcgen05.control import AllocationTestbench, CommitTestbench
from conformance.isa.tcgen05.cp import CopyTestbench, ShiftTestbench
from conformance.isa.tcgen05.ld_st import LoadTestbench, OrderTestbench, StoreTestbench
from conformance.isa.tcgen05.mma import TENSOR_MEMORY

_ORDER, _LOAD = OrderTestbench(), LoadTestbench()
TESTBENCHES = {
    "tcgen05.alloc": AllocationTestbench(),
    "tcgen05.commit": CommitTestbench(),
    "tcgen05.cp": CopyTestbench(),
    "tcgen05.shift": ShiftTestbench(),
    "tcgen05.fence": _ORDER,
    "tcgen05.wait": _ORDER,
    "tcgen05.ld": _LOAD,
    "tcgen05.ld.red": _LOAD,
    "tcgen05.ld.spcompress": _LOAD,
    "tcgen05.st": StoreTestbench(),
    "tcgen05.mma": TENSOR_MEMORY,
    "tcgen05.mma.sp": TENSOR_MEMORY,
    "tcgen05.mma.ws": TENSOR_MEMORY,
    "tcgen05.mma.ws.sp": TENSOR_MEMORY,
}
