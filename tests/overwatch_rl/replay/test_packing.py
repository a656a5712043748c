"""The origin's transitions become chunks, and nothing is made up."""

import numpy as np
import pytest

from overwatch_rl.protos.replay.v1.replay_pb2 import Transition
from overwatch_rl.replay.chunk import Column, Encoding
from overwatch_rl.replay.packing import pack

ENCODING = Encoding(
    (
        Column("observation", "int32"),
        Column("action", "uint8"),
        Column("reward", "float32"),
        Column("log_probs", "float32"),
        Column("final_observation", "int32", per_step=False),
    )
)


def step(number: int, **changes: object) -> Transition:
    """Step k of an episode: observation k, action k, reward k / 2."""
    fields = {
        "env_id": "e",
        "episode_id": "12",
        "step_number": number,
        "observation": np.int32(number).tobytes(),
        "action": bytes([number]),
        "next_observation": np.int32(number + 1).tobytes(),
        "reward": number / 2,
        "metadata": {"log_probs": "-0.5", "lineage": "2", "version": "9"},
    }
    return Transition(**(fields | changes))  # type: ignore[arg-type]


def test_consecutive_steps_are_one_chunk() -> None:
    """Its header is theirs, its columns are theirs in order, the last next observation is its final one."""
    (chunk,) = pack([step(3), step(4), step(5)], ENCODING)

    assert (chunk.run, chunk.env, chunk.episode) == ("default", "e", 12)
    assert (chunk.first_step, chunk.steps, chunk.lineage, chunk.version, chunk.end) == (3, 3, 2, 9, "cut")
    columns = ENCODING.decode(chunk)
    assert columns["observation"].tolist() == [3, 4, 5]
    assert columns["action"].tolist() == [3, 4, 5]
    assert columns["reward"].tolist() == [1.5, 2.0, 2.5]
    assert columns["log_probs"].tolist() == [-0.5] * 3
    assert columns["final_observation"] == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"env_id": "f"},
        {"episode_id": "13"},
        {"step_number": 9},
        {"metadata": {"log_probs": "0", "lineage": "2", "version": "10"}},
        {"observation": np.int32(77).tobytes()},
    ],
)
def test_another_env_episode_version_or_observation_begins_a_chunk(changes: dict[str, object]) -> None:
    """Each alone."""
    first, second = pack([step(0), step(1, **changes)], ENCODING)

    assert (first.steps, second.steps) == (1, 1)


def test_the_end_of_an_episode_ends_a_chunk() -> None:
    """Terminated has no final observation, truncated has one."""
    cut = {"log_probs": "0", "truncated": "true"}
    ended, truncated, rest = pack([step(0, done=True), step(1, done=True, metadata=cut), step(2)], ENCODING)

    assert [ended.end, truncated.end, rest.end] == ["terminated", "truncated", "cut"]
    assert "final_observation" not in ended.columns
    assert ENCODING.decode(truncated)["final_observation"] == 2


def test_an_episode_may_have_any_name() -> None:
    """The same name is the same number, another one another."""
    numbers = [
        pack([step(0, episode_id=name)], ENCODING)[0].episode for name in ("x", "x", "y", "", "9" * 30)
    ]

    assert numbers[0] == numbers[1]
    assert len(set(numbers)) == 4
    assert all(0 <= number < 1 << 63 for number in numbers)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metadata": {}}, r"transitions\[1\].metadata.log_probs is missing"),
        ({"metadata": {"log_probs": "low"}}, r"transitions\[1\].metadata.log_probs is 'low', no float32"),
        ({"next_observation": b"1"}, r"transitions\[1\].next_observation has 1 bytes; int32 \(\) has 4"),
        ({"state": b"1"}, r"transitions\[1\].state is set; tables keep observations, so leave it empty"),
        ({"observation": b"1"}, r"transitions\[1\].observation has 1 bytes; int32 \(\) has 4"),
        ({"metadata": {"log_probs": "0", "version": "-1"}}, r"transitions\[1\].metadata.version is '-1'"),
        (
            {"metadata": {"log_probs": "0", "truncated": "yes"}},
            r"transitions\[1\].metadata.truncated is 'yes'",
        ),
    ],
)
def test_what_is_missing_is_named_by_its_path(changes: dict[str, object], expected: str) -> None:
    """Nothing is filled in."""
    with pytest.raises(ValueError, match=expected):
        pack([step(0), step(1, **changes)], ENCODING)
