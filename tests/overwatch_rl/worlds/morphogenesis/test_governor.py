"""Which hosts the governor finds ruined, at which step, and that it forgets nothing on a resume."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from overwatch_rl.worlds.morphogenesis.governor import REASONS, Governor, GovernorConfig

CONFIG = GovernorConfig()
GUESS = math.log(10)


def watched(
    losses: list[float], accuracies: list[float] | None = None, config: GovernorConfig = CONFIG
) -> list[str]:
    """What is found of one host at each step, "" where nothing is; accuracy 0.1 unless given."""
    governor = Governor(1, config)
    chance = [0.1] * len(losses)
    codes = [
        int(governor.step(torch.tensor([loss]), torch.tensor([accuracy]), torch.tensor([True])))
        for loss, accuracy in zip(losses, accuracies or chance, strict=True)
    ]
    return ["" if not code else REASONS[code - 1] for code in codes]


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_found_at_once(loss: float) -> None:
    """In the very first step, by the loss; a host that goes on is not named again."""
    assert watched([loss, 2.0]) == ["nan", ""]


def test_a_gradient_or_an_accuracy_that_is_not_finite_is_found_too() -> None:
    """Whatever the loss is; and of that host alone."""
    governor = Governor(3, CONFIG)
    accuracy = torch.tensor([0.5, math.nan, 0.5])
    codes = governor.step(torch.ones(3), accuracy, torch.tensor([False, True, True]))

    assert codes.tolist() == [1, 1, 0]


def test_a_good_host_that_guesses_has_lost_its_mind() -> None:
    """A loss within 6.5 % of ln(classes) after a good one; before, every host begins like that."""
    inside, outside = GUESS * 1.06, GUESS * 1.07

    assert watched([GUESS, inside]) == ["", ""]
    assert watched([GUESS, 0.5, inside]) == ["", "", "lobotomy"]
    assert watched([GUESS, 0.5, outside]) == ["", "", ""]
    assert watched([GUESS, 0.61 * GUESS, inside]) == ["", "", ""]


def test_a_host_that_is_too_sure_but_right_has_not() -> None:
    """The same loss with an accuracy far from chance is no guess."""
    assert watched([0.5, GUESS], [0.9, 0.8]) == ["", ""]
    assert watched([0.5, GUESS], [0.9, 0.2]) == ["", "lobotomy"]


def test_a_loss_far_above_all_before_is_divergence_in_its_third_step() -> None:
    """Three in a row; one in between that is usual begins anew."""
    usual = [1.0, 1.2, 0.8, 1.1, 0.9]

    assert watched([*usual, 20.0, 30.0, 40.0])[5:] == ["", "", "divergence"]
    assert watched([*usual, 20.0, 30.0, 1.0, 30.0, 30.0])[5:] == [""] * 5
    assert watched([*usual, 11.9, 11.9, 11.9])[5:] == [""] * 3


def test_divergence_needs_all_three_conditions() -> None:
    """Above the limit alone is not enough: within the deviations, or within three times the mean."""
    wild = [1.0, 40.0, 1.0, 40.0, 1.0]
    high = [11.0, 11.1, 10.9, 11.0, 11.0]

    assert watched([*wild, 70.0, 70.0, 70.0])[5:] == [""] * 3
    assert watched([*high, 30.0, 30.0, 30.0])[5:] == [""] * 3
    assert watched([*high, 40.0, 40.0, 40.0])[5:] == ["", "", "divergence"]


def test_a_host_that_is_hardly_known_is_not_judged_by_its_mean() -> None:
    """Four losses show little of what is usual."""
    assert watched([1.0, 1.2, 0.8, 1.1, 20.0, 30.0])[4:] == ["", ""]
    assert watched([1.0] * 4 + [20.0] * 3) == [""] * 7


def test_a_host_that_went_back_is_judged_anew() -> None:
    """Without what made it good it may guess for a while, and is no second lobotomy."""
    assert watched([0.5, GUESS, GUESS, GUESS]) == ["", "lobotomy", "", ""]
    assert watched([0.5, GUESS, 0.5, GUESS]) == ["", "lobotomy", "", "lobotomy"]


def test_a_new_episode_forgets_the_last_one() -> None:
    """A host that was good in an episode begins the next with a guess, which is no lobotomy."""
    governor = Governor(2, CONFIG)
    everything = torch.tensor([True, True])
    governor.step(torch.full((2,), 0.5), torch.full((2,), 0.9), everything)
    governor.restart(torch.tensor([True, False]))

    assert governor.step(torch.full((2,), GUESS), torch.full((2,), 0.1), everything).tolist() == [0, 2]


@dataclass
class Plain:
    """One host, watched by plain arithmetic over all losses that it kept."""

    config: GovernorConfig

    def __post_init__(self) -> None:
        self.usual: list[float] = []
        self.row = 0

    def step(self, loss: float, accuracy: float) -> int:
        """The code of a step."""
        config, guess = self.config, math.log(self.config.classes)
        if not math.isfinite(loss):
            self.__post_init__()
            return 1
        mean = sum(self.usual) / len(self.usual) if self.usual else 0.0
        spread = math.sqrt(sum((one - mean) ** 2 for one in self.usual) / max(len(self.usual), 1))
        above = (
            loss > config.diverged_loss
            and loss > mean + config.deviations * spread
            and loss > config.times * mean
        )
        above = above and len(self.usual) >= config.known
        self.row = self.row + 1 if above else 0
        was_good = min(self.usual, default=math.inf) < config.good * guess
        is_guess = (
            abs(loss - guess) <= config.tolerance * guess and accuracy <= config.chance / config.classes
        )
        if was_good and is_guess:
            self.__post_init__()
            return 2
        if self.row >= config.in_a_row:
            self.__post_init__()
            return 3
        if not above:
            self.usual.append(loss)
        return 0


LOSSES = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.25, 2.5, 8.0, 13.0, 50.0, 1000.0, math.nan, math.inf])


@settings(max_examples=60)
@given(
    losses=st.lists(st.tuples(LOSSES, LOSSES), min_size=1, max_size=30), accuracy=st.sampled_from([0.1, 0.9])
)
def test_every_host_is_judged_as_if_it_were_alone(losses: list[tuple[float, float]], accuracy: float) -> None:
    """Against plain arithmetic, with a host beside it that has other losses."""
    config = replace(CONFIG, known=3)
    governor, plain = Governor(2, config), [Plain(config), Plain(config)]
    for both in losses:
        finite = torch.ones(2, dtype=torch.bool)
        codes = governor.step(torch.tensor(both), torch.full((2,), accuracy), finite)

        assert codes.tolist() == [one.step(loss, accuracy) for one, loss in zip(plain, both, strict=True)]


def test_a_governor_goes_on_as_it_was() -> None:
    """Its state holds all of it: the same losses give the same codes afterwards."""
    draws = torch.Generator().manual_seed(1)
    losses = torch.rand(40, 8, generator=draws).mul(12).exp()
    accuracy, finite = torch.full((8,), 0.1), torch.ones(8, dtype=torch.bool)
    governor, other = Governor(8, replace(CONFIG, known=3)), Governor(8, replace(CONFIG, known=3))
    for loss in losses[:20]:
        governor.step(loss, accuracy, finite)
    other.load_state_dict({name: value.clone() for name, value in governor.state_dict().items()})
    codes = [[one.step(loss, accuracy, finite) for loss in losses[20:]] for one in (governor, other)]

    assert torch.equal(torch.stack(codes[0]), torch.stack(codes[1]))


@pytest.mark.parametrize(
    ("name", "value"), [("classes", 1), ("in_a_row", 0), ("diverged_loss", 0.0), ("good", math.nan)]
)
def test_a_setting_that_means_nothing_is_refused(name: str, value: float) -> None:
    """The error names it and its value."""
    with pytest.raises(ValueError, match=f"governor {name} is {value}; use"):
        GovernorConfig(**{name: value})
