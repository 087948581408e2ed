"""The 128 bytes in which a probe's inputs carry a tensor map, until the driver encodes it for the launch.

Of tiled and im2col maps they are the CUtensorMap's. Nobody has said which bits an im2col-wide map has: its bytes are those of
the im2col map without halos and corners, and behind them, where a CUtensorMap has zeros, what only the wide map has. They are
no CUtensorMap, and are never launched.
"""

from __future__ import annotations

import struct

from tcsim.tma.bits import BYTES, DESCRIBED
from tcsim.tma.map import TensorMap
from tcsim.tma.types import WIDE_MODES

_WIDE = b"im2col-wide"
_FIELDS = struct.Struct("<11sBhhI")  # the mark, the mode, lower and upper corner, pixels per column


def carried(tmap: TensorMap) -> bytes:
    """128 bytes from which `carried_map` makes the same map.

    >>> wide = TensorMap.im2col_wide("FLOAT16", (64, 9, 3), (128, 1152), -1, 2, 64, 100, mode="W128")
    >>> carried_map(carried(wide)) == wide
    True
    """
    if not tmap.wide_mode:
        return tmap.encode(0)
    zeros = (0,) * (tmap.rank - 2)
    image = TensorMap.im2col(
        tmap.data_type, tmap.global_dim, tmap.global_strides, zeros, zeros, tmap.channels_per_pixel, 1,
        tmap.element_strides, tmap.interleave, tmap.swizzle, tmap.oob_fill, tmap.l2_promotion,
    )  # fmt: skip
    more = _FIELDS.pack(
        _WIDE, WIDE_MODES[tmap.wide_mode], tmap.pixel_box_lower_corner[0], tmap.pixel_box_upper_corner[0],
        tmap.pixels_per_column,
    )  # fmt: skip
    return image.encode(0)[:DESCRIBED] + more.ljust(BYTES - DESCRIBED, b"\0")


def carried_map(data: bytes) -> TensorMap:
    """The map that `carried` wrote.

    Raises TensorMapError for bytes that are no map.
    """
    if not data[DESCRIBED:].startswith(_WIDE):
        return TensorMap.decode(data)
    _, mode, lower, upper, pixels = _FIELDS.unpack_from(data, DESCRIBED)
    image = TensorMap.decode(data[:DESCRIBED])
    return TensorMap.im2col_wide(
        image.data_type, image.global_dim, image.global_strides, lower, upper, image.channels_per_pixel, pixels,
        image.element_strides, image.interleave, list(WIDE_MODES)[mode], image.swizzle, image.oob_fill, image.l2_promotion,
    )  # fmt: skip
