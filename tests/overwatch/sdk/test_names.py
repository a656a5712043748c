"""Names as trainers write them: which row they land on, and what is proposed instead of a name of none."""

import pytest

from overwatch.catalog import Scope, find
from overwatch.sdk.rings.ringset import RingLimits
from tests.overwatch.sdk.rings.calling import called

LIMITS = RingLimits(numbers_bytes=512 << 10, facts_bytes=64 << 10, forms_bytes=16 << 10)
P = "overwatch.policy."
C = "overwatch.custom."


def _landed(**values: float) -> dict[str, float]:
    """Where the values of three equal calls land: the first is looked up, the third is not."""
    with called(LIMITS, "single") as path:
        for _ in range(3):
            path.run.update(**values)
        path.read_all()
        (event,) = path.events
        return {name: column.first() for name, column in event.values.items()}


@pytest.mark.parametrize(
    "name", ["return_", "episode_return", "mean_return", "ep_rew_mean", "reward_mean", "reward"]
)
def test_the_return_can_be_sent_under_a_name_that_python_takes(name: str) -> None:
    """`return` is a keyword; an update's reward is what its episodes earned."""
    assert _landed(**{name: 5.0}) == {f"{P}return": 5.0}


def test_two_spellings_of_one_row_hide_nothing() -> None:
    """The surer one is the row's, whichever comes first; the other is shown as a number of its own."""
    expected = {f"{P}return": 5.0, f"{C}reward": 0.1, f"{P}kl_divergence": 0.01}
    assert _landed(**{"return": 5.0, "reward": 0.1, "kl": 0.01}) == expected
    assert _landed(**{"reward": 0.1, "kl": 0.01, "return": 5.0}) == expected


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        ("retur", "return_"),
        ("kl_divergenc", "kl_divergence"),
        ("loss/policy_los", "policy_loss"),
        ("entrpy", "entropy"),
    ],
)
def test_what_is_proposed_is_a_name_that_is_known_and_can_be_typed(
    name: str, proposed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each unknown name has its own line, once."""
    _landed(**{name: 1.0, f"{name}x": 2.0})
    assert caplog.text.count(f"no metric is called {name!r}; did you mean {proposed!r}?") == 1
    assert find(proposed, Scope.POLICY) is not None


def test_custom_names_are_never_proposed(caplog: pytest.LogCaptureFixture) -> None:
    """A name that was sent before is not known for that."""
    _landed(**{"smoothed_loss/thing": 1.0, "smoothed_loss/thin": 2.0})
    assert "did you mean" not in caplog.text


def test_the_number_of_a_head_is_no_misspelt_name(caplog: pytest.LogCaptureFixture) -> None:
    """A head may be called like a row."""
    _landed(**{"entropy/entrop": 1.0})
    assert "did you mean" not in caplog.text


def test_a_name_that_the_screen_has_is_taken_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    """What `overwatch catalog show` finds by a label, an update finds too."""
    assert _landed(grad=1.5) == {f"{P}grad_norm": 1.5}
    assert caplog.text.count("'grad' is taken as 'grad_norm'") == 1
