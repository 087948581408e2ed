// Block-scaled mma.sync m16n8 with 32 bytes of K, in double. A row's factors are those of one lane of its four, which the thread id names.
#pragma once
#include "elements.h"

template <u32 BYTE, u32 THREAD_A, u32 THREAD_B>
void mma_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 scale_a, u32 scale_b) {
    struct Fragment {
        u32 a[4], b[2], scale_a, scale_b;
    } mine;
    std::copy(a, a + 4, mine.a);
    std::copy(b, b + 2, mine.b);
    mine.scale_a = scale_a, mine.scale_b = scale_b;
    const auto all = gather(mine);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        const u32 row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        const u8* factors_a = reinterpret_cast<const u8*>(&all[row % 8 * 4 + 2 * THREAD_A + row / 8].scale_a) + BYTE;
        const u8* factors_b = reinterpret_cast<const u8*>(&all[column * 4 + THREAD_B].scale_b) + BYTE;
        double sum = d[i];
        for (u32 k = 0; k < 256 / ELEMENT_BITS; ++k) {
            const u32 byte = k * ELEMENT_BITS / 8, h = byte / 16, lane_byte = byte % 16;
            const u8* left = reinterpret_cast<const u8*>(&all[row % 8 * 4 + lane_byte / 4].a[row / 8 + 2 * h]) + lane_byte % 4;
            const u8* right = reinterpret_cast<const u8*>(&all[column * 4 + lane_byte / 4].b[h]) + lane_byte % 4;
            const double product = element_of<FORMAT_A>(left, k) * element_of<FORMAT_B>(right, k);
            sum += product * element_of<SCALE_FORMAT>(factors_a + k / SCALE_RUN, 0) * element_of<SCALE_FORMAT>(factors_b + k / SCALE_RUN, 0);
        }
        d[i] = static_cast<float>(sum);
    }
}
