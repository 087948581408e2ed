// What the copy engine does: mbarrier pipelines, bulk copies and reductions, tensor maps, im2col.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(u64* bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory"); }
__device__ __forceinline__ void expect(u64* bar, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory"); }
__device__ __forceinline__ void arrive(u64* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory"); }
__device__ __forceinline__ void barrier_wait(u64* bar, u32 parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(shared_address(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void commit_and_wait() { asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void commit_and_wait_read() { asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory"); }

struct alignas(64) TensorMap { char bytes[128]; };

// One warp loads, two others add: a ring of three stages with full and empty barriers.
extern "C" __global__ void specialised(const int* in, int* out, int steps)
{
    __shared__ alignas(128) int ring[3][64];
    __shared__ alignas(8) u64 full[3], empty[3];
    int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 3; ++s) { barrier_init(&full[s], 1); barrier_init(&empty[s], 64); }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int* from = in + blockIdx.x * steps * 64;
    if (warp == 2) {
        if (threadIdx.x == 64)
            for (int s = 0; s < steps; ++s) {
                barrier_wait(&empty[s % 3], (s / 3 & 1) ^ 1);
                expect(&full[s % 3], 256);
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(shared_address(ring[s % 3])),
                             "l"(from + s * 64), "r"(shared_address(&full[s % 3]))
                             : "memory");
            }
    } else {
        int sum = 0;
        for (int s = 0; s < steps; ++s) {
            barrier_wait(&full[s % 3], s / 3 & 1);
            sum = sum * 7 + ring[s % 3][63 - threadIdx.x];
            arrive(&empty[s % 3]);
        }
        out[blockIdx.x * 64 + threadIdx.x] = sum;
    }
}

// Bulk stores and reductions from shared memory.
extern "C" __global__ void bulk_store(const int* in, int* copy, u32* sum, unsigned short* halves)
{
    __shared__ alignas(128) int tile[64];
    __shared__ alignas(128) unsigned short half[64];
    tile[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] * 3;
    half[threadIdx.x] = (unsigned short)(0x3c00 + (threadIdx.x << 10) % 0x1000);  // powers of two
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(copy + blockIdx.x * 64), "r"(shared_address(tile)) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 256;" ::"l"(sum), "r"(shared_address(tile)) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.u32 [%0], [%1], 128;" ::"l"(sum + 64), "r"(shared_address(tile)) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], 128;" ::"l"(halves), "r"(shared_address(half)) : "memory");
        commit_and_wait();
    }
}

// A tile by tensor map, across the tensor's edge; it goes out at another place, and is added at a third.
extern "C" __global__ void tensor_2d(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to, const __grid_constant__ TensorMap sum)
{
    __shared__ alignas(1024) int tile[16 * 32];
    __shared__ alignas(8) u64 bar;
    int x = (int)blockIdx.x * 32, y = (int)blockIdx.y * 16;  // loads may begin outside, stores may not
    if (threadIdx.x == 0) { barrier_init(&bar, 1); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 2048);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)),
                     "l"(&from), "r"(x - 8), "r"(y - 4), "r"(shared_address(&bar))
                     : "memory");
    }
    barrier_wait(&bar, 0);
    for (int i = threadIdx.x; i < 512; i += blockDim.x) tile[i] += i;
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to), "r"(x), "r"(y), "r"(shared_address(tile)) : "memory");
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&sum), "r"(0), "r"(3), "r"(shared_address(tile)) : "memory");
        commit_and_wait_read();
    }
}

// A swizzled tile of f16, read back through the swizzle, and a tile of three dimensions that sticks out.
extern "C" __global__ void tensor_swizzled(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap cube, unsigned short* out, unsigned char* rest)
{
    __shared__ alignas(1024) unsigned short tile[64 * 64];
    __shared__ alignas(1024) unsigned char box[16 * 4 * 3];
    __shared__ alignas(8) u64 bar;
    if (threadIdx.x == 0) { barrier_init(&bar, 1); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 64 * 64 * 2 + 16 * 4 * 3);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)),
                     "l"(&from), "r"((int)blockIdx.x * 64), "r"(-3), "r"(shared_address(&bar))
                     : "memory");
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(box)),
                     "l"(&cube), "r"(16), "r"(5), "r"((int)blockIdx.x + 2), "r"(shared_address(&bar))
                     : "memory");
    }
    barrier_wait(&bar, 0);
    for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) {
        int row = i / 64, column = i % 64;
        out[(blockIdx.x * 64 + row) * 64 + column] = tile[row * 64 + ((column / 8 ^ row % 8) * 8 + column % 8)];
    }
    for (int i = threadIdx.x; i < 16 * 4 * 3; i += blockDim.x) rest[blockIdx.x * 192 + i] = box[i];
}

// Columns of an image for a convolution.
extern "C" __global__ void im2col(const __grid_constant__ TensorMap image, unsigned short* out)
{
    __shared__ alignas(1024) unsigned short tile[32 * 64];
    __shared__ alignas(8) u64 bar;
    if (threadIdx.x == 0) { barrier_init(&bar, 1); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(&bar, 32 * 64 * 2);
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(
                         shared_address(tile)),
                     "l"(&image), "r"(0), "r"((int)blockIdx.x - 1), "r"(0), "r"(0), "r"(shared_address(&bar)), "h"((unsigned short)(blockIdx.x % 3)), "h"((unsigned short)1)
                     : "memory");
    }
    barrier_wait(&bar, 0);
    for (int i = threadIdx.x; i < 32 * 64; i += blockDim.x) out[blockIdx.x * 2048 + i] = tile[i];
}

// cp.async that arrives at an mbarrier, test_wait with a state, arrivals that drop out.
extern "C" __global__ void async_arrive(const int4* in, int4* out)
{
    __shared__ int4 tile[64];
    __shared__ alignas(8) u64 bar, slow;
    int t = threadIdx.x;
    if (t == 0) { barrier_init(&bar, 64); barrier_init(&slow, 64); }
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tile[t])), "l"(in + blockIdx.x * 64 + t) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&bar)) : "memory");
    u64 state;
    if (t >= 32) {
        asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(&slow)) : "memory");
    } else {
        asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(&slow)) : "memory");
    }
    u32 done = 0;
    while (!done)
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(shared_address(&slow)), "l"(state) : "memory");
    barrier_wait(&bar, 0);
    int4 x = tile[t ^ 33];
    if (t < 32) {  // the others have dropped out: 32 arrivals complete the second phase
        arrive(&slow);
        barrier_wait(&slow, 1);
        x.w = -x.w;
    }
    out[blockIdx.x * 64 + t] = x;
}
