// GPGPU-Sim's tensor core on vectors of wmma.mma m16n16k16 (f16 operands) in the form `hex`: reads vectors, writes one answer a line.
//
//   g++ -O2 -std=c++11 -I gpgpu-sim_distribution/src/cuda-sim vectors_gpgpusim.cpp -o gpgpusim
//   ./gpgpusim f32 < vectors.hex > answers.hex        # f32: C and D; or f16
//
// The arithmetic is that of mma_impl in src/cuda-sim/instructions.cc (commit 90ec3399, lines 2028 to 2050), with the simulator's own half.h:
// products and sums are `half`s, k ascending from zero, and C is added at the end.

#include "half.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

using half_float::half;

static half half_of(const std::string &digits) {
  uint16_t bits = static_cast<uint16_t>(std::stoul(digits, nullptr, 16));
  half value;
  std::memcpy(static_cast<void *>(&value), &bits, sizeof bits);
  return value;
}

int main(int count, char **arguments) {
  const bool wide = count > 1 && std::string(arguments[1]) == "f32";
  const int digits = wide ? 8 : 4;
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::string c = line.substr(digits, digits), b = line.substr(2 * digits, 64), a = line.substr(2 * digits + 64, 64);
    half sum = half(0.0f);
    for (int k = 0; k < 16; k++) {
      const int at = 4 * (15 - k);  // element 0 is the last
      sum = sum + half_of(a.substr(at, 4)) * half_of(b.substr(at, 4));
    }
    if (wide) {
      uint32_t bits = static_cast<uint32_t>(std::stoul(c, nullptr, 16));
      float total = sum, addend;
      std::memcpy(&addend, &bits, sizeof bits);
      total += addend;
      std::memcpy(&bits, &total, sizeof bits);
      std::printf("%08x\n", bits);
    } else {
      sum += half_of(c);
      uint16_t bits;
      std::memcpy(&bits, &sum, sizeof bits);
      std::printf("%04x\n", bits);
    }
  }
}
