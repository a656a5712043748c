"""Entropy as trainers have it: in nats, of which only some are a share of a known maximum."""

import math

import msgspec
import pytest

from overwatch.catalog import NO_LIMITS
from overwatch.catalog.policy import ENTROPY
from overwatch.events import Column, Conflated, Measured
from overwatch.state.policy import Status
from overwatch.state.run import dump, load
from tests import fakes
from tests.fakes import START_NS

SHARE, NATS = "overwatch.policy.entropy", "overwatch.policy.entropy_nats"


def _reported(*values: float, **started: object) -> fakes.RunState:
    start = [fakes.started(START_NS, **started)] if started else []
    return fakes.folded(
        [*start, *(fakes.policy(START_NS + at, entropy=value) for at, value in enumerate(values))]
    )


@pytest.mark.parametrize("values", [(2.3, 0.9, 0.05), (-0.08, -1.5), (0.9, 1.2, 0.05), (0.5, -3.0)])
def test_an_entropy_beyond_a_share_is_in_nats_and_judged_by_nothing(values: tuple[float, ...]) -> None:
    """From the first such value on, whatever comes later; of a density it is negative."""
    state = _reported(*values)
    series = state.policy[SHARE]
    assert series.value == values[-1]
    assert (series.warnings, series.criticals) == (0, 0)
    assert series.judgement is not None
    assert (series.judgement.status, series.judgement.limit) == (Status.OK, None)
    lines = [entry.message for entry in state.feed.items if "entropy_relative" in entry.message]
    assert len(lines) == 1


@pytest.mark.parametrize(
    "values", [(0.0, 1.0), (1.0000001, 0.5), (-0.0, 0.2), (math.nan, 0.5), (math.inf, 0.5)]
)
def test_a_share_stays_one(values: tuple[float, ...]) -> None:
    """Rounding and what is not finite decide nothing."""
    state = _reported(*values)
    assert NATS not in state.policy
    assert state.policy[SHARE].value == values[-1]
    assert not [entry for entry in state.feed.items if "entropy" in entry.message]


def test_a_share_is_worked_out_where_the_run_declared_the_maximum() -> None:
    """Of four actions, in nats under either name."""
    config = {"max_entropy": repr(math.log(4))}
    assert _reported(math.log(4), 0.1, config=config).policy[SHARE].value == pytest.approx(0.1 / math.log(4))
    named = [fakes.started(START_NS, config=config), fakes.policy(START_NS, entropy_nats=math.log(2))]
    assert fakes.folded(named).policy[SHARE].value == pytest.approx(0.5)


def test_another_share_beyond_0_to_1_is_a_custom_number_and_judged_by_nothing() -> None:
    """A clip fraction in per cent is none, before and after that shows; the feed has one line."""
    values = (0.9, 12.0, 0.6, 40.0)
    state = fakes.folded(
        [fakes.policy(START_NS + at, clip_fraction=value) for at, value in enumerate(values)]
    )
    series = state.policy["overwatch.custom.clip_fraction"]
    assert (series.value, series.warnings, series.criticals) == (40.0, 0, 0)
    assert "overwatch.policy.clip_fraction" not in state.policy
    lines = [entry.message for entry in state.feed.items if "clip_fraction is beyond 0 to 1" in entry.message]
    assert len(lines) == 1
    assert load(dump(state)).no_shares == state.no_shares


@pytest.mark.parametrize("value", [0.0, 1.0, 1.005, math.nan, math.inf])
def test_a_share_of_rounding_or_of_nothing_is_judged(value: float) -> None:
    """Only a finite value beyond decides."""
    state = fakes.folded([fakes.policy(START_NS, clip_fraction=value)])
    assert "overwatch.policy.clip_fraction" in state.policy
    assert not state.no_shares


@pytest.mark.parametrize(
    ("started", "preset"),
    [({}, "grpo"), ({"algo": "ppo"}, "ppo"), ({"preset": "esper"}, "esper"), (None, "grpo")],
)
def test_names_choose_the_preset_of_a_run_that_chose_none(
    started: dict[str, str] | None, preset: str
) -> None:
    """Neither its preset nor its algorithm; before such a name comes it is the default."""
    start = [] if started is None else [fakes.started(START_NS, **{"algo": None, "preset": None, **started})]
    before = fakes.folded([*start, fakes.policy(START_NS, entropy=0.2)])
    assert before.preset == {"grpo": "ppo"}.get(preset, preset)
    after = fakes.folded([*start, fakes.policy(START_NS, entropy=0.2, groups_alike=0.1)])
    assert after.preset == preset
    assert (after.limits(ENTROPY) == NO_LIMITS) == (preset == "grpo")


def test_one_value_between_two_records_decides_too() -> None:
    """Of many updates in one record the extremes count; with a declared maximum they are in nats."""
    many = Conflated(
        n=3, updates=3, low={SHARE: Column.scalar(0.4)}, high={SHARE: Column.scalar(1.9)},
        criticals={SHARE: 1},
    )  # fmt: skip
    event = msgspec.structs.replace(fakes.policy(START_NS, entropy=0.5), conflated=many)
    assert isinstance(event, Measured)
    state = fakes.folded([event])
    assert (state.policy[SHARE].highest, state.policy[SHARE].criticals) == (1.9, 0)
    declared = fakes.folded([fakes.started(START_NS, config={"max_entropy": "2"}), event])
    assert (declared.policy[SHARE].value, declared.policy[NATS].highest) == (0.25, 1.9)
