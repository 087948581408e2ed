"""Instruction descriptors: bits against the slow model, every refusal by name, agreement with mnemonics."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tcsim
from tcsim.core.errors import OperandError
from tcsim.descriptors.instruction import InstructionDescriptor, bit_table
from tcsim.descriptors.kinds import KINDS, MAX_SHIFTS, SHAPES, fields_of
from tests.exact.tcgen05 import instruction_bits

PLAIN = ("f16", "tf32", "f8f6f4", "i8", "ti16")
FLAGS = ("negate_a", "negate_b", "transpose_a", "transpose_b", "saturate")


def named(one: InstructionDescriptor) -> dict:
    """All fields by name, flags as 0 and 1."""
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    return {name: int(value) if isinstance(value, bool) else value for name, value in values.items()}


@st.composite
def descriptors(draw: st.DrawFn) -> InstructionDescriptor:
    """Any legal descriptor: of a row of SHAPES, with formats, flags and ids that the kind has."""
    row = draw(st.sampled_from(SHAPES))
    kind = KINDS[draw(st.sampled_from(row.kinds))]
    arch = draw(st.sampled_from(kind.archs))
    depths = [one for one in kind.depths if arch in one.archs and row.sparse in (None, one.sparse)]
    depth = draw(st.sampled_from(depths))
    m, n = draw(st.sampled_from(row.m)), draw(st.sampled_from(row.n))
    d = draw(st.sampled_from(sorted(kind.d_formats)))
    narrow = kind.name == "f16" and d == "f16"
    formats = ["f16"] if narrow else sorted(depth.formats or kind.ab_formats)
    a, b = (draw(st.sampled_from(formats)) for _ in "ab")
    given_ = {
        "d_format": d, "a_format": a, "b_format": b, "sparse": depth.sparse, "k": depth.k,
        "transpose_a": a in kind.transposable and draw(st.booleans()),
        "transpose_b": b in kind.transposable and draw(st.booleans()),
    }  # fmt: skip
    if kind.negate:
        given_ |= {"negate_a": draw(st.booleans()), "negate_b": draw(st.booleans())}
    if kind.saturate:
        given_["saturate"] = draw(st.booleans())
    if depth.sparse:
        given_["sparsity_selector"] = draw(st.sampled_from(kind.selectors))
    if row.ws:
        given_["max_shift"] = draw(st.sampled_from(MAX_SHIFTS))
    if kind.block_scaled:
        ids = {32: (0, 1, 2, 3), 96: (0, 1, 2, 3), 64: (0, 2), 128: (0, 2), 192: (0,)}[depth.k]
        if depth.code and depth.k in (64, 128):  # sm_107
            ids = (0,)
        elif kind.name == "mxf8f6f4":
            ids = (0, 1, 2, 3)
        formats = [one for one in kind.scale_formats if one != "ue5m3" or arch == "sm_107"]
        given_ |= {"scale_format": draw(st.sampled_from(formats)), "scale_a_id": draw(st.sampled_from(ids))}
        given_ |= {"scale_b_id": draw(st.sampled_from(ids))}
        given_["scale_a_lanes"] = draw(st.sampled_from((32, 128) if arch == "sm_107" else (32,)))
    return InstructionDescriptor(kind.name, m, n, arch=arch, **given_)  # type: ignore[arg-type]


@given(one=descriptors())
def test_the_bits_are_the_manuals(one: InstructionDescriptor) -> None:
    word = one.encode()
    assert word == instruction_bits(one.kind, named(one), one.arch == "sm_107")
    assert 0 <= word < 1 << 32
    assert InstructionDescriptor.decode(word, one.kind, one.arch) == one


@given(one=descriptors())
def test_every_field_is_described(one: InstructionDescriptor) -> None:
    lines = one.describe()
    bits = [re.match(r"bits (\d+)(?::(\d+))? ", line) for line in lines]
    covered = [bit for match in bits if match for bit in range(int(match[2] or match[1]), int(match[1]) + 1)]
    assert covered == list(range(32))
    assert len(bit_table(one.kind, one.arch)) == len(lines)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_reserved_bits_must_be_zero(kind: str) -> None:
    row = KINDS[kind]
    for arch in row.archs:
        a = next(iter(row.ab_formats))
        scale = next(iter(row.scale_formats), "")
        word = InstructionDescriptor(kind, 128, 64, a_format=a, scale_format=scale, arch=arch).encode()
        free = [bit for bit in range(32) if not any(one.mask >> bit & 1 for one in fields_of(row, arch))]
        assert free
        for bit in free:
            with pytest.raises(tcsim.OperandError, match=f"bits {1 << bit:#x} must be 0"):
                InstructionDescriptor.decode(word | 1 << bit, kind, arch)


def every_shape() -> Iterator[tuple[str, int, bool, bool, int, int]]:
    for kind, row in KINDS.items():
        for cta_group, ws in ((1, False), (2, False), (1, True), (2, True)):
            for sparse in (False, True):
                for m in (32, 64, 96, 128, 256):
                    for n in range(8, 273, 8):
                        if ws and row.block_scaled:
                            continue
                        yield kind, cta_group, ws, sparse, m, n


def allowed(kind: str, cta_group: int, ws: bool, sparse: bool, m: int, n: int) -> bool:
    """The rules of M and N in prose, A in shared memory or in Tensor Memory: PTX ISA, CUTLASS."""
    if ws:
        return cta_group == 1 and m in (32, 64, 128) and n in ((64, 128) if sparse else (64, 128, 256))
    if n > 256:
        return False
    if kind.startswith("mx"):
        if cta_group == 1:
            return m == 128
        return m in ((256,) if sparse else (128, 256)) and n % 16 == 0
    fine = kind in ("f16", "tf32") or (kind == "f8f6f4" and not sparse)  # with A in shared memory
    if cta_group == 2:
        return m in (128, 256) and n % (16 if fine else 32) == 0
    if kind == "i8":
        return m in (64, 128) and (n % 16 == 0 or n in (8, 24))
    return m == 64 or (m == 128 and (fine or n % 16 == 0))


def test_every_shape_of_every_form() -> None:
    accepted = refused = 0
    for kind, cta_group, ws, sparse, m, n in every_shape():
        row, refusal = KINDS[kind], ""
        try:
            one = InstructionDescriptor(
                kind, m, n, a_format=next(iter(row.ab_formats)), sparse=sparse, arch=row.archs[0],
                scale_format=next(iter(row.scale_formats), ""),
            )  # fmt: skip
            one.check(cta_group=cta_group, ws=ws, sparse=sparse)
        except tcsim.OperandError as error:
            refusal = str(error)
        assert allowed(kind, cta_group, ws, sparse, m, n) == (not refusal), (kind, cta_group, ws, sparse, m, n, refusal)
        accepted, refused = accepted + (not refusal), refused + bool(refusal)
        assert not refusal or re.search(r"valid: |must be ", refusal)
    # f16, tf32 and dense f8f6f4; sparse f8f6f4 and ti16; .ws of these; i8; block-scaled kinds
    assert accepted == 5 * 96 + 3 * 64 + 4 * 15 + (2 * 52 + 15) + 3 * 112
    assert refused > 6000


def test_k_of_every_kind() -> None:
    wanted = {
        "f16": (16, 32), "tf32": (8, 16), "f8f6f4": (32, 64), "i8": (32, 64), "ti16": (16, 32), "mxf8f6f4": (32, 64),
        "mxf4": (64, 128), "mxf4nvf4": (64, 128),
    }  # fmt: skip
    assert wanted.keys() == KINDS.keys()
    for kind, (dense, sparse) in wanted.items():
        row = KINDS[kind]
        for k, flag in ((dense, False), (sparse, True)):
            a, scale = next(iter(row.ab_formats)), next(iter(row.scale_formats), "")
            one = InstructionDescriptor(kind, 128, 64, a_format=a, scale_format=scale, sparse=flag, arch=row.archs[0])
            assert one.k == k
    ninety_six = InstructionDescriptor("mxf4nvf4", 128, 64, scale_format="ue4m3", k=96, arch="sm_103a")
    assert ninety_six.encode() >> 31 == 1
    assert (
        ninety_six.scale_vectors(16),
        InstructionDescriptor("mxf4", 128, 64, k=96, arch="sm_103").scale_vectors(32),
    ) == (6, 3)
    assert InstructionDescriptor("mxf8f6f4", 128, 64, a_format="e4m3", sparse=True).scale_vectors(32) == 1
    assert InstructionDescriptor("mxf4nvf4", 128, 64, scale_format="ue8m0", sparse=True).scale_vectors(16) == 4


@pytest.mark.parametrize(
    ("word", "kind", "facts"),
    [
        # words that public kernels and compilers use
        (0x82004A4, "i8", {"sparse": True, "a_format": "s8", "b_format": "s8", "m": 128, "n": 128}),
        (136314900, "f16", {"sparse": True, "sparsity_selector": 0, "m": 128, "n": 128}),
        (136314901, "f16", {"sparse": True, "sparsity_selector": 1, "m": 128, "n": 128}),
        (1 << 7 | 1 << 10 | 128 >> 3 << 17 | 128 >> 7 << 27, "mxf4nvf4", {"scale_format": "ue4m3", "m": 128, "n": 128}),
        (67698704, "f16", {"m": 64, "n": 32, "d_format": "f32", "a_format": "f16", "transpose_b": True}),
    ],
)  # fmt: skip
def test_known_words(word: int, kind: str, facts: dict) -> None:
    one = InstructionDescriptor.decode(word, kind)
    assert {name: getattr(one, name) for name in facts} == facts
    assert one.encode() == word


def f16(m: int = 128, n: int = 64, **rest: object) -> InstructionDescriptor:
    return InstructionDescriptor("f16", m, n, a_format="f16", **rest)  # type: ignore[arg-type]


def scaled(kind: str, **rest: object) -> InstructionDescriptor:
    return InstructionDescriptor(kind, 128, 64, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: f16(128, 24).check(a_in_tmem=True), "N = 24 with M = 128 and A in Tensor Memory must be a multiple of 16"),
        (lambda: f16(256, 24), "N = 24 with M = 256 must be a multiple of 16"),
        (lambda: f16(64, 24).check(cta_group=2), "M = 64 cannot be; valid: 128, 256"),
        (lambda: f16(128, 24).check(cta_group=2), "N = 24 with M = 128 must be a multiple of 16"),
        (lambda: f16(128, 48).check(cta_group=2, a_in_tmem=True), "N = 48 with M = 128 and A in Tensor Memory must be a mul"),
        (lambda: f16(96), "M = 96 cannot be; valid: 32, 64, 128, 256"),
        (lambda: f16(32, 32), "64, 128 or 256 (cta_group::1, .ws)"),
        (lambda: f16(32, 256, sparse=True), "64 or 128 (cta_group::1, .ws)"),
        (lambda: f16().check(cta_group=3), "valid: 1, 2"),
        (lambda: f16().check(cta_group=2, ws=True), "there is no such instruction"),
        (lambda: f16(max_shift=8).check(), "for .ws only"),
        (lambda: f16(max_shift=4), "max_shift=4; valid: 0, 8, 16, 32"),
        (lambda: f16().check(sparse=True), "the mnemonic is sparse (.sp), the descriptor's sparse bit (bit 2) is 0"),
        (lambda: f16(sparse=True).check(sparse=False), "the mnemonic is dense"),
        (lambda: InstructionDescriptor("f16", 128, 64), "a_format=''; valid: f16, bf16"),
        (lambda: f16(b_format="tf32"), "b_format='tf32'; valid: f16, bf16"),
        (lambda: f16(b_format="bf16", d_format="f16"), "an f16 result needs f16 A and B; valid: f32"),
        (lambda: f16(d_format="s32"), "d_format='s32'; valid: f16, f32"),
        (lambda: f16(saturate=True), "only integer kinds saturate"),
        (lambda: f16(sparsity_selector=1), "A is dense"),
        (lambda: f16(sparse=True, sparsity_selector=2), "valid: 0, 1"),
        (lambda: f16(scale_format="ue8m0"), "the kind has no scale factors"),
        (lambda: f16(scale_a_id=1), "the kind has no scale factors"),
        (lambda: f16(k=32), "K of a dense instruction; valid: 16"),
        (lambda: InstructionDescriptor("i8", 128, 64, a_format="s8", negate_b=True), "only floating-point A and B"),
        (lambda: InstructionDescriptor("i8", 128, 64, a_format="s8", sparse=True, sparsity_selector=1), "valid: 0"),
        (lambda: InstructionDescriptor("f8f6f4", 128, 64, a_format="e2m1", transpose_a=True), "e2m1 cannot be MN-major"),
        (lambda: InstructionDescriptor("f8f6f4", 64, 24, a_format="e4m3", transpose_b=True).check(), "must be a multiple of 16"),
        (lambda: InstructionDescriptor("f8f6f4", 128, 64, a_format="e3m2", k=64, arch="sm_107"), "with K = 64; valid: e4m3, e5m2"),
        (lambda: InstructionDescriptor("ti16", 128, 64, transpose_a=True, arch="sm_107"), "its table of transposes does"),
        (lambda: scaled("mxf8f6f4", a_format="e4m3", scale_format="ue4m3"), "scale_format='ue4m3'; valid: ue8m0"),
        (lambda: scaled("mxf4", scale_format="ue4m3"), "scale_format='ue4m3'; valid: ue8m0"),
        (lambda: scaled("mxf4nvf4"), "scale_format=''; valid: ue4m3, ue8m0"),
        (lambda: scaled("mxf4nvf4", scale_format="ue5m3"), "valid: ue4m3, ue8m0"),
        (lambda: scaled("mxf4", a_format="e4m3"), "a_format='e4m3'; valid: e2m1"),
        (lambda: scaled("mxf4", scale_a_id=1), "may begin; valid: 0, 2"),
        (lambda: scaled("mxf8f6f4", a_format="e4m3", scale_b_id=4), "may begin; valid: 0, 1, 2, 3"),
        (lambda: scaled("mxf4", transpose_b=True), "e2m1 cannot be MN-major (formats that can: none)"),
        (lambda: scaled("mxf4", max_shift=8), "the kind has no .ws"),
        (lambda: scaled("mxf4", scale_a_lanes=128), "128 on sm_107"),
        (lambda: InstructionDescriptor("mxf4", 64, 64), "M = 64 cannot be; valid: 128, 256"),
        (lambda: scaled("mxf4nvf4", scale_format="ue4m3").check(block=32), "scale_format='ue4m3' cannot be; valid: ue8m0"),
        (lambda: scaled("mxf4").check(block=16), "no scale factors of 16 elements; valid: 32"),
        (lambda: scaled("mxf4nvf4", scale_format="ue4m3", scale_a_id=2).check(block=16), "scale_a_id=2"),
        (lambda: scaled("mxf4", k=96, arch="sm_103").check(cta_group=2), "M = 128 with K = 96 must be 256"),
        (lambda: InstructionDescriptor("mxf4", 128, 24, k=96, arch="sm_103").check(), "must be a multiple of 16"),
        (lambda: f16().scale_vectors(32), "no scale factors of 32 elements; valid: none"),
        (lambda: InstructionDescriptor("mxf6", 128, 64), "nearest: mxf4"),
        (lambda: InstructionDescriptor.decode(0, "f16"), "M = 0 cannot be"),
        (lambda: InstructionDescriptor.decode(f16().encode() | 3 << 4, "f16"), "d_format=3 (bits 5:4) means nothing"),
        (lambda: InstructionDescriptor.decode(f16().encode() | 1 << 7, "tf32"), "a_format=1 (bits 9:7) means nothing"),
        (lambda: InstructionDescriptor.decode(1 << 32, "f16"), "must be 0"),
        (lambda: InstructionDescriptor.decode(scaled("mxf4").encode() | 1 << 31, "mxf4"), "the code of K is 1; valid"),
        (lambda: InstructionDescriptor.decode(scaled("mxf4").encode(), "mxf4", "sm_107"), "must be 1 on sm_107"),
        (lambda: f16().check_mnemonic("tcgen05.mma.cta_group::1.kind::bf16"), "the descriptor was made for kind::f16"),
        (lambda: f16().check_mnemonic("wgmma.mma_async"), "is not a tcgen05.mma"),
        (lambda: f16().check_mnemonic("tcgen05.mma.sp.cta_group::1.kind::f16"), "the mnemonic is sparse"),
        (lambda: scaled("mxf4").check_mnemonic("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X"), "does not have .scale_vec::4X"),
        (lambda: scaled("mxf4nvf4", scale_format="ue4m3").check_mnemonic("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale"),
         "needs .block16"),
    ],
)  # fmt: skip
def test_wrong_use_is_named(call: Callable[[], object], text: str) -> None:
    with pytest.raises(tcsim.OperandError, match=re.escape(text)):
        call()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: InstructionDescriptor("i8", 128, 64, a_format="s8", arch="sm_103a"), "kind::i8 needs sm_100, sm_110"),
        (lambda: InstructionDescriptor("ti16", 128, 64), "kind::ti16 needs sm_107; sm_100 has f16, tf32"),
        (lambda: f16(arch="sm_90"), "tcgen05 is on sm_100, sm_103, sm_107, sm_110"),
        (lambda: scaled("mxf4", k=96), "dense K = 96 needs sm_103, sm_107; sm_100 has 64"),
        (lambda: scaled("mxf4", k=128, arch="sm_103"), "needs sm_107"),
        (lambda: f16(arch="sm_99"), "nearest"),
    ],
)
def test_archs_without_the_kind_or_k(call: Callable[[], object], text: str) -> None:
    with pytest.raises(tcsim.TargetError, match=re.escape(text)):
        call()


@pytest.mark.parametrize(
    ("mnemonic", "one"),
    [
        ("tcgen05.mma.cta_group::1.kind::f16", f16()),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16.collector::b0::fill", f16(32, 128, sparse=True, max_shift=32)),
        ("tcgen05.mma.sp.cta_group::2.kind::f16", f16(256, 64, sparse=True)),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale", scaled("mxf4")),
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", scaled("mxf4nvf4", scale_format="ue4m3")),
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::2X [d], a", scaled("mxf4nvf4", scale_format="ue8m0")),
        ("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X", scaled("mxf8f6f4", a_format="e5m2")),
    ],
)  # fmt: skip
def test_mnemonics_that_agree(mnemonic: str, one: InstructionDescriptor) -> None:
    one.check_mnemonic(mnemonic)


def test_defaults_are_what_the_kind_fixes() -> None:
    one = scaled("mxf8f6f4", a_format="e3m2")
    assert (one.b_format, one.d_format, one.scale_format, one.k, one.scale_a_lanes) == ("e3m2", "f32", "ue8m0", 32, 32)
    assert scaled("mxf4").a_format == scaled("mxf4").b_format == "e2m1"
    assert InstructionDescriptor("i8", 128, 64, a_format="u8", b_format="s8").d_format == "s32"
    assert len({f16(), f16(negate_a=1), f16(n=128)}) == 3
    assert f16(arch="sm_100a") == f16()


def test_steps_of_n_depend_on_where_a_is() -> None:
    """CUTLASS's atoms: 288 shapes with A in shared memory, 96 fewer with A in Tensor Memory; the other kinds do not differ."""
    taken = {False: 0, True: 0, None: 0}
    for kind, format in (("f16", "bf16"), ("tf32", "tf32"), ("f8f6f4", "e5m2")):
        for cta_group, m in ((1, 64), (1, 128), (2, 128), (2, 256)):
            for n, place in itertools.product(range(8, 257, 8), taken):
                try:
                    InstructionDescriptor(kind, m, n, a_format=format).check(cta_group=cta_group, a_in_tmem=place)
                except OperandError:
                    assert n % ((8 if m == 64 else 16 if place else 8) * cta_group)
                else:
                    taken[place] += 1
    assert taken == {False: 288, True: 192, None: 288}
