// Every lowering there is, slowly, one thread an output.
#include "engine_exact.cuh"

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(128, LEAST_BLOCKS) engine_exact(const Problem p) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.outputs) ((CodeD *)p.d)[i] = (CodeD)output_of(p, i);
}
#else
extern "C" void engine_exact(const Problem *p) {
    for (i64 i = 0; i < p->outputs; i++) ((CodeD *)p->d)[i] = (CodeD)output_of(*p, i);
}
#endif
