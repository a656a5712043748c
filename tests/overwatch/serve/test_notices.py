"""One message when a finding starts, one when it ends, and never a flood."""

import msgspec
import pytest

from overwatch.fold import FAST_NS
from overwatch.serve.notices import NoticeLimits, Notices
from overwatch.snapshot import Finding, Subject
from tests import fakes
from tests.overwatch.serve.framed import Frames, busy_run


def _crashing(frames: Frames, notices: Notices, crashes: int = 1) -> list[tuple[str, str]]:
    """Starts and ends told while so many envs crash, live again, and a while goes by."""
    told = []
    at = frames.now
    frame = frames.tell("run-1", [fakes.crashed(at, env_id) for env_id in range(crashes)])
    told += notices.of(frame)
    for _ in range(100):
        told += notices.of(frames.skip(1))
    back = fakes.envs(frames.now, range(32), 2, reward=[1.0] * 32, step_time=[0.01] * 32)
    told += notices.of(frames.tell("run-1", [back]))
    for index in range(600):
        alive = fakes.envs(frames.now, range(32), 3 + index, reward=[1.0] * 32, step_time=[0.01] * 32)
        told += notices.of(frames.tell("run-1", [alive]))
    return [(notice.status, notice.finding.code) for notice in told]


def test_a_crash_is_told_once_when_it_starts_and_once_when_it_ends() -> None:
    """However many frames it stands in."""
    frames, notices = Frames(), Notices(NoticeLimits(min_severity="critical"))
    start = fakes.envs(frames.now, range(32), 1, reward=[1.0] * 32, step_time=[0.01] * 32)
    notices.of(frames.tell("run-1", [fakes.started(frames.now, n_envs=32), start]))
    told = _crashing(frames, notices)
    codes = {code for _, code in told}
    assert codes
    for code in codes:
        assert [status for status, its_code in told if its_code == code] == ["started", "ended"]


def test_what_is_less_severe_is_not_told() -> None:
    """Only what was asked for."""
    frame = busy_run(Frames())
    severities = {
        level: {notice.finding.severity for notice in Notices(NoticeLimits(min_severity=level)).of(frame)}
        for level in ("info", "warning", "critical")
    }
    assert severities["critical"] == {"critical"}
    assert severities["warning"] <= {"warning", "critical"}


def test_a_flood_is_capped_and_the_rest_is_said() -> None:
    """Five a minute; the next message says how many were held back, and only what was told ends."""
    frames = Frames()
    frame = busy_run(frames)
    many = msgspec.structs.replace(
        next(iter(frame.snapshots.values())),
        findings=tuple(
            Finding(
                id=f"f{number}",
                code="env-crashed",
                severity="critical",
                subject=Subject(scope="env", id=str(number)),
                since=0.0,
                message="boom",
            )
            for number in range(12)
        ),
    )
    flooded = dict.fromkeys(frame.snapshots, many)
    notices = Notices(NoticeLimits(per_minute=5))
    first = notices.of(_with(frame, flooded, 0))
    assert len(first) == 5
    assert (notices.held_back, notices.of(_with(frame, flooded, 1))) == (7, [])
    calm = {key: msgspec.structs.replace(many, findings=()) for key in frame.snapshots}
    ended = notices.of(_with(frame, calm, 601))
    assert [(notice.status, notice.held_back) for notice in ended] == [("ended", 7), *[("ended", 0)] * 4]


def _with(frame: object, snapshots: object, ticks: int) -> object:
    import dataclasses

    return dataclasses.replace(frame, snapshots=snapshots, tick=frame.tick + ticks * FAST_NS)  # type: ignore[attr-defined, type-var]


def test_a_message_is_json_or_slacks_shape() -> None:
    """Programs get the finding whole, people a sentence and the next step."""
    notice = Notices().of(busy_run(Frames()))[0]
    whole = msgspec.json.decode(notice.body("json"))
    assert (whole["version"], whole["status"], whole["run_id"]) == (1, "started", "run-1")
    assert whole["finding"]["code"] == notice.finding.code
    text = msgspec.json.decode(notice.body("slack"))["text"]
    assert notice.finding.message in text
    assert "`run-1`" in text


def test_a_cap_below_one_is_refused() -> None:
    """Said with the value."""
    with pytest.raises(ValueError, match="not 0"):
        NoticeLimits(per_minute=0)
