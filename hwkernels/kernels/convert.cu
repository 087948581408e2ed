// convert: f32 to f16, bf16, e4m3 or e5m2, element by element; one cvt rounds two neighbours and packs them.
//
// A thread takes 16 bytes of output at a time, so that loads and stores are of 16 bytes. An array that begins elsewhere, or
// ends inside such a run, is converted there one pair at a time.
#include "ptx.cuh"
#include "convert_pair.cuh"  // convert_pair(high, low) and pair_t, written by the host from the registry

constexpr u32 THREADS = 256;
constexpr u32 BYTES = sizeof(pair_t) / 2;   // of an output
constexpr u32 RUN = 16 / BYTES;             // elements that a thread converts at a time

union Run {
    pair_t pairs[RUN / 2];
    uint4 words;
};

extern "C" __global__ void __launch_bounds__(THREADS) convert(const float* from, u8* to, s64 count) {
    const s64 runs = (count + RUN - 1) / RUN, stride = s64(gridDim.x) * THREADS;
    const bool aligned = ((reinterpret_cast<u64>(from) | reinterpret_cast<u64>(to)) & 15) == 0;
    for (s64 run = s64(blockIdx.x) * THREADS + threadIdx.x; run < runs; run += stride) {
        const s64 first = run * RUN;
        if (aligned && first + RUN <= count) {
            Run out;
#pragma unroll
            for (u32 i = 0; i < RUN / 4; ++i) {
                const float4 in = reinterpret_cast<const float4*>(from + first)[i];
                out.pairs[2 * i] = convert_pair(in.y, in.x);
                out.pairs[2 * i + 1] = convert_pair(in.w, in.z);
            }
            *reinterpret_cast<uint4*>(to + first * BYTES) = out.words;
        } else {
#pragma unroll 1
            for (u32 i = 0; i < RUN && first + i < count; ++i) {
                const pair_t pair = convert_pair(0.0f, from[first + i]);
                const u8* bytes = reinterpret_cast<const u8*>(&pair);
                for (u32 byte = 0; byte < BYTES; ++byte) to[(first + i) * BYTES + byte] = bytes[byte];
            }
        }
    }
}
