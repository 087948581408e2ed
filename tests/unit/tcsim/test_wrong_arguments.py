"""Whether a wrong argument of the public API gives a tcsim error that quotes it, and harmless spellings are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.core.errors import TcsimError, nearest
from tcsim.layouts.algebra import composition
from tcsim.model.instruction import CallError
from tcsim.model.row import MissingOperandError

MMA = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch="sm_90")
WGMMA = tcsim.instruction("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", arch="sm_90")
TCGEN05 = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
A, B, C = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)
LAYOUT = MMA.operands["a"].layout
DESCRIPTOR = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=256)
FIELDS: dict[str, Any] = {"kind": "f16", "a_format": "f16", "m": 128, "n": 64}
MAP = tcsim.TensorMap("FLOAT16", (64, 32), (128,), (64, 8), (1, 1))
MEMORY, SMEM = np.zeros(4096, np.uint8), np.zeros(8192, np.uint8)
BATCHED = np.array([True, False])


def memory() -> tcsim.TensorMemory:
    """A Tensor Memory with 32 columns."""
    tmem = tcsim.TensorMemory()
    tmem.alloc(32)
    return tmem


def wgmma(**changed: Any) -> Any:
    """One wgmma whose operands are right but for those given."""
    right = {"smem": SMEM, "a": DESCRIPTOR.encode(), "b": DESCRIPTOR.encode(), "c": np.zeros((128, 8), np.uint32)}
    return WGMMA.execute(**{**right, **changed})


WRONG: list[tuple[str, Callable[[], Any], str]] = [
    # --- what is asked for
    ("mnemonic of another type", lambda: tcsim.instruction(["a"], arch="sm_90"), "no such instruction"),  # type: ignore[arg-type]
    ("arch of another type", lambda: tcsim.instruction(MMA.mnemonic, arch=["a"]), "no arch or target"),  # type: ignore[arg-type]
    ("format of another type", lambda: tcsim.encode([1.0], ["f16"]), "no number format"),  # type: ignore[arg-type]
    ("operand that is none", lambda: WGMMA.operands["b"], "no register operand 'b'; valid: d, a, c"),
    ("operand of none", lambda: TCGEN05.operands["a"], "no register operand 'a'; it has none"),
    # --- calls
    ("unknown keyword", lambda: MMA.matmul(A, B, C, metadata=A), r"matmul: .*'metadata'; valid: a, b, c"),
    ("missing argument", lambda: MMA.execute(a=A, b=B), r"execute: .*'c'; valid: a, b, c"),
    ("too many arguments", lambda: MMA.matmul(A, B, C, C), "matmul: too many"),
    ("ragged codes", lambda: MMA.matmul([[1], [1, 2]], B, C), "a: its rows have different lengths"),
    ("ragged values", lambda: tcsim.encode([[1], [1, 2]], "f16"), "its rows have different lengths"),
    # --- layouts and swizzles
    ("fractional row", lambda: LAYOUT.where(1.5, 3), "row is float64"),
    ("row that is no number", lambda: LAYOUT.where("x", 3), "row is <U1"),
    ("no row", lambda: LAYOUT.where(None, 3), "row is object"),
    ("rows and columns apart", lambda: LAYOUT.where(np.arange(3), np.arange(4)), "do not broadcast"),
    ("fractional lane", lambda: LAYOUT(0.5, 0, 0), "lane is float64"),
    ("lanes and slots apart", lambda: LAYOUT(np.arange(3), 0, np.zeros(2, int)), "do not broadcast"),
    ("shape of text", lambda: tcsim.Layout("x", 1), "shape='x'; valid: an integer"),  # type: ignore[arg-type]
    ("fractional shape", lambda: tcsim.Layout((4.0, 8), (1, 4)), "shape=4.0"),  # type: ignore[arg-type]
    ("coordinate past the end", lambda: tcsim.Layout((4, 8))(32), "no coordinate 32; valid are 0 to 31"),
    ("negative coordinate", lambda: tcsim.Layout((4, 8))(-1), "no coordinate -1"),
    ("coordinate past a mode", lambda: tcsim.Layout((4, 8))(4, 0), "no coordinate 4; valid are 0 to 3"),
    ("coordinate of another rank", lambda: tcsim.Layout((4, 8))(1, 2, 3), "has another rank"),
    ("fractional coordinate", lambda: tcsim.Layout((4, 8))(1.5), "coordinate is float64"),
    ("fractional swizzle", lambda: tcsim.Swizzle(3.0, 4, 3), "bits=3.0; valid: an integer"),  # type: ignore[arg-type]
    ("fractional address", lambda: tcsim.Swizzle(3, 4, 3)(1.5), "addresses are float64"),
    # --- descriptors
    ("descriptor of text", lambda: tcsim.MatrixDescriptor.decode("0x5"), "value='0x5'; valid: an integer"),  # type: ignore[arg-type]
    ("fractional descriptor", lambda: tcsim.MatrixDescriptor.decode(1.0), "value=1.0"),  # type: ignore[arg-type]
    ("field of text", lambda: tcsim.MatrixDescriptor(start_address="x").encode(), "start_address='x'"),  # type: ignore[arg-type]
    ("no rows", lambda: DESCRIPTOR.addresses(0, 16, "f16"), "rows=0; valid: at least 1"),
    ("fractional rows", lambda: DESCRIPTOR.addresses(64.5, 16, "f16"), "rows=64.5"),  # type: ignore[arg-type]
    ("check of no k", lambda: DESCRIPTOR.check(64, 0, "f16"), "k=0; valid: at least 1"),
    ("fractional tile", lambda: DESCRIPTOR.for_tile(64.0, 64, "f16"), "rows=64.0; valid: an integer"),  # type: ignore[arg-type]
    ("idesc of text", lambda: tcsim.InstructionDescriptor.decode("x", kind="f16"), "value='x'"),  # type: ignore[arg-type]
    ("idesc without a kind", lambda: tcsim.InstructionDescriptor.decode(0x8400410), "no kind::; .*all: f16, tf32"),
    ("fractional M", lambda: tcsim.InstructionDescriptor(**{**FIELDS, "m": 128.0}), "m=128.0; valid: an integer"),
    ("flag of text", lambda: tcsim.InstructionDescriptor(**{**FIELDS, "sparse": "x"}), "sparse='x'; valid: False, True"),
    ("flag of 2", lambda: tcsim.InstructionDescriptor(**{**FIELDS, "negate_a": 2}), "negate_a=2"),
    # --- wgmma
    ("scale_d of a batch", lambda: wgmma(scale_d=BATCHED), "scale_d=.*one for all of a batch"),
    ("scale_d of 2", lambda: wgmma(scale_d=2), "scale_d=2; valid: False, True"),
    ("scale_a of a batch", lambda: wgmma(scale_a=np.array([1, -1])), "scale_a=.*valid: 1, -1"),
    ("no accumulator", lambda: wgmma(c=None), "c is object"),
    # --- tensor maps
    ("no reduction", lambda: MAP.reduce(None, MEMORY, (0, 0), SMEM), "no reduction"),  # type: ignore[arg-type]
    ("empty reduction", lambda: MAP.reduce("", MEMORY, (0, 0), SMEM), "no reduction ''"),
    ("memory for a reduction", lambda: MAP.reduce(MEMORY, (0, 0), "add", SMEM), "no reduction"),  # type: ignore[arg-type]
    ("address of text", lambda: MAP.encode("x"), "global address='x'; valid: an integer"),  # type: ignore[arg-type]
    ("map of text", lambda: tcsim.TensorMap.decode("00" * 128), "a str; valid: 64 or 128 bytes"),  # type: ignore[arg-type]
    ("map of a few bytes", lambda: tcsim.TensorMap.decode(b"\0" * 5), "5 bytes of bytes; valid: 64 or 128"),
    # --- Tensor Memory
    ("lane of text", lambda: memory().read("x", 0), "lanes is <U1"),
    ("fractional column", lambda: memory().read(0, 0.5), "columns is float64"),
    ("lanes and columns apart", lambda: memory().read([0, 1], [0, 1, 2]), "do not broadcast"),
    ("fractional alloc", lambda: memory().alloc(32.0), "columns=32.0; valid: an integer"),  # type: ignore[arg-type]
    ("dealloc of text", lambda: memory().dealloc("x", 32), "address='x'"),  # type: ignore[arg-type]
    ("batch that is no tuple", lambda: tcsim.TensorMemory(3), "batch=3.*a tuple of sizes"),  # type: ignore[arg-type]
    # --- mbarriers
    ("count of text", lambda: tcsim.MBarrier("x"), "count='x'; valid: an integer"),  # type: ignore[arg-type]
    ("fractional arrivals", lambda: tcsim.MBarrier(2).arrive(1.0), "count=1.0"),  # type: ignore[arg-type]
    ("fractional bytes", lambda: tcsim.MBarrier(2).expect_tx(1.5), "bytes=1.5"),  # type: ignore[arg-type]
    ("bytes of text", lambda: tcsim.MBarrier(2).complete_tx("x"), "bytes='x'"),  # type: ignore[arg-type]
    ("state that is a parity", lambda: tcsim.MBarrier(2).test_wait(0), "test_wait_parity"),  # type: ignore[arg-type]
    ("parity of text", lambda: tcsim.MBarrier(2).test_wait_parity("x"), "parity='x'"),  # type: ignore[arg-type]
    ("object of text", lambda: tcsim.MBarrier.decode("x", arch="sm_90"), "value='x'"),  # type: ignore[arg-type]
    # --- names, numbers and arrays of another kind
    ("ragged registers", lambda: MMA.execute([[1], [1, 2]], B, C), "execute: a: its rows have different lengths"),
    ("ragged shared memory", lambda: wgmma(smem=[[1], [1, 2]]), "smem: its rows have different lengths"),
    ("ragged memory", lambda: MAP.load([[1], [1, 2]], (0, 0), SMEM), "memory: its rows have different lengths"),
    ("ragged numbers", lambda: tcsim.quantize([[1], [1, 2]], "e4m3"), "x: its rows have different lengths"),
    ("names of data types", lambda: tcsim.TensorMap(["FLOAT16"], (64,), (), (64,)), "data_type=.*nearest"),  # type: ignore[arg-type]
    ("names of swizzles", lambda: tcsim.MatrixDescriptor(swizzle=["128B"]).encode(), "no swizzle"),  # type: ignore[arg-type]
    ("names of majors", lambda: DESCRIPTOR.addresses(8, 16, "f16", np.array(["K", "MN"])), "valid are K, MN"),  # type: ignore[arg-type]
    ("more rows than memory", lambda: DESCRIPTOR.addresses(10**30, 16, "f16"), "at most"),
    ("more elements than memory", lambda: DESCRIPTOR.addresses(1 << 11, 1 << 11, "f16"), "at most 2097152"),
    ("memory of text", lambda: DESCRIPTOR.check(64, 16, "f16", memory="x"), "memory='x'"),  # type: ignore[arg-type]
    ("kinds", lambda: tcsim.InstructionDescriptor(["f16"], 64, 16), "no kind::"),  # type: ignore[arg-type]
    ("formats", lambda: tcsim.InstructionDescriptor("f16", 64, 16, ["f32"]), "valid: the name of a format"),  # type: ignore[arg-type]
    ("layouts of barriers", lambda: tcsim.MBarrier(1, ["v0"]), "no such layout"),  # type: ignore[arg-type]
    ("axis of text", lambda: tcsim.quantize_mx(np.zeros((2, 32)), "e4m3", axis="x"), "axis='x'"),  # type: ignore[arg-type]
    ("several blocks", lambda: tcsim.quantize_mx(np.zeros((2, 32)), "e4m3", block=BATCHED), "block="),  # type: ignore[arg-type]
    ("several widths", lambda: tcsim.bank_conflicts(np.arange(32), BATCHED), "width="),  # type: ignore[arg-type]
    ("several roundings", lambda: tcsim.encode([1.0], "f16", rounding=["rne"]), "no rounding"),  # type: ignore[arg-type]
    ("cta of text", lambda: memory().read(0, 0, cta="x"), "CTA x; valid: 0"),  # type: ignore[arg-type]
    ("pairs of text", lambda: tcsim.TensorMemory(ctas="x"), "valid: ctas 1, 2"),  # type: ignore[arg-type]
    # --- whole matrices
    ("k_order of text", lambda: tcsim.gemm(A, B, C, instruction=MMA, k_order="x"), "k_order is <U1"),  # type: ignore[arg-type]
    ("fractional k_order", lambda: tcsim.gemm(A, B, C, instruction=MMA, k_order=[0.0]), "k_order is float64"),  # type: ignore[list-item]
    ("rounding of another name", lambda: tcsim.encode([1.0], "f16", rounding="nearest"), "no rounding 'nearest'; valid: rne"),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("call", "complaint"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_argument(call: Callable[[], Any], complaint: str) -> None:
    """The error is tcsim's and says what was given; NumPy's and Python's own never come through."""
    with pytest.raises(TcsimError, match=complaint):
        call()


def test_errors_of_python_that_callers_may_catch() -> None:
    """What Python calls a TypeError or a KeyError stays one, and its text is not quoted."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'") as call:
        MMA.execute(a=A, b=B, c=C, foo=1)
    assert isinstance(call.value, CallError)
    with pytest.raises(KeyError) as missing:
        MMA.operands["e"]
    assert isinstance(missing.value, MissingOperandError)
    assert str(missing.value) == f"{MMA.mnemonic} has no register operand 'e'; valid: d, a, b, c"
    assert "e" not in MMA.operands
    assert MMA.operands.get("e") is None


def test_a_type_error_inside_stays_as_it_is() -> None:
    """Only wrong calls are renamed: an object whose own conversion fails raises its own error."""

    class Stubborn:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise TypeError("no array for you")

    with pytest.raises(TypeError, match="no array for you") as inside:
        MMA.matmul(Stubborn(), B, C)
    assert not isinstance(inside.value, CallError)


# --- what is taken


def test_arch_by_position() -> None:
    """`tcsim.instruction(mnemonic, arch)` and with a keyword are one call."""
    assert repr(tcsim.instruction(MMA.mnemonic, "sm_90")) == repr(MMA)


def test_descriptors_as_objects() -> None:
    """A MatrixDescriptor goes where its 64 bits go: to wgmma, tcgen05.mma and tcgen05.cp."""
    random = np.random.default_rng(0)
    smem = random.standard_normal(4096).astype(np.float16).view(np.uint8)
    expected = wgmma(smem=smem)
    assert len(np.unique(expected)) > 500
    assert (wgmma(smem=smem, a=DESCRIPTOR, b=DESCRIPTOR) == expected).all()

    tile = tcsim.MatrixDescriptor(leading_byte_offset=128, stride_byte_offset=256, arch="sm_100")
    idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=16)
    words = []
    for one in (tile, tile.encode()):
        after = TCGEN05.execute(memory(), smem, d=0, a=one, b=one, idesc=idesc, enable_input_d=False)
        words.append(after.read(np.arange(16)[:, None], np.arange(16)))
    assert (words[0] == words[1]).all()
    assert len(np.unique(words[0])) > 100

    copy = tcsim.instruction("tcgen05.cp.cta_group::1.128x256b", arch="sm_100a")
    copied = [copy.execute(memory(), 0, smem, one).words for one in (tile, tile.encode())]
    assert (copied[0] == copied[1]).all()
    assert copied[0].any()


def test_accumulator_that_is_not_read() -> None:
    """With scale_d=False c may be None, and the result is that of any c."""
    random = np.random.default_rng(1)
    smem = random.standard_normal(4096).astype(np.float16).view(np.uint8)
    ones = np.full((128, 8), 0x3F800000, np.uint32)
    expected = wgmma(smem=smem, c=ones, scale_d=False)
    assert (wgmma(smem=smem, c=None, scale_d=False) == expected).all()
    assert (wgmma(smem=smem, c=ones) != expected).any()


def test_signed_e4m3_scales() -> None:
    """An array of float8_e4m3fn is taken for ue4m3 by tcgen05.mma as by mma.sync, its top bit ignored."""
    mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", arch="sm_100a")
    idesc = tcsim.InstructionDescriptor(kind="mxf4nvf4", m=128, n=16, scale_format="ue4m3")
    random = np.random.default_rng(2)
    a, b = random.integers(0, 16, (128, 64), np.uint8), random.integers(0, 16, (64, 16), np.uint8)
    scale_a, scale_b = random.integers(0, 0x7F, (128, 4), np.uint8), random.integers(0x80, 0xFF, (4, 16), np.uint8)
    c = np.zeros((128, 16), np.float32)
    d = mma.matmul(a, b, c, idesc=idesc, scale_a=scale_a, scale_b=scale_b)
    signed = {"scale_a": scale_a.view(ml_dtypes.float8_e4m3fn), "scale_b": scale_b.view(ml_dtypes.float8_e4m3fn)}
    assert len(np.unique(d)) > 500
    assert (mma.matmul(a, b, c, idesc=idesc, **signed) == d).all()
    assert (mma.matmul(a, b, c, idesc=idesc, scale_a=scale_a, scale_b=scale_b & 0x7F) == d).all()


def test_tensor_map_from_an_array() -> None:
    """The 128 bytes may come as anything that has a buffer: a NumPy array, perhaps of words."""
    raw = MAP.encode(0x7F0000000000)
    for given in (raw, bytearray(raw), np.frombuffer(raw, np.uint8), np.frombuffer(raw, np.uint64)):
        assert tcsim.TensorMap.decode(given) == MAP


def test_empty_batches() -> None:
    """A batch of no warps, tiles or copies gives a result with none."""
    none = np.zeros(0, np.int64)
    scaled = tcsim.instruction(
        "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0", "sm_120a"
    )
    words = np.zeros((0, 32), np.uint32)
    registers = [np.zeros((0, 32, count), np.uint32) for count in (4, 2, 4)]
    assert scaled.execute(*registers, scale_a=words, scale_b=words, byte_id_a=none).shape == (0, 32, 4)
    load = tcsim.instruction("wmma.load.a.sync.aligned.row.m16n16k16.f16", "sm_90")
    store = tcsim.instruction("wmma.store.d.sync.aligned.row.m16n16k16.f16", "sm_90")
    assert load.execute(memory=SMEM, address=none, stride=16).shape == (0, 32, 8)
    assert store.execute(SMEM, none, np.zeros((0, 32, 4), np.uint32), stride=16).shape == (0, 8192)
    assert load.matrix(np.zeros((0, 32, 8), np.uint32)).shape == (0, 16, 16)
    assert load.registers(np.zeros((0, 16, 16), np.uint16)).shape == (0, 32, 8)
    assert MAP.load(MEMORY, np.zeros((0, 2), np.int64), smem=SMEM).shape == (0, 8192)
    assert MAP.load(MEMORY, (0, 0), smem=SMEM, address=none).shape == (0, 8192)
    assert MAP.store(MEMORY, (0, 0), smem=SMEM, address=none).shape == (0, 4096)
    descriptors = np.zeros(0, np.uint64)
    assert wgmma(a=descriptors).shape == (0, 128, 8)
    idesc = tcsim.InstructionDescriptor(kind="f16", a_format="f16", m=64, n=16)
    after = TCGEN05.execute(memory(), SMEM, d=0, a=descriptors, b=descriptors, idesc=idesc, enable_input_d=False)
    assert after.batch == (0,)
    copy = tcsim.instruction("tcgen05.cp.cta_group::1.128x256b", "sm_100a")
    assert copy.execute(memory(), 0, SMEM, descriptors).batch == (0,)


def test_empty_gemm() -> None:
    """No rows give no result; no K gives c."""
    c = np.arange(128, dtype=np.float32).reshape(16, 8)
    assert tcsim.gemm(A[:0], B, instruction=MMA).shape == (0, 8)
    assert tcsim.gemm(A, B[:, :0], instruction=MMA).shape == (16, 0)
    assert (tcsim.gemm(A[:, :0], B[:0], c, instruction=MMA) == c.view(np.uint32)).all()
    half = tcsim.instruction("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", arch="sm_70")
    with pytest.raises(tcsim.OperandError, match="cannot be its accumulator"):
        tcsim.gemm(A[:, :0], B[:0], c.astype(np.float16), instruction=half)


def test_rn_is_rne() -> None:
    """PTX's name of rounding to nearest even means just that, for encode and quantize."""
    x = np.random.default_rng(3).standard_normal(1000)
    for convert in (tcsim.encode, tcsim.quantize):
        assert (convert(x, "e4m3", rounding="rn") == convert(x, "e4m3", rounding="rne")).all()
        assert (convert(x, "e4m3", rounding="rn") != convert(x, "e4m3", rounding="rz")).any()


def test_codes_as_python_integers() -> None:
    """`decode` takes Python's integers for codes, of every format, and refuses what is no code or has another width."""
    count = 0
    for name, format in tcsim.FORMATS.items():
        codes = [0, 1, format.code_mask]
        arrays = np.array(codes, format.dtype)
        assert np.array_equal(tcsim.decode(codes, name), tcsim.decode(arrays, name), equal_nan=True)
        assert np.array_equal(tcsim.decode(codes[1], name), tcsim.decode(arrays[1], name), equal_nan=True)
        for wrong in ([-1], [1 << format.container_bits], np.array([1], np.int64), [np.int64(1)], [None]):
            with pytest.raises(TcsimError):
                tcsim.decode(wrong, name)
            count += 1
    assert count == 5 * len(tcsim.FORMATS)
    assert tcsim.decode([], "f16").shape == (0,)
    assert tcsim.decode([1.5], "f64").tolist() == [1.5]  # NumPy makes float64 of it, whose bits are codes of f64


def test_layouts_as_users_write_them() -> None:
    """Compact strides by default, lists and NumPy's integers as shapes, coordinates with an entry for each mode."""
    compact = tcsim.Layout((4, (2, 3)))
    assert str(compact) == "(4,(2,3)):(1,(4,8))"
    assert tcsim.Layout([4, [2, 3]], [1, [4, 8]]) == compact  # type: ignore[arg-type]
    assert tcsim.Layout(np.array([4, 6])) == tcsim.Layout((np.int64(4), 6), (1, np.int32(4)))  # type: ignore[arg-type]
    assert str(composition(tcsim.Layout(np.array([4, 6])), 8)) == str(composition(tcsim.Layout((4, 6), (1, 4)), 8))  # type: ignore[arg-type]
    strided = tcsim.Layout((4, (2, 3)), (6, (1, 2)))
    count = 0
    for linear in range(strided.size):
        i, rest = linear % 4, linear // 4
        j, k = rest % 2, rest // 2
        expected = 6 * i + j + 2 * k
        assert int(strided(linear)) == int(strided(i, (j, k))) == int(strided(i, rest)) == expected
        assert int(strided((i, (j, k)))) == expected
        count += 1
    assert count == 24
    rows, columns = np.arange(4)[:, None], np.arange(6)
    assert (strided(rows, columns) == strided(rows + 4 * columns)).all()


# --- how fast a wrong name is answered


def test_nearest_of_many() -> None:
    """Of more names than are compared letter by letter, those with most dotted parts or letter pairs in common are."""
    names = [
        f"cp.reduce.async.{op}.{dim}d.x{count}"
        for op in ("add", "min", "xor")
        for dim in range(9)
        for count in range(9)
    ]
    assert len(names) > 200
    assert nearest("cp.reduce.async.min.4d.x3.L2", names, 1) == ["cp.reduce.async.min.4d.x3"]
    assert nearest("cp.reduce.async.mim.4d.x3", names, 1)[0].endswith(".4d.x3")
    assert nearest("reducemin4", [name.replace(".", "") for name in names], 1)[0].startswith("cpreduceasyncmin4")
    assert nearest("", names, 2) and len(nearest("zzz", names, 3)) == 3
