"""Where the mistakes were met: title and date of each report, read in November 2026. No earlier set has used one of them."""

from __future__ import annotations

SOURCES = {
    "1bit-MONSTER/1bit-MONSTER#1265": ("issues", "2026-07-31", "load_matrix_sync reads a 16x16 fragment from a 16-half LDS buffer"),
    "CNugteren/CLBlast#578": ("issues", "2025-07-10", "Discrepancies between CLBlast::gemmStridedBatched and CLBlast::gemm"),
    "Cjkkkk/CUDA_gemm#3": ("issues", "2021-11-19", "wrong results with random inputs"),
    "HazyResearch/ThunderKittens#141": ("pull", "2025-08-05", "Zero the initial accumulator before applying HMMA.16816"),
    "ModelCloud/GPTQModel#2350": ("issues", "2026-01-11", "Zero Point Calculation Error in unpack_reorder_pack for ExLlamaV2 AWQ"),
    "NVIDIA/TensorRT-LLM#12190": ("pull", "2026-03-13", "Fix W4A16 AWQ bias not applied on SM100"),
    "NVIDIA/TensorRT-LLM#3144": ("pull", "2025-03-29", "Update FP8 sf layout for Blackwell and relax blockwise GEMM assertions"),
    "NVIDIA/cuda-samples#411": ("issues", "2026-03-18", "Improve matrixMul Tiling to support non-multiple BLOCK_SIZE dimensions"),
    "NVIDIA/cuda-samples#5": ("issues", "2019-01-04", "results wrong when executing cudaTensorCoreGemm"),
    "NVIDIA/cutlass#2162": ("issues", "2025-03-11", "Possible race condition in sm90_gemm_array_tma_warpspecialized_cooperative"),
    "NVIDIA/cutlass#2697": ("issues", "2025-10-14", "examples/cute/tutorial/sgemm_sm80.cu does not produce the correct result"),
    "NVIDIA/cutlass#2716": ("issues", "2025-10-24", "u8 to s32 Gemm: wrong when the accumulator does not fit into 24 bits"),
    "NVIDIA/cutlass#3538": ("issues", "2026-08-25", "GemmWithKReduction parallel split-K: workspace initialization is skipped"),
    "NVIDIA/cutlass#492": ("issues", "2022-05-10", "Wrong numeric results for int8mm"),
    "NVlabs/cuda-oxide#474": ("pull", "2026-07-25", "derive the m16n8k16 accumulator fragment layout"),
    "OpenMathLib/OpenBLAS#5712": ("pull", "2026-03-26", "Fix incorrect cast from BF16 to FP32 in SBGEMM"),
    "PTO-ISA/SuperNPUBench#184": ("issues", "2026-09-21", "MXFP4 basic_op: B's packed layout gives 32 for 64 ones"),
    "Ph0rk0z/SageAttention2#10": ("issues", "", "sageattn_qk_int8_pv_fp16_cuda does not work well in ComfyUI"),
    "ROCm/aiter#1258": ("pull", "2025-10-24", "Fix rowwise a8w8 gemm in swizzled hipb_mm"),
    "ROCm/aiter#2466": ("pull", "2026-03-25", "Fix CKTile blockscale GEMM to read strides from tensor metadata"),
    "ROCm/aiter#5549": ("pull", "2026-09-15", "Enable Silu A16W4 INTERLEAVE fused_moe on gfx950"),
    "ROCm/composable_kernel#2697": ("pull", "2025-08-26", "[CK Tile] gemm splitk two stage"),
    "ROCm/composable_kernel#3753": ("issues", "2026-07-21", "ck_tile 2:4-sparse SWMMAC produces incorrect results on gfx1201"),
    "ROCm/composable_kernel#3767": ("issues", "2026-09-03", "eight-waves ABQuant pipeline is incorrect at BQuantGroupSize::kN < 4"),
    "TiledTensor/TiledCUDA#60": ("pull", "2024-07-04", "Bug fix for load column-major register tile for tensor core gemm"),
    "apache/tvm#18528": ("pull", "2025-11-29", "[TIR][Schedule] Fix mma tensorize error"),
    "flashinfer-ai/flashinfer#3882": ("pull", "2026-07-08", "make mxfp8 gemm test pass by having it quantize along the correct dimension"),
    "flashinfer-ai/flashinfer#3932": ("pull", "2026-07-12", "fix(b12x): correct fp4 quantization numerics"),
    "iree-org/iree#22104": ("issues", "2025-09-30", "Scaled matmul mxfp4 numerical issue for fixed size"),
    "local-inference-lab/b12x#222": ("pull", "2026-08-16", "fix(gemm): enable native MXFP4 in DenseGemmKernel"),
    "meta-pytorch/tritonbench#1145": ("pull", "2026-06-22", "fp8_gemm: fix quantization scale direction"),
    "ml-explore/mlx#3565": ("pull", "2026-05-19", "Fix off_x/off_y typo in steel BaseMMAFrag::load_safe"),
    "modular/modular#7165": ("issues", "2026-09-20", "Split-K matmul reduces partial sums in the output dtype by default"),
    "mudler/vllm.cpp#2889": ("issues", "2026-09-04", "skinny_gemm OOB write"),
    "pytorch/FBGEMM#2919": ("pull", "2024-07-31", "Fix triton fp8 handling of non-contiguous inputs"),
    "tenstorrent/tt-metal#54798": ("issues", "2026-08-29", "MatmulMultiCoreReuse silently drops output blocks"),
    "tile-ai/tilelang#2505": ("pull", "2026-07-02", "[Pipeline] Fix physical async wait counts"),
    "tile-ai/tilelang#2668": ("issues", "2026-07-14", "T.Pipelined miscomputes a loop that reads a shared buffer then overwrites it"),
    "triton-lang/triton#7899": ("pull", "2025-08-19", "Revert byte permutes in intra-warp layout conversion"),
    "vllm-project/vllm#39705": ("pull", "2026-04-13", "Fix triton_w4a16 scales mismatch when BLOCK_K > group_size"),
    "vllm-project/vllm#53680": ("pull", "2026-09-16", "Pin DeepGEMM: float32 scale factors read as packed ue8m0"),
    "vllm-project/vllm#56248": ("pull", "2026-09-10", "Honor leading strides in SM90 blockwise FP8 GEMM"),
}  # fmt: skip
"""How the report is addressed, its date as far as it is known, and its title or what it says, shortened."""


def address(source: str) -> str:
    """The report's URL."""
    repository, number = source.split("#")
    return f"https://github.com/{repository}/{SOURCES[source][0]}/{number}"
