"""The Triton and Gluon kernels of the corpora, compiled and launched by Triton itself, on NumPy arrays: every result is as expected."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia import hopper
from triton.tools.tensor_descriptor import TensorDescriptor

import tcsim.launchers
from tcsim.core.targets import TARGETS
from tcsim.launchers.host_memory import HostArray
from tests.kernels.corpora.case import CASES, Case, Launch, Map, Pointer
from tests.kernels.corpora.gluon import cases as gluon_cases
from tests.kernels.corpora.triton import cases as triton_cases

FILES = (gluon_cases, triton_cases)
TYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64, "i8": np.int8, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2, "i1": np.int8, "u32": np.uint32, "i16": np.int16,
}  # fmt: skip
RECENT = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 8)  # the Gluon kernels are written for it
RUNS = [
    (name, TARGETS[target].arch)
    for name, case in CASES.items()
    if case.source.compiler == "triton" or (RECENT and case.source.compiler == "gluon")
    for target in case.targets
]


def host_arrays(launch: Launch) -> dict[str, HostArray]:
    """Its buffers, with addresses of buffers written where they belong."""
    found = {name: HostArray(np.array(array, order="C")) for name, array in launch.buffers.items()}
    for (name, byte), pointer in launch.pointers.items():
        address = np.uint64(found[pointer.buffer].data_ptr() + pointer.offset)
        found[name].array.view(np.uint8).reshape(-1)[byte : byte + 8] = np.frombuffer(address.tobytes(), np.uint8)
    return found


def argument(kind: str, given: list[Any], arrays: dict[str, HostArray], compiler: str) -> Any:
    """The next argument of a kernel: of a descriptor, sizes and strides are parameters of their own."""
    item = given.pop(0)
    if isinstance(item, Map):
        base, block = arrays[item.buffer], [int(side) for side in kind.split(".")[2].split("x")]
        shape, strides = ([int(given.pop(0)) for _ in block] for _ in range(2))
        if compiler == "triton":
            return TensorDescriptor(base, shape, strides, block)
        bits = 8 * base.dtype.itemsize
        layout = NVMMASharedLayout(swizzle_byte_width=int(kind.split(".")[3]), element_bitwidth=bits, rank=len(block))
        if not kind.startswith("im2col"):
            return hopper.TensorDescriptor(base, shape, strides, block, layout)
        lower, upper = item.map.pixel_box_lower_corner[::-1], item.map.pixel_box_upper_corner[::-1]
        return hopper.TensorDescriptorIm2Col(
            base, list(base.shape), list(base.stride()), block, layout, pixel_box_lower_corner=list(lower), pixel_box_upper_corner=list(upper)
        )  # fmt: skip
    if isinstance(item, Pointer):
        array = arrays[item.buffer].array.reshape(-1).view(np.uint8)[item.offset :]
        return HostArray(array.view(TYPES[kind[1:]]))  # of the type that the kernel sees
    return item.item()


def launched(case: Case, launch: Launch, arrays: dict[str, HostArray]) -> None:
    """Launch a case as a user of Triton does."""
    options = dict(case.source.options)
    signature, constants = dict(options.pop("signature")), dict(options.pop("constants", ()))
    options.pop("divisible", None)
    module = importlib.import_module(f"tests.kernels.corpora.{case.source.compiler}.{case.source.file}")
    function = getattr(module, case.source.function)
    chosen = {
        name: getattr(module, value[1:]) if isinstance(value, str) and value[:1] == "@" else value
        for name, value in constants.items()
    }
    given, arguments = list(launch.params), {}
    for name in function.arg_names:
        if name in signature:
            arguments[name] = argument(signature[name], given, arrays, case.source.compiler)
    function[launch.grid](**arguments, **chosen, **options)


@pytest.mark.parametrize(("name", "arch"), RUNS)
def test_a_kernel_of_the_corpora(name: str, arch: str) -> None:
    case = CASES[name]
    launch = case.launch()
    arrays = host_arrays(launch)
    with tcsim.launchers.triton(arch=arch, cuda=False) as session:
        triton.set_allocator(lambda size, alignment, stream: None)
        launched(case, launch, arrays)
    (own,) = session.launches
    assert own.run.completed and own.run.errors == [], own.run.hazards
    assert own.run.output == (launch.output or "")
    for buffer, expected in launch.expected.items():
        assert expected.wrong(arrays[buffer].array) == 0, buffer
    assert launch.expected
