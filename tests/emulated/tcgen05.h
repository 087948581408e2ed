// Tensor Memory and tcgen05 on the CPU: what tcgen05.cuh wraps. Multiplications, copies and commits of a thread run late, in their order, in
// a thread of their own; Tensor Memory starts full of 0xA5, at a column that is not 0 if any is left.
//
// Complaints that no GPU would make: Tensor Memory is used without the fence behind a barrier, or left without the one before it; it is not
// allocated, not freed, freed by another warp; a commit is under way when its block exits.
#pragma once
#include <chrono>
#include "gpu.h"

constexpr u32 ROW_OF_LANES = 32u << 16;
constexpr u32 LANES = 128, ALL_COLUMNS = 512;

// ---- the tensor pipe of a block: one queue, as its instructions are issued by one thread

struct Pipe {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> work;
    bool busy = false, closed = false;
    u32 random = 1;
    std::thread thread{[this] { serve(); }};

    void serve() {
        std::unique_lock lock(mutex);
        while (true) {
            changed.wait(lock, [&] { return closed || !work.empty(); });
            if (work.empty()) return;
            auto next = std::move(work.front());
            work.pop_front();
            busy = true;
            lock.unlock();
            random = random * 1664525 + 1013904223;
            if (random >> 30 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
            next();
            lock.lock();
            busy = false;
        }
    }
    void push(std::function<void()> item) {
        std::lock_guard lock(mutex);
        work.push_back(std::move(item));
        changed.notify_all();
    }
    void close() {
        {
            std::lock_guard lock(mutex);
            NEED(work.empty(), "a block exits while its multiplications or commits are under way");
            closed = true;
            changed.notify_all();
        }
        thread.join();
    }
};

struct TensorMemory {
    std::vector<u32> words = std::vector<u32>(LANES * ALL_COLUMNS, 0xA5A5A5A5);
    std::mutex mutex;
    u32 base = 0, columns = 0, owner = 0;  // of the allocation
    bool relinquished = false;
    Pipe pipe;

    u32& at(u32 lane, u32 column) {
        NEED(columns && column >= base && column < base + columns && lane < LANES, "Tensor Memory that is not allocated");
        return words[lane * ALL_COLUMNS + column];
    }
};
inline std::map<Block*, std::unique_ptr<TensorMemory>> tensor_memories;
inline std::mutex tensor_memories_mutex;
inline TensorMemory& tensor_memory(Block* owner) {
    std::lock_guard lock(tensor_memories_mutex);
    auto& made = tensor_memories[owner];
    if (!made) made = std::make_unique<TensorMemory>();
    return *made;
}
inline void close_blocks() {  // after the threads of a cluster have ended
    for (auto& [owner, memory] : tensor_memories) {
        NEED(memory->columns == 0, "Tensor Memory is not freed");
        memory->pipe.close();
    }
    tensor_memories.clear();
}

inline Gate pair_gate;
template <int GROUP>
void whole_warp() {  // of a pair, one warp of each block
    if (GROUP == 2) {
        NEED(cluster.size() == 2, "cta_group::2 without a pair of blocks");
        pair_gate.pass(64, true);
    } else {
        __syncwarp();
    }
}
template <int GROUP>
void tmem_allocate(u32 place, u32 columns) {
    TensorMemory& memory = tensor_memory(block);
    NEED(columns >= 32 && columns <= ALL_COLUMNS && (columns & (columns - 1)) == 0, "columns that tcgen05.alloc does not take");
    whole_warp<GROUP>();
    if (threadIdx.x % 32 == 0) {
        NEED(!memory.relinquished, "tcgen05.alloc after relinquish_alloc_permit");
        memory.base = ALL_COLUMNS - columns, memory.columns = columns, memory.owner = threadIdx.x / 32;
        memory.relinquished = true;
        std::memcpy(::memory(place), &memory.base, 4);
    }
    whole_warp<GROUP>();
}
template <int GROUP>
void tmem_free(u32 address, u32 columns) {
    TensorMemory& memory = tensor_memory(block);
    NEED(!fence_missing, "Tensor Memory is freed without tcgen05.fence::after_thread_sync");
    whole_warp<GROUP>();
    if (threadIdx.x % 32 == 0) {
        NEED(memory.columns == columns && memory.base == address, "other columns are freed than were allocated");
        NEED(memory.owner == threadIdx.x / 32, "another warp frees than allocated");
        memory.columns = 0;
    }
    whole_warp<GROUP>();
}

// ---- order

inline void tcgen05_before_sync() { read_unfenced = false; }
inline void tcgen05_after_sync() { fence_missing = false; }
inline void issue(std::function<void()> work) {
    NEED(!fence_missing, "tcgen05 is used without tcgen05.fence::after_thread_sync behind the barrier");
    tensor_memory(block).pipe.push(std::move(work));
}
inline void tcgen05_commit(u32 barrier) {
    Block* owner = block;
    tensor_memory(block).pipe.push([=] { owner->barrier(barrier).update(1, 0); });
}
inline void tcgen05_commit_pair(u32 barrier, u16 blocks) {
    NEED(blocks >> cluster.size() == 0, "a commit to a block that is not there");
    const std::vector<Block*> all = cluster;
    tensor_memory(block).pipe.push([=] {
        for (u32 rank = 0; rank < all.size(); ++rank) {
            if (blocks >> rank & 1) all[rank]->barrier(barrier).update(1, 0);
        }
    });
}

// ---- a cluster: shared addresses carry the rank of their block (gpu.h)

inline u32 address_in(u32 shared, u32 rank) {
    NEED(rank < cluster.size(), "no such block in the cluster");
    return offset_of(shared) | rank << RANK_SHIFT;
}
inline Block* block_of(u32 address) { return cluster[address >> RANK_SHIFT]; }
inline void tma_load_pair(u32 to, const TensorMap* map, s32 x, s32 y, u32 barrier) {
    for_box(map, x, y, to, [&](u8* global, u32 shared) { *memory(block, shared) = global ? *global : 0; });
    block_of(barrier)->barrier(barrier).update(0, -static_cast<long>(map->box_width * map->box_height * map->element));
}
inline void mbarrier_arrive_cluster(u32 barrier) {
    NEED(!read_unfenced, "an arrival without tcgen05.fence::before_thread_sync after a read of Tensor Memory");
    block_of(barrier)->barrier(barrier).update(1, 0);
}
inline void mbarrier_wait_cluster(u32 barrier, u32 parity) { mbarrier_wait(barrier, parity); }

// ---- Tensor Memory to registers: read when it is waited for

inline thread_local u32 load_address;
inline void tmem_load(u32 (&d)[32], u32 address) {
    NEED(!fence_missing, "tcgen05.ld without tcgen05.fence::after_thread_sync behind the barrier");
    NEED(address >> 16 == threadIdx.x / 32 % 4 * 32, "a warp reads another quarter of the lanes than its own");
    std::fill(d, d + 32, 0xA5A5A5A5);
    load_address = address;
}
inline void tmem_load_wait(u32 (&d)[32]) {
    TensorMemory& from = tensor_memory(block);
    for (u32 i = 0; i < 32; ++i) d[i] = from.at((load_address >> 16) + threadIdx.x % 32, (load_address & 0xffff) + i);
    read_unfenced = true;
}
