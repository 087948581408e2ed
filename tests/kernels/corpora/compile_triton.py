"""Triton and Gluon kernels to PTX: the compiler is given a target, so no GPU and no driver are asked."""

from __future__ import annotations

import importlib
from typing import Any

from tests.kernels.corpora.case import Source
from tests.kernels.corpora.pack import Compiled

PTX_VERSION = 88  # what the ptxas in Triton 3.9 takes for every target


def compiled(source: Source, target: str) -> Compiled:
    """A kernel of tests/kernels/corpora/triton or tests/kernels/corpora/gluon.

    options: `signature` (type of each argument, in order; "constexpr" for constants), `constants`, and options of Triton.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton.knobs.compilation.disable_line_info = True
    module = importlib.import_module(f"tests.kernels.corpora.{source.compiler}.{source.file}")
    function = getattr(module, source.function)
    options = dict(source.options)
    signature, constants = dict(options.pop("signature")), dict(options.pop("constants", ()))
    divisible = tuple(options.pop("divisible", ()))
    constants = {
        name: getattr(module, value[1:]) if isinstance(value, str) and value[:1] == "@" else value
        for name, value in constants.items()
    }
    signature = {name: described(kind, source.compiler) for name, kind in signature.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    names = list(function.arg_names)
    ordered = {name: signature[name] for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    kind: Any = ASTSource
    if source.compiler == "gluon":
        from triton.experimental.gluon._runtime import GluonASTSource

        kind = GluonASTSource
    made = triton.compile(
        kind(function, ordered, {(names.index(name),): value for name, value in constants.items()}, attributes),
        target=GPUTarget("cuda", int(target.strip("sm_af")), 32),
        options={"ptx_version": PTX_VERSION, **options},
    )
    return Compiled(made.asm["ptx"], made.metadata.shared, f"Triton {triton.__version__}")


def described(kind: str, compiler: str) -> str:
    """A type as Triton spells it: "desc.fp16.64x32.128" is a tensor descriptor of tiles of 64 x 32, swizzled by 128 bytes."""
    parts = kind.split(".")
    if parts[0] not in ("desc", "im2col"):
        return kind
    name, shape = "tensordesc" if parts[0] == "desc" else "tensordesc_im2col", parts[2].replace("x", ",")
    if compiler == "triton":
        return f"{name}<{parts[1]}[{shape}]>"
    from triton.experimental.gluon.language import NVMMASharedLayout

    bits = int("".join(filter(str.isdigit, parts[1].partition("e")[0])))
    layout = NVMMASharedLayout(swizzle_byte_width=int(parts[3]), element_bitwidth=bits, rank=parts[2].count("x") + 1)
    return f"{name}<{parts[1]}[{shape}],{layout!r}>"
