#include <cuda_fp16.h>
#include <cstdint>
#ifndef BUG
#define BUG 0
#endif
// D[64,64] f32 = A[64,K] f16 * B[K,64] f16; 4 warps, each 16 rows; K steps of 32, double buffered with cp.async
__device__ __forceinline__ uint32_t su(const void*p){return (uint32_t)__cvta_generic_to_shared(p);}
__device__ __forceinline__ void cp16(uint32_t dst,const void*src){asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"::"r"(dst),"l"(src):"memory");}
extern "C" __global__ void __launch_bounds__(128) gemm(const __half*A,const __half*B,float*D,int N,int K){
  __shared__ __align__(128) __half sA[2][64][40];
  __shared__ __align__(128) __half sB[2][32][72];
  int t=threadIdx.x,w=t>>5,l=t&31,T=K/32;
  auto load=[&](int k){int s=k&1;
    for(int i=t;i<256;i+=128){int r=i>>2,c=(i&3)*8; cp16(su(&sA[s][r][c]),A+r*K+k*32+c);}
    for(int i=t;i<256;i+=128){int r=i>>3,c=(i&7)*8; cp16(su(&sB[s][r][c]),B+(k*32+r)*N+c);}
    asm volatile("cp.async.commit_group;":::"memory");};
  float d[8][4]={};
  load(0);
  for(int k=0;k<
#if BUG==8
    T-1
#else
    T
#endif
    ;k++){
    int s=k&1;
    if(k+1<T)load(k+1);
#if BUG==4
    asm volatile("cp.async.wait_group 1;":::"memory");
#else
    if(k+1<T)asm volatile("cp.async.wait_group 1;":::"memory"); else asm volatile("cp.async.wait_group 0;":::"memory");
#endif
#if BUG!=5
    __syncthreads();
#endif
    for(int kk=0;kk<32;kk+=16){
      uint32_t a[4];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];":"=r"(a[0]),"=r"(a[1]),"=r"(a[2]),"=r"(a[3]):"r"(su(&sA[s][w*16+(l&15)][kk+(l>>4)*8])));
      for(int j=0;j<8;j++){
        uint32_t b[2];
#if BUG==3
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];":"=r"(b[0]),"=r"(b[1]):"r"(su(&sB[s][kk+(l&15)][j*8])));
#else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];":"=r"(b[0]),"=r"(b[1]):"r"(su(&sB[s][kk+(l&15)][j*8])));
#endif
#if BUG==1
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};":"+f"(d[j][0]),"+f"(d[j][1]),"+f"(d[j][2]),"+f"(d[j][3]):"r"(a[0]),"r"(a[2]),"r"(a[1]),"r"(a[3]),"r"(b[0]),"r"(b[1]));
#elif BUG==2
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};":"+f"(d[j][0]),"+f"(d[j][1]),"+f"(d[j][2]),"+f"(d[j][3]):"r"(a[0]),"r"(a[2]),"r"(a[2]),"r"(a[3]),"r"(b[0]),"r"(b[1]));
#elif BUG==9
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};":"+f"(d[j][0]),"+f"(d[j][1]),"+f"(d[j][2]),"+f"(d[j][3]):"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"r"(b[1]),"r"(b[0]));
#else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};":"+f"(d[j][0]),"+f"(d[j][1]),"+f"(d[j][2]),"+f"(d[j][3]):"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"r"(b[0]),"r"(b[1]));
#endif
      }
    }
#if BUG!=6
    __syncthreads();
#endif
  }
  for(int j=0;j<8;j++)for(int h=0;h<2;h++){int r=w*16+h*8+l/4,c=j*8+(l%4)*2;
#if BUG==7
    D[r*N+c]=d[j][h*2+1]; D[r*N+c+1]=d[j][h*2];}
#elif BUG==10
    D[r*N+c]=d[j][(1-h)*2]; D[r*N+c+1]=d[j][(1-h)*2+1];}
#else
    D[r*N+c]=d[j][h*2]; D[r*N+c+1]=d[j][h*2+1];}
#endif
}
