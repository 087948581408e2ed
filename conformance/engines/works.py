"""Every floating-point arithmetic of the registry, once: what an engine may be asked to compute, and which instructions ask it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from tcsim import catalog
from tcsim.catalog import instruction
from tcsim.core.errors import TcsimError
from tcsim.core.targets import ARCHS
from tcsim.descriptors.instruction import InstructionDescriptor
from tcsim.engines.contract import Work

_FORMATS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_SCALES = (None, "ue8m0", "ue4m3", "ue5m3")


@cache
def works() -> Mapping[Work, tuple[str, ...]]:
    """The distinct works, each with who asks for it: "mnemonic on sm_90", of tcgen05.mma with the descriptor's formats."""
    found: dict[Work, list[str]] = defaultdict(list)
    described: dict[Any, list[tuple[Work, str]]] = {}
    for mnemonic, row in catalog.rows().items():
        if row.dropped or not (hasattr(row, "arithmetic") or hasattr(row, "kind")):
            continue
        for arch in ARCHS.values():
            if not set(row.targets) & {target.name for target in arch.targets}:
                continue
            # a descriptor's formats mean the same in all spellings of a kind
            parts = ("sparse", "block", "lookup")
            key = (
                (row.kind.name, *(getattr(row, part) for part in parts), arch)
                if hasattr(row, "kind")
                else (mnemonic, arch)
            )
            if key not in described:
                described[key] = list(_asked(instruction(mnemonic, arch=arch.name)))
            for work, text in described[key]:
                if work.formats[0].kind == "float":
                    found[work].append(f"{mnemonic} on {arch.name}{text}")
    return {work: tuple(names) for work, names in found.items()}


def _asked(multiply: Any) -> Iterator[tuple[Work, str]]:
    """What an instruction asks of an engine, for each choice of formats that its descriptor has."""
    if not getattr(multiply, "multiplies", False):
        return
    if not hasattr(multiply, "descriptor"):
        yield multiply.work, ""
        return
    kind, sparse = multiply.row.kind.name, multiply.row.sparse
    for a, b, d, scale in product(_FORMATS, _FORMATS, ("f32", "f16"), _SCALES):
        more: dict[str, Any] = {} if scale is None else {"scale_format": scale}
        try:
            idesc = InstructionDescriptor(
                kind=kind,
                arch=multiply.arch.name,
                a_format=a,
                b_format=b,
                d_format=d,
                m=128,
                n=64,
                sparse=sparse,
                **more,
            )
            work = multiply.work(multiply.descriptor(idesc))
        except (TcsimError, TypeError):
            continue
        yield work, f", {a} {b} {d}" + (f" {scale}" if scale else "")
