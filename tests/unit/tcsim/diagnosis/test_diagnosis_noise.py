"""Noise is not explained, whatever the sizes of operands, factors and outputs: what rounding may take off stays below the outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

import tcsim
from tests.evaluation.noise.cases import case as case_of

M, N, K = 64, 64, 128
MXFP8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0"
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALVES = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
TF32 = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"


@dataclass(frozen=True)
class Noise:
    """Noise as the output of random operands."""

    mnemonic: str
    operands: float  # their size
    outputs: float  # theirs
    relu: bool = False
    rows: bool = False  # rows of A of very different sizes
    c: bool = False
    scales: tuple[int, int, int, int] | None = None  # the lowest code and the one behind the highest, of A and of B

    def diagnosis(self, seed: int) -> tcsim.diagnosis.Diagnosis:
        """What is said of it."""
        random = np.random.default_rng(seed)
        mma = tcsim.instruction(self.mnemonic, arch="sm_120a" if self.scales else "sm_90")
        formats = {name: mma.operands[name].format.name for name in "abcd"}
        a, b = (random.standard_normal(shape) * self.operands for shape in ((M, K), (K, N)))
        a = a * 10.0 ** random.uniform(-3, 3, (M, 1)) if self.rows else a
        noise = random.standard_normal((M, N)) * self.outputs
        more: dict[str, npt.NDArray[np.unsignedinteger]] = {}
        if self.c:
            more["c"] = tcsim.encode(random.standard_normal((M, N)) * self.operands, formats["c"])
        if self.scales:
            low_a, end_a, low_b, end_b = self.scales
            more["scale_a"] = random.integers(low_a, end_a, (M, K // 32)).astype(np.uint8)
            more["scale_b"] = random.integers(low_b, end_b, (K // 32, N)).astype(np.uint8)
        return tcsim.diagnose(
            mma,
            a=tcsim.encode(a, formats["a"]),
            b=tcsim.encode(b, formats["b"]),
            observed=tcsim.encode(np.maximum(noise, 0) if self.relu else noise, formats["d"]),
            **more,
        )


CASES = {
    "scales at both ends": Noise(MXFP8, 100, 1e5, scales=(0, 4, 250, 255)),
    "scales far apart": Noise(MXFP8, 100, 1e5, scales=(67, 70, 187, 190)),
    "scales of all sizes": Noise(MXFP8, 100, 1.0, scales=(0, 250, 0, 250)),
    "products far larger than outputs, clamped": Noise(F16, 1e3, 1e-6, relu=True),
    "products far larger than outputs, with C": Noise(HALVES, 1e3, 1e-6, c=True),
    "outputs beyond the format": Noise(HALVES, 1e-4, 1e5, rows=True),
    "ordinary sizes, clamped": Noise(TF32, 1e3, 1.0, relu=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_noise_is_not_explained(case: Noise) -> None:
    assert case.diagnosis(1).verdict == "not explained"


@pytest.mark.parametrize(("zeros", "infinities"), [("a", ""), ("b", ""), ("", "a"), ("", "b")])
def test_scale_codes_decoded_by_shifting(zeros: str, infinities: str) -> None:
    """Code 0 becomes 0.0 and code 255 infinity, where f32 has its exponent."""
    random = np.random.default_rng(3)
    mma = tcsim.instruction(MXFP8, arch="sm_120a")
    a, b = (tcsim.encode(random.standard_normal(shape) * 8, "e4m3") for shape in ((M, K), (K, N)))
    codes, factors = {}, {}
    for name, shape in (("a", (M, K // 32)), ("b", (K // 32, N))):
        low, end = (0, 4) if name in zeros else (250, 255) if zeros else (124, 130)  # 2**-127 shows beside large ones
        own = random.integers(low, end, shape).astype(np.uint8)
        if name in infinities:
            own[random.random(shape) < 0.04] = 255
        codes[name], factors[name] = own, (own.astype(np.uint32) << 23).view(np.float32).astype(np.float64)
    blocks = (tcsim.decode(a, "e4m3").reshape(M, -1, 32), tcsim.decode(b, "e4m3").T.reshape(N, -1, 32))
    with np.errstate(all="ignore"):
        sums = np.einsum("ibk,jbk->ijb", *(x.astype(np.float64) for x in blocks))
        observed = tcsim.encode((sums * factors["a"][:, None] * factors["b"].T[None]).sum(axis=2), "f32")
    found = tcsim.diagnose(mma, a=a, b=b, scale_a=codes["a"], scale_b=codes["b"], observed=observed)
    assert found.verdict == "explained", str(found)
    assert found.explanations[0].mistake == f"scale_{zeros or infinities} decoded by shifting"


def test_sums_below_the_format_do_not_say_how_far_rounding_goes() -> None:
    """The product of f16 operands of all sizes, some of it next to zero, with random signs."""
    own = case_of(92501)
    assert own is not None and "with random signs" in own.said
    assert tcsim.diagnose(own.instruction, **own.arguments).verdict == "not explained"
