"""What a collector process leaves is what a replay comes to by itself: kills, restarts, rotation, age."""

import os
import shutil
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
import zstandard

from overwatch import codec
from overwatch.cli.viewclient import fetch_snapshot
from overwatch.discovery import Endpoints
from overwatch.events import Event, Origin, Record
from overwatch.feeds.checkpoints import VARIABLE
from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.fold import FAST_NS, SLOW_NS
from overwatch.otlp.encode import request
from overwatch.recordings.checkpoints import FOLDER, left_in, read_left
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.e2e.collecting import until
from tests.e2e.fast_collector import EVERY_NS, SPEED, its_time
from tests.overwatch.collector.running import http

RUNS = ("run-a", "run-b")
ROTATING = (
    "exporters.otlp_file.rotation.max_megabytes=1",
    "exporters.otlp_file.budget.run_mib=8",
    "exporters.otlp_file.rotation.max_minutes=0.2",
)
WHOLE = (*ROTATING, "exporters.otlp_file.thinning.enabled=false")
MOST_NS = 900 * SLOW_NS
"""The collector's time within which something is thinned."""
LIVES = 3
GONE_ENV = 7
"""Crashes and reports no more, so that its finding stays open."""
THINNING = (*ROTATING, "exporters.otlp_file.thinning.whole_minutes=0.1")


class Reported:
    """A run that emits to whatever collector there is, in that one's time."""

    def __init__(self, run_id: str, began: int, speed: int = SPEED) -> None:
        self.run_id = run_id
        self.speed = speed
        self.began = began
        self.updates = 0
        self._seq = 1

    @property
    def now(self) -> int:
        """The collector's time."""
        return its_time(self.began, self.speed)

    def emit(self, endpoints: Endpoints, *events: Event) -> None:
        """One request."""
        origin = Origin(run_id=self.run_id, epoch=f"epoch-{self.run_id}", ours=True)
        records = [Record(origin=origin, event=event, seq=self._seq + i) for i, event in enumerate(events)]
        self._seq += len(events)
        self.deliver(endpoints, request(records, {}))

    def deliver(self, endpoints: Endpoints, body: bytes) -> None:
        """Send a request, which must be accepted at once."""
        url, kind = f"{endpoints.otlp_http}/v1/logs", "application/x-protobuf"
        assert http(url, body, "POST", content_type=kind).status == 200

    def train(self, endpoints: Endpoints, seconds: float, kl: float = 0.01) -> None:
        """Updates and env steps for so many of the collector's seconds."""
        until_ns = self.now + round(seconds * SLOW_NS)
        while (at := self.now) < until_ns:
            self.updates += 1
            envs = fakes.envs(at, [0, 1], self.updates, reward=[1.0, kl], step_time=[0.1, 0.1])
            self.emit(endpoints, fakes.policy(at, self.updates, kl_divergence=kl, entropy=0.5), envs)
            time.sleep(0.02)


@contextmanager
def living(
    folder: Path,
    began: int,
    *sets: str,
    killed: bool = False,
    every: int | None = EVERY_NS,
    speed: int = SPEED,
) -> Iterator[Endpoints]:
    """One life of a collector process; `every` is its time between two checkpoints, or as shipped."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    script = Path(__file__).parent / "fast_collector.py"
    environment = {
        **os.environ, "OVERWATCH_READY_FILE": str(ready), "XDG_RUNTIME_DIR": str(folder),
        "PYTHONPATH": str(script.parents[2]),
    }  # fmt: skip
    command = [sys.executable, str(script), str(folder), str(began), str(every or 0), str(speed), *sets]
    with (
        (folder / "collector.log").open("ab") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
        ) as process,
    ):
        try:
            until(lambda: ready.is_file() or process.poll() is not None, "the collector")
            assert process.poll() is None, (folder / "collector.log").read_text()
            yield msgspec.json.decode(ready.read_bytes(), type=Endpoints)
            if killed:
                process.kill()
            elif process.stdin is not None:
                process.stdin.close()
            code = process.wait(60)
        finally:
            process.kill()
    assert code == (-9 if killed else 0), (folder / "collector.log").read_text()


def acknowledge(endpoints: Endpoints, run_id: str) -> None:
    """Acknowledge whatever is found first; one that has cleared since is followed by another."""
    assert endpoints.view is not None
    view = endpoints.view.replace("ws", "http", 1)
    control = None if endpoints.tokens is None else endpoints.tokens.control
    headers = {} if control is None else {"authorization": f"Bearer {control}"}

    def acknowledged() -> bool:
        for finding in fetch_snapshot(str(endpoints.view), run_id).findings[:1]:
            url = f"{view}/api/v1/findings/{quote(finding.id, safe='')}/ack?run={run_id}"
            return http(url, b"", "POST", **headers).status == 200
        return False

    until(acknowledged, "a finding that is open to be acknowledged")


def lives(folder: Path, *sets: str, thins: bool = False) -> None:
    """Three lives of a collector with two runs: killed, stopped under another preset, stopped.

    Where the recording `thins`, the last life goes on until it did: a process of its own does that.
    """
    began = time.time_ns()
    first, second = Reported("run-a", began), Reported("run-b", began)
    with living(folder, began, *sets, killed=True) as endpoints:
        first.emit(endpoints, fakes.started(first.now))
        first.train(endpoints, 20)
        first.emit(endpoints, fakes.crashed(first.now, GONE_ENV))
        first.train(endpoints, 10)
        acknowledge(endpoints, "run-a")
        first.train(endpoints, 10)
    with living(folder, began, *sets, "exporters.aggregator.preset=esper") as endpoints:
        second.emit(endpoints, fakes.started(second.now))
        first.train(endpoints, 10, kl=0.4)
        second.train(endpoints, 15)
        first.emit(endpoints, fakes.finished(first.now))
        second.train(endpoints, 10)
    with living(folder, began, *sets) as endpoints:
        time.sleep(0.5)
        second.train(endpoints, 20)
        while thins and not is_thinned(folder / "otlp"):
            assert second.now < began + MOST_NS, "nothing was thinned"
            second.train(endpoints, 5)


def is_thinned(recorded: Path) -> bool:
    """Whether numbers of a recording grew fewer."""
    recording = Recording(recorded)
    recording.segments()
    return bool(recording.notes.thinned)


def encoded(shown: Iterable[Snapshot | None]) -> list[bytes]:
    """What is shown of runs, those left out that are not there."""
    return [codec.encode(snapshot) for snapshot in shown if snapshot is not None]


def straight(recording: Recording) -> Iterator[tuple[int, list[bytes], Callable[[], bytes]]]:
    """Each tick of a replay that passes all of them: what it shows of each run, and how to dump its fold."""
    for fold, tick, batches in recording.ticks():
        fold.advance(tick, batches, (), recording.notes.muted(tick))
        yield tick, encoded(fold.look((run_id, View()) for run_id in RUNS).values()), fold.dump


def sought(folder: Path, tick: int) -> tuple[list[bytes], int]:
    """What a replay that begins with it shows at a tick, and how many it folded for that."""
    player = Player(Recording(folder))
    before = player.folded
    player.seek(tick)
    return encoded(player.look(run_id, View()) for run_id in RUNS), player.folded - before


def without_tower(fold: bytes) -> dict[str, object]:
    """A dump but for the counts, among which a replay leaves out start records that change nothing."""
    parts = zstandard.ZstdDecompressor().stream_reader(fold).read()
    length = int.from_bytes(parts[:4], "little")
    dumped: dict[str, object] = msgspec.msgpack.decode(parts[4 : 4 + length])
    del dumped["tower"]
    return dumped | {"runs": parts[4 + length :]}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier replay left is not what is tried here."""
    monkeypatch.setenv(VARIABLE, "off")


def test_what_a_collector_left_is_what_a_replay_comes_to(tmp_path: Path) -> None:
    """Each is the fold of a straight replay; a seek costs by the distance to the nearest of them."""
    lives(tmp_path, *WHOLE)
    recorded, plain = tmp_path / "otlp", tmp_path / "plain"
    shutil.copytree(recorded, plain)
    shutil.rmtree(plain / FOLDER)
    assert list(recorded.glob("index-*.jsonl.zst"))
    lefts = left_in(recorded)
    assert len(lefts) >= 12

    shown = dict[int, list[bytes]]()
    by_tick = {left.tick: left for left in lefts}
    for tick, seen, dump in straight(Recording(plain)):
        shown[tick] = seen
        if tick in by_tick:
            kept = read_left(recorded, by_tick[tick])
            assert kept is not None
            assert without_tower(kept) == without_tower(dump())

    # A clock that is so fast makes gaps, of which no tick is taken, where this machine has other work.
    ticks = sorted(shown)
    after = [ticks[place] for tick in by_tick if (place := bisect_right(ticks, tick)) < len(ticks)]
    assert len(after) >= len(lefts) - LIVES  # nothing may come after the last of each life
    for tick in [*ticks[::23], *after]:
        seen, folded = sought(recorded, tick)
        assert seen == shown[tick]
        nearest = max((at for at in by_tick if at < tick), default=min(shown))
        assert folded <= (tick - nearest) // FAST_NS + 1
    live = (tmp_path / "snapshots.jsonl").read_bytes().splitlines()
    assert [codec.encode(one) for one in Recording(recorded).recorded()][-20:] == live[-20:]


def test_a_thinned_recording_shows_at_a_tick_the_same_however_it_was_reached(tmp_path: Path) -> None:
    """By a straight replay and by a seek, which costs by the distance to the nearest that was left."""
    lives(tmp_path, *THINNING, thins=True)
    recorded = tmp_path / "otlp"
    recording = Recording(recorded)
    shown = {tick: seen for tick, seen, _ in straight(recording)}
    assert recording.notes.thinned
    lefts = [left.tick for left in left_in(recorded)]
    assert max(shown) - min(shown) > 10 * EVERY_NS

    for tick in [*sorted(shown)[::23], *(at + FAST_NS for at in lefts if at + FAST_NS in shown)]:
        seen, folded = sought(recorded, tick)
        assert seen == shown[tick]
        nearest = max((at for at in lefts if at < tick), default=min(shown))
        assert folded <= (tick - nearest) // FAST_NS + 1
