"""The long ones: a million records at once, a thousand forks while everything is busy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch.catalog import Scope
from overwatch.events import Measured, RunFinished
from tests.e2e.sdk.test_interpreter import FORKS, lines, run_program
from tests.overwatch.sdk.sink import Sink, http_sink

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
MOST_RSS_KB = 64 << 10


@pytest.fixture
def sink() -> Iterator[Sink]:
    """A collector over HTTP."""
    with http_sink() as sink:
        yield sink


def test_a_million_updates_without_a_pause(sink: Sink, tmp_path: Path) -> None:
    """Each one counts, the one breach among them too, and the trainer does not grow."""
    stated = run_program(
        tmp_path,
        """
        import resource, time, overwatch.sdk
        run = overwatch.sdk.start(endpoint=ENDPOINT, sample=False)
        assert run.flush(20.0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.monotonic()
        for step in range(1_000_000):
            run.update(update=step, kl_divergence=0.2 if step == 777_777 else 0.001, entropy=0.5)
        took_s = time.monotonic() - began
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        report = run.close(60.0)
        assert report.delivered, report
        assert report.accepted == 1_000_001, report
        print(f"{took_s:.1f} {grown_kb}")
        """,
        sink.endpoint,
        limit_s=300.0,
    )
    took_s, grown_kb = stated.split()
    print(f"a million updates in {took_s} s, {int(grown_kb) / 1024:.1f} MiB more")
    updates = [event for event in sink.events(Measured) if event.scope is Scope.POLICY]
    assert sum(event.conflated.n if event.conflated else 1 for event in updates) == 1_000_000
    assert sum(sum(event.conflated.criticals.values()) for event in updates if event.conflated) == 1
    assert int(grown_kb) <= MOST_RSS_KB


def test_a_thousand_forks_while_everything_is_busy(sink: Sink, tmp_path: Path) -> None:
    """No child hangs, none sends, the parent loses nothing."""
    stated = run_program(tmp_path, FORKS.format(forks=1000), sink.endpoint, limit_s=300.0)
    expected = {
        f"{place}:{n}" for place, count in enumerate(stated.split()) for n in range(1, int(count) + 1)
    }
    assert sorted(lines(sink)) == sorted(expected)
    assert len(sink.events(RunFinished)) == 1
