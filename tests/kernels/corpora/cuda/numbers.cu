// Numbers of every kind: double precision, special functions, packed halves and bytes, conversions, contraction.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void doubles(const double* a, const double* b, double* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i];
    out[i] = x / y;
    out[n + i] = sqrt(fabs(x));
    out[2 * n + i] = fma(x, y, 1.0);
    out[3 * n + i] = __dadd_rz(x, y) + __dmul_ru(x, y);
    out[4 * n + i] = floor(x * 8) - rint(y * 8) + trunc(x + y) + ceil(x - y);
    out[5 * n + i] = (double)(long long)(x * 1e10) + (double)(float)y + fmin(x, y) + 1.0 / y;
}

extern "C" __global__ void functions(const float* in, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i], positive = fabsf(x) + 1e-3f;
    out[i] = expf(x);
    out[n + i] = logf(positive);
    out[2 * n + i] = sinf(x) + cosf(x);
    out[3 * n + i] = powf(positive, x * 0.25f);
    out[4 * n + i] = rsqrtf(positive) + sqrtf(positive);
    out[5 * n + i] = tanhf(x);
    out[6 * n + i] = erff(x);
    out[7 * n + i] = __expf(x) + __logf(positive) + __sinf(x) + __cosf(x) + __powf(positive, 0.3f);
    out[8 * n + i] = x / positive + __fdividef(x, positive) + __frcp_rn(positive);
    out[9 * n + i] = exp2f(x) + log1pf(positive) + cbrtf(x) + fmodf(x, 0.7f);
}

// Products and sums as written one after the other: the compiler may fuse them, and these forbid it.
extern "C" __global__ void contraction(const float* a, const float* b, const float* c, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = a[i] * b[i] + c[i];
    out[n + i] = __fadd_rn(__fmul_rn(a[i], b[i]), c[i]);
    out[2 * n + i] = __fsub_rn(__fmul_rz(a[i], b[i]), c[i]) + __fmaf_rd(a[i], b[i], c[i]);
    double x = a[i], y = b[i], z = c[i];
    out[3 * n + i] = (float)(x * y - z);
}

extern "C" __global__ void halves(const __half2* a, const __half2* b, __half2* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 x = a[i], y = b[i];
    out[i] = __hfma2(x, y, x);
    out[n + i] = __hadd2_sat(x, y);
    out[2 * n + i] = __hmul2(__hsub2(x, y), __hneg2(y));
    out[3 * n + i] = __hmax2(x, y);
    out[4 * n + i] = __hfma2_relu(x, y, y);
    out[5 * n + i] = h2exp2(x);
    out[6 * n + i] = __h2div(x, __habs2(y));
    out[7 * n + i] = __halves2half2(__hgt(x.x, y.x) ? x.y : y.y, __float2half_rz(__half2float(x.x) * 1.1f));
}

extern "C" __global__ void bfloats(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat162 x = a[i], y = b[i];
    out[i] = __hfma2(x, y, x);
    out[n + i] = __hadd2(x, y);
    out[2 * n + i] = __hmin2(x, y);
    out[3 * n + i] = __hmul2(x, __hneg2(y));
    out[4 * n + i] = __float22bfloat162_rn(make_float2(__low2float(x) * 1.3f, __high2float(y) / 3.f));
}

extern "C" __global__ void bytes(const u32* a, const u32* b, u32* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u32 x = a[i], y = b[i];
    out[i] = __dp4a((int)x, (int)y, 7);
    out[n + i] = __byte_perm(x, y, 0x5140 ^ (i & 7));
    out[2 * n + i] = __vadd4(x, y) ^ __vmaxs4(x, y);
    out[3 * n + i] = __funnelshift_l(x, y, i) + __funnelshift_rc(x, y, 40 - i);
    out[4 * n + i] = __sad((int)x >> 4, (int)y >> 4, 3) + __mul24(x, y) + __umulhi(x, y);
    out[5 * n + i] = (u32)(((u64)x * y + x) / (y | 1)) + (u32)(((long long)(int)x << 12) % ((int)(y >> 8) | 1));
    out[6 * n + i] = __brev(x) ^ (u32)__clzll((u64)x << (i & 31)) ^ __popcll(((u64)x << 32) | y) ^ __vavgu4(x, y);
    out[7 * n + i] = __vsetltu2(x, y) + __vhaddu4(x, y) + __uhadd(x, y) + __dp2a_lo((int)x, (int)y, 1);
}

extern "C" __global__ void conversions(const float* in, unsigned char* fp8, int* whole, unsigned short* half, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i];
    fp8[i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    fp8[n + i] = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    whole[i] = __float2int_rn(x * 100);
    whole[n + i] = (int)x + (signed char)(int)(x * 3) + (unsigned short)__float2uint_ru(fabsf(x));
    whole[2 * n + i] = __float_as_int(__int2float_rz(whole[i] * 12345)) ^ (int)__float2ll_rd(x * 1e9f);
    half[i] = __half_as_ushort(__float2half(x));
    half[n + i] = __bfloat16_as_ushort(__float2bfloat16_ru(x));
    half[2 * n + i] = __half_as_ushort(__short2half_rn((short)(x * 1000))) ^ __half_as_ushort(__ull2half_rd((u64)fabsf(x * 50)));
}
