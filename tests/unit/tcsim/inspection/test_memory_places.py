"""Where elements lie behind descriptors and in Tensor Memory, both ways; orders of atoms; wrong bits by the field's name."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim.inspection.memory_places import shared_operand, tensor_memory_operand
from tests.support.cli_runs import answer, data, refusal

WGMMA = "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16"
UMMA = "tcgen05.mma.cta_group::2.kind::f16"
IDESC = tcsim.InstructionDescriptor("f16", 256, 64, a_format="bf16", transpose_b=True).encode()


@pytest.mark.parametrize(("swizzle", "major"), [("128B", "K"), ("32B", "K"), ("64B", "MN"), ("NONE", "MN")])
def test_an_element_is_where_the_tensor_core_reads_it(swizzle: str, major: str) -> None:
    """A one among zeros at the byte that `where` names: wgmma reads it as that element of A and of B; `what` finds it again."""
    ins = tcsim.instruction(WGMMA, arch="sm_90a")
    turned = int(major == "MN")
    compared = 0
    for name, element in (("a", (37, 11)), ("b", (9, 21)), ("a", (8, 0)), ("b", (15, 31))):
        own = shared_operand(ins, name, swizzle=swizzle, major=major, start=1024)  # type: ignore[arg-type]
        place = own.place(*element)
        smem = np.zeros(1 << 14, np.uint8)
        smem[place.byte : place.byte + 2] = [0x80, 0x3F]
        other = shared_operand(ins, "ab"[name == "a"], swizzle=swizzle, major=major, start=8192)  # type: ignore[arg-type]
        pair = own.descriptor.encode(), other.descriptor.encode()
        a, b = pair if name == "a" else pair[::-1]
        found = ins.fetch(smem, a, b, trans_a=turned, trans_b=turned)["ab".index(name)]  # type: ignore[attr-defined]
        assert [tuple(map(int, at)) for at in np.argwhere(found)] == [element]
        assert [(one.row, one.column) for one in own.at_byte(place.byte)] == [element]
        compared += 1
    assert compared == 4


def test_cells_of_tensor_memory() -> None:
    """A pair's D, and B of each CTA's share; text and JSON; the way back."""
    ins = tcsim.instruction(UMMA, arch="sm_100a")
    layout = tensor_memory_operand(ins, "d", IDESC)
    cta, lane, column, _ = layout.where(200, 37)
    said = answer("where", UMMA, "-o", "d", "-e", "200,37", "--idesc", IDESC, "--address", "0x100")
    assert (
        said
        == f"d(200, 37) is lane {lane}, column {column + 256} of Tensor Memory of CTA {cta} (address {lane << 16 | column + 256:#x})\n"
    )
    back = data("what", UMMA, "-o", "d", "--lane", lane, "--column", column, "--idesc", IDESC)["places"]
    assert {"cta": cta, "slot": 0, "row": 200, "column": 37} in back
    shared = data("where", UMMA, "-o", "b", "-e", "3,40", "--idesc", IDESC, "--swizzle", "64B")["places"][0]
    tile = tcsim.MatrixDescriptor.for_tile(32, 16, "bf16", "MN", "64B", arch="sm_100", kind="f16")
    assert (shared["cta"], shared["byte"]) == (1, int(tile.addresses[40 - 32, 3]))
    assert "--idesc VALUE" in refusal("where", UMMA, "-o", "b", "-e", "3,40")


def test_columns_of_tensor_memory_to_allocate() -> None:
    for arguments, columns, allocate in (
        (("--m", 128, "--n", 256), 256, 256),
        (("--m", 64, "--n", 96, "--ws"), 48, 64),
        (("--m", 256, "--n", 64, "--cta-group", 2, "--stages", 3), 64, 256),
        (("--m", 128, "--k", 64, "--type", "bf16"), 32, 32),
    ):
        found = data("tmem", *arguments)
        assert (found["columns"], found["allocate"]) == (columns, allocate)
    assert "512 columns in all" in refusal("tmem", "--m", 128, "--n", 256, "--stages", 3)
    assert "--n for D" in refusal("tmem", "--m", 128)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_both_orders_of_atoms(arch: str) -> None:
    """Descriptors read every tile whole; elements have places of their own; the order that is not given is TMA's."""
    compared = 0
    for format, major in (("f16", "K"), ("f16", "MN"), ("e4m3", "K")):
        for swizzle in ("NONE", "32B", "128B"):
            tiles = {}
            for order in ("", "K", "MN"):
                tile = tcsim.MatrixDescriptor.for_tile(128, 128, format, major, swizzle, 0, arch, order=order)  # type: ignore[arg-type]
                read = np.hstack([one.addresses(128, tile.step, format, major) for one in tile.descriptors])  # type: ignore[arg-type]
                assert (read == tile.addresses).all() and len(np.unique(read)) == read.size
                assert all(earlier < later for earlier, later in zip(tile.advances, tile.advances[1:], strict=False))
                tiles[order] = tile.addresses
                compared += read.size
            assert (tiles[""] == tiles["MN" if major == "K" else "K"]).all()
            assert (tiles["K"] != tiles["MN"]).any() or (format == "e4m3" and swizzle == "128B")
    assert compared == 27 << 14


def test_wrong_bits_are_named_by_field() -> None:
    assert "version (bits 48:46) must be set to 1" in refusal(
        "descriptor", "decode", "0x4000004000000040", "--arch", "b200"
    )
    both = refusal("descriptor", "decode", hex(1 << 15 | 1 << 30 | 1 << 60))
    for bit, neighbours in (
        (15, "between start_address (13:0) and leading_byte_offset (29:16)"),
        (60, "and swizzle (63:62)"),
    ):
        assert f"bit {bit}, " in both and neighbours in both
    assert "mode 3 does not exist on sm_100 (bits 63:61)" in refusal(
        "descriptor", "decode", hex(3 << 61 | 1 << 46), "--arch", "sm_100"
    )
    assert "bit 29, " in refusal("idesc", "decode", hex(1 << 29 | 0x8400490), "--kind", "f16")
