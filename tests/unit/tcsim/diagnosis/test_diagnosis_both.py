"""The same mistake in both operands, and one register in the place of another, are named in every family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.descriptors.matrix import CanonicalTile, MatrixDescriptor, element_addresses
from tests.support.planted import codes

WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
ROWS, K = 64, 64


def read(tile: CanonicalTile, lines: Any, descriptor: MatrixDescriptor, advances: Any = None, major: Any = None) -> Any:
    """What a descriptor reads of a tile that lies as the right one says; beyond it lie random numbers."""
    beyond = tcsim.encode(np.random.default_rng(5).standard_normal(1 << 15), "bf16").view(np.uint8)
    memory = np.concatenate([tile.image(lines[None])[0], beyond])
    starts = [replace(descriptor, start_address=at).encode() for at in (advances or tile.advances)]
    addresses = element_addresses(np.array(starts, np.uint64), tile.rows, tile.step, tile.format, major or tile.major)
    return memory.view("<u2")[addresses.swapaxes(0, 1).reshape(tile.rows, -1) // 2]


TILE = MatrixDescriptor.for_tile(ROWS, K, "bf16")
RIGHT = TILE.descriptor
MISTAKES: dict[str, tuple[str, dict[str, Any]]] = {
    "swizzle 64B": ("swizzle wrong", {"descriptor": replace(RIGHT, swizzle="64B")}),
    "no swizzle": ("swizzle wrong", {"descriptor": replace(RIGHT, swizzle="NONE")}),
    "SBO in units of 16": ("SBO wrong", {"descriptor": replace(RIGHT, stride_byte_offset=64)}),
    "advance of 64 bytes": ("K advance wrong", {"descriptor": RIGHT, "advances": [0, 64, 128, 192]}),
    "advance of 1024 bytes": ("K advance wrong", {"descriptor": RIGHT, "advances": [0, 1024, 2048, 3072]}),
    "no advance": ("K advance wrong", {"descriptor": RIGHT, "advances": [0, 0, 0, 0]}),
    "start 16 bytes late": ("start address wrong", {"descriptor": RIGHT, "advances": [16, 48, 80, 112]}),
    "start 128 bytes late": ("start address wrong", {"descriptor": RIGHT, "advances": [128, 160, 192, 224]}),
    "transposed": ("major flipped", {"descriptor": RIGHT, "major": "MN"}),
}


@pytest.mark.parametrize("operands", ["a", "b", "ab"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_descriptor_is_wrong_in_one_operand_or_in_both(mistake: str, operands: str) -> None:
    name, how = MISTAKES[mistake]
    random, instruction = np.random.default_rng(1), tcsim.instruction(WGMMA, arch="sm_90a")
    given = {side: tcsim.encode(random.standard_normal((ROWS, K)), "bf16") for side in "ab"}
    a, b = (read(TILE, own, **how) if side in operands else own for side, own in given.items())
    d = np.zeros((ROWS, ROWS), np.uint32)
    for first in range(0, K, 16):
        d = instruction.matmul(a[:, first : first + 16], np.ascontiguousarray(b[:, first : first + 16].T), d)
    found = tcsim.diagnose(instruction, a=given["a"], b=np.ascontiguousarray(given["b"].T), observed=d)
    assert found.verdict == "explained", str(found)
    assert found.mistake == " + ".join(f"{side}: {name}" for side in operands), str(found)


def test_k_from_the_end_is_right() -> None:
    """It is another order of summation, though two swizzles that are wrong alike give it as well."""
    instruction = tcsim.instruction(WGMMA, arch="sm_90a")
    a, b = (tcsim.encode(np.random.default_rng(seed).standard_normal((ROWS, K)), "bf16") for seed in (0, 1))
    d = np.zeros((ROWS, ROWS), np.uint32)
    for first in (32, 48, 0, 16):
        d = instruction.matmul(a[:, first : first + 16], np.ascontiguousarray(b[:, first : first + 16].T), d)
    found = tcsim.diagnose(instruction, a=a, b=np.ascontiguousarray(b.T), observed=d)
    assert found.verdict == "correct", str(found)
    assert [item.detail for item in found.explanations] == ["K blocks of 32 descending"]


FAMILIES = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64",
)


@pytest.mark.parametrize("mnemonic", FAMILIES)
@pytest.mark.parametrize("name", ["a", "b"])
def test_a_register_is_used_twice(mnemonic: str, name: str) -> None:
    instruction, random = tcsim.instruction(mnemonic, arch="sm_90"), np.random.default_rng(7)
    given = {
        side: instruction.registers(
            side, codes(random, (4, *instruction.operands[side].shape), instruction.formats[side])
        )
        for side in "abc"
    }
    words = 2 if instruction.formats[name].bits == 64 else 1
    wrong = given[name].copy()
    wrong[..., :words] = given[name][..., words : 2 * words]
    observed = instruction.execute(**{**given, name: wrong})
    found = tcsim.diagnose(instruction, observed=observed, **given)
    assert found.verdict == "explained", str(found)
    named = [str(own) for own in found.explanations] + list(found.explanations[0].also)
    assert found.explanations[0].mistake == f"{name} register used twice", named
    assert found.explanations[0].detail == "register 1 where 0 belongs"
