"""pytest plumbing of the conformance suite: options, cases, verdicts, the closing table."""

from __future__ import annotations

import datetime
import gc
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from conformance.campaign.campaign import subjects
from conformance.kernels import convert as convert_cases
from conformance.kernels import gemm as gemm_cases
from conformance.kernels import scaled as scaled_cases
from conformance.suite import manifest, recordings, waivers
from conformance.suite.cases import COMPARED, FAILED, VERDICTS, Case, Mode, Outcome, Settings, Suite
from conformance.suite.hardware import NEEDS, Hardware
from conformance.suite.proofs import proofs
from conformance.suite.recordings import RecordingError, Unwritable
from conformance.suite.waivers import Waiver, WaiverError
from hwkernels.device.driver import device_available, device_info
from tcsim import catalog
from tcsim.core.errors import TargetError, TcsimError
from tcsim.core.targets import ARCHS, arch_named

SUITE = pytest.StashKey[Suite]()
WAIVERS = pytest.StashKey[Sequence[Waiver]]()
OPEN: tuple[str, ...] = ("UNTESTED", "UNVERIFIED")
"""The verdicts that --strict does not let pass."""
PROPERTY = "conformance"
MUTANTS = "mutants"  # of a proof that passed: how many mutants it contradicted


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("conformance", "tensor-core conformance")
    group.addoption("--arch", help="chip generation under test, such as sm_90 (default: the GPU's, else sm_90)")
    group.addoption("--live", action="store_true", help="run on the GPU (default where one of that arch is present)")
    group.addoption("--replay", action="store_true", help="compare with recorded hardware results (default elsewhere)")
    group.addoption("--record", action="store_true", help="run live and write what the hardware answered")
    group.addoption(
        "--proof", action="store_true", help="also ask whether the recordings contradict every mutant (minutes)"
    )
    group.addoption("--samples", type=int, help="warps per case (default: enough for 2,048 outputs)")
    group.addoption("--seed", type=int, default=0, help="seed of the inputs (default 0)")
    group.addoption(
        "--level",
        type=int,
        default=1,
        help="2: all pairs of corner values of every float instruction, and nothing else",
    )
    group.addoption(
        "--strict-verdicts",
        action="store_true",
        help="fail for what is UNTESTED or UNVERIFIED and not waived; --strict does so too",
    )
    group.addoption(
        "--outputs",
        type=float,
        help="campaigns instead of cases: outputs of each arithmetic, made and compared on the GPU",
    )
    group.addoption(
        "--ledger", type=Path, default=Path("campaign.jsonl"), help="where campaigns note what they compared"
    )
    group.addoption("--blocks", type=int, default=1, help="blocks of a whole output that a replay computes; 0: all")
    group.addoption("--waivers", type=Path, default=waivers.FILE, help="file of waivers for --strict-verdicts")
    group.addoption("--recordings", type=Path, default=recordings.ROOT, help="folder of recordings to read or write")


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the options, or say what is wrong with them."""
    settings = _settings(config)
    if hasattr(config, "workerinput") and settings.record:
        raise pytest.UsageError("--record runs in one process: drop -n")
    hardware = Hardware() if settings.mode == "live" else None
    config.stash[SUITE] = Suite(settings, hardware, _mnemonics(_named(config.args)))
    config.stash[WAIVERS] = ()
    try:
        if _strict(config):
            config.stash[WAIVERS] = waivers.read(config.getoption("--waivers"), settings.arch)
        if settings.record:
            recordings.check_writable(settings.root / settings.arch)
        if settings.mode == "replay" and not hasattr(config, "workerinput"):
            _check_manifest(settings, _strict(config))
    except (RecordingError, WaiverError) as error:
        raise pytest.UsageError(str(error)) from error


def _strict(config: pytest.Config) -> bool:
    """Ours alone, or with all that pytest calls strict: --strict is its own option, of old a name for --strict-markers."""
    return config.getoption("--strict-verdicts") or config.getoption("strict", False) or bool(_strict_setting(config))


def _strict_setting(config: pytest.Config) -> object:
    try:
        return config.getini("strict")
    except (ValueError, KeyError):  # before pytest 9
        return False


def _check_manifest(settings: Settings, strict: bool) -> None:
    """What must be there is there, whatever was selected: a recording that is gone would only be a case less."""
    if strict and not (settings.root / manifest.SUMS).exists():
        raise RecordingError(f"--strict: no {manifest.SUMS} in {settings.root} locks what must be there")
    lines = manifest.complaints(settings.root, settings.arch)
    if lines:
        more = [f"... and {len(lines) - 10} more"] if len(lines) > 10 else []
        raise RecordingError("recordings are not those that were locked\n" + "\n".join([*lines[:10], *more]))


def _settings(config: pytest.Config) -> Settings:
    option = config.getoption
    arch, samples = option("--arch"), option("--samples")
    live = option("--live") or option("--record")
    if live and option("--replay"):
        raise pytest.UsageError("--replay excludes --live and --record: choose one")
    try:
        arch = arch_named(arch) if arch is not None else None
    except TargetError as error:
        raise pytest.UsageError(f"--arch {arch}: no such chip generation; valid: {', '.join(ARCHS)}; {error}") from None
    if samples is not None and samples < 1:
        raise pytest.UsageError(f"--samples {samples}: valid are 1 and more")
    if option("--seed") < 0:
        raise pytest.UsageError(f"--seed {option('--seed')}: valid are 0 and more")
    if option("--level") not in (1, 2):
        raise pytest.UsageError(f"--level {option('--level')}: valid are 1 and 2")
    if option("--outputs") is not None and option("--outputs") < 1:
        raise pytest.UsageError(f"--outputs {option('--outputs')}: valid are 1 and more")
    if option("--blocks") < 0:
        raise pytest.UsageError(f"--blocks {option('--blocks')}: valid are 0 (all) and more")
    available, why = (False, "") if option("--replay") else device_available()
    if live and not available:
        raise pytest.UsageError(f"--live needs a GPU and cuda-python; here: {why}; valid without one: --replay")
    found = device_info().arch if available else None
    if live and arch is not None and found != arch:
        raise pytest.UsageError(
            f"--live --arch {arch}: the GPU here is {found} ({why}); valid: --arch {found}, or --replay"
        )
    if live and found not in ARCHS:
        raise pytest.UsageError(
            f"--live: the GPU here is {found} ({why}), which is not modelled; modelled: {', '.join(ARCHS)}; valid here: --replay"
        )
    arch = arch or (found if found in ARCHS else None) or "sm_90"
    mode: Mode = "live" if live or (available and found == arch) else "replay"
    if option("--outputs") and mode != "live":
        raise pytest.UsageError(
            f"--outputs needs a GPU of {arch}; valid without one: python -m conformance.campaign verify LEDGER"
        )
    recorded, root, seed = option("--record"), option("--recordings"), option("--seed")
    return Settings(arch, mode, recorded, samples, seed, root, option("--level"), option("--blocks"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the GPU worker."""
    suite = config.stash.get(SUITE, None)
    if suite is not None and suite.hardware is not None:
        suite.hardware.close()


def pytest_report_header(config: pytest.Config) -> str:
    """One line on what this run compares."""
    suite = config.stash[SUITE]
    settings = suite.settings
    if suite.hardware is not None:
        return f"conformance: {settings.arch} live on {suite.hardware.text}"
    return f"conformance: {settings.arch} by replay of recorded hardware results (no GPU is used)"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of cases stay until the end: the garbage collector need not look at them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Enumerate the registry into tests."""
    suite = metafunc.config.stash[SUITE]
    arch = suite.settings.arch
    sources: dict[str, Callable[[], Iterable[Any]]] = {
        "case": suite.cases,
        "unproven": suite.unproven,
        "refused": suite.refused,
        "published": lambda: suite.published,
        "proof": lambda: proofs(suite) if metafunc.config.getoption("--proof") else (),
        "gemm": lambda: gemm_cases.cases(arch),
        "scaled": lambda: scaled_cases.cases(arch),
        "converted": lambda: convert_cases.cases(arch),
    }
    alone = _alone(metafunc.config)
    sources["campaign"] = (lambda: subjects(arch)) if alone == "campaign" else tuple
    if alone:
        sources = {name: found if name == alone else tuple for name, found in sources.items()}
    named = _named(metafunc.config.args)
    asked = None if named is None else named.get(metafunc.function.__name__, set())
    try:
        for name in sources.keys() & set(metafunc.fixturenames):
            items = list(sources[name]()) if asked is None or asked else []
            items = [item for item in items if asked is None or _id(item) in asked]
            metafunc.parametrize(name, items, ids=[_id(item) for item in items])
    except (RecordingError, TcsimError) as error:
        raise pytest.Collector.CollectError(str(error)) from error


def _alone(config: pytest.Config) -> str:
    """What is collected and nothing else: campaigns, or the cases of level 2; otherwise nothing."""
    if config.getoption("--outputs"):
        return "campaign"
    return "case" if config.stash[SUITE].settings.level > 1 else ""


def _named(arguments: Sequence[str]) -> dict[str, set[str]] | None:
    """The ids of each test, if the command line names nothing but single cases: thousands of others need not be listed.

    >>> _named(["conformance/test_cases.py::test_case[a-wide-0]"]), _named(["conformance/test_cases.py"])
    ({'test_case': {'a-wide-0'}}, None)
    """
    found: dict[str, set[str]] = defaultdict(set)
    for argument in arguments:
        match = re.fullmatch(r".*?::(test_\w+)\[(.*)\]", argument, re.DOTALL)
        if match is None:
            return None
        found[match[1]].add(match[2])
    return dict(found)


def _mnemonics(named: Mapping[str, set[str]] | None) -> set[str] | None:
    """Those of the cases that are named, if nothing else is.

    >>> _mnemonics({"test_case": {"a.b-wide-0"}, "test_mutants": {"c"}}) == {"a.b", "c"}
    True
    """
    if named is None or not named.keys() <= {"test_case", "test_assembles", "test_mutants"}:
        return None
    try:
        cases = {Case.parse(id).mnemonic for id in named.get("test_case", ())}
    except ValueError:  # pytest says that it is not found
        return None
    return cases.union(*(ids for test, ids in named.items() if test != "test_case"))


def _id(item: Any) -> str:
    """Of a case, a published set, a row or a mnemonic, whole: pytest would shorten what has over 100 letters."""
    return item if isinstance(item, str) else getattr(item, "id", None) or getattr(item, "name", None) or item.mnemonic


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Drop the placeholder that pytest leaves for an empty list of cases; and of level 2 all but cases, with --outputs all but campaigns."""
    alone = _alone(config)
    begins = f"test_{alone}[" if alone else ""
    items[:] = [item for item in items if not item.name.endswith("[NOTSET]") and item.name.startswith(begins)]


@pytest.fixture(scope="session")
def suite(pytestconfig: pytest.Config) -> Suite:
    """The suite under test."""
    return pytestconfig.stash[SUITE]


@pytest.fixture
def conclude(request: pytest.FixtureRequest) -> Any:
    """Give the running test its verdict."""

    def verdict(family: str, mnemonic: str, outcome: Outcome) -> None:
        request.node.user_properties.append(
            (PROPERTY, [family, mnemonic, outcome.verdict, outcome.outputs, outcome.mismatches, outcome.how])
        )
        if outcome.verdict in FAILED:
            pytest.fail(f"{outcome.verdict}: {outcome.text or outcome.how}", pytrace=False)
        if outcome.verdict not in COMPARED:
            pytest.skip(f"{outcome.verdict}: {outcome.how}")

    return verdict


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Say which case comes next. With -n, only what the closing table needs goes to the other process: a third of the messages."""
    call = getattr(nextitem, "callspec", None)
    item.config.stash[SUITE].coming = call.params.get("case") if call is not None else None
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A recording that cannot be written ends the run in one line: later cases would be lost as well."""
    try:
        return (yield)
    except Unwritable as error:
        pytest.exit(f"{error}; {item.config.stash[SUITE].saved()}", returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The summary names a failure by its first line: under CI, pytest would print the whole text a second time."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.failed and _verdict(report) is not None and crash is not None:
        crash.message = crash.message.partition("\n")[0]
    return report


def _verdict(report: Any) -> list[Any] | None:
    return next((value for key, value in getattr(report, "user_properties", ()) if key == PROPERTY), None)


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Show verdicts; what was not compared is neither passed nor skipped."""
    found = _verdict(report)
    if found is None or report.when != "call":
        return None
    verdict = found[2]
    if verdict in COMPARED:
        return "passed", "R" if verdict == "REPLAYED" else ".", verdict
    if verdict in FAILED:
        return "failed", "F", verdict
    return verdict.lower(), verdict[0].lower(), verdict


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run that compared nothing fails; so does, with --strict, one that left cases open."""
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly or config.stash.get(SUITE, None) is None:
        return
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not _proved(terminal):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if exitstatus == pytest.ExitCode.OK and _strict(config) and _unwaived(terminal, config)[0]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    _renew_manifest(config.stash[SUITE])


def _renew_manifest(suite: Suite) -> None:
    """A folder that has a manifest gets the new recordings in it."""
    root, arch = suite.settings.root, suite.settings.arch
    if suite.written and (root / manifest.SUMS).exists():
        manifest.renew(root, arch)


def _unwaived(terminal: Any, config: pytest.Config) -> tuple[list[str], list[Waiver]]:
    """Tests that --strict fails, a line each, and the waivers that cover others."""
    found = []
    for report in _reports(terminal):
        if (verdict := _verdict(report)) is not None and verdict[2] in OPEN:
            found.append((report.nodeid.partition("::")[2], verdict[2]))
    return waivers.unwaived(config.stash[WAIVERS], found, datetime.datetime.now(datetime.UTC).date())


def _proved(terminal: Any) -> bool:
    """Outputs were compared, or mutants contradicted: a test that did neither proves nothing."""
    return bool(_contradicted(terminal)) or any(found[3] for found in _all(terminal))


def _contradicted(terminal: Any) -> list[int]:
    """How many mutants each proof that passed contradicted."""
    passed = (report for report in terminal.stats.get("passed", ()) if report.when == "call")
    return [value for report in passed for key, value in report.user_properties if key == MUTANTS and value]


def _reports(terminal: Any) -> Iterator[Any]:
    for reports in terminal.stats.values():
        yield from (report for report in reports if getattr(report, "when", None) == "call")


def _all(terminal: Any) -> Iterator[list[Any]]:
    for report in _reports(terminal):
        if (found := _verdict(report)) is not None:
            yield found


def _assemblers_wanted(terminal: Any) -> Iterator[str]:
    """Which rows went without a test because the assembler here is too old for them, by what they need."""
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for _, mnemonic, verdict, _, _, how in _all(terminal):
        if verdict == "UNTESTED" and how.startswith(NEEDS):
            wanted[how][mnemonic] = None
    for how, names in sorted(wanted.items()):
        yield f"{len(names):,} instruction{'s' * (len(names) > 1)} untested: {how}:"
        yield from (f"  {name}" for name in sorted(names))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The closing table: family, variants, cases, outputs compared, mismatches, how verified."""
    suite = config.stash[SUITE]
    groups: dict[tuple[str, str, str], list[list[Any]]] = defaultdict(list)
    for found in _all(terminalreporter):
        how = found[5] if found[2] in (*COMPARED, "FAIL") else ""
        groups[found[0], found[2], how].append(found)
    terminalreporter.section(f"conformance of {suite.settings.arch}, {suite.settings.mode}")
    rows = [("family", "variants", "cases", "outputs compared", "mismatches", "how verified")]
    order: list[str] = list(VERDICTS)
    for (family, verdict, how), items in sorted(groups.items(), key=lambda kv: (kv[0][0], order.index(kv[0][1]))):
        variants = len({item[1] for item in items})
        outputs, mismatches = (sum(item[place] for item in items) for place in (3, 4))
        known = [item[1] for item in items if item[1] in catalog.rows()]  # not the driver's functions
        evidence = sorted({suite.instruction(name).evidence.level for name in known}) if verdict == "UNVERIFIED" else []
        note = f"{verdict}: {how}" if how else verdict + (f", evidence {', '.join(evidence)}" if evidence else "")
        rows.append((family, f"{variants:,}", f"{len(items):,}", f"{outputs:,}", f"{mismatches:,}", note))
    widths = [max(len(row[place]) for row in rows) for place in range(5)]
    for row in rows:
        numbers = "  ".join(text.rjust(width) for text, width in zip(row[1:5], widths[1:], strict=True))
        terminalreporter.write_line(f"{row[0].ljust(widths[0])}  {numbers}  {row[5]}")
    for line in _assemblers_wanted(terminalreporter):
        terminalreporter.write_line(line, yellow=True)
    if contradicted := _contradicted(terminalreporter):
        terminalreporter.write_line(
            f"mutants: {len(contradicted):,} instructions, {sum(contradicted):,} mutants contradicted by recorded results"
        )
    if not _proved(terminalreporter):
        terminalreporter.write_line("nothing was compared: this run proves nothing and fails", red=True)
    if _strict(config):
        _write_strict(terminalreporter, config)
    if suite.written:
        terminalreporter.write_line(f"recorded {len(suite.written)} instructions in {suite.written[0].parent}")


def _write_strict(terminal: Any, config: pytest.Config) -> None:
    lines, used = _unwaived(terminal, config)
    for line in lines[:20]:
        terminal.write_line(f"--strict: {line}", red=True)
    if len(lines) > 20:
        terminal.write_line(f"--strict: ... and {len(lines) - 20} more", red=True)
    for item in used:
        until = f", until {item.expires}" if item.expires else ""
        terminal.write_line(f"waived ({item.kind}{until}): {item.pattern}: {item.reason}")
