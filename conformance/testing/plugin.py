"""The plugin: fixtures, options, and the lines at the end that say where kernels ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.testing.launching import Launched, Launcher

PROPERTY = "tcsim ran on"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where `launch` runs kernels."""
    group = parser.getgroup("tcsim", "tcsim: kernels in tests")
    group.addoption(
        "--tcsim-device", choices=("auto", "gpu", "model"), default="auto",
        help="where `launch` runs kernels: a GPU if it can run them, else the model (auto); only a GPU; only the model",
    )  # fmt: skip
    group.addoption(
        "--tcsim-arch", metavar="ARCH", default=None, help="the arch of the model [default: each kernel's own]"
    )


@pytest.fixture(scope="session")
def _tcsim_launcher(request: pytest.FixtureRequest) -> Iterator[Launcher]:
    """What launches kernels, made for the first test that asks."""
    made = import_module("conformance.testing.launching").Launcher(
        request.config.getoption("--tcsim-device"), request.config.getoption("--tcsim-arch")
    )
    yield made
    made.close()


@pytest.fixture
def launch(request: pytest.FixtureRequest, _tcsim_launcher: Launcher) -> Callable[..., Launched]:
    """Launch a kernel's PTX: on a GPU where there is one that runs it, else on tcsim's model.

    launch(ptx, kernel=None, params=(), grid=1, block=1, cluster=(1, 1, 1), dynamic_smem=0, **options): parameters are arrays, which are copied
    there and come back in `.arrays`; (TensorMap, array) pairs; and numbers as `tcsim.ptx.Kernel.launch` takes them. options go to the
    model alone (schedule, limits). A kernel that faults, or has a hazard that is an error, fails the test. The report says where it ran.
    """

    def run(
        ptx: str | bytes, kernel: str | None = None, params: Sequence[Any] = (), grid: Any = 1, block: Any = 1, cluster: Any = (1, 1, 1),
        dynamic_smem: int = 0, **options: Any,
    ) -> Launched:  # fmt: skip
        __tracebackhide__ = True
        found = _tcsim_launcher.launch(ptx, kernel, params, grid, block, cluster, dynamic_smem, options)
        request.node.user_properties.append((PROPERTY, found.where))
        request.node.add_report_section("call", "tcsim", f"{kernel or 'the kernel'} ran on {found.where}")
        return found

    return run


@pytest.fixture
def assert_bits() -> Callable[..., None]:
    """`conformance.testing.assert_bits`, for tests that do not import it."""
    found: Callable[..., None] = import_module("conformance.testing.bits").assert_bits
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say where kernels ran, if any did."""
    places: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                places.update(str(value) for name, value in report.user_properties if name == PROPERTY)
    for place, count in sorted(places.items()):
        terminalreporter.write_line(f"tcsim: {count} launch{'es' if count > 1 else ''} on {place}")
