"""Which tests are slow: those that start a process, and those that need much CPU; kept in `slow.txt`.

A slow test has the mark `slow`, which `make quick` leaves out. A test without the mark that starts a process
fails: that needs no clock. What needs CPU is measured by `make slow`, which writes the table anew. Children
count once they are waited for. A fixture of a wider scope counts for all tests that use it or for none: the
order decides which one makes it.
"""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

TABLE: Final = Path(__file__).parent / "slow.txt"
FOLDERS: Final = ("tests/e2e/", "tests/overwatch/web/", "tests/real/")
"""Whole programs run here, a browser too, whatever a test measures."""
CONTRACTS: Final = "tests/contracts/"
"""Worth their CPU in the inner loop, but no process."""
SERVICE: Final = "tests.overwatch.collector.running"
"""A module that takes `running` from here is slow: it runs a collector."""
CPU_S: Final = 0.3
"""What a test function may take with all its parameters."""
FIXTURE_S: Final = 2.0
"""What a fixture of a wider scope may take."""
STARTS: Final = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"))
RECORD: Final = "OVERWATCH_RECORD_SLOW"
HEAD: Final = f"""\
# Tests that `make quick` leaves out, beside {", ".join(FOLDERS)}:
# those that start a process, and those that need {CPU_S} s of CPU. `make slow` measures them anew;
# a line may be added by hand.
"""


def table() -> dict[str, str]:
    """Modules and test functions that are slow, each with its reason."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    return dict(line.rsplit(maxsplit=1) for line in lines if line and not line.startswith("#"))


def function(nodeid: str) -> str:
    """A test without its parameters."""
    return nodeid.split("[", 1)[0]


def rows(costs: dict[str, float], starters: Iterable[str]) -> dict[str, str]:
    """The table of what was measured; a module that is slow as a whole has one row."""
    costly = [name for name, cost in costs.items() if cost >= CPU_S and not name.startswith(CONTRACTS)]
    why = dict.fromkeys(costly, "cpu") | dict.fromkeys(starters, "process")
    modules = defaultdict(list)
    for name in costs:
        modules[name.split("::", 1)[0]].append(name)
    found = {}
    for module, names in modules.items():
        slow = {name: why[name] for name in names if name in why}
        whole = {module: max(slow.values(), default="")} if len(slow) == len(names) else slow
        found |= {} if module.startswith(FOLDERS) else whole
    return found


_started: list[str] = []
"""Processes that the current test started."""
_starters: set[pytest.FixtureDef[Any]] = set()
_costly: set[pytest.FixtureDef[Any]] = set()
_begun, _shared = 0.0, 0.0
_costs: defaultdict[str, float] = defaultdict(float)
_slow: set[str] = set()


def _watch(event: str, words: tuple[object, ...]) -> None:
    # What a background thread of the product starts comes when it likes, also in a later test. At the very
    # end of a process no name of a module is left.
    if STARTS is not None and event in STARTS and threading.current_thread() is threading.main_thread():
        _started.append(f"{event} {words[:2]}" if words else event)


sys.addaudithook(_watch)


def _cpu_s() -> float:
    return sum(os.times()[:4])


def _serves(item: pytest.Item) -> bool:
    """Whether a test's module runs a whole collector, which has processes of its own."""
    run: object = getattr(getattr(item, "module", None), "running", None)
    return getattr(run, "__module__", None) == SERVICE


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the table and the folders name."""
    known = table()
    for item in items:
        name = function(item.nodeid)
        if name.startswith(FOLDERS) or name in known or name.split("::", 1)[0] in known or _serves(item):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Begin to measure."""
    global _begun, _shared
    _started.clear()
    _begun, _shared = _cpu_s(), 0.0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Every test that uses a fixture which starts a process is slow, though only the first one starts it."""
    global _shared  # noqa: PLW0603
    count, before = len(_started), _cpu_s()
    try:
        return (yield)
    finally:
        if len(_started) > count:
            _starters.add(fixturedef)
        if fixturedef.scope != "function":
            cost = _cpu_s() - before
            _shared += cost
            if cost >= FIXTURE_S:
                _costly.add(fixturedef)


def _uses(item: pytest.Item, some: set[pytest.FixtureDef[Any]]) -> bool:
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
    return any(some.intersection(definitions) for definitions in fixtures)


def _starts(item: pytest.Item) -> bool:
    return bool(_started) or _uses(item, _starters)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """A test that is not marked starts no process."""
    yield
    marked = item.get_closest_marker("slow") or item.get_closest_marker("long")
    if _starts(item) and not marked and RECORD not in os.environ:
        what = _started[0] if _started else "in a fixture"
        row = f"{function(item.nodeid)} process"
        pytest.fail(
            f"not marked slow, and starts a process: {what}; add to tests/{TABLE.name}: {row}", pytrace=False
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send what was measured with the last report, which xdist brings to where the table is written."""
    report = yield
    if call.when == "teardown" and RECORD in os.environ:
        cost = _cpu_s() - _begun - _shared + CPU_S * _uses(item, _costly)
        report.user_properties.append(("slow", (cost, _starts(item))))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what a test function needed."""
    for cost, starts in (value for name, value in report.user_properties if name == "slow"):
        _costs[function(report.nodeid)] += float(cost)
        if starts:
            _slow.add(function(report.nodeid))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table, once, where all reports come together."""
    if RECORD in os.environ and not hasattr(session.config, "workerinput"):
        measured = {name.split("::", 1)[0] for name in _costs}
        kept = {name: why for name, why in table().items() if name.split("::", 1)[0] not in measured}
        found = dict(sorted((kept | rows(_costs, _slow)).items()))
        TABLE.write_text(HEAD + "".join(f"{name} {why}\n" for name, why in found.items()), encoding="utf-8")
