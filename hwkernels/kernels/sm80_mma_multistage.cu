// sm80_mma_multistage: mma.sync of 16 x 8 and 32 bytes of K, fed by ldmatrix from a ring that cp.async fills. 8 warps a tile.
//
//   - A slot holds 128 bytes of K of every row; 16-byte chunks are swizzled with the row's number, so that neither cp.async
//     nor ldmatrix meets a bank conflict.
//   - STAGES - 1 slots are on their way while one is multiplied; one barrier a slot.
//   - Tiles without an edge take a copy of the loop that asks for nothing but whole chunks.
//   - Outputs leave through shared memory, 16 bytes at a time.
//   - The fragments of the next 32 bytes are loaded before the present ones are multiplied, across slots too (K-major).
//
// The same file for f16, bf16, tf32, s8 (sm_80) and e4m3, e5m2 (sm_89): the fragments of all of them are the same bytes.
// MN-major operands (16 bits) lie in panels of 64 of M or N x 64 of K and are turned by ldmatrix.trans.
#include "ptx.cuh"
#include "multiply.cuh"  // mma(d, a, b) of the operands' formats; accumulator_t
#include "epilogue.cuh"
#include "tiles.cuh"
#include "warp.cuh"
#include "warp_store.cuh"

constexpr u32 THREADS = 256;
constexpr u32 WARPS_M = 2, WARPS_N = 4;
constexpr u32 WARP_M = BLOCK_M / WARPS_M, WARP_N = BLOCK_N / WARPS_N;
constexpr u32 TILES_M = WARP_M / 16, TILES_N = WARP_N / 8;
constexpr u32 A_BYTES = BLOCK_M * SPAN, SLOT = (BLOCK_M + BLOCK_N) * SPAN;
constexpr u32 BLOCK_K = SPAN / ELEMENT_BYTES;
constexpr u32 STEPS = SPAN / 32;  // multiplications along K in a slot
constexpr bool AHEAD = !A_MN_MAJOR && !B_MN_MAJOR;  // turned fragments need more addresses: no registers are left for a second set
constexpr u32 ROOM = WARP_M * PADDED_ROW<WARP_N>;  // bytes of a warp's outputs
static_assert(THREADS / 32 * ROOM <= STAGES * SLOT, "the outputs reuse the ring");
static_assert(THREADS == 256, "a thread copies the same chunk of every 32nd row");
static_assert(WARP_N % 16 == 0 && BLOCK_M % 64 == 0, "ldmatrix loads 16 columns");

// An operand's part of a slot. Not WHOLE, at an edge: the bytes of each chunk that exist; of one that does not, the address
// may be anywhere.
template <u32 EXTENT, bool MN_MAJOR, bool WHOLE>
__device__ __forceinline__ void copy_operand(u32 to, const void* matrix, s64 leading, s32 start, s32 k, s32 extent, s32 depth) {
    // K-major: a row of the slot is a row of the operand. MN-major: row r is k = r % 64 of panel r / 64.
    const s32 row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const s64 pitch = leading * ELEMENT_BYTES;
    const s32 down = MN_MAJOR ? depth - k : extent - start, across = MN_MAJOR ? extent - start : depth - k;  // what is left
    const u8* from = static_cast<const u8*>(matrix) + ((MN_MAJOR ? k : start) + row) * pitch + (MN_MAJOR ? start : k) * s64(ELEMENT_BYTES) + 16 * chunk;
    to += swizzled(row, chunk);  // 32 rows on, the swizzle is the same
#pragma unroll
    for (s32 i = 0; i < s32(EXTENT / 32); ++i) {
        if (WHOLE) {
            async_copy(to + i * 32 * SPAN, from);
        } else {
            const s32 first = row + (MN_MAJOR ? i % 2 * 32 : i * 32), right = MN_MAJOR ? i / 2 * s32(BLOCK_K) : 0;
            const s32 bytes = min(across - right, s32(BLOCK_K)) * s32(ELEMENT_BYTES) - 16 * chunk;
            async_copy(to + i * 32 * SPAN, from, first < down ? min(max(bytes, 0), 16) : 0);
        }
        from += MN_MAJOR && i % 2 ? SPAN - 32 * pitch : 32 * pitch;
    }
}

// Four 8 x 8 matrices: rows (M or N) first + 0, first + 8 and chunks of K 2 step, 2 step + 1, in the order that mma wants.
template <bool MN_MAJOR, bool CHUNKS_FIRST>
__device__ __forceinline__ void load_fragment(u32 (&to)[4], u32 operand, u32 first, u32 step) {
    const u32 lane = threadIdx.x % 32, inner = lane / 8 % 2, outer = lane / 16;
    const u32 across = 8 * (CHUNKS_FIRST ? outer : inner), along = CHUNKS_FIRST ? inner : outer;
    if (MN_MAJOR) {
        const u32 mn = first + across;
        ldmatrix_transposed(to, operand + mn / 64 * PANEL + swizzled(16 * step + 8 * along + lane % 8, mn % 64 / 8));
    } else {
        ldmatrix(to, operand + swizzled(first + across + lane % 8, 2 * step + along));
    }
}

struct Fragments {
    u32 a[TILES_M][4];
    u32 b[TILES_N / 2][4];  // two tiles of 8 columns each
};

// The products of a tile. WHOLE: no edge in any slot.
template <bool WHOLE>
__device__ __forceinline__ void multiply_tile(accumulator_t (&d)[TILES_M][TILES_N][4], u32 slots, const Problem& problem, s32 m, s32 n) {
    const u32 steps = (problem.k + BLOCK_K - 1) / BLOCK_K;
    const u32 warp = threadIdx.x / 32, warp_m = warp % WARPS_M * WARP_M, warp_n = warp / WARPS_M * WARP_N;

    auto copy = [&](u32 step) {  // always a group, even an empty one: waiting counts groups
        if (step < steps) {
            const u32 slot = slots + step % STAGES * SLOT;
            copy_operand<BLOCK_M, A_MN_MAJOR, WHOLE>(slot, problem.a, problem.lda, m, step * BLOCK_K, problem.m, problem.k);
            copy_operand<BLOCK_N, B_MN_MAJOR, WHOLE>(slot + A_BYTES, problem.b, problem.ldb, n, step * BLOCK_K, problem.n, problem.k);
        }
        async_copy_commit();
    };
    auto load = [&](Fragments& to, u32 slot, u32 step) {
#pragma unroll
        for (u32 i = 0; i < TILES_M; ++i) load_fragment<A_MN_MAJOR, false>(to.a[i], slot, warp_m + 16 * i, step);
#pragma unroll
        for (u32 i = 0; i < TILES_N / 2; ++i) load_fragment<B_MN_MAJOR, true>(to.b[i], slot + A_BYTES, warp_n + 16 * i, step);
    };

    Fragments fragments[AHEAD ? 2 : 1];
    for (u32 step = 0; step < STAGES - 1; ++step) copy(step);
    async_copy_wait<STAGES - 2>();
    __syncthreads();
    if (AHEAD) load(fragments[0], slots, 0);
    for (u32 step = 0; step < steps; ++step) {
#pragma unroll
        for (u32 j = 0; j < STEPS; ++j) {
            u32 slot = slots + step % STAGES * SLOT;
            if (!AHEAD) load(fragments[0], slot, j);
            if (j == STEPS - 1) {
                async_copy_wait<STAGES - 2>();  // the next slot has come, for this thread
                __syncthreads();                // for all; and all have loaded the last of this slot
                slot = slots + (step + 1) % STAGES * SLOT;
            }
            if (AHEAD && (j < STEPS - 1 || step + 1 < steps)) load(fragments[(j + 1) % 2], slot, (j + 1) % STEPS);
            const Fragments& present = fragments[AHEAD ? j % 2 : 0];
            if (j == 0) copy(step + STAGES - 1);  // into the slot before this one, which nobody reads any more
#pragma unroll
            for (u32 y = 0; y < TILES_M; ++y) {
#pragma unroll
                for (u32 x = 0; x < TILES_N; ++x) {
                    const u32 turn = y % 2 ? TILES_N - 1 - x : x;  // back and forth: a fragment of B is used twice in a row
                    mma(d[y][turn], present.a[y], &present.b[turn / 2][turn % 2 * 2]);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm(const __grid_constant__ Problem problem) {
    extern __shared__ u8 dynamic[];
    const u32 slots = shared_address(dynamic);
    const Tile tile = tile_at(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x, problem.group);
    const s32 m = tile.row * BLOCK_M, n = tile.column * BLOCK_N;
    accumulator_t d[TILES_M][TILES_N][4] = {};
    if (m + s32(BLOCK_M) <= problem.m && n + s32(BLOCK_N) <= problem.n && problem.k % BLOCK_K == 0) multiply_tile<true>(d, slots, problem, m, n);
    else multiply_tile<false>(d, slots, problem, m, n);

    const u32 warp = threadIdx.x / 32;
    __syncthreads();  // nobody reads the ring any more: it takes the outputs
    store_warp_tile(dynamic + warp * ROOM, problem, m + warp % WARPS_M * WARP_M, n + warp / WARPS_M * WARP_N, d);
}
