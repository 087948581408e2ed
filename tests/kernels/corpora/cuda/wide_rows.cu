// Grids of many small blocks: elements, and a row for each block.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// The sum of a block, in every thread: warps first, then the warps' sums in their order.
__device__ __forceinline__ float block_sum(float x, float* part)
{
    for (int step = 16; step; step >>= 1) x += __shfl_xor_sync(~0u, x, step);
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = x;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) sum += part[w];
    __syncthreads();
    return sum;
}

// A grid in three dimensions adds two vectors, 16 bytes at a time, and the rest one by one.
extern "C" __global__ void vector_add(const float* x, const float* y, float* out, int n)
{
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x, i = (block * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= n) {
        float4 a = *(const float4*)(x + i), b = *(const float4*)(y + i);
        *(float4*)(out + i) = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    } else
        for (; i < n; ++i) out[i] = x[i] + y[i];
}

// SwiGLU in place, two halves at a time: the gate becomes silu(gate) * up. A grid's stride covers what is left.
extern "C" __global__ void swiglu(__half2* gate, const __half2* up, int pairs)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x) {
        float2 g = __half22float2(gate[i]), u = __half22float2(up[i]);
        g.x = __fdividef(g.x, 1.0f + __expf(-g.x)) * u.x;
        g.y = __fdividef(g.y, 1.0f + __expf(-g.y)) * u.y;
        gate[i] = __float22half2_rn(g);
    }
}

// A row of f16 by its root mean square, a warp for each.
extern "C" __global__ void rms_norm(const __half* in, const __half* weight, __half* out, int columns, float epsilon)
{
    const __half* row = in + blockIdx.x * columns;
    float sum = 0;
    for (int c = threadIdx.x; c < columns; c += 32) {
        float x = __half2float(row[c]);
        sum = fmaf(x, x, sum);
    }
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    float scale = rsqrtf(fmaf(sum, 1.0f / columns, epsilon));
    for (int c = threadIdx.x; c < columns; c += 32)
        out[blockIdx.x * columns + c] = __float2half(__half2float(row[c]) * scale * __half2float(weight[c]));
}

// Mean and variance of a row of f32, which stays in registers; the row leaves as bf16.
extern "C" __global__ void layer_norm(const float* in, const float* weight, const float* bias, __nv_bfloat16* out, float2* moments, int columns)
{
    __shared__ float part[8];
    float x[4], sum = 0, squares = 0;
    for (int k = 0; k < 4; ++k) {
        int c = k * blockDim.x + threadIdx.x;
        x[k] = c < columns ? in[blockIdx.x * columns + c] : 0.0f;
        sum += x[k];
    }
    float mean = block_sum(sum, part) / columns;
    for (int k = 0; k < 4; ++k) {
        float off = k * blockDim.x + threadIdx.x < columns ? x[k] - mean : 0.0f;
        squares = fmaf(off, off, squares);
    }
    float scale = rsqrtf(fmaf(block_sum(squares, part), 1.0f / columns, 1e-5f));
    for (int k = 0; k < 4; ++k) {
        int c = k * blockDim.x + threadIdx.x;
        if (c < columns) out[blockIdx.x * columns + c] = __float2bfloat16(fmaf((x[k] - mean) * scale, weight[c], bias[c]));
    }
    if (threadIdx.x == 0) moments[blockIdx.x] = make_float2(mean, scale);
}

// Softmax of rows of different lengths, in one pass for the maximum and the sum together.
extern "C" __global__ void softmax(const __half* in, const int* lengths, __half* out, int columns)
{
    __shared__ float tops[8], sums[8];
    const __half* row = in + blockIdx.x * columns;
    int length = lengths[blockIdx.x], warp = threadIdx.x >> 5;
    float top = -1e30f, sum = 0;
    for (int c = threadIdx.x; c < length; c += blockDim.x) {
        float x = __half2float(row[c]), higher = fmaxf(top, x);
        sum = fmaf(sum, __expf(top - higher), __expf(x - higher));
        top = higher;
    }
    for (int step = 16; step; step >>= 1) {
        float other = __shfl_xor_sync(~0u, top, step), more = __shfl_xor_sync(~0u, sum, step), higher = fmaxf(top, other);
        float own = sum * __expf(top - higher);
        sum = fmaf(more, __expf(other - higher), own);
        top = higher;
    }
    if ((threadIdx.x & 31) == 0) { tops[warp] = top; sums[warp] = sum; }
    __syncthreads();
    float highest = tops[0], whole = 0;
    for (int w = 1; w < blockDim.x / 32; ++w) highest = fmaxf(highest, tops[w]);
    for (int w = 0; w < blockDim.x / 32; ++w) whole = fmaf(sums[w], __expf(tops[w] - highest), whole);
    float scale = __fdividef(1.0f, whole);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[blockIdx.x * columns + c] = c < length ? __float2half(__expf(__half2float(row[c]) - highest) * scale) : __half(0.0f);
}

// A running sum along each row, as long as the row is: scans of 64 numbers that carry.
extern "C" __global__ void scan(const signed char* in, const int* lengths, int* last, short* out, int columns)
{
    __shared__ int sums[2];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, carry = 0, length = lengths[blockIdx.x];
    for (int start = 0; start < length; start += 64) {
        int c = start + threadIdx.x, x = c < length ? in[blockIdx.x * columns + c] : 0;
        for (int step = 1; step < 32; step <<= 1) {
            int below = __shfl_up_sync(~0u, x, step);
            if (lane >= step) x += below;
        }
        if (lane == 31) sums[warp] = x;
        __syncthreads();
        if (warp) x += sums[0];
        if (c < length) out[blockIdx.x * columns + c] = (short)(x + carry);
        carry += sums[0] + sums[1];
        __syncthreads();
    }
    if (threadIdx.x == 0) last[blockIdx.x] = carry;
}
