"""The list of many collectors' runs: its order, its filter, and what is one run at two places."""

import asyncio

import msgspec
import pytest
from aiohttp import web

from overwatch.feeds.fleet import COLUMNS, FleetRow, cells, fleet_rows, matching
from overwatch.feeds.live import Listed, list_runs
from overwatch.projection.filtering import FilterError
from overwatch.snapshot import RunLine, RunList

A, B, C = "ws://10.0.0.1:4380", "ws://10.0.0.2:4380", "ws://10.0.0.3:4380"


_OLD = b"""{"newest": null, "runs":
 [{"run_id": "r", "newest": true, "state": "live", "severity": "ok", "text": "", "time": 1}]}"""


def _line(run_id: str, severity: str = "ok", state: str = "live", **more: object) -> RunLine:
    text = f"verdict of {run_id}"
    line = RunLine(run_id=run_id, newest=False, state=state, severity=severity, text=text, time=1.0)
    return msgspec.structs.replace(line, **more)


def _rows(*found: tuple[str, RunLine | str]) -> list[FleetRow]:
    listed = [
        Listed(collector=at, reason=one) if isinstance(one, str) else Listed(collector=at, run=one)
        for at, one in found
    ]
    return fleet_rows((A, B, C), listed)


def test_the_worst_comes_first_by_severity_then_by_findings() -> None:
    """A collector that does not answer stands between criticals and warnings, one without runs comes last."""
    rows = _rows(
        (A, _line("calm")),
        (A, _line("few", "critical", criticals=1, warnings=9)),
        (A, _line("many", "critical", criticals=3)),
        (A, _line("new-word", "catastrophic")),
        (A, _line("warned", "warning", warnings=1)),
        (B, "no answer"),
    )

    assert [row.run or row.state for row in rows] == [
        "many", "few", "away", "new-word", "warned", "calm", "empty",
    ]  # fmt: skip
    assert (rows[2].collector, rows[2].text, rows[2].severity) == (B, "no answer", None)
    assert rows[-1].collector == C


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        (_line("r", state="stale", data_age_s=60.0), _line("r", data_age_s=0.1), True),
        (
            _line("r", "critical", state="lost", data_age_s=90.0),
            _line("r", state="ended", data_age_s=9.0),
            True,
        ),
        (_line("r", state="lost", data_age_s=None), _line("r", state="stale", data_age_s=60.0), True),
        (_line("r", data_age_s=0.3), _line("r", data_age_s=0.1), False),
    ],
)
def test_a_run_at_two_collectors_is_shown_as_such(old: RunLine, new: RunLine, moved: bool) -> None:  # noqa: FBT001 a case
    """Where it moved, the old row names the new place and comes last, however bad it is; else both are it."""
    rows = _rows((A, old), (B, new), (C, _line("other")))
    by_place = {row.collector: row for row in rows}

    assert (by_place[A].also_at, by_place[B].also_at, by_place[C].also_at) == ((B,), (A,), ())
    assert (by_place[A].moved_to, by_place[B].moved_to) == (B if moved else None, None)
    assert (rows[-1] is by_place[A]) is moved
    words = f"moved to {B}" if moved else f"also at {B}"
    assert cells(by_place[A])[-1].startswith(words)


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", ["bad", None, "mid", "good"]),
        ("severity>=warning", ["bad", None, "mid"]),
        ("severity=ok", [None, "good"]),
        ("!state=live", ["bad", None]),
        ("task=dig,cart", ["bad", None, "good"]),
        ("collector=10.0.0.2", [None, "mid"]),
        ("update>9", [None, "good"]),
        ("criticals>0 age>10", ["bad", None]),
        ("verdict !mid", ["bad", None, "good"]),
    ],
)
def test_a_filter_takes_runs_and_never_a_collector_that_is_away(text: str, runs: list[str | None]) -> None:
    """Terms are those of the board; a row that has no answer to one does not meet it."""
    rows = _rows(
        (A, _line("bad", "critical", "lost", criticals=1, task="digits", data_age_s=30.0)),
        (A, _line("good", update=10, task="CartPole-v1")),
        (B, _line("mid", "warning", update=9)),
        (C, "connection refused"),
    )

    assert [row.run for row in matching(rows, text)] == runs


def test_a_filter_that_cannot_be_read_names_the_term() -> None:
    """With what was probably meant."""
    with pytest.raises(FilterError, match="unknown key severty; did you mean severity="):
        matching((), "severty=ok")


def test_what_is_not_known_is_a_dash_and_never_a_nought() -> None:
    """Of a collector that reports no findings, and of one that does not answer; nothing moves a cursor."""
    rows = _rows((A, _line("r\x1b[2J")), (B, "no\x1b[2J answer"))
    shown = {row.collector: dict(zip(COLUMNS, cells(row), strict=True)) for row in rows}

    assert {row.criticals for row in rows} == {None}
    for place in (A, B):
        assert [shown[place][name] for name in ("update", "envs", "crit", "warn", "task")] == ["–"] * 5
    assert "\x1b" not in "".join(word for row in shown.values() for word in row.values())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"newest": null, "runs": [], "schema_version": "2.0"}', "version is 2.0, this build reads 1."),
        (b'{"newest": null, "trainings": []}', "missing required field `runs`"),
        (b"<html>", "not of schema version 1."),
        (msgspec.json.encode(RunList(newest=None, runs=(_line("r"),), schema_version="1.99")), None),
        (_OLD, None),
    ],
)  # fmt: skip
def test_a_collector_of_another_version_is_listed_with_the_reason(body: bytes, words: str | None) -> None:
    """Another major version is; a newer minor one, and one that names none, is read."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    async def asked() -> tuple[str, tuple[Listed, ...]]:
        app = web.Application()
        app.router.add_get("/api/v1/runs", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            address = f"ws://127.0.0.1:{runner.addresses[0][1]}"
            return address, await list_runs([address], 5.0)
        finally:
            await runner.cleanup()

    address, (found,) = asyncio.run(asked())

    assert found.collector == address
    assert (found.run is None) == (words is not None)
    assert (words or "") in (found.reason or "")
