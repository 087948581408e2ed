"""Records PyTorch's elementwise operations on a GPU for tests/unit/tcsim/aten/test_elementwise.py: needs torch with CUDA.

python -m tests.support.record_elementwise OUT.npz
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.support.elementwise_cases import SEGMENTS, SETS, Set, codes_of, digest, operands

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_TORCH = """exp exp2 log log2 log10 log1p expm1 sqrt rsqrt reciprocal tanh sigmoid relu erf erfc erfinv lgamma sin cos tan sinh cosh asin acos
atan asinh acosh atanh neg abs square floor ceil round trunc frac sign nan_to_num isnan"""
_FUNCTIONAL = "silu gelu softplus mish leaky_relu elu selu hardswish hardsigmoid hardtanh relu6 logsigmoid softsign tanhshrink celu"
_PAIRS = "add sub mul div maximum minimum fmod remainder atan2 pow hypot eq ne lt le gt ge fmax fmin copysign"
_NUMBERS = {
    "leaky_relu": F.leaky_relu, "elu": F.elu, "add": lambda x, s: x + s, "sub": lambda x, s: x - s, "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s, "div": lambda x, s: x / s, "rdiv": lambda x, s: s / x, "clamp_min": lambda x, s: torch.clamp(x, min=s),
    "clamp_max": lambda x, s: torch.clamp(x, max=s), "fmod": torch.fmod, "remainder": torch.remainder, "eq": torch.eq, "lt": torch.lt,
    "ge": torch.ge, "rpow": lambda x, s: torch.pow(s, x), "softplus": lambda x, s: F.softplus(x, beta=s, threshold=5.0),
}  # fmt: skip
_ALPHAS = {
    "add(alpha={})": lambda a, b, s: torch.add(a, b, alpha=s), "sub(alpha={})": lambda a, b, s: torch.sub(a, b, alpha=s),
    "addcmul({})": lambda a, b, s: torch.addcmul(a, a.flip(0), b, value=s), "addcdiv({})": lambda a, b, s: torch.addcdiv(a, a.flip(0), b, value=s),
    "lerp({})": torch.lerp, "masked_fill({})": lambda a, b, s: a.masked_fill(b > 0, s),
}  # fmt: skip


def calls(of: Set, format: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """torch's calls of one and of two tensors, by name."""
    one = {name: getattr(torch, name) for name in _TORCH.split()} | {
        name: getattr(F, name) for name in _FUNCTIONAL.split()
    }
    one["gelu_tanh"] = lambda x: F.gelu(x, approximate="tanh")
    one |= {f"pow({power})": lambda x, power=power: torch.pow(x, power) for power in of.powers}
    one |= {
        f"clamp({low},{high})": lambda x, low=low, high=high: torch.clamp(x, low, high)
        for low, high in (*of.limits, (-1.0, 2.5))
    }
    one |= {f"{name}({s})": lambda x, call=call, s=s: call(x, s) for name, call in _NUMBERS.items() for s in of.scalars}
    one |= {f"to({other})": lambda x, other=other: x.to(TYPES[other]) for other in TYPES if other != format}
    two = {name: getattr(torch, name) for name in _PAIRS.split()}
    two |= {
        name.format(s): lambda a, b, call=call, s=s: call(a, b, s) for name, call in _ALPHAS.items() for s in of.alphas
    }
    two["where"] = lambda a, b: torch.where(a > b, a, b)
    two["floor_divide"] = lambda a, b: torch.div(a, b, rounding_mode="floor")
    two["trunc_divide"] = lambda a, b: torch.div(a, b, rounding_mode="trunc")
    two["mul_add"] = lambda a, b: a * b + a.flip(0) * b.flip(0)
    return one, two


def tensor(array: Any, format: str, device: str) -> torch.Tensor:
    """The tensor of an array's codes."""
    codes = array.view(np.int32 if format == "f32" else np.int16)
    return torch.from_numpy(codes.copy()).view(TYPES[format]).to(device)


def array(result: torch.Tensor) -> Any:
    """The array of a result."""
    result = result.contiguous().cpu()
    if result.dtype != torch.bfloat16:
        return result.numpy()
    import ml_dtypes

    return result.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def main(path: str, device: str = "cuda") -> None:
    """Write the digests and two results of each segment of every case."""
    found: dict[str, Any] = {}
    for key, of in SETS.items():
        names, digests, samples = [], [], []
        for format in TYPES:
            for table, arrays in zip(calls(of, format), operands(format, of), strict=True):
                tensors = [tensor(x, format, device) for x in arrays]
                for name, call in table.items():
                    codes = codes_of(array(call(*tensors)))
                    names.append(f"{name}|{format}")
                    digests.append((digest(codes) & np.uint64(0xFFFFFFFF)).astype(np.uint32))
                    samples.append(codes.reshape(SEGMENTS, -1)[:, :2].astype(np.uint32))
        found |= {f"names{key}": np.array(names), f"digests{key}": np.stack(digests), f"sample{key}": np.stack(samples)}
    np.savez_compressed(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
