"""GRPO: its loss against one by hand in float64, its groups, its gate, and its numbers about samplers."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from overwatch.events import NonFiniteSeen
from overwatch_rl.algorithms.common import Alone, Learner
from overwatch_rl.algorithms.grpo import (
    GRPO,
    Answers,
    Batch,
    GRPOConfig,
    distribution,
    group_advantages,
    log_probs_of,
    loss,
    shuffled_in_groups,
)
from overwatch_rl.training.delivery import Delivery
from overwatch_rl.training.events import events_of
from overwatch_rl.undefined import UNDEFINED

LETTERS = 6


class Table(nn.Module):
    """The next letter depends on the last one only."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        drawn = torch.randn(LETTERS, LETTERS, generator=torch.Generator().manual_seed(seed))
        self.logits = nn.Parameter(drawn)

    def forward(self, tokens: Tensor) -> Tensor:
        """B S V from B S."""
        return self.logits[tokens]


def drawn_batch(seed: int, answers: int = 6, letters: int = 5) -> tuple[Tensor, Batch]:
    """Log-probabilities that learn, and a batch of random numbers, some letters of which are not learned."""
    source = torch.Generator().manual_seed(seed)

    def chances(spread: float) -> Tensor:
        noise = torch.randn(answers, letters, generator=source, dtype=torch.float64)
        return -1.5 + spread * noise

    live = (torch.rand(answers, letters, generator=source) < 0.7).double()
    batch = Batch(
        tokens=torch.ones(answers, letters + 1, dtype=torch.int64),
        live=live,
        behaviour=chances(0.4),
        proximal=chances(0.4),
        reference=chances(0.4),
        advantages=torch.randn(answers, generator=source, dtype=torch.float64),
        stats={},
    )
    return chances(0.4), batch


def answers(scores: list[float], *, version: int | None = 0, seed: int = 0) -> Answers:
    """Groups of two, of three letters each after a prompt of one, drawn by a table of that seed."""
    source = torch.Generator().manual_seed(7)
    tokens = torch.randint(1, LETTERS, (len(scores), 4), generator=source)
    with torch.no_grad():
        behaviour = log_probs_of(distribution(Table(seed), tokens), tokens)
    return Answers(
        tokens=tokens,
        learned=torch.ones(len(scores), 3, dtype=torch.bool),
        behaviour=behaviour,
        scores=torch.tensor(scores),
        groups=torch.arange(len(scores)) // 2,
        versions=(version,) * len(scores),
        cut=torch.zeros(len(scores), dtype=torch.bool),
    )


def made(config: GRPOConfig | None = None) -> GRPO:
    """Over a table of seed 0."""
    algorithm = GRPO(Table(), config or GRPOConfig(), seed=0, version=0)
    _: Learner[Answers, Batch] = algorithm
    return algorithm


def test_what_is_not_learned_has_no_gradient() -> None:
    """Neither letters of a prompt nor those of a group that taught nothing."""
    current, batch = drawn_batch(1)
    current.requires_grad_()

    torch.autograd.backward(loss(current, batch, GRPOConfig())[0])

    assert current.grad is not None
    assert torch.equal(current.grad != 0, batch.live > 0)


def test_advantages_are_of_the_group_and_a_group_of_equals_has_none() -> None:
    """Deviation of a sample; groups of different sizes side by side."""
    scores = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.3, 0.3, 0.3])
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])

    advantages, std, differ = group_advantages(scores, groups)

    deviation = torch.tensor([1.0, 0.0, 0.0]).std()
    first = (scores[:3] - scores[:3].mean()) / (deviation + 1e-4)
    assert torch.allclose(advantages[:3], first)
    assert torch.allclose(std[:3], deviation)
    assert advantages[3:].tolist() == [0.0] * 5
    assert differ.tolist() == [True] * 3 + [False] * 5


def test_shuffling_keeps_the_advantages_of_each_group() -> None:
    """Only who has which changes, and it does."""
    values = torch.arange(40.0)
    groups = torch.arange(40) % 5

    mixed = shuffled_in_groups(values, groups, torch.Generator().manual_seed(0))

    assert not torch.equal(mixed, values)
    for group in range(5):
        assert torch.equal(mixed[groups == group].sort().values, values[groups == group])


def test_groups_alike_are_counted_and_no_part_of_the_loss() -> None:
    """The penalty for leaving the reference leaves them alone too."""
    algorithm = made()
    batch = algorithm.prepare(answers([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]))

    assert float(batch.stats["groups_alike"]) == pytest.approx(2 / 3)
    assert batch.live.sum(dim=1).tolist() == [3.0, 3.0, 0.0, 0.0, 0.0, 0.0]


def test_a_batch_that_teaches_nothing_moves_nothing() -> None:
    """Momentum of earlier steps would; the version moves on all the same."""
    algorithm = made()
    algorithm.update(algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0])))
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}

    stats = algorithm.update(algorithm.prepare(answers([1.0, 1.0, 0.0, 0.0], version=1)))

    after = algorithm.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"version", "order"}
    assert int(stats["minibatches_skipped"]) == 2
    delivery = Delivery()
    delivery.send(1, stats, {})
    values = delivery.rest()[0].values
    assert all(map(math.isfinite, values.values()))
    assert values.keys() >= {"return", "groups_alike", "entropy", "grad_nan", "learning_rate"}
    undefined = {"policy_loss", "kl_divergence", "grad_norm", "ratio_max", "advantage_std", "clip_fraction"}
    assert not values.keys() & undefined


def test_a_gradient_that_is_not_finite_moves_nothing_and_is_reported() -> None:
    """One score of infinity, which no server would have passed."""
    algorithm = made()
    before = {name: value.clone() for name, value in algorithm.policy.state_dict().items()}
    batch = algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0]))
    stats = algorithm.update(replace(batch, advantages=torch.full_like(batch.advantages, torch.nan)))
    values = {name: float(value) for name, value in stats.items()}

    (event,) = events_of(algorithm.config, 1, values, 0)

    assert isinstance(event, NonFiniteSeen)
    assert event.count == 2
    assert all(torch.equal(before[name], value) for name, value in algorithm.policy.state_dict().items())


def test_a_learner_agrees_with_itself_before_its_first_step() -> None:
    """Ratios of the first minibatch are 1, and so are the weights of answers that it drew."""
    algorithm = made()
    stats = algorithm.update(algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0])))

    assert float(stats["first_ratio_error"]) == 0.0
    assert float(stats["sampler_weight"]) == pytest.approx(1.0)
    assert float(stats["sampler_ess"]) == pytest.approx(1.0)


@pytest.mark.parametrize(("recent", "error"), [(2, 1.0), (0, UNDEFINED)])
def test_age_is_no_mismatch(recent: int, error: float) -> None:
    """Old answers are weighted; the sampler is right against the weights that drew them, where those stay."""
    algorithm = made(GRPOConfig(learning_rate=0.3, recent=recent))
    for version in (0, 1):
        algorithm.update(algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0], version=version)))
    stats = algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0], version=0)).stats

    assert float(stats["data_age_updates"]) == 2.0
    assert float(stats["sampler_ess"]) < 0.99
    assert float(stats["token_error"]) == pytest.approx(error, abs=1e-6)
    assert (float(stats["sampler_kl"]) == UNDEFINED) is not bool(recent)


def test_a_sampler_with_other_weights_than_it_names_is_a_mismatch() -> None:
    """Whatever the version that it names is; one that is gone cannot be judged and is not."""
    algorithm = made(GRPOConfig())
    wrong = algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0], version=0, seed=5)).stats
    unknown = algorithm.prepare(answers([1.0, 0.0, 1.0, 0.0], version=None, seed=5)).stats

    assert float(wrong["token_error"]) > 1.1
    assert float(unknown["token_error"]) == float(unknown["data_age_updates"]) == UNDEFINED


class Summed(Alone):
    """A rank whose sums are those that two ranks found, one after the other, before."""

    size = 2

    def __init__(self, totals: Mapping[float, float]) -> None:
        self.totals = totals
        self.gradients: list[Tensor] = []

    def sum(self, values: Tensor) -> Tensor:
        """Over both."""
        return torch.full_like(values, self.totals[float(values)]) if values.dim() == 0 else values

    def average(self, tensors: list[Tensor]) -> None:
        """Keep what this rank brings."""
        self.gradients = [tensor.clone() for tensor in tensors]


def test_a_token_counts_the_same_whichever_rank_has_it() -> None:
    """Two ranks with unequally long answers average to the gradient of one that has them all."""
    config = GRPOConfig(minibatches=1)
    parts = [answers([1.0, 0.0, 1.0, 0.0], seed=seed) for seed in (0, 0)]
    parts[1] = replace(parts[1], learned=parts[1].learned & (torch.arange(3) < 2))
    counts = [float(part.learned.sum()) for part in parts]
    assert counts[0] != counts[1]
    brought = []
    for part in parts:
        ranks = Summed(dict.fromkeys(counts, sum(counts)))
        algorithm = GRPO(Table(), config, seed=0, version=0, ranks=ranks)
        algorithm.update(algorithm.prepare(part))
        brought.append(ranks.gradients[0])
    whole = Summed({sum(counts): sum(counts)})
    whole.size = 1
    both = Answers(
        **{
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("tokens", "learned", "behaviour", "scores", "cut")
        },
        groups=torch.cat([parts[0].groups, parts[1].groups + 2]),
        versions=parts[0].versions + parts[1].versions,
    )
    algorithm = GRPO(Table(), config, seed=0, version=0, ranks=whole)
    algorithm.update(algorithm.prepare(both))

    torch.testing.assert_close(sum(brought) / 2, whole.gradients[0])


def test_what_was_kept_goes_on_as_if_nothing_had_been() -> None:
    """Weights, reference, moments, draws and version; the same batch then gives the same weights."""
    one, other = made(), GRPO(Table(3), GRPOConfig(), seed=9, version=4)
    one.update(one.prepare(answers([1.0, 0.0, 1.0, 0.0])))
    other.load_state_dict({name: value.clone() for name, value in one.state_dict().items()})
    for algorithm in (one, other):
        algorithm.update(algorithm.prepare(answers([0.0, 1.0, 1.0, 0.0], version=1)))

    kept, again = one.state_dict(), other.state_dict()
    assert other.version == 2
    assert all(torch.equal(value, again[name]) for name, value in kept.items())
    assert one.acting_keys() == {"policy.logits"}


def test_weights_of_another_shape_are_refused() -> None:
    """By an error that names them."""
    algorithm = made()
    state = algorithm.state_dict() | {"policy.logits": torch.zeros(2, 2)}

    with pytest.raises(ValueError, match="another model"):
        algorithm.load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("epochs", 0),
        ("clip", -1.0),
        ("reference_coef", -0.1),
        ("weight_cap", math.nan),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: float) -> None:
    """With its value and what to use."""
    with pytest.raises(ValueError, match=f"{name} is {value}; use"):
        GRPOConfig(**{name: value})  # type: ignore[arg-type]


def test_an_update_reads_nothing_from_the_device() -> None:
    """On tensors without values every read raises."""
    with torch.device("meta"):
        algorithm = GRPO(Table().to("meta"), GRPOConfig(epochs=2), seed=0, version=0)
        real = drawn_batch(0)[1]
        batch = Batch(
            **{
                name: getattr(real, name).to("meta", dtype=None if name == "tokens" else torch.float32)
                for name in ("tokens", "live", "behaviour", "proximal", "reference", "advantages")
            },
            stats={},
        )
        stats = algorithm.update(batch)

    assert stats["policy_loss"].is_meta
