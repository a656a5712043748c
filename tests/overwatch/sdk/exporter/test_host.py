"""The busiest processes of a host: from the look of a sampler to the line of facts and the state."""

from types import SimpleNamespace

import psutil
import pytest

from overwatch.catalog.processes import BUSIEST, SUBSYSTEM, Busy, fields_of, read_fields
from overwatch.events import LogLine, Severity
from overwatch.sdk.exporter.host import Processes
from overwatch.state.feed import entry_of
from overwatch.state.machines import Gauge, note_processes, processes


class _Process:
    def __init__(self, pid: int, used: list[float], *, gone: bool = False) -> None:
        self.pid, self._used, self._gone = pid, used, gone

    def cpu_times(self) -> SimpleNamespace:
        if self._gone:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(user=self._used.pop(0), system=0.0)

    def name(self) -> str:
        return f"worker {self.pid}"

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=self.pid * 1000)


def _line(at: int, *busy: Busy) -> LogLine:
    return LogLine(
        at=at, severity=Severity.INFO, subsystem=SUBSYSTEM, message="busiest", fields=fields_of(busy)
    )  # fmt: skip


def test_the_busiest_are_listed_by_what_they_took_since_the_last_look() -> None:
    """Five, the worst first; one that is gone, idle or new takes none of the others with it."""
    running = [_Process(pid, [10.0, 10.0 + pid]) for pid in range(1, 8)]
    running += [_Process(90, [5.0, 5.0]), _Process(91, [0.0], gone=True)]
    times = iter((100.0, 110.0))
    look = Processes(lambda: iter(running), lambda: next(times))

    assert look.read() == ()
    found = look.read()
    assert [one.pid for one in found] == [7, 6, 5, 4, 3]
    assert found[0] == Busy(7, "worker 7", pytest.approx(0.7), 7000.0)
    assert len(found) == BUSIEST


def test_this_host_can_be_looked_at() -> None:
    """Without a fake: nothing raises, and all that comes has a name."""
    look = Processes()
    look.read()

    assert all(one.name and one.ram_bytes >= 0 for one in look.read())


def test_a_line_has_all_of_a_process() -> None:
    """Names with blanks too; a long one is cut."""
    busy = (Busy(42, "python 3 train", 3.98, 4e9), Busy(43, "n" * 100, 0.5, 1e6))

    assert read_fields(fields_of(busy)) == (busy[0], Busy(43, "n" * 64, 0.5, 1e6))


@pytest.mark.parametrize(
    "text", ["", "1 2 3", "x 1 1 a", "-1 1 1 a", "1 nan 1 a", "1 1 inf a", "1 -1 1 a", "99999999999 1 1 a"]
)
def test_what_cannot_be_read_takes_no_other_process_with_it(text: str) -> None:
    """A field of another program's line, or one that is cut."""
    assert read_fields({"1": text, "2": "7 0.5 1000 ok"}) == (Busy(7, "ok", 0.5, 1000.0),)


def test_the_newest_line_takes_the_place_of_the_one_before() -> None:
    """A line that comes late changes nothing; other readings stay; the feed has none of these lines."""
    readings = {"cpu_utilization": Gauge(value=0.5, at=1, stamp=1)}
    note_processes(readings, _line(10, Busy(1, "a", 0.5, 1.0), Busy(2, "b", 2.0, 2.0)), 10)
    note_processes(readings, _line(5, Busy(9, "late", 9.0, 9.0)), 11)
    assert [one.name for one, _ in processes(readings)] == ["b", "a"]
    note_processes(readings, _line(20, Busy(3, "c d", 1.0, 3.0)), 20)

    assert [one for one, _ in processes(readings)] == [Busy(3, "c d", 1.0, 3.0)]
    assert readings["cpu_utilization"].value == 0.5
    assert entry_of(_line(20, Busy(3, "c", 1.0, 3.0))) is None
