"""Names as trainers write them: which row they land on, and what is proposed instead of a name of none."""

import pytest

from overwatch.catalog import Library, Scope, find
from overwatch.sdk.names import DIALECT, Dialect
from overwatch.sdk.rings.ringset import RingLimits
from tests.overwatch.sdk.rings.calling import called

LIMITS = RingLimits(numbers_bytes=512 << 10, facts_bytes=64 << 10, forms_bytes=16 << 10)
P = "overwatch.policy."
C = "overwatch.custom."


def _landed(dialect: Dialect = DIALECT, /, **values: float) -> dict[str, float]:
    """Where the values of three equal calls land: the first is looked up, the third is not."""
    with called(LIMITS, "single", dialect) as path:
        for _ in range(3):
            path.run.update(**values)
        path.read_all()
        *_, event = path.events
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


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("areas", [("red", "blue"), ("train/left", "train/right"), ("a/b", "c", "d")])
def test_of_a_number_below_several_prefixes_none_is_the_run_s(areas: tuple[str, ...], at_once: bool) -> None:  # noqa: FBT001
    """All are shown under their names, also where the first had filled the row before the others came."""
    values = {f"{area}/entropy": float(place) for place, area in enumerate(areas, 1)}
    with called(LIMITS, "single") as path:
        for part in [values] * 3 if at_once else [{name: value} for name, value in values.items()] * 3:
            path.run.update(**part, **{"rl/kl": 0.01})
        path.read_all()
        columns = [column for event in path.events for column in event.values.items()]
    newest = {name: column.first() if len(column) else None for name, column in columns}
    row = {} if at_once else {f"{P}entropy": None}
    assert newest == {C + name: value for name, value in values.items()} | {f"{P}kl_divergence": 0.01} | row


def test_a_number_of_the_run_is_its_row_beside_those_below_prefixes() -> None:
    """Whichever comes first, in a call or in another; a single prefix is the run's."""
    with called(LIMITS, "single") as path:
        path.run.update(**{"red/kl": 1.0, "red/entropy": 0.4})
        path.run.update(kl=2.0)
        path.run.update(**{"red/kl": 3.0})
        path.read_all()
        found = [{name: column.first() for name, column in event.values.items()} for event in path.events]
    red = {f"{P}kl_divergence": 1.0, f"{P}entropy": 0.4}
    assert found == [red, {f"{P}kl_divergence": 2.0}, {f"{C}red/kl": 3.0}]


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


def test_a_number_in_another_unit_is_sent_in_its_rows() -> None:
    """prime-rl has the share of arithmetic in per cent, which no other library calls so."""
    assert _landed(**{"perf/mfu": 40.0, "kl": 0.01}) == {f"{P}mfu": 0.4, f"{P}kl_divergence": 0.01}


@pytest.mark.parametrize(
    ("library", "landed"),
    [
        (Library.SB3, {f"{P}entropy_nats": 0.5}),
        (Library.OPENRLHF, {f"{P}entropy_nats": -0.5}),
        (None, {f"{C}train/entropy_loss": -0.5}),
    ],
)
def test_a_name_of_two_meanings_is_read_where_the_library_is_known(
    library: Library | None, landed: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    """SB3's is minus the entropy, OpenRLHF's the entropy; of nobody known it is a custom number."""
    assert _landed(Dialect(library=library), **{"train/entropy_loss": -0.5}) == landed
    hint = "means a metric in 'SB3', 'OpenRLHF', 'slime' alone; with start(library=…) it is that"
    assert caplog.text.count(hint) == (library is None)


def test_what_a_library_means_otherwise_is_custom(caplog: pytest.LogCaptureFixture) -> None:
    """The reward of verl is less the KL penalty; what its table does not have is read as without it."""
    values = {"critic/rewards/mean": 1.0, "critic/score/mean": 2.0, "success_rate": 0.5}
    values["critic/grad_norm"] = 3.0
    assert _landed(Dialect(library=Library.VERL), **values) == {
        f"{C}critic/rewards/mean": 1.0,
        f"{P}return": 2.0,
        f"{P}success_rate": 0.5,
        f"{C}critic/grad_norm": 3.0,
    }
    assert "did you mean" not in caplog.text


def test_of_a_librarys_names_for_one_row_the_surest_counts() -> None:
    """The other is custom, as it was given."""
    dialect = Dialect(library=Library.SB3)
    expected = {f"{P}entropy_nats": 0.5, f"{C}entropy_nats": 0.7}
    assert _landed(dialect, **{"entropy_nats": 0.7, "train/entropy_loss": -0.5}) == expected


@pytest.mark.parametrize(
    ("preset", "row"), [(None, "kl_reference"), ("ppo", "kl_divergence"), ("grpo", "kl_reference")]
)
def test_names_of_grpo_choose_its_preset_where_the_run_chose_none(preset: str | None, row: str) -> None:
    """`kl` is then that from the reference, whichever name comes first."""
    for names in (("kl", "frac_reward_zero_std"), ("frac_reward_zero_std", "kl")):
        landed = _landed(Dialect(preset=preset), **dict.fromkeys(names, 0.25))
        assert landed == {f"{P}{row}": 0.25, f"{P}groups_alike": 0.25}


def test_a_name_means_another_row_once_the_preset_is_chosen() -> None:
    """What came before stays; of names that are no GRPO's nothing is chosen."""
    with called(LIMITS, "single", Dialect(preset=None)) as path:
        path.run.update(update=1, kl=0.1, loss=1.0)
        path.run.update(update=2, kl=0.2, **{"completions/clipped_ratio": 0.5})
        path.run.update(update=3, kl=0.3)
        path.read_all()
        seen = {name: column.first() for event in path.events for name, column in event.values.items()}
    assert seen[f"{P}kl_divergence"] == 0.1
    assert seen[f"{P}kl_reference"] == 0.3
