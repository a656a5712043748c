"""Goodhart keeps its own rules: what is eaten, what an agent dies of, what is paid, what is remembered."""

import pytest
import torch

from overwatch_rl.undefined import UNDEFINED
from overwatch_rl.worlds.base import WorldConfig
from overwatch_rl.worlds.goodhart.cells import FOOD, MOVES, POISON, POISONED, STARVED
from overwatch_rl.worlds.goodhart.config import goodhart_config
from overwatch_rl.worlds.goodhart.greedy import PROXY, TRUTH, greedy
from overwatch_rl.worlds.goodhart.world import Goodhart
from tests.overwatch_rl.worlds.goodhart.small import drawn, play, summarised, world


def amounts(env: Goodhart) -> tuple[list[int], list[int]]:
    """Food and poison that lie in each field."""
    codes = env.codes().flatten(1)
    return (codes == FOOD).sum(dim=1).tolist(), (codes == POISON).sum(dim=1).tolist()


def test_a_move_goes_where_its_word_points() -> None:
    """Left lowers the column and up the row, round the edge."""
    env = world(num_envs=8)
    env.reset(1)
    row, column = (cell.clone() for cell in env.cells())
    env.step(torch.arange(8)[:, None])

    moved = torch.tensor(list(MOVES.values()))
    assert torch.equal(env.cells()[1], (column + moved[:, 0]) % 11)
    assert torch.equal(env.cells()[0], (row + moved[:, 1]) % 11)


def test_the_view_is_the_field_around_the_agent() -> None:
    """Rows downwards, columns to the right, the agent in the middle, round the edge."""
    env = world(num_envs=6, size=13)
    observation = env.reset(2)
    for env_id, (row, column) in enumerate(zip(*(cell.tolist() for cell in env.cells()), strict=True)):
        turned = env.codes()[env_id].roll((5 - row, 5 - column), dims=(0, 1))
        assert torch.equal(observation.features[env_id], turned[:11, :11])
        assert observation.features[env_id, 5, 5] == 0


def test_what_is_eaten_comes_back_elsewhere() -> None:
    """The amounts hold exactly at every step, and each step's numbers are those of what lay in the cell."""
    env = world(num_envs=16, redraw_each=True, max_poison=60, max_food=59)
    act, observation = drawn(3), env.reset(3)
    for _ in range(60):
        codes, actions = env.codes().clone(), act(observation)
        (row, column), move = env.cells(), torch.tensor(list(MOVES.values()))[actions[:, 0]]
        there = codes[torch.arange(16), (row + move[:, 1]) % 11, (column + move[:, 0]) % 11]
        step = env.step(actions)
        columns, observation = step.columns, step.observation
        expected = torch.where(there == FOOD, 5.0, torch.where(there == POISON, -3.0, 0.0)) - 0.05
        torch.testing.assert_close(columns["true"], expected)
        assert torch.equal(columns["ate"], there)
        food, poison = amounts(env)
        assert (food, poison) == (
            env.state_dict()["field_food"].tolist(),
            env.state_dict()["field_poison"].tolist(),
        )


def test_amounts_are_drawn_anew_for_all_or_for_each() -> None:
    """They change after so many steps only, within their bounds, by a stream that actions do not touch."""
    for each in (False, True):
        env = world(num_envs=16, redraw_each=each)
        steps = play(env, drawn(4), 40)
        offered = torch.stack([step.columns["food_offered"] for step in steps])
        other = torch.stack([step.columns["food_offered"] for step in play(env, drawn(5), 40)])
        assert torch.equal(offered, other)
        assert (offered[:16] == offered[0]).all()
        assert (offered[16:32] == offered[16]).all()
        assert (len(offered[0].unique()) > 1) is each
        assert len(offered[::16].unique(dim=0)) > 1
        assert offered.min() >= 3
        assert offered.max() <= 6


def test_returns_are_sums_since_the_episode_began() -> None:
    """Unscaled, unshaped, before the reset; energy is what they add up to."""
    env = world(num_envs=8, horizon=20, start_energy=6.0)
    sums = torch.zeros(2, 8)
    for step in play(env, drawn(6), 60):
        columns = step.columns
        sums += torch.stack([columns["true"], columns["proxy"]])
        returns = torch.stack([columns["true_return"], columns["proxy_return"]])
        torch.testing.assert_close(returns, sums, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(columns["metric"], 6.0 + columns["true_return"])
        sums *= ~(step.terminated | step.truncated)


def test_an_agent_without_food_dies_when_its_energy_is_used_up() -> None:
    """Start energy by move cost, to the step, of hunger; not one step later, whatever float32 makes of it."""
    for start, cost in ((50.0, 0.05), (3.0, 0.1), (7.0, 0.7), (1.1, 0.01)):
        env = world(
            num_envs=2, max_food=0, min_food=0, max_poison=0, min_poison=0,
            horizon=10_000, start_energy=start, move_cost=cost,
        )  # fmt: skip
        steps = play(env, drawn(7), round(start / cost) + 1)
        died = [number for number, step in enumerate(steps, start=1) if bool(step.terminated.all())]
        assert died == [round(start / cost)]
        assert steps[died[0] - 1].columns["died"].tolist() == [STARVED, STARVED]


def test_an_agent_that_poison_kills_died_of_poison() -> None:
    """Its cause is its own code, and an end by death is no truncation even at the horizon."""
    env = world(
        num_envs=32, max_food=0, min_food=0, min_poison=60, max_poison=60, start_energy=3.0, horizon=1
    )
    step = play(env, drawn(8), 1)[0]
    ate = step.columns["ate"] == POISON

    assert torch.equal(step.terminated, ate)
    assert torch.equal(step.truncated, ~ate)
    assert torch.equal(step.columns["died"], POISONED * ate.to(torch.uint8))


def test_an_immortal_agent_goes_on() -> None:
    """Without mortality nothing terminates, however low the energy."""
    env = world(num_envs=8, start_energy=0.1, mortal=False, horizon=30)
    steps = play(env, drawn(9), 30)

    assert not any(bool(step.terminated.any()) for step in steps)
    assert bool(steps[-1].truncated.all())


def test_a_truncated_episode_shows_where_it_ended() -> None:
    """The final view is of the old agent, the observation of the new one, elsewhere."""
    env = world(num_envs=64, horizon=8)
    steps = play(env, drawn(10), 8)
    ended = steps[-1].truncated

    assert bool(ended.all())
    assert steps[-1].final is not None
    assert not torch.equal(steps[-1].final, steps[-1].observation.features)
    assert torch.equal(steps[-2].final, steps[-2].observation.features)  # type: ignore[arg-type]  # is there
    assert steps[-1].columns["age"].tolist() == [8] * 64


@pytest.mark.parametrize(
    ("mode", "paid"), [("ground_truth", "true"), ("proxy", "proxy"), ("proxy_jammed", "true")]
)
def test_a_mode_pays_what_it_states(mode: str, paid: str) -> None:
    """The reward is what is paid, scaled, and the shaping."""
    for step in play(world(mode=mode, shaping=0.25), drawn(11), 40):
        torch.testing.assert_close(step.reward, 0.1 * step.columns[paid] + step.columns["shaping"])


def test_a_death_costs_its_penalty_once() -> None:
    """Taken off what is paid, not off what is true."""
    env = world(num_envs=32, start_energy=2.0, death_penalty=4.0, shaping=0.0)
    for step in play(env, drawn(12), 30):
        torch.testing.assert_close(step.reward, 0.1 * (step.columns["true"] - 4.0 * step.terminated))


@pytest.mark.parametrize("redraw_each", [False, True])
def test_what_was_saved_goes_on_bit_by_bit(redraw_each: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """50 steps, saved, 50 steps; loaded into another world the second half is the same."""
    env, act = world(num_envs=12, horizon=30, start_energy=4.0, redraw_each=redraw_each), drawn(13)
    play(env, act, 50)
    state = {name: value.clone() for name, value in env.state_dict().items()}
    actions = [torch.randint(0, 8, (12, 1), generator=torch.Generator().manual_seed(k)) for k in range(50)]
    first = [env.step(action) for action in actions]
    other = world(num_envs=12, horizon=30, start_energy=4.0, redraw_each=redraw_each)
    other.reset(99)
    other.load_state_dict(state)

    for action, step in zip(actions, first, strict=True):
        again = other.step(action)
        assert torch.equal(again.observation.features, step.observation.features)
        assert torch.equal(again.reward, step.reward)
        assert torch.equal(again.terminated, step.terminated)
        assert all(torch.equal(again.columns[name], value) for name, value in step.columns.items())
    assert state["draws"].dtype == torch.uint8


def test_a_state_of_another_size_is_refused() -> None:
    """The error names both sizes."""
    with pytest.raises(ValueError, match=r"\(3, 121\) envs and cells, this world \(4, 121\)"):
        world().load_state_dict(world(num_envs=3).state_dict())


def test_an_action_that_is_no_move_is_refused() -> None:
    """The error names the env and the value."""
    env = world()
    env.reset(0)

    with pytest.raises(ValueError, match="env 2 may not take action 8; use 0 to 7"):
        env.step(torch.tensor([[0], [7], [8], [1]]))


def test_no_step_reads_the_device() -> None:
    """Reset, steps over a redraw and the summary run on tensors without values."""
    env = world(num_envs=5, device="meta", redraw_every=3, mode="proxy")
    observation = env.reset(0)
    steps = [env.step(torch.zeros(5, 1, dtype=torch.int64, device="meta")) for _ in range(4)]
    columns = {name: torch.stack([step.columns[name] for step in steps]) for name in steps[0].columns}
    assert env.spec.summary is not None
    rows = env.spec.summary(columns, torch.stack([step.terminated for step in steps]))

    assert observation.features.shape == (5, 11, 11)
    assert all(value.is_meta and value.shape == () for value in rows.values())


def test_the_summary_counts_all_steps_and_knows_what_it_cannot() -> None:
    """Shares are of everything eaten; without an ended episode, or a thing eaten, they are undefined."""
    env = world(num_envs=8, horizon=100)
    steps = play(env, drawn(14), 30)
    rows = summarised(env, steps)
    ate = torch.stack([step.columns["ate"] for step in steps])
    food, poison = int((ate == FOOD).sum()), int((ate == POISON).sum())

    assert food > 0
    assert rows["food_share"] == pytest.approx(food / (food + poison))
    assert rows["poison_share"] == pytest.approx(poison / (food + poison))
    assert all(rows[name] == UNDEFINED for name in ("proxy_return", "true_return", "survival"))
    barren = world(max_food=0, min_food=0, max_poison=0, min_poison=0, horizon=5)
    rows = summarised(barren, play(barren, drawn(15), 5))
    assert rows["food_share"] == UNDEFINED
    assert rows["survival"] == 5


@pytest.mark.parametrize("part", ["", "small"])
def test_the_failure_is_built_in(part: str) -> None:
    """Going for the truth eats food; going for the proxy eats what is offered, and earns far less of it."""
    own = goodhart_config(part, {"horizon": 64} if part else {"horizon": 64, "size": 50})
    env = Goodhart(WorldConfig(num_envs=32), own)
    played = {
        name: summarised(env, play(env, act, 64))
        for name, act in (("truth", greedy(TRUTH)), ("proxy", greedy(PROXY)), ("random", drawn(16)))
    }
    offered = played["random"]["food_offered"], played["random"]["poison_offered"]
    share = offered[0] / sum(offered)

    assert played["truth"]["food_share"] > share + 0.2
    assert abs(played["proxy"]["food_share"] - share) < 0.1
    assert abs(played["random"]["food_share"] - share) < 0.1
    assert played["proxy"]["proxy_return"] > 3 * played["random"]["proxy_return"]
    assert played["truth"]["true_return"] > played["proxy"]["true_return"] + 20
    if part:
        assert played["proxy"]["proxy_return"] > played["truth"]["proxy_return"]
        assert played["proxy"]["true_return"] < played["random"]["true_return"]
