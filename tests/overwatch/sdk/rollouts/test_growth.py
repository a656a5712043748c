"""Columns of a world that grows networks, as far as the drawer: choices, rollbacks, best episodes, seeds."""

import msgspec
import numpy as np

from overwatch.catalog.stages import Stage
from overwatch.diagnose.assess import Assessment, assess
from overwatch.events import ActionTaken, EnvRolledBack, EpisodeEnded, Event, SeedStageChanged
from overwatch.projection import project
from overwatch.sdk import WordTables
from overwatch.snapshot import Snapshot, View
from tests.overwatch.sdk.rollouts.local import folded, local
from tests.overwatch.sdk.rollouts.world import WORDS

T, N = 4, 2
GROWING = msgspec.structs.replace(
    WORDS, styles=("add", "gate"), curves=("linear", "cosine"), tempos=("fast", "slow"), sizes=(10, 20, 30),
    panics=("nan", "divergence"),
)  # fmt: skip


def columns() -> dict[str, np.ndarray]:
    """Four steps of two envs with three slots: env 1 grows a seed, is set back, and ends."""
    stage, none = np.full((T, N, 3), Stage.DORMANT.code, "i1"), np.full((T, N, 3), -1, "i1")
    stage[1:, 1, 0] = Stage.GERMINATED.code
    stage[2:, 1, 0] = Stage.TRAINING.code
    style, blueprint = none.copy(), none.astype("i2")
    style[1:, 1, 0], blueprint[1:, 1, 0] = 1, 2
    probs = np.tile(np.array([0.7, 0.1, 0.2], "f4"), (T, N, 1))
    governor, ended = np.zeros((T, N), "u1"), np.zeros((T, N), bool)
    governor[2, 1], ended[3, 1] = 2, True
    adds = np.full((T, N, 3), np.nan, "f4")
    adds[2:, 1, 0] = 0.25
    steps = np.arange(1, T + 1)[:, None] * np.ones((1, N))
    return {
        "actions": np.zeros((T, N, 3), "i8"), "op_probs": probs, "reward": np.ones((T, N), "f4"),
        "metric": np.full((T, N), 0.5, "f4"), "metric_best": np.full((T, N), 0.75, "f4"),
        "stalled_steps": np.ones((T, N), "i4"), "growth_ratio": np.full((T, N), 1.5, "f4"),
        "episode_fossils": np.full((T, N), 2, "i2"), "episode_prunes": np.ones((T, N), "i2"),
        "terminated": ended, "truncated": np.zeros((T, N), bool),
        "episode_return": np.cumsum(np.ones((T, N)), axis=0), "episode_length": steps.astype("i4"),
        "slot_stage": stage, "slot_style": style, "slot_blueprint": blueprint, "slot_contribution": adds,
        "governor": governor, "host_loss": np.full((T, N), 0.3, "f4"),
    }  # fmt: skip


def emitted(words: WordTables = GROWING) -> list[Event]:
    """The events of these steps."""
    with local(words, N) as one:
        one.run.rollout(first_step=1, steps=T, envs=N, at_first=1e9, at_last=1e9 + T - 1, **columns())
        found = one.events()
        assert one.run._channel.refused == 0
    return found


def shown(events: list[Event]) -> Snapshot:
    """The snapshot with env 1 opened."""
    state = folded(events)
    return project(state, assess(state, Assessment(), state.last_stamp + 1), View(env_id=1))


def test_a_choice_has_its_probability_and_the_likeliest_others() -> None:
    """Of three operations the one taken and both others, the likelier first."""
    action = next(event for event in emitted() if isinstance(event, ActionTaken))
    assert action.confidence is not None
    assert action.second is not None
    assert action.third is not None
    assert action.confidence.array().tolist() == [np.float32(0.7)] * N
    assert (action.second.words(), action.third.words()) == (["prune"] * N, ["germinate"] * N)
    chosen = shown(emitted()).detail
    assert chosen is not None
    assert [(one.op, round(one.probability, 2)) for one in chosen.choice] == [
        ("WAIT", 0.7), ("PRUNE", 0.2), ("GERMINATE", 0.1),
    ]  # fmt: skip


def test_an_operation_that_was_impossible_is_no_alternative() -> None:
    """A probability of nothing is left out, and so is one of a run that gives none."""
    given = columns() | {"op_probs": np.tile(np.array([1.0, 0.0, 0.0], "f4"), (T, N, 1))}
    with local(GROWING, N) as one:
        one.run.rollout(first_step=1, steps=T, envs=N, at_first=1e9, at_last=1e9 + 3, **given)
        detail = shown(one.events()).detail
    assert detail is not None
    assert [one.op for one in detail.choice] == ["WAIT"]


def test_a_network_that_is_set_back_is_a_fact_with_its_reason() -> None:
    """One event, in the feed, counted of the env and of the run."""
    events = emitted()
    (back,) = [event for event in events if isinstance(event, EnvRolledBack)]
    assert (back.env_id, back.reason, back.step) == (1, "divergence", 3)
    snapshot = shown(events)
    assert snapshot.counters["rollbacks"] == 1
    assert "rolled back: divergence" in [line.message for line in snapshot.feed]
    assert snapshot.detail is not None
    assert snapshot.detail.numbers["rollbacks"] == 1


def test_the_best_episodes_are_remembered_with_what_they_had_grown() -> None:
    """The episode that ended, with its best step: its length less the steps since."""
    events = emitted()
    (ended,) = [event for event in events if isinstance(event, EpisodeEnded)]
    assert ended.best_step is not None
    assert ended.best_step.array().tolist() == [3]
    (best,) = shown(events).aggregates.episodes
    assert (best.env_id, best.number) == (1, 1)
    assert best.values == {
        "episode_return": 4.0, "length": 4.0, "metric": 0.5, "best": 0.75, "best_step": 3.0,
        "growth_ratio": 1.5, "fossils": 2.0, "prunes": 1.0,
    }  # fmt: skip
    assert shown(events).aggregates.mean_best == 0.75


def test_a_seed_shows_how_it_blends_and_its_slot_what_it_adds() -> None:
    """Fields of the move, numbers of the slot, the stages that it went through, and the chip of its line."""
    events = emitted()
    first, second = (event for event in events if isinstance(event, SeedStageChanged))
    assert first.fields == {"style": "gate", "parameters": "30"}
    assert second.after is Stage.TRAINING
    snapshot = shown(events)
    assert snapshot.detail is not None
    assert snapshot.detail.slots == {"r0c0": {"contribution": 0.25}}
    assert [stay.stage for stay in snapshot.detail.lives["r0c0"]] == ["germinated", "training"]
    assert snapshot.detail.numbers["host_loss"] == np.float32(0.3)
    assert [line.chip for line in snapshot.feed if line.kind == "seed_stage_changed"] == [
        "○r0c0 co", "◔r0c0 co",
    ]  # fmt: skip
