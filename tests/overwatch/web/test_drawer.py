"""The drawer: what is open at the side states what the snapshot has, opens, closes, and is a link."""

import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from playwright.sync_api import Page, expect

from overwatch.collector import Service
from overwatch.events import EnvCrashed
from overwatch.snapshot import Advice, Choice, Detail, Finding, Host, Process, Snapshot, Stay, Subject
from overwatch.tui.grammar import sparkline
from tests.overwatch.collector import running
from tests.overwatch.tui import drawers, scenario
from tests.overwatch.tui.hostile import poisoned_snapshot
from tests.overwatch.web.browser import PHONE, PageOf, Scene, collecting, shown, text, trained
from tests.overwatch.web.scenes import Fleet

HOSTILE = "<img src=x onerror=alert(1)>\u202e&amp;"


def _changed(snapshot: Snapshot, **parts: object) -> Snapshot:
    return msgspec.structs.replace(snapshot, **parts)


def _grown() -> Snapshot:
    """Env 9 with all that an env that grows a network may have."""
    full = drawers.opened()
    assert full.detail is not None
    detail = msgspec.structs.replace(
        full.detail,
        numbers={"host_loss": 0.1234, "rollbacks": 2.0},
        slots={"r0c0": {"contribution": 0.0213}},
        choice=(Choice(op="WAIT", probability=0.6), Choice(op="PRUNE", probability=0.25)),
        lives={
            "r0c0": (
                Stay(time=full.time - 40, stage="germinated", glyph="○"),
                Stay(time=full.time - 10, stage="training", glyph="◔"),
            )
        },
    )
    return _changed(full, detail=detail)


@pytest.fixture
def opened(page_of: PageOf) -> Iterator[Page]:
    """Env 9 of the storm."""
    with Scene(_grown()).served() as url:
        page = shown(page_of(f"{url}?env=9"))
        yield page
        page.close()


def test_an_env_shows_why_it_stands_out_and_what_it_did(opened: Page) -> None:
    """Reasons with weights, bound, trends, what it chose, acts, the lives of its slots, seed events."""
    snapshot = _grown()
    detail = snapshot.detail
    assert detail is not None
    side = text(opened, "#side")
    assert side.startswith("env 9 · gpu0 · DEGRADED 6.2 · 2nd of 64")
    for reason in detail.reasons:
        assert f"{reason.weight:+.1f} {reason.name} {reason.text}" in side
    assert "SYNC-BOUND !: its lane waits for gpu1" in side
    for name, now in (("return", "-0.21"), ("acc", "0.71"), ("rent", "0.41"), ("fps", "301")):
        trend = detail.trends["metric" if name == "acc" else name]
        bars = "".join(span.text for span in sparkline(trend.values, len(trend.values)))
        assert f"{name} {now} {bars} {trend.window}" in side
    assert "host loss 0.123 · rollbacks 2" in side
    assert "WAIT 60%, else PRUNE 25%" in side
    assert " · ".join(detail.actions) in side
    assert "over 40s until now" in side
    strip = opened.locator("[data-is=strip]").inner_text()
    assert strip == "r0c0 " + "○" * 29 + "◔" * 11
    for event in detail.seed_events:
        assert f"{event.slot} {event.text} {event.why}" in side


def test_an_envs_slots_are_rows_with_what_is_known_of_each(opened: Page) -> None:
    """Stage, blueprint, alpha, age, gate and gradient; what is not known is a dash; then its numbers."""
    rows = [
        " ".join(row.split()) for row in opened.locator("#side table >> nth=0 >> tbody tr").all_inner_texts()
    ]
    assert rows[0] == "r0c0 ◔ TRAINING conv_small – 12 G2 0.71 0.62 contribution 0.0213"
    assert rows[4] == "r1c1 ✗ PRUNED conv_light 0.30 0 G2 fail: gradient ratio 0.04"
    assert rows[5] == "r1c2 · DORMANT – – – – –"


def test_a_slot_opens_from_its_env_and_leads_back(opened: Page) -> None:
    """By its name, and by `i`; only its own events."""
    opened.get_by_role("link", name="r1c1").first.click()
    expect(opened.locator("#side h2")).to_have_text("env 9 · r1c1")
    side = text(opened, "#side")
    assert "BLENDING>PRUNED G2: gradient ratio 0.04 < 0.10" in side
    assert "r1c0" not in side
    opened.keyboard.press("i")
    expect(opened.locator("#side h2")).to_have_text("env 9 · r1c2")
    opened.get_by_role("link", name="env 9", exact=True).click()
    expect(opened.locator("#side h2")).to_contain_text("2nd of 64")


def test_only_the_envs_own_lines_are_below_it(opened: Page) -> None:
    """Those of the feed that are about env 9."""
    lines = opened.locator("#side ol.lines > li").all_inner_texts()
    assert len(lines) == sum(line.env_id == 9 for line in drawers.FEED)
    assert all("env=9" in line for line in lines)


def test_an_env_below_the_rows_of_the_view_is_shown_from_its_detail(page_of: PageOf) -> None:
    """A view of 16,384 rows has a window; the env that is open may be outside of it."""
    snapshot = _changed(_grown(), envs=scenario.storm().envs[:2])
    with Scene(snapshot).served() as url:
        page = shown(page_of(f"{url}?env=9"))
        assert "DEGRADED 6.2" in text(page, "#side h2")
        assert "TRAINING" in text(page, "#side")
        page.close()


def test_an_env_that_is_not_there_shows_why(page_of: PageOf) -> None:
    """Nothing but the reason: it was removed, or has not come yet."""
    full = scenario.storm()
    scene = Scene(_changed(full, detail=Detail(env_id=500, removed_at=full.time - 5)))
    with scene.served() as url:
        page = shown(page_of(f"{url}?env=500"))
        assert "the trainer removed it at 12:41:" in text(page, "#side")
        page.goto(f"{url}?env=501")
        expect(page.locator("#side dd")).to_have_text("waiting for it")
        page.close()


def test_what_an_env_does_not_report_is_a_dash_and_never_a_zero(page_of: PageOf) -> None:
    """No reasons, no trends, no slots."""
    full = scenario.storm()
    bare = msgspec.structs.replace(
        full.envs[1],
        episode_return=None,
        slots={},
        anomaly=msgspec.structs.replace(full.envs[1].anomaly, reasons=()),
    )
    env = bare.env_id
    with Scene(_changed(full, envs=(bare,), detail=Detail(env_id=env, env=bare))).served() as url:
        page = shown(page_of(f"{url}?env={env}"))
        assert "nothing stands out" in text(page, "#side")
        assert page.locator("#side table:visible").count() == 0
        page.goto(f"{url}?env={env}&slot=r0c0")
        expect(page.locator("#side dd").first).to_have_text("–")
        assert "0" not in re.sub(r"env \d+|r0c0", "", text(page, "#side dl"))
        page.close()


def test_a_lane_shows_every_field_that_is_known_and_its_envs(page_of: PageOf) -> None:
    """With units; the bound first, with its evidence; the envs are a link with the filter of the lane."""
    full = scenario.storm()
    lane = next(one for one in full.system.gpus if one.gpu_id == "gpu1")
    whole = msgspec.structs.replace(
        lane, uuid="GPU-1", node="n1", rank=1, sm_activity=0.5, dip_share=0.31, dip_p95_s=0.85,
        pcie_receive_bytes_per_s=2.5e6, ecc_uncorrected=3.0, oom_s=600.0, process_memory_bytes=2.0**30,
    )  # fmt: skip
    system = msgspec.structs.replace(full.system, gpus=(whole,))
    with Scene(_changed(full, system=system)).served() as url:
        page = shown(page_of(f"{url}?lane=gpu1"))
        side = text(page, "#side")
        assert side.startswith("lane gpu1 Close bound THROTTLED !!")
        for words in (
            "why thermal: 1140 of 1980 MHz", "uuid GPU-1", "node n1", "rank 1", "utilization 97%",
            "sm activity 50%", "dip share 31%", "dip p95 0.85s", "memory used 63.0 GiB",
            "process memory 1.0 GiB",
            "power 388 W", "temperature 91°C", "clock 1,140 MHz", "pcie receive 2.5 MB/s",
            "ecc uncorrected 3", "oom 10m",
            "return median +0.38, p10 +0.22 to p90 +0.55", "env 17 CRASHED 10.0: crashed 1s ago",
        ):  # fmt: skip
            assert words in side, words
        missing = {"nvlink receive", "throttle"} if not whole.throttle else {"nvlink receive"}
        assert not {one for one in missing if one in side}
        page.get_by_role("link", name="32: 1 CRASHED 31 OK").click()
        assert "filter=gpu%3Dgpu1" in page.url
        expect(page.locator("#side")).to_be_hidden()
        page.close()


def test_the_host_shows_its_busiest_processes(page_of: PageOf) -> None:
    """By `B`; the run's bound as a whole stands above."""
    full = scenario.storm()
    host = msgspec.structs.replace(
        full.system.host or Host(),
        processes=(Process(pid=41, name="python train.py", cpu=1.5, ram_bytes=2.0**31),),
    )
    with Scene(_changed(full, system=msgspec.structs.replace(full.system, host=host))).served() as url:
        page = shown(page_of(url))
        page.keyboard.press("B")
        expect(page.locator("#side h2")).to_have_text("host")
        side = text(page, "#side")
        assert "bound SYNC-BOUND !" in side
        assert "150% cpu, 2.0 GiB: python train.py, pid 41" in side
        page.keyboard.press("B")
        expect(page.locator("#side")).to_be_hidden()
        page.close()


def _finding(url: str | None) -> Finding:
    return Finding(
        id="kl:policy", code="policy-kl", severity="warning",
        subject=Subject(scope="policy", id="kl_divergence"), since=scenario.NOW - 110,
        message="KL above 0.015",
        hint="lower the learning rate", factors=("3 of 5 updates", "0.0231"), symptoms=4, runbook_url=url,
        runbook=Advice(means="steps are too large", confirm="see clip", act="Lower it."),
    )  # fmt: skip


def test_a_finding_shows_all_of_itself_and_links_its_moment_and_runbook(page_of: PageOf) -> None:
    """Message, hint, factors, symptoms, the value with its limit; the runbook without a referrer."""
    finding = _finding("https://runbooks.example/kl")
    with Scene(_changed(scenario.storm(), findings=(finding,))).served() as url:
        page = shown(page_of(f"{url}?finding=kl:policy"))
        side = text(page, "#side")
        for words in (
            "WARN · policy · policy-kl", "what KL above 0.015", "when 1m50s ago",
            "next lower the learning rate", "because 3 of 5 updates · 0.0231",
            "also 4 symptoms counted under it",
            "state open", "limit >.015", "means steps are too large", "confirm see clip", "do Lower it.",
        ):  # fmt: skip
            assert words in side, words
        moment = page.get_by_role("link", name="since 12:39:")
        assert f"at={math.ceil(scenario.NOW - 110)}" in (moment.get_attribute("href") or "")
        book = page.get_by_role("link", name="https://runbooks.example/kl")
        assert book.get_attribute("rel") == "noopener noreferrer"
        page.close()


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "docs/runbooks.md#kl", "data:text/html,x", "//evil.example/"]
)
def test_only_a_web_address_becomes_a_link(page_of: PageOf, address: str) -> None:
    """What no browser can open is not shown; the text of the runbook is."""
    with Scene(_changed(scenario.storm(), findings=(_finding(address),))).served() as url:
        page = shown(page_of(f"{url}?finding=kl:policy"))
        side = text(page, "#side")
        assert address not in side
        assert "do Lower it." in side
        hrefs = page.locator("#side a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
        assert all(href.startswith("?") for href in hrefs)
        page.close()


def test_what_is_open_may_take_the_whole_screen(opened: Page) -> None:
    """By `f`, in the address; `j` scrolls it then, `n` stays in it, `f` or a close ends it."""
    opened.keyboard.press("f")
    expect(opened.locator("#main")).to_be_hidden()
    assert "full=yes" in opened.url
    opened.set_viewport_size({"width": 1400, "height": 300})
    opened.keyboard.press("j")
    assert opened.evaluate("scrollY") == 20
    expect(opened.locator("#side h2")).to_contain_text("env 9")
    opened.keyboard.press("n")
    expect(opened.locator("#side h2")).not_to_contain_text("env 9 ")
    expect(opened.locator("#main")).to_be_hidden()
    opened.keyboard.press("Enter")
    expect(opened.locator("#main")).to_be_visible()
    opened.wait_for_url(lambda url: "full" not in url)


def test_walking_through_envs_opens_no_stream_for_each(page_of: PageOf) -> None:
    """The first press asks at once, those that follow together once the key rests."""
    with Fleet(64).served() as url:
        page = shown(page_of(f"{url}?env=0&sort=env&order=asc&grouped=no"))
        expect(page.locator(".b-line[data-open] .b-env")).to_have_text("0")
        asked: list[str] = []
        page.on("websocket", lambda socket: asked.append(parse_qs(urlsplit(socket.url).query)["env"][0]))
        with page.expect_websocket(lambda socket: "env=12&" in socket.url):
            page.evaluate(
                """for (let press = 0; press < 12; press += 1)
                document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }))"""
            )
        expect(page.locator("#side h2")).to_contain_text("env 12 ")
        page.close()

    assert asked == ["1", "12"]


def test_escape_closes_what_is_open_and_the_focus_returns(page_of: PageOf) -> None:
    """Opened from an alarm by the keyboard; the browser's way back opens it again."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        alarm = page.locator("a.alarm").first
        alarm.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#side h2")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#side")).to_be_hidden()
        expect(alarm).to_be_focused()
        assert "finding" not in page.url
        page.go_back()
        expect(page.locator("#side h2")).to_contain_text("throttled")
        page.close()


def test_n_and_p_walk_the_envs_that_are_not_ok(page_of: PageOf) -> None:
    """In the board's order, round at the ends."""
    storm = scenario.storm()
    bad = [env.env_id for env in storm.envs if env.status != "ok"]
    with Scene(storm).served() as url:
        page = shown(page_of(url))
        title = page.locator("#side h2")
        for env_id in (*bad, bad[0]):
            page.keyboard.press("n")
            expect(title).to_contain_text(re.compile(rf"^env {env_id} "))
        page.keyboard.press("p")
        expect(title).to_contain_text(re.compile(rf"^env {bad[-1]} "))
        page.close()


def test_what_was_opened_last_is_what_is_open(page_of: PageOf) -> None:
    """A finding over an env, then the env that it is about."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(f"{url}?env=9"))
        page.keyboard.press("2")
        expect(page.locator("#side h2")).to_have_text("CRIT · env 17 · env-crashed")
        page.get_by_role("link", name="env 17", exact=True).click()
        expect(page.locator("#side h2")).to_contain_text("env 17 · gpu1 · CRASHED")
        page.keyboard.press("9")
        assert "no alarm 9" in text(page, "#note")
        page.close()


def test_y_gives_the_link_to_what_is_shown(page_of: PageOf) -> None:
    """Into the clipboard, where the browser allows it; also of an env that was walked to."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url, permissions=["clipboard-read", "clipboard-write"]))
        page.keyboard.press("n")
        page.keyboard.press("y")
        expect(page.locator("#note")).to_contain_text("in the clipboard")
        assert page.evaluate("navigator.clipboard.readText()") == f"{url}?env=17"
        page.close()


def test_on_a_phone_it_is_a_page_of_its_own(page_of: PageOf) -> None:
    """Nothing is beside it, nothing is wider than the screen; Close leads back."""
    with Scene(_grown()).served() as url:
        page = shown(page_of(f"{url}?env=9", size=PHONE))
        expect(page.locator("#main")).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.get_by_role("button", name="Close").click()
        expect(page.locator("#main")).to_be_visible()
        page.close()


@pytest.mark.parametrize("query", ["env=9", "env=9&slot=", "lane=", "lane=host", "finding="])
def test_strings_of_others_are_text(page_of: PageOf, query: str) -> None:
    """Whatever a trainer calls things: no element is made of it, and no script runs."""
    snapshot = poisoned_snapshot(_grown(), HOSTILE)
    names = {
        "env=9&slot=": f"{HOSTILE}r0c0", "lane=": snapshot.system.gpus[0].gpu_id,
        "finding=": snapshot.findings[0].id,
    }  # fmt: skip
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))
        page.evaluate(
            "([query, name]) => { history.pushState(null, '', '?' + query + encodeURIComponent(name)); "
            "dispatchEvent(new PopStateEvent('popstate')); }",
            [query, names.get(query, "")],
        )
        expect(page.locator("#side")).to_be_visible()
        assert query == "lane=host" or "<img src=x onerror=alert(1)>" in text(page, "#side")
        assert page.locator("img").count() == 0
        page.close()


def _crash(service: Service) -> None:
    """A run with a finding."""
    trained(
        service, "digits-1", [running.run_started(), EnvCrashed(at=time.time_ns(), env_id=3, error="boom")]
    )


def test_a_finding_is_acknowledged_by_its_button(tmp_path: Path, page_of: PageOf) -> None:
    """At a real collector, with a token that controls; then it is off the rail, and the button is off."""
    with collecting(tmp_path) as (service, url):
        _crash(service)
        token = {"authorization": f"Bearer {service.context.guard.announced.control}"}
        page = shown(page_of(url, extra_http_headers=token))
        alarm = page.locator("a.alarm", has_text="boom")
        alarm.click()
        page.get_by_role("button", name="Acknowledge").click()
        expect(page.locator("#note")).to_have_text("env-crashed: acknowledged")
        expect(page.get_by_role("button", name="Acknowledged")).to_be_disabled()
        expect(alarm).to_have_count(0)
        page.keyboard.press("a")
        expect(page.locator("#note")).to_contain_text("is acknowledged already")
        page.close()


def test_what_is_open_is_seen_a_second_before_and_now_again(tmp_path: Path, page_of: PageOf) -> None:
    """By `[` and `]`, of a live run that is recorded; the address has the moment."""
    with collecting(tmp_path) as (service, url):
        _crash(service)
        trained(service, "digits-1", [running.update(0.01)], first_seq=3)
        page = shown(page_of(f"{url}?env=3", expected="404|503"))
        line = page.locator(".transport input")
        running.eventually(lambda: line.evaluate("(it) => it.max - it.min > 3"))
        page.keyboard.press("[")
        page.wait_for_url(re.compile(r"[?&]at=\d"))
        expect(page.locator("#top .state")).to_contain_text("at 20")
        expect(page.locator("#side h2")).to_contain_text("env 3 ")
        for _ in range(8):
            page.keyboard.press("]")
        page.wait_for_url(lambda url: "at=" not in url)
        expect(page.locator("#top .state")).not_to_contain_text("at 20")
        page.close()


def test_who_may_not_acknowledge_is_asked_for_a_token(tmp_path: Path, page_of: PageOf) -> None:
    """The collector's own words, and the dialog."""
    with collecting(tmp_path) as (service, url):
        _crash(service)
        page = shown(page_of(url, expected="401"))
        page.locator("a.alarm", has_text="boom").click()
        page.keyboard.press("a")
        expect(page.locator("#note")).to_contain_text("env-crashed is not acknowledged: ")
        expect(page.locator("#dialog input[type=password]")).to_be_visible()
        page.close()


def test_what_cannot_be_acknowledged_shows_why(page_of: PageOf) -> None:
    """Here by a server that only shows."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(f"{url}?finding={scenario.FINDINGS[0].id}", expected="404|405"))
        page.keyboard.press("a")
        expect(page.locator("#note")).to_contain_text("is not acknowledged:")
        page.close()
