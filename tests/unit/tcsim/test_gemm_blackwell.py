"""tcsim.gemm with tcgen05.mma and with block-scaled instructions: the instruction's own matmul, block after block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.isa.mma.scaled_multiply import ScaledMatrixMultiply
from tcsim.isa.tcgen05.multiply import TensorMemoryMultiply
from tcsim.numbers.formats import FORMATS
from tests.support import planted

ARCH = "sm_100a"
Arrays = dict[str, np.ndarray]
DESCRIPTORS = {  # mnemonic -> descriptors of one kernel's kind
    "tcgen05.mma.cta_group::1.kind::f16": (
        tcsim.InstructionDescriptor(kind="f16", a_format="bf16", b_format="bf16", m=64, n=8),
        tcsim.InstructionDescriptor(kind="f16", a_format="f16", d_format="f16", m=64, n=8, negate_b=True),
    ),
    "tcgen05.mma.cta_group::2.kind::f16": (tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=128, n=32),),
    "tcgen05.mma.cta_group::1.kind::tf32": (tcsim.InstructionDescriptor(kind="tf32", m=64, n=8, negate_a=True),),
    "tcgen05.mma.cta_group::1.kind::f8f6f4": (
        tcsim.InstructionDescriptor(kind="f8f6f4", a_format="e4m3", b_format="e2m1", m=64, n=8),
    ),
    "tcgen05.mma.cta_group::1.kind::i8": (
        tcsim.InstructionDescriptor(kind="i8", a_format="s8", b_format="u8", m=64, n=8),
    ),
    "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32": (
        tcsim.InstructionDescriptor(kind="mxf8f6f4", a_format="e4m3", b_format="e5m2", m=128, n=8, scale_a_id=1),
    ),
    "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32": (tcsim.InstructionDescriptor(kind="mxf4", m=128, n=8),),
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16": (
        tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=8, scale_format="ue4m3"),
        tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=8, scale_format="ue8m0"),
    ),
}
TENSOR_MEMORY = [(name, desc) for name, descriptors in DESCRIPTORS.items() for desc in descriptors]
SCALED = (
    "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e5m2.f32.ue8m0",
    "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
    "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
)


def factors(random: np.random.Generator, shape: tuple[int, int], name: str) -> np.ndarray:
    """Scale factors around 1, and a few NaNs and extremes."""
    one = {"ue8m0": 127, "ue4m3": 0x38}[name]
    codes = random.integers(one - 5, one + 6, shape).astype(np.uint8)
    odd = random.random(shape) < 0.02
    return np.where(odd, random.integers(0, 256, shape), codes).astype(np.uint8)


def operands(ins: Any, desc: Any, sizes: tuple[int, int, int], block: int, seed: int) -> Arrays:
    """Random codes of everything that a product of these sizes has."""
    random, (m, n, k) = np.random.default_rng(seed), sizes
    formats = ins.formats(desc) if desc is not None else ins.formats
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    found = {name: planted.codes(random, shape, formats[name]) for name, shape in shapes.items()}
    if block:
        scale = (formats["scale"] if desc is not None else ins.row.scale_a.format).name
        blocks = -(-k // block)
        found |= {"scale_a": factors(random, (m, blocks), scale), "scale_b": factors(random, (blocks, n), scale)}
    return found


def by_blocks(ins: Any, desc: Any, x: Arrays, shape: tuple[int, int, int], block: int, order: Any) -> np.ndarray:
    """Tiles of the instruction's shape, each accumulated by its own `matmul`."""
    m, n, k = shape
    total = np.array(x["c"])
    for top in range(0, total.shape[0], m):
        for left in range(0, total.shape[1], n):
            rows, columns = slice(top, top + m), slice(left, left + n)
            d = total[rows, columns]
            for number in order:
                ks = slice(number * k, (number + 1) * k)
                more: dict[str, Any] = {} if desc is None else {"idesc": desc}
                if block:
                    of = slice(number * k // block, (number + 1) * k // block)
                    more |= {"scale_a": x["scale_a"][rows, of], "scale_b": x["scale_b"][of, columns]}
                d = ins.matmul(x["a"][rows, ks], x["b"][ks, columns], d, **more)
            total[rows, columns] = d
    return total


def check(ins: Any, desc: Any, shape: tuple[int, int, int], block: int, order: tuple[int, ...] | None) -> None:
    """gemm against the blocks: two tiles each way, three blocks of K."""
    m, n, k = shape
    x = operands(ins, desc, (2 * m, 2 * n, 3 * k), block, 5)
    want = by_blocks(ins, desc, x, shape, block, order or range(3))
    got = tcsim.gemm(**x, instruction=ins, k_order=order, **({} if desc is None else {"idesc": desc}))
    assert got.dtype == want.dtype and got.size == 4 * m * n
    np.testing.assert_array_equal(got, want)
    zero = tcsim.gemm(**{**x, "a": np.zeros_like(x["a"])}, instruction=ins, **({} if desc is None else {"idesc": desc}))
    assert (zero != got).mean() > 0.2  # the products count


def padded(x: Arrays, sizes: tuple[int, int, int], block: int) -> Arrays:
    """The same in larger matrices of zeros."""
    m, n, k = sizes
    shapes = {"a": (m, k), "b": (k, n), "c": (m, n)}
    if block:
        shapes |= {"scale_a": (m, k // block), "scale_b": (k // block, n)}
    wide = {name: np.zeros(shape, x[name].dtype) for name, shape in shapes.items()}
    for name, small in x.items():
        wide[name][: small.shape[0], : small.shape[1]] = small
    return wide


@pytest.mark.parametrize("order", [None, (2, 0, 1)])
@pytest.mark.parametrize(("mnemonic", "desc"), TENSOR_MEMORY)
def test_tensor_memory_multiply(
    mnemonic: str, desc: tcsim.InstructionDescriptor, order: tuple[int, ...] | None
) -> None:
    """tcgen05.mma with a descriptor."""
    ins = tcsim.instruction(mnemonic, arch=ARCH)
    assert isinstance(ins, TensorMemoryMultiply)
    check(ins, desc, (desc.m, desc.n, desc.k), ins.row.block, order)


@pytest.mark.parametrize("order", [None, (2, 0, 1)])
@pytest.mark.parametrize("mnemonic", SCALED)
def test_block_scaled_mma_sync(mnemonic: str, order: tuple[int, ...] | None) -> None:
    """mma.sync with scale factors."""
    ins = tcsim.instruction(mnemonic, arch="sm_120")
    assert isinstance(ins, ScaledMatrixMultiply)
    check(ins, None, ins.shape, ins.block, order)


@pytest.mark.parametrize(("mnemonic", "desc"), [*TENSOR_MEMORY, *((name, None) for name in SCALED)])
def test_ragged_sizes_are_zeros(mnemonic: str, desc: tcsim.InstructionDescriptor | None) -> None:
    """Any M, N and K; the last block of scale factors covers what is left."""
    ins: Any = tcsim.instruction(mnemonic, arch="sm_120" if desc is None else ARCH)
    shape = ins.shape if desc is None else (desc.m, desc.n, desc.k)
    block = ins.block if desc is None else ins.row.block
    m, n, k = shape
    sizes, whole = (m + 3, n + 5, 2 * k + 3), (2 * m, 2 * n, 3 * k)
    x = operands(ins, desc, sizes, block, 6)
    want = by_blocks(ins, desc, padded(x, whole, block), shape, block, range(3))[: sizes[0], : sizes[1]]
    got = tcsim.gemm(**x, instruction=ins, **({} if desc is None else {"idesc": desc}))
    np.testing.assert_array_equal(got, want)


def test_the_shape_and_the_places_of_the_descriptor_do_not_matter() -> None:
    """M, N, and which bytes hold scale factors; bits instead of a descriptor."""
    name = "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32"
    desc = DESCRIPTORS[name][0]
    ins = tcsim.instruction(name, arch=ARCH)
    x = operands(ins, desc, (20, 12, 70), 32, 7)
    other = tcsim.InstructionDescriptor(
        kind="mxf8f6f4", a_format="e4m3", b_format="e5m2", m=128, n=256, scale_a_id=3, scale_b_id=2
    )
    first, second, third = (tcsim.gemm(**x, instruction=ins, idesc=one) for one in (desc, other, other.encode()))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    assert first.shape == (20, 12)


F16 = "tcgen05.mma.cta_group::1.kind::f16"


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"idesc": None}, tcsim.OperandError, "idesc is missing"),
        ({"scale_a": np.zeros((64, 1), np.uint8)}, tcsim.OperandError, "scale_a is not an operand"),
        ({"instruction": f"{F16}.ashift"}, tcsim.InstructionError, "other rows of D"),
        ({"instruction": "tcgen05.mma.sp.cta_group::1.kind::f16"}, tcsim.InstructionError, "its A is sparse"),
        ({"instruction": "tcgen05.mma.cta_group::2.kind::f16"}, tcsim.OperandError, "M = 64"),
        ({"instruction": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}, tcsim.OperandError, "idesc is not"),
    ],
)
def test_wrong_use_of_tcgen05(change: dict[str, Any], error: type[Exception], text: str) -> None:
    """Errors say what would be valid."""
    a, b = np.zeros((64, 32), np.float16), np.zeros((32, 8), np.float16)
    idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=8)
    with pytest.raises(error, match=text):
        tcsim.gemm(**{"a": a, "b": b, "instruction": F16, "arch": ARCH, "idesc": idesc, **change})


@pytest.mark.parametrize(
    ("change", "text"),
    [({"scale_b": None}, "scale_b is missing"), ({"scale_a": np.zeros((16, 2), np.uint8)}, r"valid: \(..., 16, 3\)")],
)
def test_wrong_scale_factors(change: dict[str, Any], text: str) -> None:
    """All of K has factors, the cut block too."""
    a, b = np.zeros((16, 70), np.uint8), np.zeros((70, 8), np.uint8)
    given = {"scale_a": np.zeros((16, 3), np.uint8), "scale_b": np.zeros((3, 8), np.uint8)} | change
    with pytest.raises(tcsim.OperandError, match=text):
        tcsim.gemm(a, b, instruction=SCALED[0], arch="sm_120", **given)


def test_float8_counts_as_ue4m3() -> None:
    """As in `matmul`."""
    import ml_dtypes

    a, b = np.full((16, 16), 2, np.uint8), np.full((16, 8), 2, np.uint8)
    one = np.ones((16, 1), ml_dtypes.float8_e4m3fn)
    d = tcsim.gemm(a, b, instruction=SCALED[2], arch="sm_120", scale_a=one, scale_b=one[:8].T)
    assert (tcsim.decode(d, "f32") == 16).all() and FORMATS["e2m1"].bits == 4
