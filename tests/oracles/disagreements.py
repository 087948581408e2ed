"""Where other projects and tcsim disagree, as data: what differs, the smallest case, who is right and how we know."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tcsim

VERSIONS = {
    "apache-tvm": "0.27.0.post1",
    "gfloat": "0.5.2",
    "ml_dtypes": "0.6.0",
    "mmasim": "2.1.1",
    "nvidia-cuda-cccl": "13.3.5.0.6",
    "nvidia-cutlass-dsl": "4.8.1",
    "triton": "3.7.1",
}
"""The versions that were compared; the extra `oracles` of pyproject.toml installs them."""


@dataclass(frozen=True)
class Disagreement:
    """A class of inputs on which a project says something else than tcsim."""

    name: str
    project: str
    subjects: str  # pattern of the questions where it occurs
    inputs: str  # the class of inputs, in words
    case: dict[str, Any]  # the smallest case
    theirs: int  # the project's code for it
    ours: int  # tcsim's
    right: str  # who is right, and how we know
    covers: Callable[[Any], Any]  # Answers -> mask of the outputs that it explains

    def about(self, subject: str) -> bool:
        """Whether a question is one of `subjects`."""
        return re.fullmatch(self.subjects, subject) is not None


# --- which outputs a disagreement explains: functions of Answers to masks


def _float32(answers: Any) -> Any:
    with np.errstate(over="ignore", under="ignore"):
        return answers.inputs["value"].astype(np.float32)


def _double_rounding(answers: Any) -> Any:
    once = tcsim.encode(_float32(answers), answers.subject.split()[0])
    return answers.theirs == once


def _zero_after_float32(answers: Any) -> Any:
    return (_float32(answers) == 0) & (answers.theirs == 0xFF) & (answers.ours == 0)


def _subnormal_float32(answers: Any) -> Any:
    value = _float32(answers)
    return (value > 2.0**-127) & (value < 1.5 * 2.0**-127) & (answers.theirs == 1) & (answers.ours == 0)


def _tie(answers: Any) -> Any:
    significand, _ = np.frexp(answers.inputs["value"])
    return (significand == 0.75) & (answers.theirs % 2 == 0) & (answers.ours == answers.theirs + 1)


def _below_the_least(answers: Any) -> Any:
    value = answers.inputs["value"]
    return (value > 0) & (value < 2.0**-127) & (answers.ours == 0)


def _both_nan(answers: Any) -> Any:
    return np.logical_and(*(np.isnan(codes.view(np.float64)) for codes in (answers.theirs, answers.ours)))


def _behind_the_first_lane(answers: Any) -> Any:
    return answers.inputs["lane"] % 4 != 0


_HEADER = "NVIDIA's cuda_fp8.hpp (CUDA 13.5), __nv_cvt_float_to_e8m0"

DISAGREEMENTS: tuple[Disagreement, ...] = (
    Disagreement(
        name="ue8m0 ties",
        project="gfloat",
        subjects="ue8m0 rne.*",
        inputs="halfway between two powers of two, to nearest even: gfloat takes the even code, tcsim the larger power",
        case={"format": "ue8m0", "rounding": "rne", "value": 1.5 * 2.0**-127},
        theirs=0x00,
        ours=0x01,
        right=f"tcsim: {_HEADER}, rounds an exact midpoint up; ml_dtypes too. No PTX instruction rounds so",
        covers=_tie,
    ),
    Disagreement(
        name="ue8m0 below 2**-127",
        project="gfloat",
        subjects="ue8m0 (rne|rna|rz|rm|rp).*",
        inputs="positive numbers below the least power of two: gfloat gives negative codes, in 64 bits; tcsim gives 2**-127",
        case={"format": "ue8m0", "rounding": "rz", "value": 2.0**-128},
        theirs=0xFFFF_FFFF_FFFF_FFFF,
        ours=0x00,
        right=f"tcsim: {_HEADER}, clips to 2**-127",
        covers=_below_the_least,
    ),
    Disagreement(
        name="rounded twice",
        project="ml_dtypes",
        subjects="(bf16|e4m3|e5m2|e3m2|e2m3|e2m1|ue8m0) from float64",
        inputs="float64 within half a float32 ulp of a middle: ml_dtypes converts by way of float32",
        case={"format": "e2m1", "value": 0.25 + 2.0**-54},
        theirs=0x0,
        ours=0x1,
        right="tcsim: one rounding is nearer; gfloat gives the same",
        covers=_double_rounding,
    ),
    Disagreement(
        name="ue8m0 zero",
        project="ml_dtypes",
        subjects="ue8m0 from float(32|64)",
        inputs="zero, and what is zero in float32: ml_dtypes gives NaN, tcsim the least power of two",
        case={"format": "ue8m0", "value": 0.0},
        theirs=0xFF,
        ours=0x00,
        right=f"tcsim: {_HEADER}, gives 0x00",
        covers=_zero_after_float32,
    ),
    Disagreement(
        name="ue8m0 float32 subnormals",
        project="ml_dtypes",
        subjects="ue8m0 from float(32|64)",
        inputs="between 2**-127 and the middle to 2**-126, subnormal in float32: ml_dtypes gives the farther 2**-126",
        case={"format": "ue8m0", "value": 1.25 * 2.0**-127},
        theirs=0x01,
        ours=0x00,
        right=f"tcsim: 2**-127 is nearer; {_HEADER}, gives 0x00; gfloat too",
        covers=_subnormal_float32,
    ),
    Disagreement(
        name="f64 NaN",
        project="mmasim",
        subjects=r"\w+ \w+ \S*\.f64\.f64\.f64\.f64 .*",
        inputs="several NaN: mmasim passes on the one that the host's fma does (the case is for x86-64), tcsim b, then c, then a",
        case={"mnemonic": "m8n8k4.f64.f64.f64.f64", "a": 0x7FF8000000000001, "b": 0x7FF8000000000002, "c": 0},
        theirs=0x7FF8000000000001,
        ours=0x7FF8000000000002,
        right="tcsim on sm_90: the recordings of an H200 have it so; on other archs nobody has measured",
        covers=_both_nan,
    ),
    Disagreement(
        name="sparse tf32 m16n8k16, operand A",
        project="nvidia-cutlass-dsl",
        subjects=r"mma\.sp\S*\.m16n8k16\.row\.col\.f32\.tf32\.tf32\.f32 a",
        inputs="all lanes but each quad's first: CuTe's layout puts lane 1 at columns 4 and 5, lane 2 beyond column 15",
        case={"shape": (16, 8, 16), "types": ("tf32", "tf32", "f32"), "lane": 1, "value": 0},
        theirs=2,
        ours=1,
        right="tcsim: the recordings of an H200 have it so; CuTe's layout leaves the matrix (the DSL uses this atom for f16 and "
        "bf16 only)",
        covers=_behind_the_first_lane,
    ),
)
