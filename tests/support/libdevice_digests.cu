// Digests of CUDA's f32 mathematics over all 2^32 inputs, as nvcc compiles it by default.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <string>
#include <cuda_runtime.h>
typedef unsigned long long u64;
__host__ __device__ inline u64 mix(u64 z) { z ^= z >> 30; z *= 0xBF58476D1CE4E5B9ull; z ^= z >> 27; z *= 0x94D049BB133111EBull; z ^= z >> 31; return z; }
__device__ inline uint32_t canon(float y) { uint32_t b = __float_as_uint(y); return (b & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : b; }
#define UNARY(X) X(expf,expf(x)) X(exp2f,exp2f(x)) X(exp10f,exp10f(x)) X(expm1f,expm1f(x)) X(logf,logf(x)) X(log2f,log2f(x)) X(log10f,log10f(x)) X(log1pf,log1pf(x)) \
 X(sinf,sinf(x)) X(cosf,cosf(x)) X(tanf,tanf(x)) X(sinhf,sinhf(x)) X(coshf,coshf(x)) X(tanhf,tanhf(x)) X(asinf,asinf(x)) X(acosf,acosf(x)) X(atanf,atanf(x)) \
 X(asinhf,asinhf(x)) X(acoshf,acoshf(x)) X(atanhf,atanhf(x)) X(erff,erff(x)) X(erfcf,erfcf(x)) X(erfinvf,erfinvf(x)) X(lgammaf,lgammaf(x)) X(rsqrtf,rsqrtf(x)) X(sqrtf,sqrtf(x)) X(cbrtf,cbrtf(x)) X(reciprocal,1.0f/x)
#define BINARY(X) X(powf,powf(x,y)) X(atan2f,atan2f(x,y)) X(division,x/y) X(fmodf,fmodf(x,y)) X(remainderf,remainderf(x,y)) X(hypotf,hypotf(x,y))
#define DEF1(n,e) struct F_##n { static __device__ float f(float x) { return e; } };
#define DEF2(n,e) struct F_##n { static __device__ float f(float x, float y) { return e; } };
UNARY(DEF1)
BINARY(DEF2)
// one block of threads per 2^20 inputs
template <class F> __global__ void all(u64* out) {
  u64 sum = 0; uint32_t base = blockIdx.x << 20;
  for (uint32_t i = threadIdx.x; i < (1u << 20); i += blockDim.x) { uint32_t c = base + i; sum += mix(((u64)c << 32) | canon(F::f(__uint_as_float(c)))); }
  atomicAdd(out + blockIdx.x, sum);
}
// corners: 512 signs and exponents, 64 mantissas each; then random codes
__host__ __device__ inline uint32_t sample(uint32_t i) {
  if (i < 32768) { uint32_t k = i & 63, m; 
    if (k < 8) m = k; else if (k < 16) m = 0x7fffff - (k - 8); else if (k < 39) m = 1u << (k - 16); else m = (uint32_t)(mix(i) & 0x7fffff);
    return (i >> 6 << 23) | m; }
  return (uint32_t)(mix(0x5eed00000000ull + i) >> 16);
}
template <class F> __global__ void some(uint32_t* out) { uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = canon(F::f(__uint_as_float(sample(i)))); }
// pairs: block 0: corners squared (1024 * 1024 where corner j = sample(32 * j)); blocks 1 to 64 codes at random; 65 to 128 exponents near one
__host__ __device__ inline void pair(uint32_t block, uint32_t i, uint32_t* a, uint32_t* b) {
  if (block == 0) { *a = sample(32 * (i >> 10) + (i >> 10) % 7); *b = sample(32 * (i & 1023) + (i & 1023) % 5); return; }
  u64 h = mix(((u64)block << 32) + i + 0x1234500000000000ull), g = mix(h);
  *a = (uint32_t)(h >> 32); *b = (uint32_t)(g >> 32);
  if (block > 64) { *a = (*a & 0x807fffffu) | ((112 + (uint32_t)(h & 31)) << 23); *b = (*b & 0x807fffffu) | ((112 + (uint32_t)(g & 31)) << 23); if (h & 32) *a &= 0x7fffffffu; }
}
template <class F> __global__ void pairs(u64* out) {
  u64 sum = 0;
  for (uint32_t i = threadIdx.x + blockIdx.y * blockDim.x; i < (1u << 20); i += blockDim.x * gridDim.y) { uint32_t a, b; pair(blockIdx.x, i, &a, &b); sum += mix((((u64)blockIdx.x << 20 | i) << 32) | canon(F::f(__uint_as_float(a), __uint_as_float(b)))); }
  atomicAdd(out + blockIdx.x, sum);
}
template <class F> __global__ void somepairs(uint32_t* out, uint32_t block) { uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, a, b; pair(block, i * 16 + (i & 15), &a, &b); out[i] = canon(F::f(__uint_as_float(a), __uint_as_float(b))); }
static std::string dir;
static void write(const std::string& name, const void* p, size_t n) { FILE* f = fopen((dir + "/" + name).c_str(), "wb"); fwrite(p, 1, n, f); fclose(f); }
template <class F> void unary(const char* name) {
  u64* d; uint32_t* s; cudaMalloc(&d, 4096 * 8); cudaMemset(d, 0, 4096 * 8); cudaMalloc(&s, 65536 * 4);
  all<F><<<4096, 256>>>(d); some<F><<<256, 256>>>(s);
  std::vector<u64> h(4096); std::vector<uint32_t> r(65536);
  cudaMemcpy(h.data(), d, 4096 * 8, cudaMemcpyDeviceToHost); cudaMemcpy(r.data(), s, 65536 * 4, cudaMemcpyDeviceToHost);
  printf("%s %s %016llx\n", name, cudaGetErrorString(cudaGetLastError()), h[1]); fflush(stdout);
  write(std::string(name) + ".u64", h.data(), 4096 * 8); write(std::string(name) + ".u32", r.data(), 65536 * 4);
  cudaFree(d); cudaFree(s);
}
template <class F> void binary(const char* name) {
  u64* d; uint32_t* s; cudaMalloc(&d, 129 * 8); cudaMemset(d, 0, 129 * 8); cudaMalloc(&s, 3 * 65536 * 4);
  pairs<F><<<dim3(129, 16), 256>>>(d); uint32_t at[3] = {0, 1, 65};
  for (int k = 0; k < 3; k++) somepairs<F><<<256, 256>>>(s + 65536 * k, at[k]);
  std::vector<u64> h(129); std::vector<uint32_t> r(3 * 65536);
  cudaMemcpy(h.data(), d, 129 * 8, cudaMemcpyDeviceToHost); cudaMemcpy(r.data(), s, 3 * 65536 * 4, cudaMemcpyDeviceToHost);
  printf("%s %s %016llx\n", name, cudaGetErrorString(cudaGetLastError()), h[1]); fflush(stdout);
  write(std::string(name) + ".u64", h.data(), 129 * 8); write(std::string(name) + ".u32", r.data(), 3 * 65536 * 4);
  cudaFree(d); cudaFree(s);
}
#define RUN1(n,e) unary<F_##n>(#n);
#define RUN2(n,e) binary<F_##n>(#n);
int main(int argc, char** argv) { dir = argv[1]; UNARY(RUN1) BINARY(RUN2) return 0; }
