"""A rollout is cut into records by whole steps; each of them can be read alone."""

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from overwatch.catalog import Scope, Stage
from overwatch.events import ActionTaken, EpisodeEnded, Event, LogLine, Measured, SeedStageChanged
from overwatch.sdk import steps
from overwatch.sdk.exporter.record_events import unpacked
from overwatch.sdk.frames import Rolled
from overwatch.sdk.rings.ringset import RingLimits
from overwatch.sdk.rollouts import cut
from tests.overwatch.sdk.rollouts.local import Local, by_hand, local, measured
from tests.overwatch.sdk.rollouts.world import SLOTS, WORDS, World

SMALL = RingLimits(numbers_bytes=64 << 10, facts_bytes=64 << 10, forms_bytes=4 << 10)


def facts(events: list[Event]) -> list[Event]:
    """What is no number."""
    return [event for event in events if not isinstance(event, Measured)]


def events_of(records: list[Rolled]) -> list[Event]:
    """Events of records, numbers first as they were cut."""
    return [event for record in records for event in unpacked(record, WORDS)]


@pytest.mark.parametrize("room", [4 << 10, 7 << 10, 40 << 10])
def test_records_are_no_larger_than_they_may_be_and_make_the_same_events(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small they are: by whole steps, and by envs where one step is too large."""
    whole, small = World(40, seed=3), World(40, seed=3)
    with local(WORDS) as one:
        for steps in (9, 1, 6):
            whole.report(one.run, whole.rollout(steps))
        wanted = one.events()
    monkeypatch.setattr(cut, "RECORD_BYTES", room + 4096)
    with local(WORDS) as one:
        for steps in (9, 1, 6):
            small.report(one.run, small.rollout(steps))
        records = one.records()
        assert one.link.largest <= room + 4096
    found = events_of(records)
    assert len(records) >= 6
    assert sum(record.steps * record.envs for record in records if record.is_fact) == 16 * 40

    def rows(events: list[Event]) -> Counter[tuple[object, ...]]:
        counts: Counter[tuple[object, ...]] = Counter()
        for event in events:
            match event:
                case SeedStageChanged():
                    counts[msgspec.json.encode(event)] += 1  # type: ignore[index] # any key will do
                case EpisodeEnded():
                    pairs = zip(
                        event.env_id.array().tolist(), event.episode_return.array().tolist(), strict=True
                    )
                    counts.update((event.at, *pair) for pair in pairs)
                case ActionTaken():
                    assert event.slot is not None
                    pairs = zip(event.env_id.array().tolist(), event.slot.words(), strict=True)
                    counts.update((event.at, event.step, *pair) for pair in pairs)
                case Measured(scope=Scope.ENV):
                    reward = event.values["overwatch.env.reward"].array().tolist()
                    pairs = zip(event.keys["env_id"].array().tolist(), reward, strict=True)
                    counts.update((event.at, event.index, *pair) for pair in pairs)
        return counts

    assert rows(found) == rows(wanted)
    assert len(facts(found)) >= len(facts(wanted))


def test_a_record_needs_no_other_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in any order, as by an exporter that is started again, they make the same events."""
    monkeypatch.setattr(cut, "RECORD_BYTES", 8 << 10)
    world = World(6)
    with local(WORDS) as one:
        for _ in range(3):
            world.report(one.run, world.rollout(30))
        records = one.records()
    assert len(records) > 6
    forwards, backwards = events_of(records), events_of(records[::-1])
    assert sorted(map(repr, forwards)) == sorted(map(repr, backwards))


def test_a_large_rollout_goes_out_in_records_of_256_kib() -> None:
    """The size that is documented, and no record far below it but the last."""
    steps, envs = 64, 2048
    with local() as one:
        one.run.rollout(
            first_step=1, steps=steps, envs=envs, at_first=1e9 + 1, at_last=1e9 + 2,
            reward=np.ones((steps, envs), "f4"), metric=np.ones((steps, envs), "f4"),
        )  # fmt: skip
        records = one.records()
        assert 200 << 10 < one.link.largest <= 256 << 10
    assert sum(record.steps for record in records) == steps
    assert [record.first_step for record in records][:2] == [1, 1 + records[0].steps]


def test_steps_that_are_missing_invent_no_move() -> None:
    """What a slot was before is not known then: its first row shows where it is, and numbers go on."""
    world, other = World(4, seed=5), World(4, seed=5)
    with local(WORDS) as whole:
        for _ in range(3):
            world.report(whole.run, world.rollout(10))
        wanted = facts(whole.events())
    with local(WORDS) as one:
        other.report(one.run, other.rollout(10))
        other.rollout(10)
        other.report(one.run, other.rollout(10))
        found = facts(one.events())
    moves = [event for event in wanted if isinstance(event, SeedStageChanged)]
    kept = [event for event in found if isinstance(event, SeedStageChanged)]
    assert {(move.env_id, move.slot, move.at, move.before, move.after) for move in kept} < {
        (move.env_id, move.slot, move.at, move.before, move.after) for move in moves
    }
    assert {move.at // 10**9 - 10**9 for move in kept} >= set(range(1, 11))
    assert 21 not in {move.at // 10**9 - 10**9 for move in kept}


@pytest.mark.parametrize("missing", ["slot_stage", "slot_alpha", "terminated"])
def test_a_column_that_is_missing_once_numbers_no_seed_twice(missing: str) -> None:
    """As one of another type, which is refused: seeds that germinate later have names of their own."""
    world = World(6, seed=4)
    with local(WORDS) as one:
        for number in range(3):
            columns = world.rollout(12)
            if number == 1:
                columns[missing] = columns[missing].astype(complex)
            world.report(one.run, columns)
        events = one.events()
        assert one.run._channel.refused == 1
    born = [
        event.seed_id
        for event in events
        if isinstance(event, SeedStageChanged) and event.after is Stage.GERMINATED
    ]
    assert len(born) > 10
    assert len(born) == len(set(born))


def test_a_run_that_goes_on_at_a_later_step_invents_no_move() -> None:
    """As after a resume: only a run's first step begins with dormant slots."""
    stage = np.full((2, 1, len(SLOTS)), Stage.TRAINING.code)
    for first, moves in ((1, len(SLOTS)), (2, 0), (601, 0)):
        with local(WORDS) as one:
            one.run.rollout(
                first_step=first, steps=2, envs=1, at_first=1e9 + 1, at_last=1e9 + 2, slot_stage=stage
            )
            assert len(facts(one.events())) == moves


def test_a_process_that_goes_on_names_no_seed_as_an_earlier_one() -> None:
    """As after a resume: both report to the same run, and what germinates later is another seed."""
    born: list[str] = []
    world, steps = World(6, seed=4), 40
    for first in (1, 1 + steps):
        with local(WORDS) as one:
            columns = world.rollout(steps)
            world.report(one.run, columns)
            born += [
                event.seed_id
                for event in one.events()
                if isinstance(event, SeedStageChanged) and event.after is Stage.GERMINATED
            ]
        assert len(born) > 10 * (first > 1)
    assert len(born) == len(set(born))


def test_blocks_of_envs_are_cut_apart_and_named_apart() -> None:
    """`env_first` is where a vector env's envs begin; each block remembers its own slots."""
    first, second = World(2, seed=1), World(2, seed=2)
    with local(WORDS) as one:
        for _ in range(2):
            first.report(one.run, first.rollout(8))
            second.report(one.run, second.rollout(8), env_first=2)
        events = one.events()
    moves = [event for event in events if isinstance(event, SeedStageChanged)]
    assert {move.env_id for move in moves} == {0, 1, 2, 3}
    assert all(move.seed_id.startswith(f"{move.env_id}-{move.slot}-") for move in moves)
    ends = [event.env_id.array().tolist() for event in events if isinstance(event, EpisodeEnded)]
    assert {env for row in ends for env in row} == {0, 1, 2, 3}


def reported(one: Local, steps: int, envs: int, **columns: Any) -> None:
    """A rollout of zeros."""
    zeros = np.zeros((steps, envs))
    one.run.rollout(
        first_step=1, steps=steps, envs=envs, at_first=1e9 + 1, at_last=1e9 + 5, **{"reward": zeros} | columns
    )


def test_above_the_limit_only_means_and_ends_are_sent_and_that_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Per env the mean of each number, with the number of steps; each episode; one line of the feed."""
    monkeypatch.setattr(steps, "MAX_ROWS", 5 * 2 * len(SLOTS) - 1)
    world = World(2, seed=2)
    columns = [world.rollout(5), world.rollout(5)]
    with local(WORDS) as one:
        for number, some in enumerate(columns):
            one.run.rollout(
                first_step=1 + 5 * number,
                steps=5,
                envs=2,
                at_first=1e9 + 1,
                at_last=1e9 + 5,
                lane="cpu",
                **some,
            )
        events = one.events()
        assert one.run._channel.refused == 0
    (line,) = [event for event in events if isinstance(event, LogLine)]
    assert "rollout of 5 steps of 2 envs has more than 29 rows" in line.message
    means = measured(events, Scope.ENV)
    for event, some, last in zip(means, columns, (5, 10), strict=True):
        assert event.values["overwatch.env.reward"].array() == pytest.approx(some["reward"].mean(axis=0))
        assert event.conflated is not None
        assert (event.at, event.index, event.conflated.n, event.conflated.first) == (
            10**18 + 5 * 10**9,
            last,
            5,
            last - 4,
        )
    wanted = [
        (env, float(some["episode_return"][row, env]), float(some["metric"][row, env]))
        for some in columns
        for row, env in np.argwhere(some["terminated"] | some["truncated"]).tolist()
    ]
    ends = [event for event in events if isinstance(event, EpisodeEnded)]
    found = [
        one
        for end in ends
        for one in zip(
            end.env_id.array().tolist(),
            end.episode_return.array().tolist(),
            end.metric.array().tolist(),
            strict=True,
        )  # type: ignore[union-attr] # the world has a metric
    ]
    assert wanted
    assert found == wanted
    assert {type(event) for event in events} == {LogLine, Measured, EpisodeEnded}


def test_of_slots_the_rows_count_and_without_them_envs() -> None:
    """4,194,304 rows, counted as values of the largest table."""
    assert steps.MAX_ROWS == 4_194_304


def test_a_rollout_waits_for_room_and_loses_nothing() -> None:
    """It is larger than its ring: a reader that goes on gets all of it, in order, each step once."""
    world = World(40)
    with local(WORDS, limits=SMALL) as one:
        by_hand(one)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cut, "RECORD_BYTES", 8 << 10)
            world.report(one.run, world.rollout(64))
            records: list[Rolled] = []
            for _ in range(1000):
                one.run._channel.device.poll()
                for item in one.link.source.read():
                    records.append(item.content)  # type: ignore[arg-type] # only rollouts are reported
                    one.link.source.done(item)
        assert one.run._channel.device.waiting == 0
        assert one.link.rings.account().dropped == {}
    for is_fact in (False, True):
        some = [record for record in records if record.is_fact is is_fact]
        assert [record.first_step for record in some] == sorted(record.first_step for record in some)
        assert sum(record.steps * record.envs for record in some) == 64 * 40


def test_a_rollout_that_finds_no_room_for_long_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that takes nothing holds up no later number for ever; what had room stays."""
    monkeypatch.setattr(steps, "ROOM_S", 0.05)
    monkeypatch.setattr(cut, "RECORD_BYTES", 8 << 10)
    with local(limits=SMALL) as one:
        reported(one, 100, 100)
        one.run._channel.device.settle(20.0)
        assert one.run._channel.device.waiting == 0
        account = one.link.rings.account()
        assert set(account.dropped) == {"ring_full"}
        records = one.records()
        assert account.accepted == len(records) + account.dropped["ring_full"]
        assert records[0].first_step == 1
        reported(one, 1, 1)
        assert len(one.records()) == 1
        assert one.link.rings.account().dropped == account.dropped


def test_what_waits_at_the_end_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends while its rollout waits for room reports it as dropped, once."""
    monkeypatch.setattr(cut, "RECORD_BYTES", 8 << 10)
    with local(limits=SMALL) as one:
        by_hand(one)
        reported(one, 200, 500)
        report = one.run.close(0.0)
    assert report.dropped == {"device_pending": 1}


def test_facts_find_room_besides_rollouts() -> None:
    """A ring that rollouts fill keeps room for what comes meanwhile."""
    world = World(40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "RECORD_BYTES", 8 << 10)
        with local(WORDS, limits=SMALL) as one:
            by_hand(one)
            world.report(one.run, world.rollout(64))
            one.run._channel.device.poll()
            assert one.run._channel.device.waiting
            before = one.link.rings.facts.ring.published
            one.run.log("a line")
            assert one.link.rings.facts.ring.published == before + 1
            assert not one.link.rings.facts.waits
