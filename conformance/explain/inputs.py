"""The operands of a recorded product, made from its fields alone: version 1 of the generator, which does not change any more.

Nothing of tcsim is used. A recording holds a digest of what was made, so that a changed generator is seen at once.
"""

from __future__ import annotations

import hashlib
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from conformance.explain.products import Product
from conformance.stimuli.stream import Stream

Array = npt.NDArray[Any]
VERSION = 1
DTYPES: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "tf32": np.float32,  # what the library is given
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "s32": np.int32,
}
MASKS = {"f16": (2.0**15, 2.0**-12), "e4m3": (2.0**8, 2.0**-6), "e5m2": (2.0**15, 2.0**-12)}
"""Of the masks: the mask and the unit, where 2**60 and 1 do not fit."""


def normal(shape: tuple[int, ...], format: str, *key: object) -> Array:
    """Four uniform 16-bit integers, added: bell-shaped, mean 0, deviation about 1.15; integers of the whole range for s8."""
    words = Stream("explain", VERSION, *key).words(shape)
    if format == "s8":
        return (words >> np.uint64(56)).astype(np.uint8).view(np.int8)
    total = np.zeros(shape, np.int32)
    for place in range(4):
        total += (words >> np.uint64(16 * place) & np.uint64(0xFFFF)).astype(np.int32)
    return ((total - 2 * 0xFFFF) * np.float32(2.0**-15)).astype(DTYPES[format])


def pairs(k: int, *key: object) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places of K in random pairs; of an odd K one place is left out."""
    order = np.argsort(Stream("explain", VERSION, "pairs", *key).words((k,)), kind="stable")
    half = k // 2
    return order[:half], order[half : 2 * half]


def matrices(product: Product, kind: str) -> tuple[Array, Array]:
    """A (batch, M, K) and B (batch, K, N).

    normal: as said there. cancelling: half of K repeats the other half with the sign of A turned, in random places, so that the exact
    product is 0 and the output is the accumulated error alone. tree: a large mask in one place of each row of A, a negative one in one place of
    each column of B, units between them: an output counts the units that were added after the masks had met.
    """
    (m, n, k), (left, right, _) = product.shape, product.formats
    key = (kind, product.batch, m, n, k)
    if kind == "tree":
        return tree(product)
    side = product.options.get("image", 0)
    if side:  # a 3 x 3 filter over an image: M is its pixels, K runs over the filter's rows, columns and channels
        a = windows(normal((side, side, k // 9), left, *key, "a", left)).reshape(product.batch, m, k)
    else:
        a = normal((product.batch, m, k), left, *key, "a", left)
    b = normal((product.batch, k, n), right, *key, "b", right)
    if "shift" in product.options:
        a = (a.astype(np.float64) * 2.0 ** -product.options["shift"]).astype(a.dtype)
    if kind == "cancelling":
        first, second = pairs(k, *key)
        a[..., second] = -a[..., first]
        b[..., second, :] = b[..., first, :]
        if k % 2:
            rest = np.setdiff1d(np.arange(k), np.concatenate([first, second]))
            a[..., rest] = 0
    return a, b


def windows(image: Array) -> Array:
    """Of each pixel its 3 x 3 neighbours with their channels, zeros beyond the edge: (H, W, C) to (H W, 9 C)."""
    height, width, channels = image.shape
    padded = np.zeros((height + 2, width + 2, channels), image.dtype)
    padded[1:-1, 1:-1] = image
    parts = [padded[row : row + height, column : column + width] for row in range(3) for column in range(3)]
    return np.stack(parts, axis=2).reshape(height * width, 9 * channels)


def tree(product: Product) -> tuple[Array, Array]:
    """The masks of `matrices`. Everything lies in at most 256 places of K, evenly spread, so that bf16 holds every count."""
    (m, n, k), (left, right, _) = product.shape, product.formats
    count = min(k, 256)
    places = np.arange(count) * k // count
    made = []
    for rows, format, sign, shift in ((m, left, 1.0, 0), (n, right, -1.0, count // (2 * n))):
        mask, unit = MASKS.get(format, (2.0**60, 1.0))
        values = np.zeros((rows, k))
        values[:, places] = unit
        values[np.arange(rows), places[(np.arange(rows) * count // rows + shift) % count]] = sign * mask
        made.append(np.broadcast_to(values.astype(DTYPES[format]), (product.batch, rows, k)))
    return np.ascontiguousarray(made[0]), np.ascontiguousarray(made[1].swapaxes(1, 2))


def operands(product: Product, kind: str) -> dict[str, Array]:
    """Everything that a product takes, as it is multiplied: a, b, and c, scale_a, scale_b where it has them."""
    (m, n, k), d = product.shape, product.formats[2]
    found: dict[str, Array] = {}
    found["a"], found["b"] = matrices(product, kind)
    key = (kind, product.batch, m, n, k)
    if product.c:
        format = product.c_format or d
        shape = (product.batch, m, n) if product.c == "matrix" else (n,)
        found["c"] = normal(shape, format, *key, "c", format)
    if product.scales:
        rows, columns = (m, n) if product.scales == "rows" else (1, 1)
        for name, extents in (("scale_a", (rows, 1)), ("scale_b", (1, columns))):
            words = Stream("explain", VERSION, *key, name).words(extents)
            found[name] = ((words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24) + 1) / 2
    return found


def digest(found: dict[str, Array]) -> str:
    """SHA-256 of all operands, with their names, shapes and types."""
    total = hashlib.sha256()
    for name, array in sorted(found.items()):
        total.update(f"{name} {array.dtype.name} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def sample(product: Product, whole: bool = False) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows and columns of the output that are kept: at most 64 rows, about 4,096 outputs; of a batch 1,024 each."""
    m, n, _ = product.shape
    most = 64 if product.batch == 1 else 32
    rows = min(m, most)
    columns = min(n, most * most // rows)
    if whole:
        rows, columns = m, n
    chosen = []
    for name, size, count in (("rows", m, rows), ("columns", n, columns)):
        order = np.argsort(Stream("explain", VERSION, "sample", name, size, count).words((size,)), kind="stable")
        chosen.append(np.sort(order[:count]))
    return chosen[0], chosen[1]
