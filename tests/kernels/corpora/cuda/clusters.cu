// Clusters of blocks: each other's shared memory, barriers, multicast, remote arrivals; and launches that follow one another.
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ u32 cluster_rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ u32 mapa(u32 address, u32 rank) { u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank)); return r; }
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_init(u64* bar, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory"); }
__device__ __forceinline__ void barrier_wait(u64* bar, u32 parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(shared_address(bar)), "r"(parity) : "memory");
}

// A sum over a cluster of four: every block reads the others' shared memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) dsmem_sum(const int* in, int* out)
{
    __shared__ int part[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    part[t] = in[i];
    cluster_sync();
    int sum = 0;
    for (u32 r = 0; r < 4; ++r) {
        int x;
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(mapa(shared_address(&part[t ^ r]), (cluster_rank() + r) & 3)) : "memory");
        sum = sum * 3 + x;
    }
    cluster_sync();
    out[i] = sum;
}

// A histogram spread over a cluster: atomics in other blocks' shared memory, by generic addresses.
extern "C" __global__ void __cluster_dims__(2, 1, 1) dsmem_histogram(const u32* in, u32* out)
{
    __shared__ u32 bins[32];
    int t = threadIdx.x;
    if (t < 32) bins[t] = 0;
    cluster_sync();
    u32 x = in[blockIdx.x * blockDim.x + t] & 63;
    u32 address = mapa(shared_address(&bins[x & 31]), x >> 5);
    asm volatile("red.shared::cluster.add.u32 [%0], 1;" ::"r"(address) : "memory");
    cluster_sync();
    if (t < 32) out[blockIdx.x * 32 + t] = bins[t];
}

// A tile is loaded once, by the first block, into the shared memory of all four.
extern "C" __global__ void __cluster_dims__(4, 1, 1) multicast(const float* in, float* out)
{
    __shared__ alignas(128) float tile[128];
    __shared__ alignas(8) u64 bar;
    int t = threadIdx.x;
    if (t == 0) {
        barrier_init(&bar, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(shared_address(&bar)) : "memory");
    }
    cluster_sync();
    if (cluster_rank() == 0 && t == 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 512, [%2], %3;" ::"r"(
                         shared_address(tile)),
                     "l"(in + blockIdx.x / 4 * 128), "r"(shared_address(&bar)), "h"((unsigned short)15)
                     : "memory");
    barrier_wait(&bar, 0);
    out[blockIdx.x * 128 + t] = tile[(t + 1) & 127] + cluster_rank();
    cluster_sync();
}

// Each block sends its data to its neighbour with st.async, which counts at the neighbour's barrier; then bulk copies between blocks.
extern "C" __global__ void __cluster_dims__(2, 1, 1) send(const int* in, int* out)
{
    __shared__ alignas(128) int inbox[64];
    __shared__ alignas(128) int copy[64];
    __shared__ alignas(128) int outbox[64];
    __shared__ alignas(8) u64 bar[2];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (t == 0) {
        barrier_init(&bar[0], 1);
        barrier_init(&bar[1], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(shared_address(&bar[0])) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(shared_address(&bar[1])) : "memory");
    }
    outbox[t] = in[i] * 5;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    cluster_sync();
    u32 peer = cluster_rank() ^ 1;
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(mapa(shared_address(&inbox[63 - t]), peer)),
                 "r"(in[i] + 1), "r"(mapa(shared_address(&bar[0]), peer))
                 : "memory");
    if (t == 0)
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(mapa(shared_address(copy), peer)),
                     "r"(shared_address(outbox)), "r"(mapa(shared_address(&bar[1]), peer))
                     : "memory");
    barrier_wait(&bar[0], 0);
    barrier_wait(&bar[1], 0);
    out[i] = inbox[t] ^ copy[t];
    cluster_sync();
}

// Blocks arrive at each other's barriers in turn: a ring of four that passes a value along twice.
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(int* out)
{
    __shared__ int value;
    __shared__ alignas(8) u64 bar;
    u32 rank = cluster_rank(), next = (rank + 1) & 3;
    if (threadIdx.x == 0) {
        barrier_init(&bar, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    if (threadIdx.x == 0) {
        int x = 0;
        for (int round = 0; round < 2; ++round) {
            if (rank || round) {
                asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(shared_address(&bar)), "r"(rank ? round : round - 1)
                             : "memory");
                x = value;
            }
            x = x * 3 + (int)rank + 1;
            asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(mapa(shared_address(&value), next)), "r"(x) : "memory");
            asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapa(shared_address(&bar), next)) : "memory");
        }
        out[blockIdx.x] = x;
    }
    cluster_sync();
}

// The two halves of a pair of launches: the second may start early and waits for the first one's memory.
extern "C" __global__ void primary(const int* in, int* middle, int* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    if (i < n) middle[i] = in[i] * in[i] - 7;
}
extern "C" __global__ void secondary(const int* in, int* middle, int* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int own = i < n ? in[i] : 0;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (i < n) out[i] = middle[n - 1 - i] + own;
}
