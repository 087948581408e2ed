"""Tensor copies, reductions and prefetches under test."""

from conformance.isa.cp_async_bulk_tensor.mutants import LOAD_MUTANTS, PREFETCH_MUTANTS, STORE_MUTANTS
from conformance.isa.cp_async_bulk_tensor.testbench import TensorTestbench

TESTBENCHES = {
    "cp.async.bulk.tensor": TensorTestbench((*LOAD_MUTANTS, *STORE_MUTANTS)),
    "cp.reduce.async.bulk.tensor": TensorTestbench(STORE_MUTANTS),
    "cp.async.bulk.prefetch.tensor": TensorTestbench(PREFETCH_MUTANTS),
}
