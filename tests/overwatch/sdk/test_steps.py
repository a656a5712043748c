"""Steps many at a time: the training thread copies and compares, and nothing else."""

import math
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from overwatch.catalog import Scope
from overwatch.catalog.run import STEPS
from overwatch.events import Event, Measured
from overwatch.otlp import result
from overwatch.sdk import steps
from overwatch.sdk.rollouts import cut
from tests.overwatch.sdk.rollouts.local import by_hand, folded, local, measured
from tests.overwatch.sdk.rollouts.world import WORDS, World

torch = pytest.importorskip("torch", reason="tensors need PyTorch")
from tests.overwatch.sdk.dispatch import Recorder  # noqa: E402 needs torch

COPIES = {"cat", "_to_copy", "to", "detach", "view", "alias", "reshape", "_unsafe_view", "clone", "empty"}
"""Operations that look at no value."""


def tensors(columns: dict[str, np.ndarray], device: str = "cpu") -> dict[str, Any]:
    """The same as tensors."""
    return {name: torch.from_numpy(values.copy()).to(device) for name, values in columns.items()}


def test_tensors_are_the_arrays_they_hold() -> None:
    """The same records, whether columns come as tensors or as arrays, contiguous or not."""
    world, other = World(5), World(5)
    with local(WORDS) as one, local(WORDS) as two:
        columns = world.rollout(20)
        world.report(one.run, columns)
        other.rollout(20)
        turned = {
            name: tensor.transpose(0, 1).contiguous().transpose(0, 1)
            for name, tensor in tensors(columns).items()
        }
        other.report(two.run, turned)
        assert one.records() == two.records()
        assert (one.run._channel.refused, two.run._channel.refused) == (0, 0)


def test_the_training_thread_reads_no_value_of_a_rollout() -> None:
    """It copies: no host read, no comparison, no compaction; what NumPy has no type for in one piece."""
    world = World(5)
    columns = tensors(world.rollout(20))
    odd = {name: torch.ones((20, 5), dtype=torch.bfloat16) for name in ("custom_a", "custom_b")}
    with local(WORDS) as one:
        with Recorder() as recorder:
            world.report(one.run, columns | odd)
        assert {name.removeprefix("aten::") for name in recorder.seen} <= COPIES, recorder.seen
        assert recorder.seen["aten::cat"] == 1
        assert len(one.records()) == 2
        assert one.run._channel.refused == 0


@pytest.mark.parametrize("as_tensors", ["tensors", "arrays"])
def test_columns_that_are_lent_may_change_once_the_next_call_returned(as_tensors: str) -> None:
    """Whether they were delivered by then, or the next call found them waiting."""
    world, other = World(5), World(5)
    with local(WORDS) as one, local(WORDS) as two:
        by_hand(one)
        lent: list[dict[str, Any]] = []
        for _ in range(3):
            columns = world.rollout(20)
            world.report(two.run, columns)
            lent.append(tensors(columns) if as_tensors == "tensors" else columns)
            other.rollout(20)
            other.report(one.run, lent[-1], copy=False)
            for some in lent[:-1]:
                for values in some.values():
                    values[:] = 0
        assert one.run._channel.device.waiting == 3
        assert one.records() == two.records()


def test_a_rollout_that_is_lent_is_copied_by_the_thread_that_delivers_it() -> None:
    """The caller hands over references."""
    world = World(2)
    columns = world.rollout(3)
    with local(WORDS) as one:
        by_hand(one)
        world.report(one.run, columns, copy=False)
        columns["reward"][:] = 7.0
        (numbers, _) = one.records()
        columns["reward"][:] = 8.0
        assert set(np.frombuffer(numbers.numbers["overwatch.env.reward"].data, "f4").tolist()) == {7.0}


def test_a_rollout_on_meta_is_refused_without_a_read() -> None:
    """A trainer's whole loop can run on it: each column is refused, nothing raises."""
    world = World(5)
    columns = tensors(world.rollout(20), "meta")
    with local(WORDS, n_envs=5) as one:
        world.report(one.run, columns)
        one.run.update(update=1, loss=torch.zeros((), device="meta"))
        one.run.beat(1, 0.2)
        one.run._channel.device.settle(10.0)
        assert one.run._channel.refused == len(columns) + 1


def test_columns_may_change_after_the_call() -> None:
    """What is sent is what they were."""
    world, other = World(5), World(5)
    with local(WORDS) as one, local(WORDS) as two:
        columns = world.rollout(20)
        world.report(two.run, columns)
        late = [tensors(columns), {name: values.copy() for name, values in columns.items()}]
        other.rollout(20)
        other.report(one.run, late[0])
        for some in late:
            for values in some.values():
                values[:] = 0
        assert one.records() == two.records()


def test_records_are_made_in_the_drain_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays too: the caller's thread cuts nothing."""
    threads = list[str]()
    made = cut.Cutter.records

    def noted(*arguments: Any) -> Any:
        threads.append(threading.current_thread().name)
        return made(*arguments)

    monkeypatch.setattr(cut.Cutter, "records", noted)
    world = World(2)
    with local(WORDS) as one:
        world.report(one.run, world.rollout(3))
        deadline = time.monotonic() + 20.0
        while not threads and time.monotonic() < deadline:
            time.sleep(0.005)
    assert threads == ["overwatch-device"]


def steps_of(events: list[Event]) -> list[float]:
    """Totals of steps that were sent."""
    return [event.values[STEPS.name].first() for event in measured(events, Scope.RUN)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of beats, which the test moves."""
    moved = SimpleNamespace(now=100.0)
    moved.monotonic = lambda: moved.now
    moved.time_ns = lambda: int(moved.now * 1e9)
    monkeypatch.setattr(steps, "time", moved)
    return moved


@pytest.mark.parametrize(("duration_s", "most"), [(0.001, 11), (0.03, 9), (0.1, 11), (0.5, 3)])
def test_at_most_ten_beats_a_second_are_sent(clock: SimpleNamespace, duration_s: float, most: int) -> None:
    """The first at once; each has the steps of all envs so far."""
    with local(n_envs=8) as one:
        for step in range(1, int(1.0 / duration_s) + 1):
            clock.now += duration_s
            one.run.beat(step, duration_s)
        sent = steps_of(one.events())
    assert 1 < len(sent) <= most
    assert sent[0] == 8.0
    assert all(total % 8 == 0 for total in sent)
    assert sent == sorted(sent)


def test_durations_that_are_too_long_send_no_more(clock: SimpleNamespace) -> None:
    """As of a trainer that gives milliseconds: the clock decides."""
    with local(n_envs=1) as one:
        for step in range(1, 1001):
            clock.now += 0.001
            one.run.beat(step, 30.0)
        assert len(steps_of(one.events())) <= 11


@pytest.mark.parametrize("odd", [math.nan, -1.0, "x", None, torch.zeros((), device="meta")])
def test_a_duration_that_is_none_is_refused_and_the_next_beat_is_sent(
    odd: Any, clock: SimpleNamespace
) -> None:
    """Nothing raises, nothing is read from a device."""
    with local(n_envs=1) as one:
        one.run.beat(1, odd)
        assert one.events() == []
        clock.now += 1.0
        one.run.beat(2, 1.0)
        assert steps_of(one.events()) == [2.0]
        assert one.link.rings.account().dropped == {"invalid": 1}


def test_a_beat_of_unknown_envs_logs_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    """How many steps one is, only `n_envs` shows."""
    with local() as one:
        one.run.beat(1, 0.2)
        assert one.link.rings.account().dropped == {"invalid": 1}
    assert "start(n_envs=...)" in caplog.text


def test_beats_and_rollouts_count_each_step_once(clock: SimpleNamespace) -> None:
    """A rollout sends where it ended; the state has the steps of either, not of both."""
    world = World(3)
    with local(WORDS, n_envs=3) as one:
        for _ in range(4):
            for step in range(world.step + 1, world.step + 11):
                clock.now += 0.07
                one.run.beat(step, 0.07)
            world.report(one.run, world.rollout(10))
        events = one.events()
    numbers = [event for event in events if isinstance(event, Measured)]
    assert folded(numbers).steps == 4 * 10 * 3
    assert max(steps_of(events)) == 4 * 10 * 3
    assert steps_of(events) == sorted(set(steps_of(events)))


def test_a_rollout_of_a_run_without_beats_sends_none() -> None:
    """Its steps are counted by their numbers."""
    world = World(3)
    with local(WORDS, n_envs=3) as one:
        world.report(one.run, world.rollout(10))
        assert steps_of(one.events()) == []


def test_times_that_are_taken_are_those_that_a_collector_takes() -> None:
    """What it would reject record by record, as of a clock that began with the machine, is refused here."""
    assert (steps.EARLIEST_S * 10**9, (steps.LATEST_S + 1) * 10**9 - 1) == (
        result.EARLIEST,
        result.LATEST,
    )
