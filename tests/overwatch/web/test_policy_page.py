"""The page of all readings: each with its judgement, in the snapshot's words."""

import msgspec
import pytest
from playwright.sync_api import expect

from overwatch.snapshot import Reading, Snapshot
from overwatch.tui.panels.policy import names
from overwatch.tui.text import clean
from tests.overwatch.tui import scenario, states
from tests.overwatch.tui.hostile import poisoned_snapshot
from tests.overwatch.web.browser import PageOf, Scene, shown

ODD = "<img src=x onerror=alert(1)> \u202e' \" &amp;"
ABSENT = msgspec.structs.replace(
    scenario.healthy(), policy={"return": Reading(label="return"), "custom": Reading(label="custom")}
)
SCENES = {
    "healthy": scenario.healthy(),
    "storm": scenario.storm(),
    "ended sick": states.ended_sick(),
    "hostile": poisoned_snapshot(scenario.storm(), ODD),
    "absent": ABSENT,
}


@pytest.mark.parametrize("name", SCENES)
def test_readings_are_the_snapshots(page_of: PageOf, name: str) -> None:
    """In the terminal's order, with value, limit, and how often each was beyond it."""
    snapshot = SCENES[name]
    wanted = names(snapshot)
    with Scene(snapshot).served() as url:
        page = shown(page_of(f"{url}?page=policy"))
        rows = page.locator(".policy-page tbody tr")
        expect(rows).to_have_count(len(wanted))
        cells = [row.locator("th, td").all_text_contents() for row in rows.all()]
        page.close()

    for short, (label, value, *_, limit, warnings, criticals, _spread) in zip(wanted, cells, strict=True):
        reading = snapshot.policy[short]
        assert label == clean(reading.label or short)
        assert value.removeprefix("~") == clean(reading.text)
        has_limit = reading.limit is not None and reading.status != "absent"
        assert limit == (clean(reading.limit.text) if reading.limit and has_limit else "")
        assert (warnings, criticals) == (f"{reading.warnings:,}", f"{reading.criticals:,}")


def test_a_reading_opens_its_curve(page_of: PageOf) -> None:
    """As a link that a new tab takes too."""
    snapshot: Snapshot = scenario.storm()
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))
        page.keyboard.press("P")
        page.get_by_role("link", name="KL", exact=True).click()
        expect(page).to_have_url(f"{url}?page=curves&name=kl_divergence")
        page.close()
