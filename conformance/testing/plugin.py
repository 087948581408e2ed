"""The plugin: fixtures, options, and the lines at the end that say where kernels ran."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.testing.launching import Launched, Launcher
    from tcsim.launchers.check import Check

PROPERTY = "tcsim ran on"
SAMPLED = "tcsim watched"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where `launch` runs kernels."""
    group = parser.getgroup("tcsim", "tcsim: kernels in tests")
    group.addoption(
        "--tcsim-device", choices=("auto", "gpu", "model"), default="auto",
        help="where `launch` runs kernels: a GPU if it can run them, else the model (auto); only a GPU; only the model",
    )  # fmt: skip
    group.addoption(
        "--tcsim-timeline", metavar="FOLDER", default=None,
        help="write there the timeline of a block of what `assert_clean` or the marker tcsim fails: a page for each test",
    )  # fmt: skip
    group.addoption(
        "--tcsim-arch", metavar="ARCH", default=None, help="the arch of the model [default: each kernel's own]"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker, for --strict-markers."""
    config.addinivalue_line(
        "markers",
        "tcsim(arch, schedule='late', severity='error', allow=()): what the test launches with Triton runs on tcsim's model of an arch, "
        "and fails the test if it has a hazard that is at least so severe",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test that has the marker with Triton on the model."""
    marker = item.get_closest_marker("tcsim")
    if marker is None:
        return (yield)
    checking = import_module("conformance.testing.checking_triton")
    with checking.checked_triton(
        str(item.path), *marker.args, page=_page(item), told=partial(_sampled, item), **marker.kwargs
    ):
        return (yield)


def _sampled(item: Any, said: str) -> None:
    """Keep for the end that a test watched some blocks only."""
    if said:
        item.user_properties.append((SAMPLED, said))


def _page(item: Any) -> Path | None:
    """Where the timeline of a test goes; None for nowhere."""
    folder = item.config.getoption("--tcsim-timeline")
    return Path(folder) / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', item.nodeid)}.html" if folder else None


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
    model alone (schedule, limits, check). A kernel that faults, or has a hazard that is an error, fails the test. The report says where it ran.
    """

    def run(
        ptx: str | bytes, kernel: str | None = None, params: Sequence[Any] = (), grid: Any = 1, block: Any = 1, cluster: Any = (1, 1, 1),
        dynamic_smem: int = 0, **options: Any,
    ) -> Launched:  # fmt: skip
        __tracebackhide__ = True
        found = _tcsim_launcher.launch(ptx, kernel, params, grid, block, cluster, dynamic_smem, options)
        request.node.user_properties.append((PROPERTY, found.where))
        _sampled(request.node, found.run.sampled if found.run is not None else "")
        request.node.add_report_section("call", "tcsim", f"{kernel or 'the kernel'} ran on {found.where}")
        return found

    return run


@pytest.fixture
def assert_bits() -> Callable[..., None]:
    """`conformance.testing.assert_bits`, for tests that do not import it."""
    found: Callable[..., None] = import_module("conformance.testing.bits").assert_bits
    return found


@pytest.fixture
def assert_clean(request: pytest.FixtureRequest) -> Callable[..., Check]:
    """Run a kernel's PTX on tcsim's model, and fail the test for missing fences, waits and barriers.

    assert_clean(ptx, kernel=None, params=(), grid=1, block=1, cluster=(1, 1, 1), dynamic_smem=0, schedules=("late", "early"), severity="error",
    allow=(), **options): parameters as of `launch`; the launch is run under each schedule. A hazard that is at least so severe fails the test,
    unless its rule is allowed. options: limits, check. The `Check` that it gives has `.findings`, `.sarif()` and `.as_dict()`.
    """

    def run(ptx: str | bytes, kernel: str | None = None, params: Sequence[Any] = (), **options: Any) -> Check:
        __tracebackhide__ = True
        check = import_module("conformance.testing.checking").assert_clean
        arch = request.config.getoption("--tcsim-arch")
        found: Check = check(str(request.path), arch, ptx, kernel, params, page=_page(request.node), **options)
        _sampled(request.node, found.sampled)
        return found

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say where kernels ran, if any did, and of which tests not every block was watched."""
    places, sampled = Counter[str](), list[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                places.update(str(value) for name, value in report.user_properties if name == PROPERTY)
                sampled += [
                    f"tcsim: {report.nodeid}: {value}" for name, value in report.user_properties if name == SAMPLED
                ]
    for place, count in sorted(places.items()):
        terminalreporter.write_line(f"tcsim: {count} launch{'es' if count > 1 else ''} on {place}")
    for line in sampled:
        terminalreporter.write_line(line)
