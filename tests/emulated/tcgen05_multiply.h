// tcgen05.mma and tcgen05.cp, in double: exact for the small whole numbers of the tests. Behind the constants that the kernel is compiled with.
#pragma once
#include "elements.h"
#include "tcgen05.h"

// Bytes of a K-major or MN-major tile with the 128B swizzle, as a descriptor of sm_100 says (PTX ISA, tcgen05 matrix descriptors).
struct OperandTile {
    u32 start, lbo, sbo;
    bool mn_major;
    OperandTile(u64 descriptor, bool mn) : start((descriptor & 0x3fff) << 4), lbo((descriptor >> 16 & 0x3fff) << 4), sbo((descriptor >> 32 & 0x3fff) << 4), mn_major(mn) {
        NEED(descriptor >> 61 == 2, "not the 128B swizzle");
        NEED((descriptor >> 46 & 3) == 1 && (descriptor >> 49 & 15) == 0, "not a descriptor of sm_100 whose tile begins with the swizzle");
    }
    u32 byte(u32 mn, u32 k_byte) const {  // MN-major elements have two bytes
        const u32 k = k_byte / 2;
        return swizzle(start + (mn_major ? mn % 8 * 2 + mn / 8 % 8 * 16 + mn / 64 * lbo + k % 8 * 128 + k / 8 * sbo
                                         : mn % 8 * 128 + mn / 8 * sbo + k_byte));
    }
};

constexpr u32 STEP_K = 32 * 8 / ELEMENT_BITS;  // elements of K

template <u32 FORMAT, typename Scale>
void load_tile(std::vector<double>& to, Block* from, const OperandTile& tile, u32 rows, Scale scale) {
    for (u32 row = 0; row < rows; ++row) {
        for (u32 k = 0; k < STEP_K; ++k) {
            to.push_back(element_of<FORMAT>(memory(from, tile.byte(row, k * ELEMENT_BITS / 8)), k) * scale(row, k));
        }
    }
}

// `scale` gives the factor of a row of A, or a column of B, and K.
template <typename ScaleA, typename ScaleB>
void multiply_late(u32 d, u64 a, u64 b, u32 descriptor, bool accumulate, ScaleA scale_a, ScaleB scale_b) {
    NEED(std::count(std::begin(INSTRUCTION_DESCRIPTOR), std::end(INSTRUCTION_DESCRIPTOR), descriptor), "not an instruction descriptor of this build");
    NEED(MMA_M == 128 * cluster.size(), "rows that are not those of the blocks");
    const std::vector<Block*> blocks = cluster;
    issue([=] {
        std::vector<double> left, right;
        for (Block* from : blocks) load_tile<FORMAT_A>(left, from, OperandTile(a, A_MN_MAJOR), 128, scale_a);
        for (Block* from : blocks) load_tile<FORMAT_B>(right, from, OperandTile(b, B_MN_MAJOR), MMA_N / blocks.size(), scale_b);
        for (u32 row = 0; row < MMA_M; ++row) {
            TensorMemory& to = tensor_memory(blocks[row / 128]);
            for (u32 column = 0; column < MMA_N; ++column) {
                u32& word = to.at(row % 128, d + column);
#ifdef OUT_S32
                double sum = accumulate ? static_cast<s32>(word) : 0;
#else
                double sum = accumulate ? __uint_as_float(word) : 0;
#endif
                for (u32 k = 0; k < STEP_K; ++k) sum += left[row * STEP_K + k] * right[column * STEP_K + k];
#ifdef OUT_S32
                word = static_cast<u32>(static_cast<s32>(sum));
#else
                word = __builtin_bit_cast(u32, static_cast<float>(sum));
#endif
            }
        }
    });
}

#ifndef SCALE_FORMAT
inline void tcgen05_mma(u32 d, u64 a, u64 b, u32 descriptor, bool accumulate) {
    const auto one = [](u32, u32) { return 1.0; };
    multiply_late(d, a, b, descriptor, accumulate, one, one);
}
#else
// The factor of a row: word `row / 32` of its 128 rows' columns, lane `row % 32` of every quarter; its byte: the scale id, counted on along K.
inline double factor_at(Block* owner, u32 columns, u32 row, u32 byte) {
    TensorMemory& memory = tensor_memory(owner);
    NEED(byte < 4, "a scale factor beyond its word");
    const u32 column = columns + row / 128 * 4 + row % 128 / 32, word = memory.at(row % 32, column);
    for (u32 quarter = 1; quarter < 4; ++quarter) {
        NEED(memory.at(32 * quarter + row % 32, column) == word, "scale factors that are not in all four quarters");
    }
    return element_of<SCALE_FORMAT>(reinterpret_cast<const u8*>(&word) + byte, 0);
}
inline void tcgen05_mma(u32 d, u64 a, u64 b, u32 descriptor, u32 scale_a, u32 scale_b, bool accumulate) {
    Block* owner = block;
    u32 step = 0;  // which of the descriptors: its scale ids. Equal descriptors have equal ones
    while (step + 1 < K_STEPS && INSTRUCTION_DESCRIPTOR[step] != descriptor) ++step;
    multiply_late(d, a, b, descriptor, accumulate,
                  [=](u32 row, u32 k) { return factor_at(owner, scale_a, row, SCALE_ID_A[step] + k / SCALE_RUN); },
                  [=](u32 row, u32 k) { return factor_at(owner, scale_b, row, SCALE_ID_B[step] + k / SCALE_RUN); });
}
// 32 rows of 16 bytes without a swizzle to four columns, the same in every quarter of the lanes.
inline void tcgen05_copy(u32 to, u64 from) {
    Block* owner = block;
    NEED(from >> 61 == 0 && (from >> 46 & 3) == 1, "not a descriptor of sm_100 without a swizzle");
    issue([=] {
        const u32 start = (from & 0x3fff) << 4, sbo = (from >> 32 & 0x3fff) << 4;
        for (u32 row = 0; row < 32; ++row) {
            u32 words[4];
            std::memcpy(words, memory(owner, start + row / 8 * sbo + row % 8 * 16), 16);
            for (u32 lane = row; lane < LANES; lane += 32) {
                for (u32 i = 0; i < 4; ++i) tensor_memory(owner).at(lane, to + i) = words[i];
            }
        }
    });
}
#endif
