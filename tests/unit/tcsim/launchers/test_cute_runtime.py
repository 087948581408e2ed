"""What the host code of CuTe DSL calls, called as C calls it: handles, tensor maps, launches, and what stops one. No CuTe DSL is needed."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tcsim import TensorMap
from tcsim.core.errors import OperandError
from tcsim.launchers.cute_runtime import FAILED, Runtime, _Attribute, _Config
from tcsim.launchers.host_memory import HostArray
from tcsim.launchers.session import Session
from tcsim.tma.types import DATA_TYPES

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry ranks(.param .u64 out, .param .u32 factor)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [factor];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %cluster_ctarank; mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r4;
  ret;
}
"""


@pytest.fixture
def runtime() -> Runtime:
    return Runtime(Session("sm_90", log=None))


def kernel(symbols: dict[str, Any]) -> int:
    library, handle = ctypes.c_void_p(), ctypes.c_void_p()
    assert symbols["_cudaLibraryLoadData"](ctypes.addressof(library), 1, 0, 0, 0, 0, 0, 0) == 0
    assert symbols["_cudaLibraryGetKernel"](ctypes.addressof(handle), library.value, b"ranks") == 0
    assert handle.value
    return handle.value


def launch(symbols: dict[str, Any], handle: int, out: np.ndarray, factor: int) -> int:
    """Four blocks in clusters of two."""
    values = [ctypes.c_uint64(out.ctypes.data), ctypes.c_uint32(factor)]
    params = (ctypes.c_void_p * 2)(*map(ctypes.addressof, values))
    cluster = _Attribute(4, 0, (2, 1, 1))
    config = _Config((4, 1, 1), (1, 1, 1), 0, None, ctypes.pointer(cluster), 1)
    found: int = symbols["_cudaLaunchKernelEx"](ctypes.byref(config), handle, params)
    return found


def test_a_launch(runtime: Runtime) -> None:
    symbols, out = runtime.symbols(PTX), np.zeros(4, np.uint32)
    held = HostArray(out)
    assert launch(symbols, kernel(symbols), out, 10) == 0
    assert held.array.tolist() == [0, 11, 20, 31]
    (found,) = runtime.session.launches
    assert found.cluster == (2, 1, 1) and found.notes == () and not runtime.error


def test_what_goes_wrong_is_raised_after_the_host_code(runtime: Runtime) -> None:
    symbols, out = runtime.symbols(PTX), np.zeros(4, np.uint32)
    handle = kernel(symbols)
    assert launch(symbols, handle, out, 1) == FAILED  # nobody says that these bytes may be reached
    assert symbols["_cudaDeviceSynchronize"]() == FAILED
    with pytest.raises(Exception, match="GMEM_UNMAPPED"):
        runtime.raise_error()
    assert symbols["_cudaDeviceSynchronize"]() == 0
    assert symbols["_cudaMalloc"]() == FAILED
    with pytest.raises(OperandError, match="cudaMalloc of a host function of CuTe DSL is not modelled"):
        runtime.raise_error()
    runtime.active = False
    assert launch(symbols, handle, out, 1) == FAILED
    with pytest.raises(RuntimeError, match="not active any more"):
        runtime.raise_error()


def test_attributes_of_the_device(runtime: Runtime) -> None:
    symbols, value = runtime.symbols(PTX), ctypes.c_int()
    answers = {}
    for attribute in (97, 16, 75, 76):
        assert symbols["_cudaDeviceGetAttribute"](ctypes.addressof(value), attribute, 0) == 0
        answers[attribute] = value.value
    assert answers == {97: 227 << 10, 16: 132, 75: 9, 76: 0}


@pytest.mark.parametrize("swizzle", ["NONE", "64B", "128B"])
def test_a_tensor_map_is_that_of_the_model(runtime: Runtime, swizzle: str) -> None:
    wanted = TensorMap(
        "BFLOAT16",
        (256, 64, 3),
        (512, 32768),
        (32, 8, 1),
        swizzle=swizzle,
        oob_fill="NAN_REQUEST_ZERO_FMA",
        l2_promotion="L2_128B",
    )
    dims, strides = (ctypes.c_uint64 * 3)(256, 64, 3), (ctypes.c_uint64 * 2)(512, 32768)
    box, steps, found = (
        (ctypes.c_uint32 * 3)(32, 8, 1),
        (ctypes.c_uint32 * 3)(1, 1, 1),
        ctypes.create_string_buffer(128),
    )
    place = ctypes.addressof
    assert runtime.symbols(PTX)["_cuTensorMapEncodeTiled"](
        place(found), DATA_TYPES["BFLOAT16"].driver, 3, 0x7F0000001000, place(dims), place(strides), place(box), place(steps), 0,
        ("NONE", "32B", "64B", "128B").index(swizzle), 2, 1,
    ) == 0  # fmt: skip
    assert found.raw == bytes(wanted.encode(0x7F0000001000))
