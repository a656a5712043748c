"""The flight board on the page: the terminal's words for each env, any row of a large fleet, keys, links."""

import re

import pytest
from playwright.sync_api import Page, expect

from overwatch.catalog import Stage
from overwatch.snapshot import Env, Snapshot, View
from overwatch.tui.grammar import ChipSize, chip, number, status, status_counts
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PHONE, PageOf, Scene, shown, text
from tests.overwatch.web.scenes import SCENES, Fleet

ROWS = ".b-line[data-kind=env]"
N = 16_384


def rows_of(page: Page) -> list[dict[str, str]]:
    """The rows that have elements: each cell by its column."""
    found: list[dict[str, str]] = page.evaluate(
        """(rows) => [...document.querySelectorAll(rows)].map((row) => Object.fromEntries(
            [...row.querySelectorAll(":scope > [role=gridcell]:not(.b-label)")].map((cell) =>
                [cell.className.slice(2), cell.textContent])))""",
        ROWS,
    )
    return found


def expected(env: Env, snapshot: Snapshot) -> dict[str, str]:
    """A row's cells in the terminal's grammar."""
    run, columns = snapshot.run, snapshot.board.columns
    numbers = {"return": (env.episode_return, "+.2f", 6), "metric": (env.metric, ".2f", 5),
               "rent": (env.rent, ".2f", 4), "fps": (env.fps, ".0f", 4)}  # fmt: skip
    cells = {
        "env": str(env.env_id), "status": status(env.status, compact=False).text,
        "anom": number(env.anomaly.score, ".1f", 4), "why": " · ".join(env.anomaly.reasons),
        **{"value" if name == "return" else name: "–" if value is None else number(value, spec, width)
           for name, (value, spec, width) in numbers.items() if name in columns},
    }  # fmt: skip
    if run.slots_enabled:
        known = set(run.slots) >= set(env.slots)
        assert known
        cells["slots"] = "".join(
            chip(name, env.slots.get(name), ChipSize.SMALL, run.blueprints).text.strip() for name in run.slots
        )
    return cells


@pytest.mark.parametrize("name", ["healthy", "storm", "ended sick", "stale", "without slots"])
def test_rows_are_the_terminals(name: str, page_of: PageOf) -> None:
    """Every env of the snapshot that is not OK, and the first calm ones of each lane, cell by cell."""
    snapshot: Snapshot = SCENES[name]()
    with Scene(snapshot).served() as url:
        page = shown(page_of(url, size=(1600, 1400)))
        page.wait_for_selector(ROWS)
        drawn = {row["env"]: row for row in rows_of(page)}

        by_id = {str(env.env_id): env for env in snapshot.envs}
        assert drawn.keys() >= {str(env.env_id) for env in snapshot.envs if env.status != "ok"}
        for env_id, row in drawn.items():
            row.pop("action", None)
            assert row == expected(by_id[env_id], snapshot)
        page.close()


def test_lanes_head_their_rows(page_of: PageOf) -> None:
    """With their bound, counts and medians; rows that are not shown are counted in words."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url, size=(1600, 1400)))
        page.wait_for_selector(ROWS)
        heads = [" ".join(one.split()) for one in page.locator(".b-line[data-kind=head]").all_inner_texts()]
        folds = [" ".join(one.split()) for one in page.locator(".b-line[data-kind=fold]").all_inner_texts()]

        assert [head.partition(" env ")[0] for head in heads] == [
            "▾ gpu1 THROTTLED !! 32", "▾ gpu0 SYNC-BOUND ! 32"
        ]  # fmt: skip
        assert heads[0].endswith("+0.38 0.94 0.12 171")
        assert re.fullmatch(r"\+ \d+ more OK · return \+0.22 to \+0.55, p10 to p90", folds[0])
        counts = status_counts(scenario.storm().board.counts)
        assert text(page, ".board .row") == f"Flight board sort anomaly v · filter none · 64 env: {counts}"
        page.close()


def test_hostile_words_are_text(page_of: PageOf) -> None:
    """Names of slots, blueprints, actions and reasons make no element and no script."""
    with Scene(SCENES["hostile"]()).served() as url:
        page = shown(page_of(url))
        page.wait_for_selector(ROWS)
        assert page.locator(".board img").count() == 0
        assert "<img src=x onerror=alert(1)>" in rows_of(page)[0]["why"]
        page.close()


def test_before_the_first_env_there_are_words(page_of: PageOf) -> None:
    """An empty board states it; nothing is 0."""
    with Scene(scenario.started()).served() as url:
        page = shown(page_of(url))
        assert "no env yet" in text(page, ".board")
        page.close()


def test_stages_look_as_the_catalogue_has_them(page_of: PageOf) -> None:
    """Glyph, tone and whether a chip names its blueprint; a new stage has to be added here."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        stages = page.evaluate("import('/web/chips.js').then((it) => it.STAGES)")
        assert stages == {
            stage.value: [stage.glyph, stage.facets.tone.value, stage.shows_blueprint] for stage in Stage
        }
        page.close()


def test_any_row_of_a_large_fleet_is_scrolled_to(page_of: PageOf) -> None:
    """One list of 16,384: few elements, and the server's rows wherever it is scrolled."""
    fleet = Fleet(N)
    whole = fleet.seen(View(rows=N, grouped=False, offset=0)).envs
    with fleet.served() as url:
        page = shown(page_of(url + "?grouped=no"))
        page.wait_for_selector(ROWS)
        for place in (0, 9000, N - 60):
            page.evaluate("(top) => { document.querySelector('.b-grid').scrollTop = top }", place * 24)
            row = page.locator(f".b-line[aria-rowindex='{place + 8}']")
            expect(row.locator(".b-env")).to_have_text(str(whole[place + 6].env_id))
            expect(row.locator(".b-why")).to_have_text(" · ".join(whole[place + 6].anomaly.reasons))
        assert page.locator(".b-line").count() < 80
        expect(page.locator(".b-grid")).to_have_attribute("aria-rowcount", str(N + 1))
        page.wait_for_url(re.compile(r"first=\d+"))
        page.close()


def test_an_address_opens_the_rows_that_were_seen(page_of: PageOf) -> None:
    """Lane by lane from a line on; the same after going back."""
    fleet = Fleet(N)
    whole = fleet.seen(View(rows=N, offset=0))
    second = whole.board.groups[0].n_envs
    with fleet.served() as url:
        page = shown(page_of(f"{url}?first={second + 1}"))
        head = page.locator(f".b-line[aria-rowindex='{second + 3}']")
        expect(head).to_have_attribute("data-kind", "head")
        expect(head.locator(".b-on")).to_have_text(whole.board.groups[1].gpu_id or "")
        after = page.locator(f".b-line[aria-rowindex='{second + 4}'] .b-env")
        expect(after).to_have_text(str(whole.envs[second].env_id))
        page.close()


def test_a_fold_opens_all_rows(page_of: PageOf) -> None:
    """The first row that it hid is then at the top."""
    fleet = Fleet(2000)
    with fleet.served() as url:
        page = shown(page_of(url, size=(1400, 1600)))
        fold = page.locator(".b-line[data-kind=fold]").first
        expect(fold).to_contain_text("more")
        shown_before = [row["env"] for row in rows_of(page)]
        fold.click()
        page.wait_for_url(re.compile(r"first=\d+"))
        expect(page.locator("select")).to_have_value("every")
        first = int(page.url.partition("first=")[2])
        row = page.locator(f".b-line[aria-rowindex='{first + 2}']")
        expect(row).to_have_attribute("data-kind", "env")
        expect(row.locator(".b-env")).not_to_have_text("…")
        assert row.locator(".b-env").inner_text() not in shown_before
        page.close()


def test_heads_sort(page_of: PageOf) -> None:
    """The worst first, then the other way round, in the address and for screen readers."""
    with Fleet(300).served() as url:
        page = shown(page_of(url + "?grouped=no"))
        metric = page.locator(".b-head .b-metric")
        metric.get_by_role("button").click()
        expect(metric).to_have_attribute("aria-sort", "ascending")
        assert "sort=metric&order=asc" in page.url
        low = [float(row["metric"]) for row in rows_of(page)]
        assert low == sorted(low)
        metric.get_by_role("button").click()
        expect(metric).to_have_attribute("aria-sort", "descending")
        page.keyboard.press("s")
        expect(page.locator(".b-head .b-anom")).to_have_attribute("aria-sort", "descending")
        page.keyboard.press("S")
        expect(page.locator(".b-head .b-anom")).to_have_attribute("aria-sort", "ascending")
        page.close()


def test_a_filter_leaves_what_passes(page_of: PageOf) -> None:
    """As it is typed, with the count; Esc drops it."""
    with Fleet(300).served() as url:
        page = shown(page_of(url))
        page.keyboard.press("/")
        page.keyboard.type("status=crashed")
        expect(page.locator(".board .row")).to_contain_text("4 of 300 env: 4 CRASHED")
        expect(page).to_have_url(re.compile("filter=status%3Dcrashed"))
        page.keyboard.press("Escape")
        expect(page.locator(".board .row")).to_contain_text("filter none · 300 env")
        page.close()


def test_a_filter_that_cannot_be_read_clears_nothing(page_of: PageOf) -> None:
    """The server's words stand beside the field; the board keeps its rows."""
    with Fleet(300).served() as url:
        page = shown(page_of(url + "?filter=stge%3Dpruned", expected="400|closed before the connection"))
        expect(page.locator(".b-error")).to_contain_text("stge")
        expect(page.locator("#board-filter")).to_have_value("stge=pruned")
        expect(page.locator("#board-filter")).to_have_attribute("aria-invalid", "true")
        page.locator("#board-filter").fill("env=3")
        expect(page.locator(".board .row")).to_contain_text("1 of 300 env")
        expect(page.locator(".b-error")).to_be_empty()
        page.close()


def test_keys_move_open_and_fold(page_of: PageOf) -> None:
    """As in the terminal: the cursor begins on the worst, walks rows and lanes, and opens what it is on."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        here = page.locator(".b-line[aria-selected=true]")
        expect(here.locator(".b-env")).to_have_text("17")
        page.keyboard.press("j")
        expect(here.locator(".b-env")).to_have_text("22")
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        page.wait_for_url("**/?env=17")
        expect(page.locator(".b-line[data-open] .b-env")).to_have_text("17")
        page.keyboard.press("Escape")
        page.wait_for_url("**/")
        page.keyboard.press("o")
        expect(page.locator(".b-line[data-kind=head]").first).to_contain_text("▸")
        expect(page.locator(".b-line[data-kind=head]").nth(1)).to_contain_text("▾")
        page.keyboard.press("o")
        page.keyboard.press("PageDown")
        expect(here).to_have_attribute("aria-rowindex", "12")
        expect(page.locator(".b-grid")).to_have_attribute(
            "aria-activedescendant", str(here.get_attribute("id"))
        )
        page.keyboard.press("g")
        expect(here.locator(".b-env")).to_have_text("17")
        page.close()


def test_marked_envs_are_shown_alone_and_the_address_holds_them(page_of: PageOf) -> None:
    """By `m` under the cursor and of what is open, by `M` alone and all again; a link has the marks."""
    with Fleet(300).served() as url:
        page = shown(page_of(f"{url}?sort=env&order=asc&grouped=no"))
        page.keyboard.press("M")
        expect(page.locator("#note")).to_contain_text("nothing is marked")
        page.keyboard.press("j")
        page.keyboard.press("m")
        page.goto(f"{url}?env=12&marked=1")
        shown(page).keyboard.press("m")
        page.wait_for_url("**marked=1%2C12**")
        page.keyboard.press("Escape")
        page.keyboard.press("M")
        expect(page.locator(".board .row")).to_contain_text("filter env=1,12 · 2 of 300 env")
        expect(page.locator(f"{ROWS}[data-marked] .b-env")).to_have_text(["1*", "12*"])
        page.keyboard.press("M")
        expect(page.locator(".board .row")).to_contain_text("filter none")
        page.close()


def test_i_opens_the_lane_of_the_cursor(page_of: PageOf) -> None:
    """As in the terminal, while nothing is open; then it is the next slot of the env."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        page.keyboard.press("i")
        expect(page.locator("#side h2")).to_have_text("lane gpu1")
        page.goto(f"{url}?env=17")
        shown(page).keyboard.press("i")
        expect(page.locator("#side h2")).to_contain_text("env 17 · r")
        page.close()


def test_a_row_takes_two_lines_on_a_phone(page_of: PageOf) -> None:
    """Env, status, anomaly and return, then the reasons and dots; nothing is wider than the screen."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url, size=PHONE))
        row = page.locator(ROWS).first
        expect(row).to_be_visible()
        box = row.bounding_box()
        assert box is not None
        assert (round(box["height"]), box["width"] <= PHONE[0]) == (46, True)
        expect(row.locator(".b-why")).to_be_visible()
        expect(row.locator(".b-fps")).to_be_hidden()
        page.close()


def test_what_is_added_up_is_the_terminals(page_of: PageOf) -> None:
    """The census of seeds, the mix of actions and both ends of the fleet."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        lines = [" ".join(one.split()) for one in page.locator(".rollups p:visible").all_inner_texts()]
        assert lines == [
            "seeds · 121 ○ 22 ◔ 88 ◑ 54 ◕ 31 ● 49 ✗ 5 ⊘ 12 ↺ 2",
            "actions WAIT 61% GERM 9% ADV 14% FOSS 5% PRUNE 11%",
            "best env 44 return +0.61 · env 3 acc 0.97",
            "worst env 12 return -0.84 · env 12 acc 0.66",
        ]
        page.close()
