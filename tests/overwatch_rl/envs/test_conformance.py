"""Every world keeps the contract of `VecEnv`."""

from collections.abc import Iterator

import pytest
import torch
from overwatch_rl.envs import ENVS, make
from overwatch_rl.envs.base import VecEnv, WorldConfig
from overwatch_rl.envs.schedules import uniform

from overwatch_rl.types import Observation, Step

NUM_ENVS = 3
EPISODES = 2
MAX_STEPS = 400


@pytest.fixture(params=sorted(ENVS))
def env(request: pytest.FixtureRequest) -> VecEnv:
    """Each world in turn, small."""
    return make(request.param, WorldConfig(num_envs=NUM_ENVS, num_slots=2))


def steps(env: VecEnv, seed: int) -> Iterator[tuple[Observation, Step]]:
    """Random legal play until the first env has ended two episodes."""
    act = uniform(env.action_spec, torch.Generator().manual_seed(seed))
    observation = env.reset(seed)
    ended = 0
    for _ in range(MAX_STEPS):
        step = env.step(act(observation))
        yield observation, step
        observation = step.observation
        ended += int(step.terminated[0] | step.truncated[0])
        if ended == EPISODES:
            return
    pytest.fail(f"no two episodes ended within {MAX_STEPS} steps")


def test_shapes_and_types_are_as_promised(env: VecEnv) -> None:
    """Observations, masks and outcomes have the shapes and types of the contract, and are finite."""
    rows = {(NUM_ENVS, env.num_features), (NUM_ENVS, env.action_spec.num_logits)}
    for observation, step in steps(env, 1):
        assert {tuple(observation.features.shape), tuple(observation.mask.shape)} == rows
        assert (observation.features.dtype, observation.mask.dtype) == (torch.float32, torch.bool)
        assert bool(observation.features.isfinite().all())
        for column, dtype in (
            (step.reward, torch.float32), (step.metric, torch.float32),
            (step.terminated, torch.bool), (step.truncated, torch.bool),
        ):  # fmt: skip
            assert (tuple(column.shape), column.dtype) == ((NUM_ENVS,), dtype)
        assert not bool((step.terminated & step.truncated).any())


def test_every_env_always_has_a_legal_action(env: VecEnv) -> None:
    """Some operation is legal, and each legal operation has a legal choice in every head it uses."""
    uses = torch.tensor(env.action_spec.uses)
    for observation, _ in steps(env, 2):
        ops, *arguments = env.action_spec.unpack(observation.mask)
        assert bool(ops.any(dim=1).all())
        for number, block in enumerate(arguments, start=1):
            needed = ops & uses[None, :, number]
            assert bool((block.any(dim=2) | ~needed).all())


def test_the_next_episode_begins_by_itself(env: VecEnv) -> None:
    """After an end the observation is of a new episode, and its first differs from its last."""
    last: Step | None = None
    began = 0
    for observation, step in steps(env, 3):
        if last is not None and bool(last.terminated[0] | last.truncated[0]):
            began += 1
            assert torch.equal(observation.features, last.observation.features)
        last = step

    assert began == EPISODES - 1


def test_same_seed_same_numbers(env: VecEnv) -> None:
    """Two plays of one seed are equal to the last bit; another seed is different."""
    first, again, other = (
        torch.stack([torch.cat([step.reward, step.metric]) for _, step in steps(env, seed)])
        for seed in (4, 4, 5)
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_an_illegal_action_is_named(env: VecEnv) -> None:
    """What the mask forbids raises, with the env and the words of the action."""
    observation = env.reset(6)
    ops, *_ = env.action_spec.unpack(observation.mask)
    forbidden = (~ops).nonzero()
    env_id, op = (int(entry) for entry in forbidden[-1])
    actions = torch.zeros(NUM_ENVS, env.action_spec.num_heads, dtype=torch.int64)
    actions[env_id, 0] = op

    with pytest.raises(ValueError, match=rf"env {env_id} may not {env.action_spec.heads[0].labels[op]}"):
        env.step(actions)


def test_an_unknown_world_is_refused_with_the_known_ones() -> None:
    """The error names the value and what to use."""
    with pytest.raises(ValueError, match=r"'mars' does not exist; use one of .*morphogenesis"):
        make("mars", WorldConfig())


@pytest.mark.parametrize(
    ("envs", "slots", "said"), [(0, 1, "envs is 0"), (1, 0, "slots is 0"), (1, 65, "slots is 65")]
)
def test_impossible_sizes_are_refused(envs: int, slots: int, said: str) -> None:
    """The error names the value and the range."""
    with pytest.raises(ValueError, match=f"{said}; use 1 to"):
        WorldConfig(num_envs=envs, num_slots=slots)
