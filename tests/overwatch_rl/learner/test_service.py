"""The loop: what one process would learn, in phases, whatever is away; each remedy an event."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from overwatch.events import LogLine, TrainingRecovered
from overwatch_rl.algorithms.ppo import PPO
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.ancestry import Age
from overwatch_rl.learner.batches import Batches, Limits
from overwatch_rl.learner.config import LearnerConfig, learner_config
from overwatch_rl.learner.io import Away
from overwatch_rl.learner.ledger import Ledger
from overwatch_rl.learner.recovery import GaveUpError
from overwatch_rl.learner.service import summary_of
from overwatch_rl.replay.base import Resumed
from overwatch_rl.replay.chunk import Chunk, Column, Encoding
from overwatch_rl.training.experience import SUMMARY
from overwatch_rl.training.trainer import Position, Trainer, TrainerConfig
from overwatch_rl.undefined import UNDEFINED
from tests.overwatch_rl.kept import Kept
from tests.overwatch_rl.learner.test_batches import ENCODING, SPEC, chunk
from tests.overwatch_rl.learner.whole import ENVS, STEPS, Service, alone, same, world

WORLD = "goodhart:small"


def config(**given: Any) -> LearnerConfig:
    """A small one."""
    return learner_config(
        {"world": WORLD, "batch": {"steps": STEPS, "envs": ENVS}, "ppo": {"epochs": 2}, "seed": 5}, given
    )


def service(updates: int = 3, **given: Any) -> Service:
    """A learner of the small world, and its actor."""
    return Service(world(WORLD), config(**given), updates=updates)


def test_it_learns_what_one_process_learns() -> None:
    """To the bit where each rollout is of the newest weights; a version an update, the first before any."""
    made = service(4)

    assert made.loop.run() == "completed"
    assert same(made.state(), alone(world(WORLD), config().learned, 5, 4))
    assert made.published.versions == [Version(1, number) for number in range(5)]
    assert [one["update"] for one in made.kept.updates] == [1, 2, 3, 4]


def test_actors_with_rounded_weights_are_another_policy() -> None:
    """Its distance is measured though no version lies between, and is that of rounding; nothing is lost."""
    exact, near = service(4), service(4, weights={"dtype": "bfloat16"})
    for made in (exact, near):
        assert made.loop.run() == "completed"
    found = [one["mismatch_kl"] for one in near.kept.updates]

    assert all(0 < one < 1e-6 for one in found), found
    assert not any("mismatch_kl" in one for one in exact.kept.updates)
    assert len(found) == 4


def test_returns_are_those_of_whole_episodes() -> None:
    """From the rewards of their chunks, also where an episode goes on in the next rollout."""
    made = service(12)
    kept: list[float] = []
    collect = made.collected

    def watched() -> list[Chunk]:
        found = collect()
        rows = made.collector.rows()
        ended = rows["terminated"] | rows["truncated"]
        kept.append(float(rows["episode_return"][ended].mean()))
        return found

    made.line.requested = watched
    made.loop.run()
    reported = [one.get("return", float("nan")) for one in made.kept.updates]

    assert np.isfinite(kept).any()
    assert reported == pytest.approx(kept, nan_ok=True, rel=1e-5)


def test_the_worlds_own_numbers_are_those_that_a_trainer_reports() -> None:
    """Goodhart's true return and proxy, update by update; what no episode ended for is left out."""
    made = service(12)
    world_of = world(WORLD)
    alone_kept = Kept()
    algorithm = PPO(world_of.spec, config().learned, seed=5)
    limits = TrainerConfig(updates=12, steps=STEPS, seed=5)
    made.loop.run()
    Trainer(world_of, algorithm, limits, alone_kept, lambda: None).run()
    names = world_of.spec.summarised
    found = [{name: one[name] for name in names if name in one} for one in made.kept.updates]
    wanted = [{name: one[name] for name in names if name in one} for one in alone_kept.updates]

    assert [one.keys() for one in found] == [one.keys() for one in wanted]
    assert found == [pytest.approx(one, rel=1e-6) for one in wanted]
    assert any("true_return" in one for one in found)
    assert not all("true_return" in one for one in found)


def test_numbers_of_several_rollouts_count_by_their_steps() -> None:
    """A batch of two rollouts; an undefined number of one of them is that of the other."""
    encoding = Encoding((*ENCODING.columns, Column(SUMMARY, "float32", (2,), per_step=False)))

    def summarised(env: str, values: tuple[float, float]) -> Chunk:
        one = chunk(env, 0, 4)
        own = np.array(values, np.float32).view(np.uint8).data
        return msgspec.structs.replace(one, columns={**one.columns, SUMMARY: own})

    batches = Batches(SPEC, Limits(steps=4, lanes=2), lambda _: Age(0, is_abandoned=False))
    chunks = [summarised("0/0", (1.0, 5.0)), summarised("1/0", (3.0, UNDEFINED))]
    batches.add(encoding, chunks, 1, Ledger())
    made = batches.take()

    assert made is not None
    assert summary_of(made, ("proxy_return", "true_return")) == {"proxy_return": 2.0, "true_return": 5.0}


def test_one_that_goes_on_is_equal_to_one_that_did_not_end() -> None:
    """From its position: weights, moments and generators to the bit, in a lineage of its own."""
    whole = service(6)
    whole.loop.run()
    first = service(3)
    first.loop.run()
    position = copied(first.loop.position())
    second = service(6)
    second.collector, second.chunker, second.acting = first.collector, first.chunker, first.acting
    second.line.number = first.line.number
    second.loop.go_on(position, Version(2, 9))
    second.loop.run()

    assert same(second.state(), whole.state())
    assert second.published.versions == [Version(2, number) for number in range(9, 13)]
    assert second.loop.position().cursor == whole.loop.position().cursor | {  # type: ignore[operator]
        "lives": [[1, 0, 0], [2, 9, 3]]
    }


def test_numbers_of_a_run_go_on_after_a_resume() -> None:
    """Returns of episodes that a checkpoint cut, what was lost or done so far, and how ill it was."""

    def going_on(made: Service, until: int) -> Service:
        """The rest of a training, from what its checkpoint's JSON has."""
        position = copied(made.loop.position())
        cursor = msgspec.json.decode(msgspec.json.encode(position.cursor))
        rest = service(until, batch={"max_age": 0})
        rest.collector, rest.chunker, rest.acting = made.collector, made.chunker, made.acting
        rest.line.number = made.line.number
        rest.loop.go_on(replace(position, cursor=cursor), Version(2, 99))
        return rest

    def with_an_old_one(made: Service) -> None:
        """The chunks that come first are a version behind."""
        collected = made.line.requested
        before: list[Chunk] = []

        def requested() -> list[Chunk]:
            if made.loop.trained == 2 and not before:
                before.append(one := collected()[0])
                return [msgspec.structs.replace(one, env="old", version=0)]
            return collected()

        made.line.requested = requested

    whole, first = service(12, batch={"max_age": 0}), service(5, batch={"max_age": 0})
    for made in (whole, first):
        with_an_old_one(made)
        made.loop.run()
    second = going_on(first, 12)
    second.loop.run()
    returns = [one.get("return") for made in (first, second) for one in made.kept.updates]

    assert any(returns)
    assert returns == [one.get("return") for one in whole.kept.updates]
    assert second.loop.counts == whole.loop.counts == {"samples.late": 1}


def test_a_resume_forgets_no_rollback() -> None:
    """A run that was rolled back as often as it may be gives up, though it was started again."""
    made = service(1)
    ill = {"scale": 0.25, "bad": 2, "good": 0, "rollbacks": 3}
    position = copied(made.loop.position())
    made.loop.go_on(replace(position, updates=7, cursor={"trained": 7, "recovery": ill}), Version(2, 9))

    assert made.loop.cursor()["recovery"] == ill
    with pytest.raises(GaveUpError, match="after 3 rollbacks"):
        made.loop.non_finite.judge(8, 1)


def copied(position: Position) -> Position:
    """As it comes from a checkpoint."""
    algorithm = {name: value.clone() for name, value in position.algorithm.items()}
    return Position(
        updates=position.updates, steps=position.steps, score=position.score, own={}, algorithm=algorithm,
        world={}, version=position.version, cursor=position.cursor,
    )  # fmt: skip


def test_a_lease_is_safe_when_its_checkpoint_is() -> None:
    """Not when it was trained."""
    made = service(3)
    kept: list[dict[str, Any]] = []
    made.loop.after_update = lambda: kept.append(made.loop.cursor())
    made.loop.run()
    assert made.line.acknowledged == []
    made.loop.safe(kept[1])

    assert made.line.acknowledged == [[2]]


def test_experience_that_is_missing_after_a_resume_is_reported() -> None:
    """Leases that were acknowledged after the checkpoint, and a server that began anew."""
    for resumed, stated in (
        (
            Resumed(next_number=9, redelivered=0, acknowledged=0, gap=2, is_unknown=False),
            "2 leases of replay 0",
        ),
        (Resumed(next_number=1, redelivered=0, acknowledged=0, gap=0, is_unknown=True), "lease 3 of the"),
    ):
        first = service(3)
        first.loop.run()
        second = service(4)
        second.loop.go_on(copied(first.loop.position()), Version(2, 4))
        second.line.resumed = [resumed]
        second.loop.run()

        assert [line for line in lines(second) if stated in line]


def lines(made: Service) -> list[str]:
    """Messages of the log."""
    return [fact.message for fact in made.kept.facts if isinstance(fact, LogLine)]


def broken(chunks: list[Chunk]) -> list[Chunk]:
    """With rewards so large that no gradient is finite."""
    return [
        msgspec.structs.replace(
            one, columns={**one.columns, "reward": np.full(one.steps, 3e38, np.float32).tobytes()}
        )
        for one in chunks
    ]


def at(updates: set[int], made: Service) -> None:
    """Break the experience of these updates."""
    made.change = lambda chunks: broken(chunks) if made.loop.updates_done + 1 in updates else chunks


def test_gradients_that_are_not_finite_are_skipped_and_the_rate_is_cut() -> None:
    """Weights stay as they were; the event names both updates; the cut holds and is in checkpoints."""
    made = service(4, ppo={"popart": False})
    at({2}, made)
    made.loop.run()

    assert [one["learning_rate"] for one in made.kept.updates] == pytest.approx([1e-3, 1e-3, 5e-4, 5e-4])
    assert [line for line in lines(made) if "update 2 were not finite" in line and "update 3 on" in line]
    assert made.loop.cursor()["recovery"]["scale"] == 0.5
    assert all(bool(value.isfinite().all()) for value in made.state().values() if value.is_floating_point())


def test_updates_in_a_row_that_are_broken_roll_back() -> None:
    """To the newest checkpoint from before; versions go on; what came since is of an abandoned line."""
    made = service(8, ppo={"popart": False}, recovery={"rollback_after": 2})
    at({4, 5}, made)
    kept: dict[int, Position] = {}
    made.loop.after_update = lambda: kept.update({made.loop.updates_done: copied(made.loop.position())})
    made.loop.non_finite.newest = lambda before: kept[max(update for update in kept if update < before)]
    counted: list[str] = []
    made.loop.non_finite.counted = counted.append
    made.loop.run()

    assert counted == ["learning_rate_cuts", "rollbacks"]
    remedies = [one for one in made.kept.facts if isinstance(one, TrainingRecovered)]
    assert [(one.action, one.cause, one.before, one.after) for one in remedies] == [
        ("learning_rate_cut", 4, 1e-3, 5e-4), ("rollback", 4, 5.0, 3.0),
    ]  # fmt: skip
    assert [line for line in lines(made) if "the weights are those of update 3" in line]
    assert made.loop.updates_done == 8
    assert made.loop.trained == 6
    assert made.published.versions[-1] == made.loop.version > Version(1, 8)


def test_numbers_that_stay_broken_end_the_run() -> None:
    """After the allowed rollbacks, with the reason."""
    made = service(30, ppo={"popart": False}, recovery={"rollback_after": 1, "most_rollbacks": 1})
    at(set(range(2, 31)), made)
    kept = copied(made.loop.position())
    made.loop.non_finite.newest = lambda _before: kept

    with pytest.raises(GaveUpError, match="not finite"):
        made.loop.run()


def test_without_replay_it_waits_and_goes_on() -> None:
    """The heartbeat states it, from a threshold on that it is paused; afterwards training goes on."""
    made = service(2, pause_after_s=0.001)
    collect, notes = made.collected, list[str | None]()

    def away() -> list[Chunk]:
        notes.append(made.loop.progress().notes)
        is_over = made.loop.updates_done > 0 or "paused" in str(notes[-1])
        made.line.away = None if is_over else Away(since=0.0, why="refused")
        return collect() if is_over else []

    made.line.requested = away
    assert made.loop.run() == "completed"

    assert notes[0] is None
    assert [line for line in lines(made) if "paused after 0.001 s: refused" in line]
    assert "replay answers again; training goes on" in lines(made)
    assert made.loop.progress().notes is None


def test_a_wait_for_room_in_replay_is_a_wait_for_a_checkpoint() -> None:
    """While the table is full of what is not acknowledged; a checkpoint is asked for at once."""
    made = service(3)
    collect, waits = made.collected, list[float]()

    def held() -> list[Chunk]:
        made.line.is_held_back = made.loop.updates_done == 1 and not waits
        return [] if made.line.is_held_back else collect()

    made.line.requested = held
    made.loop.idle = waits.append
    assert made.loop.run() == "completed"

    waiting = [name for name in made.kept.phases if name in ("queue_wait", "checkpoint")]
    assert waiting == ["queue_wait", "queue_wait", "checkpoint", "queue_wait"]
    assert waits == [math.inf]
