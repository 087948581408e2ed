"""The compiled engine gives NumPy's bits: a work of each kind here, all of the registry by `tox -e engines`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from conformance.engines.agreement import compare
from conformance.engines.operands import CLASSES
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.engines import compiled
from tcsim.engines.choice import using
from tcsim.engines.compiled import ENGINE
from tcsim.engines.contract import Accumulators, Lanes, Matrices, Registers, Work
from tcsim.engines.kernels import REACH
from tcsim.engines.program import program_of
from tcsim.engines.reference import ENGINE as NUMPY
from tcsim.model.fragment_codes import places_of

INSTRUCTIONS = (
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", "sm_70"),  # steps of 4; c of another format than d
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),  # two steps, f16 results
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),  # E8M13
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_90"),  # widened, c added last
    ("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16", "sm_90"),
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32", "sm_90"),  # converts d
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "sm_90"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3", "sm_90a"),
    ("mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0", "sm_120a"),
    ("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", "sm_120a"),
    ("mma.sp::ordered_metadata.sync.aligned.kind::mxf4.block_scale.m16n8k128.row.col.f32.e2m1.e2m1.f32.ue8m0", "sm_120a"),
)  # fmt: skip


def agree(work: Work, seed: int) -> int:
    """Outputs compared; both zeros, infinities and NaN among them."""
    assert ENGINE.takes(work) == ""
    count = 0
    for outputs, mismatches, first in compare(work, "numba", seed):
        assert not mismatches, first
        count += outputs
    return count


@pytest.mark.parametrize(("mnemonic", "arch"), INSTRUCTIONS)
def test_an_instruction_of_each_kind_gives_the_same_bits(mnemonic: str, arch: str) -> None:
    work = tcsim.instruction(mnemonic, arch=arch).work
    assert agree(work, seed=3) == len(CLASSES) * (70 * 16 * 8 + 2 * 40 * 136 + 64 * 72)


def test_a_descriptors_addend_that_counts_less_gives_the_same_bits() -> None:
    mma = tcsim.instruction("tcgen05.mma.cta_group::1.kind::f16", arch="sm_100a")
    desc = mma.descriptor(InstructionDescriptor(kind="f16", a_format="bf16", b_format="bf16", m=128, n=64))
    assert agree(mma.work(desc, scale_d=3), seed=4)


@pytest.mark.parametrize("instructions", [1, 3])
@pytest.mark.parametrize(("mnemonic", "arch"), [
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90"),
])  # fmt: skip
def test_exponents_at_the_end_of_reach_give_the_same_bits(mnemonic: str, arch: str, instructions: int) -> None:
    """Those of A and B within reach, of C any; then one element of B, in one product of many, just beyond."""
    work, stream = tcsim.instruction(mnemonic, arch=arch).work, np.random.default_rng(11)
    count, depth = 60, instructions * work.k
    for beyond in (0, REACH + 1, -REACH - 1):
        codes = []
        for format, shape, far in zip(
            work.formats, [(16, depth), (depth, 8), (16, 8)], [REACH, REACH, 126], strict=True
        ):
            near = stream.choice([-far, 0, far], (count, 1, 1))
            exponents = np.clip(near + stream.integers(-1, 2, (count, *shape)), -far, far)
            numbers = np.ldexp(
                stream.choice([-1, 0, 1], exponents.shape) * stream.uniform(1, 2, exponents.shape), exponents
            )
            if shape[0] == depth:
                numbers[count // 2, 3, 3] = np.ldexp(1.0, int(beyond))
            codes.append(tcsim.encode(numbers, format, "rz"))
        want, found = (engine.multiply(work, Matrices(*codes), range(instructions)) for engine in (NUMPY, ENGINE))
        assert len(np.unique(want)) > 1000 and (found == want).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_sums_of_more_than_31_bits_and_tiny_addends_give_the_same_bits(arch: str) -> None:
    """All terms as large as their exponents allow, all of one sign; and zeros beside addends down to the last subnormal."""
    work = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch=arch).work
    a, b, c = (np.full(shape, code, np.uint32) for shape, code in zip(
        [(64, 16, 16), (64, 16, 8), (64, 16, 8)], [0x3FFF, 0xBFFF, 0xBFFFFFFF], strict=True))  # fmt: skip
    for place in range(16):
        a[place, :, :place] = 0x3C00  # fewer of the largest
    a[16:32] ^= 0x8000
    c[:32] ^= (np.arange(32, dtype=np.uint32) & 1)[:, None, None] << 31
    a[32:48, :, 1:] = 0
    c[32:48] -= (np.arange(16, dtype=np.uint32) << 23)[:, None, None]
    a[48:] = 0
    c[48:] = (np.uint32(0x80000001) + (np.arange(16, dtype=np.uint32) << 20))[:, None, None]
    given = Matrices(a.astype(np.uint16), b.astype(np.uint16), c)
    want, found = (engine.multiply(work, given, range(1)) for engine in (NUMPY, ENGINE))
    assert len(np.unique(want)) > 40 and (found == want).all()


@pytest.mark.parametrize(("mnemonic", "arch"), [
    INSTRUCTIONS[1], INSTRUCTIONS[4], INSTRUCTIONS[7],
    ("mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32", "sm_120a"),  # 4 and 6 bits in bytes
    ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16", "sm_90"),  # copies; c of another format
    ("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16", "sm_70"),  # four matrices: through codes
])  # fmt: skip
def test_registers_are_multiplied_where_they_lie(mnemonic: str, arch: str) -> None:
    """`execute` of any bits; more fragments than a block has, and one B for all."""
    mma, stream = tcsim.instruction(mnemonic, arch=arch), np.random.default_rng(7)
    given = [
        mma.registers(name, stream.integers(0, 1 << 32, (*batch, *lead, *operand.shape)).astype(operand.format.dtype)
                      & operand.format.dtype.type(operand.format.code_mask))
        for name, batch in (("a", (3, 50)), ("b", ()), ("c", (50,)))
        for operand in (mma.operands[name],)
        for lead in ((mma.matrices,) if mma.matrices > 1 else (),)
    ]  # fmt: skip
    want = mma.execute(*given, engine="numpy")
    found = mma.execute(*given, engine="numba")
    assert found.shape == want.shape and found.size == 150 * mma.operands["d"].lanes * mma.operands["d"].registers
    assert (found == want).all()


@pytest.mark.parametrize(("mnemonic", "arch"), [
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90"),
    ("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "sm_90"),  # exponents out of reach: some blocks are computed twice
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_80"),
])  # fmt: skip
@pytest.mark.parametrize("warps", [48, 5])
@pytest.mark.parametrize("engine", ["numba", "numpy"])
def test_registers_of_a_machine_are_multiplied_in_place(mnemonic: str, arch: str, warps: int, engine: str) -> None:
    """Seven instructions whose d is their c; no other register is written."""
    mma, stream = tcsim.instruction(mnemonic, arch=arch), np.random.default_rng(8)
    sizes = {name: mma.operands[name].registers for name in "abc"}
    matrix = stream.integers(0, 1 << 32, (7 * sum(sizes.values()) + 3, 32 * warps)).astype(np.uint32)
    numbers, held, before = stream.permutation(len(matrix)), {}, matrix.copy()
    for name, size in sizes.items():
        own, numbers = numbers[: 7 * size].reshape(7, size), numbers[7 * size :]
        held[name] = Registers(matrix, own)
    copies = {name: np.asarray(own) for name, own in held.items()}
    want = mma.execute(**copies, engine="numpy")
    with using(engine):
        assert mma.compute(mma.row.forms[0], held | {"d": held["c"]})["d"] is held["c"]
    assert want.size == 7 * warps * 32 * sizes["c"] and (np.asarray(held["c"]) == want).all()
    held["c"].put(copies["c"].reshape(7 * warps, -1))
    assert len(numbers) == 3 and (matrix == before).all()


@pytest.mark.parametrize(("mnemonic", "swizzle", "trans"), [
    ("wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16", "32B", 0),
    ("wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16", "128B", 1),
    ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2", "NONE", 0),  # of a batch: fragments
])  # fmt: skip
@pytest.mark.parametrize("registers", [False, True])
def test_tiles_behind_descriptors_are_multiplied_where_they_lie(
    mnemonic: str, swizzle: str, trans: int, registers: bool
) -> None:
    """Any bits of shared memory; more instructions than are fetched at a time; smem or C for all of them, C not read."""
    wgmma, stream = tcsim.instruction(mnemonic, arch="sm_90a"), np.random.default_rng(8)
    _, n, k = wgmma.shape
    tile = tcsim.MatrixDescriptor.for_tile(n, k, wgmma.formats["b"].name, major=["K", "MN"][trans], swizzle=swizzle)
    at = tile.descriptor.encode()
    a = stream.integers(0, 1 << 32, (128, wgmma.operands["a"].registers), np.uint32) if registers else at + 1024 // 16
    compared = 0
    for batch, batch_c, scale_d in (((70,), (70,), True), ((), (2, 35), True), ((70,), (), False)):
        smem = stream.integers(0, 256, (*batch, 16384), np.uint8)
        c = stream.integers(0, 1 << 32, (*batch_c, 128, wgmma.operands["c"].registers), np.uint32)
        given = {"smem": smem, "a": a, "b": at, "c": c, "scale_d": scale_d}
        if trans:
            given["trans_b"] = 1
        want, found = (wgmma.execute(**given, engine=engine) for engine in ("numpy", "numba"))
        assert found.shape == want.shape and (found == want).all()
        compared += want.size
    assert compared == 3 * 70 * 128 * wgmma.operands["d"].registers


def test_a_wrong_constant_of_the_unit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: F, the floor, and the bits that are kept."""
    work = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", arch="sm_90").work
    for column, change in ((6, -1), (7, 40), (8, -2)):
        program = program_of(work)
        before = program.operations.copy()
        program.operations[0, column] += change
        try:
            with pytest.raises(AssertionError):
                agree(work, seed=5)
        finally:
            program.operations[...] = before
    assert agree(work, seed=5)


def test_gemm_of_odd_sizes_in_any_order_with_one_thread_and_with_three(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = np.random.default_rng(6)
    a, b = (stream.standard_normal(shape).astype(np.float16) for shape in ((3, 77, 50), (50, 141)))
    c = stream.standard_normal((77, 141)).astype(np.float32)
    given: dict[str, Any] = {
        "instruction": "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "k_order": [2, 0, 3, 1],
    }
    want = tcsim.gemm(a, b, c, **given, engine="numpy")
    for threads in "13":
        monkeypatch.setenv("TCSIM_THREADS", threads)
        assert (tcsim.gemm(a, b, c, **given, engine=ENGINE) == want).all()
    assert tcsim.gemm(a[:, :0], b, **given, engine=ENGINE).shape == (3, 0, 141)


@pytest.mark.parametrize("mnemonic", [INSTRUCTIONS[4], INSTRUCTIONS[9], INSTRUCTIONS[11], INSTRUCTIONS[12]])
def test_b_in_pieces_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, mnemonic: tuple[str, str]) -> None:
    work = tcsim.instruction(mnemonic[0], arch=mnemonic[1]).work
    counted: list[int] = []

    def gemm(loops: Any, own: Work, program: Any, given: Matrices, places: Any, run: Any = compiled._gemm) -> Any:
        counted.append(given.shape[2])
        return run(loops, own, program, given, places)

    monkeypatch.setattr(compiled, "_gemm", gemm)
    monkeypatch.setattr(compiled, "_PIECE", 1)
    assert agree(work, seed=7)
    assert set(counted) == {32, 8}  # of 136 columns, and of 72


def test_what_is_not_compiled_is_refused_by_name() -> None:
    for mnemonic, arch, why in (
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_90", "float formats of at most 32 bits"),
        ("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", "sm_90", "float formats of at most 32 bits"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_80", "not Arithmetic"),
    ):
        assert why in ENGINE.takes(tcsim.instruction(mnemonic, arch=arch).work)


@pytest.mark.parametrize("mnemonic", [
    "wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16", "wgmma.mma_async.sync.aligned.m64n136k8.f32.tf32.tf32",
    "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e5m2", "wgmma.mma_async.sync.aligned.m64n16k16.f16.f16.f16",  # two sums in a register
])  # fmt: skip
@pytest.mark.parametrize("instructions", [1, 4])
def test_products_are_added_to_registers_where_they_lie(mnemonic: str, instructions: int) -> None:
    """Of five warpgroups of a machine, in any order; sums of any bits. No other register is written."""
    wgmma, stream = tcsim.instruction(mnemonic, arch="sm_90a"), np.random.default_rng(9)
    work, d = wgmma.work, wgmma.operands["d"]
    m, n = d.shape
    before = stream.integers(0, 1 << 32, (d.registers + 3, 1024), dtype=np.uint32)
    rows, first = stream.permutation(d.registers + 3)[: d.registers], np.array([128, 896, 0, 384, 640])
    sizes = (5, m, instructions * work.k), (5, instructions * work.k, n)
    codes = [
        tcsim.encode(stream.standard_normal(own), format, "rne")
        for own, format in zip(sizes, work.formats, strict=False)
    ]
    found = []
    for engine in (NUMPY, ENGINE):
        lanes = Lanes(before.copy(), rows, first, 128)
        held = Accumulators(
            lanes, places_of(d.layout, d.format), lambda own=lanes: wgmma.matrix("c", own),
            lambda made, own=lanes: own.put(wgmma.registers("d", made)),
        )  # fmt: skip
        shape = np.broadcast_to(work.formats[2].dtype.type(0), (5, m, n))
        engine.accumulate(work, Matrices(*codes, shape), range(instructions), held)
        found.append(lanes.matrix)
    want = before.copy()
    sums = NUMPY.multiply(
        work, Matrices(*codes, wgmma.matrix("c", Lanes(before, rows, first, 128))), range(instructions)
    )
    Lanes(want, rows, first, 128).put(wgmma.registers("d", sums))
    assert (found[0] == want).all() and (found[1] == want).all()
    assert np.count_nonzero(want != before) > 5 * 128 * d.registers // 2
