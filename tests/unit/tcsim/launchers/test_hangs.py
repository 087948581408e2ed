"""Hangs: the mend that `check` names is the one that was planted the other way, alone, and tried; none is claimed where an arrival is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runs import answer, data

HEAD = '.version 8.0\n.target sm_90\n.address_size 64\n.file 1 "FOLDER/k.cu"\n'
RING = """.visible .entry ring(.param .u64 in, .param .u64 out)
{
  .reg .b64 %s, %d<3>; .reg .pred %p, %q; .reg .b32 %r<16>; .shared .align 8 .b64 bar[4]; .shared .align 4 .b32 buf[64];
  mov.u32 %r0, %tid.x; mov.u32 %r1, bar; and.b32 %r2, %r0, 31; shl.b32 %r3, %r2, 2;
  ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out];
  setp.ne.u32 %p, %r0, 0;
  @%p bra READY;
  .loc 1 1 1
  mbarrier.init.shared.b64 [%r1], FULL;
  mbarrier.init.shared.b64 [%r1+8], FULL;
  .loc 1 2 1
  mbarrier.init.shared.b64 [%r1+16], 32;
  mbarrier.init.shared.b64 [%r1+24], 32;
READY:
  bar.sync 0;
  setp.ge.u32 %q, %r0, 32;
  mov.u32 %r4, 0;
LOOP:
  and.b32 %r5, %r4, 1; shl.b32 %r6, %r5, 3; add.u32 %r6, %r6, %r1;
  shr.u32 %r7, %r4, 1; and.b32 %r7, %r7, 1; xor.b32 %r8, %r7, FREE;
  mov.u32 %r9, buf; shl.b32 %r10, %r5, 7; add.u32 %r9, %r9, %r10; add.u32 %r9, %r9, %r3;
  shl.b32 %r11, %r4, 5; add.u32 %r11, %r11, %r2; mul.wide.u32 %d2, %r11, 4;
  @%q bra TAKE;
  .loc 1 3 1
EMPTY:
  mbarrier.try_wait.parity.shared.b64 %p, [%r6+16], %r8;
  @!%p bra EMPTY;
  add.u64 %d2, %d2, %d0;
  ld.global.u32 %r12, [%d2];
  st.shared.u32 [%r9], %r12;
  mbarrier.arrive.shared.b64 %s, [%r6];
  bra NEXT;
TAKE:
  .loc 1 4 1
READ:
  mbarrier.try_wait.parity.shared.b64 %p, [%r6], READS;
  @!%p bra READ;
  add.u64 %d2, %d2, %d1;
  ld.shared.u32 %r12, [%r9];
  st.global.u32 [%d2], %r12;
  .loc 1 5 1
  GIVE
NEXT:
  add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 6;
  @%p bra LOOP;
  ret;
}
"""
COPY = """.visible .entry copy(.param .u64 in, .param .u64 out)
{
  .reg .b64 %s, %d<3>; .reg .pred %p; .reg .b32 %r<4>; .shared .align 16 .b32 buf[64]; .shared .align 8 .b64 bar;
  mov.u32 %r0, %tid.x; ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; setp.ne.u32 %p, %r0, 0;
  @%p bra READY;
  mbarrier.init.shared.b64 [bar], 1;
  fence.mbarrier_init.release.cluster;
  .loc 1 1 1
  EXPECT
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [%d0], 256, [bar];
READY:
  bar.sync 0;
  .loc 1 2 1
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
  @!%p bra WAIT;
  mov.u32 %r1, buf; shl.b32 %r2, %r0, 2; add.u32 %r1, %r1, %r2; ld.shared.u32 %r3, [%r1];
  mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %d2, %d1; st.global.u32 [%d2], %r3;
  ret;
}
"""
TURNS = """.visible .entry turns(.param .u64 in, .param .u64 out)
{
  .reg .pred %p; .reg .b32 %r<2>;
  mov.u32 %r0, %tid.x; setp.ge.u32 %p, %r0, 32; mov.u32 %r1, 0;
LOOP:
  @%p bra SECOND;
  .loc 1 1 1
  bar.sync 1, COUNT;
  bar.arrive 2, 64;
  bra NEXT;
SECOND:
  OPEN
  .loc 1 2 1
  bar.sync 2, 64;
  bar.arrive 1, 64;
NEXT:
  add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 3;
  @%p bra AGAIN;
  ret;
AGAIN:
  setp.ge.u32 %p, %r0, 32;
  bra LOOP;
}
"""
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;"
RIGHT = {
    "FULL": "32", "READS": "%r7", "FREE": "1", "GIVE": "mbarrier.arrive.shared.b64 %s, [%r6+16];", "EXPECT": EXPECT, "COUNT": "64",
    "OPEN": "setp.ne.u32 %p, %r1, 0; @%p bra GO; bar.arrive 1, 64; GO:",
}  # fmt: skip
FLIP = "flip the parity each time a thread waits on the same mbarrier again (a ring: `(i / stages) & 1`), in"
HANGS = (
    (RING, {"FULL": "33"}, "MBAR_ARRIVE_MISSING", "`mbarrier.init.shared.b64 [%r1], 32;` (32 arrivals instead of 33), k.cu:1 (PTX lines 13, 14)"),
    (RING, {"FREE": "0"}, "DEADLOCK", "wait for the other parity (`parity ^ 1`) in k.cu:3 (PTX line 30)"),
    (RING, {"READS": "0"}, "MBAR_PARITY", f"{FLIP} k.cu:4 (PTX line 40)"),
    (COPY, {"EXPECT": EXPECT.replace("256", "512")}, "MBAR_TX_OVER", "expect 256 bytes instead of 512 in"),
    (COPY, {"EXPECT": "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 256;"}, "MBAR_ARRIVE_MISSING", "`mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;` instead of"),
    (TURNS, {"COUNT": "96", "bar.sync 1": "barrier.cta.sync.aligned 1"}, "BARRIER_COUNT", "`barrier.cta.sync.aligned 1, 64;` instead of `barrier.cta.sync.aligned 1, 96;`, k.cu:1"),
    (TURNS, {"OPEN": ""}, "DEADLOCK", "`bar.arrive 1, 64;` once before the first wait in k.cu:2"),
)  # fmt: skip


def written(folder: Path, ptx: str, **other: str) -> tuple[str, str]:
    """A kernel with its launch file."""
    for name, text in (RIGHT | other).items():
        ptx = ptx.replace(name, text)
    (folder / "k.ptx").write_text(HEAD.replace("FOLDER", str(folder)) + ptx)
    arrays = 'arrays.in = { format = "f32", shape = [192], distribution = "normal" }\narrays.out = { format = "f32", shape = [192], distribution = "zeros" }\n'
    (folder / "k.toml").write_text(f'block = 64\nparams = [{{ pointer = "in" }}, {{ pointer = "out" }}]\n{arrays}')
    return str(folder / "k.ptx"), str(folder / "k.toml")


@pytest.mark.parametrize(("ptx", "other", "cause", "mend"), HANGS)
def test_the_mend_of_a_hang_is_named_alone(
    ptx: str, other: dict[str, str], cause: str, mend: str, tmp_path: Path
) -> None:
    file, launch = written(tmp_path, ptx, **other)
    for command in ("check", "diagnose"):
        lines = [
            own
            for own in answer(command, file, "--launch", launch, status=1).splitlines()
            if own[:7] in ("cause  ", "place  ", "mend   ")
        ]
        assert [own[:5] for own in lines] == ["cause", "place", "mend "], lines
        assert lines[0].startswith(f"cause  {cause}: "), lines
        assert (
            lines[2].startswith(f"mend   {mend}")
            and ": tried, and the launch ends and check finds no error" in lines[2]
        )


def test_json_has_the_mend_of_a_hang(tmp_path: Path) -> None:
    file, launch = written(tmp_path, RING, FREE="0")
    (found,) = data("check", file, "--launch", launch, status=1)["findings"]
    assert found["name"] == "DEADLOCK" and found["fix"].startswith("wait for the other parity")


@pytest.mark.parametrize("ptx", [RING, COPY, TURNS])
def test_a_launch_that_ends_has_no_such_mend(ptx: str, tmp_path: Path) -> None:
    file, launch = written(tmp_path, ptx)
    assert "clean: no fault, hang" in answer("check", file, "--launch", launch)


def test_of_an_arrival_that_is_left_out_no_mend_is_claimed(tmp_path: Path) -> None:
    """The cause says who arrived in the phase before."""
    give = f"setp.lt.u32 %p, %r4, 2; @%p {RIGHT['GIVE']}"
    file, launch = written(tmp_path, RING, GIVE=give)
    text = answer("check", file, "--launch", launch, status=1)
    assert "in the phase before 32 by mbarrier.arrive (k.cu:5)" in text and "tried, and" not in text
    assert "other counts, bytes or parities tried, none is right." in text
    found = data("check", file, "--launch", launch, status=1)["findings"]
    assert {own["name"] for own in found} == {"DEADLOCK"}
