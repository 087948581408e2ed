// A GPU for one cluster of blocks on the CPU: what ptx.cuh and warp.cuh wrap, with a thread for each thread.
//
// It is as hostile as the hardware may be. TMA loads write at once; wgmma, cp.async and TMA stores happen as late as the
// wait for them allows; dynamic shared memory starts off its alignment and is full of 0xA5. A wrong barrier count aborts or hangs.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using s32 = int;
using s64 = long long;
using std::max;
using std::min;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __CUDA_ARCH__ 900

#define NEED(condition, complaint)                       \
    do {                                                 \
        if (!(condition)) {                              \
            std::fprintf(stderr, "%s\n", complaint);     \
            std::abort();                                \
        }                                                \
    } while (false)

struct uint4 {
    u32 x, y, z, w;
};
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline float __uint_as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 __float_as_uint(float value) { return __builtin_bit_cast(u32, value); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }

struct Index {
    u32 x = 0, y = 0, z = 0;
};
inline thread_local Index threadIdx, blockIdx;
inline Index gridDim;

// ---- barriers

struct MBarrier {
    std::mutex mutex;
    std::condition_variable changed;
    u32 expected = 0, pending = 0, phase = 0;
    long bytes = 0;

    void update(u32 arrivals, long more_bytes) {
        std::unique_lock lock(mutex);
        NEED(expected, "an mbarrier is used before it is initialised");
        NEED(arrivals <= pending, "too many arrivals in one phase");
        pending -= arrivals;
        bytes += more_bytes;
        if (pending == 0 && bytes == 0) {
            ++phase;
            pending = expected;
            changed.notify_all();
        }
    }
    void wait(u32 parity) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return (phase & 1) != parity; });
    }
};

inline thread_local bool fence_missing = false;  // a barrier was passed, and no tcgen05.fence::after_thread_sync since
inline thread_local bool read_unfenced = false;  // Tensor Memory was read, and no tcgen05.fence::before_thread_sync since

struct Gate {  // bar.sync and bar.arrive
    std::mutex mutex;
    std::condition_variable changed;
    u32 here = 0;
    u64 round = 0;

    u64 pass(u32 threads, bool waits) {  // returns the round that it belongs to
        std::unique_lock lock(mutex);
        const u64 mine = round;
        if (++here == threads) {
            here = 0;
            ++round;
            changed.notify_all();
        } else if (waits) {
            changed.wait(lock, [&] { return round != mine; });
        }
        return mine;
    }
    void wait_for(u64 mine) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return round != mine; });
    }
};

struct Block {
    std::vector<u8> dynamic;
    std::map<u32, MBarrier> barriers;
    std::mutex barriers_mutex;
    Gate named[16], warps[32], warpgroups[8];
    std::vector<u64> exchange = std::vector<u64>(32 * 32 * 8);
    u32 rank = 0;
    std::atomic<u32> present = 0;  // threads that have not left

    MBarrier& barrier(u32 address) {
        std::lock_guard lock(barriers_mutex);
        return barriers[address & ((1u << 24) - 1)];
    }
};
inline thread_local Block* block;
inline std::vector<Block*> cluster;
inline Gate cluster_gate;
inline u32 block_threads;

// ---- shared memory: dynamic, or the static arrays of the kernel around an anchor

alignas(1024) inline u8 anchor[1024];
constexpr u32 DYNAMIC_START = 512, STATIC_START = 0x20000;
constexpr u32 RANK_SHIFT = 24;  // in a cluster, shared addresses carry the rank of their block: CUTLASS clears bit 24 to reach the leader

inline u32 offset_of(u32 address) { return address & ((1u << RANK_SHIFT) - 1); }
inline u8* memory(Block* owner, u32 address) {
    NEED(address >> RANK_SHIFT == 0 || address >> RANK_SHIFT == owner->rank, "another block's shared memory");
    address = offset_of(address);
    if (owner->dynamic.empty()) return anchor + (static_cast<s64>(address) - STATIC_START);
    NEED(address - DYNAMIC_START < owner->dynamic.size(), "an address outside of shared memory");
    return owner->dynamic.data() + (address - DYNAMIC_START);
}
inline u8* memory(u32 address) { return memory(block, address); }
inline u32 shared_address(const void* pointer) {
    const u8* at = static_cast<const u8*>(pointer);
    if (!block->dynamic.empty()) return (DYNAMIC_START + static_cast<u32>(at - block->dynamic.data())) | block->rank << RANK_SHIFT;
    return static_cast<u32>(STATIC_START + (at - anchor));
}
inline u32 swizzle(u32 address, u32 span = 128) { return address ^ (address >> 3 & (span == 128 ? 0x70 : 0x30)); }
inline u32 load_shared(u32 address) {
    NEED(address % 4 == 0, "a word off 4 bytes");
    u32 word;
    std::memcpy(&word, memory(address), 4);
    return word;
}

// ---- who am I, barriers

inline void meet(Gate& gate, u32 threads) {
    NEED(!read_unfenced, "a barrier without tcgen05.fence::before_thread_sync after a read of Tensor Memory");
    gate.pass(threads, true);
    fence_missing = true;
}
inline void __syncthreads() { meet(block->named[0], block_threads); }
inline void __syncwarp() { block->warps[threadIdx.x / 32].pass(32, true); }
inline u32 uniform_warp() { return threadIdx.x / 32; }
inline u32 uniform(u32 value) { return value; }
inline bool elect_one() { return threadIdx.x % 32 == 0; }
inline u32 cluster_rank() { return block->rank; }
inline u32 lane_id() { return threadIdx.x % 32; }
inline void named_sync(u32 barrier, u32 threads) { block->named[barrier].pass(threads, true); }
inline void named_arrive(u32 barrier, u32 threads) { block->named[barrier].pass(threads, false); }
inline thread_local u64 cluster_round;
inline void let_next_begin() {}  // one kernel runs at a time
inline void wait_for_previous() {}

inline void cluster_arrive() {
    NEED(!read_unfenced, "a barrier without tcgen05.fence::before_thread_sync after a read of Tensor Memory");
    cluster_round = cluster_gate.pass(block_threads * cluster.size(), false);
}
inline void cluster_wait() {
    cluster_gate.wait_for(cluster_round);
    fence_missing = true;
}
inline void mbarrier_init(u32 barrier, u32 arrivals) {
    MBarrier& made = block->barrier(barrier);
    made.expected = made.pending = arrivals;
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(u32 barrier, bool really = true) {
    if (really) block->barrier(barrier).update(1, 0);
}
// Signals to other blocks arrive late: when the thread waits next (or arrives with release), or after it has left.
inline thread_local std::vector<std::function<void()>> signals;
inline void send_signals() {
    for (auto& signal : signals) signal();
    signals.clear();
}
inline void cluster_sync() {
    send_signals();
    meet(cluster_gate, block_threads * cluster.size());
}
inline Block& neighbour(u32 rank) {
    NEED(rank < cluster.size(), "no such block in the cluster");
    NEED(cluster[rank]->present > 0, "a block is reached that has left");
    return *cluster[rank];
}
inline u32 address_in_block(u32 address, u32 rank) { return rank << RANK_SHIFT | offset_of(address); }
inline void mbarrier_arrive_remote(u32 barrier, bool really) {
    if (!really) return;
    signals.push_back([=] { neighbour(barrier >> RANK_SHIFT).barrier(barrier & ((1u << RANK_SHIFT) - 1)).update(1, 0); });
}
inline void leave() {
    if (!signals.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100 * (block->rank + 1)));
        send_signals();
    }
    --block->present;
}
inline void mbarrier_expect(u32 barrier, u32 bytes) { block->barrier(barrier).update(1, bytes); }
inline void mbarrier_wait(u32 barrier, u32 parity) {
    send_signals();
    block->barrier(barrier).wait(parity);
    fence_missing = true;
}
template <u32>
void registers_down() {}
template <u32>
void registers_up() {}

// ---- work that is done late: groups of closures, the oldest first

struct Late {
    std::vector<std::function<void()>> open;
    std::deque<std::vector<std::function<void()>>> groups;

    void commit() {
        groups.push_back(std::move(open));
        open.clear();
    }
    void wait(size_t pending) {
        while (groups.size() > pending) {
            for (auto& work : groups.front()) work();
            groups.pop_front();
        }
    }
};
inline thread_local Late multiplications, copies, stores;

// ---- TMA

struct alignas(64) TensorMap {
    u64 base, width, height, pitch;  // elements, bytes
    u32 box_width, box_height, element, span;  // of the swizzle
    u8 rest[128 - 48];
};
inline void tma_prefetch_map(const TensorMap*) {}
inline void for_box(const TensorMap* map, s32 x, s32 y, u32 at, const std::function<void(u8*, u32)>& move) {
    NEED(at % 128 == 0, "a TMA box off 128 bytes");
    NEED(x * static_cast<s64>(map->element) % 16 == 0, "a TMA coordinate off 16 bytes");
    NEED(map->box_width * map->element <= map->span, "a TMA box wider than its swizzle");
    for (u32 j = 0; j < map->box_height; ++j) {
        for (u32 i = 0; i < map->box_width * map->element; ++i) {
            const s64 column = x + static_cast<s64>(i / map->element), row = y + static_cast<s64>(j);
            const bool inside = column >= 0 && row >= 0 && column < static_cast<s64>(map->width) && row < static_cast<s64>(map->height);
            u8* global = reinterpret_cast<u8*>(map->base) + row * static_cast<s64>(map->pitch) + column * map->element + i % map->element;
            move(inside ? global : nullptr, swizzle(at + map->span * j + i, map->span));
        }
    }
}
inline void tma_load_to(Block* owner, u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) {
    for_box(map, x, y, to, [&](u8* global, u32 shared) { *memory(owner, shared) = global ? *global : 0; });
    owner->barrier(barrier).update(0, -static_cast<long>(map->box_width * map->box_height * map->element));
}
inline void tma_load(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) { tma_load_to(block, to, map, x, y, barrier); }
inline void tma_load_cta(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) { tma_load(to, map, x, y, barrier); }
inline void tma_load_multicast(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier, u16 blocks) {
    NEED(blocks >> cluster.size() == 0, "a multicast to a block that is not there");
    for (u32 rank = 0; rank < cluster.size(); ++rank) {
        if (blocks >> rank & 1) tma_load_to(&neighbour(rank), offset_of(to), map, x, y, barrier);
    }
}
inline void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
    NEED(to % 16 == 0 && reinterpret_cast<u64>(from) % 16 == 0 && bytes % 16 == 0, "a bulk copy off 16 bytes");
    memory(to + bytes - 1);  // aborts beyond the end
    std::memcpy(memory(to), from, bytes);
    block->barrier(barrier).update(0, -static_cast<long>(bytes));
}
constexpr u64 EVICT_FIRST = 1;
inline u64 evict_first() { return EVICT_FIRST; }
inline void tma_load(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier, u64 policy) {
    NEED(policy == EVICT_FIRST, "not a policy");
    tma_load(to, map, x, y, barrier);
}
inline void tma_load_multicast(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier, u16 blocks, u64 policy) {
    NEED(policy == EVICT_FIRST, "not a policy");
    tma_load_multicast(to, map, x, y, barrier, blocks);
}
inline void tma_prefetch(const TensorMap* map, s32 x, s32) { NEED(x * static_cast<s64>(map->element) % 16 == 0, "a TMA coordinate off 16 bytes"); }
inline void tma_store(const TensorMap* map, s32 x, s32 y, u32 from) {
    Block* owner = block;
    stores.open.push_back([=] {
        for_box(map, x, y, from, [&](u8* global, u32 shared) {
            if (global) *global = *memory(owner, shared);
        });
    });
}
inline void tma_store_commit() { stores.commit(); }
template <int PENDING>
void tma_store_wait_read() {
    stores.wait(PENDING);
}
inline void async_proxy_fence() {}

// ---- numbers

inline u16 f16_code(float value) { return __builtin_bit_cast(u16, static_cast<_Float16>(value)); }
inline u16 bf16_code(float value) {  // no NaN comes here
    const u32 bits = __builtin_bit_cast(u32, value);
    return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline u32 f16_pair(float low, float high) { return f16_code(low) | static_cast<u32>(f16_code(high)) << 16; }
inline u32 bf16_pair(float low, float high) { return bf16_code(low) | static_cast<u32>(bf16_code(high)) << 16; }
inline float from_f16(u16 code) { return static_cast<float>(__builtin_bit_cast(_Float16, code)); }

inline double element(const void* at) {  // of an operand, whatever its format
    const u8* bytes = static_cast<const u8*>(at);
#if defined(OPERAND_F16)
    return from_f16(static_cast<u16>(bytes[0] | bytes[1] << 8));
#elif defined(OPERAND_BF16)
    return __uint_as_float(static_cast<u32>(bytes[0] | bytes[1] << 8) << 16);
#elif defined(OPERAND_TF32)
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
#elif defined(OPERAND_S8)
    return static_cast<signed char>(*bytes);
#else  // e4m3
    const int exponent = *bytes >> 3 & 15, fraction = *bytes & 7;
    const double value = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
    return *bytes & 128 ? -value : value;
#endif
}

// ---- a warp's matrices

template <typename T>
std::vector<T> gather(const T& mine) {  // what every lane of the warp gives
    static_assert(sizeof(T) <= 64);
    u64* slots = &block->exchange[threadIdx.x / 32 * 256];
    std::memcpy(slots + threadIdx.x % 32 * 8, &mine, sizeof(T));
    __syncwarp();
    std::vector<T> all(32);
    for (u32 lane = 0; lane < 32; ++lane) std::memcpy(&all[lane], slots + lane * 8, sizeof(T));
    __syncwarp();
    return all;
}
inline void stmatrix(u32 to, const u32 (&from)[4]) {
    const auto rows = gather(to);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) std::memcpy(memory(rows[8 * i + lane / 4] + lane % 4 * 4), &from[i], 4);
}
template <typename T>
void store_shared_pair(u32 to, T low, T high) {
    std::memcpy(memory(to), &low, 4);
    std::memcpy(memory(to + 4), &high, 4);
}
inline void ldmatrix(u32 (&to)[4], u32 address) {
    const auto rows = gather(address);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        NEED(rows[8 * i] % 16 == 0, "an ldmatrix row off 16 bytes");
        std::memcpy(&to[i], memory(rows[8 * i + lane / 4] + lane % 4 * 4), 4);
    }
}
inline void ldmatrix_transposed(u32 (&to)[4], u32 address) {
    const auto rows = gather(address);
    const u32 lane = threadIdx.x % 32;
    for (u32 i = 0; i < 4; ++i) {
        u16 pair[2];
        for (u32 e = 0; e < 2; ++e) std::memcpy(&pair[e], memory(rows[8 * i + lane % 4 * 2 + e] + lane / 4 * 2), 2);
        to[i] = pair[0] | static_cast<u32>(pair[1]) << 16;
    }
}
inline void async_copy(u32 to, const u8* from, u32 valid) {
    NEED(to % 16 == 0 && reinterpret_cast<u64>(from) % 16 == 0, "a cp.async off 16 bytes");
    Block* owner = block;
    std::memset(memory(owner, to), 0xA5, 16);
    copies.open.push_back([=] {
        u8 chunk[16] = {};
        std::memcpy(chunk, from, valid);
        std::memcpy(memory(owner, to), chunk, 16);
    });
}
inline void async_copy(u32 to, const u8* from) { async_copy(to, from, 16); }
inline void async_copy_commit() { copies.commit(); }
template <int PENDING>
void async_copy_wait() {
    copies.wait(PENDING);
}
inline u32 valid_bytes(s64 bytes) { return static_cast<u32>(std::clamp<s64>(bytes, 0, 16)); }

// ---- wgmma's surroundings

inline void wgmma_fence() {}
inline void wgmma_commit() { multiplications.commit(); }
template <int PENDING>
void wgmma_wait() {
    multiplications.wait(PENDING);
    block->warpgroups[threadIdx.x / 128].pass(128, true);  // a warpgroup waits together
}
template <typename T, int N>
void keep(T (&)[N]) {}
