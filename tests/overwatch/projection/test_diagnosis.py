"""What was diagnosed is shown: lanes with their bounds, findings in order, the drawer, rollups by lane."""

from collections.abc import Sequence

import pytest

from overwatch.diagnose import Assessment, assess
from overwatch.events import ActionTaken, Column, Event, GateEvaluated, LogLine, Severity
from overwatch.projection import project
from overwatch.snapshot import Snapshot, View
from tests import fakes
from tests.fakes import SECOND, START_NS
from tests.overwatch.diagnose.test_bounds import lane_readings


def _shown(events: Sequence[Event], view: View | None = None, for_s: float = 5.0) -> Snapshot:
    """The snapshot after the events were judged for a while, so that holds are over."""
    state = fakes.folded(list(events))
    judged = assess(state, Assessment(), state.last_stamp)
    for i in range(1, int(for_s * 10)):
        judged = assess(state, judged.assessment, state.last_stamp + i * SECOND // 10)
    return project(state, judged, view or View())


LANES = ["gpu10"] * 3 + ["gpu2"] * 3


def _step(at: int, index: int | None = None, **columns: Sequence[float]) -> Event:
    return fakes.envs(at, range(6), index, lane=LANES, **columns)  # type: ignore[arg-type]  # lanes are words


def _throttled() -> list[Event]:
    events: list[Event] = [fakes.started(START_NS, devices=("gpu10", "gpu2"))]
    for i in range(5):
        at = START_NS + i * SECOND
        events += [
            _step(at, step_time=[0.05] * 3 + [0.01] * 3),
            lane_readings(
                at, ["gpu10", "gpu2", "gpu11"], throttle=["thermal", None, None],
                utilization=[0.97, 0.6, 0.97],
                power_w=[388, 412, 600], power_limit_w=[700] * 3,
                clock_hz=[1140e6, 1980e6, 1980e6], clock_max_hz=[1980e6] * 3,
            ),
        ]  # fmt: skip
    return events


def test_equal_lanes_are_in_natural_order() -> None:
    """gpu2 comes before gpu10."""
    reported = lane_readings(START_NS, ["gpu10", "gpu2", "gpu1"], utilization=[0.5] * 3)

    assert [lane.gpu_id for lane in _shown([reported]).system.gpus] == ["gpu1", "gpu2", "gpu10"]


def test_the_verdict_names_causes() -> None:
    """The throttled lane and the one that waits for it, not the slow envs."""
    snapshot = _shown(_throttled(), for_s=4.5)

    assert snapshot.verdict.text == "gpu10 is throttled (thermal) and gpu2 waits"
    assert [(f.code, f.symptoms) for f in snapshot.findings] == [("thermal-throttle", 3)]
    assert snapshot.board.counts == {"ok": 6}


def test_findings_are_ordered_by_severity_consequence_and_age() -> None:
    """Critical before warning; the whole run before single envs; then the older."""
    events: list[Event] = [fakes.envs(START_NS, range(40), step_time=[0.01] * 39 + [0.5])]
    events += [fakes.crashed(START_NS + 2 * SECOND, 4), fakes.crashed(START_NS + SECOND, 3)]
    events += [fakes.non_finite(START_NS + 3 * SECOND, "overwatch.env.reward", (5, 6))]
    shown = _shown(events, for_s=4.0).findings

    assert [(f.code, f.subject.id) for f in shown] == [
        ("non-finite", None), ("env-crashed", "3"), ("env-crashed", "4"), ("env-non-finite", "5"),
        ("env-non-finite", "6"), ("env-stalled", "39"),
    ]  # fmt: skip


def _busy_env() -> list[Event]:
    events: list[Event] = [fakes.started(START_NS, slots=("a", "b"))]
    for i in range(40):
        at = START_NS + i * SECOND
        events.append(_step(at, index=i * 5, rent=[0.1 * i] * 6, step_time=[0.01] * 6))
        if i % 4 == 0:
            events.append(fakes.ended(at, range(6), [float(i)] * 6))
    at = START_NS + 40 * SECOND
    for step, op in ((198, "germinate"), (199, "wait")):
        events.append(
            ActionTaken(
                at=at, env_id=Column.of([3]), op=Column.of_labels([op]), step=step,
                slot=Column.of_labels(["a" if op == "germinate" else None]),
                blueprint=Column.of_labels(["conv" if op == "germinate" else None]),
            )
        )  # fmt: skip
    events += [
        GateEvaluated(
            at=at + i, env_id=3, slot="a", seed_id=f"s{i}", gate="G2", passed=False, checks_failed=("x",)
        )
        for i in range(5)
    ]
    return events


def test_a_feed_that_is_full_of_others_keeps_the_envs_events() -> None:
    """Hundreds of lines later the facts about the selected env are still there."""
    talk = [
        LogLine(at=START_NS + 41 * SECOND + i, severity=Severity.INFO, message="noise") for i in range(500)
    ]
    detail = _shown([*_busy_env(), *talk], View(env_id=3), for_s=1).detail

    assert detail is not None
    assert len(detail.events) == 5


def test_an_env_never_seen_has_its_id_alone() -> None:
    """Asking for it is no error."""
    detail = _shown(_busy_env(), View(env_id=99), for_s=1).detail

    assert detail is not None
    assert (detail.env, detail.rank, detail.trends) == (None, None, {})


def test_the_feed_has_a_rate() -> None:
    """Two lines a second over the last ten seconds; none before the first line; 0 when it went quiet."""
    lines: list[Event] = [
        LogLine(at=START_NS + i * SECOND // 2, severity=Severity.INFO, message="m") for i in range(100)
    ]

    assert _shown(lines, for_s=1).feed_rate == pytest.approx(2.0, rel=0.06)
    assert _shown([fakes.policy(START_NS, entropy=0.5)], for_s=1).feed_rate is None
    quiet = [*lines, fakes.policy(START_NS + 100 * SECOND, entropy=0.5)]
    assert _shown(quiet, for_s=1).feed_rate == 0


def test_the_header_counts_the_envs_that_are_well() -> None:
    """One degraded env is no critical, and hidden by no green header: one finding, and the header's count."""
    events: list[Event] = [fakes.started(START_NS)]
    for i in range(40):
        at = START_NS + i * SECOND
        failed = GateEvaluated(at=at, env_id=5, slot="s", seed_id=f"s{i}", gate="G2", passed=False)
        steps, update = fakes.envs(at, range(16), 3 * i), fakes.policy(at, i + 1, entropy=0.5)
        events += [steps, update, *([failed] if i > 25 else [])]
    at_once, later = _shown(events, for_s=0.2), _shown(events, for_s=5.0)

    assert [row.status for row in later.envs].count("degraded") == 1
    assert "15 of 16 env" in at_once.verdict.text
    (finding,) = [finding for finding in later.findings if finding.code == "env-degraded"]
    assert (finding.severity, finding.symptoms) == ("warning", 1)
    assert finding.message.startswith("1 of 16 envs degraded: env 5: ")
    assert "degraded" in later.verdict.text


@pytest.mark.parametrize(
    ("values", "is_judged"),
    [
        ({"mine": 1.0, "other": 2.0}, False),
        ({"policy_loss": 0.1, "learning_rate": 1e-3, "entropy_nats": 1.0}, False),
        ({"entropy": 2.3}, False),
        ({"return": 1.0}, True),
        ({"kl_divergence": 0.001}, True),
        ({"mine": 1.0, "grad_norm": 0.1}, True),
    ],
)
def test_a_policy_of_which_nothing_can_be_judged_is_not_called_healthy(
    values: dict[str, float],
    is_judged: bool,  # noqa: FBT001 a case
) -> None:
    """After a few updates the verdict names what to send and what came; one that can be judged is."""
    events: list[Event] = [fakes.policy(START_NS + i, index=i, **values) for i in range(25)]
    for reported in (events[:3], events):
        verdict = _shown(reported, for_s=1).verdict
        assert verdict.severity == ("ok" if is_judged else "info")
        if not is_judged:
            assert verdict.text.startswith("nothing to judge yet: send return_ and kl_divergence")
            assert next(iter(values)) in verdict.text or "entropy_nats" in verdict.text
            texts = {name: reading.text for name, reading in _shown(reported, for_s=1).policy.items()}
            assert texts["entropy"] == ("+2.300nat" if "entropy" in values else "–")
    with_returns = [*events, fakes.ended(START_NS, [0], [1.0])]
    assert _shown(with_returns, for_s=1).verdict.severity == "ok"
