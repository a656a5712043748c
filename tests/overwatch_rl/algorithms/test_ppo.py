"""The loss against a hand computation and against SB3's; what an update keeps, reports and stops at."""

import math
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.logger import Logger

from overwatch.events import EarlyStopped, NonFiniteSeen
from overwatch_rl.algorithms.common import Alone, Batch, Plan, k3, relative_entropy
from overwatch_rl.algorithms.policy import Evaluation
from overwatch_rl.algorithms.ppo import PPO, PPOConfig, averaged, gated_step, loss
from overwatch_rl.training.events import events_of
from overwatch_rl.types import Box, Observation, Stats, WorldSpec
from overwatch_rl.undefined import UNDEFINED
from tests.overwatch_rl.algorithms.small import (
    CODES,
    MOVES,
    SPEC,
    VECTOR,
    batch,
    copied,
    ppo,
    rollout,
    same,
    world_spec,
)

CONV = world_spec(MOVES, CODES)
GAUSSIAN = world_spec(Box(low=(-1.0, -1.0), high=(1.0, 1.0)), VECTOR)


def updated(config: PPOConfig) -> tuple[Stats, PPO]:
    """One update of a small policy on what it did itself."""
    made = ppo(config)
    return made.update(batch(made)), made


def numbers(stats: Stats) -> dict[str, float]:
    """As delivery brings them."""
    return {name: float(value) for name, value in stats.items()}


def test_an_update_reports_each_head_where_there_are_several() -> None:
    """Each is a share or a distance of its own; together with one rank of rows they are that of all heads."""
    stats, _ = updated(PPOConfig())
    names = [head.name for head in SPEC.heads]
    found = numbers(stats)

    assert len(names) > 1
    rows = ("entropy", "kl_divergence", "clip_fraction", "ratio_max", "grad_norm")
    assert {name for name in found if "/" in name} == {f"{row}/{name}" for row in rows for name in names}
    assert all(0 <= found[f"clip_fraction/{name}"] <= 1 for name in names)
    assert [0 < found[f"entropy/{name}"] < 1 for name in names] == [True, False, True]
    assert found[f"entropy/{names[1]}"] == UNDEFINED  # one slot is legal, which leaves no choice
    kls = [found[f"kl_divergence/{name}"] for name in names]
    assert min(kls) <= found["kl_divergence"] <= max(kls)


@pytest.mark.parametrize("spec", [CONV, GAUSSIAN], ids=["one head", "continuous"])
def test_a_policy_with_one_head_has_no_numbers_of_heads(spec: WorldSpec) -> None:
    """They would repeat what is there."""
    made = ppo(spec=spec)

    assert not [name for name in made.update(batch(made, spec)) if "/" in name]


class _Still(gymnasium.Env[np.ndarray, np.int64]):
    """Spaces, and an observation that stays."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(4)


def test_the_loss_equals_that_of_stable_baselines() -> None:
    """Their `train` on one batch, and ours on the outputs of their policy: every term and gradient."""
    theirs = stable_baselines3.PPO(
        "MlpPolicy", _Still(), n_steps=32, batch_size=32, n_epochs=1, learning_rate=0.0, ent_coef=0.01,
        vf_coef=0.7, max_grad_norm=1e9, normalize_advantage=False, seed=0, device="cpu",
    )  # fmt: skip
    logger = Logger(folder=None, output_formats=[])
    theirs.set_logger(logger)
    draws = np.random.default_rng(0)
    kept = theirs.rollout_buffer
    for name in ("observations", "advantages", "returns", "values", "log_probs"):
        own = getattr(kept, name)
        own[:] = draws.normal(size=own.shape)
    kept.log_probs[:] = -1.4 + 0.3 * kept.log_probs
    kept.actions[:] = draws.integers(4, size=kept.actions.shape)
    kept.full = True
    columns = {
        name: torch.tensor(getattr(kept, name)).flatten(0, 1)
        for name in ("observations", "actions", "advantages", "returns", "values", "log_probs")
    }
    theirs.train()
    gradients = [
        parameter.grad.clone() for parameter in theirs.policy.parameters() if parameter.grad is not None
    ]
    theirs.policy.zero_grad()

    values, log_probs, entropy = theirs.policy.evaluate_actions(
        columns["observations"], columns["actions"].flatten().long()
    )
    judged = Evaluation(
        log_probs=log_probs[:, None],
        entropy=entropy[:, None],
        used=torch.ones(32, 1, dtype=torch.bool),
        possible=torch.full((32, 1), math.log(4)),
    )
    data = Batch(
        features=columns["observations"], mask=None, actions=columns["actions"],
        log_probs=columns["log_probs"][:, None], values=columns["values"],
        advantages=columns["advantages"], returns=columns["returns"],
    )  # fmt: skip
    total, terms = loss(judged, values.flatten(), data, PPOConfig(entropy_coef=0.01, value_coef=0.7))
    (total / 32).backward()
    sums = {name: float(value.sum()) / 32 for name, value in terms.columns(0.2).items()}

    logged = logger.name_to_value
    assert float(total.detach()) / 32 == pytest.approx(logged["train/loss"], abs=1e-5)
    assert sums["policy_loss"] == pytest.approx(logged["train/policy_gradient_loss"], abs=1e-5)
    assert sums["value_loss"] == pytest.approx(logged["train/value_loss"], abs=1e-5)
    assert -sums["entropy_nats"] == pytest.approx(logged["train/entropy_loss"], abs=1e-5)
    assert sums["kl_joint"] == pytest.approx(logged["train/approx_kl"], abs=1e-5)
    assert sums["clip_fraction_up"] + sums["clip_fraction_down"] == pytest.approx(
        logged["train/clip_fraction"]
    )
    assert logged["train/clip_fraction"] > 0
    ours = [parameter.grad for parameter in theirs.policy.parameters() if parameter.grad is not None]
    assert len(ours) == len(gradients) > 0
    for mine, their in zip(ours, gradients, strict=True):
        assert torch.allclose(mine, their, atol=1e-5)


def test_an_update_of_rows_that_stand_alone_is_a_plain_loop() -> None:
    """Over rows drawn anew each epoch, a mean loss and a step each: equal weights to the bit."""
    config = PPOConfig(epochs=2, minibatches=3)
    made, other = ppo(config), ppo(config)
    data = batch(made)
    made.update(data)

    assert other._order is not None
    for _ in range(config.epochs):
        for rows in torch.randperm(len(data), generator=other._order).tensor_split(config.minibatches):
            part = data.rows(rows)
            ahead = part.advantages.double()
            spread = ahead.var(unbiased=False).sqrt() + 1e-8
            part = replace(part, advantages=((part.advantages - ahead.mean()) / spread).float())
            outputs, values = other.network(part.features)
            judged = other.actions.evaluate(outputs, part.mask, part.actions)
            other._optimizer.zero_grad()
            (loss(judged, values, part, config)[0] / len(rows)).backward()  # type: ignore[no-untyped-call]
            gradients = averaged(other._parameters, Alone())
            gated_step(other._optimizer, gradients, Alone(), torch.tensor(data=False), config.max_grad_norm)
    assert same(dict(made.policy.state_dict()), dict(other.policy.state_dict()))


def test_ratio_and_gradient_of_a_head_equal_a_hand_computation() -> None:
    """The largest ratio of rows that used it; the norm of those weights that give its logits."""
    config = PPOConfig(epochs=1, minibatches=1, max_grad_norm=1e-3)
    data, made = batch(ppo(config, seed=0)), ppo(config, seed=1)
    twin = made.clone()
    twin.benchmark_backward(data)
    layer = twin.network.last_layers()[0][0]
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None
    both = torch.cat([layer.weight.grad, layer.bias.grad[:, None]], dim=1)
    norms = [float(rows.norm()) for rows in both.split(SPEC.sizes)]
    with torch.no_grad():
        outputs, _ = made.policy(data.features)
        judged = made.actions.evaluate(outputs, data.mask, data.actions)
    changes = (judged.log_probs - data.log_probs).exp()
    ratios = [float(changes[judged.used[:, head], head].max()) for head in range(len(norms))]
    found = numbers(made.update(data))
    names = [head.name for head in SPEC.heads]

    assert [found[f"grad_norm/{name}"] for name in names] == pytest.approx(norms, rel=1e-5)
    assert [found[f"ratio_max/{name}"] for name in names] == pytest.approx(ratios, rel=1e-5)
    assert len(set(norms)) == len(set(ratios)) == 3


def test_a_head_that_no_row_used_has_no_ratio() -> None:
    """Undefined, not 1 and not minus infinity."""
    made = ppo()
    data = batch(made)
    waiting = replace(data, actions=torch.zeros_like(data.actions))
    found = numbers(made.update(waiting))

    assert found["ratio_max/kind"] == UNDEFINED
    assert math.isfinite(found["ratio_max/op"])


@given(st.floats(-1e9, 1e9))
def test_k3_is_never_negative_and_zero_without_change(log_ratio: float) -> None:
    """And finite, whatever vanished."""
    assert 0 <= float(k3(torch.tensor(log_ratio, dtype=torch.float64))) < math.inf
    assert float(k3(torch.tensor(0.0))) == 0


def test_entropy_leaves_out_rows_without_a_choice_and_sums_over_heads() -> None:
    """Per head a mean over its own rows; then one share of two sums. Without any choice there is none."""
    entropy, possible, rows = torch.tensor([1.0, 0.5]), torch.tensor([2.0, 2.0]), torch.tensor([2.0, 1.0])

    assert float(relative_entropy(entropy, possible, rows)) == pytest.approx((0.5 + 0.5) / (1.0 + 2.0))
    assert float(relative_entropy(torch.zeros(2), torch.zeros(2), torch.zeros(2))) == UNDEFINED


@pytest.mark.parametrize("spec", [world_spec(), CONV, GAUSSIAN], ids=["factored", "conv", "gaussian"])
@pytest.mark.parametrize(("precision", "most"), [("fp32", 1e-6), ("bf16", 5e-3)])
def test_the_policy_that_learns_is_the_one_that_collected(spec: object, precision: str, most: float) -> None:
    """Collected in one size and learnt in another: within rounding, per precision."""
    config = PPOConfig(network="conv" if spec is CONV else "mlp", popart=True)
    made = PPO(spec, config, seed=0)  # type: ignore[arg-type]  # a WorldSpec
    made.apply_plan(Plan(precision=precision, chunk=5))

    assert float(made.update(batch(made, spec))["first_ratio_error"]) <= most  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("chunk", [None, 8])
def test_the_first_ratio_is_exactly_one_on_the_same_rows(precision: str, chunk: int | None) -> None:
    """The same rows in the same order and the same passes give the same numbers to the bit."""
    made = ppo(PPOConfig(network="conv"), spec=CONV)
    made.apply_plan(Plan(precision=precision, chunk=chunk))
    data = batch(made, CONV)
    parts = data.chunks(chunk)
    with torch.no_grad():
        found = [made.actions.evaluate(made.policy(one.features)[0], one.mask, one.actions) for one in parts]
    data = replace(data, log_probs=torch.cat([one.log_probs for one in found]))
    made._optimizer.zero_grad(set_to_none=True)

    assert all(not bool(terms.log_ratio.any()) for terms in made._backward(data, len(data)))


def test_gradients_of_chunks_add_up_to_the_whole() -> None:
    """Sixty-four rows at once, and in passes of twelve of which the last is shorter."""
    found = []
    for chunk in (None, 12):
        made = ppo(PPOConfig(network="conv"), spec=CONV)
        data = batch(made, CONV)
        made.apply_plan(Plan(chunk=chunk))
        made._backward(data, len(data))
        found.append([parameter.grad.clone() for parameter in made._parameters if parameter.grad is not None])

    for whole, parts in zip(*found, strict=True):
        assert torch.allclose(whole, parts, atol=1e-6, rtol=1e-6)


def test_kl_grows_with_the_learning_rate() -> None:
    """A measured value: three rates, three divergences in order, and no minibatch above the worst."""
    runs = [updated(PPOConfig(learning_rate=rate))[0] for rate in (1e-5, 1e-4, 1e-3)]
    kls = [float(stats["kl_divergence"]) for stats in runs]

    assert kls == sorted(kls)
    assert kls[0] > 0
    assert len(set(kls)) == 3
    assert all(float(stats["kl_max"]) >= float(stats["kl_divergence"]) for stats in runs)


def test_kl_is_of_the_last_epoch() -> None:
    """With one epoch and one minibatch it is measured before the only step, so it is nought."""
    once, _ = updated(PPOConfig(epochs=1, minibatches=1))
    twice, _ = updated(PPOConfig(epochs=2, minibatches=1))

    assert float(once["kl_divergence"]) == pytest.approx(0.0, abs=1e-7)
    assert float(twice["kl_divergence"]) > 1e-6


def test_an_early_stop_is_an_event_made_from_numbers() -> None:
    """After the first epoch beyond 1.5 times the target; the fact has what was left out."""
    stats, made = updated(PPOConfig(learning_rate=3e-2, target_kl=1e-3))
    (stop,) = events_of(made.config, 7, numbers(stats), 5)

    assert isinstance(stop, EarlyStopped)
    assert (stop.at, stop.update, stop.epoch, stop.target) == (5, 7, 1, 1e-3)
    assert stop.kl_divergence > 1.5e-3
    assert stop.kl_divergence == pytest.approx(float(stats["kl_joint"]))
    assert stop.minibatches_skipped == 12 == int(stats["minibatches_skipped"])


def test_an_update_runs_all_epochs_otherwise() -> None:
    """Below the target, and without one: no event, nothing skipped."""
    for config in (PPOConfig(learning_rate=1e-4, target_kl=0.5), PPOConfig(learning_rate=3e-2)):
        stats, made = updated(config)
        assert list(events_of(made.config, 1, numbers(stats), 0)) == []
        assert float(stats["minibatches_skipped"]) == 0


def test_a_gate_without_a_host_stops_where_the_host_would() -> None:
    """The stop that the host reads and the one that only the device knows leave the same weights."""
    config = PPOConfig(learning_rate=3e-2, target_kl=1e-3)
    _, read = updated(config)
    made = ppo(config)
    made._ranks = _Pair()
    stats = made.update(batch(made))

    assert float(stats["minibatches_skipped"]) == 12
    assert all(
        torch.allclose(value, read.state_dict()[name], atol=1e-6)
        for name, value in made.state_dict().items()
        if name.startswith("policy.")
    )
    (stop,) = events_of(made.config, 1, numbers(stats), 0)
    assert isinstance(stop, EarlyStopped)
    assert (stop.epoch, stop.minibatches_skipped) == (1, 12)


class _Pair:
    """Two ranks of which the other has the same data."""

    size = 2

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return 2 * values

    def any(self, flag: torch.Tensor) -> torch.Tensor:
        return flag

    def average(self, tensors: list[torch.Tensor]) -> None:
        pass

    def share(self, tensors: list[torch.Tensor]) -> None:
        pass


@pytest.mark.parametrize("trouble", ["nan", "inf", "stopped"])
@pytest.mark.parametrize("steps", [0, 1], ids=["fresh", "stepped"])
def test_a_shut_gate_leaves_everything_as_it_was(trouble: str, steps: int) -> None:
    """Parameters, moments and step counts, to the bit; and the next good step is the one without it."""
    runs = []
    for shut in (True, False):
        made = ppo(PPOConfig(network="conv"), spec=CONV)
        for _ in range(steps):
            made.update(batch(made, CONV))
        before = copied(made.state_dict())
        if shut:
            bad = float("nan") if trouble == "nan" else float("inf")
            for parameter in made._parameters:
                parameter.grad = torch.full_like(parameter, 1.0 if trouble == "stopped" else bad)
            made._step(torch.tensor(trouble == "stopped"))
            after = made.state_dict()
            assert all(torch.equal(after[name], before[name]) for name in before)
            assert not any(bool(value.any()) for name, value in after.items() if name not in before)
        for parameter in made._parameters:
            parameter.grad = torch.full_like(parameter, 1e-3)
        made._step(torch.tensor(False))
        runs.append(made.state_dict())

    assert same(*runs)


def test_gradients_that_are_not_finite_are_counted_and_become_an_event() -> None:
    """An infinite advantage shuts the gate for one minibatch of each epoch; nothing else is lost."""
    made = ppo(PPOConfig(epochs=2))
    data = batch(made)
    broken = data.returns.clone()
    broken[3] = math.nan
    stats = made.update(replace(data, returns=broken))
    (event,) = events_of(made.config, 4, values := numbers(stats), 9)

    assert isinstance(event, NonFiniteSeen)
    assert (event.kind, event.count) == ("nan", 2)
    assert float(stats["minibatches_skipped"]) == 2
    assert float(stats["grad_nan"]) > 0
    assert "minibatches_not_finite" not in values
    assert all(bool(value.isfinite().all()) for value in made.state_dict().values())


def test_gradients_are_reported_before_clipping() -> None:
    """A tighter limit changes the step and not the first norm."""
    tight, small = updated(PPOConfig(epochs=1, minibatches=1, max_grad_norm=1e-9))
    loose, _ = updated(PPOConfig(epochs=1, minibatches=1, max_grad_norm=1e3))

    assert torch.equal(tight["grad_norm"], loose["grad_norm"])
    assert float(tight["grad_norm"]) > 1e-3
    total = sum(float(p.grad.square().sum()) for p in small._parameters if p.grad is not None)
    assert math.sqrt(total) == pytest.approx(1e-9, rel=1e-3)


@pytest.mark.parametrize("level", [0.0, 0.1, -1e6])
def test_advantages_that_are_all_equal_teach_the_policy_nothing(level: float) -> None:
    """They do not become noise by rounding; a minibatch of one row is such a case."""
    for config, rows in ((PPOConfig(minibatches=1, entropy_coef=0.0), 64), (PPOConfig(entropy_coef=0.0), 4)):
        made = ppo(config)
        data = batch(made).rows(torch.arange(rows))
        stats = made.update(replace(data, advantages=torch.full_like(data.advantages, level)))
        assert abs(float(stats["policy_loss"])) < 1e-6
        assert float(stats["kl_max"]) < 1e-9


def test_a_batch_that_minibatches_do_not_divide_uses_every_row() -> None:
    """Sixty-four rows in seven minibatches."""
    made = ppo(PPOConfig(minibatches=7, epochs=1))
    seen: list[int] = []
    backward = made._backward

    def counted(part: Batch, rows: int) -> object:
        seen.append(rows)
        return backward(part, rows)

    made._backward = counted  # type: ignore[method-assign,assignment]  # a spy
    stats = made.update(batch(made))

    assert sorted(seen) == [9, 9, 9, 9, 9, 9, 10]
    assert all(map(math.isfinite, numbers(stats).values()))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("spec", [CONV, GAUSSIAN], ids=["conv", "gaussian"])
def test_a_state_that_is_loaded_goes_on_as_if_nothing_had_happened(spec: object, precision: str) -> None:
    """Two updates, or one, a round trip into another policy, and one: equal to the bit."""
    config = PPOConfig(
        network="conv" if spec is CONV else "mlp", popart=True, anneal_updates=9,
        normalise_observations=spec is GAUSSIAN,
    )  # fmt: skip
    made, other = (ppo(config, seed, spec) for seed in (0, 1))  # type: ignore[arg-type]
    for one in (made, other):
        one.apply_plan(Plan(precision=precision, channels_last=True))
    made.update(batch(made, spec, seed=1))  # type: ignore[arg-type]
    other.load_state_dict({name: value.contiguous().clone() for name, value in made.state_dict().items()})
    assert same(made.state_dict(), other.state_dict())
    found = [one.update(batch(one, spec, seed=2)) for one in (made, other)]  # type: ignore[arg-type]

    assert same(made.state_dict(), other.state_dict())
    assert same(*found)
    assert made.acting_keys() <= made.state_dict().keys()


def test_weights_of_another_network_are_refused() -> None:
    """The error names what is wrong."""
    with pytest.raises(ValueError, match="weights are of another network"):
        ppo().load_state_dict(ppo(PPOConfig(network="conv"), spec=CONV).state_dict())


def test_another_layout_does_not_change_what_is_learnt() -> None:
    """Moments lie as their weights do, also where the plan comes after the first step."""
    runs = []
    for plans in ((False, False), (False, True), (True, False)):
        made = ppo(PPOConfig(network="conv", learning_rate=1e-3), spec=CONV)
        for seed, channels_last in enumerate(plans):
            made.apply_plan(Plan(channels_last=channels_last))
            made.update(batch(made, CONV, seed=seed))
        runs.append(made.policy.state_dict())

    for other in runs[1:]:
        for name, value in runs[0].items():
            assert torch.allclose(value, other[name], atol=2e-5), name


def test_the_step_size_falls_on_a_line_and_goes_on_after_a_resume() -> None:
    """Four updates from 1e-3; a fifth keeps the last rate; the host may lower where it starts from."""
    made = ppo(PPOConfig(learning_rate=1e-3, anneal_updates=4))
    rates = [float(made.update(batch(made))["learning_rate"]) for _ in range(5)]
    assert rates == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4, 2.5e-4])

    made = ppo(PPOConfig(learning_rate=1e-3, anneal_updates=4))
    made.update(batch(made))
    other = ppo(PPOConfig(learning_rate=1e-3, anneal_updates=4), seed=1)
    other.load_state_dict(copied(made.state_dict()))
    assert float(other.update(batch(other))["learning_rate"]) == pytest.approx(7.5e-4)
    other.set_learning_rate(1e-4)
    assert float(other.update(batch(other))["learning_rate"]) == pytest.approx(5e-5)


def test_several_final_observations_of_one_env_are_each_valued() -> None:
    """What `prepare` makes of them equals valuing every observation by hand."""
    made = ppo(PPOConfig(popart=True))
    data = rollout(made, world_spec())
    assert data.final is not None
    final = made.act(Observation(features=data.final[1]), None, greedy=True).values
    gamma = made.config.gamma
    expected = data.rewards[6] + gamma * final - data.values[6]
    found = made.prepare(data).advantages.view(8, 8)[6]

    assert torch.allclose(found[::2], expected[::2], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("learning_rate", -1.0, "above 0"),
        ("clip", 0.0, "above 0"),
        ("importance_cap", 0, "above 0"),
        ("epochs", 0, "1 or more"),
        ("minibatches", 0, "1 or more"),
        ("anneal_updates", 0, "1 or more"),
        ("entropy_coef", -0.1, "0 or more"),
        ("gae_lambda", 1.5, "0 to 1"),
        ("target_kl", 0.0, "above 0"),
        ("value_clip", 0.0, "above 0"),
    ],
)
def test_impossible_settings_are_refused(name: str, value: float, fix: str) -> None:
    """The error names the value and the fix."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use .*{fix}"):
        PPOConfig(**{name: value})  # type: ignore[arg-type]


def test_a_normaliser_of_what_is_no_vector_is_refused() -> None:
    """Codes have no mean."""
    with pytest.raises(ValueError, match="needs vectors of floats"):
        ppo(PPOConfig(network="conv", normalise_observations=True), spec=CONV)
