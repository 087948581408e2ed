"""Which engine computes: by name, by object, inside `using`, automatically; what is said where one cannot be used."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.engines import choice
from tcsim.engines.contract import Engine, EngineError, EngineWarning, Matrices, Work
from tcsim.engines.reference import ENGINE as NUMPY

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


class Counting(Engine):
    """NumPy's results, and how often it was asked."""

    name = "counting"
    least, start = 1 << 13, 1 << 15

    def __init__(self, missing: str = "", broken: str = "") -> None:
        self.lacks, self.broken, self.asked = missing, broken, 0

    def missing(self) -> str:
        """As it was made."""
        return self.lacks

    def takes(self, work: Work) -> str:
        """No integers."""
        return "" if work.formats[0].kind == "float" else "it computes float formats only"

    def multiply(self, work: Work, matrices: Matrices, order: Sequence[int]) -> Any:
        """As NumPy."""
        if self.broken:
            raise EngineError(self.broken)
        self.asked += 1
        return NUMPY.multiply(work, matrices, order)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install an engine as a package would, for the length of a test."""
    monkeypatch.delenv("TCSIM_ENGINE", raising=False)

    def install(engine: Any) -> None:
        monkeypatch.setattr(choice, "_entries", lambda: {"counting": EntryPoint("counting", "x:y", choice.GROUP)})
        monkeypatch.setattr(EntryPoint, "load", lambda self: engine() if isinstance(engine, type) else engine)
        choice._loaded.cache_clear()
        choice._spent.clear()
        choice._slowness.clear()
        choice._given_up.clear()

    yield install
    choice._loaded.cache_clear()
    choice._spent.clear()
    choice._slowness.clear()
    choice._given_up.clear()


def fragments(count: int) -> tuple[Any, Any, Any]:
    stream = np.random.default_rng(1)
    a, b = (stream.standard_normal((count, *shape)).astype(np.float16) for shape in ((16, 16), (16, 8)))
    return a, b, np.zeros((count, 16, 8), np.float32)


def test_an_engine_is_asked_by_name_by_object_and_inside_using(installed: Any) -> None:
    engine = Counting()
    installed(engine)
    mma = tcsim.instruction(MMA, arch="sm_90")
    a, b, c = fragments(1)
    assert "counting" in choice.names()
    found = [mma.matmul(a, b, c, engine=one) for one in ("numpy", "counting", engine)]
    found.append(
        mma.matrix(
            "d", mma.execute(*(mma.registers(n, x) for n, x in zip("abc", (a, b, c), strict=True)), engine="counting")
        )
    )
    found.append(tcsim.gemm(a, b, instruction=mma, engine="counting"))
    with choice.using("counting"):
        found.append(mma.matmul(a, b, c))
    assert engine.asked == 5
    assert all((one == found[0]).all() for one in found)


def test_an_engine_is_chosen_for_large_work_once_it_has_paid_for_its_start(installed: Any) -> None:
    engine = Counting()
    installed(engine)
    mma = tcsim.instruction(MMA, arch="sm_90")
    counts = []
    for size in (1, 4, 4, 4, 4, 1, 4):  # fragments of 2,048 products
        mma.matmul(*fragments(size))
        counts.append(engine.asked)
    assert counts == [0, 0, 0, 0, 1, 1, 2]


def test_products_that_take_numpy_longer_pay_for_a_start_earlier(
    installed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that has taken four times as long as usual counts the next one four times."""
    engine = Counting()
    installed(engine)
    times = iter(range(100))
    monkeypatch.setattr(choice, "thread_time", lambda: float(next(times)))
    monkeypatch.setattr(choice, "_TIMED", 1)
    monkeypatch.setattr(choice, "_NOMINAL", 4 * 4 * 2048)
    mma = tcsim.instruction(MMA, arch="sm_90")
    counts = []
    for size in (4, 4, 4):
        mma.matmul(*fragments(size))
        counts.append(engine.asked)
    assert counts == [0, 1, 2]


def test_what_an_engine_does_not_compute_goes_to_numpy_or_is_refused(installed: Any) -> None:
    engine = Counting()
    installed(engine)
    mma = tcsim.instruction("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", arch="sm_90")
    a, b, c = np.ones((64, 16, 16), np.int8), np.ones((16, 8), np.int8), np.zeros((16, 8), np.int32)
    assert (mma.matmul(a, b, c).view(np.int32) == 16).all() and engine.asked == 0
    with pytest.raises(EngineError, match="engine='counting': it computes float formats only; valid: engine='numpy'"):
        mma.matmul(a, b, c, engine="counting")


def test_an_engine_without_what_it_needs_is_passed_over_in_silence_and_refused_by_name(installed: Any) -> None:
    installed(Counting(missing="no GPU"))
    mma = tcsim.instruction(MMA, arch="sm_90")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mma.matmul(*fragments(32))
    with pytest.raises(EngineError, match="engine='counting': no GPU"):
        mma.matmul(*fragments(1), engine="counting")
    with pytest.raises(EngineError, match=r"engine='nobody'; valid: numpy, counting, or None"):
        mma.matmul(*fragments(1), engine="nobody")


def raising() -> Engine:
    raise OSError("its library is of another version")


@pytest.mark.parametrize(
    "engine", [Counting(broken="the GPU is lost"), type("Raising", (), {"__new__": lambda cls: raising()})]
)
def test_an_engine_that_fails_is_given_up_with_one_warning_and_the_same_result(installed: Any, engine: Any) -> None:
    installed(engine)
    mma = tcsim.instruction(MMA, arch="sm_90")
    operands = fragments(32)
    with pytest.warns(EngineWarning, match="not used from now on") as said:
        found = [mma.matmul(*operands) for _ in range(3)]
    assert len(said) == 1
    assert all((one == mma.matmul(*operands, engine="numpy")).all() for one in found)
    with pytest.raises(EngineError, match=r"the GPU is lost|cannot be loaded: its library is of another version"):
        mma.matmul(*operands, engine="counting")


def test_instructions_that_multiply_nothing_take_no_engine() -> None:
    cvt = tcsim.instruction("cvt.rn.f16.f32", arch="sm_90")
    with pytest.raises(tcsim.OperandError, match="unexpected keyword argument 'engine'"):
        cvt.execute(a=np.zeros(1, np.uint32), engine="numpy")
