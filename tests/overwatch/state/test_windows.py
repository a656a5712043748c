"""Short memories of each env: counts of the last minute, samples, actions, finished episodes."""

import random

import numpy as np
import pytest

from overwatch.catalog import Scope, Stage
from overwatch.events import ActionTaken, Column, GateEvaluated, Measured, PhaseEnded, SeedStageChanged
from overwatch.state.arrays import resize
from overwatch.state.env_tables import ACTIONS, BUCKET_NS, SAMPLES, STRIDE, STRIDE_NS, Tally
from overwatch.state.envs import Envs
from tests import fakes
from tests.fakes import SECOND, START_NS


def _tally(rows: int = 3) -> Tally:
    tally = Tally()
    resize(tally, rows)
    return tally


def test_a_tally_counts_the_last_minute() -> None:
    """Events of one row add up, named twice too; after a minute they are gone from the window alone."""
    tally = _tally()
    tally.add(np.array([1, 1, 2]), START_NS)
    tally.add(np.array([1]), START_NS + 30 * SECOND)

    assert tally.recent(3, START_NS + 30 * SECOND).tolist() == [0, 3, 1]
    assert tally.recent(3, START_NS + 30 * SECOND, seconds=20).tolist() == [0, 1, 0]
    assert tally.recent(3, START_NS + 70 * SECOND).tolist() == [0, 1, 0]
    assert tally.recent(3, START_NS + 300 * SECOND).tolist() == [0, 0, 0]
    assert tally.totals.tolist() == [0, 3, 1]


def test_a_tally_forgets_what_it_skipped() -> None:
    """A long pause empties the buckets between; a late event counts in the newest."""
    tally = _tally()
    tally.add(np.array([0]), START_NS)
    tally.add(np.array([0]), START_NS + 20 * 12 * BUCKET_NS)
    tally.add(np.array([0]), START_NS)

    assert tally.recent(1, START_NS + 20 * 12 * BUCKET_NS).tolist() == [2]


def test_culls_are_counted_once_however_they_are_sent() -> None:
    """The fact and the table that shows the same slot pruned are one cull."""
    move = SeedStageChanged(
        at=START_NS, env_id=0, slot="a", seed_id="s", before=Stage.TRAINING, after=Stage.PRUNED
    )
    state = fakes.folded([move, fakes.slots(START_NS + 1, [0], ["a"], ["pruned"])])
    assert state.envs.culls.totals[0] == 1

    state = fakes.folded([fakes.slots(START_NS + 1, [0], ["a"], ["pruned"]), move])
    assert state.envs.culls.totals[0] == 1


def test_failed_gates_are_counted_with_their_check() -> None:
    """A gate that passed does not count, and a seed that asks a gate again counts once."""
    state = fakes.folded(
        [
            GateEvaluated(
                at=START_NS,
                env_id=4,
                slot="a",
                seed_id=seed,
                gate=gate,
                passed=passed,
                checks_failed=("health",),
            )
            for seed, gate, passed in [
                ("s", "G2", True),
                *[("s", "G2", False)] * 2,
                ("s", "G3", False),
                *[("t", "G3", False)] * 2,
                ("u", "G2", False),
            ]
        ]
    )

    assert state.envs.gate_fails.totals[0] == 4
    assert (state.envs.failed_gate, state.envs.failed_check) == ({4: "G2"}, {4: "health"})


def test_samples_are_taken_at_a_stride() -> None:
    """Not more often than each five steps, nor than twice a second, and only so many are kept."""
    dense = fakes.folded([fakes.envs(START_NS + i, [0], index=i, rent=[float(i)]) for i in range(1, 100)])
    assert dense.envs.trends.count[0] == 1

    slow = fakes.folded([fakes.envs(START_NS + i * SECOND, [0], rent=[float(i)]) for i in range(500)])
    places = slow.envs.trends.of(0)
    assert places.size == SAMPLES
    assert np.diff(slow.envs.trends.step[0, places]).tolist() == [5] * (SAMPLES - 1)
    assert (np.diff(slow.envs.trends.at[0, places]) >= STRIDE_NS).all()
    assert slow.envs.trends.values["rent"][0, places[-1]] == 495.0


def test_the_newest_actions_are_kept_newest_first() -> None:
    """Operation, slot, blueprint and step of the last eight."""
    reported = [
        ActionTaken(
            at=START_NS + i, env_id=Column.of([5]), op=Column.of_labels([f"op{i}"]), step=i,
            slot=Column.of_labels(["a"]), blueprint=Column.of_labels([None]),
        )
        for i in range(20)
    ]  # fmt: skip
    actions = fakes.folded(reported).envs.actions

    assert actions.step[0, actions.of(0)].tolist() == list(range(19, 19 - ACTIONS, -1))
    assert actions.last(0) == (19, 0)


def test_rows_keep_to_their_env_in_any_order_of_arrival() -> None:
    """Ids that come late, negative or in between find their own row again."""
    envs = Envs()
    first = envs.rows(np.array([50, -2, 7]))
    second = envs.rows(np.array([7, 9, -2, 50, 8, 9]))

    assert envs.n == 5
    assert envs.ids[second].tolist() == [7, 9, -2, 50, 8, 9]
    assert envs.ids[first].tolist() == [50, -2, 7]
    assert envs.find(9) == second[1]
    assert envs.find(1000) is None


def test_lanes_phases_and_throttle_words_are_kept() -> None:
    """A phase belongs to its rank, a lane to the rank that speaks for it, words to their lane."""
    state = fakes.folded(
        [
            fakes.envs(START_NS, [0], reward=[0.0], lane=["gpu3"]),  # type: ignore[list-item]  # lanes are words
            PhaseEnded(at=START_NS + 1, phase="collect", duration_s=0.25),
            Measured(
                at=START_NS + 2,
                scope=Scope.GPU,
                keys={"gpu_id": Column.of_labels(["gpu3", "gpu4"])},
                values={"overwatch.gpu.throttle": Column.of_labels(["thermal, power", None])},
            ),
        ]
    )

    assert state.lane_ranks == {"gpu3": 0}
    assert state.phases[0]["collect"].seconds.items == [0.25]
    assert {lane: throttle.reasons for lane, throttle in state.throttles.items()} == {
        "gpu3": ["thermal", "power"], "gpu4": [],
    }  # fmt: skip


def test_a_crashed_env_is_not_revived_by_talk_about_it() -> None:
    """Facts about its seeds come late; only numbers show that it steps again."""
    fact = GateEvaluated(at=START_NS + 2, env_id=0, slot="a", seed_id="s", gate="G2", passed=True)
    state = fakes.folded([fakes.crashed(START_NS + 1, 0), fact])

    assert state.envs.crashed_at[0] == START_NS + 1


@pytest.mark.parametrize("seed", range(20))
def test_samples_are_taken_as_if_each_env_were_looked_at_alone(seed: int) -> None:
    """Records of any envs, late ones too: each env has the samples that are its own."""
    dice = random.Random(seed)  # noqa: S311 numbers for a test
    sets = [sorted(dice.sample(range(12), dice.randint(1, 6))) for _ in range(4)]
    at, reported, plain = START_NS, [], dict[int, list[int]]()
    newest, sampled = dict[int, int](), dict[int, int]()
    for step in range(1, 120):
        at += dice.choice((50, 100, 300)) * 1_000_000
        here, stated = at - dice.choice((0, 0, 0, 400)) * 1_000_000, step - dice.choice((0, 0, 3))
        ids = dice.choice(sets)
        reported.append(fakes.envs(here, ids, stated, metric=[float(stated)] * len(ids)))
        for env in ids:
            newest[env] = max(newest.get(env, 0), stated)
            times = plain.setdefault(env, [])
            if not times or (here - times[-1] >= STRIDE_NS and newest[env] - sampled[env] >= STRIDE):
                times.append(here)
                sampled[env] = newest[env]

    envs = fakes.folded(reported).envs
    found = {env: envs.trends.at[row, envs.trends.of(row)] for env in plain for row in (envs.row(env),)}
    assert {env: times[-SAMPLES:] for env, times in plain.items()} == {
        env: times.tolist() for env, times in found.items()
    }
