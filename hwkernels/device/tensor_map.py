"""How the CUDA driver encodes a tensor map: cuTensorMapEncodeTiled, ...Im2col and ...Im2colWide, through cuda-python.

Importing this module needs neither cuda-python nor a GPU; calling into it does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hwkernels.device.errors import CudaError, DriverUnavailable
from hwkernels.device.map_bytes import carried_map
from tcsim.tma.bits import BYTES
from tcsim.tma.map import TensorMap
from tcsim.tma.types import DATA_TYPES, INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLE_MODES, WIDE_MODES

PLACEHOLDER = 1 << 20
"""The address in maps whose tensor has no address yet: what launches them puts it in."""
_REFUSED = "CUDA_ERROR_INVALID_VALUE"
_PASSED = (
    "global_dim", "global_strides", "element_strides", "box_dim", "pixel_box_lower_corner", "pixel_box_upper_corner",
    "channels_per_pixel", "pixels_per_column", "wide_mode",
)  # fmt: skip


def _driver() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DriverUnavailable(
            f"encoding needs cuda-python, which is not installed ({error}); pip install 'cuda-python'"
        ) from None


def driver_encode(tmap: TensorMap, global_address: int = PLACEHOLDER) -> bytes:
    """The 128 bytes that the driver makes of a map.

    Raises CudaError for a map that the driver refuses, DriverUnavailable without a driver. Source: the driver.
    """
    return encode_arguments(arguments_of(vars(tmap)), global_address)


def arguments_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's arguments by name, from the fields of a TensorMap by name, which may be what no TensorMap can be."""
    arguments: dict[str, Any] = {
        "kind": values["im2col_mode"],
        "data_type": DATA_TYPES[values["data_type"]].driver,
        "interleave": INTERLEAVES[values["interleave"]],
        "swizzle": SWIZZLE_MODES[values["swizzle"]].driver,
        "l2_promotion": L2_PROMOTIONS[values["l2_promotion"]],
        "oob_fill": OOB_FILLS[values["oob_fill"]],
    }
    return arguments | {name: values[name] for name in _PASSED}


def encode_arguments(given: dict[str, Any], global_address: int) -> bytes:
    """What the driver makes of arguments as `arguments_of` names them.

    Raises CudaError if it refuses them, DriverUnavailable without a driver.
    """
    driver = _driver()
    wide, narrow = driver.cuuint64_t, driver.cuuint32_t
    rank = len(given["global_dim"])
    head = (
        driver.CUtensorMapDataType(given["data_type"]),
        narrow(rank),
        global_address,
        [wide(size) for size in given["global_dim"]],
        [wide(stride) for stride in given["global_strides"]] or [wide(0)],  # a null pointer is refused
    )
    every = [narrow(stride) for stride in given["element_strides"]]
    wide_mode = (
        (driver.CUtensorMapIm2ColWideMode(WIDE_MODES[given["wide_mode"]]),) if given["kind"] == "im2col_wide" else ()
    )
    tail = (
        driver.CUtensorMapInterleave(given["interleave"]),
        *wide_mode,
        driver.CUtensorMapSwizzle(given["swizzle"]),
        driver.CUtensorMapL2promotion(given["l2_promotion"]),
        driver.CUtensorMapFloatOOBfill(given["oob_fill"]),
    )
    middle: tuple[Any, ...]
    if given["kind"]:
        name = "cuTensorMapEncodeIm2col" + "Wide" * bool(wide_mode)
        corners = [list(given["pixel_box_lower_corner"]), list(given["pixel_box_upper_corner"])]
        middle = (
            *([corner[0] for corner in corners] if wide_mode else corners),
            narrow(given["channels_per_pixel"]),
            narrow(given["pixels_per_column"]),
            every,
        )
    else:
        name = "cuTensorMapEncodeTiled"
        middle = ([narrow(size) for size in given["box_dim"]], every)
    try:
        code, tensor_map = getattr(driver, name)(*head, *middle, *tail)
    except (RuntimeError, AttributeError) as error:
        raise DriverUnavailable(f"{name} cannot be called: {error}") from None
    if code != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(name, getattr(code, "name", str(code)), False)
    return b"".join(int(word).to_bytes(8, "little") for word in tensor_map.opaque)


def refuses(given: dict[str, Any], global_address: int = PLACEHOLDER) -> bool:
    """Whether the driver refuses arguments as invalid.

    Raises CudaError for any other failure, DriverUnavailable without a driver.
    """
    try:
        encode_arguments(given, global_address)
    except CudaError as error:
        if error.code != _REFUSED:
            raise
        return True
    return False


def encoded_by_driver(maps: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """A table of maps (samples, 128), each encoded anew by the driver from what its bytes say (`hwkernels.device.map_bytes`).

    Raises as `driver_encode` does, and TensorMapError for bytes that are no map.
    """
    out = [np.frombuffer(driver_encode(carried_map(data.tobytes())), np.uint8) for data in maps]
    return np.stack(out) if out else np.zeros((0, BYTES), np.uint8)
