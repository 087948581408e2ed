"""What the assembler takes and no table has: refused by name with the reason. And what came with the same version and runs."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim.ptx import Memory, PtxError, parse
from tcsim.ptx.text.spellings import known, refusal, unmodelled

_BULK = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_G2S = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"


def module(body: str, target: str = "sm_90a", version: str = "9.5") -> str:
    """A kernel with a pointer."""
    return f"""
.version {version}
.target {target}
.address_size 64
.visible .entry k(.param .u64 at)
{{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h<9>;
    ld.param.u64 %d0, [at];
    {body}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("opcode", "reason"),
    [
        ("fabric.submit", "the fabric proxy reaches the memory of other GPUs"),
        ("fabric.wait.sync_restrict::read", "the fabric proxy"),
        (
            "fabric.try_put.async.shared::cta.mbarrier::complete_tx::16B.mbarrier::report::fabric.relaxed.sys.b128",
            "the fabric proxy",
        ),
        ("fence.proxy.fabric::generic.alias.acquire.sys", "the fabric proxy"),
        ("st.async.release.sys.global.b32", "that releases, without an mbarrier"),
        ("red.async.mmio.release.gpu.global.add.u32", "that releases, without an mbarrier"),
        (
            f"{_G2S}.cta_group::1.mbarrier::report::validity::per_element::ff",
            "what .mbarrier::report puts into the mbarrier is not documented",
        ),
        (f"{_BULK}.weak.multicast::cluster.mbarrier::report::validity::per_16bytes::80", "what .mbarrier::report puts"),
        (f"{_G2S}.cta_group::2.mbarrier::report::disabled.override::global_address", "what .override puts in place"),
        (
            "cp.reduce.async.bulk.tensor.1d.global.shared::cta.min.tile.override::global_address.bulk_group",
            "what .override puts",
        ),
        (
            "multimem.cp.async.bulk.relaxed.cta.global.shared::cta.bulk_group.cp_mask.b128",
            "only without .relaxed, .cta, .b128",
        ),
        ("multimem.cp.async.bulk.weak.global.shared::cta.bulk_group.cp_mask", "only without .weak"),
        ("ld.global.b32.proxy::readonly", "only without .proxy::readonly"),
        ("mbarrier.pending_count.layout::v0.b64", "only without .layout::v0"),
        ("add.rn.f32x2.f16x2.f32x2", "packed arithmetic of sm_107"),
        ("set.eq.u8x4", "packed arithmetic of sm_107"),
    ],
)
def test_refused_by_name(opcode: str, reason: str) -> None:
    """With the reason, and before the operands are looked at."""
    assert reason in unmodelled(opcode)
    assert f"is not modelled: {unmodelled(opcode)}" in str(refusal(opcode))
    with pytest.raises(PtxError, match=r"line 9, column 5: .* is not modelled: "):
        parse(module(f"{opcode} [any, thing], {{%r0}};", "sm_107a"))


@pytest.mark.parametrize(
    "opcode",
    [
        "fabric.go",
        "fabric",
        "cp.async.bulk.wait_group.override::x",
        "cp.async.bulk.wait_group.weak",
        "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group.weak",
        "st.async.global.b32",
        "add.f32x2",
        "ld.globl.f32",
        "fence.fab",
        "cp",
    ],
)
def test_what_nobody_takes_is_not_given_a_reason(opcode: str) -> None:
    """It is unknown, or known."""
    assert unmodelled(opcode) == ""


def test_many_modifiers_cost_no_time() -> None:
    """Each may be there or not: of more than six nothing is tried."""
    assert unmodelled("cp.async.bulk" + ".weak" * 40) == ""


def test_operands_of_an_override_are_not_what_is_wrong() -> None:
    """The row is there; its tensor operand is none that runs."""
    with pytest.raises(PtxError, match=r"what \.override puts in place of the map's fields is not documented"):
        parse(module(f"{_G2S}.override::global_address [%r0], [%d0, %d1, {{%r1}}], [%r2];", "sm_107a"))


@pytest.mark.parametrize(
    ("opcode", "version"),
    [
        ("sin.approx.ftz.2pi.f32", "9.5"),
        ("tensormap.query.alloc_class_large.global.b1024", "9.5"),
        ("cp.async.bulk.wait_group.sync_restrict::proxy::async", "9.5"),
        ("fence.alias.sync_restrict::read.release.sys", "9.5"),
        ("fence.proxy.async::generic.release.sync_restrict::shared::cluster::read.cta", "9.4"),
        ("prefetch.global.L1::32B.valid_addr", "9.4"),
        (f"{_BULK}.weak", "9.3"),
        (f"{_BULK}.multicast::cluster.L2::cache_hint.weak", "9.3"),
        (f"{_BULK}.mbarrier::report::disabled.weak", "9.4"),
        (f"{_G2S}.cta_group::2.mbarrier::report::disabled", "9.4"),
    ],
)
def test_versions(opcode: str, version: str) -> None:
    """As ptxas 13.5 says."""
    assert known(opcode).version == version


def test_what_changes_nothing() -> None:
    """Copies with modifiers that leave the machine code as it is are those without them, on the targets that have both."""
    plain, weak = known(_BULK), known(f"{_BULK}.weak")
    assert (weak.opcode, weak.targets) == (plain.opcode, plain.targets)
    silent = known(f"{_G2S}.cta_group::2.mbarrier::report::disabled")
    assert (silent.opcode, silent.targets) == (f"{_G2S}.cta_group::2", {"sm_107f", "sm_107a"})
    for twice in (f"{_BULK}.weak.weak", f"{_BULK}.weak.relaxed.gpu.b128", f"{_G2S}.weak"):
        assert refusal(twice) is not None
    assert known("applypriority.async.bulk.bulk_group.L2::evict_normal").opcode.startswith(
        "applypriority.async.bulk.global"
    )


def test_an_older_version_does_not_have_them() -> None:
    with pytest.raises(PtxError, match=r"cos\.approx\.ftz\.2pi\.f32 needs \.version 9\.5"):
        parse(module("cos.approx.ftz.2pi.f32 %r1, %r0;", version="9.4"))
    with pytest.raises(PtxError, match=r"%locality_domain_id needs \.version 9\.5"):
        parse(module("mov.u32 %r1, %locality_domain_id;", "sm_100", version="9.4"))


def test_they_run() -> None:
    """A map whose bit 85 is set, and one whose is not; sines of revolutions; nothing of what only orders or hints."""
    kernel = parse(
        module(
            """
    prefetch.global.L1::32B.valid_addr [%d0];
    tensormap.query.alloc_class_large.global.b1024 %p0, [%d0];
    tensormap.query.alloc_class_large.b1024 %p1, [%d0+128];
    selp.b32 %r0, 1, 0, %p0;
    selp.b32 %r1, 1, 0, %p1;
    ld.global.b32 %r2, [%d0+256];
    sin.approx.ftz.2pi.f32 %r3, %r2;
    cos.approx.ftz.2pi.f32 %r4, %r2;
    fence.alias.sync_restrict::read.release.sys;
    fence.proxy.async::generic.release.sync_restrict::shared::cluster::read.cta;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.sync_restrict::proxy::async 0;
    st.global.v4.b32 [%d0+256], {%r0, %r1, %r3, %r4};"""
        )
    ).kernel()
    memory, image = Memory(), np.zeros(272, np.uint8)
    image[10] = 1 << 5  # bit 85
    image[256:260] = np.float32([0.125]).view(np.uint8)
    at = memory.allocate(image)
    run = kernel.launch(memory, [at], (1, 1, 1), (32, 1, 1), arch="sm_90")
    assert run.completed and not run.inexact and not run.hazards
    large, small, sine, cosine = memory.read(at + 256, 16).view(np.uint32).tolist()
    assert (large, small) == (1, 0)
    code = np.float32([0.125])
    for name, found in (("sin", sine), ("cos", cosine)):
        assert int(tcsim.instruction(f"{name}.approx.ftz.2pi.f32", arch="sm_90").execute(code)[0]) == found


def test_where_a_block_runs_is_inexact() -> None:
    """%locality_domain_id, as %smid."""
    kernel = parse(module("mov.u32 %r1, %locality_domain_id; st.global.b32 [%d0], %r1;", "sm_100")).kernel()
    memory = Memory()
    run = kernel.launch(memory, [memory.allocate(4)], (1, 1, 1), (1, 1, 1), arch="sm_100")
    assert run.completed and any("locality_domain_id" in name for name in run.inexact)
