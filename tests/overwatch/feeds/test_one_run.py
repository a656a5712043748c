"""One run of a recording of many: read from the nearest place before it, and the same as from the whole."""

import io
import shutil
from collections.abc import Sequence
from contextlib import redirect_stdout
from copy import copy
from pathlib import Path

import msgspec
import pytest
from overwatch.feeds.lasting import VARIABLE
from overwatch.recordings.plan import Rules

from overwatch.aggregator import Checkpoint
from overwatch.analyse.export import TABLES, export
from overwatch.analyse.story import Story
from overwatch.events import Event, Origin, Record
from overwatch.feeds.recording import Recording
from overwatch.fold import SLOW_NS, LifeStarted
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.recordings import checkpoints as module
from overwatch.recordings.checkpoints import FOLDER, Leaving, left_in
from overwatch.runs import Room
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.analyse.reading import every as stories_of
from tests.overwatch.recordings.folders import Recorder

EVERY_NS = 5 * SLOW_NS
LIVES = {"again": (0, 3), "b": (1, 24), "short": (11.5, 12.5), "d": (13, 21), "e": (22, 38), "last": (36, 40)}
"""From which second to which; `short` makes room for `d` between two checkpoints: there are two at most."""
AGAIN_S = 37.0
"""At which the run `again`, evicted long ago, goes on."""
RESTARTS = {17.0: 16.5, 30.0: None}
"""Second at which a life begins, and that after which it goes on; `None`: with nothing."""
END_S = 40


class Several(Recorder):
    """A recording of several runs."""

    def emit(self, run_id: str, second: float, events: Sequence[Event]) -> None:
        """One batch of a run."""
        origin = Origin(run_id=run_id, epoch=f"epoch-{run_id}", ours=True)
        records = [Record(origin=origin, event=one, seq=self._seq + i) for i, one in enumerate(events)]
        self._seq += len(events)
        self.write(second, Signal.LOGS, request(records, {}))

    def start(self, second: float, after: float | None) -> None:
        """A life of a collector that holds two runs."""
        self.sequence += 1
        tick = None if after is None else START_NS + round(after * SECOND)
        life = LifeStarted(version="1", pid=1, config_digest="", after=tick, room=Room(runs=2))
        stamp = START_NS + round(second * SECOND) + 1
        body = msgspec.json.encode(life)
        self.writer.start(Batch(sequence=self.sequence, stamp=stamp, signal=Signal.START, body=body))
        self.newest = stamp

    def step(self, run_id: str, second: float, first: float, last: float) -> None:
        """What a run emits in half a second."""
        at, index = START_NS + round(second * SECOND), round((second - first) * 2)
        events: list[Event] = [] if index else [fakes.started(at)]
        kl = 0.01 + (index % 7) / 1000 if index % 20 < 15 else 0.4
        events += [fakes.policy(at, index, kl_divergence=kl), fakes.envs(at, [0, 1], index, reward=[kl, 1.0])]
        if index % 12 == 7:
            events.append(fakes.crashed(at, 1))
        if second + 0.5 >= last:
            events.append(fakes.finished(at))
        self.emit(run_id, second, events)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier replay left is not what is tried here."""
    monkeypatch.setenv(VARIABLE, "off")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Several:
    """Runs that come and go over three lives of a collector, in pieces, with what it leaves."""
    folder = tmp_path_factory.mktemp("recorded")
    recorder = Several(folder, Rules(thins=False))
    recorder.start(0, None)
    for half in range(END_S * 2):
        second = half / 2
        if second in RESTARTS:
            recorder.start(second, RESTARTS[second])
        for run_id, (first, last) in LIVES.items():
            if first <= second < last:
                recorder.step(run_id, second, first, last)
        if AGAIN_S <= second < AGAIN_S + 2:
            recorder.step("again", second, AGAIN_S, AGAIN_S + 2)
        if second % 5 == 4:
            recorder.writer.rotate()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EVERY_NS", EVERY_NS)
        leave(folder)
    return recorder


@pytest.fixture
def recorder(recorded: Several, tmp_path: Path) -> Several:
    """The same, for one test."""
    shutil.copytree(recorded.folder, tmp_path, dirs_exist_ok=True)
    mine = copy(recorded)
    mine.folder = tmp_path
    return mine


def leave(folder: Path) -> None:
    """Leave the checkpoints that a collector would."""
    leaving, position = Leaving(folder, 1 << 40), 1
    recording = Recording(folder)
    for fold, tick, batches in recording.ticks():
        fold.take(tick, batches, recording.notes.hushed(tick))
        position = max([position, *(batch.sequence + 1 for batch in batches)])
        leaving.take(Checkpoint(tick=tick, position=position, batches=fold.tower.batches,
                                ticks=fold.tower.ticks, fold=fold.dump()))  # fmt: skip
    assert len(left_in(folder)) >= 7


def exported(story: Story) -> list[str]:
    """Every table of a run, and its OpenMetrics."""
    printed = []
    for table in TABLES:
        with redirect_stdout(io.StringIO()) as out:
            export(story, "csv", Path("-"), table)
        printed.append(out.getvalue())
    with redirect_stdout(io.StringIO()) as out:
        export(story, "openmetrics", Path("-"))
    return [*printed, out.getvalue()]


def check(folder: Path) -> dict[str, int]:
    """Each run alone is as it is among all; returns how many ticks were folded for it."""
    every = stories_of(folder)
    for run_id, story in every.items():
        alone = stories_of(folder, run_id)
        assert list(alone) == [run_id]
        assert exported(alone[run_id]) == exported(story), run_id
    assert every
    return {run_id: sum(1 for _ in Recording(folder).ticks(run_id)) for run_id in every}


def test_a_run_of_many_is_read_from_the_checkpoint_before_it(recorder: Several) -> None:
    """Over rotation, restarts and eviction, in a packed recording: the same bytes of much less."""
    recorder.tidy()
    folded = check(recorder.folder)
    whole = sum(1 for _ in Recording(recorder.folder).ticks())

    assert set(folded) == set(LIVES)
    assert folded["again"] == whole
    assert folded["short"] < whole * 0.8
    assert folded["e"] < whole * 0.6
    assert folded["last"] < whole * 0.2


def test_what_is_not_packed_is_looked_through(recorder: Several) -> None:
    """Its index does not name runs, and its lines do."""
    folded = check(recorder.folder)
    assert folded["last"] < folded["again"] * 0.2


def test_a_run_of_a_thinned_recording_is_the_same_too(recorder: Several) -> None:
    """Where a replay goes on from what the collector left, with numbers or batches gone."""
    thinning = Rules(whole_minutes=0.1, second_hours=0.1, piece_mib=1e-4)
    recorder.tidy(now=recorder.newest + 3600 * SECOND, rules=thinning)
    folded = check(recorder.folder)
    assert folded["last"] < folded["again"] * 0.3
    recorder.tidy(rules=msgspec.structs.replace(thinning, max_days=20 / 86_400))
    assert "last" in check(recorder.folder)
    opened = Recording(recorder.folder)
    opened.segments()
    assert opened.notes.gone


@pytest.mark.parametrize("change", ["none", "damaged"])
def test_without_checkpoints_that_can_be_read_the_life_is_folded(recorder: Several, change: str) -> None:
    """The last run is in the last life, which began with nothing."""
    recorder.tidy()
    for path in (recorder.folder / FOLDER).iterdir():
        if change == "none":
            path.unlink()
        else:
            path.write_bytes(b"damaged")
    folded = check(recorder.folder)
    assert folded["last"] < folded["again"] * 0.3
    assert folded["e"] == folded["again"]


def test_a_run_that_is_not_there_is_looked_for_everywhere(recorder: Several) -> None:
    """So that those that are there can be named."""
    recorder.tidy()
    assert set(stories_of(recorder.folder, "nope")) == set(LIVES)
