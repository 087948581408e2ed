"""isspacep: which state space a generic address lies in, of addresses of every space and of each way to make them."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.ptx import Memory, parse

SPACES = ("const", "global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry")
WHERE: dict[str, tuple[str, set[str]]] = {
    "pointer": ("mov.b64 %a, %o;", {"global"}),
    "null": ("mov.b64 %a, 0;", {"global"}),
    "global variable": ("mov.u64 %a, gg; cvta.global.u64 %a, %a;", {"global"}),
    "global variable by name": ("cvta.global.u64 %a, gg;", {"global"}),
    "there and back": ("cvta.to.global.u64 %a, %o; cvta.global.u64 %a, %a;", {"global"}),
    "const variable": ("mov.u64 %a, cc; cvta.const.u64 %a, %a;", {"const"}),
    "const variable by name": ("cvta.const.u64 %a, cc+4;", {"const"}),
    "const there and back": ("cvta.const.u64 %a, cc; cvta.to.const.u64 %a, %a; add.u64 %a, %a, 8; cvta.const.u64 %a, %a;", {"const"}),
    "address of a const variable in memory": ("ld.global.u64 %a, [generic_cc];", {"const"}),
    "address of a global variable in memory": ("ld.global.u64 %a, [generic_gg];", {"global"}),
    "shared variable": ("mov.u64 %a, s; cvta.shared.u64 %a, %a;", {"shared", "shared::cta", "shared::cluster"}),
    "shared variable of another block": (
        "cvta.shared.u64 %a, s; mov.u32 %r1, %cluster_ctarank; xor.b32 %r1, %r1, 1; mapa.u64 %a, %a, %r1;", {"shared::cluster"}
    ),
    "local variable": ("mov.u64 %a, l; cvta.local.u64 %a, %a;", {"local"}),
    "parameter": ("mov.b64 %a, o; cvta.param.u64 %a, %a;", {"param", "param::entry", "global"}),
}  # fmt: skip


def answers(make: str, target: str, version: str, spaces: tuple[str, ...], cluster: tuple[int, int, int]) -> np.ndarray:
    """For each thread of the launch and each space 1 or 0, and what a generic load finds at the address (not of null)."""
    asked = "".join(
        f"isspacep.{space} %p1, %a; selp.u32 %r1, 1, 0, %p1; st.global.u32 [%o+{4 * place}], %r1;\n"
        for place, space in enumerate(spaces)
    )
    text = f"""
.version {version}
.target {target}
.address_size 64
.const .align 8 .b32 cc[4] = {{1, 2, 3, 4}};
.global .align 8 .b32 gg[4] = {{5, 6, 7, 8}};
.global .align 8 .u64 generic_cc = generic(cc);
.global .align 8 .u64 generic_gg = generic(gg);
.visible .entry k(.param .u64 o)
{{
  .reg .pred %p<4>; .reg .b64 %a, %o; .reg .b32 %r<9>;
  .shared .align 8 .b32 s[4]; .local .align 8 .b32 l[4];
  ld.param.u64 %o, [o]; mov.u32 %r0, %ctaid.x; mad.wide.u32 %o, %r0, 64, %o;
  {make}
  {asked}
  ret;
}}
"""
    memory = Memory()
    out = memory.allocate(np.zeros(128, np.uint8))
    run = parse(text).kernel().launch(memory, [out], grid=cluster, cluster=cluster)
    assert run.completed and not run.hazards and not run.inexact, run.hazards
    return memory.read(out, 128).view(np.uint32).reshape(2, 16)[:, : len(spaces)]


@pytest.mark.parametrize("where", WHERE)
def test_spaces_of_an_address(where: str) -> None:
    """Those of const and of global memory exclude each other; a parameter lies in the window of global memory too."""
    make, expected = WHERE[where]
    found = answers(make, "sm_90a", "8.5", SPACES, (2, 1, 1))
    for block in found:
        assert {space for space, yes in zip(SPACES, block, strict=True) if yes} == expected
    if "shared" in make or "param" in make:
        return
    early = tuple(space for space in SPACES if space in ("const", "global", "shared", "local"))
    found = answers(make, "sm_75", "6.4", early, (1, 1, 1))[:1]
    assert {space for space, yes in zip(early, found[0], strict=True) if yes} == expected


def test_const_memory_is_read_and_written_as_before() -> None:
    """A const variable has one address for the host and the kernel, generic or not."""
    module = parse("""
.version 8.0
.target sm_90
.address_size 64
.const .align 4 .b32 cc[4] = {1, 2, 3, 4};
.visible .entry k(.param .u64 o)
{
  .reg .b64 %a, %o; .reg .b32 %r<9>;
  ld.param.u64 %o, [o]; ld.const.u32 %r1, [cc+8]; cvta.const.u64 %a, cc; ld.u32 %r2, [%a+12]; cvta.to.const.u64 %a, %a; ld.const.u32 %r3, [%a];
  st.global.u32 [%o], %r1; st.global.u32 [%o+4], %r2; st.global.u32 [%o+8], %r3; ret;
}
""")
    memory = Memory()
    out = memory.allocate(16)
    memory.write(memory.symbol(module, "cc"), np.array([9], np.uint32).view(np.uint8))
    assert module.kernel().launch(memory, [out]).completed
    assert memory.read(out, 12).view(np.uint32).tolist() == [3, 4, 9]


@pytest.mark.parametrize("regions", ["off", "all"])
def test_a_const_address_of_32_bits(regions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one in the constant bank (2,400 random programs with such loads ran on an H200)."""
    monkeypatch.setenv("TCSIM_REGIONS", regions)
    text = """
.version 8.0
.target sm_90
.address_size 64
.const .align 4 .b32 first[2] = {9, 9};
.const .align 4 .b32 table[4] = {5, 6, 7, 8};
.visible .entry k(.param .u64 o)
{
  .reg .b64 %a, %o; .reg .b32 %r<9>;
  ld.param.u64 %o, [o]; mov.u32 %r0, %tid.x; mad.wide.u32 %o, %r0, 4, %o;
  and.b32 %r1, %r0, 3; shl.b32 %r1, %r1, 2; mov.u32 %r2, table; add.u32 %r1, %r1, %r2; cvt.u64.u32 %a, %r1;
  ld.const.u32 %r3, [%a]; st.global.u32 [%o], %r3;
  ret;
}
"""
    memory = Memory()
    out = memory.allocate(np.zeros(256, np.uint8))
    run = parse(text).kernel().launch(memory, [out], grid=(1, 1, 1), block=(64, 1, 1))
    assert run.completed and not run.hazards, run.hazards
    assert memory.read(out, 256).view(np.uint32).tolist() == [5, 6, 7, 8] * 16
