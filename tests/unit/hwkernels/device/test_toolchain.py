"""Assembling and disassembling: every target, every kind of complaint, and what a hash of the machine code depends on.

These tests need ptxas 13.5 or later, ptxas 12.9 (for sm_70 and sm_72) and nvdisasm, and fail without them.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwkernels.device import toolchain as tc
from hwkernels.device.sass import (
    SassError,
    SassInstruction,
    code_sha256,
    disassemble,
    kernel_hashes,
    opcode_counts,
    parse_listing,
)
from hwkernels.device.toolchain import (
    AssembleError,
    Assembly,
    Job,
    ToolchainError,
    assemble,
    assemble_many,
    find_toolchains,
    notes_in,
    ptx_version_for,
    targets_of,
    toolchain_for,
)
from tcsim.core.targets import ARCHS, TARGETS
from tcsim.core.versions import number

# Every `.version` there is from 5.0 on, to ask for the one before.
LAST_MINOR = {5: 1, 6: 5, 7: 8, 8: 8, 9: 5}
PTX_VERSIONS = [f"{major}.{minor}" for major, last in LAST_MINOR.items() for minor in range(last + 1)]

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
MMA_KERNEL = f"""
    ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%d0];
    ld.global.v2.b32 {{%r4, %r5}}, [%d0+16];
    ld.global.v4.b32 {{%r6, %r7, %r8, %r9}}, [%d0+32];
    {MMA} {{%r6, %r7, %r8, %r9}}, {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r6, %r7, %r8, %r9}};
    st.global.v4.b32 [%d1], {{%r6, %r7, %r8, %r9}};
"""
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, %d0, 1, 1, 1, 0;"
WGMMA_OPEN, WGMMA_CLOSE = (
    "wgmma.fence.sync.aligned;",
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
)


def kernel(target: str, body: str = "", version: str | None = None, directives: str = "", head: str = "") -> str:
    """A kernel `k` of two pointers, loaded into %d0 and %d1, around `body`."""
    return f"""\
.version {version or ptx_version_for(target)}
.target {target}
.address_size 64
{head}
.visible .entry k(.param .u64 p0, .param .u64 p1) {directives}
{{
    .reg .b32 %r<80>; .reg .b64 %d<4>; .reg .f32 %f<4>; .reg .pred %p<2>;
    ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
{body}
    ret;
}}
"""


def wgmma_kernel(between: str = "", directives: str = "", before: str = "") -> str:
    """Two wgmma that add up in one group, with `between` between them."""
    body = f"""
    ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%d1];
    mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    {before}
    {WGMMA_OPEN}
    {WGMMA}
    {between}
    {WGMMA}
    {WGMMA_CLOSE}
    st.global.v4.f32 [%d1], {{%f0, %f1, %f2, %f3}};
"""
    return kernel("sm_90a", body, directives=directives)


@pytest.fixture
def fresh_search() -> Iterator[None]:
    """Forget what was found, before and after a test that changes where to look."""
    find_toolchains.cache_clear()
    yield
    find_toolchains.cache_clear()


def fake_ptxas(directory: Path, version: str, targets: str) -> Path:
    """A program that answers --version and --help as ptxas does, and nothing else."""
    directory.mkdir(parents=True)
    path = directory / "ptxas"
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "Cuda compilation tools, release 1.0, V{version}"\n'
        '[ "$1" = --help ] && cat <<END\n'
        "--gpu-code <name>                (-code)\n"
        "        Allowed values for this option:  'sm_1'.\n"
        "--gpu-name <gpu name>            (-arch)\n"
        f"        Allowed values for this option:  'compute_998',{targets}.\n"
        "--help                           (-h)\n"
        "        Prints 'sm_2'.\n"
        "END\n"
        "exit 0\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_assembles(target: str) -> None:
    ptx = kernel(target, "st.global.u64 [%d1], %d0;")
    result = assemble(ptx, target)
    assert result.cubin.startswith(b"\x7fELF")
    assert result.target == target
    assert result.notes == ()
    assert f"for '{target}'" in result.log
    assert result.toolchain == toolchain_for(target)
    assert result.ptx_sha256 == hashlib.sha256(ptx.encode()).hexdigest()
    assert result.cubin_sha256 == hashlib.sha256(result.cubin).hexdigest()


def test_the_version_of_every_target_is_the_lowest() -> None:
    def job(target: str, version: str) -> Job:
        return Job(kernel(target, version=version), target)

    before = {version: PTX_VERSIONS[index - 1] for index, version in enumerate(PTX_VERSIONS) if index}
    taken = assemble_many(job(target, ptx_version_for(target)) for target in TARGETS)
    refused = assemble_many(job(target, before[ptx_version_for(target)]) for target in TARGETS)
    assert len(taken) == len(refused) == len(TARGETS) == 28
    for target, good, bad in zip(TARGETS, taken, refused, strict=True):
        assert isinstance(good, Assembly), f"{target}: {good}"
        assert isinstance(bad, AssembleError), f"{target} takes a version before {ptx_version_for(target)}"
        assert "does not support .target" in bad.log or "Unsupported .version" in bad.log


def test_an_unknown_target_has_no_version() -> None:
    with pytest.raises(ToolchainError, match=r"'sm_42'.*sm_70 .*sm_121a"):
        ptx_version_for("sm_42")


def test_the_same_text_gives_the_same_cubin() -> None:
    ptx = kernel("sm_80", MMA_KERNEL)
    first, second = assemble(ptx, "sm_80"), assemble(ptx, "sm_80")
    assert first.cubin == second.cubin


# ---------------------------------------------------------------------------------------------- which assembler


def test_toolchains_are_newest_first() -> None:
    versions = [number(toolchain.version) for toolchain in find_toolchains()]
    assert versions
    assert versions == sorted(versions, reverse=True)
    assert toolchain_for("sm_90").version == find_toolchains()[0].version
    assert toolchain_for("sm_70").version.startswith("12.")


def test_the_places_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_search: None) -> None:
    new = fake_ptxas(tmp_path / "home" / "bin", "99.10.1", "'sm_998',\n        'sm_999a'")
    old = fake_ptxas(tmp_path / "path", "99.9.1", "'sm_998'")
    broken = tmp_path / "broken" / "ptxas"
    broken.parent.mkdir()
    broken.write_text("not a program")
    broken.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{broken.parent}:{old.parent}:/usr/bin:/bin")
    found = find_toolchains()
    assert [toolchain.ptxas for toolchain in found[:2]] == [new, old]
    assert [toolchain.source for toolchain in found[:2]] == ["$CUDA_HOME", "PATH"]
    assert broken not in [toolchain.ptxas for toolchain in found]
    assert targets_of(found[0]) == ("sm_998", "sm_999a")
    assert toolchain_for("sm_999a") is found[0]
    assert toolchain_for("sm_90").version.startswith("1")  # not one of the two that do not have it
    assert found[0].nvdisasm is not None  # of another place, for want of one beside ptxas


def test_a_missing_target_is_explained() -> None:
    with pytest.raises(ToolchainError) as caught:
        toolchain_for("sm_999")
    text = str(caught.value)
    assert "'sm_999'" in text
    assert all(toolchain.version in text for toolchain in find_toolchains())
    assert "sm_90a" in text
    assert "pip install 'tcsim[assemble]'" in text


def test_no_assembler_at_all_is_explained(monkeypatch: pytest.MonkeyPatch, fresh_search: None) -> None:
    monkeypatch.setattr(tc, "places", lambda: iter(()))
    assert find_toolchains() == ()
    with pytest.raises(ToolchainError, match=r"no ptxas was found .*pip install 'tcsim\[assemble\]'"):
        assemble(kernel("sm_80"), "sm_80")
    with pytest.raises(ToolchainError, match="nvdisasm"):
        disassemble(b"")


def test_a_toolchain_is_only_asked_for_its_own_targets() -> None:
    with pytest.raises(ToolchainError, match=r"has no target 'sm_70'; it has .*sm_90a"):
        assemble(kernel("sm_70"), "sm_70", toolchain_for("sm_107"))


# ---------------------------------------------------------------------------------------------- what ptxas says

CLEAN_LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas info    : Compile time = 1.718 ms
"""
ADVISORIES = [
    "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility across "
    "compilation units.",
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at "
    "entry.",
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to wgmma "
    "pipeline crossing function boundary at a function call in the function 'k'",
    "ptxas info    : (C7517) wgmma.wait_group is injected in around line 14 by compiler to allow use of registers "
    "defined by GMMA in function 'k'",
    "ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are serialized due to program "
    "dependence on compiler-inserted WG.AR in divergent path in the function 'k' in line 14",
]


def test_a_clean_log_has_no_notes() -> None:
    assert notes_in(CLEAN_LOG) == ()


@pytest.mark.parametrize("advisory", ADVISORIES)
def test_an_advisory_is_a_note(advisory: str) -> None:
    assert notes_in(f"{advisory}\n{CLEAN_LOG}") == (advisory,)


@pytest.mark.parametrize(("stores", "loads"), [(8, 12), (4, 0), (0, 4)])
def test_a_spill_is_a_note(stores: int, loads: int) -> None:
    log = CLEAN_LOG + (
        "ptxas info    : Function properties for helper\n"
        f"    16 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
    )
    assert notes_in(log) == (f"register spill in helper: {stores} bytes spill stores, {loads} bytes spill loads",)


def test_a_sound_wgmma_pipeline_has_no_notes() -> None:
    assert opcode_counts(disassemble(assemble(wgmma_kernel(), "sm_90a").cubin))["HGMMA.64x8x16.F32"] == 2


@pytest.mark.parametrize(
    ("ptx", "words"),
    [
        (wgmma_kernel(between="mov.u32 %r0, 7;"), "serialized due to non wgmma instructions defining input registers"),
        (wgmma_kernel(between="add.f32 %f0, %f0, %f1;"), "C75"),
        (wgmma_kernel(before="setmaxnreg.inc.sync.aligned.u32 64;"), "'setmaxnreg' ignored"),
    ],
    ids=["input-register", "accumulator", "setmaxnreg"],
)
def test_a_repaired_kernel_is_an_error(ptx: str, words: str) -> None:
    with pytest.raises(AssembleError) as caught:
        assemble(ptx, "sm_90a")
    assert caught.value.target == "sm_90a"
    assert any(words in note for note in caught.value.notes)
    assert words in str(caught.value)
    assert "allow_notes=True" in str(caught.value)
    allowed = assemble(ptx, "sm_90a", allow_notes=True)
    assert allowed.notes == caught.value.notes
    assert allowed.cubin.startswith(b"\x7fELF")


def test_a_real_spill_is_an_error() -> None:
    loads = "\n".join(f"ld.volatile.global.u32 %r{i}, [%d0+{4 * i}];" for i in range(64))
    stores = "\n".join(f"st.volatile.global.u32 [%d1+{4 * i}], %r{i};" for i in range(64))
    ptx = kernel("sm_80", loads + stores)
    with pytest.raises(AssembleError, match="register spill in k: "):
        assemble(ptx, "sm_80", flags=("--maxrregcount", "24"))
    assert assemble(ptx, "sm_80").flags == ()


def test_a_wrong_text_is_quoted_with_its_line() -> None:
    ptx = kernel("sm_80", MMA_KERNEL.replace("m16n8k16", "m16n8k12"))
    (number,) = (index for index, line in enumerate(ptx.splitlines(), 1) if "m16n8k12" in line)
    with pytest.raises(AssembleError) as caught:
        assemble(ptx, "sm_80")
    error, text = caught.value, str(caught.value)
    assert error.lines == ((number, ptx.splitlines()[number - 1]),)
    assert error.target == "sm_80"
    assert f"line {number}; error" in error.log
    assert error.log.strip() in text
    assert f"{number} |     mma.sync.aligned.m16n8k12" in text
    assert "for sm_80" in text
    assert error.notes == ()


def test_many_give_results_in_order_and_keep_errors() -> None:
    bodies = [f"st.global.u32 [%d1], {number};" for number in range(8)]
    jobs: list[Job | tuple[str, str]] = [(kernel("sm_80", body), "sm_80") for body in bodies]
    jobs[3] = (kernel("sm_80", "nonsense;"), "sm_80")
    jobs[5] = (kernel("sm_80"), "sm_999")
    jobs[6] = Job(wgmma_kernel(between="mov.u32 %r0, 7;"), "sm_90a", allow_notes=True)
    results = assemble_many(jobs, workers=4)
    assert len(results) == len(jobs)
    for index, (job, result) in enumerate(zip(jobs, results, strict=True)):
        expected = {3: AssembleError, 5: ToolchainError}.get(index, Assembly)
        assert type(result) is expected, f"job {index}: {result}"
        if isinstance(result, Assembly):
            assert result.ptx_sha256 == hashlib.sha256(job[0].encode()).hexdigest()
            assert result.cubin == assemble(job[0], job[1], allow_notes=True).cubin


# ---------------------------------------------------------------------------------------------- machine code


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_an_mma_is_one_hmma(target: str) -> None:
    (function,) = disassemble(assemble(kernel(target, MMA_KERNEL), target).cubin)
    assert function.name == "k"
    assert opcode_counts([function])["HMMA.16816.F32"] == 1
    assert [item.address for item in function.instructions] == [16 * i for i in range(len(function.instructions))]
    (hmma,) = (item for item in function.instructions if item.opcode == "HMMA.16816.F32")
    assert hmma.predicate == ""
    assert [operand[0] for operand in hmma.operands.split(", ")] == ["R", "R", "R", "R"]


def test_predicates_and_device_functions_are_read() -> None:
    listing = """\
        .type           k,@function
k:
.text.k:
        /*0000*/              @!P0 BRA `(.L_x_1) ;
        /*0010*/                   CALL.REL.NOINC `($k$f) ;
.L_x_1:
        /*0020*/                   EXIT ;
        .type           $k$f,@function
$k$f:
        /*0030*/              @UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0040*/                   NOP;
"""
    kernel_function, helper = parse_listing(listing)
    assert (kernel_function.name, helper.name) == ("k", "$k$f")
    assert kernel_function.instructions[0] == SassInstruction(0, "!P0", "BRA", "`(.L_x_1)")
    assert helper.instructions == (
        SassInstruction(0x30, "UP1", "UIADD3", "UR4, UR4, 0x1, URZ"),
        SassInstruction(0x40, "", "NOP", ""),
    )
    assert opcode_counts([kernel_function, helper]) == {
        "BRA": 1,
        "CALL.REL.NOINC": 1,
        "EXIT": 1,
        "UIADD3": 1,
        "NOP": 1,
    }


@pytest.mark.parametrize(
    "listing",
    [
        "        /*0000*/                   EXIT ;\n",
        "        .type   k,@function\nk:\n        /*0000*/                   .dword 0x12 \n",
    ],
    ids=["outside a function", "no instruction"],
)
def test_an_unknown_listing_is_an_error(listing: str) -> None:
    with pytest.raises(SassError, match="not an instruction of a function"):
        parse_listing(listing)


def test_the_code_hash_is_of_the_code_alone() -> None:
    def build(path: str, name: str, value: int) -> bytes:
        head = f'.file 1 "{path}"'
        ptx = kernel("sm_80", f".loc 1 7 0\nst.global.u32 [%d1], {value};", head=head).replace(" k(", f" {name}(")
        return assemble(ptx, "sm_80", flags=("-lineinfo",)).cubin

    first = build("kernels/one.cu", "k", 1)
    moved = build("another/place/two.cu", "k", 1)
    renamed = build("kernels/one.cu", "another_name", 1)
    changed = build("kernels/one.cu", "k", 2)
    assert len({first, moved, renamed, changed}) == 4
    assert code_sha256(first) == code_sha256(moved) == code_sha256(renamed)
    assert code_sha256(first) != code_sha256(changed)


def test_one_kernel_of_several_is_told_apart() -> None:
    ptx = kernel("sm_80", "st.global.u32 [%d1], 1;")
    second = kernel("sm_80", "ld.global.u64 %d2, [%d1]; div.u64 %d2, %d0, %d2; st.global.u64 [%d1], %d2;")
    second = second.partition(".visible")[2].replace(" k(", " k2(")
    alone = assemble(ptx, "sm_80").cubin
    both = assemble(f"{ptx}.visible{second}", "sm_80").cubin
    assert code_sha256(both, ".text.k") == code_sha256(alone, ".text.k") == code_sha256(alone)
    assert kernel_hashes(both) == {name: code_sha256(both, name) for name in (".text.k", ".text.k2")}
    assert len({code_sha256(both), code_sha256(both, ".text.k"), code_sha256(both, ".text.k2")}) == 3
    with pytest.raises(SassError, match=r"has no \.text\.k3 section"):
        code_sha256(both, ".text.k3")
    sections = {function.name: function.section for function in disassemble(both)}
    assert sections.pop("k") == ".text.k"
    assert sections.pop("k2") == ".text.k2"
    assert sections  # the division, which is a function of its own
    assert set(sections.values()) == {".text.k2"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a cubin"),
        (b"\x7fELF\x02\x01" + bytes(20), "not a cubin"),
        (b"\x7fELF\x02\x01" + bytes(80), "not a cubin|no .text section"),
    ],
)
def test_what_is_no_cubin_has_no_code_hash(data: bytes, words: str) -> None:
    with pytest.raises(SassError, match=words):
        code_sha256(data)


def test_what_is_no_cubin_cannot_be_disassembled() -> None:
    with pytest.raises(SassError, match="no installed nvdisasm reads this cubin of 7 bytes"):
        disassemble(b"nothing")


def test_the_targets_are_those_of_the_newest_assembler() -> None:
    """Every target that ptxas 13.5 lists, sm_121f too, and those of Volta, which ptxas 12.9 has; sm_107 is Rubin."""
    newest = find_toolchains()[0]
    assert set(targets_of(newest)) == {name for name in TARGETS if TARGETS[name].number >= 75}
    assert ARCHS["sm_107"].generation == "Rubin"
    assert [target.name for target in ARCHS["sm_121"].targets] == ["sm_121", "sm_121f", "sm_121a"]
