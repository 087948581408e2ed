"""What no rule of the diagnosis says is read off the outputs: maps of K, of scale factors and of tiles, tables of values, other memory."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim.diagnosis.least_squares import weights, whole_weights

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INTEGER = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
SCALED = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"
K = np.arange(64)


def operands(m: int, n: int, k: int, format: str = "f16") -> tuple[np.ndarray, np.ndarray]:
    """A and B at random."""
    random = np.random.default_rng(m + n + k)
    a, b = (tcsim.encode(random.standard_normal(shape), format) for shape in ((m, k), (k, n)))
    return a, b


def named(found: tcsim.Diagnosis) -> str:
    """Everything that an explanation of every bit says."""
    assert (found.verdict, found.explanations[0].bits) == ("explained", True), str(found)
    return str(found)


def test_weights_are_found_or_refused() -> None:
    """Whole weights come back; terms that are the same thing twice, and sums of something else, have none."""
    random = np.random.default_rng(0)
    terms, wanted = random.standard_normal((40, 5)), np.array([1, 0, -2, 0, 1])
    reach = np.full(40, 1e-9)
    found = whole_weights(terms, terms @ wanted, reach)
    assert found is not None and (found == wanted).all()
    assert whole_weights(terms, terms @ (wanted + 0.5), reach) is None
    assert whole_weights(terms, random.standard_normal(40), reach) is None
    assert weights(terms[:, [0, 1, 0]], terms[:, 0]) is None


def test_an_order_of_k_that_nobody_listed() -> None:
    """The elements of each 16 of A's K in an order drawn at random: B's in the opposite order is the same thing."""
    a, b = operands(32, 48, 64)
    order = np.random.default_rng(5).permutation(16)
    observed = tcsim.gemm(a[:, K // 16 * 16 + order[K % 16]], b, instruction=MMA)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "a: K permuted" in said and "b: K permuted" in said
    assert f"in each 16 along K the order is {', '.join(map(str, order))}" in said


def test_blocks_of_k_that_are_zero_or_another_tile() -> None:
    """Blocks of 16 that are zero, the first again, and two that are left out."""
    a, b = operands(32, 48, 128)
    k = np.arange(128)
    stale = b[np.array([0, 1, 0, 3, 1, 5, 0, 3])[k // 16] * 16 + k % 16]
    stale[16:32] = 0
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a, stale, instruction=MMA)))
    assert "K blocks of b mismatched (K 16-31 is zero, K 32-47 is that of K 0-15, an earlier one" in said


def test_a_part_of_k_is_missing_in_some_tiles() -> None:
    """In tiles of 32 x 32, each lacks a part of its own."""
    a, b = operands(64, 64, 64)
    observed = np.zeros((64, 64), np.uint32)
    for number, (top, left) in enumerate(((0, 0), (0, 32), (32, 0), (32, 32))):
        taken = K[number != K // 16]
        where = slice(top, top + 32), slice(left, left + 32)
        observed[where] = tcsim.gemm(a[where[0], taken], b[taken, where[1]], instruction=MMA)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "K block missing in some tiles" in said and "rows 0-31, columns 32-63 hold its sum without K 16-31" in said


def test_the_sums_of_a_neighbour_in_a_part_of_k() -> None:
    """Columns have their own first half of K and the next block's second half."""
    a, b = operands(64, 64, 64)
    other = np.where(K[:, None] < 32, b, np.roll(b, -32, axis=1))
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a, other, instruction=MMA)))
    assert "sums of another tile (tiles of 64 x 32: " in said and "its sum without K 32-63 plus K 32-63 of" in said


@pytest.mark.parametrize("wrong", ["constant", "table"])
def test_values_of_the_codes_of_b(wrong: str) -> None:
    """1 is subtracted from every element, or the codes go through a table that is in no list."""
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, shape).astype(np.int8) for shape in ((64, 64), (64, 64)))
    changed = b - np.int8(1) if wrong == "constant" else np.where(b == 3, np.int8(7), b)
    said = named(tcsim.diagnose(INTEGER, arch="sm_80", a=a, b=b, observed=tcsim.gemm(a, changed, instruction=INTEGER, arch="sm_80")))  # fmt: skip
    assert ("1 is subtracted from every element" if wrong == "constant" else "3 counts as 7") in said


def scaled() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """A and B of e2m1, and factors of a few values."""
    random = np.random.default_rng(4)
    a, b = (tcsim.encode(random.standard_normal(shape), "e2m1", saturate=True) for shape in ((64, 128), (128, 64)))
    values = np.array([0.5, 0.75, 1, 1.25, 2, 3])
    own, other = (tcsim.encode(random.choice(values, shape), "ue4m3") for shape in ((64, 8), (8, 64)))
    return {"a": a, "b": b}, own, other


def asked(given: dict[str, np.ndarray], own: np.ndarray, other: np.ndarray, *wrong: np.ndarray) -> str:
    """What is said of a product with wrong factors."""
    observed = tcsim.gemm(**given, scale_a=wrong[0], scale_b=wrong[1], instruction=SCALED, arch="sm_120")
    return named(tcsim.diagnose(SCALED, arch="sm_120", **given, scale_a=own, scale_b=other, observed=observed))


def test_scale_factors_of_other_blocks() -> None:
    """Both operands' from the number of the tile; both operands' last ones not applied; both cut to powers of two."""
    given, own, other = scaled()
    at = np.array([0, 0, 0, 0, 1, 5, 2, 1])
    said = asked(given, own, other, own[:, at], other[at])
    assert "scale_a of another block" in said and "scale_b of another block" in said
    assert "K 16-31 are K 0-15, K 32-47 are K 0-15, K 48-79 are K 0-31, K 96-111 are K 32-47" in said
    one = tcsim.encode(1.0, "ue4m3")
    last = np.arange(8) == 7
    said = asked(given, own, other, np.where(last, one, own), np.where(last[:, None], one, other))
    assert "K 112-127 counts as 1" in said
    said = asked(given, own, other, own & 0x78, other & 0x78)
    assert "scale_a and scale_b: fraction dropped" in said
    assert "scale_a and scale_b: rounded up" in asked(given, own, other, (own + 7) & 0x78, (other + 7) & 0x78)


def test_scale_factors_of_other_rows() -> None:
    """In one word of four blocks alone; with the number of the column in their address; with the index of a group that is not multiplied."""
    given, own, other = scaled()
    rows = np.arange(len(own))
    wrong = own.copy()
    wrong[:, 4:] = own[rows ^ 8, 4:]
    said = asked(given, own, other, wrong, other)
    assert "scale_a of another row" in said and "in K 64-127 alone, blocks 4-7" in said
    assert "number 2 m + j is taken from m + j" in asked(given, own, other, own[rows // 2 + rows % 2], other)
    each = [
        tcsim.gemm(**given, scale_a=np.roll(own, -i, axis=0), scale_b=other, instruction=SCALED, arch="sm_120")
        for i in range(4)
    ]
    observed = np.stack([each[j % 4][:, j] for j in range(each[0].shape[1])], axis=1)
    said = named(tcsim.diagnose(SCALED, arch="sm_120", **given, scale_a=own, scale_b=other, observed=observed))
    assert "for column 0, 1, ... of each 4 the factors of the row that is 0, 1, 2, 3 further on" in said


def test_a_part_of_k_that_is_missing_is_no_tiny_factor() -> None:
    """Factors of one word that are read as if of another format, next to zero, would give the same up to rounding."""
    given, own, other = scaled()
    half = tcsim.gemm(given["a"][:, :64], given["b"][:64], scale_a=own[:, :4], scale_b=other[:4], instruction=SCALED, arch="sm_120")  # fmt: skip
    found = tcsim.diagnose(SCALED, arch="sm_120", **given, scale_a=own, scale_b=other, observed=half)
    assert "K block missing" in found.mistake and "scale" not in str(found.explanations[0]), str(found)


def test_scale_factors_that_are_multiplied_in_place() -> None:
    """The second wave of 32 rows has those of the first as well."""
    given, own, other = scaled()
    own &= 0x78
    first, second = tcsim.decode(own, "ue4m3").astype(float).reshape(2, 32, -1)
    wrong = tcsim.encode(np.concatenate([first, first * second]), "ue4m3", saturate=True)
    assert "scale_a multiplied with earlier ones" in asked(given, own, other, wrong, other)


def test_memory_of_the_other_operand() -> None:
    """B is read from A's buffer; outputs that were staged are overwritten by A's codes."""
    a, b = operands(64, 32, 64)
    observed = tcsim.gemm(a, a[:32].T.copy(), instruction=MMA)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "b read from the buffer of a" in said
    observed = tcsim.gemm(a, b, instruction=MMA)
    observed[:8] = np.ascontiguousarray(a[:8]).view(np.uint32)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "output overwritten by a in shared memory (rows 0-7, columns 0-31 hold raw codes of a" in said


def test_rows_of_an_operand_that_the_other_copies_are_no_bytes() -> None:
    """B is the unit matrix: outputs are elements of A, and rows exchanged are no memory overwritten."""
    tf32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    random = np.random.default_rng(0)
    a, b = tcsim.encode(random.standard_normal((32, 32)), "tf32"), tcsim.encode(np.eye(32), "tf32")
    observed = tcsim.gemm(a, b, instruction=tf32, arch="sm_80")[np.arange(32) ^ 8]
    assert "overwritten" not in named(tcsim.diagnose(tf32, arch="sm_80", a=a, b=b, observed=observed))


def test_a_triangle_is_called_one() -> None:
    """What lies right of a diagonal is zero."""
    a, b = operands(32, 48, 32)
    observed = np.where(np.arange(48) > np.arange(32)[:, None], 0, tcsim.gemm(a, b, instruction=MMA))
    assert "the triangle right of the diagonal, column >= row + 1" in named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))  # fmt: skip


def test_a_triangle_that_is_the_other_one_mirrored() -> None:
    """Rows of very different sizes, and a size that is no multiple of the instruction's."""
    a, b = operands(36, 36, 32)
    a = tcsim.encode(tcsim.decode(a, "f16") * 2.0 ** (np.arange(36) % 12)[:, None], "f16")
    right = tcsim.gemm(a, b, instruction=MMA)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=np.where(np.tri(36, dtype=bool), right, right.T)))
    assert "d transposed" in said and "in the triangle right of the diagonal, column >= row + 1" in said


def test_addresses_that_wrap() -> None:
    """The offset of an element of A is kept in 11 bits."""
    a, b = operands(64, 32, 48)
    wrapped = a.reshape(-1)[np.arange(a.size) % 2048].reshape(a.shape)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(wrapped, b, instruction=MMA)))
    assert "a: addresses wrap (begins again every 2048 elements" in said


def test_what_nothing_made_is_not_explained() -> None:
    """Random outputs, and random ones in a tile."""
    a, b = operands(64, 64, 64)
    random = np.random.default_rng(0)
    observed = tcsim.gemm(a, b, instruction=MMA).view(np.float32)
    assert tcsim.diagnose(MMA, a=a, b=b, observed=8 * random.standard_normal((64, 64)).astype(np.float32)).verdict == "not explained"  # fmt: skip
    observed[:32, 32:] = 8 * random.standard_normal((32, 32))
    assert "not explained" in tcsim.diagnose(MMA, a=a, b=b, observed=observed).verdict


def test_a_pitch_and_a_pointer_of_any_size() -> None:
    """Lines that begin elsewhere in memory, along K and across: 27 elements too far apart, 5 too late, and a view's offset of 3 rows added twice."""
    a, b = operands(32, 48, 64)
    memory = np.concatenate([a.reshape(-1), np.zeros(4096, a.dtype)])
    place = np.arange(32)[:, None] * 91 + 5 + K
    place[place >= a.size] = a.size
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(memory[place], b, instruction=MMA)))
    assert "a: pitch wrong (91 elements for 64" in said and "5 too late" in said
    late = np.concatenate([b.reshape(-1)[37:], np.zeros(37, b.dtype)]).reshape(b.shape)
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(a, late, instruction=MMA)))
    assert "b: pointer off (by 37 elements (a line along M or N after another))" in said
    twice = np.concatenate([a[3:], np.zeros((3, 64), a.dtype)])
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=tcsim.gemm(twice, b, instruction=MMA)))
    assert "a: pointer off (by 192 elements (a line of K after another): 3 rows" in said


def tiles_of(right: np.ndarray) -> list[np.ndarray]:
    """Views of the six tiles of 32 x 32 of an output of 64 x 96, numbered along N."""
    return [right[top : top + 32, left : left + 32] for top in (0, 32) for left in (0, 32, 64)]


def test_tiles_that_are_stored_in_the_next_ones_place() -> None:
    """The first tile is never written, the last one is overwritten."""
    a, b = operands(64, 96, 32)
    right = tcsim.gemm(a, b, instruction=MMA)
    observed = np.zeros_like(right)
    for source, place in zip(tiles_of(right)[:-1], tiles_of(observed)[1:], strict=True):
        place[:] = source
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "d: stored at another place (tiles of 32 x 32: 5 of 6 hold the sum of the previous one; rows 0-31" in said


def test_a_part_of_every_tile_that_is_the_one_befores() -> None:
    """The lower rows of each tile are stored before they are written: of the first tile they are zero."""
    a, b = operands(64, 96, 32)
    c = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)
    right = tcsim.gemm(a, b, c, instruction=MMA)
    observed = right.copy()
    for place, source in zip(tiles_of(observed), [0 * right[:32, :32], *tiles_of(right)[:-1]], strict=True):
        place[16:] = source[16:]
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=observed)
    assert found.verdict == "explained" and found.explanations[0].bits, str(found)
    assert "4 of 12 hold the sum of the previous one; rows 16-31, columns 0-31 hold nothing" in str(found)


def test_products_that_are_stored_elsewhere_with_the_c_of_that_place() -> None:
    """Tiles that nobody stores to have no C either: that is no other row of A."""
    a, b = operands(64, 96, 32)
    c = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)
    product = tcsim.gemm(a, b, instruction=MMA).view(np.float32)
    observed = np.zeros_like(c)
    for place, source in ((1, 0), (3, 1), (5, 2), (0, 3), (4, 4)):
        tiles_of(observed)[place][:] = tiles_of(product)[source] + tiles_of(c)[place]
    found = tcsim.diagnose(MMA, a=a, b=b, c=c, observed=observed)
    assert (found.verdict, found.mistake) == ("explained", "d: stored at another place"), str(found)
    assert "rows 0-31, columns 64-95 hold nothing" in str(found) and "c is read there too" in str(found)


def test_tiles_that_add_the_c_of_the_one_before() -> None:
    """All but the first: the prefetched C is a tile late."""
    a, b = operands(64, 96, 32)
    c = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)
    late = c.copy()
    for place, source in zip(tiles_of(late)[1:], tiles_of(c)[:-1], strict=True):
        place[:] = source
    said = named(tcsim.diagnose(MMA, a=a, b=b, c=c, observed=tcsim.gemm(a, b, late, instruction=MMA)))
    assert "c of another block (tiles of 32 x 32: 5 of 6 hold the c of the previous one, numbered along N)" in said


def test_slices_of_another_tile_and_accumulators_that_are_kept() -> None:
    """Split-K adds the next tile's second slice; a kernel clears its accumulators for all tiles but two. The numbers are exact."""
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, shape).astype(np.int8).view(np.uint8) for shape in ((64, 64), (64, 96)))
    first, second = (tcsim.gemm(a[:, k], b[k], instruction=INTEGER).view(np.int32) for k in (K[:32], K[32:]))
    observed = first.copy()
    for place, source in zip(tiles_of(observed), [*tiles_of(second)[1:], tiles_of(second)[0]], strict=True):
        place += source
    said = named(tcsim.diagnose(INTEGER, a=a, b=b, observed=observed.view(np.uint32)))
    assert "sums of another tile" in said and "5 of 6 hold its sum without K 32-63 plus K 32-63 of the next one" in said
    observed = first + second
    for number, earlier in ((1, 3), (4, 2)):
        tiles_of(observed)[number][:] += tiles_of(first + second)[earlier]
    said = named(tcsim.diagnose(INTEGER, a=a, b=b, observed=observed.view(np.uint32)))
    assert (
        "accumulators not cleared between output tiles" in said
        and "go on from those of rows 0-31, columns 64-95" in said
    )


def test_a_store_at_another_address_and_a_staging_tile_of_two_pitches() -> None:
    """Outputs 5 elements late; tiles of 32 x 32 written to shared memory with 40 elements from row to row, and read with 36."""
    a, b = operands(64, 96, 32)
    right = tcsim.gemm(a, b, instruction=MMA)
    late = np.concatenate([np.zeros(5, right.dtype), right.reshape(-1)[:-5]]).reshape(right.shape)
    assert "d: pointer off (by 5 elements" in named(tcsim.diagnose(MMA, a=a, b=b, observed=late))
    row, column, observed = np.arange(32)[:, None], np.arange(32), right.copy()
    for place in tiles_of(observed):
        staged = np.zeros(32 * 40, right.dtype)
        staged[row * 40 + column] = place
        place[:] = staged[row * 36 + column]
    said = named(tcsim.diagnose(MMA, a=a, b=b, observed=observed))
    assert "d: pitch of the staging tile in shared memory wrong (tiles of 32 x 32 are written with 40 elements" in said
