"""CUDA C++ that the programs compile: a sum with a template, one with shared memory, one with a structure."""

SAXPY = r"""
template <class T> __global__ void saxpy(T* y, const T* x, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
REVERSE = r"""
extern "C" __global__ void reverse(unsigned* to, const unsigned* from) {
    extern __shared__ unsigned kept[];
    kept[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    to[blockIdx.x * blockDim.x + threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
"""
NORM = r"""
extern "C" __global__ void row_norm(float* to, const float* from, double scale) {
    float x = from[blockIdx.x * blockDim.x + threadIdx.x];
    float sum = x * x;
    for (int i = 16; i; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    to[blockIdx.x * blockDim.x + threadIdx.x] = (float)(scale * x) * rsqrtf(sum);
}
"""
