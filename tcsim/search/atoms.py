"""Names of CuTe's atoms, taken apart into the words of a question.

Source: CUTLASS's cute/arch headers, whose names say D, A, B and C in this order, then how A and B lie, as BLAS does (T: row-major, N: column-major).
"""

from __future__ import annotations

import re
from collections.abc import Callable

_TYPE = r"(?:BF16|TF32|F16|F32|F64|E4M3|E5M2|E3M2|E2M3|E2M1|S32|S8|U8|S4|U4|U1)"
_LAYOUT = {"T": "row", "N": "col"}
_KINDS = {
    "F16BF16": "f16", "TF32": "tf32", "F8F6F4": "f8f6f4", "S8": "i8", "I8": "i8", "MXF8F6F4": "mxf8f6f4", "MXF4": "mxf4", "MXF4NVF4": "mxf4nvf4",
}  # fmt: skip


def words_of_atom(word: str) -> str | None:
    """The words that an atom's name stands for; None for another word.

    >>> words_of_atom("SM80_16x8x16_F32BF16BF16F32_TN")
    'mma.sync sm_80 m16n8k16 d:f32 a:bf16 b:bf16 c:f32 row.col'
    >>> words_of_atom("SM75_U32x4_LDSM_N")
    'ldmatrix m8n8 x4 shared'
    """
    name = word.rpartition("::")[2] if "::" in word else word
    for pattern, made in _ATOMS:
        if found := pattern.match(name.upper()):
            return made(found, word.upper())
    return None


def _multiply(found: re.Match[str], whole: str) -> str:
    arch, shape, types, rest = found["arch"] or "90", found["shape"], found["types"], found["rest"]
    m, n, k = shape.split("X")
    warpgroup = m == "64"
    parts = [t.lower().replace("u1", "b1") for t in re.findall(_TYPE, types)]
    named = " ".join(f"{name}:{part}" for name, part in zip("dabc", parts, strict=False))
    head = f"wgmma{' sp' * ('SPARSE' in whole)}" if warpgroup else f"mma.sync sm_{arch}"
    lies = re.match(r"_?(?:[SR]S_)?([TN])([TN])", rest)
    layout = f" {_LAYOUT[lies[1]]}.{_LAYOUT[lies[2]]}" if lies and not warpgroup else ""
    more = " satfinite" * ("SATURATE" in rest) + " xor" * ("XOR" in rest) + " and.popc" * ("ANDPOPC" in rest)
    return f"{head} m{m}n{n}k{k} {named}{layout}{more}"


def _tensor(found: re.Match[str], whole: str) -> str:
    kind = _KINDS.get(found["kind"])
    paired = "cta_group::2" if "2X1SM" in whole else "cta_group::1"
    return f"tcgen05.mma kind::{kind}" + " sp" * ("SPARSE" in whole) + " ws" * ("_WS" in whole) + f" {paired}"


def _matrix(found: re.Match[str], whole: str) -> str:
    transposed = found["way"] == "T"
    count = int(found["count"]) // (2 if found["bits"] == "16" else 1)
    name = "ldmatrix" if found["name"] == "LDSM" else "stmatrix"
    return f"{name} m8n8 x{count}" + " trans" * transposed + " shared"


def _tmem(found: re.Match[str], whole: str) -> str:
    name = "ld" if found["way"] == "LOAD" else "st"
    packed = {"ld": " pack::16b", "st": " unpack::16b"}[name] * ("_16B" in whole)
    return f"tcgen05.{name} {found['lanes']}x{found['bits']}b x{found['count']}{packed}"


def _fixed(text: str) -> Callable[[re.Match[str], str], str]:
    return lambda found, whole: text + " multicast" * ("MULTICAST" in whole) + " add" * ("REDUCE_ADD" in whole)


_ATOMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]], ...] = tuple(
    (re.compile(pattern), made)
    for pattern, made in (
        (rf"(?:SM(?P<arch>\d+)_|MMA_|GMMA_)(?P<shape>\d+X\d+X\d+)_(?P<types>{_TYPE}{{3,4}})(?P<rest>.*)$", _multiply),
        (r"SM1\d\d_MMA_(?P<kind>[A-Z0-9]+)", _tensor),
        (r"SM\d+_U(?P<bits>16|32)X(?P<count>\d)_(?P<name>LDSM|STSM)_(?P<way>[NT])", _matrix),
        (r"SM1\d\d_TMEM_(?P<way>LOAD|STORE)_(?P<lanes>\d+)DP(?P<bits>\d+)B(?P<count>\d+)X", _tmem),
        (r"SM\d+_TMA_LOAD_IM2COL", _fixed("cp.async.bulk.tensor complete_tx im2col")),
        (r"SM\d+_TMA_LOAD", _fixed("cp.async.bulk.tensor complete_tx")),
        (r"SM\d+_TMA_STORE", _fixed("cp.async.bulk.tensor bulk_group")),
        (r"SM\d+_TMA_REDUCE", _fixed("cp.reduce.async.bulk.tensor")),
        (r"SM80_CP_ASYNC_CACHEGLOBAL", _fixed("cp.async.cg")),
        (r"SM80_CP_ASYNC_CACHEALWAYS", _fixed("cp.async.ca")),
        (r"SM90_BULK_COPY_G2S", _fixed("cp.async.bulk complete_tx global")),
        (r"SM90_BULK_COPY_S2G", _fixed("cp.async.bulk bulk_group")),
        (r"SM100_UTCCP_(?P<lanes>\d+)DP(?P<bits>\d+)BIT", lambda f, _: f"tcgen05.cp {f['lanes']}x{f['bits']}b"),
    )
)
