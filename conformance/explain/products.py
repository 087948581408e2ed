"""Which products are recorded: one row each, whoever computes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product as every
from typing import Any

NORMAL, BOTH, ALL = ("normal",), ("normal", "cancelling"), ("normal", "cancelling", "tree")


@dataclass(frozen=True)
class Product:
    """d = activation(alpha scale_a scale_b a b + beta c), and how it is asked for."""

    id: str
    library: str  # whose runner knows `call`: "cublas" (through torch), "cublaslt", "cudnn", "triton"
    call: str
    formats: tuple[str, str, str]  # of a, b and d; tf32: f32 that the library may round
    shape: tuple[int, int, int]  # M, N, K
    kinds: tuple[str, ...] = BOTH  # of inputs
    batch: int = 1
    layout: str = "NN"  # N: row-major, T: column-major; of a (M, K) and b (K, N)
    c: str = ""  # "row": N values, "matrix": M x N
    c_format: str = ""  # d's if empty
    alpha: float = 1.0
    beta: float = 1.0  # matters where there is a c
    activation: str = ""  # "relu" or "gelu"
    scales: str = ""  # "tensor" or "rows": f32 factors of a and b
    options: Mapping[str, Any] = field(default_factory=dict)  # what the runner of `call` takes


def cublas() -> Iterator[Product]:
    """cuBLAS as torch calls it."""

    def of(call: str, formats: str, shape: str, kinds: tuple[str, ...] = BOTH, mark: str = "", **more: Any) -> Product:
        left, right, out = formats.split()
        size = tuple(map(int, shape.split("x")))
        layout = more.get("layout", "NN")
        name = "-".join(
            x for x in ("cublas", formats.replace(" ", "-"), shape, mark, layout if layout != "NN" else "") if x
        )
        return Product(name, "cublas", call, (left, right, out), size, kinds, **more)  # type: ignore[arg-type]

    bf, half, tf, single, double = (
        f"{x} {x} {y}"
        for x, y in zip(["bf16", "f16", "tf32", "f32", "f64"], ["bf16", "f16", "f32", "f32", "f64"], strict=True)
    )
    for shape in (
        "128x128x256",
        "256x256x2048",
        "72x40x136",
        "16x1024x128",
        "64x64x8192",
        "512x512x4096",
        "1024x1024x1024",
        "2048x2048x512",
        "8x1024x4096",
    ):
        yield of("mm", bf, shape)
    for shape in ("64x64x4096", "1x1024x2048", "1024x1x2048", "33x77x1000", "100x100x1001"):
        yield of("mm", bf, shape, ALL)
    for layout in ("NT", "TN", "TT"):
        yield of("mm", bf, "128x256x512", layout=layout)
    for shape in ("128x128x256", "256x256x2048", "64x64x4096"):
        yield of("mm", half, shape)
    for shape in ("1x1024x2048", "33x77x1000"):
        yield of("mm", half, shape, ALL)
    for shape in ("128x128x512", "64x64x4096"):
        yield of("mm", half, shape, mark="f16-accumulator", options={"f16_accumulation": True})
    yield of("mm", "bf16 bf16 f32", "128x128x1024", options={"out": "f32"})
    yield of("mm", "f16 f16 f32", "64x64x4096", options={"out": "f32"})
    yield of("mm", bf, "64x64x4096", mark="full-reduction", options={"reduced_precision": False})
    for shape in ("128x128x256", "96x64x1024", "512x512x1024", "1024x1024x512", "64x64x4096"):
        yield of("mm", tf, shape)
    for shape in ("1x512x2048", "33x77x999"):
        yield of("mm", tf, shape, ALL)
    for shape in (
        "128x128x256",
        "256x256x1024",
        "64x64x4096",
        "1024x1024x512",
        "1x1024x2048",
        "33x77x999",
        "16x16x8192",
        "256x256x256",
    ):
        yield of("mm", single, shape, ALL)
    for shape in ("128x128x256", "64x64x2048", "256x256x512", "33x77x999", "1x512x1024"):
        yield of("mm", double, shape, ALL)
    for shape in ("128x128x256", "256x256x1024"):
        yield of("int_mm", "s8 s8 s32", shape, NORMAL, layout="NT")
    scaled = partial(of, "scaled_mm", layout="NT")
    e4m3, mixed = "e4m3 e4m3 bf16", "e5m2 e4m3 bf16"
    speeds = {"fast": {"fast": True}, "accurate": {"fast": False}}
    for (mark, how), shape in every(speeds.items(), ("128x128x512", "256x256x2048")):
        yield scaled(e4m3, shape, mark=mark, scales="tensor", options=how)
    for mark, how in speeds.items():
        yield scaled("e4m3 e4m3 f32", "64x64x4096", ALL, mark=mark, scales="tensor", options=how)
        yield scaled(mixed, "128x64x1024", mark=mark, scales="tensor", options=how)
        yield scaled(e4m3, "128x128x1024", mark=f"{mark}-rows", scales="rows", options=how)
    yield scaled(e4m3, "128x128x1024", mark="bias", scales="tensor", c="row", options={"fast": True})
    yield of("bmm", bf, "64x64x512", mark="batch-4", batch=4)
    yield of("bmm", bf, "100x72x200", mark="batch-3", batch=3)
    yield of("bmm", bf, "1x64x1024", ALL, mark="batch-8", batch=8)
    for formats in (half, tf, single):
        yield of("bmm", formats, "64x64x512", mark="batch-4", batch=4)
    for formats in (bf, half, tf):
        yield of("addmm", formats, "128x128x512", mark="bias", c="row")
    yield of("addmm", bf, "128x128x512", mark="alpha-beta", c="matrix", alpha=0.7, beta=0.3)
    yield of("addmm", single, "128x128x256", mark="alpha-beta", c="matrix", alpha=0.7, beta=0.3)
    yield of("addmm", bf, "64x64x4096", mark="bias", c="row")
    for formats, activation in every((bf, half), ("relu", "gelu")):
        small = {"shift": 5}  # so that outputs lie where GELU bends
        yield of(
            "addmm_activation", formats, "128x128x512", mark=activation, c="row", activation=activation, options=small
        )  # fmt: skip


def cublaslt() -> Iterator[Product]:
    """cuBLASLt with the algorithm chosen here: every algorithm of a product whose bits differ, chosen splits, epilogues."""

    def of(mark: str, formats: str, shape: str, kinds: tuple[str, ...] = BOTH, **more: Any) -> Product:
        left, right, out = formats.split()
        options = {"compute": more.pop("compute", "32f"), "choose": more.pop("choose", "first")}
        options |= {name: more.pop(name) for name in ("splits", "fast", "shift") if name in more}
        size = tuple(map(int, shape.split("x")))
        name = f"cublaslt-{formats.replace(' ', '-')}-{shape}-{mark}"
        return Product(name, "cublaslt", "matmul", (left, right, out), size, kinds, options=options, **more)  # type: ignore[arg-type]

    sweep: dict[str, Any] = {"choose": "sweep", "layout": "NT"}
    yield of("sweep", "bf16 bf16 bf16", "64x64x4096", **sweep)
    yield of("sweep", "bf16 bf16 f32", "256x256x1024", **sweep)
    yield of("sweep", "bf16 bf16 bf16", "8x512x4096", **sweep)
    yield of("sweep", "f16 f16 f16", "128x128x2048", **sweep)
    yield of("sweep-f16-accumulator", "f16 f16 f16", "128x128x1024", compute="16f", **sweep)
    yield of("sweep", "tf32 tf32 f32", "128x128x1024", compute="fast_tf32", **sweep)
    yield of("sweep", "f32 f32 f32", "128x128x1024", **sweep)
    yield of("sweep", "f64 f64 f64", "64x64x1024", compute="64f", **sweep)
    yield of("sweep-fast", "e4m3 e4m3 bf16", "128x128x2048", fast=1, **sweep)
    yield of("sweep-accurate", "e4m3 e4m3 f32", "128x128x2048", fast=0, **sweep)
    yield of("sweep", "s8 s8 s32", "128x128x1024", NORMAL, compute="32i", **sweep)
    yield of("sweep-bf16-inside", "f32 f32 f32", "128x128x512", compute="fast_16bf", **sweep)
    yield of("sweep-f16-inside", "f32 f32 f32", "128x128x512", compute="fast_16f", **sweep)
    yield of("bf16x9", "f32 f32 f32", "128x128x512", compute="emulated_16bfx9", layout="NT")
    for formats, compute in (
        ("bf16 bf16 bf16", "32f"),
        ("f16 f16 f16", "32f"),
        ("f32 f32 f32", "32f"),
        ("tf32 tf32 f32", "fast_tf32"),
    ):
        yield of("splits", formats, "128x128x2048", compute=compute, choose="splits", layout="NT", splits=(2, 3, 7))
    for out, epilogue in every(("bf16", "f32"), ("bias", "relu", "relu-bias", "gelu", "gelu-bias")):
        activation = epilogue.split("-")[0].replace("bias", "")
        c = "row" if "bias" in epilogue else ""
        yield of(epilogue, f"bf16 bf16 {out}", "128x128x512", layout="NT", activation=activation, c=c, shift=5)
    yield of("alpha-beta", "bf16 bf16 f32", "128x128x512", layout="NT", c="matrix", alpha=0.7, beta=0.3)
    yield of("alpha-beta", "f16 f16 f16", "128x128x512", layout="NT", c="matrix", alpha=0.7, beta=0.3)
    yield of("alpha", "bf16 bf16 bf16", "64x64x4096", layout="NT", alpha=0.7)
    yield of("relu-bias", "f16 f16 f16", "128x128x512", layout="NT", activation="relu", c="row")


def cudnn() -> Iterator[Product]:
    """Convolutions of torch, channels last, each as the product that it is: K runs over the filter's rows, columns and channels."""

    def of(call: str, formats: str, shape: str, kinds: tuple[str, ...] = BOTH, **options: Any) -> Product:
        left, right, out = formats.split()
        size = tuple(map(int, shape.split("x")))
        name = f"cudnn-{call}-{formats.replace(' ', '-')}-{shape}"
        return Product(name, "cudnn", call, (left, right, out), size, kinds, options=options)  # type: ignore[arg-type]

    for formats in ("f16 f16 f16", "bf16 bf16 bf16", "tf32 tf32 f32", "f32 f32 f32"):
        yield of("pointwise", formats, "256x128x512", ALL)
        yield of("weights", formats, "64x128x1024")
    yield of("pointwise", "bf16 bf16 bf16", "1024x64x64")
    yield of("weights", "tf32 tf32 f32", "64x64x4096")
    for formats in ("f16 f16 f16", "tf32 tf32 f32", "f32 f32 f32"):
        yield of("three", formats, "256x64x576", NORMAL, image=16)


def triton() -> Iterator[Product]:
    """tl.dot in a loop over K, with what a kernel writer may choose."""

    def of(mark: str, formats: str, shape: str, kinds: tuple[str, ...] = BOTH, **more: Any) -> Product:
        left, right, out = formats.split()
        size = tuple(map(int, shape.split("x")))
        name = f"triton-{formats.replace(' ', '-')}-{shape}-{mark}"
        return Product(name, "triton", "matmul", (left, right, out), size, kinds, options=more)  # type: ignore[arg-type]

    yield of("k64", "bf16 bf16 bf16", "128x128x1024", block_k=64)
    yield of("k32", "f16 f16 f32", "128x128x1024", block_k=32)
    yield of("small", "f16 f16 f32", "64x64x512", block_m=32, block_n=32, block_k=32, warps=2)
    yield of("split-4", "bf16 bf16 f32", "128x128x2048", block_k=64, split=4)
    yield of("split-4-interleaved", "bf16 bf16 f32", "128x128x2048", block_k=64, split=4, interleaved=True)
    yield of("separate", "bf16 bf16 f32", "128x128x1024", block_k=64, separate=True)
    yield of("f16-accumulator", "f16 f16 f16", "128x128x512", block_k=64, accumulator="f16")
    yield of("tf32", "tf32 tf32 f32", "128x128x512", block_k=32, precision="tf32")
    yield of("tf32x3", "f32 f32 f32", "128x128x512", block_k=32, precision="tf32x3")
    yield of("ieee", "f32 f32 f32", "64x64x256", ALL, block_k=32, precision="ieee", block_m=32, block_n=32)
    yield of("default", "e4m3 e4m3 f32", "128x128x1024", block_k=128)
    yield of("promoted-128", "e4m3 e4m3 f32", "128x128x1024", block_k=128, imprecise=128)
    yield of("promoted-32", "e4m3 e4m3 f32", "128x128x1024", block_k=128, imprecise=32)
    yield of("small", "e4m3 e4m3 f32", "64x64x512", block_m=32, block_n=32, block_k=64, warps=2)
    yield of("default", "s8 s8 s32", "128x128x512", NORMAL, block_k=64, accumulator="s32")


LIBRARIES = {"cublas": cublas, "cublaslt": cublaslt, "cudnn": cudnn, "triton": triton}


def products(library: str = "") -> list[Product]:
    """Those of a library, or all."""
    return [item for name, make in LIBRARIES.items() if library in ("", name) for item in make()]
