// Runs `gemm` for a whole grid: sizes, parameters and memory come from a file, the memory goes back to it.
#pragma once

struct Header {
    u32 grid_x, grid_y, threads, shared, cluster, problem;  // bytes of the last; addresses in it count from the memory
    u64 memory, metadata;  // bytes; where a sparse A's are
};

int main(int, char** arguments) {
    std::FILE* file = std::fopen(arguments[1], "r+b");
    Header header;
    Problem problem;
    static TensorMap maps[3];
    NEED(std::fread(&header, sizeof header, 1, file) == 1 && header.problem == sizeof problem, "not the Problem of the kernel");
#if USES_FACTORS
    ScaleFactors factors;
    NEED(std::fread(&factors, sizeof factors, 1, file) == 1, "a short file");
#endif
    NEED(std::fread(&problem, sizeof problem, 1, file) == 1 && std::fread(maps, sizeof maps, 1, file) == 1, "a short file");
    u8* const data = static_cast<u8*>(std::aligned_alloc(256, (header.memory + 255) / 256 * 256));
    const long start = std::ftell(file);
    NEED(std::fread(data, 1, header.memory, file) == header.memory, "a short file");
    problem.a = data + reinterpret_cast<u64>(problem.a);
    problem.b = data + reinterpret_cast<u64>(problem.b);
    problem.c = problem.c ? data + reinterpret_cast<u64>(problem.c) : nullptr;
    problem.d = data + reinterpret_cast<u64>(problem.d);
#if USES_FACTORS
    factors.a = data + reinterpret_cast<u64>(factors.a);
    factors.b = data + reinterpret_cast<u64>(factors.b);
#endif
    for (TensorMap& map : maps) map.base += reinterpret_cast<u64>(data);
    gridDim = {header.grid_x, header.grid_y, 1};
    block_threads = header.threads;
    for (u32 y = 0; y < header.grid_y; ++y) {
        for (u32 x = 0; x < header.grid_x; x += header.cluster) {
            std::vector<std::unique_ptr<Block>> blocks;
            cluster.clear();
            for (u32 rank = 0; rank < header.cluster; ++rank) {
                blocks.push_back(std::make_unique<Block>());
                cluster.push_back(blocks.back().get());
                cluster.back()->dynamic.assign(header.shared, 0xA5);
                cluster.back()->rank = rank;
                cluster.back()->present = header.threads;
            }
            std::vector<std::thread> threads;
            for (u32 rank = 0; rank < header.cluster; ++rank) {
                for (u32 thread = 0; thread < header.threads; ++thread) {
                    threads.emplace_back([=] {
                        threadIdx = {thread, 0, 0};
                        blockIdx = {x + rank, y, 0};
                        block = cluster[rank];
#if USES_FACTORS
                        gemm(maps[0], maps[1], maps[2], problem, factors);
#elif USES_TMA && SPARSE
                        gemm(maps[0], maps[1], maps[2], problem, data + header.metadata);
#elif USES_TMA
                        gemm(maps[0], maps[1], maps[2], problem);
#elif SPARSE
                        gemm(problem, data + header.metadata);
#else
                        gemm(problem);
#endif
                        NEED(stores.groups.empty() && multiplications.groups.empty(), "a thread left with work under way");
                        leave();
                    });
                }
            }
            for (std::thread& thread : threads) thread.join();
#if USES_TENSOR_MEMORY
            close_blocks();
#endif
        }
    }
    std::fseek(file, start, SEEK_SET);
    NEED(std::fwrite(data, 1, header.memory, file) == header.memory, "the file cannot be written");
    return std::fclose(file);
}
