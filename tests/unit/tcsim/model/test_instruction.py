"""The public API of an instruction: registers and codes in and out, batches, operands, and what wrong use is told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from tcsim import FormatError, OperandError, TcsimError, catalog
from tcsim.isa.mma.multiply import MatrixMultiply

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
QUAD_PAIR = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"
DOUBLE = "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64"
REPRESENTATIVES = [
    (HALF, "sm_90"),
    (QUAD_PAIR, "sm_70"),
    ("mma.sync.aligned.m8n8k4.col.row.f16.f16.f16.f16", "sm_80"),
    (DOUBLE, "sm_90"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_89"),
    ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", "sm_90"),
    ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e2m1.f32", "sm_120"),
    ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_80"),
    ("mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32", "sm_90"),
    ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "sm_100"),
]


def words(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.uint32]:
    """Random registers."""
    return np.random.Generator(np.random.PCG64(seed)).integers(0, 2**32, shape, np.uint64).astype(np.uint32)


def random_registers(ins: MatrixMultiply, batch: tuple[int, ...] = ()) -> dict[str, npt.NDArray[np.uint32]]:
    """Random registers of all inputs."""
    return {
        name: words((*batch, ins.operands[name].lanes, ins.operands[name].registers), seed)
        for seed, name in enumerate("abc")
    }


def inputs_of(ins: MatrixMultiply) -> dict[str, npt.NDArray[Any]]:
    """Random codes of all inputs of one product."""
    registers = random_registers(ins)
    return {
        name: ins.matrix(name, array).reshape(-1, *ins.operands[name].shape)[0] for name, array in registers.items()
    }


# ---- what an instruction says of itself


def test_an_instruction_and_its_operands() -> None:
    """The attributes of the documented example."""
    ins = tcsim.instruction(HALF, arch="sm_90")
    assert ins.mnemonic == HALF
    assert repr(ins) == f'tcsim.instruction("{HALF}", arch="sm_90")'
    assert ins.shape == (16, 8, 16)
    assert ins.matrices == 1
    assert ins.arch.name == "sm_90"
    assert ins.targets == ("sm_90", "sm_90a")
    assert list(ins.operands) == ["d", "a", "b", "c"]
    a = ins.operands["a"]
    assert (a.format.name, a.format.bits, a.registers, a.lanes, a.shape) == ("f16", 16, 4, 32, (16, 16))
    assert {name: operand.registers for name, operand in ins.operands.items()} == {"d": 4, "a": 4, "b": 2, "c": 4}
    assert {name: operand.shape for name, operand in ins.operands.items()} == {
        "d": (16, 8), "a": (16, 16), "b": (16, 8), "c": (16, 8),
    }  # fmt: skip
    assert ins.operands["b"].layout(5, 1, 1) == (11, 1)
    assert ins.operands["b"].layout.where(11, 1) == (5, 1, 1)
    assert ins.lowering.kind == "native"
    assert len(ins.lowering.steps) == 1
    assert (ins.evidence.level, "H200" in ins.evidence.source) == ("measured", True)
    assert str(ins.evidence).startswith("measured: ")


def test_a_target_narrows_the_instruction_to_it() -> None:
    """An arch stands for all of its targets; a suffixed target for itself."""
    assert tcsim.instruction(HALF, arch="sm_90a").targets == ("sm_90a",)
    assert tcsim.instruction(HALF, arch="sm_90a").arch.name == "sm_90"
    assert tcsim.instruction(HALF, arch="sm_100").targets == ("sm_100", "sm_100f", "sm_100a")
    newer = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32"
    assert tcsim.instruction(newer, arch="sm_120").targets == ("sm_120f", "sm_120a")


def test_the_arch_decides_what_runs() -> None:
    """One spelling, different machines: steps, kind and evidence follow the arch."""
    kinds = {
        arch: tcsim.instruction(QUAD_PAIR, arch=arch).lowering.kind for arch in ("sm_70", "sm_75", "sm_80", "sm_90")
    }
    assert kinds == {"sm_70": "native", "sm_75": "native", "sm_80": "cuda cores", "sm_90": "cuda cores"}
    steps = {arch: len(tcsim.instruction(HALF, arch=arch).lowering.steps) for arch in ("sm_80", "sm_90")}
    assert steps == {"sm_80": 2, "sm_90": 1}
    a = np.zeros((16, 16), np.float16)
    a[0, :2], b = (2.0**-12, 2.0**-12), np.zeros((16, 8), np.float16)
    b[:2, 0] = 2.0**-12
    c = np.full((16, 8), 1.0, np.float32)
    one_bit = {arch: int(tcsim.instruction(HALF, arch=arch).matmul(a, b, c)[0, 0]) - 0x3F800000 for arch in steps}
    assert one_bit == {"sm_80": 1, "sm_90": 1}
    a[0, :4], b[:4, 0] = 2.0**-13, 2.0**-12  # four products of 2**-25, below the last bit that sm_80 keeps
    one_bit = {arch: int(tcsim.instruction(HALF, arch=arch).matmul(a, b, c)[0, 0]) - 0x3F800000 for arch in steps}
    assert one_bit == {"sm_80": 0, "sm_90": 1}


# ---- registers and codes


@pytest.mark.parametrize(("mnemonic", "arch"), REPRESENTATIVES)
def test_execute_and_matmul_agree(mnemonic: str, arch: str) -> None:
    """Registers in, registers out is codes in, codes out through the layouts, element by element."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    registers = random_registers(ins, (3,))
    for name, operand in ins.operands.items():  # without padding, which execute reads and codes do not have
        registers[name] = (
            ins.registers(name, ins.matrix(name, registers[name]))
            if name in registers and operand.format.bits < 8
            else registers.get(name)
        )
    registers = {name: array for name, array in registers.items() if array is not None}
    d = ins.execute(**registers)
    assert d.dtype == np.uint32
    assert d.shape == (3, 32, ins.operands["d"].registers)
    codes = {name: ins.matrix(name, array) for name, array in registers.items()}
    product = ins.matmul(codes["a"], codes["b"], codes["c"])
    assert product.dtype == ins.operands["d"].format.dtype
    inner = (4,) if ins.matrices == 4 else ()
    assert product.shape == (3, *inner, *ins.operands["d"].shape)
    assert (ins.matrix("d", d) == product).all()
    assert (ins.registers("d", product) == d).all()
    layout = ins.operands["d"].layout
    compared = 0
    for index, code in np.ndenumerate(product[1]):
        lane, register, slot = layout.where(*index[-2:], index[0] if inner else 0)
        word = int(d[1, lane, register]) >> slot * layout.element_bits
        if layout.element_bits == 64:
            word |= int(d[1, lane, register + 1]) << 32
        assert word & (1 << layout.element_bits) - 1 == int(code)
        compared += 1
    assert compared == product[1].size


@pytest.mark.parametrize(("mnemonic", "arch"), REPRESENTATIVES)
def test_registers_and_matrix_are_inverse(mnemonic: str, arch: str) -> None:
    """Every operand both ways; registers of padded elements come back without their padding."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    for name, operand in ins.operands.items():
        given = words((2, 3, operand.lanes, operand.registers))
        codes = ins.matrix(name, given)
        inner = (4, *operand.shape) if ins.matrices == 4 else operand.shape
        assert codes.shape == (2, 3, *inner)
        assert codes.dtype == operand.format.dtype
        back = ins.registers(name, codes)
        assert (ins.matrix(name, back) == codes).all()
        padding = {"e3m2": 0xC0C0C0C0, "e2m3": 0xC0C0C0C0, "e2m1": 0xC3C3C3C3}.get(operand.format.name, 0)
        assert (back == given & np.uint32(~padding & 0xFFFFFFFF)).all()


def test_f64_registers_are_two_words_low_first() -> None:
    """1.0 and the low and high words of 1 + 2**-52 of A and D."""
    ins = tcsim.instruction(DOUBLE, arch="sm_90")
    assert {name: operand.registers for name, operand in ins.operands.items()} == {"d": 8, "a": 8, "b": 4, "c": 8}
    assert {name: operand.count for name, operand in ins.operands.items()} == {"d": 4, "a": 4, "b": 2, "c": 4}
    a, b = np.zeros((16, 8)), np.zeros((8, 8))
    a[9, 5], b[5, 6] = 1 + 2.0**-52, 1.0
    registers = {"a": ins.registers("a", a), "b": ins.registers("b", b), "c": np.zeros((32, 8), np.uint32)}
    lane, register, slot = ins.operands["a"].layout.where(9, 5)
    assert (lane, register, slot) == (5, 6, 0)
    assert registers["a"][lane, register : register + 2].tolist() == [0x00000001, 0x3FF00000]
    assert ins.operands["a"].layout(lane, register, 0) == ins.operands["a"].layout(lane, register + 1, 0) == (9, 5)
    d = ins.execute(**registers)
    lane, register, _ = ins.operands["d"].layout.where(9, 6)
    assert d[lane, register : register + 2].tolist() == [0x00000001, 0x3FF00000]
    assert np.count_nonzero(d) == 2


def test_m8n8k4_does_four_products() -> None:
    """Each quad pair multiplies its own matrices; matmul multiplies one, and any number in a batch."""
    ins = tcsim.instruction(QUAD_PAIR, arch="sm_70")
    assert ins.matrices == 4
    a = np.zeros((4, 8, 4), np.float16)
    a[:, 0, 0] = [1, 2, 3, 4]
    b = np.ones((4, 4, 8), np.float16)
    b[2] = 0
    c = np.zeros((4, 8, 8), np.float32)
    d = ins.execute(a=ins.registers("a", a), b=ins.registers("b", b), c=ins.registers("c", c))
    assert tcsim.decode(ins.matrix("d", d), "f32")[:, 0].tolist() == [[1.0] * 8, [2.0] * 8, [0.0] * 8, [4.0] * 8]
    assert (ins.matmul(a, b, c) == ins.matrix("d", d)).all()
    assert (ins.matmul(a[3], b[3], c[3]) == ins.matrix("d", d)[3]).all()
    with pytest.raises(OperandError, match=re.escape("a has shape (8, 4); valid: (..., 4, 8, 4)")):
        ins.registers("a", a[0])


# ---- batches


@pytest.mark.parametrize(("mnemonic", "arch"), [(HALF, "sm_80"), (QUAD_PAIR, "sm_70"), (DOUBLE, "sm_90")])
def test_leading_dimensions_broadcast(mnemonic: str, arch: str) -> None:
    """Every combination of batch dimensions equals the products one at a time."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    shapes = {"a": (2, 1, 3), "b": (4, 1), "c": ()}
    registers = {
        name: words((*batch, 32, ins.operands[name].registers), seed)
        for seed, (name, batch) in enumerate(shapes.items())
    }
    d = ins.execute(**registers)
    assert d.shape == (2, 4, 3, 32, ins.operands["d"].registers)
    codes = {name: ins.matrix(name, array) for name, array in registers.items()}
    compared = 0
    for i, j, k in np.ndindex(2, 4, 3):
        one = ins.execute(registers["a"][i, 0, k], registers["b"][j, 0], registers["c"])
        assert (d[i, j, k] == one).all()
        assert (ins.matrix("d", one) == ins.matmul(codes["a"][i, 0, k], codes["b"][j, 0], codes["c"])).all()
        compared += 1
    assert compared == 24


def test_a_batch_larger_than_one_chunk() -> None:
    """Long batches are computed in parts: the seams do not show, and the inputs stay as they were."""
    ins = tcsim.instruction(HALF, arch="sm_80")
    registers = random_registers(ins, (200,))
    kept = {name: array.copy() for name, array in registers.items()}
    d = ins.execute(**registers)
    for start in range(0, 200, 7):
        part = {name: array[start : start + 7] for name, array in registers.items()}
        assert (ins.execute(**part) == d[start : start + 7]).all()
    codes = {name: ins.matrix(name, array) for name, array in registers.items()}
    assert (ins.matmul(**codes) == ins.matrix("d", d)).all()
    assert all((registers[name] == kept[name]).all() for name in "abc")


def test_views_of_any_order_in_memory() -> None:
    """Transposed, strided, reversed and read-only arrays are taken for what they say."""
    ins = tcsim.instruction(HALF, arch="sm_90")
    registers = random_registers(ins, (4,))
    want = ins.execute(**registers)
    odd = {name: np.asfortranarray(array)[::-1] for name, array in registers.items()}
    for array in odd.values():
        array.flags.writeable = False
    assert (ins.execute(**odd) == want[::-1]).all()
    codes = {name: ins.matrix(name, array) for name, array in registers.items()}
    transposed = codes["a"].swapaxes(-1, -2).copy().swapaxes(-1, -2)
    assert (ins.matmul(transposed, codes["b"], codes["c"]) == ins.matrix("d", want)).all()


@pytest.mark.parametrize(("mnemonic", "arch"), REPRESENTATIVES[:4])
def test_an_empty_batch_is_a_batch(mnemonic: str, arch: str) -> None:
    """No products: empty results of the right shape, from every method."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    registers = random_registers(ins, (0,))
    assert ins.execute(**registers).shape == (0, 32, ins.operands["d"].registers)
    inner = (4,) if ins.matrices == 4 else ()
    codes = {name: np.zeros((0, *inner, *ins.operands[name].shape), ins.operands[name].format.dtype) for name in "abc"}
    assert ins.matmul(**codes).shape == (0, *inner, *ins.operands["d"].shape)
    for name in "abc":
        assert ins.matrix(name, registers[name]).shape == codes[name].shape
        assert ins.registers(name, codes[name]).shape == registers[name].shape


# ---- float arrays


@pytest.mark.parametrize(
    ("mnemonic", "arch", "dtype", "result"),
    [
        (HALF, "sm_90", np.float16, np.float32),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80", np.float16, np.float16),
        ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_80", ml_dtypes.bfloat16, np.float32),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80", np.float32, np.float32),
        (DOUBLE, "sm_90", np.float64, np.float64),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89", ml_dtypes.float8_e4m3fn, np.float32),
        ("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e5m2.f16", "sm_90", ml_dtypes.float8_e5m2, np.float16),
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e3m2.f32",
            "sm_120",
            ml_dtypes.float6_e3m2fn,
            np.float32,
        ),
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m3.e2m3.f32",
            "sm_120",
            ml_dtypes.float6_e2m3fn,
            np.float32,
        ),
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f16.e2m1.e2m1.f16",
            "sm_120",
            ml_dtypes.float4_e2m1fn,
            np.float16,
        ),
        ("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", "sm_75", np.int8, np.int32),
        ("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", "sm_75", ml_dtypes.int4, np.int32),
        ("mma.sync.aligned.m8n8k32.row.col.s32.u4.u4.s32", "sm_75", ml_dtypes.uint4, np.int32),
        ("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "sm_75", np.bool_, np.int32),
    ],
)
def test_matmul_takes_arrays_of_the_very_type(mnemonic: str, arch: str, dtype: Any, result: Any) -> None:
    """NumPy and ml_dtypes arrays where a code array is; the exact small results are those of NumPy's matmul."""
    ins = tcsim.instruction(mnemonic, arch=arch)
    stream = np.random.Generator(np.random.PCG64(7))
    small = stream.integers(0, 2, 4096).astype(np.float64)
    m, n, k = ins.shape
    a, b, c = (
        np.resize(x, shape) for x, shape in zip((small, small[17:], small[40:]), ((m, k), (k, n), (m, n)), strict=True)
    )
    d = ins.matmul(a.astype(dtype), b.astype(dtype), c.astype(result))
    want = (a[:, :, None] != b[None]).sum(1) + c if dtype is np.bool_ else a @ b + c
    assert (tcsim.decode(d, ins.operands["d"].format) == want).all()
    assert (d.view(result) == want).all()
    codes = [tcsim.encode(x, ins.operands[name].format) for name, x in zip("abc", (a, b, c), strict=True)]
    assert (ins.matmul(*codes) == d).all()


# ---- wrong use


def test_wrong_arrays_are_told_what_would_be_valid() -> None:
    """Every error quotes the call and the operand, and names the valid shape or type."""
    ins = tcsim.instruction(HALF, arch="sm_90")

    def zeros(dtype: Any, *shape: int) -> npt.NDArray[Any]:
        return np.zeros(shape, dtype)

    u16, u32 = np.uint16, np.uint32
    good = {"a": zeros(u32, 32, 4), "b": zeros(u32, 32, 2), "c": zeros(u32, 32, 4)}
    codes = {"a": zeros(u16, 16, 16), "b": zeros(u16, 16, 8), "c": zeros(u32, 16, 8)}
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("execute", {"a": zeros(u32, 32, 2)}, "a is uint32 (32, 2); valid: uint32 (..., 32, 4)"),
        ("execute", {"b": zeros(u32, 64, 2)}, "b is uint32 (64, 2); valid: uint32 (..., 32, 2)"),
        ("execute", {"c": zeros(np.int64, 32, 4)}, "c is int64 (32, 4); valid: uint32 (..., 32, 4)"),
        ("execute", {"c": zeros(np.float32, 32, 4)}, "c is float32 (32, 4); valid: uint32 (..., 32, 4)"),
        ("execute", {"a": zeros(u32, 4)}, "a is uint32 (4,); valid: uint32 (..., 32, 4)"),
        ("execute", {"a": [[0] * 4] * 32}, "a is int64 (32, 4); valid: uint32 (..., 32, 4)"),
        (
            "execute",
            {"a": zeros(u32, 2, 32, 4), "b": zeros(u32, 3, 32, 2)},
            "leading dimensions [(2,), (3,), ()] do not broadcast",
        ),
        ("matmul", {"a": zeros(u16, 16, 8)}, "a has shape (16, 8); valid: (..., 16, 16)"),
        ("matmul", {"b": zeros(u16, 8, 16)}, "b has shape (8, 16); valid: (..., 16, 8)"),
        ("matmul", {"c": zeros(u32, 8)}, "c has shape (8,); valid: (..., 16, 8)"),
        (
            "matmul",
            {"a": zeros(np.float32, 16, 16)},
            "a: dtype float32 does not hold codes of f16; valid: uint16, float16",
        ),
        (
            "matmul",
            {"c": zeros(np.float64, 16, 8)},
            "c: dtype float64 does not hold codes of f32; valid: uint32, float32",
        ),
        (
            "matmul",
            {"a": zeros(u16, 2, 16, 16), "c": zeros(u32, 3, 16, 8)},
            "leading dimensions [(2,), (), (3,)] do not broadcast",
        ),
    ]
    for method, changed, complaint in wrong:
        with pytest.raises(TcsimError) as caught:
            getattr(ins, method)(**{**(good if method == "execute" else codes), **changed})
        assert str(caught.value).startswith(f'tcsim.instruction("{HALF}", arch="sm_90").{method}: {complaint}')
        assert isinstance(caught.value, FormatError if "dtype" in complaint else OperandError)
    ins.execute(**good)
    ins.matmul(**codes)


def test_wrong_arrays_of_the_conversions_are_told_what_would_be_valid() -> None:
    """The same for `matrix` and `registers`."""
    ins = tcsim.instruction(HALF, arch="sm_90")
    call = re.escape(f'tcsim.instruction("{HALF}", arch="sm_90").')
    with pytest.raises(OperandError, match=call + r"matrix: a is uint32 \(32, 3\); valid: uint32 \(\.\.\., 32, 4\)"):
        ins.matrix("a", np.zeros((32, 3), np.uint32))
    with pytest.raises(OperandError, match=call + r"registers: b has shape \(8, 16\); valid: \(\.\.\., 16, 8\)"):
        ins.registers("b", np.zeros((8, 16), np.uint16))
    with pytest.raises(FormatError, match=call + r"registers: b: dtype uint8 does not hold codes of f16"):
        ins.registers("b", np.zeros((16, 8), np.uint8))


def test_codes_with_bits_outside_the_format_are_refused() -> None:
    """Nothing is masked on the way in."""
    ins = tcsim.instruction("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32", arch="sm_75")
    a, b, c = np.zeros((8, 32), np.uint8), np.zeros((32, 8), np.uint8), np.zeros((8, 8), np.uint32)
    ins.matmul(a, b, c)
    a[3, 3] = 0x10
    with pytest.raises(FormatError, match=r"\.matmul: a: 0x10 is not a code of s4"):
        ins.matmul(a, b, c)


# ---- the package


def test_importing_tcsim_imports_no_gpu_and_no_test_library() -> None:
    """The model alone: NumPy and ml_dtypes, and of this tree nothing but tcsim."""
    program = (
        "import sys, tcsim, tcsim.trace, tcsim.catalog; tcsim.catalog.rows();"
        "print(' '.join(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    root = Path(tcsim.__file__).parent.parent
    answer = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    loaded = set(answer.stdout.split())
    assert {"tcsim", "numpy", "ml_dtypes"} <= loaded
    assert not loaded & {"cuda", "pytest", "_pytest", "hypothesis", "hwkernels", "conformance", "pynvml", "torch"}


def test_the_public_names() -> None:
    """What `import tcsim` offers, and that every exception is a ValueError."""
    for name in tcsim.__all__:
        assert getattr(tcsim, name) is not None
    documented = {"instruction", "encode", "decode", "Instruction", "FormatError", "InstructionError", "OperandError"}
    assert documented <= set(tcsim.__all__)
    for error in (tcsim.FormatError, tcsim.InstructionError, tcsim.OperandError, tcsim.TargetError):
        assert issubclass(error, tcsim.TcsimError)
        assert issubclass(error, ValueError)
    assert len(catalog.rows()) >= 172


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_m8n8k4_f16_adds_c_to_the_first_pair(arch: str) -> None:
    """After Turing d = f16((c + p01) + p23) in f32: the other order loses what p23 adds to a sum that cancels."""
    mma = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", arch=arch)
    small, c = 2.0**-15, np.full((8, 8), -2048, np.float16)
    a, b = np.zeros((8, 4), np.float16), np.zeros((4, 8), np.float16)
    a[:, 0], b[0] = 64, 32  # p01 = 2048
    a[:, 2], b[2] = 2.0**-7, 2.0**-8  # p23, which f32 cannot add to 2048
    assert (tcsim.decode(mma.matmul(a, b, c), "f16") == small).all()
    assert (tcsim.decode(mma.matmul(a[:, [2, 3, 0, 1]], b[[2, 3, 0, 1]], c), "f16") == 0).all()


def test_f64_passes_a_nan_on() -> None:
    """Of several NaN b's comes out, else c's, else a's, quietened (recorded on an H200); a later step's b wins."""
    mma = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", arch="sm_90")
    a, b, c = np.ones((8, 4)), np.ones((4, 8)), np.ones((8, 8))
    words = [x.view(np.uint64) for x in (a, b, c)]
    signalling, quiet = 0x7FF0 << 48, 0x7FF8 << 48
    words[0][0, 0], words[1][0, 0], words[2][0, 0] = signalling + 1, signalling + 2, signalling + 3  # a, b, c
    words[0][1, 0], words[2][1, 1] = signalling + 4, signalling + 5  # a and c
    words[0][2, 0] = signalling + 6  # a alone
    words[1][3, 2] = signalling + 7  # b of the last step
    d = mma.matmul(a, b, c)
    found = {(row, column): int(d[row, column]) - quiet for row, column in ((0, 0), (1, 1), (2, 1), (0, 2), (3, 2))}
    assert found == {(0, 0): 2, (1, 1): 5, (2, 1): 6, (0, 2): 7, (3, 2): 7}
