"""Kernels that work on rows: softmax, layer norm and its gradients, cross-entropy, dropout, quantisation, sort, scans, histograms."""

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, stride, BLOCK: tl.constexpr):
    """Each program does rows in steps of the grid."""
    for row in tl.range(tl.program_id(0), 6, tl.num_programs(0), num_stages=2):
        at = tl.arange(0, BLOCK)
        values = tl.load(x + row * stride + at, at < columns, -float("inf")).to(tl.float32)
        e = tl.exp(values - tl.max(values, 0))
        tl.store(y + row * stride + at, (e / tl.sum(e, 0)).to(y.dtype.element_ty), at < columns)


@triton.jit
def layer_norm(x, weight, bias, y, mean, rstd, columns, eps, BLOCK: tl.constexpr):
    """A row a program, in pieces: mean, variance, then the result."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    centre = tl.sum(total, 0) / columns
    square = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        part = tl.where(at < columns, tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32) - centre, 0.0)
        square += part * part
    inverse = 1 / tl.sqrt(tl.sum(square, 0) / columns + eps)
    tl.store(mean + row, centre)
    tl.store(rstd + row, inverse)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        part = (tl.load(x + row * columns + at, inside, 0.0).to(tl.float32) - centre) * inverse
        tl.store(
            y + row * columns + at,
            (part * tl.load(weight + at, inside) + tl.load(bias + at, inside)).to(y.dtype.element_ty),
            inside,
        )


@triton.jit
def layer_norm_backward(dy, x, weight, mean, rstd, dx, dweight, dbias, lock, columns, BLOCK: tl.constexpr):
    """Gradients: dx of a row, and those of the parameters added up under a lock."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    gradient = tl.load(dy + row * columns + at, inside, 0.0).to(tl.float32)
    inverse = tl.load(rstd + row)
    normal = (tl.load(x + row * columns + at, inside, 0.0).to(tl.float32) - tl.load(mean + row)) * inverse
    normal = tl.where(inside, normal, 0.0)
    scaled = tl.load(weight + at, inside, 0.0) * gradient
    first, second = tl.sum(normal * scaled, 0) / columns, tl.sum(scaled, 0) / columns
    tl.store(dx + row * columns + at, ((scaled - (normal * first + second)) * inverse).to(dx.dtype.element_ty), inside)
    while tl.atomic_cas(lock, row, row) != row:  # the rows come in order, so that the sums have one order
        pass
    tl.store(dweight + at, tl.load(dweight + at, inside) + gradient * normal, inside)
    tl.store(dbias + at, tl.load(dbias + at, inside) + gradient, inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, row + 1)


@triton.jit
def cross_entropy(logits, labels, loss, dlogits, columns, BLOCK: tl.constexpr):
    """Loss of a row and its gradient; a label below 0 is ignored."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(logits + row * columns + at, inside, -float("inf")).to(tl.float32)
    label = tl.load(labels + row)
    top = tl.max(values, 0)
    e = tl.exp(values - top)
    total = tl.sum(e, 0)
    own = tl.sum(tl.where(at == label, values, 0.0), 0)
    tl.store(loss + row, tl.where(label < 0, 0.0, tl.log(total) + top - own))
    gradient = tl.where(label < 0, 0.0, e / total - tl.where(at == label, 1.0, 0.0))
    tl.store(dlogits + row * columns + at, gradient, inside)


@triton.jit
def dropout(x, y, n, p, seed, BLOCK: tl.constexpr):
    """Philox numbers decide what is kept."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, at) > p
    tl.store(y + at, tl.where(kept, tl.load(x + at, at < n, 0.0) / (1 - p), 0.0), at < n)


@triton.jit
def quantize_fp8(x, q, scales, columns, BLOCK: tl.constexpr):
    """A scale for each row, so that its largest number becomes 448."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), 0), 1e-10) / 448.0
    tl.store(scales + row, scale)
    tl.store(q + row * columns + at, (values / scale).to(tl.float8e4nv), at < columns)


@triton.jit
def quantize_mx(x, q, scales, BLOCKS: tl.constexpr):
    """A power of two for each 32 numbers (the OCP's floor), e5m2 elements."""
    at = tl.program_id(0) * BLOCKS * 32 + tl.arange(0, BLOCKS * 32)
    values = tl.reshape(tl.load(x + at).to(tl.float32), (BLOCKS, 32))
    top = tl.max(tl.abs(values), 1)
    exponent = ((top.to(tl.int32, bitcast=True) >> 23) & 255) - 15  # the largest power of two of e5m2 is 2**15
    exponent = tl.maximum(tl.minimum(exponent, 254), 1)
    tl.store(scales + tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS), exponent.to(tl.uint8))
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    scaled = tl.clamp(values * inverse[:, None], -57344.0, 57344.0)
    tl.store(q + at, tl.reshape(scaled, (BLOCKS * 32,)).to(tl.float8e5))


@triton.jit
def quantize_nvfp4(x, q, scales, overall, BLOCKS: tl.constexpr):
    """An e4m3 scale for each 16 numbers; elements of 4 bits by comparison with the midpoints, ties to even codes."""
    at = tl.program_id(0) * BLOCKS * 16 + tl.arange(0, BLOCKS * 16)
    values = tl.reshape(tl.load(x + at), (BLOCKS, 16))
    whole = tl.load(overall)
    scale = tl.minimum(tl.max(tl.abs(values), 1) / 6.0 * whole, 448.0).to(tl.float8e4nv)
    tl.store(scales + tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS), scale)
    divided = values * whole / tl.maximum(scale.to(tl.float32), 1e-8)[:, None]
    size = tl.abs(divided)
    code = (
        (size > 0.25).to(tl.int32)
        + (size >= 0.75).to(tl.int32)
        + (size > 1.25).to(tl.int32)
        + (size >= 1.75).to(tl.int32)
    )
    code += (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32) + (size > 5.0).to(tl.int32)
    code = code | tl.where(divided < 0, 8, 0)
    low, high = tl.split(tl.reshape(code, (BLOCKS, 8, 2)))
    packed = (low | high << 4).to(tl.uint8)
    tl.store(q + tl.program_id(0) * BLOCKS * 8 + tl.arange(0, BLOCKS * 8), tl.reshape(packed, (BLOCKS * 8,)))


@triton.jit
def sort(x, y, top, COLUMNS: tl.constexpr):
    """Rows in descending order, and the four largest of each."""
    row, at = tl.program_id(0), tl.arange(0, COLUMNS)
    values = tl.load(x + row * COLUMNS + at)
    tl.store(y + row * COLUMNS + at, tl.sort(values, descending=True))
    tl.store(top + row * 4 + tl.arange(0, 4), tl.topk(values, 4))


@triton.jit
def _combine(a, x, b, y):
    return a * b, b * x + y


@triton.jit
def scans(gate, token, state, sums, products, back, LENGTH: tl.constexpr, WIDTH: tl.constexpr):
    """A linear recurrence as an associative scan; sums and products along an axis, one of them backwards."""
    at = tl.arange(0, LENGTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    a, x = tl.load(gate + at), tl.load(token + at)
    _, y = tl.associative_scan((a, x), 0, _combine)
    tl.store(state + at, y)
    tl.store(sums + at, tl.cumsum(x, 0))
    tl.store(products + at, tl.cumprod(a, 1))
    tl.store(back + at, tl.cumsum(x, 1, reverse=True))


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """Each program counts its part and adds it to the grid's."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, at < n, 0), BINS, mask=at < n)
    tl.atomic_add(bins + tl.arange(0, BINS), counts)


@triton.jit
def argmax_and_gather(x, index, where, largest, taken, COLUMNS: tl.constexpr):
    """Reductions that return places, and a gather along the row."""
    row, at = tl.program_id(0), tl.arange(0, COLUMNS)
    values = tl.load(x + row * COLUMNS + at)
    top, place = tl.max(values, 0, return_indices=True)
    tl.store(where + row * 2, place)
    tl.store(where + row * 2 + 1, tl.argmin(values, 0))
    tl.store(largest + row, top)
    tl.store(taken + row * COLUMNS + at, tl.gather(values, tl.load(index + row * COLUMNS + at), 0))


@triton.jit
def activations(x, gate, y, n, BLOCK: tl.constexpr):
    """gelu(x) * sigmoid(gate) + silu(gate) with the functions that Triton has."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, g = tl.load(x + at, at < n, 0.0).to(tl.float32), tl.load(gate + at, at < n, 0.0).to(tl.float32)
    gelu = 0.5 * a * (1 + tl.erf(a * 0.7071067811865476))
    result = (
        gelu * tl.sigmoid(g)
        + g / (1 + tl.exp(-g))
        + tl.sin(a) * tl.cos(g)
        + tl.rsqrt(tl.abs(a) + 1)
        + tl.exp2(g)
        - tl.log2(tl.abs(g) + 1)
    )
    tl.store(y + at, result.to(y.dtype.element_ty), at < n)


@triton.jit
def atomics(x, slots, values, out, n, BLOCK: tl.constexpr):
    """Atomics of every kind on places that each thread chooses; sums are of whole numbers."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside, slot = at < n, tl.load(slots + at, at < n, 0)
    value = tl.load(x + at, inside, 0)
    tl.atomic_add(out + slot, value, inside)
    tl.atomic_max(out + 16 + slot, value, inside)
    tl.atomic_min(out + 32 + slot, value, inside)
    tl.atomic_xor(out + 48 + slot, value, inside)
    tl.atomic_or(out + 64 + slot, value, inside, sem="release")
    tl.atomic_and(out + 80 + slot, value, inside, scope="cta")
    tl.atomic_add(values + slot, value.to(tl.float32), inside)
