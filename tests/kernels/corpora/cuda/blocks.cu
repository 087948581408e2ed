// Blocks that work together through shared memory: reductions, scans, sorts, histograms, tiles.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned int u32;

// A sum of the block in a fixed order: warps first, then the warps' sums; and the largest number's index.
extern "C" __global__ void reduce(const float* in, float* sums, int* where, int n)
{
    __shared__ float part[32];
    __shared__ float best[32];
    __shared__ int index[32];
    float sum = 0, top = -3.402823466e38f;
    int at = -1;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += in[i];
        if (in[i] > top) { top = in[i]; at = i; }
    }
    for (int step = 16; step; step >>= 1) {
        sum += __shfl_down_sync(~0u, sum, step);
        float other = __shfl_down_sync(~0u, top, step);
        int from = __shfl_down_sync(~0u, at, step);
        if (other > top || (other == top && from < at)) { top = other; at = from; }
    }
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    if (lane == 0) { part[warp] = sum; best[warp] = top; index[warp] = at; }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; ++w) {
            sum += part[w];
            if (best[w] > top || (best[w] == top && index[w] < at)) { top = best[w]; at = index[w]; }
        }
        sums[blockIdx.x] = sum;
        where[blockIdx.x] = at;
    }
}

// An inclusive scan over the whole grid: each block waits for the one before it (blocks start in order).
extern "C" __global__ void scan(const int* in, int* out, volatile int* flags, volatile int* carry, int n)
{
    __shared__ int warps[32];
    __shared__ int base;
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int x = i < n ? in[i] : 0;
    for (int step = 1; step < 32; step <<= 1) {
        int y = __shfl_up_sync(~0u, x, step);
        if (lane >= step) x += y;
    }
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    if (warp == 0) {
        int y = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (int step = 1; step < 32; step <<= 1) {
            int z = __shfl_up_sync(~0u, y, step);
            if (lane >= step) y += z;
        }
        warps[lane] = y;
        if (lane == 31) {
            int before = 0;
            if (blockIdx.x) {
                while (flags[blockIdx.x - 1] == 0) __nanosleep(20);
                __threadfence();
                before = carry[blockIdx.x - 1];
            }
            base = before;
            carry[blockIdx.x] = before + y;
            __threadfence();
            flags[blockIdx.x] = 1;
        }
    }
    __syncthreads();
    if (i < n) out[i] = x + base + (warp ? warps[warp - 1] : 0);
}

// A histogram of bytes in shared memory, then added to the grid's.
extern "C" __global__ void histogram(const uchar4* in, u32* bins, int n)
{
    __shared__ u32 own[64];
    for (int b = threadIdx.x; b < 64; b += blockDim.x) own[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uchar4 x = in[i];
        atomicAdd(&own[x.x & 63], 1u);
        atomicAdd(&own[x.y & 63], 1u);
        atomicAdd(&own[x.z & 63], 1u);
        atomicAdd(&own[x.w & 63], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 64; b += blockDim.x) atomicAdd(&bins[b], own[b]);
}

// A bitonic sort of keys with their positions.
extern "C" __global__ void bitonic_sort(const float* in, float* keys, int* positions)
{
    extern __shared__ float key[];
    int* position = (int*)(key + 256);
    int t = threadIdx.x;
    key[t] = in[blockIdx.x * 256 + t];
    position[t] = t;
    for (int size = 2; size <= 256; size <<= 1)
        for (int step = size >> 1; step; step >>= 1) {
            __syncthreads();
            int other = t ^ step;
            if (other > t) {
                bool up = (t & size) == 0;
                if ((key[t] > key[other]) == up) {
                    float k = key[t]; key[t] = key[other]; key[other] = k;
                    int p = position[t]; position[t] = position[other]; position[other] = p;
                }
            }
        }
    __syncthreads();
    keys[blockIdx.x * 256 + t] = key[t];
    positions[blockIdx.x * 256 + t] = position[t];
}

// A transpose through a padded tile.
extern "C" __global__ void transpose(const unsigned short* in, unsigned short* out, int rows, int columns)
{
    __shared__ unsigned short tile[32][33];
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        int r = blockIdx.y * 32 + y, c = blockIdx.x * 32 + threadIdx.x;
        if (r < rows && c < columns) tile[y][threadIdx.x] = in[r * columns + c];
    }
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += blockDim.y) {
        int r = blockIdx.x * 32 + y, c = blockIdx.y * 32 + threadIdx.x;
        if (r < columns && c < rows) out[r * rows + c] = tile[threadIdx.x][y];
    }
}

// A matrix product without tensor cores, tiles of 16, fused multiply-adds in ascending K.
extern "C" __global__ void matmul(const float* a, const float* b, float* d, int m, int n, int k)
{
    __shared__ float left[16][17], right[16][17];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int step = 0; step < k; step += 16) {
        left[threadIdx.y][threadIdx.x] = row < m && step + threadIdx.x < k ? a[row * k + step + threadIdx.x] : 0.f;
        right[threadIdx.y][threadIdx.x] = column < n && step + threadIdx.y < k ? b[(step + threadIdx.y) * n + column] : 0.f;
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum = fmaf(left[threadIdx.y][i], right[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < m && column < n) d[row * n + column] = sum;
}

// Softmax of rows of bf16, one block a row.
extern "C" __global__ void softmax(const __nv_bfloat16* in, __nv_bfloat16* out, int columns)
{
    __shared__ float part[8];
    const __nv_bfloat16* row = in + blockIdx.x * columns;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    float top = -1e30f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) top = fmaxf(top, __bfloat162float(row[c]));
    for (int step = 16; step; step >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    if (lane == 0) part[warp] = top;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) top = fmaxf(top, part[w]);
    __syncthreads();
    float sum = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += __expf(__bfloat162float(row[c]) - top);
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) sum += part[w];
    float scale = __fdividef(1.0f, sum);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[blockIdx.x * columns + c] = __float2bfloat16(__expf(__bfloat162float(row[c]) - top) * scale);
}

// cp.async in a ring of three stages: each block doubles its rows and adds those before them.
extern "C" __global__ void async_ring(const float4* in, float4* out, int steps)
{
    __shared__ float4 ring[3][64];
    int t = threadIdx.x;
    const float4* from = in + blockIdx.x * steps * 64;
    for (int s = 0; s < 2; ++s) {
        u32 to = (u32)__cvta_generic_to_shared(&ring[s][t]);
        if (s < steps) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + s * 64 + t) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float4 sum = make_float4(0, 0, 0, 0);
    for (int s = 0; s < steps; ++s) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        float4 x = ring[s % 3][t ^ 1];
        sum.x += x.x; sum.y += 2 * x.y; sum.z -= x.z; sum.w = fmaxf(sum.w, x.w);
        out[(blockIdx.x * steps + s) * 64 + t] = sum;
        int next = s + 2;
        u32 to = (u32)__cvta_generic_to_shared(&ring[next % 3][t]);
        u32 bytes = (t & 3) == 3 ? 8 : 16;  // the rest is filled with zeros
        if (next < steps)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from + next * 64 + t), "r"(bytes) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
}
