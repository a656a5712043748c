"""Chunks put together again: what is trained is what was done, in order, once."""

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch_rl.algorithms.ppo import PPOConfig
from overwatch_rl.learner.ancestry import Age
from overwatch_rl.learner.batches import Batches, Limits, check_encoding
from overwatch_rl.learner.ledger import Ledger
from overwatch_rl.replay.chunk import Chunk, Column, Encoding, encode
from overwatch_rl.training.experience import encoding_of
from overwatch_rl.types import Rollout, WorldSpec
from tests.overwatch_rl.algorithms.small import MOVES, VECTOR, world_spec
from tests.overwatch_rl.learner.whole import Whole, alone, same, world

WORLDS = {
    "goodhart:small": {"horizon": "10"},  # truncated within a rollout, and at its end
    "morphogenesis": {"slots": 1},  # masks and arguments of actions
    "gym:CartPole-v1": {},
}
SPEC = world_spec(MOVES, VECTOR)
ENCODING = encoding_of(SPEC, has_mask=False)


@pytest.mark.parametrize("name", WORLDS)
def test_a_training_by_chunks_is_the_training_in_one_process(name: str) -> None:
    """Three updates with popart: weights, moments and generators are equal to the bit."""
    config = PPOConfig(popart=True, epochs=2)
    by_chunks = Whole(world(name, dict(WORLDS[name])), config, seed=3).train(3)

    assert same(by_chunks, alone(world(name, dict(WORLDS[name])), config, 3, 3))


def recut(whole: Chunk, encoding: Encoding, most: int) -> list[Chunk]:
    """The same steps from a producer whose chunks have at most so many."""
    columns = encoding.decode(whole)
    found = []
    for start in range(0, whole.steps, most):
        stop = min(start + most, whole.steps)
        part = {name: column[start:stop] if encoding.by_name[name].per_step else column
                for name, column in columns.items()}  # fmt: skip
        if stop < whole.steps:
            part["final_observation"] = columns["observation"][stop]
        own = {
            "first_step": whole.first_step + start,
            "steps": stop - start,
            "columns": encode(part, encoding),
        }
        end = whole.end if stop == whole.steps else "cut"
        found.append(msgspec.structs.replace(whole, end=end, **own))
    return found


@settings(deadline=None)
@given(horizon=st.integers(2, 30), steps=st.integers(4, 40), seed=st.integers(0, 99), most=st.integers(1, 40))
def test_any_rollout_comes_back_equal(horizon: int, steps: int, seed: int, most: int) -> None:
    """Wherever episodes and chunks end, each column that is learned from and each estimate is as before."""
    made = Whole(world("goodhart:small", {"horizon": str(horizon)}), PPOConfig(epochs=1), seed, steps=steps)
    made.change = lambda chunks: [part for one in chunks for part in recut(one, made.encoding, most)]
    kept: list[Rollout] = []
    made.train(2, kept.append)  # type: ignore[arg-type]  # a rollout
    own = made.collector.rollout()
    last = kept[-1]

    for name in ("features", "actions", "log_probs", "values", "rewards", "terminated", "truncated"):
        assert torch.equal(getattr(last, name), getattr(own, name)), name
    found, wanted = made.algorithm.prepare(last), made.algorithm.prepare(own)
    assert torch.equal(found.advantages, wanted.advantages)
    assert torch.equal(found.returns, wanted.returns)


def chunk(
    env: str = "0/0", first: int = 0, steps: int = 3, *, end: str = "cut", version: int = 0, without: str = ""
) -> Chunk:
    """Steps whose reward is their number in the episode."""
    numbers = np.arange(first, first + steps, dtype=np.float32)
    columns = {
        "observation": np.repeat(numbers[:, None], 4, axis=1),
        "action": np.zeros((steps, 1), np.int64),
        "log_probs": np.full((steps, 1), -0.5, np.float32),
        "value": numbers / 10,
        "reward": numbers,
        "final_observation": np.full(4, first + steps, np.float32),
    }
    if end == "terminated":
        del columns["final_observation"]
    columns.pop(without, None)
    return Chunk(
        run="r", env=env, episode=0, first_step=first, steps=steps, lineage=1, version=version,
        end=end, columns=encode(columns, ENCODING),  # type: ignore[arg-type]  # one of three words
    )  # fmt: skip


class Kept:
    """Batches of 4 steps in 2 lanes, and what they lost."""

    def __init__(self, spec: WorldSpec = SPEC, **limits: object) -> None:
        self.updates = 0
        self.lost: list[tuple[str, int, str]] = []
        self.ledger = Ledger()
        self._leases = 0
        self.batches = Batches(
            spec,
            Limits(steps=4, lanes=2, **limits),  # type: ignore[arg-type]  # of the tests
            lambda version: Age(self.updates - version.number, is_abandoned=version.lineage > 1),
            lambda loss, steps, why: self.lost.append((loss, steps, why)),
        )

    def add(self, *chunks: Chunk) -> None:
        """A lease of its own."""
        self._leases += 1
        self.batches.add(ENCODING, chunks, self._leases, self.ledger)


def test_a_lane_ends_within_a_chunk() -> None:
    """The rest begins the next lane of that environment; a border within an episode ends nothing."""
    kept = Kept()
    kept.add(chunk("a", 0, 3), chunk("a", 3, 6))
    made = kept.batches.take()

    assert made is not None
    assert made.rollout.rewards.T.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert not made.rollout.truncated.any()
    assert made.rollout.final is None or bool((made.rollout.final_at == 4).all())
    assert made.rollout.last.features[:, 0].tolist() == [4.0, 8.0]
    assert kept.batches.steps == 1


def test_steps_that_are_missing_within_an_episode_cut_it() -> None:
    """A chunk between two others was refused: the observation after the first one continues its return."""
    kept = Kept()
    kept.add(chunk("a", 0, 3), chunk("a", 3, 2, without="reward"), chunk("a", 5, 1), chunk("b", 0, 4))
    made = kept.batches.take()

    assert made is not None
    assert made.rollout.rewards.T.tolist() == [[0, 1, 2, 5], [0, 1, 2, 3]]
    assert made.rollout.truncated.T.tolist() == [[False, False, True, False], [False] * 4]
    assert made.rollout.final is not None
    assert made.rollout.final[0, 0].tolist() == [3.0] * 4


def test_the_task_ended_is_no_cut() -> None:
    """Nothing continues it, and the next chunk is another episode's."""
    kept = Kept()
    kept.add(chunk("a", 0, 2, end="terminated"), chunk("a", 0, 2, end="truncated"), chunk("b", 0, 4))
    made = kept.batches.take()

    assert made is not None
    assert made.rollout.terminated.T.tolist() == [[False, True, False, False], [False] * 4]
    assert made.rollout.truncated.T.tolist() == [[False, False, False, True], [False] * 4]
    assert made.rollout.final_at is not None
    assert made.rollout.final_at.tolist() == [[3, 4]]


def test_environments_are_not_mixed() -> None:
    """Chunks of two that come alternately are lanes of one each."""
    kept = Kept()
    kept.add(chunk("a", 0, 2), chunk("b", 10, 2))
    assert kept.batches.take() is None
    kept.add(chunk("b", 12, 2), chunk("a", 2, 2))
    made = kept.batches.take()

    assert made is not None
    assert made.rollout.rewards.T.tolist() == [[10, 11, 12, 13], [0, 1, 2, 3]]


@pytest.mark.parametrize("name", ["log_probs", "value", "reward", "observation"])
def test_what_is_missing_is_refused_by_name(name: str) -> None:
    """It is counted and not trained, never read as 0; what else came is trained."""
    kept = Kept()
    kept.add(chunk("a", 0, 4, without=name), chunk("b", 0, 4), chunk("c", 0, 4))
    made = kept.batches.take()

    assert made is not None
    assert [lane[0].chunk.env for lane in made.lanes] == ["b", "c"]
    [(loss, steps, why)] = kept.lost
    assert (loss, steps) == ("refused", 4)
    assert f"'{name}'" in why


def test_a_number_that_is_none_is_refused_by_its_path() -> None:
    """The step is named."""
    kept = Kept()
    good = chunk("a", 0, 4)
    value = np.array([0, 1, np.nan, 3], np.float32)
    bad = msgspec.structs.replace(good, columns={**good.columns, "value": value.tobytes()})
    kept.add(bad)

    assert kept.lost == [("refused", 4, "a.value[2] is nan: not finite")]


def test_what_is_too_old_is_dropped_and_counted() -> None:
    """The rest of its lane waits for more; ages are a column."""
    kept = Kept(max_age=1)
    kept.updates = 2
    kept.add(chunk("a", 0, 2, version=0), chunk("a", 2, 2, version=1), chunk("b", 0, 4, version=2))
    assert kept.batches.take() is None
    kept.add(chunk("a", 4, 2, version=2))
    made = kept.batches.take()

    assert kept.lost == [("late", 2, "version 001-00000000")]
    assert made is not None
    assert made.rollout.age is not None
    assert made.rollout.age.T.tolist() == [[0, 0, 0, 0], [1, 1, 0, 0]]


def test_what_waits_grows_old() -> None:
    """Steps of an environment that is gone do not wait for ever."""
    kept = Kept(max_age=1)
    kept.add(chunk("gone", 0, 3))
    kept.updates = 2

    assert kept.batches.take() is None
    assert kept.lost == [("late", 3, "version 001-00000000")]
    assert kept.batches.steps == 0
    assert kept.ledger.cursor == 1


def test_a_table_of_other_columns_is_refused_by_the_column() -> None:
    """Before anything is trained."""
    without = Encoding(tuple(one for one in ENCODING.columns if one.name != "log_probs"))
    other = Encoding(
        tuple(Column("action", "float32", (1,)) if one.name == "action" else one for one in ENCODING.columns)
    )

    with pytest.raises(ValueError, match=r"encoding\.log_probs is missing"):
        check_encoding(without, ENCODING)
    with pytest.raises(ValueError, match=r"encoding\.action is .*float32.*this learner reads .*int64"):
        check_encoding(other, ENCODING)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 7)), min_size=1, max_size=30),
    st.integers(1, 29),
    st.data(),
)
def test_every_step_is_trained_once_through_a_crash(
    lengths: list[tuple[str, int]], cut: int, data: st.DataObject
) -> None:
    """A learner that goes on from its cursor trains what is left and nothing twice, wherever leases end."""
    numbers = dict.fromkeys("abc", 0)
    chunks = []
    for env, steps in lengths:
        chunks.append(chunk(env, numbers[env], steps))
        numbers[env] += steps
    crash = data.draw(st.integers(0, len(chunks)))
    first, trained = Kept(), list[tuple[str, int]]()
    at = 0
    while at < crash:
        first.add(*chunks[at : min(at + cut, crash)])
        at = min(at + cut, crash)
        trained += taken(first)
    leased = [chunks[start : min(start + cut, crash)] for start in range(0, crash, cut)]
    again = [one for lease in leased[first.ledger.cursor :] for one in lease]
    second = Kept()
    second.ledger = Ledger(first.ledger.cursor, first.ledger.used)
    second._leases = 100
    second.add(*again, *chunks[crash:])
    trained += taken(second)

    assert len(trained) == len(set(trained))
    left = sum(numbers.values()) - len(trained)
    assert left == second.batches.steps


def taken(kept: Kept) -> list[tuple[str, int]]:
    """Train what there is; the steps."""
    found = []
    while (made := kept.batches.take()) is not None:
        made.use()
        for lane in made.lanes:
            for part in lane:
                found += [
                    (part.chunk.env, part.chunk.first_step + step) for step in range(part.start, part.stop)
                ]
    return found
