// Functions that are called, arrays in local memory, structs of odd sizes, printf.
#include <cstdio>
#include <cstring>

typedef unsigned int u32;

__device__ __noinline__ u32 ackermann(u32 m, u32 n)
{
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

// Recursion whose depth differs from lane to lane.
extern "C" __global__ void recursion(u32* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = ackermann(i & 1, i % 9) + ackermann(2, i % 3);
}

struct Pair { double sum; short count; };

__device__ __noinline__ Pair gather(const float* in, int from, int to, Pair start)
{
    for (int i = from; i < to; ++i) { start.sum += in[i]; start.count += in[i] > 0; }
    return start;
}

// Structs as arguments and results.
extern "C" __global__ void structs(const float* in, double* sums, int* counts, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Pair p = gather(in, i * n, i * n + n / 2, Pair{0.5, 3});
    p = gather(in, i * n + n / 2, i * n + n, p);
    sums[i] = p.sum;
    counts[i] = p.count;
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ __noinline__ int largest(int a, int b) { return a > b ? a : b; }
__device__ Operation table[4] = {add, subtract, multiply, largest};

// Calls through a table of functions in global memory: lanes call different ones.
extern "C" __global__ void function_pointers(const int* in, int* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = table[in[i] & 3](in[i], i * 3);
}

// An insertion sort in an array that only this thread sees.
extern "C" __global__ void local_sort(const int* in, int* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, own[17];
    for (int k = 0; k < n; ++k) own[k] = in[i * n + k];
    for (int k = 1; k < n; ++k) {
        int x = own[k], at = k;
        while (at > 0 && own[at - 1] > x) { own[at] = own[at - 1]; --at; }
        own[at] = x;
    }
    for (int k = 0; k < n; ++k) out[i * n + k] = own[(k + i) % n];
}

struct __attribute__((packed)) Odd { unsigned char tag; u32 word; unsigned short half; double number; };

// Structs without padding, and copies from addresses of any alignment.
extern "C" __global__ void unaligned(const unsigned char* in, unsigned char* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Odd x;
    memcpy(&x, in + i * sizeof(Odd), sizeof(Odd));
    x.word = x.word * 3 + x.tag;
    x.half ^= (unsigned short)x.word;
    x.number = x.number * 0.5;
    x.tag = (unsigned char)(x.tag >> 1);
    memcpy(out + 1 + i * sizeof(Odd), &x, sizeof(Odd));
}

// What the host would print.
extern "C" __global__ void print(const int* in, int* out)
{
    int x = in[threadIdx.x];
    if (threadIdx.x < 3) printf("thread %d of block %u: %d %s %.3f %c %#x %lld%%\n", (int)threadIdx.x, blockIdx.x, x, x < 0 ? "below" : "above", x * 0.25, 'a' + threadIdx.x, x, (long long)x << 33);
    out[threadIdx.x] = x + 1;
}

__constant__ float weights[8] = {1.f, -2.f, 3.5f, 0.25f, -0.5f, 6.f, 7.f, -8.f};
__device__ int counter = 40;

// Constants, a variable of the module, and a table with lanes that read different entries.
extern "C" __global__ void module_variables(const float* in, float* out)
{
    int i = threadIdx.x;
    float x = in[i];
    for (int k = 0; k < 8; ++k) x = fmaf(x, 0.5f, weights[(k + i) & 7]);
    int before = i == 0 ? atomicAdd(&counter, 2) : 0;
    out[i] = x + before;
}
