"""Wrong use of tcgen05.mma: each is a named error that quotes what was asked and says what would be valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.core.errors import InstructionError, OperandError, TargetError
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.memory.tensor_memory import AllocationError, TensorMemory, UnallocatedError, UnwrittenError

PLAIN = "tcgen05.mma.cta_group::1.kind::f16"
SCALED = "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16"
SPARSE = "tcgen05.mma.sp.cta_group::1.kind::f16"
STATIONARY = "tcgen05.mma.ws.cta_group::1.kind::f16"
IDESC = InstructionDescriptor(kind="f16", a_format="f16", m=128, n=16)
MX = InstructionDescriptor(kind="mxf4nvf4", m=128, n=16, scale_format="ue4m3")
A, B, C = np.zeros((128, 16), np.uint16), np.zeros((16, 16), np.uint16), np.zeros((128, 16), np.uint32)
A4, B4 = np.zeros((128, 64), np.uint8), np.zeros((64, 16), np.uint8)
ONE_A, ONE_B = np.full((128, 4), 0x38, np.uint8), np.full((4, 16), 0x38, np.uint8)
TI16 = "tcgen05.mma.cta_group::1.kind::ti16"
TI = InstructionDescriptor(kind="ti16", m=128, n=16, arch="sm_107")
LOOKUP = "tcgen05.mma.cta_group::1.kind::f8f6f4.decompress::lut::b"
LUT = InstructionDescriptor(kind="f8f6f4", a_format="e4m3", m=128, n=16, k=64, arch="sm_107")
A8, B8, TABLES = A4, B4, np.zeros((2, 8), np.uint8)
SPARSE4 = "tcgen05.mma.sp.cta_group::1.kind::mxf4.block_scale"
UNPAIRED = InstructionDescriptor(kind="mxf4", m=128, n=16, sparse=True, arch="sm_107")
DESC = np.uint64(tcsim.MatrixDescriptor(stride_byte_offset=128, leading_byte_offset=2048, arch="sm_100").encode())
SMEM = np.zeros(1 << 16, np.uint8)


def get(mnemonic: str, arch: str = "sm_100") -> Any:
    """An instruction."""
    return tcsim.instruction(mnemonic, arch=arch)


def written(ctas: int = 1) -> TensorMemory:
    """A memory in which every cell is allocated and written."""
    memory = TensorMemory.allocated(ctas=ctas)
    memory.written[...] = True
    return memory


def run(
    mnemonic: str, tmem: TensorMemory | None = None, smem: Any = SMEM, arch: str = "sm_100", **changed: Any
) -> TensorMemory:
    """The plainest call of an instruction, with some operands changed or left out (None)."""
    operands = {"d": 0, "a": DESC, "b": DESC, "idesc": IDESC} | changed
    return get(mnemonic, arch).execute(
        written() if tmem is None else tmem, smem, **{name: x for name, x in operands.items() if x is not None}
    )


def allocated(columns: int) -> TensorMemory:
    """A memory of which some columns are allocated."""
    memory = TensorMemory()
    memory.alloc(columns)
    memory.written[...] = True
    return memory


def fresh() -> TensorMemory:
    """All of it allocated, nothing written."""
    return TensorMemory.allocated()


def of_ones() -> TensorMemory:
    """Every cell written, with codes that kind::ti16 does not have."""
    memory = written()
    memory.words[...] = 0x7FFF7FFF
    return memory


def after_pair() -> TensorMemory:
    """A memory that an instruction of .cta_group::2 used."""
    memory = written(2)
    memory.use_cta_group(2, "tcgen05.alloc")
    return memory


ERRORS: list[tuple[str, type[Exception], Callable[[], Any], str]] = [
    ("unallocated D", UnallocatedError, lambda: run(PLAIN, allocated(32), d=24), r"d: .*lane 0, column 32.*not allocated"),
    ("D never written", UnwrittenError, lambda: run(PLAIN, fresh()), r"d: read of lane 0, column 0: nothing has written"),
    ("A never written", UnwrittenError, lambda: run(PLAIN, fresh(), a=64, enable_input_d=False), r"a: read of lane 0, column 64"),
    ("scales never written", UnwrittenError,
     lambda: run(SCALED, fresh(), idesc=MX, scale_a=64, scale_b=80, enable_input_d=False), r"scale_a: read"),
    ("no such address", UnallocatedError, lambda: run(PLAIN, d=512), r"column 512"),
    ("N = 24 with M = 128 of a pair", OperandError,
     lambda: InstructionDescriptor(kind="f16", a_format="f16", m=128, n=24).check(cta_group=2),
     r"N = 24 with M = 128 must be a multiple of 16"),
    ("N = 24 in execute with A in Tensor Memory", OperandError,
     lambda: run(PLAIN, a=64, idesc=IDESC.encode() & ~(63 << 17) | 3 << 17),
     r"N = 24 with M = 128 and A in Tensor Memory must be a multiple of 16"),
    ("mixed cta_group", AllocationError, lambda: run(PLAIN, after_pair()), r"cta_group::1 after .cta_group::2"),
    ("one CTA for a pair", OperandError, lambda: run(PLAIN.replace("::1", "::2"), idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=256, n=32)), r"cta_group 2 of a memory with 1 CTA"),
    ("a pair for one CTA", OperandError, lambda: run(PLAIN, written(2)), r"tmem has 2 CTAs; valid: TensorMemory\(ctas=1\)"),
    ("shared memory of one CTA", OperandError, lambda: run(PLAIN.replace("::1", "::2"), written(2), idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=256, n=32)), r"valid: uint8 \(..., 2, bytes\)"),
    ("scale format of another block", OperandError, lambda: get(SCALED.replace("16", "32")).matmul(
        A4, B4, C, idesc=MX, scale_a=ONE_A[:, :2], scale_b=ONE_B[:2]), r"ue4m3"),
    ("scale format of another kind", OperandError,
     lambda: InstructionDescriptor(kind="mxf4", m=128, n=16, scale_format="ue4m3"), r"scale_format='ue4m3'.*valid: ue8m0"),
    ("scales left out", OperandError, lambda: get(SCALED).matmul(A4, B4, C, idesc=MX), r"scale_a is missing"),
    ("scales too many", OperandError, lambda: get(PLAIN).matmul(A, B, C, idesc=IDESC, scale_a=ONE_A), r"scale_a is not an operand"),
    ("scales of another shape", OperandError,
     lambda: get(SCALED).matmul(A4, B4, C, idesc=MX, scale_a=ONE_A[:, :2], scale_b=ONE_B), r"scale_a has shape .*valid: .*128, 4"),
    ("scales left out of execute", OperandError, lambda: run(SCALED, idesc=MX), r"scale_a is missing"),
    ("N-major B of a pair", OperandError, lambda: get("tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale").shapes(
        InstructionDescriptor(kind="mxf8f6f4", a_format="e4m3", m=256, n=48, transpose_b=True)), r"must be a multiple of 32"),
    ("kind of another mnemonic", OperandError, lambda: get(PLAIN.replace("f16", "tf32")).matmul(A, B, C, idesc=IDESC),
     r"the descriptor was made for kind::f16"),
    ("bits of another kind", OperandError, lambda: get(PLAIN).matmul(A, B, C, idesc=InstructionDescriptor(
        kind="tf32", m=128, n=16).encode()), r"instruction descriptor 0x\w+: a_format=2 .*means nothing in kind::f16"),
    ("sparse bit without .sp", OperandError, lambda: get(PLAIN).matmul(A, B, C, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=128, n=16, sparse=True)), r"the mnemonic is dense, the descriptor's sparse bit \(bit 2\) is 1"),
    ("no sparse bit with .sp", OperandError, lambda: get(SPARSE).matmul(A, B, C, idesc=IDESC), r"the mnemonic is sparse"),
    ("M = 64 with .ashift", OperandError, lambda: get(PLAIN + ".ashift").matmul(A, B, C, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=64, n=16)), r"\.ashift with M = 64; valid.*M = 128"),
    (".ashift of half the rows", OperandError, lambda: get(PLAIN.replace("::1", "::2") + ".ashift").shapes(InstructionDescriptor(
        kind="f16", a_format="f16", m=128, n=32)), r"\.ashift with M = 128: the manual allows it.*valid with .cta_group::2: M = 256"),
    ("M = 32 without .ws", OperandError, lambda: get(PLAIN).matmul(A, B, C, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=32, n=64)), r"M = 32 cannot be; valid: 64, 128"),
    ("shape of A", OperandError, lambda: get(PLAIN).matmul(A[:64], B, C, idesc=IDESC), r"a has shape \(64, 16\); valid: .*128, 16"),
    ("metadata left out", OperandError, lambda: get(SPARSE).matmul(A, np.zeros((32, 16), np.uint16), C, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=128, n=16, sparse=True)), r"metadata is missing"),
    ("positions out of order", OperandError, lambda: get(SPARSE).matmul(
        A, np.zeros((32, 16), np.uint16), C, metadata=np.tile([1, 0], (128, 8)), idesc=InstructionDescriptor(
            kind="f16", a_format="f16", m=128, n=16, sparse=True)), r"metadata: .*undefined"),
    ("scale_input_d of f8f6f4", OperandError, lambda: run(PLAIN.replace("f16", "f8f6f4"), scale_input_d=1, idesc=InstructionDescriptor(
        kind="f8f6f4", a_format="e4m3", m=128, n=16)), r"no form desc_scale; valid: desc, desc_lanes, tmem, tmem_lanes"),
    ("scale_input_d of 16", OperandError, lambda: run(PLAIN, scale_input_d=16), r"scale_input_d=16; valid: 0 to 15"),
    ("scale_input_d of i8", OperandError, lambda: run(PLAIN.replace("f16", "i8"), scale_input_d=3, idesc=InstructionDescriptor(
        kind="i8", a_format="s8", m=128, n=16)), r"the manual says f16 and tf32 only"),
    ("scale_input_d on sm_110", OperandError, lambda: run(PLAIN, arch="sm_110", scale_input_d=3), r"has no form desc_scale; it needs"),
    ("lanes of .ws", OperandError, lambda: run(STATIONARY, disable_output_lane=np.zeros(4, np.uint32), idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=128, n=64)), r"there is no form desc_lanes"),
    ("lanes of a pair", OperandError, lambda: run(PLAIN, disable_output_lane=np.zeros(8, np.uint32)), r"valid: uint32 \(4,\)"),
    ("lanes of more than 32 bits", OperandError, lambda: run(PLAIN, disable_output_lane=np.array([1 << 33, 0, 0, 0])),
     r"valid: uint32 \(4,\), words of 32 bits"),
    ("an address that is a fraction", UnallocatedError, lambda: run(PLAIN, d=1.5), r"address 1.5; valid: an integer"),
    ("an address that is text", UnallocatedError, lambda: run(SCALED, idesc=MX, scale_a="x", scale_b=80), r"address 'x'"),
    ("no memory to load from", OperandError, lambda: get("tcgen05.ld.sync.aligned.32x32b.x1.b32").execute(None, 0), r"tmem is a NoneType"),
    ("no memory to copy to", OperandError, lambda: get("tcgen05.cp.cta_group::1.32x128b.warpx4").execute(None, 0, SMEM, DESC),
     r"tmem is a NoneType"),
    ("no memory to shift", OperandError, lambda: get("tcgen05.shift.cta_group::1.down").execute(None, 0), r"tmem is a NoneType"),
    ("mask without .ws", OperandError, lambda: run(PLAIN, zero_column_mask=0), r"there is no form desc_mask"),
    ("reserved bits of a mask", OperandError, lambda: run(STATIONARY, zero_column_mask=1 << 36, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=128, n=64)), r"bits 0x1000000000 are reserved"),
    ("operands outside shared memory", OperandError, lambda: run(PLAIN, smem=SMEM[:1024]), r"[ab]: row \d+, k \d+ lies at byte \d+, outside the 1024 bytes"),
    ("B is no descriptor", OperandError, lambda: run(PLAIN, b=1.5), r"b is float64 .*valid: a 64-bit matrix descriptor"),
    ("descriptor of sm_90", OperandError, lambda: run(PLAIN, b=DESC & ~np.uint64(7 << 46)),
     r"b: descriptor 0x\w+: version \(bits 48:46\) is 0; valid: 1"),
    ("bits of no field", OperandError, lambda: run(PLAIN, a=DESC | np.uint64(1 << 53)),
     r"a: descriptor 0x\w+: bits 0x20000000000000 belong to no field; valid: 0"),
    ("an LBO that is an address", OperandError, lambda: run(PLAIN, a=DESC | np.uint64(1 << 52 | 2 << 61)),
     r"a: leading_mode=1 .* needs sm_103, sm_107; valid: 0"),
    ("idesc left out", OperandError, lambda: get(PLAIN).shapes(None), r"idesc=None; valid: a tcsim.InstructionDescriptor or its 32 bits"),
    ("batches that do not broadcast", OperandError, lambda: run(PLAIN, smem=np.stack([SMEM] * 2), a=np.array([DESC] * 3)),
     r"leading dimensions .* do not broadcast"),
    ("smem of words", OperandError, lambda: run(PLAIN, smem=SMEM.view(np.uint32)), r"smem is uint32"),
    ("A transposed in TMEM", OperandError, lambda: run(PLAIN, a=64, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=128, n=16, transpose_a=True)), r"A in Tensor Memory is K-major"),
    ("lane of D", OperandError, lambda: run(PLAIN, d=1 << 16), r"d is at lane 1; .*begins at lane 0"),
    ("lanes of A and D", OperandError, lambda: run(PLAIN, d=16 << 16, a=64, idesc=InstructionDescriptor(
        kind="f16", a_format="f16", m=64, n=16)), r"a begins at lane 0, d at lane 16"),
    ("wrong tmem", OperandError, lambda: run(PLAIN, np.zeros(3)), r"tmem is a ndarray; valid: a tcsim.TensorMemory"),
    ("e5m2 codes for f16", tcsim.FormatError, lambda: get(PLAIN).matmul(A.astype(np.uint8), B, C, idesc=IDESC), r"a"),
    ("negated integers", OperandError, lambda: InstructionDescriptor(kind="i8", a_format="s8", m=128, n=16, negate_a=True),
     r"negate_a=True"),
    ("K = 96 on sm_100", TargetError, lambda: get(SCALED).shapes(InstructionDescriptor(
        kind="mxf4nvf4", m=128, n=16, scale_format="ue4m3", k=96, arch="sm_103")), r"dense K = 96 needs sm_103, sm_107; sm_100 has 64"),
    ("a code of ti16 that is none", tcsim.FormatError, lambda: get(TI16, "sm_107").matmul(A + 0x800, B, C, idesc=TI),
     r"a: 0x800 is not a code of s1z4m11, bits 0x7800 of a code must be 0"),
    ("a code of ti16 in shared memory", tcsim.FormatError, lambda: run(TI16, smem=SMEM + 0x40, arch="sm_107", idesc=TI),
     r"b: 0x4040 is not a code of s1z4m11"),
    ("a code of ti16 in Tensor Memory", tcsim.FormatError, lambda: run(TI16, of_ones(), arch="sm_107", idesc=TI, a=64),
     r"a: 0x7fff is not a code of s1z4m11"),
    ("a transposed ti16", OperandError, lambda: run(TI16, arch="sm_107", idesc=TI.encode() | 1 << 16),
     r"transpose_b=True: the PTX ISA.s table .* lists no transpose for ti16.*valid: False"),
    ("a ti16 that saturates", OperandError, lambda: InstructionDescriptor(
        kind="ti16", m=128, n=16, saturate=True, arch="sm_107"), r"saturate=True: .*valid: False"),
    ("ti16 on sm_103", TargetError, lambda: InstructionDescriptor(kind="ti16", m=128, n=16, arch="sm_103"), r"ti16 needs sm_107"),
    ("a selector of dense ti16", OperandError, lambda: InstructionDescriptor(
        kind="ti16", m=128, n=16, sparsity_selector=1, arch="sm_107"), r"sparsity_selector=1: A is dense"),
    ("N = 24 of ti16", OperandError, lambda: InstructionDescriptor(kind="ti16", m=128, n=24, arch="sm_107").check(), r"multiple of 16"),
    ("K = 32 with a lookup", OperandError, lambda: run(LOOKUP, arch="sm_107", lookup=128, idesc=InstructionDescriptor(
        kind="f8f6f4", a_format="e4m3", m=128, n=16, arch="sm_107")), r"k=32: B is read through a lookup table; valid: 64"),
    ("e5m2 with a lookup", OperandError, lambda: run(LOOKUP, arch="sm_107", lookup=128, idesc=InstructionDescriptor(
        kind="f8f6f4", a_format="e4m3", b_format="e5m2", m=128, n=16, k=64, arch="sm_107")), r"b_format='e5m2': B is .*valid: 'e4m3'"),
    ("an N-major B with a lookup", OperandError, lambda: run(LOOKUP, arch="sm_107", lookup=128, idesc=InstructionDescriptor(
        kind="f8f6f4", a_format="e4m3", m=128, n=16, k=64, transpose_b=True, arch="sm_107")), r"transpose_b=True: B is .*valid: False"),
    ("M = 64 with a lookup", OperandError, lambda: get(LOOKUP, "sm_107").shapes(InstructionDescriptor(
        kind="f8f6f4", a_format="e4m3", m=64, n=16, k=64, arch="sm_107")), r"M = 64 with K = 64 must be 128"),
    ("no lookup", OperandError, lambda: run(LOOKUP, arch="sm_107", idesc=LUT), r"lookup is missing"),
    ("a lookup for another", OperandError, lambda: run(PLAIN, lookup=128), r"lookup is not an operand of it"),
    ("no lookup tables", OperandError, lambda: get(LOOKUP, "sm_107").matmul(A8, B8, C, idesc=LUT), r"lookup is missing"),
    ("a lookup at an odd column", OperandError, lambda: run(LOOKUP, arch="sm_107", idesc=LUT, lookup=129),
     r"lookup is at column 129; valid: even ones"),
    ("a lookup at another lane", OperandError, lambda: run(LOOKUP, arch="sm_107", idesc=LUT, lookup=128 | 8 << 16),
     r"lookup is at lane 8; lookup tables of B begins at lane 0"),
    ("a lookup never written", UnwrittenError, lambda: run(LOOKUP, fresh(), arch="sm_107", idesc=LUT, lookup=128), r"lookup: read of lane"),
    ("an index beyond the table", OperandError, lambda: get(LOOKUP, "sm_107").matmul(A8, B8 + 8, C, idesc=LUT, lookup=TABLES),
     r"b: index 8; valid: 0 to 7"),
    ("indices that are no integers", OperandError, lambda: get(LOOKUP, "sm_107").matmul(
        A8, B8.astype(np.float32), C, idesc=LUT, lookup=TABLES), r"b is float32; valid: integers"),
    ("tables of another shape", OperandError, lambda: get(LOOKUP, "sm_107").matmul(A8, B8, C, idesc=LUT, lookup=TABLES[:1]),
     r"lookup has shape \(1, 8\); valid: \(..., 2, 8\)"),
    ("the upper half of B without a lookup", OperandError, lambda: run(PLAIN, arch="sm_107", b=DESC | np.uint64(1 << 53)),
     r"b: k_half=1 .*is for B of .decompress::lut::b; valid: 0"),
    ("the upper half of A", OperandError, lambda: run(LOOKUP, arch="sm_107", idesc=LUT, lookup=128, a=DESC | np.uint64(1 << 53)),
     r"a: k_half=1"),
    ("a lookup in gemm", InstructionError, lambda: tcsim.gemm(A8, B8, C, instruction=LOOKUP, arch="sm_107", idesc=LUT),
     r"B is made of indices and tables; valid: without"),
    ("pairs on sm_107", OperandError, lambda: get(SPARSE4, "sm_107").sparsity(UNPAIRED).groups_for(np.tile([4, 5, 2, 3], (128, 16))),
     r"positions must be 0 to 3"),
    ("the sparsity of other archs", OperandError, lambda: run(SPARSE4, arch="sm_107", idesc=UNPAIRED.encode() & ~(1 << 12)),
     r"bit 12, the version of sparsity, must be 1 on sm_107"),
    ("sparse 4-bit metadata that means nothing", OperandError, lambda: run(
        SPARSE4, arch="sm_107", idesc=UNPAIRED, scale_a=64, scale_b=80, metadata=128), r"metadata 0b0000 of row 0, group 0 is undefined"),
    ("sm_120", InstructionError, lambda: get(PLAIN, "sm_120"), r"needs one of sm_100f, sm_100a"),
    ("i8 on sm_103", InstructionError, lambda: get(PLAIN.replace("f16", "i8"), "sm_103"), r"needs one of sm_100a, sm_110a"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "call", "text"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_wrong_use_is_a_named_error(kind: type[Exception], call: Callable[[], Any], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        call()
    assert isinstance(caught.value, tcsim.TcsimError)


def test_copies_of_scale_factors_must_agree() -> None:
    memory = written()
    memory.words[0, 37, 64] = 1  # row 5's factors, in the copy of the second warp
    with pytest.raises(OperandError, match="scale_a: factor 0 of row 5 differs between its copies"):
        run(SCALED, memory, idesc=MX, scale_a=64, scale_b=80)


def test_copies_of_lookup_tables_must_agree() -> None:
    memory = written()
    memory.words[0, 33, 129] = 1 << 8  # entry 5 of the second table, in the copy of the second warp
    with pytest.raises(OperandError, match="lookup: entry 5 of row 1 differs between its copies"):
        run(LOOKUP, memory, arch="sm_107", idesc=LUT, lookup=128)
    run(LOOKUP, memory, arch="sm_107", idesc=LUT, lookup=130)


def test_undefined_metadata_is_refused() -> None:
    sparse = InstructionDescriptor(kind="f16", a_format="f16", m=128, n=16, sparse=True)
    with pytest.raises(OperandError, match="metadata 0b0000 of row 0, group 0 is undefined"):
        run(SPARSE, idesc=sparse, metadata=64)


def test_inputs_stay_as_they_are() -> None:
    memory, smem = written(), SMEM.copy()
    before = memory.words.copy()
    after = run(PLAIN, memory, smem)
    assert after is not memory
    assert np.array_equal(memory.words, before) and np.array_equal(smem, SMEM)
