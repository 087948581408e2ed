// Kernels without tensor cores, as people write them first: what `benchmarks/scalar.py` times.

// C = A * B in tiles of 32 x 32 in shared memory; blocks of 32 x 32 threads.
extern "C" __global__ void tiled(const float* A, const float* B, float* C, int n) {
    __shared__ float a[32][33], b[32][33];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum = 0;
    for (int start = 0; start < n; start += 32) {
        a[y][x] = A[row * n + start + x];
        b[y][x] = B[(start + y) * n + column];
        __syncthreads();
        for (int k = 0; k < 32; ++k) sum += a[y][k] * b[k][x];
        __syncthreads();
    }
    C[row * n + column] = sum;
}

// C = A * B from global memory; blocks of 128 threads in a row.
extern "C" __global__ void naive(const float* A, const float* B, float* C, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + column];
    C[row * n + column] = sum;
}

// Means of 3 x 3 points; blocks of 32 x 8 threads.
extern "C" __global__ void stencil(const float* from, float* to, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    float sum = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) sum += from[(y + dy) * n + x + dx];
    to[y * n + x] = sum * (1.f / 9);
}

// Sums of rows by shuffles and shared memory; a block of 256 threads for each.
extern "C" __global__ void sums(const float* from, float* to, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += from[blockIdx.x * n + i];
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    __shared__ float warps[8];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) sum += warps[i];
        to[blockIdx.x] = sum;
    }
}
