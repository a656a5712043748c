"""The page of the configuration: revision, where it runs, settings; from the history of the run."""

from playwright.sync_api import Page, expect

from overwatch.snapshot.history import About, History, HistoryQuery
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PageOf, Scene, shown


def _lists(page: Page) -> list[list[str]]:
    return [
        [" ".join(row.split()) for row in one.locator(":scope > div").all_inner_texts()]
        for one in page.locator("#main dl").all()
    ]


def test_what_the_trainer_sent_is_shown(page_of: PageOf) -> None:
    """Each part under its heading; a part that was not sent shows how it would be; others' words are text."""
    config = {"lr": "3e-4", "note": "<img src=x onerror=alert(1)>"}

    def past(query: HistoryQuery) -> History:
        return History(
            run_id="r", about=About(config=config, environment={"task": "ant"}) if query.about else None
        )

    with Scene(scenario.storm(), history=past).served() as url:
        page = shown(page_of(f"{url}?page=config"))
        expect(page.locator("#main dl").last).to_contain_text("3e-4")
        revision, environment, settings = _lists(page)
        assert revision == ["– nothing was sent; overwatch.run(config={...}) sends settings"]
        assert environment == ["task ant"]
        assert settings == [f"{name} {value}" for name, value in config.items()]
        assert page.locator("img").count() == 0
        page.close()


def test_what_is_not_known_yet_is_waited_for(page_of: PageOf) -> None:
    """The collector has nothing of it."""
    with Scene(scenario.started()).served() as url:
        page = shown(page_of(f"{url}?page=config"))
        expect(page.locator("#main")).to_contain_text("waiting for what the collector has of it")
        page.close()
