// Grids of many clusters: rows and counts that lie across the shared memory of two and of four blocks.
#include <cuda_fp16.h>
typedef unsigned int u32;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ u32 mapa(u32 address, u32 rank) { u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank)); return r; }
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Two blocks count the same numbers' low and high halves: each adds to the other's bins what does not belong to it.
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_counts(const unsigned char* in, unsigned short* out, int each)
{
    __shared__ u32 bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    cluster_sync();
    for (int k = 0; k < each; ++k) {
        u32 x = in[(blockIdx.x * each + k) * blockDim.x + threadIdx.x] & 63;
        u32 address = mapa(shared_address(&bins[x & 31]), x >> 5);
        asm volatile("red.shared::cluster.add.u32 [%0], 1;" ::"r"(address) : "memory");
    }
    cluster_sync();
    if (threadIdx.x < 32) out[blockIdx.x * 32 + threadIdx.x] = (unsigned short)bins[threadIdx.x];
}

// A row over four blocks: each normalises a quarter by moments that it reads from the others, in the same order.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_norm(const __half* in, __half* out, int columns)
{
    __shared__ float warps[2][2];
    __shared__ float part[2];
    int t = threadIdx.x, first = blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (int c = t; c < columns; c += blockDim.x) {
        float x = __half2float(in[first + c]);
        sum += x;
        squares = fmaf(x, x, squares);
    }
    for (int step = 16; step; step >>= 1) {
        sum += __shfl_xor_sync(~0u, sum, step);
        squares += __shfl_xor_sync(~0u, squares, step);
    }
    if ((t & 31) == 0) { warps[t >> 5][0] = sum; warps[t >> 5][1] = squares; }
    __syncthreads();
    if (t < 2) part[t] = warps[0][t] + warps[1][t];
    cluster_sync();
    float moments[2] = {0, 0};
    for (u32 rank = 0; rank < 4; ++rank)
        for (int k = 0; k < 2; ++k) {
            float x;
            asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(mapa(shared_address(&part[k]), rank)) : "memory");
            moments[k] += x;
        }
    cluster_sync();
    float mean = moments[0] / (4 * columns), variance = fmaf(-mean, mean, moments[1] / (4 * columns)), scale = rsqrtf(variance + 1e-5f);
    for (int c = t; c < columns; c += blockDim.x) out[first + c] = __float2half((__half2float(in[first + c]) - mean) * scale);
}
