"""The drawer's seed events: moves with what decided them, gates on their own, a crash, newest first."""

from itertools import pairwise

import msgspec
import pytest

from overwatch.catalog import Stage
from overwatch.diagnose import Assessment, assess
from overwatch.events import EnvCrashed, Event, GateEvaluated, LogLine, SeedStageChanged, Severity
from overwatch.projection import project
from overwatch.projection.rows import EVENTS
from overwatch.snapshot import SeedEvent, View
from tests import fakes
from tests.fakes import SECOND, START_NS

FAILED = {"passed": False, "score": 0.04, "checks_failed": ("gradient_ratio",)}
WORDS = "gradient ratio 0.04 < 0.10"


def _moved(at: int, reason: str | None, *, slot: str = "r1c1", env_id: int = 9) -> SeedStageChanged:
    return SeedStageChanged(
        at=at, env_id=env_id, slot=slot, seed_id=f"{slot}-1", before=Stage.BLENDING, after=Stage.PRUNED,
        blueprint="conv_light", age=31, reason=reason,
    )  # fmt: skip


def _gate(at: int, *, slot: str = "r1c1", **reported: object) -> GateEvaluated:
    known = {"gate": "G2", "passed": True, **reported}
    return GateEvaluated(at=at, env_id=9, slot=slot, seed_id=f"{slot}-1", **known)  # type: ignore[arg-type]  # the test names real fields


def _reported(*events: Event) -> list[SeedEvent]:
    state = fakes.folded([fakes.started(START_NS, slots=("r0c0", "r1c1")), *events])
    judged = assess(state, Assessment(), state.last_stamp)
    detail = project(state, judged, View(env_id=9)).detail
    assert detail is not None
    return list(detail.seed_events)


def _lines(*events: Event) -> list[str]:
    return [f"{event.slot} {event.text}: {event.why}" for event in _reported(*events)]


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        ({**FAILED, "message": WORDS}, "G2: gradient ratio 0.04 < 0.10"),
        (FAILED, "G2: gradient ratio 0.04"),
        ({"passed": False}, "G2: failed"),
        ({"passed": True, "score": 0.71}, "G2 0.71"),
        ({"passed": True}, "G2 passed"),
    ],
    ids=["its words", "its numbers", "failed", "passed with a score", "passed"],
)
@pytest.mark.parametrize("reason", ["gate", None])
def test_a_move_shows_what_its_gate_measured(gate: dict[str, object], why: str, reason: str | None) -> None:
    """Gate and move are one line, as far as the gate was sent."""
    at = START_NS + SECOND

    assert _lines(_gate(at, **gate), _moved(at, reason)) == [f"r1c1 BLENDING>PRUNED: {why}"]


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("policy", "by policy, age 31"),
        ("pruned by the policy", "by the policy, age 31"),
        ("gate", "by gate, age 31"),
        (None, "age 31"),
    ],
)
def test_a_move_without_a_gate_names_who_made_it_and_at_which_age(reason: str | None, why: str) -> None:
    """A word is a doer, a sentence is shown as it is but for what the move states itself."""
    assert _lines(_moved(START_NS, reason)) == [f"r1c1 BLENDING>PRUNED: {why}"]


def test_a_gate_that_decided_nothing_has_its_own_line() -> None:
    """A failure long before the policy's cull, or of another seed, is no cause of it."""
    at = START_NS + SECOND
    lines = _lines(
        _gate(at, **FAILED),
        _gate(at + SECOND, **FAILED),
        _moved(at + 9 * SECOND, "policy"),
        _gate(at + 10 * SECOND, slot="r0c0", **FAILED, message=WORDS),
        _moved(at + 10 * SECOND, "gate"),
    )

    assert lines == [
        "r1c1 BLENDING>PRUNED: by gate, age 31",
        f"r0c0 G2 failed: {WORDS}",
        "r1c1 BLENDING>PRUNED: by policy, age 31",
        "r1c1 G2 failed: gradient ratio 0.04",
        "r1c1 G2 failed: gradient ratio 0.04",
    ]


def test_a_failed_gate_does_not_hide_behind_the_policys_cull() -> None:
    """The policy culled at the same moment: both are shown, neither as the other's reason."""
    at = START_NS + SECOND

    assert _lines(_gate(at, **FAILED), _moved(at, "policy")) == [
        "r1c1 BLENDING>PRUNED: by policy, age 31", "r1c1 G2 failed: gradient ratio 0.04",
    ]  # fmt: skip


def test_a_passed_gate_and_a_named_one_belong_to_their_move() -> None:
    """`passed G2` is reported with the gate's number; what the policy began after a pass is the policy's."""
    at = START_NS + SECOND

    assert _lines(_gate(at, score=0.71), _moved(at + 1, "passed G2")) == ["r1c1 BLENDING>PRUNED: G2 0.71"]
    assert _lines(_gate(at, gate="G0"), _moved(at, "policy")) == ["r1c1 BLENDING>PRUNED: by policy, age 31"]


def test_the_clean_up_after_a_cull_is_left_to_the_slots() -> None:
    """From the cull to the next seed nobody decides anything; what was decided stays in sight."""
    stages = [Stage.TRAINING, Stage.PRUNED, Stage.EMBARGOED, Stage.RESETTING, Stage.DORMANT, Stage.GERMINATED]
    moves = [
        msgspec.structs.replace(_moved(START_NS + i * SECOND, "policy"), before=before, after=after)
        for i, (before, after) in enumerate(pairwise(stages))
    ]

    assert [event.text for event in _reported(*moves)] == ["DORMANT>GERMINATED", "TRAINING>PRUNED"]


def test_a_crash_is_shown_among_the_seeds_events() -> None:
    """Newest first, with the step where it is known; other envs and log lines are not this env's events."""
    at = START_NS + SECOND
    reported = _reported(
        _moved(at, "policy"),
        _moved(at, "policy", env_id=8),
        LogLine(at=at, severity=Severity.INFO, message="noise", env_id=9),
        EnvCrashed(at=at + SECOND, env_id=9, error="CUDA error 700", step=88_214),
        EnvCrashed(at=at + 2 * SECOND, env_id=9, error="again"),
    )

    assert [(event.time - at / 1e9, event.slot, event.text, event.why) for event in reported] == [
        (2.0, "", "CRASHED", "again"),
        (1.0, "", "CRASHED", "at step 88,214: CUDA error 700"),
        (0.0, "r1c1", "BLENDING>PRUNED", "by policy, age 31"),
    ]


def test_the_newest_events_are_kept() -> None:
    """At most as many lines as facts are kept of one env, whether a gate came with each move or not."""
    pairs = [
        event
        for i in range(100)
        for event in (_gate(START_NS + i * SECOND, **FAILED), _moved(START_NS + i * SECOND, "gate"))
    ]
    reported = _reported(*pairs)

    assert len(reported) == EVENTS
    assert reported[0].time == START_NS / 1e9 + 99
    assert reported[-1].time == START_NS / 1e9 + 100 - EVENTS


def test_busy_envs_do_not_crowd_out_what_happened_to_a_quiet_one() -> None:
    """Thousands of moves of others later, a crash is still shown."""
    busy = [_moved(START_NS + i * SECOND // 100, "policy", env_id=i % 8) for i in range(6000)]

    assert _lines(EnvCrashed(at=START_NS, env_id=9, error="boom"), *busy) == [" CRASHED: boom"]


def test_text_of_an_event_cannot_steer_a_terminal() -> None:
    """Slot, reason and error are made safe like everything that telemetry sends."""
    (reported,) = _reported(_moved(START_NS, "\x1b[31mred", slot="a\x07"))

    assert "\x1b" not in reported.why
    assert "\x07" not in reported.slot
