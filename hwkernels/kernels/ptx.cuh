// The PTX that the kernels share: mbarriers, TMA, clusters, wgmma's fences and descriptors. One wrapper, one instruction.
// Shared-memory addresses are 32-bit offsets in the shared window, as PTX takes them.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using s32 = int;
using s64 = long long;

struct alignas(64) TensorMap {  // CUtensorMap: only the copy engine reads it
    u8 bytes[128];
};

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// ---- who am I

__device__ __forceinline__ u32 uniform_warp() {  // the shuffle tells the compiler that a warp agrees on it
    return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
}

// The same for any value on which a warp agrees. It is not computed anew where it is used, as addresses of shared memory are.
__device__ __forceinline__ u32 uniform(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }

__device__ __forceinline__ bool elect_one() {  // true in one thread of a converged warp
    u32 chosen;
    asm volatile(
        "{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen != 0;
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ u32 lane_id() {  // volatile: addresses made from it are not kept in registers for later
    u32 lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// ---- numbers of 16 bits: the low one first, to nearest even

__device__ __forceinline__ u32 f16_pair(float low, float high) {
    u32 pair;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
    u16 halves[2];
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(halves[0]) : "f"(low));
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(halves[1]) : "f"(high));
    pair = halves[0] | static_cast<u32>(halves[1]) << 16;
#endif
    return pair;
}

__device__ __forceinline__ u32 bf16_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ float from_f16(u16 code) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(code));
    return value;
}

// ---- shared memory

__device__ __forceinline__ u32 load_shared(u32 address) {
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

__device__ __forceinline__ void store_shared_pair(u32 to, float low, float high) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(low), "f"(high) : "memory");
}

__device__ __forceinline__ void store_shared_pair(u32 to, s32 low, s32 high) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(low), "r"(high) : "memory");
}

// Four 8 x 8 matrices of 16 bits (rows of 16 bytes); lane 8i + r gives the address of row r of matrix i.
__device__ __forceinline__ void stmatrix(u32 to, const u32 (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
                 "r"(from[2]), "r"(from[3])
                 : "memory");
}

// ---- barriers of a block and of a cluster

__device__ __forceinline__ void named_sync(u32 barrier, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(u32 barrier, u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Relaxed: all that others must see is the barriers, and mbarrier_init_fence releases those. Nobody waits for stores.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

// ---- kernels of a stream that overlap (programmatic dependent launch)

__device__ __forceinline__ void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }  // until it is done, and its writes are seen

// ---- mbarriers: a phase ends when all arrivals and all announced bytes have come

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void mbarrier_init_fence() {  // the copy engine and the cluster see the initialised barriers
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier, bool really = true) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier),
        "r"(static_cast<u32>(really))
        : "memory");
}

// The address of the same place in another block of the cluster; offsets within a block may be added to it.
__device__ __forceinline__ u32 address_in_block(u32 address, u32 rank) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}

__device__ __forceinline__ void mbarrier_arrive_remote(u32 barrier, bool really) {  // an address of address_in_block
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n@p mbarrier.arrive.shared::cluster.b64 _, [%0];\n}" ::"r"(barrier),
        "r"(static_cast<u32>(really))
        : "memory");
}

__device__ __forceinline__ void mbarrier_expect(u32 barrier, u32 bytes) {  // arrives, and announces bytes
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {  // until the phase of this parity has ended
    asm volatile(
        "{\n.reg .pred done;\nAGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- TMA: coordinates innermost first; a box beyond the tensor reads zeros and writes nothing

__device__ __forceinline__ void tma_prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same into this block. For a destination in .shared::cluster, ptxas adds to sm_120's code a check that it is this block's.
__device__ __forceinline__ void tma_load_cta(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// To the same place in every block whose bit is set in `blocks`, and to the same barrier there.
__device__ __forceinline__ void tma_load_multicast(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier, u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks)
        : "memory");
}

// The same with a policy for L2, as evict_first() makes one.
__device__ __forceinline__ void tma_load(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void tma_load_multicast(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier, u16 blocks, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(blocks), "l"(policy)
        : "memory");
}

// Three dimensions.
__device__ __forceinline__ void tma_load(u32 to, const TensorMap* map, s32 x, s32 y, s32 z, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void tma_load_multicast(u32 to, const TensorMap* map, s32 x, s32 y, s32 z, u32 barrier, u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
        : "memory");
}

// As many pixels as the map says, of an image of channels, columns, rows and images; each moved by a tap's place.
__device__ __forceinline__ void tma_load_pixels(u32 to, const TensorMap* map, s32 c, s32 w, s32 h, s32 n, u16 across, u16 down, u32 barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(barrier), "h"(across), "h"(down)
        : "memory");
}

__device__ __forceinline__ void tma_load_pixels_multicast(u32 to, const TensorMap* map, s32 c, s32 w, s32 h, s32 n, u16 across, u16 down,
                                                          u32 barrier, u16 blocks) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8}, %9;" ::"r"(to),
        "l"(map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(barrier), "h"(across), "h"(down), "h"(blocks)
        : "memory");
}

__device__ __forceinline__ u64 evict_first() {  // lines that leave L2 before others
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ void tma_prefetch(const TensorMap* map, s32 x, s32 y) {  // a box, into L2 only
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap* map, s32 x, s32 y, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}

// Contiguous bytes, a multiple of 16, without a tensor map.
__device__ __forceinline__ void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int PENDING>  // until all but the last PENDING groups have been read from shared memory
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void async_proxy_fence() {  // ordinary stores to shared memory before the copy engine or wgmma reads
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- wgmma: the instruction itself is in multiply.cuh, written from the registry

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <typename T, int N>
__device__ __forceinline__ void keep(T (&registers)[N]) {  // no use of these moves across this point
    if constexpr (sizeof(T) == 4 && T(0.5f) != T(0)) {
#pragma unroll
        for (int i = 0; i < N; ++i) asm volatile("" : "+f"(reinterpret_cast<float&>(registers[i]))::"memory");
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) asm volatile("" : "+r"(reinterpret_cast<u32&>(registers[i]))::"memory");
    }
}

template <u32 COUNT>
__device__ __forceinline__ void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <u32 COUNT>
__device__ __forceinline__ void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- tiles of shared memory as wgmma reads them: panels of rows of 128 bytes, 16-byte chunks swizzled with the row's number

constexpr u32 SPAN = 128;           // bytes of a row: the span of the 128B swizzle
constexpr u32 CORE = 8 * SPAN;      // 8 rows, after which the swizzle repeats: its alignment too
constexpr u32 PANEL = 64 * SPAN;    // 64 rows

// Matrix descriptor without its address: 128B swizzle (bits 62-63), SBO 1024 bytes, LBO. K-major: rows of a tile are M or
// N, LBO is unused (1). MN-major: a row is one k and holds 64 of M or N; the next 64 lie a panel further (LBO).
constexpr u64 descriptor_bits(bool mn_major) {
    return u64(1) << 62 | u64(CORE >> 4) << 32 | u64(mn_major ? PANEL >> 4 : 1) << 16;
}

// The address field of a descriptor: 14 bits, in units of 16 bytes. In a cluster, shared addresses may carry the block's
// rank in their high bits, which must not run into the next field.
__device__ __forceinline__ u64 address_field(u32 shared) { return (shared >> 4) & 0x3fff; }

// A descriptor from its low word: the high one never changes.
constexpr u32 descriptor_low(bool mn_major) { return static_cast<u32>(descriptor_bits(mn_major)); }
__device__ __forceinline__ u64 descriptor_of(u32 low, bool mn_major) { return descriptor_bits(mn_major) >> 32 << 32 | low; }

// What a K step adds to a descriptor, in units of 16 bytes: 32 bytes along the row, or 16 rows.
constexpr u32 descriptor_step(bool mn_major) { return mn_major ? 16 * SPAN >> 4 : 32 >> 4; }

constexpr u32 swizzled(u32 row, u32 chunk) {  // byte offset of a 16-byte chunk in a panel
    return row * SPAN + ((chunk ^ (row & 7)) << 4);
}
