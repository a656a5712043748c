"""Snapshots state what the state holds, in the words that views show."""

import math
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from overwatch import codec
from overwatch.catalog import ROWS, Metric, Scope, key_of, name_of
from overwatch.catalog.metric import Limit
from overwatch.diagnose import Assessment, assess
from overwatch.events import Column, Event, LogLine, Measured, Severity, scalars
from overwatch.projection import project
from overwatch.projection.policy import trend
from overwatch.snapshot import SCHEMA_VERSION, Snapshot, View
from tests import fakes
from tests.fakes import SECOND, START_NS

SCHEMA = Path(__file__).parents[3] / "otel/snapshot.schema.json"


def _shown(events: list[Event], view: View | None = None, after_s: float = 0.5) -> Snapshot:
    state = fakes.folded(events)
    tick = state.last_stamp + int(after_s * SECOND)
    return project(state, assess(state, Assessment(), tick), view or View())


def _full() -> list[Event]:
    return [
        fakes.started(START_NS, slots=("r0c0", "r0c1"), blueprints={"mlp_small": "ms"}, updates=10),
        fakes.envs(START_NS + SECOND, [0, 1, 2], index=1, reward=[0.1, 0.2, 0.3], lane=["cpu", "cpu", "gpu"]),  # type: ignore[list-item]  # lanes are words
        fakes.slots(START_NS + SECOND, [0, 1], ["r0c0", "r0c1"], ["training", "dormant"]),
        fakes.acted(START_NS + SECOND, [0, 1], ["wait", "prune"], [None, "r0c0"]),
        fakes.ended(START_NS + 2 * SECOND, [0, 1, 2], [1.0, 3.0, 2.0]),
        fakes.policy(
            START_NS + 2 * SECOND, index=1, kl_divergence=0.0231, entropy=0.62, explained_variance=math.nan
        ),
        fakes.crashed(START_NS + 2 * SECOND, 2),
    ]


def test_absent_is_absent_and_not_zero() -> None:
    """A policy row that nobody reported is there, with no value and the status absent."""
    reading = _shown(_full()).policy["grad_norm"]

    assert (reading.value, reading.status, reading.text) == (None, "absent", "–")


def test_undefined_is_shown_as_not_available() -> None:
    """Explained variance without variance is n/a, and no verdict."""
    reading = _shown(_full()).policy["explained_variance"]

    assert (reading.value, reading.status, reading.non_finite, reading.text) == (
        None,
        "absent",
        "undefined",
        "n/a",
    )


def test_nan_is_critical_and_shown_as_nan() -> None:
    """A NaN is null in JSON, critical in status, NaN in text."""
    reading = _shown([fakes.policy(START_NS, policy_loss=math.nan)]).policy["policy_loss"]

    assert (reading.value, reading.status, reading.non_finite, reading.text) == (
        None,
        "critical",
        "nan",
        "NaN",
    )


def test_slots_come_from_the_env_not_from_a_schema() -> None:
    """Each env shows the slots it has, no others."""
    by_id = {env.env_id: env.slots for env in _shown(_full()).envs}

    assert {name: slot.stage for name, slot in by_id[0].items()} == {"r0c0": "training"}
    assert {name: slot.glyph for name, slot in by_id[1].items()} == {"r0c1": "·"}
    assert by_id[2] == {}


def test_a_slot_carries_its_gradient_health_and_the_run_its_embargo() -> None:
    """Both as they were sent; a slot that was not measured has none, nor has a run without such a rule."""
    reported = fakes.slots(START_NS + 1, [0, 0, 0], ["a", "b", "c"], ["training", "training", "pruned"])
    health = Column.of([0.62, math.nan, 0.04])
    reported = msgspec.structs.replace(
        reported, values={**reported.values, "overwatch.slot.gradient_health": health}
    )
    shown = _shown([fakes.started(START_NS, embargo=5), reported])

    assert shown.run.embargo == 5
    assert [slot.grad for slot in shown.envs[0].slots.values()] == [0.62, None, 0.04]
    assert _shown([fakes.started(START_NS)]).run.embargo is None


def test_rows_are_cut_and_the_rest_is_counted() -> None:
    """A view of one row shows the worst env and states how many its lanes hide."""
    snapshot = _shown(_full(), View(rows=1))

    assert [env.env_id for env in snapshot.envs] == [2]
    assert [group.hidden for group in snapshot.board.groups] == [0, 2]


def test_the_board_names_the_columns_that_the_run_reports() -> None:
    """Return hides reward once episodes ended; what nobody reports has no column."""
    assert _shown(_full()).board.columns == ("return",)
    assert _shown([fakes.envs(START_NS, [0], reward=[1.0])]).board.columns == ("reward",)


def test_the_verdict_names_the_cause() -> None:
    """The banner carries the worst severity and what is wrong."""
    verdict = _shown(_full()).verdict

    assert verdict.severity == "critical"
    assert verdict.text == "env 2 crashed at step 12: boom"
    assert verdict.counts == {"critical": 1}


def test_the_policy_in_the_banner_has_three_decimals() -> None:
    """A KL finding is shown with the value and the limit it passed."""
    events: list[Event] = [fakes.policy(START_NS + i, index=i, kl_divergence=0.0231) for i in range(25)]

    assert _shown(events).verdict.text == "KL 0.023 above 0.015"


LEVELS = [
    pytest.param(row, preset, limit, id=f"{row.short}-{preset}-{limit.side.value}-{limit.value:g}")
    for row in ROWS
    if row.scope is Scope.POLICY
    for preset, limits in {"ppo": row.limits, **row.presets}.items()
    for levels in limits.sides
    for limit in (levels.warning, levels.critical)
    if limit is not None and not limit.relative
]


@pytest.mark.parametrize(("row", "preset", "limit"), LEVELS)
def test_a_sentence_about_a_limit_is_true(row: Metric, preset: str, limit: Limit) -> None:
    """Above, below, at it or back: by the side of the rule, in one unit, with digits that show it."""
    is_above = limit.side.is_above
    bad = limit.value + (1 if is_above else -1) * max(abs(limit.value), 1.0) / 2
    for last in (math.nextafter(limit.value, bad), limit.value):
        events: list[Event] = [fakes.started(START_NS, preset=preset)]
        values = [bad] * 30 + [last]
        events += [fakes.policy(START_NS + i, index=i, **{row.short: one}) for i, one in enumerate(values, 1)]
        text = _shown(events).verdict.text
        if text.startswith(("policy healthy", "nothing to judge")):
            continue  # A row that is judged beside others alone.
        cause = next(one for one in text.split(" · ") if one.startswith(row.label))
        words = cause.removeprefix(row.label)
        numbers = [float(one) for one in re.findall(r"[-+]?\d[\d.]*(?:e[-+]\d+)?", words)]

        assert words.count("%") in (0, len(numbers)), cause
        if " was " in words:
            limit_shown, value = numbers
            assert value <= limit_shown if " above " in words else value >= limit_shown, cause
        elif " at its limit " in words:
            assert numbers == [pytest.approx(limit.value * (100 if "%" in words else 1))], cause
        else:
            assert (" above " if is_above else " below ") in words, cause
            assert numbers[0] > numbers[1] if is_above else numbers[0] < numbers[1], cause


def test_a_selected_env_has_its_detail() -> None:
    """Returns of its episodes and its lines of the feed."""
    detail = _shown(_full(), View(env_id=2)).detail

    assert detail is not None
    assert detail.history == {"return": (2.0,)}
    assert detail.events == ("crashed step=12 error=boom",)


def test_run_counters_start_at_zero() -> None:
    """Every counter is there from the first snapshot on, but steps, of which there may be no number."""
    counters = _shown([fakes.started(START_NS)]).counters

    assert counters == {
        "updates": 0, "episodes": 0, "non_finite": 0, "crashes": 0, "sdk_dropped": 0,
        "gpu_idle": 0, "rollbacks": 0,
    }  # fmt: skip


def test_text_from_telemetry_cannot_steer_a_terminal() -> None:
    """Escapes, newlines and direction marks are made visible."""
    line = LogLine(
        at=START_NS, severity=Severity.INFO, message="\x1b[31mred\n\u202eevil", fields={"a\x07": "b\x00"}
    )
    shown = _shown([line]).feed[-1]

    assert shown.message == "\ufffd[31mred \ufffdevil"
    assert shown.fields == {"a\ufffd": "b\ufffd"}


def test_progress_has_an_estimate() -> None:
    """After 1 of 10 updates in two seconds, eighteen remain."""
    run = _shown(_full()).run

    assert (run.update, run.updates, run.elapsed_s, run.eta_s) == (1, 10, 2.0, pytest.approx(18.0))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([1.0, 1.0, 1.0], None),
        ([1.0, 2.0, 3.0, 4.0], "up"),
        ([4.0, 3.0, None, 2.0, 1.0], "down"),
        ([1.0, 5.0, 1.0, 5.0, 1.0], "flat"),
        ([100.0, 100.1, 100.2, 100.3], "flat"),
        ([0.0, 0.0, 0.0, 3.351951982485649e154], "flat"),
    ],
)
def test_a_trend_must_stand_out_from_its_scatter(values: list[float | None], word: str | None) -> None:
    """Slope against spread: noise is flat, too few values have no trend."""
    assert trend(values) == word


def test_a_snapshot_obeys_its_published_schema_and_round_trips() -> None:
    """JSON validates against the committed schema, and decodes to an equal snapshot."""
    snapshot = _shown(_full(), View(env_id=2))
    line = codec.encode(snapshot)

    jsonschema.validate(msgspec.json.decode(line), msgspec.json.decode(SCHEMA.read_bytes()))
    assert codec.decode(line) == snapshot


def test_another_major_schema_version_is_refused_with_a_reason() -> None:
    """A reader states which version it got and which it reads; unknown fields of a minor one are ignored."""
    line = codec.encode(_shown(_full()))
    version = f'"schema_version":"{SCHEMA_VERSION}"'.encode()
    with pytest.raises(codec.SchemaVersionError, match=r"version 2\.0, this build reads 1\."):
        codec.decode(line.replace(version, b'"schema_version":"2.0"'))

    newer = line.replace(version, b'"schema_version":"1.9","later":[1]')
    assert codec.decode(newer).schema_version == "1.9"


@pytest.mark.parametrize(
    ("short", "values", "scale"),
    [
        ("kl_divergence", [0.01], (0.0, 0.03)),
        ("entropy", [0.5], (0.0, 1.0)),
        ("grad_norm", [2.0, 4.0, 3.0], (0.0, 12.0)),
        ("learning_rate", [1e-3], None),
    ],
)
def test_a_sparkline_is_drawn_against_the_limit(
    short: str, values: list[float], scale: tuple[float, float] | None
) -> None:
    """The scale ends at the limit, of the run's own median where that is the measure."""
    events: list[Event] = [fakes.policy(START_NS + i, index=i, **{short: v}) for i, v in enumerate(values)]

    assert _shown(events).policy[short].scale == scale


def test_a_cause_that_is_alone_has_room() -> None:
    """A silent run is stated in one whole sentence; several causes share the line."""
    verdict = _shown([fakes.policy(START_NS, index=7, entropy=0.5)], after_s=14.2).verdict

    assert verdict.severity == "critical"
    assert verdict.text == (
        "no telemetry for 14s; last record 2027-01-15T08:00:00Z from rank 0; process state unknown"
    )


def test_a_number_of_a_head_is_shown_as_that_of_all_heads_is_and_judged_by_nothing() -> None:
    """A head may be sure of itself while the policy explores; where there is one head, there is none."""
    policy = _shown([fakes.policy(START_NS, index=1, entropy=0.62, **{"entropy/op": 0.05})]).policy

    assert (policy["entropy/op"].label, policy["entropy/op"].text) == ("entropy op", "5%max")
    assert (policy["entropy/op"].status, policy["entropy/op"].limit) == ("ok", None)
    assert not [name for name in _full_policy() if "/" in name]


def test_a_number_of_the_runs_own_hides_no_row() -> None:
    """One that is called as a row is keeps its full name, also in what is remembered of it."""
    own = Measured(
        at=START_NS, scope=Scope.POLICY, values=scalars({"overwatch.custom.entropy": 1.4}), index=1
    )
    policy = _shown([fakes.policy(START_NS, index=1, entropy=0.6), own]).policy

    assert (policy["entropy"].value, policy["overwatch.custom.entropy"].value) == (0.6, 1.4)
    for name in ("overwatch.policy.entropy", "overwatch.custom.entropy", "overwatch.custom.mine"):
        assert name_of(key_of(name)) == name


def _full_policy() -> list[str]:
    return list(_shown(_full()).policy)
