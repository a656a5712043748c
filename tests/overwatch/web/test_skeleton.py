"""The page as a whole: what is shown first, where it goes, and what it does when the collector is away."""

import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import expect

from tests.overwatch.collector import running
from tests.overwatch.tui import scenario, states
from tests.overwatch.web.browser import (
    PHONE,
    UNREACHABLE,
    PageOf,
    Scene,
    collecting,
    recorded,
    shown,
    text,
    trained,
)

READ = "read-77b1"


def test_a_collectors_page_shows_its_run(tmp_path: Path, page_of: PageOf) -> None:
    """From a trainer's first records to the page's first lines."""
    with collecting(tmp_path) as (service, url):
        trained(service, "digits-1", [running.run_started(), running.update(0.5)])
        page = shown(page_of(url))

        assert text(page, "h1") == "digits-1"
        expect(page.locator("#top .state")).to_have_attribute("data-state", re.compile("live|slow|stale"))
        page.close()


def test_a_page_without_a_run_says_so_until_there_is_one(tmp_path: Path, page_of: PageOf) -> None:
    """With the lines that begin one, and no empty panels."""
    with collecting(tmp_path) as (service, url):
        page = page_of(url)
        expect(page.locator("main h2")).to_have_text(["No run yet"])
        expect(page.locator("main")).to_contain_text("overwatch watch -- python train.py")
        trained(service, "digits-1", [running.run_started(), running.update(0.5)])

        assert text(shown(page), "h1") == "digits-1"
        expect(page.locator(".welcome")).to_have_count(0)
        page.close()


def test_a_recordings_page_shows_its_end_and_goes_back(tmp_path: Path, page_of: PageOf) -> None:
    """The transport is there, and one second back is another moment, which the address has."""
    with collecting(tmp_path) as (service, _):
        trained(service, "digits-1", [running.run_started(), running.update(0.5)])
        running.eventually((tmp_path / "snapshots.jsonl").exists)
        running.eventually(lambda: len((tmp_path / "snapshots.jsonl").read_bytes().splitlines()) > 3)
    with recorded(tmp_path / "snapshots.jsonl") as url:
        page = shown(page_of(url))
        page.wait_for_selector(".transport:not([hidden])")
        page.keyboard.press(",")
        page.wait_for_url("**/*at=*")

        assert text(page, "h1") == "digits-1"
        page.close()


@pytest.mark.parametrize("page_name", ["flight", "runs", "compare", "help"])
def test_a_link_opens_what_was_seen(page_of: PageOf, page_name: str) -> None:
    """Each page by its address, named as the one that is shown."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(f"{url}?page={page_name}"))

        assert text(page, "#pages [aria-current=page]").lower() == page_name
        page.close()


def test_back_and_forward_go_where_one_was(page_of: PageOf) -> None:
    """A page is a step of its own; a small move is none."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        page.click("#pages >> text=Help")
        page.select_option("#theme", "dark")
        page.wait_for_url("**/*theme=dark")
        page.click("#pages >> text=Runs")
        page.go_back()
        page.wait_for_selector("section[aria-label=Help]")
        assert parse_qs(urlsplit(page.url).query) == {"page": ["help"], "theme": ["dark"]}
        page.go_back()
        page.wait_for_selector("section[aria-label=Alarms]")
        assert urlsplit(page.url).query == ""
        page.go_forward()
        page.wait_for_selector("section[aria-label=Help]")
        page.close()


def test_what_the_address_has_is_asked_of_the_api(page_of: PageOf) -> None:
    """Run, env, order, filter: the collector does the sorting."""
    asked: list[dict[str, list[str]]] = []
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        page.on("websocket", lambda socket: asked.append(parse_qs(urlsplit(socket.url).query)))
        page.goto(f"{url}?run=digits-0712&env=9&sort=return&order=asc&filter=status%3Ddegraded")
        shown(page)
        page.close()

    wanted = {"run": "digits-0712", "env": "9", "sort": "return", "order": "asc", "filter": "status=degraded"}
    assert wanted.items() <= {name: words[0] for name, words in asked[-1].items()}.items()


def test_a_new_snapshot_replaces_the_old_one(page_of: PageOf) -> None:
    """Without anything being asked for again: from healthy to a storm, and its alarms go when they do."""
    scene = Scene(scenario.healthy())
    with scene.served() as url:
        page = shown(page_of(url))
        page.wait_for_selector(".verdict[data-severity=ok]")
        scene.show(scenario.storm())
        page.wait_for_selector(".verdict[data-severity=critical]")
        expect(page.locator("ol.alarms > li")).to_have_count(len(scenario.FINDINGS))
        expect(page).to_have_title("CRIT digits-0712 · Overwatch")
        scene.show(scenario.healthy())
        page.wait_for_selector(".verdict[data-severity=ok]")
        expect(page.locator("ol.alarms > li")).to_have_count(0)
        page.close()


def test_a_collector_that_is_gone_is_shown_and_comes_back(page_of: PageOf) -> None:
    """What is shown is called old, and no verdict is kept; the page goes on by itself."""
    with Scene(scenario.healthy()).served() as url:
        page = shown(page_of(url, expected=UNREACHABLE))
        page.wait_for_selector(".verdict[data-severity=ok]")
    page.wait_for_selector("body[data-old]")
    assert "collector silent" in text(page, ".verdict")
    assert "everything below is old" in text(page, ".verdict")
    assert text(page, "#top .state").startswith("disconnected")

    with Scene(scenario.storm()).served(urlsplit(url).port) as again:
        assert again == url
        page.wait_for_selector("body:not([data-old])")
        page.wait_for_selector(".verdict[data-severity=critical]")
        page.close()


@pytest.mark.parametrize("name", ["stale", "lost", "ended", "ended_sick", "failed", "silent", "catching_up"])
def test_a_run_that_does_not_report_looks_like_it(page_of: PageOf, name: str) -> None:
    """Its state stands in the first line, in a word."""
    snapshot = getattr(states, name)()
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))

        expect(page.locator("#top .state")).to_have_attribute("data-state", snapshot.link.state)
        assert snapshot.link.state.replace("_", " ") in text(page, "#top .state").replace("_", " ")
        page.close()


def test_what_is_absent_is_a_dash_and_never_a_zero(page_of: PageOf) -> None:
    """A run that has reported nothing yet."""
    full = scenario.healthy()
    bare = {"run_id": "r", "task": None, "n_envs": 0}
    snapshot = msgspec.convert(
        {"schema_version": full.schema_version, "time": full.time, "run": bare, "link": {"state": "live"},
         "verdict": {"severity": "ok", "text": "nothing yet"}}, type(full),
    )  # fmt: skip
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))

        assert "update – · run – · eta – · ckpt –" in text(page, "#top .far")
        assert text(page, "#top .state") == "live –"
        page.close()


def test_a_token_is_asked_for_and_kept(tmp_path: Path, page_of: PageOf) -> None:
    """A wrong one is refused in words; a right one shows the run, after a reload too; no script has it."""
    with collecting(tmp_path, f"service.security.tokens.read.token={READ}") as (service, url):
        trained(service, "digits-1", [running.run_started(), running.update(0.5)])
        page = page_of(url, expected="401|WebSocket connection to .* failed")
        page.fill("#token", "wrong")
        page.click("dialog >> text=Use it")
        page.wait_for_selector("dialog [role=alert]:not(:empty)")
        assert "token" in text(page, "dialog [role=alert]")
        page.fill("#token", READ)
        page.click("dialog >> text=Use it")
        shown(page)
        page.reload()

        assert text(shown(page), "h1") == "digits-1"
        assert READ not in json.dumps(
            page.evaluate("[document.cookie, {...localStorage}, {...sessionStorage}]")
        )
        assert page.evaluate("document.cookie") == ""
        page.close()


@pytest.mark.parametrize("page_name", ["flight", "runs", "compare", "help"])
def test_a_phone_scrolls_in_one_direction_only(page_of: PageOf, page_name: str) -> None:
    """No page is wider than 360 pixels; what is, scrolls in a part of its own."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(f"{url}?page={page_name}", size=PHONE))

        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.close()
