"""The page of findings: those that stand and those of before, each with its state and its link."""

import math

import msgspec
from playwright.sync_api import Page, expect

from overwatch.snapshot import Link, Snapshot
from overwatch.snapshot.history import History, HistoryQuery, Moment
from tests.overwatch.tui import scenario
from tests.overwatch.tui.hostile import poisoned_snapshot
from tests.overwatch.web.browser import PageOf, Scene, shown, text

_AGO = scenario.NOW - 900


def _storm() -> Snapshot:
    """One of the findings acknowledged, one cleared."""
    full = scenario.storm()
    first, second, *rest = full.findings
    findings = (
        msgspec.structs.replace(first, acknowledged=True),
        msgspec.structs.replace(second, cleared_at=second.since + 30.0),
        *rest,
    )
    return msgspec.structs.replace(full, findings=findings)


def _past(_: HistoryQuery) -> History:
    standing = _storm().findings[0]
    return History(
        run_id=scenario.RUN.run_id,
        moments=(
            Moment(code="crash-storm", severity="critical", subject="gpu gpu1", since=_AGO,
                   cleared_at=_AGO + 75, message="crash storm: 7 crashes"),
            Moment(code="stalled", severity="warning", since=_AGO + 100, message="stalled"),
            Moment(code=standing.code, severity="critical", subject="gpu gpu1", since=standing.since,
                   message=standing.message),
        ),
        moments_left_out=3,
    )  # fmt: skip


def _rows(page: Page) -> list[str]:
    return [" ".join(row.split()) for row in page.locator("#main tbody tr").all_inner_texts()]


def test_those_that_stand_come_before_those_of_before(page_of: PageOf) -> None:
    """In the snapshot's order, then the newest first; what still stands is there once."""
    with Scene(_storm(), history=_past).served() as url:
        page = shown(page_of(url))
        page.keyboard.press("A")
        expect(page.locator("#main tbody tr")).to_have_count(6)
        rows = _rows(page)
        for row, one in zip(rows, _storm().findings, strict=False):
            assert one.message in row
            assert row.endswith(one.hint)
        assert [row.split()[0] for row in rows] == ["CRIT", "CRIT", "WARN", "WARN", "WARN", "CRIT"]
        states = [row.locator("td").nth(5).inner_text() for row in page.locator("#main tbody tr").all()]
        assert states == ["acknowledged", "cleared", "open", "open", "part of another", "cleared"]
        assert "1m15s" in rows[5]
        assert "–" in rows[4]
        assert text(page, "#main h2") == "Findings 2 open, 1 acknowledged, 2 before"
        assert "3 older ones are not held any more" in text(page, "#main")
        page.close()


def test_each_opens_and_one_of_before_at_its_moment(page_of: PageOf) -> None:
    """What stands beside the list; what was, in the page as it was then."""
    with Scene(_storm(), history=_past).served() as url:
        page = shown(page_of(f"{url}?page=findings"))
        page.get_by_role("link", name="thermal throttle").click()
        expect(page.locator("#side h2")).to_contain_text("throttled")
        past = page.get_by_role("link", name="crash storm").get_attribute("href") or ""
        assert f"run={scenario.RUN.run_id}&at={math.ceil(_AGO)}&finding=crash-storm%3Agpu%3Agpu1" in past
        page.close()


def test_a_healthy_run_has_none(page_of: PageOf) -> None:
    """And states it."""
    with Scene(scenario.healthy()).served() as url:
        page = shown(page_of(f"{url}?page=findings"))
        expect(page.locator("#main")).to_contain_text("nothing is wrong")
        assert _rows(page) == []
        page.close()


def test_messages_of_others_are_text(page_of: PageOf) -> None:
    """No element is made of them."""
    with Scene(poisoned_snapshot(_storm(), "<img src=x onerror=alert(1)>")).served() as url:
        page = shown(page_of(f"{url}?page=findings"))
        expect(page.locator("#main tbody tr")).to_have_count(4)
        assert page.locator("img").count() == 0
        page.close()


def test_the_worst_run_is_first_and_a_run_that_hangs_is_not_live(page_of: PageOf) -> None:
    """Whatever their names; the header and the list name the state of training, not that of the line."""
    runs = [msgspec.structs.replace(scenario.RUN, run_id=name) for name in ("a-well", "z-hung")]
    well = msgspec.structs.replace(scenario.healthy(), run=runs[0])
    link = Link(state="live", halted="stalled", data_age_s=0.1)
    hung = msgspec.structs.replace(scenario.storm(), run=runs[1], link=link)
    with Scene(well, hung).served() as url:
        page = shown(page_of(f"{url}?page=runs&run=z-hung"))
        rows = page.locator("#main tbody tr")
        expect(rows).to_have_count(2)
        first, last = (one.split() for one in _rows(page))
        assert (first[0], last[0]) == ("z-hung", "a-well")
        assert "stalled" in first
        assert text(page, ".state") == "stalled"
        page.close()
