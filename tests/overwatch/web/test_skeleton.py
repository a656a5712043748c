"""The page as a whole: what is shown first, where it goes, and what it does when the collector is away."""

from pathlib import Path

from tests.overwatch.collector import running
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene, collecting, shown, text, trained


def test_a_collectors_page_shows_its_run(tmp_path: Path, page_of: PageOf) -> None:
    """From a trainer's first records to the page's first lines."""
    with collecting(tmp_path) as (service, url):
        trained(service, "digits-1", [running.run_started(), running.update(0.5)])
        page = shown(page_of(url))

        assert text(page, "h1") == "digits-1"
        assert page.locator("#top .state").get_attribute("data-state") in ("live", "slow", "stale")
        page.close()


def test_the_verdict_and_the_alarms_are_the_snapshots(page_of: PageOf) -> None:
    """Word by word, with the severity beside the colour."""
    storm = scenario.storm()
    with Scene(storm).served() as url:
        page = shown(page_of(url))

        assert text(page, ".verdict") == f"CRIT {storm.verdict.text} {storm.verdict.note or ''}".strip()
        alarms = page.locator("ol.alarms > li").all_inner_texts()
        assert len(alarms) == len(storm.findings)
        assert all(
            one.message in row and one.hint in row for one, row in zip(storm.findings, alarms, strict=True)
        )
        page.close()
