// The multiplications, in double: exact for the small whole numbers of the tests. STYLE says which the kernel uses.
#pragma once
#ifdef OUT_S32
using accumulator_t = int;
#else
using accumulator_t = float;
#endif

#if SPARSE
// The row of B that kept element j of a row (of 16) meets, as the metadata words of a warp say. Only what every instruction allows.
inline u32 met(const std::vector<u32>& words, u32 row, u32 j, u32 selector) {
    const u32 group = ELEMENT_BYTES == 4 ? j : j / 2, quad = 4 * (row % 8);
#if ELEMENT_BYTES == 1
    NEED(selector == 0, "8-bit elements have no selector but 0");
    const u32 bits = words[quad + row / 8 + group / 8 * 2] >> 4 * (group % 8) & 15;
#else
    NEED(selector < 2, "a selector that the hardware does not run");
    const u32 bits = words[quad + 2 * selector + group / 4] >> (row / 8 * 16 + 4 * (group % 4)) & 15;
#endif
    const u32 first = bits & 3, second = bits >> 2;
    if (ELEMENT_BYTES == 4) {
        NEED(bits == 4 || bits == 14, "undefined metadata");
        return 2 * group + first / 2;
    }
    NEED(first < second, "undefined metadata");
    return 4 * group + (j % 2 ? second : first);
}
#endif

#if STYLE_WGMMA
// Reads shared memory through the descriptors' start, LBO and SBO, with the 128B swizzle.
inline void wgmma(accumulator_t (&d)[BLOCK_N / 2], u64 a, u64 b, bool scale_d) {
    accumulator_t* const out = d;
    const u32 thread = threadIdx.x % 128;
    multiplications.open.push_back([=] {
        auto value = [](u64 descriptor, u32 mn, u32 k, bool mn_major) {
            const u32 start = (descriptor & 0x3fff) << 4, lbo = (descriptor >> 16 & 0x3fff) << 4, sbo = (descriptor >> 32 & 0x3fff) << 4;
            NEED(descriptor >> 62 == 1, "not the 128B swizzle");
            const u32 offset = mn_major ? mn % 8 * 2 + mn / 8 % 8 * 16 + mn / 64 * lbo + k % 8 * 128 + k / 8 * sbo
                                        : mn % 8 * 128 + mn / 8 * sbo + k * ELEMENT_BYTES;
            return element(memory(swizzle(start + offset)));
        };
        for (u32 i = 0; i < BLOCK_N / 2; ++i) {
            const u32 row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            double sum = scale_d ? out[i] : 0;
            for (u32 k = 0; k < 32 / ELEMENT_BYTES; ++k) sum += value(a, row, k, A_MN_MAJOR) * value(b, column, k, B_MN_MAJOR);
            out[i] = static_cast<accumulator_t>(sum);
        }
    });
}
#elif STYLE_WGMMA_SPARSE
// A: rows of 64 bytes, 64B swizzle; B: as above, with twice the K.
template <u32 SELECTOR>
inline void wgmma_sparse(accumulator_t (&d)[BLOCK_N / 2], u64 a, u64 b, u32 metadata, bool scale_d) {
    accumulator_t* const out = d;
    const u32 thread = threadIdx.x % 128;
    const auto words = gather(metadata);
    multiplications.open.push_back([=] {
        auto value = [](u64 descriptor, u32 mn, u32 k, u32 span, bool mn_major) {
            const u32 start = (descriptor & 0x3fff) << 4, lbo = (descriptor >> 16 & 0x3fff) << 4, sbo = (descriptor >> 32 & 0x3fff) << 4;
            NEED(descriptor >> 62 == (span == 128 ? 1 : 2), "not this operand's swizzle");
            const u32 offset = mn_major ? mn % 8 * 2 + mn / 8 % 8 * 16 + mn / 64 * lbo + k % 8 * 128 + k / 8 * sbo
                                        : mn % 8 * span + mn / 8 * sbo + k * ELEMENT_BYTES;
            return element(memory(swizzle(start + offset, span)));
        };
        for (u32 i = 0; i < BLOCK_N / 2; ++i) {
            const u32 row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            double sum = scale_d ? out[i] : 0;
            for (u32 j = 0; j < 32 / ELEMENT_BYTES; ++j) {
                sum += value(a, row, j, 64, false) * value(b, column, met(words, row % 16, j, SELECTOR), 128, B_MN_MAJOR);
            }
            out[i] = static_cast<accumulator_t>(sum);
        }
    });
}
#elif STYLE_MMA_SPARSE
// m16n8 with 64 bytes of K: the fragments of A are those of 32 bytes, register h of B holds bytes 16 h + 4 (lane % 4) ...
template <u32 SELECTOR>
inline void mma_sparse(accumulator_t (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 metadata) {
    struct Fragment {
        u32 a[4], b[4];
    } mine;
    std::copy(a, a + 4, mine.a);
    std::copy(b, b + 4, mine.b);
    const auto all = gather(mine);
    const auto words = gather(metadata);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = d[i];
        for (u32 j = 0; j < 32 / ELEMENT_BYTES; ++j) {
            const u32 from = j * ELEMENT_BYTES, to = met(words, row, j, SELECTOR) * ELEMENT_BYTES;
            const u8* left = reinterpret_cast<const u8*>(&all[row % 8 * 4 + from % 16 / 4].a[row / 8 + 2 * (from / 16)]) + from % 4;
            const u8* right = reinterpret_cast<const u8*>(&all[column * 4 + to % 16 / 4].b[to / 16]) + to % 4;
            sum += element(left) * element(right);
        }
        d[i] = static_cast<accumulator_t>(sum);
    }
}
#elif STYLE_QUAD_PAIRS
inline void mma(accumulator_t (&d)[8], const u32* a, const u32* b) {
    struct Fragment {
        u32 a[2], b[2];
    };
    const auto all = gather(Fragment{{a[0], a[1]}, {b[0], b[1]}});
    const u32 lane = threadIdx.x % 32, pair = lane / 4 % 4;
    auto holder = [&](u32 row) { return pair * 4 + row % 4 + row / 4 * 16; };
    for (u32 i = 0; i < 8; ++i) {
        const u32 row = (lane & 1) + (i & 2) + (lane < 16 ? 0 : 4), column = (i & 4) + (lane & 2) + (i & 1);
        double sum = d[i];
        for (u32 k = 0; k < 4; ++k) {
            sum += element(reinterpret_cast<const u16*>(all[holder(row)].a) + k) * element(reinterpret_cast<const u16*>(all[holder(column)].b) + k);
        }
        d[i] = static_cast<accumulator_t>(sum);
    }
}
#elif STYLE_MMA
// m16n8 with K_BYTES of K: register h of a row holds bytes 16 h + 4 (lane % 4) ...
inline void mma(accumulator_t (&d)[4], const u32* a, const u32* b) {
    constexpr u32 CHUNKS = K_BYTES / 16;
    struct Fragment {
        u32 a[2 * CHUNKS], b[CHUNKS];
    } mine;
    std::copy(a, a + 2 * CHUNKS, mine.a);
    std::copy(b, b + CHUNKS, mine.b);
    const auto all = gather(mine);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = d[i];
        for (u32 h = 0; h < CHUNKS; ++h) {
            for (u32 byte = 0; byte < 16; byte += ELEMENT_BYTES) {
                const u8* left = reinterpret_cast<const u8*>(&all[row % 8 * 4 + byte / 4].a[row / 8 + 2 * h]) + byte % 4;
                const u8* right = reinterpret_cast<const u8*>(&all[column * 4 + byte / 4].b[h]) + byte % 4;
                sum += element(left) * element(right);
            }
        }
        d[i] = static_cast<accumulator_t>(sum);
    }
}
#elif STYLE_WMMA
// Fragments of a layout of their own (the manual promises none): lane l holds 8 elements of row l % 16, from 8 (l / 16) on.
constexpr u32 FRAGMENT = 8;
inline void load_fragment_of(u32 (&to)[8], const u8* from, u32 stride, bool across) {
    NEED(stride % 8 == 0, "a stride that wmma.load does not take");
    std::fill(to, to + 8, 0);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 8; ++i) {
        const u32 row = lane % 16, k = lane / 16 * 8 + i;
        u16 code;
        std::memcpy(&code, from + 2 * (across ? k * stride + row : row * stride + k), 2);
        to[i / 2] |= static_cast<u32>(code) << 16 * (i % 2);
    }
}
inline void check_alignment(u64 address) { NEED(address % 32 == 0, "an address that wmma does not take"); }
inline void load_a(u32 (&to)[8], const u16* from, u32 stride) {
    check_alignment(reinterpret_cast<u64>(from));
    load_fragment_of(to, reinterpret_cast<const u8*>(from), stride, A_MN_MAJOR);
}
inline void load_b(u32 (&to)[8], const u16* from, u32 stride) {
    check_alignment(reinterpret_cast<u64>(from));
    load_fragment_of(to, reinterpret_cast<const u8*>(from), stride, B_MN_MAJOR);
}
inline void load_a_shared(u32 (&to)[8], u32 from, u32 stride) {
    check_alignment(from);
    load_fragment_of(to, memory(from), stride, A_MN_MAJOR);
}
inline void load_b_shared(u32 (&to)[8], u32 from, u32 stride) {
    check_alignment(from);
    load_fragment_of(to, memory(from), stride, B_MN_MAJOR);
}
inline void mma(accumulator_t (&d)[8], const u32 (&a)[8], const u32 (&b)[8]) {
    struct Fragment {
        u32 a[4], b[4];
    } mine;
    std::copy(a, a + 4, mine.a);
    std::copy(b, b + 4, mine.b);
    const auto all = gather(mine);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 8; ++i) {
        double sum = d[i];
        for (u32 k = 0; k < 16; ++k) {
            const u16* left = reinterpret_cast<const u16*>(all[lane % 16 + k / 8 * 16].a);
            const u16* right = reinterpret_cast<const u16*>(all[lane / 16 * 8 + i + k / 8 * 16].b);
            sum += element(left + k % 8) * element(right + k % 8);
        }
        d[i] = static_cast<accumulator_t>(sum);
    }
}
inline void store_d_shared(u32 to, const accumulator_t (&d)[8], u32 stride) {
    check_alignment(to);
    NEED(stride % 4 == 0, "a stride that wmma.store does not take");
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 8; ++i) std::memcpy(memory(to + 4 * (lane % 16 * stride + lane / 16 * 8 + i)), &d[i], 4);
}
#endif
