// A convolution as a matrix product: rows of A are the pixels of the output, K is the taps of the filter and the channels of each.
// TMA's im2col copies find the input pixels of a run of output pixels: they step along W, H and N inside a box of pixels.
#pragma once
#include "ptx.cuh"

// What the kernel is told besides the Problem; hwkernels/convolution/call.py packs the same fields.
struct Window {
    s32 height, width;  // of the output
    s32 stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
    s32 taps_w;         // columns of the filter
    s32 channel_steps;  // slots of a tap: its channels, filled up with zeros
};

// Where the first tap of an output pixel lies: image, row, column.
struct Pixel {
    s32 n, h, w;
};

__device__ __forceinline__ Pixel pixel_at(const Window& window, s32 row) {
    const s32 line = row / window.width, image = line / window.height;
    return Pixel{image, (line - image * window.height) * window.stride_h - window.padding_h,
                 (row - line * window.width) * window.stride_w - window.padding_w};
}

// A slot's part of K: a tap, and where its channels begin.
struct Tap {
    s32 r = 0, s = 0, channel = 0, step = 0;
    __device__ __forceinline__ void advance(const Window& window, s32 block_k) {
        channel += block_k;
        if (++step < window.channel_steps) return;
        step = channel = 0;
        if (++s < window.taps_w) return;
        s = 0;
        ++r;
    }
};

// Part `part` of PARTS of a tile of EXTENT pixels; with PARTS > 1 it goes to all of `blocks`. `pixel`: the first of that part.
template <u32 EXTENT, u32 PARTS>
__device__ __forceinline__ void load_pixels(u32 to, const TensorMap* map, const Pixel& pixel, const Tap& tap, const Window& window, u32 part,
                                            u32 barrier, u16 blocks) {
    const u16 across = tap.s * window.dilation_w, down = tap.r * window.dilation_h;
    to += part * (EXTENT / PARTS) * SPAN;
    if (PARTS > 1) tma_load_pixels_multicast(to, map, tap.channel, pixel.w, pixel.h, pixel.n, across, down, barrier, blocks);
    else tma_load_pixels(to, map, tap.channel, pixel.w, pixel.h, pixel.n, across, down, barrier);
}

// The same of EXTENT filters, of which each tap is a row of channels.
template <u32 EXTENT, u32 PARTS>
__device__ __forceinline__ void load_filters(u32 to, const TensorMap* map, s32 start, const Tap& tap, const Window& window, u32 part, u32 barrier,
                                             u16 blocks) {
    const s32 first = start + s32(part * (EXTENT / PARTS)), row = tap.r * window.taps_w + tap.s;
    to += part * (EXTENT / PARTS) * SPAN;
    if (PARTS > 1) tma_load_multicast(to, map, tap.channel, row, first, barrier, blocks);
    else tma_load(to, map, tap.channel, row, first, barrier);
}
