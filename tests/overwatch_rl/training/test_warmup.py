"""The plan is chosen by measurement, within its budget, and nothing of the run changes."""

from collections.abc import Iterator

import pytest
import torch

from overwatch_rl.algorithms.common import Batch, Plan
from overwatch_rl.algorithms.ppo import PPO, PPOConfig
from overwatch_rl.training import warmup
from overwatch_rl.training.warmup import choose, grid, words
from tests.overwatch_rl.algorithms.small import CODES, MOVES, batch, copied, ppo, same, world_spec

CONV = world_spec(MOVES, CODES)
FOREVER = 1e9


class Clock:
    """Time that passes as each plan costs; `rows` are those of every pass."""

    def __init__(self, costs: dict[Plan, float], default: float = 1e-3) -> None:
        self.now = 0.0
        self._costs = costs
        self._default = default

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def spend(self, plan: Plan, rows: int) -> None:
        """What a pass takes."""
        self.now += rows * self._costs.get(plan, self._default)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Plan, int]]]:
    """Every pass of any twin: its plan and its rows, at the price of the clock in `clock`."""
    passes: list[tuple[Plan, int]] = []

    def probe(self: PPO, rows: Batch) -> None:
        passes.append((self.plan, len(rows)))
        if clock:
            clock[0].spend(self.plan, len(rows))

    monkeypatch.setattr(PPO, "benchmark_backward", probe)
    yield passes
    clock.clear()


clock: list[Clock] = []


def test_a_search_leaves_every_tensor_as_it_was() -> None:
    """Policy, moments, generators, gradients, global draws: to the bit; and the next update too."""
    config = PPOConfig(network="conv", popart=True)
    made, other = (ppo(config, spec=CONV) for _ in range(2))
    for one in (made, other):
        one.update(batch(one, CONV, seed=1))
    rows = batch(made, CONV, seed=2, envs=32)
    batch(other, CONV, seed=2, envs=32)
    before, drawn = copied(made.state_dict()), torch.get_rng_state()
    gradients = [None if one.grad is None else one.grad.clone() for one in made._parameters]
    strides = [one.stride() for one in made._parameters]
    columns = copied({name: getattr(rows, name) for name in ("features", "advantages", "returns")})
    ticks = iter(range(1_000_000))
    tuned = choose(made, rows, FOREVER, lambda: float(next(ticks)))

    assert len(tuned.table) == len(grid("cpu", 256, has_images=True)) == 12
    assert all(one.row_s is not None for one in tuned.table)
    assert same(made.state_dict(), before)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert made.plan == Plan()
    assert [one.stride() for one in made._parameters] == strides
    assert same({name: getattr(rows, name) for name in columns}, columns)
    for parameter, gradient in zip(made._parameters, gradients, strict=True):
        assert gradient is not None
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)
    made.update(rows)
    other.update(rows)
    assert same(made.state_dict(), other.state_dict())


def test_the_fastest_is_chosen(tried: list[tuple[Plan, int]]) -> None:
    """Whichever it is; the table is in the order of speed."""
    best = Plan(precision="fp32", channels_last=True, chunk=64)
    clock.append(Clock({best: 1e-4}))
    made = ppo(PPOConfig(network="conv"), spec=CONV)
    tuned = choose(made, batch(made, CONV, envs=96), FOREVER, clock[0])

    assert tuned.plan == best == tuned.table[0].plan
    assert tuned.table[0].row_s == pytest.approx(1e-4)
    assert {plan for plan, _ in tried} == set(grid("cpu", 768, has_images=True))
    assert tuned.numbers() == {"warmup_s": pytest.approx(clock[0].now)}
    assert tuned.words()["plan"] == "fp32 channels-last chunk-64"
    assert "bf16 contiguous whole 1000.0 µs a row" in tuned.words()["plan_table"]


@pytest.mark.parametrize("budget", [0.2, 1.0, 3.0])
def test_a_search_ends_within_its_budget(tried: list[tuple[Plan, int]], budget: float) -> None:
    """A pass of the whole minibatch that would not end in time is not begun; the best so far is chosen."""
    made = ppo(PPOConfig(network="conv"), spec=CONV)
    rows = batch(made, CONV, envs=96)
    clock.append(Clock({Plan(precision="bf16", channels_last=True, chunk=256): 2e-4}))
    tuned = choose(made, rows, budget, clock[0])

    # One first pass and one timed pass may be under way when it ends.
    assert clock[0].now <= budget + 2 * 768 * 1e-3
    assert tuned.plan == Plan(precision="bf16", channels_last=True, chunk=256)
    assert tried
    assert any(one.row_s is None for one in tuned.table)


def test_a_budget_of_nought_keeps_the_plan(tried: list[tuple[Plan, int]]) -> None:
    """Nothing is measured."""
    made = ppo(PPOConfig(network="conv"), spec=CONV)
    clock.append(Clock({}))
    tuned = choose(made, batch(made, CONV, envs=32), 0.0, clock[0])

    assert (tuned.plan, tried) == (Plan(), [])


def test_a_network_without_convolutions_is_not_measured() -> None:
    """Its plan stays."""
    made = ppo()
    tuned = choose(made, batch(made), FOREVER, lambda: 0.0)

    assert (tuned.plan, tuned.table) == (Plan(), ())
    assert tuned.words() == {"plan": "fp32 contiguous whole", "plan_table": "not measured"}


def test_a_plan_that_fails_is_left_out_with_its_error(
    tried: list[tuple[Plan, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a compiler that is not there; an eager plan is chosen."""
    clock.append(Clock({}))
    made = ppo(PPOConfig(network="conv"), spec=CONV)
    rows = batch(made, CONV, envs=32)
    apply_plan = PPO.apply_plan

    def failing(self: PPO, plan: Plan) -> None:
        if plan.is_compiled:
            raise RuntimeError("no compiler")
        apply_plan(self, plan)

    monkeypatch.setattr(PPO, "apply_plan", failing)
    monkeypatch.setattr(warmup, "grid", lambda *_, **__: grid("cuda", 256, has_images=True))
    tuned = choose(made, rows, FOREVER, clock[0])

    assert not tuned.plan.is_compiled
    failed = [one for one in tuned.table if one.error is not None]
    assert len(failed) == 4
    assert {one.error for one in failed} == {"RuntimeError: no compiler"}
    assert tried


def test_grids_differ_by_device_and_rows() -> None:
    """Compiled on CUDA only; chunks below the minibatch, none for small ones."""
    cpu, small = (grid("cpu", rows, has_images=True) for rows in (6144, 100))
    cuda = grid("cuda", 6144, has_images=True)

    assert (len(cpu), len(small), len(cuda)) == (20, 4, 8)
    assert len(set(cpu)) == 20
    assert not any(plan.is_compiled for plan in cpu)
    assert {plan.is_compiled for plan in cuda} == {True, False}
    assert words(cuda[0]) == "bf16 channels-last whole compiled"


def test_all_ranks_take_the_plan_of_the_first() -> None:
    """Another rank found another one to be the fastest."""

    class First:
        size = 2

        def share(self, tensors: list[torch.Tensor]) -> None:
            tensors[0].fill_(3)

    made = ppo(PPOConfig(network="conv"), spec=CONV)
    ticks = iter(range(1_000_000))
    tuned = choose(
        made,
        batch(made, CONV),
        FOREVER,
        lambda: float(next(ticks)),
        ranks=First(),  # type: ignore[arg-type]
    )

    assert tuned.plan == grid("cpu", 64, has_images=True)[3]
