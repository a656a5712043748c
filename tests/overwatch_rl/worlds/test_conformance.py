"""Every world keeps the contract of `World`."""

from collections.abc import Iterator

import pytest
import torch

from overwatch_rl.types import Box, Factored, Observation, Step
from overwatch_rl.worlds import WORLDS, make
from overwatch_rl.worlds.base import World, WorldConfig
from overwatch_rl.worlds.evaluation import uniform

NUM_ENVS = 3
EPISODES = 2
MAX_STEPS = 400


SMALL: dict[str, tuple[str, dict[str, object]]] = {
    "goodhart": (":small", {"horizon": 10}),
    "gym": (":CartPole-v1", {}),
    "morphogenesis": ("", {"slots": 2}),
}
"""Part and settings with which each world is small."""


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> World:
    """Each world in turn, small."""
    part, settings = SMALL[request.param]
    return make(f"{request.param}{part}", WorldConfig(num_envs=NUM_ENVS), settings)


def test_every_world_is_tested() -> None:
    """A row of the table without a small form would be passed over."""
    assert set(SMALL) == set(WORLDS)


def steps(env: World, seed: int) -> Iterator[tuple[Observation, Step]]:
    """Random legal play until the first env has ended two episodes."""
    act = uniform(env.spec.action, torch.Generator().manual_seed(seed))
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


def test_shapes_and_types_are_as_promised(world: World) -> None:
    """Observations, masks and outcomes have the shapes and types of the spec, and are finite."""
    spec = world.spec
    names: set[str] | None = None
    for observation, step in steps(world, 1):
        assert tuple(observation.features.shape) == (NUM_ENVS, *spec.observation.shape)
        assert observation.features.dtype == spec.observation.dtype
        assert bool(observation.features.float().isfinite().all())
        if observation.mask is not None:
            assert tuple(observation.mask.shape) == (NUM_ENVS, spec.action.num_outputs)
            assert observation.mask.dtype == torch.bool
        for column, dtype in (
            (step.reward, torch.float32), (step.terminated, torch.bool), (step.truncated, torch.bool),
        ):  # fmt: skip
            assert (tuple(column.shape), column.dtype) == ((NUM_ENVS,), dtype)
        assert not bool((step.terminated & step.truncated).any())
        assert (step.final is None) is (spec.horizon is None)
        names = set(step.columns) if names is None else names
        assert set(step.columns) == names
        assert {column.shape[0] for column in step.columns.values()} <= {NUM_ENVS}


def test_every_env_always_has_a_legal_action(world: World) -> None:
    """Some operation is legal, and each legal operation has a legal choice in every head it uses."""
    action = world.spec.action
    if isinstance(action, Box):
        pytest.skip("everything in a box is legal")
    uses = torch.tensor(action.uses)
    for observation, _ in steps(world, 2):
        if observation.mask is None:
            continue
        ops, *arguments = action.unpack(observation.mask)
        assert bool(ops.any(dim=1).all())
        for number, block in enumerate(arguments, start=1):
            needed = ops & uses[None, :, number]
            assert bool((block.any(dim=2) | ~needed).all())


def test_the_next_episode_begins_by_itself(world: World) -> None:
    """After an end the observation is of a new episode, and play goes on from it."""
    last: Step | None = None
    began = 0
    for observation, step in steps(world, 3):
        if last is not None and bool(last.terminated[0] | last.truncated[0]):
            began += 1
            assert torch.equal(observation.features, last.observation.features)
        last = step

    assert began == EPISODES - 1


def test_same_seed_same_numbers(world: World) -> None:
    """Two plays of one seed are equal to the last bit; another seed is different."""
    first, again, other = (
        torch.stack(
            [
                torch.cat([step.reward, step.observation.features.flatten().float()])
                for _, step in steps(world, seed)
            ]
        )
        for seed in (4, 4, 5)
    )

    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_a_resumable_world_goes_on_as_it_would_have(world: World) -> None:
    """What was saved leads to the same steps, to the last bit; one that cannot be resumed saves nothing."""
    act = uniform(world.spec.action, torch.Generator().manual_seed(8))
    observation = world.reset(8)
    for _ in range(20):
        observation = world.step(act(observation)).observation
    if not world.spec.resumable:
        assert world.state_dict() == {}
        return
    state = {name: value.clone() for name, value in world.state_dict().items()}
    actions = [act(observation)]
    steps_taken = [world.step(actions[0])]
    for _ in range(10):
        actions.append(act(steps_taken[-1].observation))
        steps_taken.append(world.step(actions[-1]))
    again = world.load_state_dict(state)

    assert torch.equal(again.features, observation.features)
    for taken, step in zip(actions, steps_taken, strict=True):
        repeated = world.step(taken)
        assert torch.equal(repeated.reward, step.reward)
        assert torch.equal(repeated.observation.features, step.observation.features)


def test_an_illegal_action_is_named() -> None:
    """What the mask forbids raises, with the env and the words of the action."""
    world = make("morphogenesis", WorldConfig(num_envs=NUM_ENVS), {"slots": 2})
    action, observation = world.spec.action, world.reset(6)
    assert isinstance(action, Factored)
    assert observation.mask is not None
    ops, *_ = action.unpack(observation.mask)
    env_id, op = (int(entry) for entry in (~ops).nonzero()[-1])
    actions = torch.zeros(NUM_ENVS, action.num_heads, dtype=torch.int64)
    actions[env_id, 0] = op

    with pytest.raises(ValueError, match=rf"env {env_id} may not {action.heads[0].labels[op]}"):
        world.step(actions)


def test_an_unknown_world_is_refused_with_the_known_ones() -> None:
    """The error names the value and what to use."""
    with pytest.raises(ValueError, match=r"'mars' does not exist; use one of .*morphogenesis"):
        make("mars", WorldConfig())


def test_an_impossible_size_is_refused() -> None:
    """The error names the value and the range."""
    with pytest.raises(ValueError, match="envs is 0; use 1 to"):
        WorldConfig(num_envs=0)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"slot": 3}, "morphogenesis has no setting 'slot'; its settings are .*slots"),
        ({"slots": "many"}, "morphogenesis.slots is 'many'; use a whole number"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, object], error: str) -> None:
    """The error names the setting, its value and the fix."""
    with pytest.raises(ValueError, match=error):
        make("morphogenesis", WorldConfig(), settings)
