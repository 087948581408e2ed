"""wmma.load, wmma.store and wmma.mma under test."""

from conformance.isa.wmma.load_store import LoadTestbench, StoreTestbench
from conformance.isa.wmma.mma import FRAGMENT

TESTBENCHES = {"wmma.load": LoadTestbench(), "wmma.store": StoreTestbench(), "wmma.mma": FRAGMENT}
