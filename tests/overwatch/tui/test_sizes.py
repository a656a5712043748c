"""Every size of terminal: what is wrong is there in words, nothing is cut beside free room, nothing is blank.

`python -m tests.overwatch.tui.test_sizes` draws the files of `frames/sizes` anew: look at what changed.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import msgspec
import pytest

from overwatch.projection.verdict import titled
from overwatch.snapshot import Finding, Service, Snapshot, Subject
from overwatch.tui.context import Context, Ui, freshness_of
from overwatch.tui.playback import Playback
from overwatch.tui.screen import LEAST_BOARD, overview
from overwatch.tui.text import plain, width_of
from tests.overwatch.tui import drawers, scenario, states
from tests.overwatch.tui.pressing import Terminal
from tests.overwatch.tui.test_paging import _runs

FRAMES = Path(__file__).parent / "frames" / "sizes"
SIZES = ((40, 12), (60, 20), (80, 24), (120, 40), (200, 60))
SCENES: dict[str, Callable[[], Snapshot]] = {
    "healthy": scenario.healthy, "storm": scenario.storm, "ended_sick": states.ended_sick,
    "replay": scenario.storm, "services": lambda: with_services(scenario.healthy()),
    "learner": lambda: with_services(scenario.healthy(), FLIGHT),
}  # fmt: skip
CODES = ("reward-collapse", "kl-spike", "gpu-lost", "checkpoints-stopped", "critic-diverged", "host-memory")


SERVICES: tuple[Service, ...] = (
    Service(
        name="rollouts 1", status="warning", age_s=0.4,
        parts=("12 groups 96 seq", "wait p50 1.4s", "age max 2", "env 7/8 (1 silent 4m)", "paused 2"),
    ),
    Service(name="replay", status="silent", age_s=190.0, parts=("61% full",)),
    Service(name="rollouts", status="ok", age_s=0.2, parts=("38 groups 304 seq", "env 8/8", "leases 1")),
)  # fmt: skip


FLIGHT: tuple[Service, ...] = (
    Service(
        name="learner", status="warning", age_s=0.4,
        parts=("degraded", "v 1,280 3s ago", "queue 0/4", "ckpt 6m ago", "12 sgd/s", "wait p50 0.4s",
               "age p50 1", "redelivered 12"),
    ),
    Service(name="replay", status="silent", age_s=42.0, parts=("512 items 65,536 steps", "38 MiB", "in 4/s")),
    Service(name="actor", status="ok", age_s=0.2, parts=("v 1,280", "weights 4s", "820 steps/s")),
    Service(name="actor 1", status="ok", age_s=0.2, parts=("v 1,279 1 behind", "weights 9s", "790 steps/s")),
    Service(
        name="orchestrator", status="ok", age_s=0.3,
        parts=("running 12m", "heartbeat 4s ago", "tune done 3m ago"),
    ),
)  # fmt: skip
"""A learner that goes on without its replay server, with what is beside it."""


def with_services(snapshot: Snapshot, services: tuple[Service, ...] = SERVICES) -> Snapshot:
    """A run with services beside its trainer."""
    return msgspec.structs.replace(snapshot, processes=services)


def _context(scene: str, snapshot: Snapshot, size: tuple[int, int]) -> Context:
    here = Playback(
        time=scenario.NOW, first=scenario.NOW - 900, last=scenario.NOW + 900, playing=False, still=True
    )
    playback = here if scene == "replay" else None
    fresh = freshness_of(snapshot, playback)
    return Context(width=size[0], height=size[1], fresh=fresh, zone=UTC, playback=playback)


def _frame(scene: str, size: tuple[int, int]) -> str:
    snapshot = SCENES[scene]()
    lines = overview(snapshot, _context(scene, snapshot, size)).lines
    return "\n".join(plain(line).rstrip() for line in lines) + "\n"


def _runs_frame(size: tuple[int, int]) -> str:
    """The list of two runs, one of them sick."""
    terminal = Terminal(scenario.storm(), *size)
    terminal.session.ui.runs = _runs()[:2]
    terminal.press("R")
    return "\n".join(line.rstrip() for line in terminal.lines) + "\n"


def _name(scene: str, size: tuple[int, int]) -> Path:
    return FRAMES / f"{scene}-{size[0]}x{size[1]}.txt"


def _with(snapshot: Snapshot, *codes: str) -> Snapshot:
    found = tuple(
        Finding(
            id=code, code=code, severity="critical" if place < 2 else "warning", subject=Subject(scope="run"),
            since=snapshot.time - 60 - place, message=f"what is known of {code}", hint="look at it",
        )
        for place, code in enumerate(codes)
    )  # fmt: skip
    return msgspec.structs.replace(snapshot, findings=found)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize(
    ("age_s", "shown"),
    [(0.4, "0s"), (599, "9m59s"), (1796, "29m"), (4020, "1h07m"), (36_300, "10h"), (34_560_000, "400d")],
)
def test_an_age_of_an_alarm_is_never_cut(size: tuple[int, int], age_s: float, shown: str) -> None:
    """What has no room loses its smaller unit, not its last letter."""
    storm = scenario.storm()
    first = msgspec.structs.replace(storm.findings[0], since=storm.time - age_s)
    aged = msgspec.structs.replace(storm, findings=(first, *storm.findings[1:]))
    lines = map(plain, overview(aged, _context("storm", aged, size)).lines)
    row = next(line for line in lines if line.startswith("1 CRIT"))

    assert row[:21].split()[-1] == shown


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scene", SCENES)
def test_the_frame_of_each_size_is_the_drawn_one(scene: str, size: tuple[int, int]) -> None:
    """Every cell."""
    assert _frame(scene, size) == _name(scene, size).read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES)
def test_the_list_of_two_runs_is_the_drawn_one(size: tuple[int, int]) -> None:
    """Pages have their place on small terminals too."""
    assert _runs_frame(size) == _name("two_runs", size).read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [(40, 8), (40, 12), (60, 20), (79, 40), (200, 23)])
@pytest.mark.parametrize("page", ["A", "P", "R", "O", "B", "1", "question_mark"])
def test_every_page_is_whole_on_a_small_terminal(page: str, size: tuple[int, int]) -> None:
    """Exactly the terminal's lines and cells, and something to read."""
    terminal = Terminal(drawers.opened(), *size)
    terminal.session.ui.runs = _runs()
    terminal.press(page)

    assert len(terminal.frame.lines) == size[1]
    assert {width_of(line) for line in terminal.frame.lines} == {size[0]}
    assert any(line.strip() for line in terminal.lines[2:])


@pytest.mark.parametrize("size", [(40, 12), (60, 20), (80, 24), (100, 26), (120, 40), (200, 60)])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_every_open_finding_is_named_in_words(size: tuple[int, int], count: int) -> None:
    """However many there are, each has its name on the first screen, next to its number."""
    snapshot = _with(scenario.healthy(), *CODES[:count])
    lines = [plain(line) for line in overview(snapshot, _context("storm", snapshot, size)).lines]
    text = "\n".join(lines)

    for place, finding in enumerate(snapshot.findings, start=1):
        own = finding.message if f"{place} CRIT run" in text or f"{place} WARN run" in text else ""
        assert titled(finding) in text or own in text
    assert "+2 more" not in text


@pytest.mark.parametrize("height", range(1, 26, 3))
@pytest.mark.parametrize("width", [6, 20, 39, 40, 60, 79, 100])
def test_no_size_is_blank(width: int, height: int) -> None:
    """The verdict comes first, then the worst finding; every line is as wide as the terminal."""
    for make in (scenario.healthy, scenario.storm, states.lost, states.ended_sick):
        snapshot = make()
        lines = overview(snapshot, _context("storm", snapshot, (width, height))).lines
        assert len(lines) == height
        assert {width_of(line) for line in lines} == {width}
        assert any(plain(line).strip() for line in lines)
        if width >= 20 and height >= 2:
            word = {"ok": " OK ", "critical": " CRIT "}[snapshot.verdict.severity]
            assert any(plain(line).startswith(word) for line in lines[:3])


@pytest.mark.parametrize("height", range(24, 40))
@pytest.mark.parametrize("count", [0, 3, 6])
def test_services_give_way_where_there_is_no_room(height: int, count: int) -> None:
    """The board has as many rows as without them, or more than it needs at least."""

    def rows(snapshot: Snapshot) -> int:
        ctx = _context("storm", snapshot, (80, height))
        lines = [plain(one) for one in overview(snapshot, ctx).lines]
        return sum(" g0 " in line or " g1 " in line for line in lines)

    bare = _with(scenario.healthy(), *CODES[:count])
    assert rows(with_services(bare)) >= min(rows(bare), LEAST_BOARD)


def test_what_is_not_ok_comes_before_what_is() -> None:
    """On a small screen: findings, policy rows, lanes, envs that are not OK, and only then the rest."""
    text = _frame("storm", (60, 20))
    order = ["1 CRIT", "4 WARN", "KL ", "THROTTLED !!", "64 env: 1 CRASHED", "17 CRASHED", "return "]

    assert [text.index(word) for word in order] == sorted(text.index(word) for word in order)


def test_a_cause_is_cut_only_where_it_has_no_room() -> None:
    """The snapshot keeps it whole; each terminal shows as much of every cause as fits."""
    causes = ["first cause " + "a" * 60, "second cause " + "b" * 50, "third"]
    full = scenario.storm()
    verdict = msgspec.structs.replace(full.verdict, text=" · ".join(causes))
    snapshot = msgspec.structs.replace(full, verdict=verdict)

    def shown(width: int) -> str:
        return plain(overview(snapshot, _context("storm", snapshot, (width, 40))).lines[2])

    assert " · ".join(causes) in shown(200)
    assert "first cause" in shown(160)
    assert "third" in shown(160)
    assert "…" in shown(140)
    assert "third" in shown(140)


def test_alarms_are_whole_on_a_wide_terminal() -> None:
    """Message and next step, each as long as it is."""
    message = "the critic explains nothing since update 300 while its loss has doubled over sixty updates"
    full = scenario.storm()
    first = msgspec.structs.replace(
        full.findings[0], message=message, hint="raise the value coefficient; " * 2
    )
    snapshot = msgspec.structs.replace(full, findings=(first, *full.findings[1:]))
    ctx = _context("storm", snapshot, (200, 60))
    text = "\n".join(plain(line) for line in overview(snapshot, ctx).lines)

    assert f"{message}  › raise the value coefficient; raise" in text


def test_cleared_findings_are_no_open_alarms() -> None:
    """The rail counts what the verdict counts; what has cleared is still there to be read."""
    full = _with(scenario.healthy(), *CODES[:3])
    gone = msgspec.structs.replace(full.findings[2], cleared_at=full.time - 2)
    snapshot = msgspec.structs.replace(full, findings=(*full.findings[:2], gone))
    lines = [plain(one) for one in overview(snapshot, _context("storm", snapshot, (80, 24))).lines]

    assert any(line.startswith("─ ALARMS 2 ") for line in lines)


def test_the_drawer_of_a_small_terminal_is_under_the_verdict() -> None:
    """An alarm that is opened by its number is explained there too."""
    snapshot = drawers.opened()
    ui = Ui(alarm=snapshot.findings[0])
    ctx = replace(_context("storm", snapshot, (60, 20)), ui=ui)
    lines = [plain(line) for line in overview(snapshot, ctx).lines]

    assert len(lines) == 20
    assert {len(line) for line in lines} == {60}
    assert "raise the fan curve" in "\n".join(lines)


if __name__ == "__main__":
    FRAMES.mkdir(exist_ok=True)
    for one in SCENES:
        for of in SIZES:
            _name(one, of).write_text(_frame(one, of), encoding="utf-8")
    for of in SIZES:
        _name("two_runs", of).write_text(_runs_frame(of), encoding="utf-8")
