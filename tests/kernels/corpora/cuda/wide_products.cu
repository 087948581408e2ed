// Grids of many small tiles: products by fused multiply-adds, mma.sync and wgmma, and attention.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void ldmatrix(u32 (&to)[4], const __half* from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(from)) : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(u32 (&to)[4], const __half* from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(from)) : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 packed(float low, float high)
{
    __half2 both = __floats2half2_rn(low, high);
    return *(u32*)&both;
}

// f32 without tensor cores: tiles of 8 x 8 in shared memory, sums in ascending K.
extern "C" __global__ void matmul_tiles(const float* a, const float* b, float* d, int m, int n, int k)
{
    __shared__ float left[8][9], right[8][9];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 8 + y, column = blockIdx.x * 8 + x;
    float sum = 0;
    for (int step = 0; step < k; step += 8) {
        left[y][x] = row < m && step + x < k ? a[row * k + step + x] : 0.0f;
        right[y][x] = column < n && step + y < k ? b[(step + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 8; ++i) sum = fmaf(left[y][i], right[i][x], sum);
        __syncthreads();
    }
    if (row < m && column < n) d[row * n + column] = sum;
}

// mma.sync behind three stages of cp.async: tiles of 32 x 16, 32 of K a step; two warps, one above the other. B is N x K.
extern "C" __global__ void mma_stages(const __half* a, const __half* b, __half* d, int m, int n, int k)
{
    __shared__ alignas(16) __half left[3][32][40], right[3][16][40];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5, top = blockIdx.y * 32, side = blockIdx.x * 16, steps = k / 32;
    auto load = [&](int step) {
        if (step < steps) {
            int stage = step % 3;
            for (int chunk = t; chunk < 192; chunk += 64) {
                bool is_b = chunk >= 128;
                int r = (is_b ? chunk - 128 : chunk) / 4, c = chunk % 4 * 8, row = (is_b ? side : top) + r, rows = is_b ? n : m;
                const __half* from = (is_b ? b : a) + (row < rows ? row : 0) * k + step * 32 + c;
                u32 to = shared_address(is_b ? &right[stage][r][c] : &left[stage][r][c]), bytes = row < rows ? 16 : 0;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    float sums[2][4] = {};
    load(0);
    load(1);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        load(step + 2);
        for (int half = 0; half < 32; half += 16) {
            u32 own[4], both[4];
            ldmatrix(own, &left[step % 3][warp * 16 + (lane & 15)][half + (lane >> 4) * 8]);
            ldmatrix(both, &right[step % 3][(lane & 7) + (lane >> 4) * 8][half + (lane >> 3 & 1) * 8]);
            mma(sums[0], own, both[0], both[1]);
            mma(sums[1], own, both[2], both[3]);
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (int part = 0; part < 2; ++part)
        for (int low = 0; low < 2; ++low) {
            int row = top + warp * 16 + low * 8 + lane / 4, column = side + part * 8 + lane % 4 * 2;
            if (row < m) *(u32*)(d + row * n + column) = packed(sums[part][2 * low], sums[part][2 * low + 1]);
        }
}

// Causal attention over heads of 16: 32 queries a block, 32 keys a step, a running maximum; later blocks take more steps.
extern "C" __global__ void attention(const __half* q, const __half* k, const __half* v, __nv_bfloat16* out, int length, float scale)
{
    __shared__ alignas(16) __half keys[32][24], values[32][24];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5, head = blockIdx.y * length, first = blockIdx.x * 32 + warp * 16 + lane / 4;
    u32 query[4];
    for (int i = 0; i < 4; ++i) {
        int row = first + (i & 1) * 8;
        query[i] = row < length ? *(const u32*)(q + (head + row) * 16 + lane % 4 * 2 + (i >> 1) * 8) : 0;
    }
    float sums[2][4] = {}, top[2] = {-1e30f, -1e30f}, whole[2] = {0, 0};
    for (int start = 0; start <= blockIdx.x * 32; start += 32) {
        int r = t / 2, c = t % 2 * 8, row = start + r;
        uint4 nothing = make_uint4(0, 0, 0, 0);
        *(uint4*)&keys[r][c] = row < length ? *(const uint4*)(k + (head + row) * 16 + c) : nothing;
        *(uint4*)&values[r][c] = row < length ? *(const uint4*)(v + (head + row) * 16 + c) : nothing;
        __syncthreads();
        float scores[4][4] = {};
        for (int part = 0; part < 4; part += 2) {
            u32 both[4];
            ldmatrix(both, &keys[part * 8 + (lane & 7) + (lane >> 4) * 8][(lane >> 3 & 1) * 8]);
            mma(scores[part], query, both[0], both[1]);
            mma(scores[part + 1], query, both[2], both[3]);
        }
        for (int low = 0; low < 2; ++low) {
            float highest = top[low], sum = 0;
            for (int part = 0; part < 4; ++part)
                for (int i = 2 * low; i < 2 * low + 2; ++i) {
                    int key = start + part * 8 + lane % 4 * 2 + (i & 1);
                    scores[part][i] = key <= first + low * 8 ? scores[part][i] * scale : -1e30f;
                    highest = fmaxf(highest, scores[part][i]);
                }
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
            float factor = __expf(top[low] - highest);
            top[low] = highest;
            for (int part = 0; part < 4; ++part)
                for (int i = 2 * low; i < 2 * low + 2; ++i) {
                    scores[part][i] = __expf(scores[part][i] - highest);
                    sum += scores[part][i];
                }
            whole[low] = fmaf(whole[low], factor, sum);
            for (int part = 0; part < 2; ++part)
                for (int i = 2 * low; i < 2 * low + 2; ++i) sums[part][i] *= factor;
        }
        for (int part = 0; part < 4; part += 2) {
            u32 weights[4] = {packed(scores[part][0], scores[part][1]), packed(scores[part][2], scores[part][3]),
                              packed(scores[part + 1][0], scores[part + 1][1]), packed(scores[part + 1][2], scores[part + 1][3])};
            u32 both[4];
            ldmatrix_transposed(both, &values[part * 8 + (lane & 15)][(lane >> 4) * 8]);
            mma(sums[0], weights, both[0], both[1]);
            mma(sums[1], weights, both[2], both[3]);
        }
        __syncthreads();
    }
    for (int low = 0; low < 2; ++low) {
        whole[low] += __shfl_xor_sync(~0u, whole[low], 1);
        whole[low] += __shfl_xor_sync(~0u, whole[low], 2);
        int row = first + low * 8;
        if (row < length)
            for (int part = 0; part < 2; ++part)
                *(__nv_bfloat162*)(out + (head + row) * 16 + part * 8 + lane % 4 * 2) =
                    __floats2bfloat162_rn(__fdividef(sums[part][2 * low], whole[low]), __fdividef(sums[part][2 * low + 1], whole[low]));
    }
}

struct alignas(64) TensorMap { char bytes[128]; };

__device__ __forceinline__ u64 descriptor(const __half* tile)  // rows of 128 bytes, swizzled, eight of them in 1,024 bytes
{
    return (u64)((shared_address(tile) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// TMA and wgmma: tiles of 64 x 16, 64 of K a step, a ring of three stages; edges are filled with zeros. B is N x K.
extern "C" __global__ void __launch_bounds__(128) wgmma_stages(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, __half* d, int m, int n, int k)
{
    __shared__ alignas(1024) __half left[3][64 * 64], right[3][16 * 64];
    __shared__ alignas(8) u64 full[3];
    int t = threadIdx.x, top = blockIdx.y * 64, side = blockIdx.x * 16, steps = (k + 63) / 64;
    if (t == 0) {
        for (int s = 0; s < 3; ++s) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[s])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    auto load = [&](int step) {
        if (t == 0 && step < steps) {
            int stage = step % 3;
            u32 bar = shared_address(&full[stage]);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 10240;" ::"r"(bar) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(left[stage])),
                         "l"(&a), "r"(step * 64), "r"(top), "r"(bar)
                         : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(right[stage])),
                         "l"(&b), "r"(step * 64), "r"(side), "r"(bar)
                         : "memory");
        }
    };
    float sums[8] = {};
    load(0);
    load(1);
    for (int step = 0; step < steps; ++step) {
        int stage = step % 3;
        asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(shared_address(&full[stage])), "r"(step / 3 & 1)
                     : "memory");
        __syncthreads();
        load(step + 2);
        u64 from_a = descriptor(left[stage]), from_b = descriptor(right[stage]);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int part = 0; part < 4; ++part)
            asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, 1, 1, 1, 0, 0;"
                         : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7])
                         : "l"(from_a + part * 2), "l"(from_b + part * 2)
                         : "memory");
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int i = 0; i < 8; ++i) {
        int row = top + t / 32 * 16 + t % 32 / 4 + (i >> 1 & 1) * 8, column = side + i / 4 * 8 + t % 4 * 2 + (i & 1);
        if (row < m && column < n) d[row * n + column] = __float2half(sums[i]);
    }
}
