// Warps whose lanes part: loops of different lengths, votes and shuffles among those that came, early exits, locks, jump tables.
#include <cuda_fp16.h>

typedef unsigned int u32;
typedef unsigned long long u64;

// Each lane counts the steps of its own number to 1, inside a loop that only some lanes enter.
extern "C" __global__ void divergent_loops(const u32* in, u32* steps, u32* peaks, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 count = 0, peak = 0;
    for (u32 outer = 0; outer < in[i] % 5; ++outer) {
        u32 x = in[i] + outer;
        while (x > 1) {
            if (x & 1) { x = 3 * x + 1; if (x > peak) peak = x; } else x >>= 1;
            if (++count > 700) break;
        }
        if (count & 8) continue;
        count += outer;
    }
    steps[i] = count;
    peaks[i] = peak;
}

// Votes among the lanes that are in the branch, and what a leader adds for them.
extern "C" __global__ void votes(const int* in, u32* out, u32* total, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    u32 here = __ballot_sync(0xffffffffu, i < n);
    if (i >= n) return;
    u32 odd = __ballot_sync(here, in[i] & 1), result = 0;
    if (in[i] & 1) {
        u32 large = __ballot_sync(odd, in[i] > 50);
        result = __popc(large) << 8 | __popc(odd);
        if (lane == __ffs(odd) - 1) atomicAdd(total, __popc(large));
        result |= __all_sync(odd, in[i] < 1000) << 16 | __any_sync(odd, in[i] == 3) << 17;
    } else {
        result = __match_any_sync(__activemask(), in[i] % 4);
        int same;
        u32 all = __match_all_sync(here & ~odd, in[i], &same);
        result ^= all ^ (u32)same << 31;
    }
    __syncwarp(here);
    out[i] = result + (__shfl_sync(here, result, (lane + 1) & 7) & 0xff);
}

// Shuffles of every kind, with lanes that ask outside their segment, in whole warps and in halves.
extern "C" __global__ void shuffles(const float* in, float* out)
{
    int lane = threadIdx.x & 31, i = blockIdx.x * blockDim.x + threadIdx.x, size = gridDim.x * blockDim.x;
    float x = in[i];
    out[i] = __shfl_up_sync(~0u, x, 3, 8);
    out[size + i] = __shfl_down_sync(~0u, x, 5, 16);
    out[2 * size + i] = __shfl_xor_sync(~0u, x, 21);
    out[3 * size + i] = __shfl_sync(~0u, x, lane * 7, 32);
    float y = x;
    if (lane < 16) {
        for (int step = 8; step; step >>= 1) y += __shfl_xor_sync(0x0000ffffu, y, step);
    } else {
        for (int step = 8; step; step >>= 1) y = fmaxf(y, __shfl_down_sync(0xffff0000u, y, step));
    }
    out[4 * size + i] = y;
}

// Threads leave at different times; those that stay meet at a barrier.
extern "C" __global__ void early_exit(const int* in, int* out, int n)
{
    __shared__ int part[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = 0;
    __syncthreads();
    if (t >= 96) { out[i] = -1; return; }  // a whole warp
    part[t] = i < n ? in[i] : 0;
    asm volatile("bar.sync 1, 96;" ::: "memory");
    if (t >= 64) { out[i] = part[t - 64]; return; }
    for (int step = 32; step; step >>= 1) {
        if (t < step) part[t] += part[t + step];
        asm volatile("bar.sync 2, 64;" ::: "memory");
    }
    out[i] = part[0] + t;
}

// How many threads of a block say yes: barriers that reduce.
extern "C" __global__ void barrier_counts(const int* in, int* out)
{
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int count = __syncthreads_count(in[i] > 0), all = __syncthreads_and(in[i] > -100), any = __syncthreads_or(in[i] == 7);
    out[i] = count << 2 | (all != 0) << 1 | (any != 0);
}

// A lock that every thread takes in turn; the order does not show in the result.
extern "C" __global__ void spin_lock(int* lock, volatile int* sum, const int* in)
{
    int mine = in[blockIdx.x * blockDim.x + threadIdx.x];
    bool done = false;
    u32 nap = 8;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum = *sum + mine;
            sum[1] = sum[1] ^ (mine << 1);
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        } else {
            __nanosleep(nap);
            nap = nap < 256 ? nap * 2 : nap;
        }
    }
}

// Atomics whose result does not depend on the order, of every operation; old values where they are known.
extern "C" __global__ void atomics(const u32* in, u32* sums, u64* wide, float* floats, u32* old)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    u32 x = in[i];
    atomicAdd(&sums[0], x);
    atomicMin(&sums[1], x);
    atomicMax((int*)&sums[2], (int)x);
    atomicAnd(&sums[3], x | 0xff);
    atomicOr(&sums[4], x & 0xf0f0);
    atomicXor(&sums[5], x);
    atomicInc(&sums[6], 10);
    atomicDec(&sums[7], 6);
    atomicSub(&sums[8], x >> 3);
    atomicAdd(&wide[0], (u64)x << 20);
    atomicMax(&wide[1], (u64)x * x);
    atomicCAS(&sums[16 + (i & 7)], (u32)(i & 7), x % 3);  // the first of each eight changes it, if at all
    atomicAdd(&floats[0], (float)(x & 15));  // sums of small whole numbers are exact in any order
    old[i] = atomicExch(&sums[32 + i], x);
    if (threadIdx.x == 0 && blockIdx.x == 0) old[i] += atomicAdd(&sums[31], 5);
}

// A jump table.
extern "C" __global__ void jump_table(const int* in, int* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = in[i], y = x;
    switch (x & 15) {
    case 0: y = x * 3; break;
    case 1: y = x ^ 0x55; break;
    case 2: y = -x; break;
    case 3: y = x >> 2;
    case 4: y += 100; break;
    case 5: y = __popc(x); break;
    case 6: y = __clz(x); break;
    case 7: y = __brev(x); break;
    case 8: y = __ffs(x); break;
    case 9: for (int k = 0; k < (x >> 4) % 9; ++k) y = y * 5 + k; break;
    case 10: y = x % 7; break;
    case 11: y = x / 9; break;
    case 12: y = __mulhi(x, 0x12345678); break;
    default: y = ~x;
    }
    out[i] = y;
}

// Sums of a warp by redux, a leader by elect, and the position of a set bit.
extern "C" __global__ void redux(const int* in, int* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i], k = i & 31;
    int size = gridDim.x * blockDim.x;
    out[i] = __reduce_add_sync(~0u, x);
    out[size + i] = __reduce_min_sync(~0u, x);
    out[2 * size + i] = (int)__reduce_max_sync(~0u, (u32)x);
    out[3 * size + i] = (int)(__reduce_xor_sync(~0u, (u32)x) + __fns(0x9249a5f1u, 0, (k & 7) + 1));
    if (k & 1) out[i] += __reduce_or_sync(0xaaaaaaaau, (u32)x);
}
