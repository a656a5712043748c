"""One message when a finding starts, one when it ends, and never a flood."""

import dataclasses
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.collector.exporters.notices import GONE_NS, Notice, Notices, NotifierConfig, Reported
from overwatch.fold import FAST_NS, Frame
from overwatch.snapshot import Finding, Subject
from tests import fakes
from tests.overwatch.serve.framed import Frames, busy_run

_FRAME = busy_run(Frames())


def _crashing(frames: Frames, notices: Notices, crashes: int = 1) -> list[tuple[str, str]]:
    """Starts and ends sent while so many envs crash, live again, and a while goes by."""
    reported = []
    at = frames.now
    frame = frames.report("run-1", [fakes.crashed(at, env_id) for env_id in range(crashes)])
    reported += _report(notices, frame)
    for _ in range(100):
        reported += _report(notices, frames.skip(1))
    back = fakes.envs(frames.now, range(32), 2, reward=[1.0] * 32, step_time=[0.01] * 32)
    reported += _report(notices, frames.report("run-1", [back]))
    for index in range(600):
        alive = fakes.envs(frames.now, range(32), 3 + index, reward=[1.0] * 32, step_time=[0.01] * 32)
        reported += _report(notices, frames.report("run-1", [alive]))
    return [(notice.status, notice.finding.code) for notice in reported]


def test_a_crash_is_reported_once_when_it_starts_and_once_when_it_ends() -> None:
    """However many frames it stands in."""
    frames, notices = Frames(), Notices(NotifierConfig(min_severity="critical"))
    start = fakes.envs(frames.now, range(32), 1, reward=[1.0] * 32, step_time=[0.01] * 32)
    _report(notices, frames.report("run-1", [fakes.started(frames.now, n_envs=32), start]))
    reported = _crashing(frames, notices)
    codes = {code for _, code in reported}
    assert codes
    for code in codes:
        assert [status for status, its_code in reported if its_code == code] == ["started", "ended"]


def test_what_is_less_severe_is_not_reported() -> None:
    """Only what was asked for."""
    frame = busy_run(Frames())
    severities = {
        level: {notice.finding.severity for notice in Notices(NotifierConfig(min_severity=level)).due(frame)}
        for level in ("info", "warning", "critical")
    }
    assert severities["critical"] == {"critical"}
    assert severities["warning"] <= {"warning", "critical"}


def _standing(frame: Frame, *findings: Finding, ticks: int = 0) -> Frame:
    """The frame so many ticks later, with these findings and no others."""
    snapshots = {
        key: msgspec.structs.replace(snapshot, findings=findings) for key, snapshot in frame.snapshots.items()
    }
    return dataclasses.replace(frame, snapshots=snapshots, tick=frame.tick + ticks * FAST_NS)


def _finding(number: int, severity: str = "warning", scope: str = "env") -> Finding:
    return Finding(
        id=f"f{number}",
        code="env-crashed",
        severity=severity,
        subject=Subject(scope=scope, id=str(number)),
        since=0.0,
        message="boom",
    )


def _report(notices: Notices, frame: Frame) -> list[Notice]:
    """What is sent of a frame where every message arrives."""
    found = notices.due(frame)
    for notice in found:
        notices.sent(notice)
    return found


def _stated(notices: list[Notice]) -> list[tuple[str, str]]:
    return [(notice.status, notice.finding.id) for notice in notices]


def test_a_flood_is_capped_and_the_rest_waits_for_its_turn() -> None:
    """Five a minute, the most severe first; each is sent once."""
    frame, notices = busy_run(Frames()), Notices(NotifierConfig(per_minute=5))
    many = [_finding(number, "critical" if number > 9 else "warning") for number in range(12)]
    first = _report(notices, _standing(frame, *many))
    assert _stated(first) == [("started", name) for name in ("f10", "f11", "f0", "f1", "f2")]
    assert {notice.waiting for notice in first} == {7}
    assert _report(notices, _standing(frame, *many, ticks=599)) == []
    assert _stated(_report(notices, _standing(frame, *many, ticks=600))) == [
        ("started", f"f{number}") for number in (3, 4, 5, 6, 7)
    ]
    last = _report(notices, _standing(frame, *many, ticks=1200))
    assert _stated(last) == [("started", "f8"), ("started", "f9")]
    assert {(notice.waiting, notice.held_back) for notice in last} == {(0, 0)}


def test_what_is_over_before_its_turn_is_counted_and_never_sent() -> None:
    """Neither its start nor its end."""
    frame, notices = busy_run(Frames()), Notices(NotifierConfig(per_minute=5))
    many = [_finding(number) for number in range(12)]
    _report(notices, _standing(frame, *many))
    assert _report(notices, _standing(frame, ticks=1)) == []
    assert notices.missed == 7
    ended = _report(notices, _standing(frame, ticks=601))
    assert [(notice.status, notice.held_back) for notice in ended] == [("ended", 7), *[("ended", 0)] * 4]
    assert _report(notices, _standing(frame, ticks=2000)) == []


def test_an_end_waits_for_its_turn_and_is_sent() -> None:
    """Who was notified of a start gets its end, however much else is to be sent."""
    frame, notices = busy_run(Frames()), Notices(NotifierConfig(per_minute=2))
    _report(notices, _standing(frame, _finding(0), _finding(1)))
    assert _report(notices, _standing(frame, _finding(2, "critical"), ticks=10)) == []
    later = _report(notices, _standing(frame, _finding(2, "critical"), ticks=600))
    assert _stated(later) == [("started", "f2"), ("ended", "f0")]
    assert _stated(_report(notices, _standing(frame, _finding(2, "critical"), ticks=1200))) == [
        ("ended", "f1")
    ]


def test_what_stands_again_before_its_end_was_sent_has_not_ended() -> None:
    """Who reads the messages never saw it go."""
    frame, notices = busy_run(Frames()), Notices(NotifierConfig(per_minute=1))
    _report(notices, _standing(frame, _finding(0)))
    assert _report(notices, _standing(frame, ticks=1)) == []
    assert _report(notices, _standing(frame, _finding(0), ticks=700)) == []
    assert _stated(_report(notices, _standing(frame, ticks=701))) == [("ended", "f0")]


def test_what_did_not_arrive_is_retried_as_long_as_it_stands() -> None:
    """Nobody is notified of an outage's findings that are over when it is."""
    frame, notices = busy_run(Frames()), Notices(NotifierConfig())
    for ticks in range(3):
        assert _stated(notices.due(_standing(frame, _finding(0), _finding(1), ticks=ticks))) == [
            ("started", "f0"),
            ("started", "f1"),
        ]
    reported = _report(notices, _standing(frame, _finding(1), ticks=3))
    assert [
        (*stated, notice.held_back) for stated, notice in zip(_stated(reported), reported, strict=True)
    ] == [("started", "f1", 1)]
    assert notices.reported == [Reported(run_id="run-1", finding=_finding(1))]


def test_a_life_goes_on_where_an_earlier_one_was() -> None:
    """What it sent is not sent again, and what ended meanwhile is."""
    frame = busy_run(Frames())
    reported = [Reported(run_id="run-1", finding=_finding(number)) for number in (0, 1)]
    assert _stated(
        _report(Notices(NotifierConfig(), reported=reported), _standing(frame, _finding(1), _finding(2)))
    ) == [
        ("started", "f2"),
        ("ended", "f0"),
    ]


def test_a_run_that_is_not_there_has_ten_minutes_to_come_back() -> None:
    """After a restart it may be back with its next record; what is forgotten for good ends."""
    frame = _standing(busy_run(Frames()), _finding(0))
    empty = dataclasses.replace(frame, snapshots={})
    for away_ns, stated in ((GONE_NS - FAST_NS, []), (GONE_NS, [("ended", "f0")])):
        notices = Notices(NotifierConfig(), reported=[Reported(run_id="run-1", finding=_finding(0))])
        assert _report(notices, empty) == []
        assert _stated(_report(notices, dataclasses.replace(empty, tick=empty.tick + away_ns))) == stated
        assert _stated(_report(notices, dataclasses.replace(frame, tick=empty.tick + GONE_NS + FAST_NS))) == (
            [("started", "f0")] if stated else []
        )


@given(st.lists(st.sets(st.integers(0, 6)), max_size=40), st.integers(1, 4), st.integers(1, 600))
def test_starts_and_ends_alternate_and_agree_with_what_stands(
    course: list[set[int]], cap: int, ticks: int
) -> None:
    """Whatever comes and goes: never two starts, never an end alone, and in the end what was sent is true."""
    notices, reported = Notices(NotifierConfig(per_minute=cap)), Counter[str]()
    at = 0
    for standing in (*course, *[course[-1] if course else set()] * 20):
        at += ticks
        found = _report(notices, _standing(_FRAME, *map(_finding, sorted(standing)), ticks=at))
        assert len(found) <= cap
        for notice in found:
            reported[notice.finding.id] += 1 if notice.status == "started" else -1
            assert reported[notice.finding.id] in (0, 1)
    # Seven may have to end and seven to start, as many a minute as there is room for.
    if 20 * ticks * cap >= 15 * (600 + ticks):
        assert {name for name, open_ in reported.items() if open_} == {
            f"f{number}" for number in (course[-1] if course else set())
        }


def test_a_message_is_json_or_slacks_shape() -> None:
    """Programs get the finding whole, people a sentence and the next step."""
    notice = Notices(NotifierConfig()).due(busy_run(Frames()))[0]
    whole = msgspec.json.decode(notice.body("json"))
    assert (whole["version"], whole["status"], whole["run_id"]) == (1, "started", "run-1")
    assert whole["finding"]["code"] == notice.finding.code
    text = msgspec.json.decode(notice.body("slack"))["text"]
    assert notice.finding.message in text
    assert "`run-1`" in text


def test_telemetrys_words_call_nobody_and_are_no_markup() -> None:
    """A run may be named like a link, a call to everybody, or two lines; JSON has the name as it is."""
    name = "<!channel> `x` <https://evil.example|ok>\n@all & co"
    notice = Notice(status="started", run_id=name, at=0.0, finding=_finding(0, scope="<@U1>"))
    first, second, _ = msgspec.json.decode(notice.body("slack"))["text"].split("\n")
    assert "run `&lt;!channel&gt; 'x' &lt;https://evil.example|ok&gt; @\u200ball &amp; co`" in first
    assert "&lt;@\u200bU1&gt; 0" in first
    assert second == "boom"
    assert msgspec.json.decode(notice.body("json"))["run_id"] == name


@pytest.mark.parametrize("url", ["https://overwatch.example", "http://10.0.0.1:4380/tower/"])
def test_a_message_links_to_its_finding_on_the_page(url: str) -> None:
    """With its run, whatever that is called; one that ended as it was when it began."""
    notices, finding = Notices(NotifierConfig(page_url=url)), _finding(0, "critical")
    (start,) = _report(notices, _standing(_FRAME, finding))
    (end,) = _report(notices, _standing(_FRAME, ticks=10))
    place = {"run": [start.run_id], "finding": [finding.id]}

    for notice, more in ((start, {}), (end, {"at": [f"{finding.since:.0f}"]})):
        page = msgspec.json.decode(notice.body("json"))["page"]
        assert page.startswith(f"{url.rstrip('/')}/?")
        assert parse_qs(urlsplit(page).query) == place | more
        assert msgspec.json.decode(notice.body("slack"))["text"].endswith(f"\n{page}")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"per_minute": 0}, "per_minute 0 is not positive"),
        ({"page_url": "overwatch.example"}, "page_url 'overwatch.example' is no http:// or https:// URL"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any], match: str) -> None:
    """The error shows the value."""
    with pytest.raises(ValueError, match=match):
        NotifierConfig(**settings)


def _at_end(finding: Finding, ended_at: float = 900.0) -> Finding:
    return msgspec.structs.replace(finding, ended_at=ended_at)


def test_what_stood_at_a_run_s_end_is_reported_as_that_and_never_as_ended() -> None:
    """Once; not when the run leaves the collector either, since nothing cleared."""
    frame, notices = _FRAME, Notices(NotifierConfig())
    first, second = _finding(0, "critical"), _finding(1)
    assert _stated(_report(notices, _standing(frame, first, second))) == [
        ("started", "f0"),
        ("started", "f1"),
    ]

    ended = _standing(frame, _at_end(first), ticks=10)
    assert _stated(_report(notices, ended)) == [("open_at_end", "f0"), ("ended", "f1")]
    assert _stated(_report(notices, _standing(frame, _at_end(first), ticks=20))) == []
    away = [
        dataclasses.replace(frame, snapshots={}, tick=frame.tick + after) for after in (GONE_NS, 2 * GONE_NS)
    ]
    assert [_stated(_report(notices, one)) for one in away] == [[], []]
    assert notices.reported == []


def test_what_was_found_with_the_end_is_reported_once() -> None:
    """A failure starts when the run is over: one message, in no shape a second."""
    frame, notices = _FRAME, Notices(NotifierConfig())
    failed = _at_end(_finding(0, "critical"))

    (notice,) = _report(notices, _standing(frame, failed))
    assert notice.status == "started"
    assert _stated(_report(notices, _standing(frame, failed, ticks=10))) == []


def test_a_new_attempt_ends_what_stood_before_it() -> None:
    """The run is judged again, and the finding is not there: that is an end."""
    frame, notices = _FRAME, Notices(NotifierConfig())
    _report(notices, _standing(frame, _finding(0, "critical")))
    _report(notices, _standing(frame, _at_end(_finding(0, "critical")), ticks=10))

    assert _stated(_report(notices, _standing(frame, ticks=20))) == [("ended", "f0")]


def test_people_read_that_it_was_open_when_the_run_ended() -> None:
    """No green mark, no underscore."""
    frame, notices = _FRAME, Notices(NotifierConfig())
    _report(notices, _standing(frame, _finding(0, "critical")))
    (notice,) = _report(notices, _standing(frame, _at_end(_finding(0, "critical")), ticks=10))
    text = msgspec.json.decode(notice.body("slack"))["text"]

    assert text.startswith(":red_circle: *env-crashed* open when the run ended")
    assert msgspec.json.decode(notice.body("json"))["finding"]["ended_at"] == 900.0
