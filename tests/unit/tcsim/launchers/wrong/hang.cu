#include <cuda_fp16.h>
#include <cstdint>
__device__ __forceinline__ uint32_t su(const void*p){return (uint32_t)__cvta_generic_to_shared(p);}
extern "C" __global__ void hang(const float*in,float*out){
  __shared__ __align__(8) uint64_t bar; __shared__ float x[128];
  int t=threadIdx.x;
  if(t==0)asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"::"r"(su(&bar)),"r"(128));
  __syncthreads();
  x[t]=in[t];
  __syncwarp(); if(t%32==0)asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"::"r"(su(&bar)):"memory");
  asm volatile("{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra D;\nbra W;\nD:\n}"::"r"(su(&bar)),"r"(0):"memory");
  out[t]=x[127-t];
}
