"""What other libraries call a metric, and what exactly they measure."""

from pathlib import Path

import pytest
import stable_baselines3
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overwatch import catalog
from overwatch.catalog import (
    BY_NAME,
    CUSTOM_PREFIX,
    KL,
    ROWS,
    Estimator,
    Library,
    Metric,
    Moment,
    Names,
    Scope,
    aliases_of,
    find,
    find_split,
    prometheus_name,
    spellings,
    typed,
)
from overwatch.catalog.alias import Alias
from overwatch.catalog.describe import lookup
from overwatch.events import Column, Measured
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.settle import settle
from overwatch.otlp.totals import Totals


def _alias(name: str) -> Alias:
    return next(alias for row in ROWS for alias in aliases_of(row) if alias.name == name)


@pytest.mark.parametrize(
    ("name", "estimator", "moment"),
    [
        ("train/approx_kl", Estimator.K3, Moment.LAST_EPOCH),
        ("losses/approx_kl", Estimator.K3, Moment.LAST_MINIBATCH),
        ("policy/approxkl_avg", Estimator.K2, Moment.ALL_EPOCHS),
        ("actor/ppo_kl", Estimator.K1, Moment.ALL_EPOCHS),
        ("learners/default_policy/mean_kl_loss", Estimator.EXACT, Moment.LAST_MINIBATCH),
    ],
)
def test_a_divergence_states_how_it_was_estimated(name: str, estimator: Estimator, moment: Moment) -> None:
    """Nobody takes one library's number for another's."""
    assert (_alias(name).estimator, _alias(name).moment) == (estimator, moment)


def test_every_alias_of_a_divergence_names_its_estimator_or_stands_apart() -> None:
    """Whatever is judged as KL was estimated in a way that can be."""
    for alias in aliases_of(KL):
        if alias.library not in (Library.RL_DRAFT, Library.PLAIN):
            # rl_games has two under one name: exact for Gaussians, k2 for choices.
            is_either = alias.library is Library.RL_GAMES and alias.estimator is None
            assert is_either or alias.estimator in (Estimator.K2, Estimator.K3, Estimator.EXACT)
            assert alias.moment is not None


def test_a_divergence_from_a_reference_is_not_kl() -> None:
    """What keeps a language model near its start has a row and limits of its own."""
    for name in ("objective/kl", "train/kl", "actor/kl_loss", "train/kl_penalty"):
        row = find(name)
        assert row is not None
        assert row.short == "kl_reference"
    k1 = find("actor/ppo_kl")
    assert k1 is not None
    assert (k1.short, k1.mean_of) == ("kl_k1", 10)


def test_every_library_is_spelt() -> None:
    """Each has aliases."""
    assert {alias.library for row in ROWS for alias in aliases_of(row)} == set(Library)


def test_a_name_that_several_rows_share_is_resolved_by_attributes() -> None:
    """The draft has one metric for all losses."""
    assert find("rl.train.loss") is None
    policy = find_split("rl.train.loss", {"rl.loss.type": "policy", "other": 1})
    value = find_split("rl.train.loss", {"rl.loss.type": "value"})
    assert policy is not None
    assert value is not None
    assert (policy.short, value.short) == ("policy_loss", "value_loss")
    assert find_split("rl.train.loss", {}) is None
    assert find_split("rl.train.loss", {"rl.loss.type": "surprise"}) is None


def test_an_alias_is_found_in_its_scope() -> None:
    """A spelling of a policy's number is none of an env's."""
    assert find("train/approx_kl", Scope.POLICY) is KL
    assert find("train/approx_kl", Scope.ENV) is None


@pytest.mark.parametrize(
    ("row", "alias"),
    [(row, alias) for row in ROWS for alias in aliases_of(row) if alias.is_common],
    ids=lambda value: value.name,
)
def test_a_metric_under_an_alias_arrives_as_its_row(row: Metric, alias: Alias) -> None:
    """Whoever exports OTLP under a library's own name is understood."""
    message = ExportMetricsServiceRequest()
    resource = message.resource_metrics.add()
    run_id = resource.resource.attributes.add(key="rl.run.id")
    run_id.value.string_value = "foreign"
    metric = resource.scope_metrics.add().metrics.add(name=alias.name)
    point = metric.gauge.data_points.add(time_unix_nano=1_800_000_000_000_000_000, as_double=0.5)
    for key, word in alias.attributes.items():
        point.attributes.add(key=key).value.string_value = word

    decoded = settle(decode(Signal.METRICS, message.SerializeToString()), Totals())

    assert [record.event.values for record in decoded.records if isinstance(record.event, Measured)] == [
        {row.name: Column.of([0.5])}
    ]


def test_the_installed_library_spells_them_so() -> None:
    """What is reported of SB3 is in its source, or was logged by a run of sb3-contrib."""
    folder = Path(stable_baselines3.__file__).parent
    recorded = Path(__file__).parents[1] / "adapters" / "recorded" / "sb3.json"
    read = [*folder.rglob("*.py"), recorded]
    source = "\n".join(path.read_text(encoding="utf-8") for path in read)
    spelt = [alias.name for row in ROWS for alias in aliases_of(row) if alias.library is Library.SB3]

    assert len(spelt) > 8
    assert [name for name in spelt if f'"{name}"' not in source] == []


def _spelt() -> list[str]:
    """Every spelling of every row, of every kind."""
    words = ((*spellings(row), prometheus_name(row), *row.tele, row.label, row.label.lower()) for row in ROWS)
    return sorted({word for of_row in words for word in of_row})


def test_what_the_catalogue_shows_is_what_an_update_lands_on() -> None:
    """Of the policy, for every spelling there is; one of several rows is none of them for both.

    What the screen calls `update` is a time, and a column of that name counts updates.
    """
    for word in {*_spelt()} - {"update"}:
        if word in BY_NAME and BY_NAME[word].scope is not Scope.POLICY:
            continue
        shown = [row for row in lookup(word, ROWS) if row.scope is Scope.POLICY]
        landed = find(word, Scope.POLICY)
        assert landed is (shown[0] if len(shown) == 1 else None), word


@pytest.mark.parametrize(
    ("short", "words"),
    [
        ("return", "return_ episode_return mean_return ep_rew_mean reward_mean reward mean_reward"),
        ("kl_divergence", "kl approx_kl info/kl"),
        ("total_loss", "loss loss/mean"),
        ("entropy", "entropy entropy_relative"),
        ("entropy_nats", "losses/entropy train/entropy Loss/entropy ent_loss/mean policy/entropy_avg"),
        ("kl_k1", "losses/old_approx_kl kl_approx"),
        ("policy_loss", "losses/a_loss Loss/surrogate loss_objective train/policy_loss"),
        ("value_loss", "losses/c_loss Loss/value loss_critic vf_loss/mean"),
        (
            "return",
            "Train/mean_reward rewards/step training/returns_stat/mean reward/reward critic/score/mean",
        ),
        ("learning_rate", "info/last_lr Loss/learning_rate"),
    ],
)
def test_what_libraries_and_people_write_is_known(short: str, words: str) -> None:
    """Words that stand for one row, in every library."""
    for word in words.split():
        row = find(word, Scope.POLICY)
        assert row is not None, word
        assert row.short == short


def test_a_pattern_leaves_many_names_out() -> None:
    """Of the library's own names those that are a row's come first."""
    alias = Alias(name="rewards/all", library=Library.TRL)
    names = Names(
        library=Library.TRL,
        version=None,
        is_run=False,
        rows={"return": (alias,)},
        left={"rewards/*": "of one"},
    )
    assert names.leaves("rewards/accuracy")
    assert not names.leaves("reward")


def test_skrl_has_names_with_spaces() -> None:
    """They are names of rows as well."""
    names = ("Loss / Policy loss", "Reward / Total reward (mean)", "Learning / Learning rate")
    found = [find(name, Scope.POLICY) for name in names]
    assert [row and row.short for row in found] == ["policy_loss", "return", "learning_rate"]


def test_a_bare_kl_of_a_language_model_is_that_of_the_reference() -> None:
    """Under the preset whose users mean it so; from anybody else it is KL."""
    reference = find("kl", Scope.POLICY, "grpo")
    assert reference is not None
    assert reference.short == "kl_reference"
    assert find("kl", Scope.POLICY, "ppo") is KL


def test_what_is_proposed_can_be_typed() -> None:
    """`return` is a keyword: a row has a spelling that is none, if it has one that people write."""
    row = find("return", Scope.POLICY)
    assert row is not None
    assert typed(row) == "return_"
    for one in ROWS:
        word = typed(one)
        assert word is None or find(word, one.scope) is one


def test_a_custom_number_is_searched_for_in_no_other_spelling() -> None:
    """Adapters send many, and comparing with each row's spellings takes half a millisecond a name."""
    before = catalog._loosely.cache_info().misses
    assert find(f"{CUSTOM_PREFIX}learners/default_policy/module", Scope.POLICY) is None
    assert catalog._loosely.cache_info().misses == before
