"""When a checkpoint is due, and what happens when it cannot be written."""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import torch

from overwatch.catalog.phases import is_pause
from overwatch.events import CheckpointSaved, LogLine
from overwatch.objects.retrying import Patience
from overwatch.objects.store import open_store
from overwatch_rl.algorithms.common import Plan
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.checkpoints.manager import Manager
from overwatch_rl.checkpoints.reading import find_checkpoint
from overwatch_rl.checkpoints.store import Retention, Saving, claim
from overwatch_rl.checkpoints.writer import Written
from overwatch_rl.training.keeper import EARLY_S, Cadence, CheckpointError, Keeper, Kept, position_of
from overwatch_rl.training.trainer import Position
from tests.overwatch_rl.kept import Kept as Seen
from tests.overwatch_rl.servers import FaultProxy, s3_url

LONG_S = 60.0
SOON = Patience(deadline_s=0.5, request_s=10.0, first_s=0.01, most_s=0.05)


class Policy:
    """An algorithm, as far as a checkpoint goes."""

    plan = Plan()


class Training:
    """A training that does nothing but count; its policy is the number of its updates."""

    def __init__(self) -> None:
        self.algorithm = Policy()
        self.updates_done = 0
        self.after_update = lambda: None
        self.skipped: int | None = None
        """Versions that were published and are in no checkpoint; `None` of a training without versions."""

    def position(self) -> Position:
        """Where it is, with a value function of its own."""
        value = torch.full((3,), float(self.updates_done))
        algorithm = {"policy.w": value, "value.w": value + 1, "optimizer.w": value + 2, "scale": value + 3}
        return Position(
            updates=self.updates_done, steps=self.updates_done * 8, score=None, own={}, algorithm=algorithm,
            world={},
            version=None if self.skipped is None else Version(3, self.updates_done + self.skipped),
            cursor=None if self.skipped is None else {"lease": self.updates_done},
        )  # fmt: skip

    def update(self) -> None:
        """One more."""
        self.updates_done += 1
        self.after_update()


class Flight:
    """A training with its keeper."""

    def __init__(self, place: Path | str, every: int | Cadence) -> None:
        self.training = Training()
        self.seen = Seen()
        self.manager = Manager(place, Retention(keep=9), Saving(patience=SOON))
        run = Kept(run_id="r", config={}, config_hash="c")
        self.keeper = Keeper(self.training, self.manager, run, self.seen, every=every, has_world=False)
        self.written: list[Written] = []
        self.stalls: list[str | None] = []
        self.keeper.on_written = self.written.append
        self.keeper.on_stalled = self.stalls.append

    def update(self) -> None:
        """One more, and wait for what it had written."""
        self.training.update()
        self.keeper._report(self.manager.settle())

    def saved(self) -> list[int | None]:
        """Updates of the checkpoints that were reported."""
        return [fact.update for fact in self.seen.facts if isinstance(fact, CheckpointSaved)]

    def lines(self) -> list[str]:
        """What was logged."""
        return [fact.message for fact in self.seen.facts if isinstance(fact, LogLine)]


@pytest.fixture
def proxy(moto_address: str) -> Iterator[FaultProxy]:
    """A server that is whole, until its `rate` is raised."""
    with FaultProxy(moto_address, rate=0.0, kinds=("error", "drop")) as made:
        yield made


def test_one_is_due_after_so_many_steps_of_all_environments(tmp_path: Path) -> None:
    """Counted from the save before, by what the keeper is given."""
    flight = Flight(tmp_path, Cadence(env_steps=100))
    flight.keeper.env_steps = lambda: flight.training.updates_done * 40
    for _ in range(7):
        flight.update()
    flight.keeper.close(is_whole=True)

    assert flight.saved() == [3, 6, 7]


def test_waiting_for_storage_is_announced_by_names_of_its_own(tmp_path: Path) -> None:
    """`checkpoint` is what a save takes of the training; by its rhythm a slow store would be a stall."""
    flight = Flight(tmp_path, 1)
    flight.training.update()
    flight.keeper.settle()
    flight.keeper.settle()
    flight.training.updates_done += 1
    flight.keeper.close(is_whole=True)

    assert flight.seen.phases == ["checkpoint", "checkpoint_wait", "last_checkpoint"]
    assert all(is_pause(name) for name in flight.seen.phases)
    assert flight.saved() == [1, 2]


def test_one_is_due_after_so_many_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or so many updates, whichever comes first."""
    now = [1000.0]
    monkeypatch.setattr("overwatch_rl.training.keeper.time.monotonic", lambda: now[0])
    flight = Flight(tmp_path, Cadence(updates=5, minutes=2.0))
    monkeypatch.undo()
    for _ in range(7):
        now[0] += 50.0
        monkeypatch.setattr("overwatch_rl.training.keeper.time.monotonic", lambda: now[0])
        flight.training.update()
        monkeypatch.undo()
        flight.keeper._report(flight.manager.settle())
    flight.keeper.close(is_whole=False)

    assert flight.saved() == [3, 5]


def test_a_training_that_waits_for_experience_is_kept_early(tmp_path: Path) -> None:
    """Once, however long it waits: until then what it learned from fills the table that it waits for."""
    flight = Flight(tmp_path, 1000)
    flight.keeper.look(EARLY_S)
    flight.training.update()
    flight.keeper.look(EARLY_S - 1)
    flight.keeper.settle()
    assert flight.saved() == []

    for _ in range(3):
        flight.keeper.look(EARLY_S)
        flight.keeper.settle()
    flight.training.update()
    flight.keeper.look(EARLY_S)
    flight.keeper.settle()
    assert flight.saved() == [1, 2]
    flight.keeper.close(is_whole=True)


def test_a_training_that_waits_never_waits_for_a_save_under_way(proxy: FaultProxy) -> None:
    """It goes on to obey; what that save lacks is kept by the next look after it, though one was skipped."""
    flight = Flight(s3_url(proxy.address, uuid4().hex), 1)
    proxy.kinds, proxy.slow_s, proxy.rate = ("slow",), 0.1, 1.0
    flight.training.update()
    flight.training.update()
    flight.keeper.look(EARLY_S)

    assert flight.manager.is_busy
    assert flight.saved() == []
    proxy.rate = 0.0
    ends = time.monotonic() + LONG_S
    while flight.saved() != [1, 2]:
        flight.keeper.look(EARLY_S)
        assert time.monotonic() < ends
    flight.keeper.close(is_whole=True)


def test_steps_that_nothing_counts_are_an_error(tmp_path: Path) -> None:
    """At the first update, not by never saving."""
    flight = Flight(tmp_path, Cadence(env_steps=100))
    with pytest.raises(ValueError, match=r"nothing counts them; set Keeper\.env_steps"):
        flight.training.update()
    flight.keeper.close(is_whole=False)


@pytest.mark.parametrize(
    ("cadence", "words"),
    [
        ({"updates": 0}, "checkpoint-every is 0 updates; use 1 or more"),
        ({"env_steps": -1}, "checkpoint-every is -1 env-steps; use 1 or more"),
        ({"minutes": 0.0}, "checkpoint-every is 0.0 minutes; use more than 0"),
        ({"minutes": float("nan")}, "checkpoint-every is nan minutes"),
        ({}, "checkpoint-every is not given; name updates, env steps or minutes"),
    ],
)
def test_an_impossible_cadence_is_refused(cadence: dict[str, float], words: str) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=words):
        Cadence(**cadence)  # type: ignore[arg-type]


def test_a_value_function_of_its_own_has_a_file_of_its_own(tmp_path: Path) -> None:
    """And comes back with the rest."""
    flight = Flight(tmp_path, 1)
    flight.update()
    flight.keeper.close(is_whole=True)
    found = find_checkpoint(tmp_path)

    assert set(found.files) == {
        "policy.safetensors", "value.safetensors", "optimizer.safetensors", "algorithm.safetensors",
        "state.json",
    }  # fmt: skip
    assert {name: value.tolist() for name, value in position_of(found).algorithm.items()} == {
        name: value.tolist() for name, value in flight.training.position().algorithm.items()
    }


def test_cursor_and_version_go_with_a_checkpoint(tmp_path: Path) -> None:
    """As the training has them when it is taken; what is written names the cursor that it stands for."""
    flight = Flight(tmp_path, 1)
    flight.training.skipped = 5
    flight.update()
    flight.update()
    flight.keeper.close(is_whole=True)
    state = find_checkpoint(tmp_path).state

    assert [(one.version, one.cursor) for one in flight.written] == [
        ("003-00000006", {"lease": 1}), ("003-00000007", {"lease": 2}),
    ]  # fmt: skip
    assert (state.updates, state.cursor, str(state.version)) == (2, {"lease": 2}, "003-00000007")


def test_storage_that_is_gone_stalls_checkpoints_and_training_goes_on(proxy: FaultProxy) -> None:
    """The state of then is saved when it is back; those that failed are not made up for."""
    url = s3_url(proxy.address, uuid4().hex)
    flight = Flight(url, 2)
    flight.keeper.again_s = 0.0
    for _ in range(2):
        flight.update()
    proxy.rate = 1.0
    for _ in range(5):
        flight.update()
    assert flight.keeper.is_stalled
    assert flight.saved() == [2]
    assert find_checkpoint(url.replace(proxy.address, proxy._upstream)).state.updates == 2
    proxy.rate = 0.0
    flight.update()
    flight.update()
    flight.keeper.close(is_whole=True)

    assert not flight.keeper.is_stalled
    assert flight.saved()[:2] == [2, 8]
    assert flight.saved()[-1] == 9
    assert [one is None for one in flight.stalls] == [False, True]
    assert sum("was not written" in line for line in flight.lines()) >= 2
    assert "checkpoints are written again" in flight.lines()
    assert "checkpoints are stalled, training goes on; another try every 0 s" in flight.lines()


def test_a_training_that_stands_still_saves_once_more_too(proxy: FaultProxy) -> None:
    """By `look`, as a pause does; not before it is time."""
    flight = Flight(s3_url(proxy.address, uuid4().hex), 1)
    proxy.rate = 1.0
    flight.update()
    assert flight.keeper.is_stalled
    proxy.rate = 0.0
    flight.keeper.look()
    assert flight.manager.settle() == []
    flight.keeper.again_s = 0.0
    until = time.monotonic() + LONG_S
    while flight.keeper.is_stalled:
        assert time.monotonic() < until
        flight.keeper.look()
        flight.keeper._report(flight.manager.settle())
    flight.keeper.close(is_whole=True)

    assert flight.saved() == [1]


def test_a_training_ends_where_another_goes_on_from_its_checkpoints(proxy: FaultProxy) -> None:
    """It could write nothing more."""
    url = s3_url(proxy.address, uuid4().hex)
    flight = Flight(url, 1)
    flight.update()
    assert claim(open_store(url, SOON)) == 2
    with pytest.raises(CheckpointError, match="is written by another training, of lineage 2"):
        flight.update()
    flight.keeper.close(is_whole=False)
