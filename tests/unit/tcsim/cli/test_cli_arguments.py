"""Arguments of the command line: wrong ones list the valid ones, and the shell completes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcsim import catalog
from tcsim.cli.app import app
from tests.support.cli_runs import MMA, RUNNER, WGMMA, refusal


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frobnicate",), "valid: list, show, where"),
        (("descriptor", "frobnicate"), "valid: decode, encode, tile, check"),
        (("show", MMA[:-1]), f"the likeliest first: {MMA}"),
        (("show", MMA, "--arch", "sm_99"), "all: sm_70, sm_72"),
        (("show", MMA, "--arch", "sm_75"), "needs sm_80 or later"),
        (("show", MMA, "--format", "pdf"), "'text', 'markdown', 'json'"),
        (("list", "--family", "mma"), "valid: mma.sync, mma.sp"),
        (("list", "--type", "f17"), "nearest: f16, bf16"),
        (("where", MMA, "--element", "0,0"), "valid: d, a, b, c"),
        (("where", MMA, "-o", "e", "--element", "0,0"), "valid: d, a, b, c"),
        (("where", WGMMA, "-o", "e", "--element", "0,0"), "valid: d, a, c"),
        (("where", MMA, "-o", "a", "--element", "0,16"), "valid are 0 to 15"),
        (("where", MMA, "-o", "a", "--element", "seven"), "valid: ROW,COLUMN"),
        (("where", "cvt.rn.satfinite.e4m3x2.f32", "--element", "0,0"), "has no fragments"),
        (("what", MMA, "-l", "32", "-r", "a0"), "valid: 0 to 31"),
        (("what", MMA, "-l", "0", "-r", "a4"), "valid: 0 to 3"),
        (("what", MMA, "-l", "0", "-r", "a-1"), "a0 to a3"),
        (("map", MMA, "-o", "a", "--format", "html5"), "'svg'"),
        (("inputs", MMA, "--element", "16,0"), "valid are 0 to 15"),
        (("descriptor", "decode", "many"), "valid: an integer"),
        (("descriptor", "decode", "0x8000"), "belong to no field"),
        (("descriptor", "encode", "--start", "8"), "multiples of 16"),
        (("descriptor", "encode", "--swizzle", "16B"), "valid: NONE, 128B, 64B, 32B"),
        (("descriptor", "encode", "--arch", "sm_80"), "sm_90 (wgmma)"),
        (("descriptor", "tile", "--rows", "12", "--k", "16", "--type", "f16"), "multiples of 8"),
        (("swizzle", "16B"), "valid: NONE, 32B, 64B, 128B"),
        (("mbarrier", "decode", "0", "--arch", "sm_75"), "sm_80 and later"),
        (("number", "e4m4", "1"), "nearest: e4m3"),
        (("number", "e4m3", "0x1ff"), "0x0 to 0xff"),
        (("quantize", "nowhere.npy", "--type", "e4m3"), "no file"),
        (("run", MMA, "--inputs", "nowhere.npz"), "no file"),
        (("trace", MMA), "--inputs FILE.npz, or --seed N"),
        (("trace", "movmatrix.sync.aligned.m8n8.trans.b16", "--seed", "1"), "computes no products"),
        (("compare", MMA, "--archs", "sm_80"), "at least two"),
        (("compare", MMA, "--archs", "sm_80,sm_91"), "nearest: sm_90"),
        (("compare", "tcgen05.mma.cta_group::1.kind::f16", "--archs", "sm_100,sm_103"), "idesc is missing; valid: its instruction"),
        (("compare", "tcgen05.mma.cta_group::1.kind::f16", "--archs", "sm_100,sm_103", "--idesc", "x"), "--idesc 'x': valid: an integer"),
        (("compare", "tcgen05.mma.cta_group::1.kind::f16", "--archs", "sm_100,sm_103", "--idesc", "3"), "sparsity_selector=3: A is dense"),
        (("trace", "tcgen05.mma.cta_group::1.kind::f16", "--seed", "1"), "idesc is missing; valid: its instruction"),
        (("map", "tcgen05.mma.cta_group::1.kind::f16"), "its matrices lie in Tensor Memory"),
        (("map", "tcgen05.shift.cta_group::1.down"), "it takes no matrix in registers"),
        (("compare", "cvt.rn.satfinite.e4m3x2.f32", "--archs", "sm_90,sm_100"), "computes no products"),
    ],
)  # fmt: skip
def test_wrong_arguments_list_the_valid_ones(arguments: tuple[str, ...], message: str) -> None:
    """Status 2, one message on standard error."""
    assert message in refusal(*arguments)


def test_files_that_are_no_inputs(tmp_path: Path, matrices: tuple[str, dict[str, np.ndarray]]) -> None:
    """Another kind of file, a missing array, an output that cannot be."""
    (tmp_path / "text.npz").write_text("no archive")
    assert "is no .npz or .npy file" in refusal("run", MMA, "--inputs", tmp_path / "text.npz")
    np.savez(tmp_path / "some.npz", a=np.ones((16, 16), np.float16), q=np.ones(1))
    assert "b, c is missing" in refusal("compare", MMA, "--archs", "sm_80,sm_90", "--inputs", tmp_path / "some.npz")
    assert "--name one of a, q" in refusal("quantize", tmp_path / "some.npz", "--type", "e4m3")
    assert "end in .npz" in refusal("run", MMA, "--inputs", matrices[0], "--output", "d.txt")
    assert "no array 'z'; valid: a, q" in refusal("quantize", tmp_path / "some.npz", "--type", "e4m3", "--name", "z")
    assert "no input q" in refusal("run", MMA, "--inputs", tmp_path / "some.npz")


# --- completion


def completions(text: str) -> list[str]:
    """What bash offers for a command line whose last word is begun."""
    words = text.split(" ")
    environment = {"_TCSIM_COMPLETE": "complete_bash", "COMP_WORDS": text, "COMP_CWORD": str(len(words) - 1)}
    result = RUNNER.invoke(app, [], env=environment, prog_name="tcsim")
    assert result.exit_code == 0, result.output
    return result.stdout.split()


def test_the_shell_completes_verbs_mnemonics_and_archs() -> None:
    """Also families, types, formats, operands, swizzles, and the last of several archs."""
    assert completions("tcsim sw") == ["swizzle"]
    movable = [row.mnemonic for row in catalog.rows().values() if row.mnemonic.startswith("movm")]
    assert completions("tcsim show movm") == movable
    wanted = [row.mnemonic for row in catalog.on_arch("sm_90") if row.mnemonic.startswith("mma.sync.aligned.m16n8k8")]
    assert completions("tcsim show --arch sm_90 mma.sync.aligned.m16n8k8") == wanted
    assert completions("tcsim show --arch sm_9") == ["sm_90", "sm_90a"]
    assert completions("tcsim compare x --archs sm_80,sm_8") == [f"sm_80,sm_8{n}" for n in (0, 6, 7, 8, 9)]
    assert completions("tcsim list --family wg") == ["wgmma", "wgmma.sp", "wgmma.sync"]
    assert completions("tcsim list --type bf") == ["bf16"]
    assert completions("tcsim number e4") == ["e4m3"]
    assert completions("tcsim swizzle 1") == ["128B"]
    assert completions(f"tcsim where {WGMMA} --operand ") == ["d", "a", "c"]
    assert completions("tcsim quantize f --rounding rn") == ["rne", "rna"]
