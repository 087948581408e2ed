// sm100_mxfp8, sm100_mxfp4, sm100_nvfp4: sm100_tcgen05_basic with a scale factor for every 32 or 16 elements of K.
//
// tcgen05.mma.block_scale takes its scale factors from Tensor Memory. The host lays them out in global memory in blocks of
// 512 bytes as tcgen05.cp wants them: 128 rows and four factors along K, 16 bytes for each of 32 lanes. A slot has
// SCALE_BLOCKS of them for each 128 rows of A and of B. The multiplying thread copies them to the slot's own columns of
// Tensor Memory; copies and multiplications of one thread and one cta_group run in the order of issue, so that no barrier
// lies between, and the slot's columns are written again only after a commit said that its multiplications are done.
#include "tcgen05_ring.cuh"  // with multiply.cuh: tcgen05_mma with scale factors, tcgen05_copy, descriptors, scale factor columns
#include "tma_operands.cuh"
#include "tmem_rows.cuh"

constexpr u32 THREADS = 128;
constexpr u32 SCALE_BLOCK = 512;                                 // bytes: 128 rows, four factors of each
constexpr u32 GROUPS_B = BLOCK_N / 128;                          // of 128 columns of B
constexpr u32 RUN = SCALE_BLOCKS * SCALE_BLOCK;                  // bytes of 128 rows in a slot
constexpr u32 SCALES = (1 + GROUPS_B) * RUN;                     // bytes of a slot's scale factors: A's, then B's
constexpr u32 COLUMNS_A = 4 * SCALE_BLOCKS, COLUMNS = (1 + GROUPS_B) * COLUMNS_A;  // of Tensor Memory, a slot's
static_assert(BLOCK_M == 128 && BLOCK_N % 128 == 0, "whole blocks of scale factors");
static_assert(TMEM_COLUMNS >= BLOCK_N + STAGES * COLUMNS, "the accumulator and the scale factors of all slots");

struct ScaleFactors {  // what scaled_operands.py packs
    const u8* a;       // blocks of 512 bytes, those along K neighbours, then the next 128 rows
    const u8* b;
    s64 pitch;  // bytes from 128 rows to the next 128
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gemm(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
         const __grid_constant__ TensorMap, const __grid_constant__ Problem problem,
         const __grid_constant__ ScaleFactors factors) {
    extern __shared__ u8 dynamic[];
    const Ring ring = ring_in<SLOT + SCALES>(dynamic);  // operands of all slots, then scale factors of all slots
    const u32 scales = ring.slots + STAGES * SLOT, done = ring.behind, place = done + 8;
    const s32 m = blockIdx.y * BLOCK_M, n = blockIdx.x * BLOCK_N;
    const u32 steps = (problem.k + SLOT_K - 1) / SLOT_K;
    const u32 warp = uniform_warp();

    if (threadIdx.x == 0) {
        mbarrier_init(done, 1);
        ring_init(ring, &map_a, &map_b);
    }
    const u32 accumulator = open_tensor_memory<1>(place, warp == 1);

    if (warp == 0 && elect_one()) {
        Cursor slot = {0, 1};
        for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
            mbarrier_wait(ring.empty + 8 * slot.place, slot.parity);
            const u32 to = ring.slots + slot.place * SLOT, barrier = ring.full + 8 * slot.place;
            mbarrier_expect(barrier, SLOT + SCALES);
            tma_load(to, &map_a, step * SPAN, m, barrier);  // the maps count bytes: elements are packed
            tma_load(to + A_BYTES, &map_b, step * SPAN, n, barrier);
            const u32 to_scales = scales + slot.place * SCALES;
            const s64 from = s64(step) * RUN;
            bulk_load(to_scales, factors.a + blockIdx.y * factors.pitch + from, RUN, barrier);
#pragma unroll
            for (u32 group = 0; group < GROUPS_B; ++group) {
                bulk_load(to_scales + (1 + group) * RUN, factors.b + (blockIdx.x * GROUPS_B + group) * factors.pitch + from, RUN,
                          barrier);
            }
        }
    } else if (warp == 1 && elect_one()) {
        Cursor slot = {0, 0};
        for (u32 step = 0; step < steps; ++step, slot.advance<STAGES>()) {
            mbarrier_wait(ring.full + 8 * slot.place, slot.parity);
            tcgen05_after_sync();
            const u32 scale_a = accumulator + BLOCK_N + slot.place * COLUMNS, scale_b = scale_a + COLUMNS_A;
            const u64 from = DESCRIPTOR_SCALES + address_field(scales + slot.place * SCALES);
#pragma unroll
            for (u32 block = 0; block < SCALE_BLOCKS; ++block) {  // of four factors along K
                tcgen05_copy(scale_a + 4 * block, from + (block * SCALE_BLOCK >> 4));
#pragma unroll
                for (u32 group = 0; group < GROUPS_B; ++group) {
                    tcgen05_copy(scale_b + 4 * (block * GROUPS_B + group), from + ((1 + group) * RUN + block * SCALE_BLOCK >> 4));
                }
            }
            const u64 at = address_field(ring.slots + slot.place * SLOT);
#pragma unroll
            for (u32 j = 0; j < K_STEPS; ++j) {
                tcgen05_mma(accumulator, DESCRIPTOR_A + at + ADVANCE_A[j], DESCRIPTOR_B + at + ADVANCE_B[j],
                            INSTRUCTION_DESCRIPTOR[j], scale_a + SCALE_COLUMN_A[j], scale_b + SCALE_COLUMN_B[j],
                            step > 0 || j > 0);
            }
            if (step + STAGES < steps) tcgen05_commit(ring.empty + 8 * slot.place);  // later slots are not filled again
        }
        tcgen05_commit(done);
    }
    mbarrier_wait(done, 0);
    tcgen05_after_sync();
    store_tmem_rows(problem, accumulator, m, n);
    close_tensor_memory<1>(accumulator, warp == 1);
}
