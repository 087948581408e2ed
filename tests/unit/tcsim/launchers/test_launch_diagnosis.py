"""What is wrong with a launch: one cause, its place, and a mend with which the launch is right; never a mend with which it is not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tcsim
import tcsim.launchers
from tcsim.cli.app import app
from tcsim.launchers import cuda_source, launch_file
from tcsim.launchers.diagnosed import LaunchDiagnosis, diagnose_launch
from tcsim.launchers.elements import Elements
from tcsim.launchers.job import Job, Pointer, Region, execute
from tcsim.launchers.mends import Mend
from tcsim.launchers.product import product_of
from tcsim.launchers.recording import Buffer, Recording, write
from tcsim.launchers.stepped import session
from tests.hazards.kernels import RACES, STORE, Kernel
from tests.support.cli_runs import RUNNER, refusal

WRONG = Path(__file__).parent / "wrong"
LAUNCHES = {
    "wgmma": """
        block = 128
        dynamic_smem = 32768
        params = [
          { tensor_map = "A", data_type = "BFLOAT16", global_dim = [128, 64], global_strides = [256], box_dim = [64, 64], swizzle = "128B" },
          { tensor_map = "B", data_type = "BFLOAT16", global_dim = [128, 64], global_strides = [256], box_dim = [64, 64], swizzle = "128B" },
          { pointer = "D" }, { value = 64 }, { value = 128 }]
        arrays.A = { format = "bf16", shape = [64, 128], distribution = "normal", seed = 1 }
        arrays.B = { format = "bf16", shape = [64, 128], distribution = "normal", seed = 2 }
        arrays.D = { format = "f32", shape = [64, 64], distribution = "zeros" }
    """,
    "mma": """
        block = 128
        params = [{ pointer = "A" }, { pointer = "B" }, { pointer = "D" }, { value = 64 }, { value = 128 }]
        arrays.A = { format = "f16", shape = [64, 128], distribution = "normal", seed = 1 }
        arrays.B = { format = "f16", shape = [128, 64], distribution = "normal", seed = 2 }
        arrays.D = { format = "f32", shape = [64, 64], distribution = "zeros" }
    """,
    "hang": """
        block = 128
        params = [{ pointer = "in" }, { pointer = "out" }]
        arrays.in = { format = "f32", shape = [128], distribution = "normal" }
        arrays.out = { format = "f32", shape = [128], distribution = "zeros" }
    """,
}  # fmt: skip


def test_a_result_that_is_compared_with_nothing_is_not_called_right(tmp_path: Path) -> None:
    """A result without rows and columns: what was multiplied is not known, and the exit status says so."""
    source, launch = written(tmp_path, "mma", 0)
    Path(launch).write_text(Path(launch).read_text().replace("shape = [64, 64]", "shape = [4096]"))
    found = RUNNER.invoke(app, ["diagnose", source, "--launch", launch])
    assert (
        found.exit_code == 2 and "the result is not compared" in found.stdout and "nothing is wrong" not in found.stdout
    )
    assert "write shape = [rows, columns]" in " ".join(found.stdout.split())


def written(folder: Path, kernel: str, bug: int) -> tuple[str, str]:
    """A kernel and its launch file, with one mistake or none."""
    source, launch = folder / f"{kernel}.cu", folder / f"{kernel}.toml"
    source.write_text((WRONG / f"{kernel}.cu").read_text().replace("#define BUG 0", f"#define BUG {bug}"))
    launch.write_text("\n".join(line.strip() for line in LAUNCHES[kernel].splitlines()))
    return str(source), str(launch)


@cache
def job_of(folder: Path, kernel: str, bug: int) -> tuple[Job, str]:
    """The launch."""
    source, launch = written(folder, kernel, bug)
    return launch_file.read(launch, cuda_source.ptx_of(source, "sm_90", "test")), source


def found(folder: Path, kernel: str, bug: int) -> LaunchDiagnosis:
    """What is said of it."""
    return diagnose_launch(*job_of(folder, kernel, bug))


MENDED = (
    ("wgmma", 1, "DESC_LBO_SBO", "A and B: SBO 1024 instead of 512"),
    ("wgmma", 2, "MBAR_PARITY", "flip the parity each time a thread waits on the same mbarrier again"),
    ("wgmma", 4, "TMA_BOX_BYTES", "expect 16384 bytes instead of 8192"),
    ("wgmma", 5, "K_ADVANCE", "start address"),
    ("wgmma", 7, "TMA_BOX_BYTES", "expect 16384 bytes instead of 16400"),
    ("mma", 2, "registers 1 and 2 of a are one register", "as register 1 of a"),
    ("mma", 3, "FRAGMENT_LAYOUT", "ldmatrix with .trans"),
    ("mma", 4, "CP_ASYNC_WAIT_MISSING", "`cp.async.wait_group 0;` instead of `cp.async.wait_group 1;`"),
    ("mma", 5, "SMEM_RACE_RAW", "`__syncthreads();` before mma.cu:38 (`bar.sync 0;` before PTX line "),
    ("mma", 7, "registers 2 and 3 of d are exchanged", "registers 2 and 3 of d the other way round in the stores"),
    ("mma", 9, "registers 0 and 1 of b are exchanged", "registers 0 and 1 of b the other way round"),
    ("hang", 0, "MBAR_ARRIVE_MISSING", ", 4;` (4 arrivals instead of 128), hang.cu:7"),
)  # fmt: skip


@pytest.mark.parametrize(("kernel", "bug", "cause", "mend"), MENDED)
def test_one_cause_and_the_mend_that_is_right(kernel: str, bug: int, cause: str, mend: str, tmp_path: Path) -> None:
    answer = found(tmp_path, kernel, bug)
    assert answer.verdict == "mended", answer.lines(verbose=True)
    assert cause in answer.cause and mend in answer.mend and ": tried, and " in answer.mend
    assert len(answer.lines()) == 3 and f"{kernel}.cu:" in answer.place
    if kernel != "hang":
        assert f"D = A @ B{'.T' if kernel == 'wgmma' else ''} in every element; check finds no error" in answer.mend
    assert len(answer.as_dict()["check"]["findings"]) == len(answer.check.findings)


@pytest.mark.parametrize("kernel", ["wgmma", "mma"])
def test_a_right_kernel_is_right(kernel: str, tmp_path: Path) -> None:
    answer = found(tmp_path, kernel, 0)
    assert answer.verdict == "correct" and len(answer.lines()) == 1 and "D = A @ B" in answer.cause


def test_what_ptxas_repairs_is_said_of_a_right_kernel(tmp_path: Path) -> None:
    answer = found(tmp_path, "wgmma", 3)
    assert answer.verdict == "correct" and answer.cause.startswith("WGMMA_MISSING_FENCE (ptxas repairs it)")
    assert "`wgmma.fence.sync.aligned;` before wgmma.cu:67 (PTX line" in answer.mend


def test_a_cause_without_a_mend(tmp_path: Path) -> None:
    """A loop that ends too early is named by the numbers; no mend is claimed."""
    short = found(tmp_path, "mma", 8)
    assert short.verdict == "named" and "K block missing (K 96-127 not added)" in short.cause
    assert "96 of 128 along K are multiplied" in short.place and short.mend.startswith("not tried: ")


def test_against_what_a_gpu_gave(tmp_path: Path) -> None:
    """The model is right, the GPU's rows are not; the same bits are no news."""
    job, file = job_of(tmp_path, "mma", 0)
    right = execute(job).after["D"]
    assert diagnose_launch(job, file, {"D": right}).verdict == "correct"
    rows = right.view(np.float32).reshape(64, 64)
    other = np.ascontiguousarray(rows[np.arange(64) ^ 8]).reshape(-1).view(np.uint8)
    answer = diagnose_launch(job, file, {"D": other})
    assert answer.verdict == "named" and "blocks of 8 exchanged in pairs" in answer.cause
    assert "bytes are not the model's" in answer.notes[0]
    noise = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    assert diagnose_launch(job, file, {"D": noise.reshape(-1).view(np.uint8)}).verdict == "not explained"


def test_a_product_that_the_launch_file_states(tmp_path: Path) -> None:
    """A square operand that is read the other way round is what it says, or a mistake if the file says so."""
    job, file = job_of(tmp_path, "wgmma", 0)
    square = [replace(own, shape=(64, 64), before=own.before[: own.before.size // 2]) for own in job.regions[:2]]
    job = replace(job, regions=(*square, job.regions[2]), params=(*job.params[:4], np.int32(64)))
    maps = [
        replace(own, tensor_map=tcsim.TensorMap("BFLOAT16", (64, 64), (128,), (64, 64), swizzle="128B"))
        for own in job.params[:2]
    ]
    job = replace(job, params=(*maps, *job.params[2:]))
    assert "D = A @ B.T" in diagnose_launch(job, file).cause
    answer = diagnose_launch(replace(job, product="D = A @ B"), file)
    assert answer.verdict == "named" and "b transposed" in answer.cause


def planted(kernel: Kernel, defect: str) -> LaunchDiagnosis:
    """A kernel of the hazards' tests, with a defect."""
    data = np.arange(16384, dtype=np.uint32).view(np.uint8)
    regions = tuple(Region(name, Elements("u32"), (16384,), data.copy()) for name in ("source", "target"))
    params = tuple(Pointer(own.name) for own in regions)
    return diagnose_launch(Job(kernel.without(defect).encode(), params, regions, block=(kernel.threads, 1, 1)))


@pytest.mark.parametrize(
    ("kernel", "defect", "mend"),
    [
        (RACES, "SMEM_RACE_RAW", "bar.sync 0;"),
        (RACES, "SMEM_RACE_WAW.2", "bar.sync 0;"),
        (STORE, "PROXY_FENCE_MISSING", "fence.proxy.async;"),
        (STORE, "BULK_GROUP_UNCOMMITTED", "cp.async.bulk.commit_group;"),
        (STORE, "TMA_STORE_SRC_REUSED.2", "cp.async.bulk.wait_group.read 0;"),
    ],
)
def test_what_is_missing_is_put_in(kernel: Kernel, defect: str, mend: str) -> None:
    """Where nothing is expected and nothing multiplies, the proof is that the launch ends and check is clean."""
    answer = planted(kernel, defect)
    assert answer.verdict == "mended" and mend in answer.mend, answer.lines(verbose=True)
    assert "tried, and the launch ends and check finds no error" in answer.mend


def test_statements_are_replaced_where_they_stand() -> None:
    """With their guards, several on a line, behind a label."""
    text = "W: @%p bra D; add.s32 %a, %b, 1; @!%q st.shared.u32 [%a], %b;\nret;"
    mend = Mend("", ((1, 5, "{} nop;"), (1, text.index("st.shared") + 1, "bar.sync 0; {}")))
    assert mend.applied(text) == (
        "W: @%p bra D; nop; add.s32 %a, %b, 1; bar.sync 0; @!%q st.shared.u32 [%a], %b;\nret;"
    )


def test_from_python(tmp_path: Path) -> None:
    source, launch = written(tmp_path, "mma", 0)
    gpu = {"D": np.zeros((64, 64), np.float32)}
    assert tcsim.launchers.diagnose(source, launch).verdict == "correct"
    assert tcsim.launchers.diagnose(source, launch, arch="h100", observed=gpu).verdict == "named"
    with pytest.raises(tcsim.OperandError, match="observed holds 'E'"):
        tcsim.launchers.diagnose(source, launch, observed={"E": gpu["D"], "D": gpu["D"]})


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "mma", 9)
    run = RUNNER.invoke(app, ["diagnose", "mma.cu", "--launch", "mma.toml"])
    assert run.exit_code == 1 and run.output.startswith("cause  D = A @ B: registers 0 and 1 of b are exchanged\n")
    assert [line.split()[0] for line in run.output.splitlines() if line[:1].isalpha()][:2] == ["cause", "place"]
    written(tmp_path, "mma", 0)
    assert RUNNER.invoke(app, ["diagnose", "mma.cu", "--launch", "mma.toml"]).exit_code == 0
    np.save("gpu.npy", np.zeros((64, 64), np.float32))
    run = RUNNER.invoke(app, ["diagnose", "mma.cu", "--launch", "mma.toml", "--observed", "gpu.npy", "--verbose"])
    assert run.exit_code == 1 and "D: " in run.output and "The numbers" in run.output
    np.save("gpu.npy", np.zeros((64, 65), np.float32))
    asked = ["diagnose", "mma.cu", "--launch", "mma.toml"]
    assert "valid: (64, 64) of float32" in refusal(*asked, "--observed", "gpu.npy")
    assert "valid beside it" in refusal(*asked, "--idesc", "1")
    assert "valid: --inputs FILE for an instruction" in refusal("diagnose", "mma.sync")
    Path("mma.toml").write_text('product = "D = A @ C"\n' + Path("mma.toml").read_text())
    assert 'valid: "d = a @ b"' in refusal(*asked)


def test_a_recorded_launch(tmp_path: Path) -> None:
    """What it expects is what a GPU gave."""
    job, _ = job_of(tmp_path, "mma", 0)
    after = execute(job)
    buffers = tuple(
        Buffer(own.name, after.addresses[own.name], own.before, after.after[own.name], own.elements, own.shape)
        for own in job.regions
    )
    params = tuple(np.uint64(after.addresses[own.array]).tobytes() for own in job.params[:3])  # type: ignore[union-attr]
    sizes = (np.int32(64).tobytes(), np.int32(128).tobytes())
    recorded = Recording(job.ptx, "gemm", (1, 1, 1), (128, 1, 1), (*params, *sizes), buffers, arch="sm_90")
    write(tmp_path / "run.npz", recorded)
    assert RUNNER.invoke(app, ["diagnose", str(tmp_path / "run.npz")]).exit_code == 0
    data = buffers[2].after.copy()
    data[:4096] = 0
    write(tmp_path / "run.npz", replace(recorded, buffers=(*buffers[:2], replace(buffers[2], after=data))))
    run = RUNNER.invoke(app, ["diagnose", str(tmp_path / "run.npz")])
    assert run.exit_code == 1 and "cause  D = A @ B: part of the output never written (rows 0-15" in run.output, (
        run.output
    )


WMMA = """.version 8.0
.target sm_90
.address_size 64
.visible .entry wmma(.param .u64 A, .param .u64 B, .param .u64 D)
{
  .reg .b64 %d<3>; .reg .b32 %a<8>, %b<8>; .reg .f32 %f<8>, %z;
  ld.param.u64 %d0, [A]; ld.param.u64 %d1, [B]; ld.param.u64 %d2, [D]; mov.f32 %z, 0f00000000;
  wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [%d0], PITCH;
  wmma.load.b.sync.aligned.ORDER.m16n16k16.global.f16 {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}, [%d1], 16;
  wmma.mma.sync.aligned.row.ORDER.m16n16k16.f32.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}, {%z, %z, %z, %z, %z, %z, %z, %z};
  wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%d2], {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, 16;
  ret;
}
"""


def wmma_job(order: str, pitch: int) -> Job:
    """D = A @ B of 16 x 16."""
    values = np.random.default_rng(3).standard_normal((2, 16, 16)).astype(np.float16)
    zeros = np.zeros(1024, np.uint8)
    regions = [
        Region(name, Elements("f16"), (16, 16), own.view(np.uint8).reshape(-1))
        for name, own in zip("AB", values, strict=True)
    ]
    ptx = WMMA.replace("ORDER", order).replace("PITCH", str(pitch)).encode()
    pointers = tuple(map(Pointer, "ABD"))
    return Job(
        ptx,
        pointers,
        block=(32, 1, 1),
        regions=(*regions, Region("D", Elements("f32"), (16, 16), zeros)),
        product="D = A @ B",
    )


def test_fragments_of_the_wrong_order_are_placed_at_their_load_and_mended() -> None:
    answer = diagnose_launch(wmma_job("col", 16))
    assert answer.verdict == "mended" and "the fragments of b are loaded by the wrong order" in answer.cause
    assert answer.place.startswith("line 9: wmma.load.b")
    assert answer.mend.startswith("`wmma::row_major` instead of `wmma::col_major` for matrix_b: tried, and D = A @ B")
    assert diagnose_launch(wmma_job("row", 16)).verdict == "correct"


@pytest.mark.parametrize(
    ("pitch", "said"), [(16, ""), (8, "A is read as if its rows lay 8 elements apart; they lie 16 apart")]
)
def test_addresses_say_how_far_apart_rows_are_read(pitch: int, said: str) -> None:
    job = wmma_job("row", pitch)
    own = session(job)
    own.run()
    product, _ = product_of(own, job)
    assert product is not None and product.pitch(own, job) == said
