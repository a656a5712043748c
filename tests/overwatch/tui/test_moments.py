"""Between findings and moments: from a finding to its line, from a line to its finding, and back in time."""

import msgspec

from overwatch.snapshot import Anomaly, FeedLine, Finding, Snapshot, Subject
from overwatch.tui.actions.board import open_env
from overwatch.tui.keys import Mode
from overwatch.tui.memory import MOMENTS, Past, finding_of, line_of
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.pressing import Deck, Terminal

replace = msgspec.structs.replace


def _stated(time: float, message: str = "x", **about: object) -> FeedLine:
    return msgspec.convert(
        {"time": time, "severity": "info", "subsystem": "tolaria", "message": message, **about}, FeedLine
    )


def _finding(scope: str, name: str | None, since: float, cleared_at: float | None = None) -> Finding:
    return Finding(
        id=f"{scope}{name}{since}", code="c", severity="critical", subject=Subject(scope=scope, id=name),
        since=since, message="m", cleared_at=cleared_at,
    )  # fmt: skip


FEED = (
    _stated(10.0), _stated(20.0, env_id=3, gpu_id="gpu0"), _stated(21.0, gpu_id="gpu1"), _stated(30.0),
    _stated(40.0, "update=7"),
)  # fmt: skip


def test_a_finding_begins_at_the_last_line_about_it_else_at_the_next_line() -> None:
    """Counted back from the newest; nothing where the feed begins later."""
    assert line_of(_finding("env", "3", 22.0), FEED) == 3
    assert line_of(_finding("gpu", "gpu1", 22.0), FEED) == 2
    assert line_of(_finding("policy", "kl_divergence", 40.0), FEED) == 0
    assert line_of(_finding("env", "9", 22.0), FEED) == 1
    assert line_of(_finding("env", "9", 99.0), FEED) == 0
    assert line_of(_finding("env", "3", 9.0), FEED) is None
    assert line_of(_finding("env", "3", 9.0), ()) is None


def test_a_line_belongs_to_the_finding_about_the_same_that_was_open_then() -> None:
    """Its env before its lane; neither long before nor after it was over."""
    env, lane = _finding("env", "3", 25.0), _finding("gpu", "gpu0", 22.0)
    over, policy = _finding("env", "3", 5.0, cleared_at=12.0), _finding("policy", "kl", 42.0)
    every = (over, lane, policy, env)
    assert finding_of(FEED[1], every) == env
    assert finding_of(FEED[1], (over, lane)) == lane
    assert finding_of(FEED[1], (over,)) is None
    assert finding_of(FEED[4], every) == policy
    assert finding_of(FEED[0], every) is None
    assert finding_of(FEED[1], (replace(env, since=31.0),)) is None


def _storm() -> Snapshot:
    """The storm, whose feed goes back to before its alarms."""
    full = scenario.storm()
    before = replace(full.feed[0], time=full.time - 3600.0)
    return replace(full, feed=(before, *full.feed))


def test_t_goes_from_the_list_of_findings_to_the_line_at_which_it_began() -> None:
    """The crash of env 17; the feed gets the keys."""
    terminal = Terminal(_storm())
    terminal.press("A", "j", "t")
    assert terminal.session.mode is Mode.FEED
    assert terminal.session.ui.line is not None
    line = terminal.session.feed[-1 - terminal.session.ui.line]
    assert line.env_id == 17
    assert "crashed" in line.message


def test_t_goes_from_a_line_of_the_feed_to_its_finding_and_back() -> None:
    """And states it where there is none."""
    terminal = Terminal(_storm())
    terminal.press("A", "j", "t", "t")
    assert terminal.session.ui.alarm == scenario.FINDINGS[1]
    assert "┌ CRIT · env 17" in terminal.screen
    terminal.press("t")
    assert terminal.session.mode is Mode.FEED
    terminal.press("escape", "l", *["k"] * 50, "t")
    assert "belongs to no finding" in terminal.lines[-1]


def test_t_shows_what_it_cannot_do() -> None:
    """No finding under the cursor; a feed that begins too late."""
    terminal = Terminal(_storm())
    terminal.session.board.cursor = 22
    terminal.press("t")
    assert "no finding about what is under the cursor" in terminal.lines[-1]
    late = scenario.storm()
    terminal = Terminal(replace(late, feed=late.feed[-1:]))
    terminal.press("A", "t")
    assert "does not go back to when this began" in terminal.lines[-1]


def test_in_a_recording_the_finding_and_the_line_are_places_to_go_to() -> None:
    """`t` seeks to where it began, `T` to the line."""
    deck = Deck()
    terminal = Terminal(_storm(), transport=deck)
    terminal.press("A", "j", "t")
    assert deck.reported[-1] == ("seek", scenario.FINDINGS[1].since)
    terminal.press("k", "k", "T")
    assert deck.reported[-1] == ("seek", scenario.storm().feed[-2].time)


def _later(seconds: float, reward: float) -> Snapshot:
    full = drawers.opened()
    assert full.detail is not None
    assert full.detail.env is not None
    env = replace(full.detail.env, anomaly=Anomaly(score=reward))
    detail = replace(full.detail, env=env)
    envs = tuple(env if row.env_id == 9 else row for row in full.envs)
    return replace(full, time=full.time + seconds, envs=envs, detail=detail)


def test_the_drawer_goes_back_and_on_second_by_second() -> None:
    """What it shows then is what was shown then, with its time; the newest is now again."""
    terminal = Terminal(drawers.opened())
    open_env(terminal.session, 9)
    for second in range(1, 6):
        terminal.take(_later(second, second / 2))
    assert "DEGRADED 2.5" in next(line for line in terminal.lines if "┌ env 9" in line)
    terminal.press(*["left_square_bracket"] * 2)
    heading = next(line for line in terminal.lines if "┌ env 9" in line)
    assert "12:41:12, 2s ago" in heading
    assert " 1.5 " in heading
    terminal.take(_later(6, 3.0))
    assert "12:41:12, 3s ago" in next(line for line in terminal.lines if "┌ env 9" in line)
    terminal.press(*["right_square_bracket"] * 4)
    heading = next(line for line in terminal.lines if "┌ env 9" in line)
    assert "ago" not in heading
    terminal.press(*["left_square_bracket"] * 9)
    assert "nothing earlier was seen here" in terminal.lines[-1]


def test_another_env_or_an_earlier_time_starts_a_past_of_its_own() -> None:
    """And the past is bounded."""
    past = Past()
    for second in range(MOMENTS + 20):
        past.take(_later(second, 1.0), 9)
    past.step(-MOMENTS + 1)
    assert past.shown is not None
    assert past.shown.time == drawers.opened().time + 20
    past.take(_later(0.0, 1.0), 9)
    assert past.shown is None
    assert past.step(-1) is not None
    past.take(_later(1.0, 1.0), 12)
    assert past.step(-1) is not None


def test_a_lane_shows_how_far_it_is_from_the_others() -> None:
    """On its row where it stands out, with the reasons in its detail."""
    full = scenario.storm()
    apart = Anomaly(score=4.2, reasons=("31 of 32 envs slow",))
    groups = (replace(full.board.groups[0], anomaly=apart), *full.board.groups[1:])
    lanes = (replace(full.system.gpus[0], anomaly=apart), *full.system.gpus[1:])
    reported = replace(
        full, board=replace(full.board, groups=groups), system=replace(full.system, gpus=lanes)
    )
    terminal = Terminal(reported, 160)
    row = next(line for line in terminal.lines if "▾ gpu1" in line)
    assert "medians; anom 4.2, 31 of 32 envs slow" in row
    assert "anom" not in next(line for line in terminal.lines if "▾ gpu0" in line)
    terminal.press("i")
    assert any("anomaly" in line and "4.2: 31 of 32 envs slow" in line for line in terminal.lines)
