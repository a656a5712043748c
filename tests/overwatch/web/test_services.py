"""The page of services: processes, what they report, and what is counted."""

import msgspec
from playwright.sync_api import Page, expect

from overwatch.snapshot import Bound, Limit, Reading, Service, Snapshot, Tally, Total
from tests.overwatch.tui import scenario
from tests.overwatch.tui.hostile import poisoned_snapshot
from tests.overwatch.web.browser import PHONE, PageOf, Scene, shown


def _served() -> Snapshot:
    bound = Bound(state="QUEUE-BOUND", why="waits 40% of its time", mark="!")
    depth = Reading(
        label="queue", text="3", status="warning", limit=Limit(text="<4", value=4.0), role="learner", rank=0
    )
    tally = Tally(
        name="learner.sample.latency", role="learner", rank=1, labels={"table": "a b"}, total=12.25, count=30,
        bounds=(0.1, 1.0), counts=(10, 0, 20),
    )  # fmt: skip
    return msgspec.structs.replace(
        scenario.storm(),
        processes=(
            Service(name="replay", status="silent", age_s=65.0, parts=("512 items",)),
            Service(name="learner", status="ok", age_s=0.5, parts=("v 128 3s ago", "queue 3/4"), bound=bound),
        ),
        services={
            "learner.queue.depth": depth,
            "replay.items": msgspec.structs.replace(
                depth, label="items", text="512", status="ok", limit=None, role="replay"
            ),
            "learner.queue.depth#learner/1": msgspec.structs.replace(depth, text="2", rank=1),
            "weights.age": msgspec.structs.replace(depth, label="weights", text="3s", limit=None),
        },
        tallies=(tally,),
        totals={"learner.sample.latency": Total(total=12.25, count=30, rate=4.0, p50=0.2)},
    )


def _rows(page: Page, caption: str) -> list[str]:
    table = page.locator(f'[role=group][aria-label="{caption}"]')
    return [" ".join(row.split()) for row in table.locator("tbody tr").all_inner_texts()]


def test_processes_readings_and_counts_are_the_snapshots(page_of: PageOf) -> None:
    """Worst first, readings of one process together, sums before their parts; missing is a dash."""
    with Scene(_served()).served() as url:
        page = shown(page_of(f"{url}?page=services"))
        assert _rows(page, "Processes, worst first") == [
            "replay silent 1m05s silent 1m · 512 items",
            "learner ok 0.50s QUEUE-BOUND waits 40% of its time · v 128 3s ago · queue 3/4",
        ]
        assert _rows(page, "What they report") == [
            "learner queue 3 warning <4 learner.queue.depth",
            "learner weights 3s warning – weights.age",
            "learner 1 queue 2 warning <4 learner.queue.depth",
            "replay items 512 ok – replay.items",
        ]
        assert _rows(page, "What is counted, over all and by each") == [
            "all learner.sample.latency 12 30 4 0.2 –",
            "learner 1 learner.sample.latency table='a b' 12 30 – – – ▅ █ 0.1 to 1",
        ]
        page.close()


def test_a_run_without_services_shows_it(page_of: PageOf) -> None:
    """No table is there."""
    with Scene(scenario.healthy()).served() as url:
        page = shown(page_of(f"{url}?page=services"))
        expect(page.locator("#main")).to_contain_text("none reports")
        assert page.locator("#main table:visible").count() == 0
        page.close()


def test_names_of_others_are_text_and_fit_a_phone(page_of: PageOf) -> None:
    """Tables that are wider scroll by themselves."""
    with Scene(poisoned_snapshot(_served(), "<img src=x onerror=alert(1)>")).served() as url:
        page = shown(page_of(f"{url}?page=services", size=PHONE))
        assert len(_rows(page, "Processes, worst first")) == 2
        assert page.locator("img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        page.close()
