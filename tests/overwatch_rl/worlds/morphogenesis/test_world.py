"""The world's economy: what is paid, what is charged, and that growing is worth it."""

import sys

import pytest
import torch

from overwatch.catalog.stages import Stage
from overwatch_rl.types import Factored
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.evaluation import play
from overwatch_rl.worlds.morphogenesis.data import digits
from overwatch_rl.worlds.morphogenesis.hosts.mlp import MLPHosts
from overwatch_rl.worlds.morphogenesis.lifecycle import action_spec
from overwatch_rl.worlds.morphogenesis.world import (
    EPISODE_STEPS,
    FOSSIL_BONUS,
    FOSSIL_SHARE,
    RENT,
    Morphogenesis,
    MorphogenesisConfig,
)
from overwatch_rl.worlds.schedules import Schedule, always_wait


def made(envs: int, slots: int) -> Morphogenesis:
    """The world in a size."""
    return Morphogenesis(WorldConfig(num_envs=envs), MorphogenesisConfig(slots=slots))


def grower(slots: int, blueprint: int = 0, num_slots: int | None = None) -> Schedule:
    """A fixed schedule for such a world."""
    spec: Factored = action_spec(slots)
    return Schedule(spec=spec, blueprint=blueprint, num_slots=num_slots)


SIZES = MLPHosts(1, 1, digits(), torch.device("cpu")).sizes.tolist()
GROWING = {Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING}


def test_reward_is_gain_less_rent_plus_bonus() -> None:
    """Every step of a growing env adds up from what the step itself reports."""
    env, act = made(1, 2), grower(2, blueprint=1)
    observation = env.reset(1)
    accuracy = float(observation.features[0, 1])
    fossils = 0
    for _ in range(EPISODE_STEPS - 1):
        step = env.step(act(observation))
        columns = {name: column[0] for name, column in step.columns.items()}
        stages = [list(Stage)[code] for code in columns["slot_stage"].tolist()]
        share = sum(
            1.0 if stage in GROWING else FOSSIL_SHARE if stage is Stage.FOSSILISED else 0.0
            for stage in stages
        )
        new = stages.count(Stage.FOSSILISED) - fossils
        rent, metric = float(columns["rent"]), float(columns["metric"])
        assert rent == pytest.approx(RENT * SIZES[1] / SIZES[0] * share)
        paid = metric - accuracy - rent + FOSSIL_BONUS * new
        assert float(step.reward) == pytest.approx(paid, abs=1e-6)
        accuracy, observation, fossils = metric, step.observation, fossils + new

    assert fossils == 2


def test_the_end_of_an_episode_is_a_termination_that_the_policy_can_see_coming() -> None:
    """Remaining time falls evenly to its last share, then the episode terminates everywhere."""
    env = made(2, 1)
    act = always_wait(env.spec.action)
    observation = env.reset(1)
    left = []
    for number in range(EPISODE_STEPS):
        left.append(float(observation.features[0, 0]))
        step = env.step(act(observation))
        observation = step.observation
        assert bool(step.terminated.all()) is (number == EPISODE_STEPS - 1)
        assert not bool(step.truncated.any())

    assert left == pytest.approx([1 - number / EPISODE_STEPS for number in range(EPISODE_STEPS)])


def test_growing_by_a_fixed_schedule_beats_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    """The rent leaves growing worth it: by three standard errors of the difference, on the same episodes."""
    env = made(32, 3)
    waited = play(env, always_wait(env.spec.action), 7)
    grown = play(env, grower(3), 7)
    difference = grown.returns - waited.returns
    error = float(difference.std() / len(difference) ** 0.5)
    with capsys.disabled():
        sys.stdout.write(
            f"\nalways-wait {waited.mean:.3f} ± {waited.standard_error:.3f}, schedule {grown.mean:.3f} ± "
            f"{grown.standard_error:.3f}, {float(difference.mean()) / error:.1f} standard errors apart\n"
        )

    assert float(difference.mean()) >= 3 * error
    assert float(grown.fossils.double().mean()) > 1


def test_what_is_grown_never_changes_a_hosts_data() -> None:
    """Two policies that grow differently see the same hosts at the beginning of the second episode."""
    seen = []
    for kind in (0, 1):
        env, act = made(2, 2), grower(2, blueprint=kind, num_slots=1 + kind)
        observation = env.reset(5)
        for _ in range(EPISODE_STEPS):
            observation = env.step(act(observation)).observation
        seen.append(observation.features)

    assert torch.equal(*seen)


def test_a_saved_world_goes_on_as_it_would_have() -> None:
    """In the middle of an episode, to the last bit, random generators included."""
    env, act = made(2, 2), grower(2)
    observation = env.reset(5)
    for _ in range(EPISODE_STEPS + 7):
        observation = env.step(act(observation)).observation
    state = {name: value.clone() for name, value in env.state_dict().items()}
    other = made(2, 2)
    other.reset(1)
    again = other.load_state_dict(state)
    assert torch.equal(again.features, observation.features)
    for _ in range(EPISODE_STEPS):
        first, second = env.step(act(observation)), other.step(act(again))
        observation, again = first.observation, second.observation
        assert torch.equal(first.reward, second.reward)
        assert torch.equal(observation.features, again.features)


@pytest.mark.parametrize(
    ("slots", "device", "error"), [(0, "cpu", "slots is 0"), (1, "cuda", "runs on 'cpu'")]
)
def test_a_wrong_setting_is_named(slots: int, device: str, error: str) -> None:
    """With what to use instead."""
    with pytest.raises(ValueError, match=error):
        Morphogenesis(WorldConfig(num_envs=1, device=device), MorphogenesisConfig(slots=slots))
