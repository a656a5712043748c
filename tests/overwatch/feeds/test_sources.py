"""A spool is read where it lies: what a trainer keeps while its collector is away is shown as it is."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from overwatch import codec
from overwatch.events import Event
from overwatch.feeds.inputs import open_input
from overwatch.journal import Signal
from overwatch.otlp.encode import origin_attributes, request
from overwatch.sdk.exporter.spool import Spool, SpoolLimits
from overwatch.snapshot import Snapshot
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.simulate.runs import overwatch

UPDATES = 12


def _requests(run_id: str) -> Iterator[tuple[bytes, bool, int]]:
    """A run's requests with whether they are facts and how many records they have."""
    told: list[Event] = [fakes.started(START_NS)]
    told += [fakes.policy(START_NS + n * SECOND, n, kl_divergence=0.01) for n in range(1, UPDATES + 1)]
    told.insert(6, fakes.non_finite(START_NS + 5 * SECOND, "policy_loss"))
    told += [fakes.finished(START_NS + (UPDATES + 1) * SECOND)]
    origin = fakes.Origin(run_id=run_id, epoch="e1")
    for seq, event in enumerate(told, 1):
        body = request(fakes.records([event], origin, seq), origin_attributes(origin))
        yield body, seq in (1, 7, len(told)), 1


def _filled(folder: Path, run_id: str = "away", limits: SpoolLimits | None = None) -> Spool:
    """A spool into which a request came each second."""
    spool = Spool(folder, limits)
    with pytest.MonkeyPatch.context() as patched:
        for seq, (body, is_fact, records) in enumerate(_requests(run_id), 1):
            patched.setattr(time, "time_ns", lambda now=START_NS + seq * SECOND: now)
            spool.put(Signal.LOGS, body, is_fact=is_fact, records=records, last_seq=seq, rings={})
    return spool


def _last(path: Path) -> dict[str, Snapshot]:
    return {snapshot.run.run_id: snapshot for snapshot in open_input(path).recorded()}


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("segment", [4 << 20, 2048], ids=["one file", "many files"])
def test_facts_and_numbers_are_read_in_the_order_in_which_they_were_put(tmp_path: Path, segment: int) -> None:
    """Of a spool that a trainer still holds, in files of any size; nothing of it is changed."""
    spool = _filled(tmp_path / "spool", limits=SpoolLimits(segment_bytes=segment))
    before = _bytes(tmp_path)
    last = _last(tmp_path / "spool")["away"]

    assert last.counters["updates"] == UPDATES
    assert last.run.outcome == "completed"
    assert "non-finite" in {one.code for one in last.findings}
    assert _bytes(tmp_path) == before
    assert spool.books.waiting == UPDATES + 3
    spool.close()


def test_a_folder_of_spools_is_all_its_runs(tmp_path: Path) -> None:
    """As `overwatch sync` names it; a file of a spool means its spool."""
    for name in ("first", "second"):
        _filled(tmp_path / name, name).close()
    (segment,) = (tmp_path / "first").glob("numbers-*.ow1")

    assert set(_last(tmp_path)) == {"first", "second"}
    assert set(_last(segment)) == {"first"}


def test_a_damaged_request_costs_itself(tmp_path: Path) -> None:
    """What lies before and after it is read; so is all before a torn end."""
    _filled(tmp_path / "spool").close()
    (segment,) = (tmp_path / "spool").glob("numbers-*.ow1")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data[:-3])

    assert _last(tmp_path / "spool")["away"].counters["updates"] == UPDATES - 2


def test_the_same_spool_gives_the_same_frames(tmp_path: Path) -> None:
    """To the byte."""
    _filled(tmp_path / "spool").close()
    first, second = (
        [codec.encode(one) for one in open_input(tmp_path / "spool").recorded()] for _ in range(2)
    )

    assert first == second != []


def test_commands_read_it_with_no_collector_and_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report, a query and a frame of the terminal, named as a path."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    _filled(tmp_path / "spool").close()
    out = tmp_path / "report.html"

    assert overwatch("report", tmp_path / "spool", "-o", out).exit_code == 0
    assert "Non-finite values" in out.read_text()
    rows = overwatch("query", tmp_path / "spool", "what=finding", "--format", "json").stdout.splitlines()
    assert "non-finite" in {json.loads(row)["kind"] for row in rows}
    frame = overwatch("tui", tmp_path / "spool", "--once", "--format", "json")
    assert json.loads(frame.stdout)["run"]["run_id"] == "away"


def test_a_spool_of_a_newer_version_is_named(tmp_path: Path) -> None:
    """With its file, and nothing of it is guessed."""
    _filled(tmp_path / "spool").close()
    (segment,) = (tmp_path / "spool").glob("numbers-*.ow1")
    segment.rename(segment.with_suffix(".ow9"))
    result = overwatch("report", tmp_path / "spool", "-o", "-")

    assert result.exit_code == 2
    assert "newer version" in result.stderr
