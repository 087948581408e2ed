// Grids of many small blocks whose threads go different ways: loops as long as their data say, early exits, calls, local memory.
typedef unsigned int u32;
typedef unsigned char u8;

// Steps of Collatz's rule to 1, for five numbers a thread.
extern "C" __global__ void collatz(unsigned short* steps, u32 first, u32 stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 total = 0, longest = 0;
    for (u32 k = 0; k < 5; ++k) {
        u32 count = 0;
        for (u32 x = first + i * stride + k; x != 1; ++count) x = x & 1 ? 3 * x + 1 : x >> 1;
        total += count;
        longest = max(longest, count);
    }
    steps[2 * i] = (unsigned short)total;
    steps[2 * i + 1] = (unsigned short)longest;
}

// Cube roots by Newton's rule, until two estimates are the same; each block has its own tolerance.
extern "C" __global__ void newton(const float* in, float* roots, u8* rounds, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = in[i], x = a > 1.0f ? a : 1.0f, tolerance = ldexpf(1.0f, -6 - (int)(blockIdx.x % 16));
    int count = 0;
    while (count < 200) {
        float next = (2.0f * x + a / (x * x)) * (1.0f / 3.0f);
        ++count;
        if (fabsf(next - x) <= tolerance * x) break;
        x = next;
    }
    roots[i] = x;
    rounds[i] = (u8)count;
}

// Rows of a sparse matrix times a vector, a warp for each row; rows have any length, many have none.
extern "C" __global__ void sparse_rows(const int* starts, const unsigned short* columns, const float* values, const float* x, float* out, int rows)
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (row >= rows) return;
    float sum = 0;
    for (int k = starts[row] + lane; k < starts[row + 1]; k += 32) sum = fmaf(values[k], x[columns[k]], sum);
    for (int step = 16; step; step >>= 1) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) out[row] = sum;
}

// Blocks that have nothing to do end at once, in the others whole warps end before the first barrier; the rest smooth a line.
extern "C" __global__ void early_exits(const u8* active, const short* in, int* out, int rounds)
{
    __shared__ int line[98];
    if (!active[blockIdx.x]) return;
    int t = threadIdx.x, width = active[blockIdx.x] * 32;
    if (t >= width) return;
    line[t + 1] = in[blockIdx.x * blockDim.x + t];
    if (t == 0) line[0] = line[width + 1] = 0;
    __syncthreads();
    for (int r = 0; r < rounds; ++r) {
        int next = (line[t] + 2 * line[t + 1] + line[t + 2]) >> 2;
        __syncthreads();
        line[t + 1] = next;
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + t] = line[t + 1];
}

// The k-th smallest of a window, sorted where it lies; k depends on the thread, so the window is in local memory.
__device__ __noinline__ int smallest(u8* window, int count, int k)
{
    for (int i = 1; i < count; ++i) {
        u8 x = window[i];
        int j = i;
        for (; j && window[j - 1] > x; --j) window[j] = window[j - 1];
        window[j] = x;
    }
    return window[k];
}

__device__ __noinline__ u32 binomial(u32 n, u32 k) { return k == 0 || k == n ? 1 : binomial(n - 1, k - 1) + binomial(n - 1, k); }

// A rank filter of an image of bytes in a grid of two dimensions, with calls and recursion.
extern "C" __global__ void calls(const u8* image, u8* out, int width, int height)
{
    int x = blockIdx.x * 8 + (threadIdx.x & 7), y = blockIdx.y * 4 + (threadIdx.x >> 3);
    u8 window[9];
    int count = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            if (x + dx >= 0 && x + dx < width && y + dy >= 0 && y + dy < height) window[count++] = image[(y + dy) * width + x + dx];
    if (x < width && y < height)
        out[y * width + x] = (u8)(smallest(window, count, (x + y) % count) + binomial(blockIdx.x % 5, blockIdx.y % 3 % (blockIdx.x % 5 + 1)));
}
