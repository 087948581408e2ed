// Grids of many small blocks that meet in global memory: sums, maxima, first visits; results that no order changes.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;

// Bytes, 16 at a time, counted in shared memory and then in the grid's bins; and the block with the fullest bin.
extern "C" __global__ void histogram(const uint4* in, u32* bins, u32* fullest, int vectors)
{
    __shared__ u32 own[64];
    for (int b = threadIdx.x; b < 64; b += blockDim.x) own[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) {
        uint4 x = in[i];
        u32 words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int k = 0; k < 16; ++k) atomicAdd(&own[words[k / 4] >> 8 * (k & 3) & 63], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 64; b += blockDim.x) {
        if (own[b]) atomicAdd(&bins[b], own[b]);
        atomicMax(fullest, own[b] << 16 | blockIdx.x);
    }
}

// Whoever marks a place first counts it; the block that finishes last adds the counts up. Who that is differs, the numbers do not.
extern "C" __global__ void first_visits(const unsigned short* places, u32* seen, u32* counts, u32* finished, u32* total, int n)
{
    __shared__ u32 firsts, last;
    if (threadIdx.x == 0) firsts = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        u32 bit = 1u << (places[i] & 31);
        if (!(atomicOr(&seen[places[i] >> 5], bit) & bit)) atomicAdd(&firsts, 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&counts[places[blockIdx.x] & 7], 1u);
        atomicAdd(&counts[8], firsts);
        __threadfence();
        last = atomicAdd(finished, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x < 9) atomicAdd(total, ((volatile u32*)counts)[threadIdx.x] * (threadIdx.x + 1));
}

// Sums of whole numbers in f32 and f64, by segment: every partial sum is exact, so that no order matters.
extern "C" __global__ void float_atomics(const signed char* in, const u8* segments, float* sums, double* squares, int each)
{
    __shared__ float own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < each; ++k) {
        int i = (blockIdx.x * each + k) * blockDim.x + threadIdx.x;
        atomicAdd(&own[segments[i]], (float)in[i]);
        if (in[i] > 0) atomicAdd(&squares[segments[i]], (double)(in[i] * in[i]));
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&sums[threadIdx.x], own[threadIdx.x]);
}

// Thousands of blocks of one warp: each sorts 32 numbers of its own across its lanes, and adds to what all of them share.
extern "C" __global__ void many_warps(u32* bins, u32* largest, u64* mixed, unsigned short* medians)
{
    u32 lane = threadIdx.x, key = (blockIdx.x * 32 + lane) * 2654435761u >> 18;
    for (u32 size = 2; size <= 32; size <<= 1)
        for (u32 step = size >> 1; step; step >>= 1) {
            u32 other = __shfl_xor_sync(~0u, key, step);
            bool low = (lane & step) == 0, up = (lane & size) == 0;
            key = low == up ? min(key, other) : max(key, other);
        }
    u32 above = __shfl_down_sync(~0u, key, 1), gap = lane < 31 ? above - key : 0;
    for (int step = 16; step; step >>= 1) gap = max(gap, __shfl_xor_sync(~0u, gap, step));
    if (lane == 16) medians[blockIdx.x] = (unsigned short)key;
    if ((lane & 7) == 0) atomicAdd(&bins[key >> 8], 1u);
    if (lane == 0) {
        atomicMax(largest, gap << 16 | blockIdx.x);
        atomicXor(mixed, (u64)key * 0x9E3779B97F4A7C15ull + blockIdx.x);
    }
}
