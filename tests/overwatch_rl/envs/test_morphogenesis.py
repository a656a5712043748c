"""The world's economy: what is paid, what is charged, and that growing is worth it."""

import sys

import pytest
import torch
from overwatch_rl.envs.base import WorldConfig
from overwatch_rl.envs.blueprints import BLUEPRINTS, relative_size
from overwatch_rl.envs.evaluation import play
from overwatch_rl.envs.morphogenesis import EPISODE_STEPS, FOSSIL_BONUS, FOSSIL_SHARE, RENT, Morphogenesis
from overwatch_rl.envs.schedules import Schedule, always_wait

from overwatch.catalog.stages import Stage

GROWING = {Stage.GERMINATED, Stage.TRAINING, Stage.BLENDING, Stage.HOLDING}


def test_reward_is_gain_less_rent_plus_bonus() -> None:
    """Every step of a growing env adds up from what the step itself reports."""
    env = Morphogenesis(WorldConfig(num_envs=1, num_slots=2))
    act = Schedule(spec=env.action_spec, blueprint=1)
    observation = env.reset(1)
    accuracy = float(observation.features[0, 1])
    fossils = 0
    for _ in range(EPISODE_STEPS - 1):
        step = env.step(act(observation))
        assert step.slots is not None
        assert step.rent is not None
        stages = [list(Stage)[code] for code in step.slots.stage[0].tolist()]
        share = sum(
            1.0 if stage in GROWING else FOSSIL_SHARE if stage is Stage.FOSSILISED else 0.0
            for stage in stages
        )
        new = sum(change.after is Stage.FOSSILISED for change in step.stage_changes)
        assert float(step.rent) == pytest.approx(RENT * relative_size(BLUEPRINTS[1]) * share)
        paid = float(step.metric) - accuracy - float(step.rent) + FOSSIL_BONUS * new
        assert float(step.reward) == pytest.approx(paid, abs=1e-6)
        accuracy, observation, fossils = float(step.metric), step.observation, fossils + new

    assert fossils == 2


def test_the_end_of_an_episode_is_a_termination_that_the_policy_can_see_coming() -> None:
    """Remaining time falls evenly to its last share, then the episode terminates everywhere."""
    env = Morphogenesis(WorldConfig(num_envs=2, num_slots=1))
    act = always_wait(env.action_spec)
    observation = env.reset(1)
    left = []
    for number in range(EPISODE_STEPS):
        left.append(float(observation.features[0, 0]))
        step = env.step(act(observation))
        observation = step.observation
        assert bool(step.terminated.all()) is (number == EPISODE_STEPS - 1)
        assert not bool(step.truncated.any())

    assert left == pytest.approx([1 - number / EPISODE_STEPS for number in range(EPISODE_STEPS)])


def test_blueprints_differ_in_size_and_price() -> None:
    """At least three, each with its own id, code and size."""
    assert len(BLUEPRINTS) >= 3
    for field in ("id", "code", "num_parameters"):
        assert len({getattr(blueprint, field) for blueprint in BLUEPRINTS}) == len(BLUEPRINTS)
    assert all(len(blueprint.code) == 2 for blueprint in BLUEPRINTS)


def test_growing_by_a_fixed_schedule_beats_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    """The rent leaves growing worth it: by three standard errors of the difference, on the same episodes."""
    env = Morphogenesis(WorldConfig(num_envs=32, num_slots=3))
    waited = play(env, always_wait(env.action_spec), 7)
    grown = play(env, Schedule(spec=env.action_spec), 7)
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
        env = Morphogenesis(WorldConfig(num_envs=2, num_slots=2))
        act = Schedule(spec=env.action_spec, blueprint=kind, num_slots=1 + kind)
        observation = env.reset(5)
        for _ in range(EPISODE_STEPS):
            observation = env.step(act(observation)).observation
        seen.append(observation.features)

    assert torch.equal(*seen)
