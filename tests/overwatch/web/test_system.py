"""The machines on the page: a line a lane with what holds it back, the host, the telemetry, services."""

import msgspec
import pytest

from overwatch.snapshot import Bound, Service, Snapshot, System
from overwatch.tui.text import clean
from tests.overwatch.tui import scenario
from tests.overwatch.web.browser import PHONE, PageOf, Scene, shown, text
from tests.overwatch.web.scenes import SCENES


@pytest.mark.parametrize("name", SCENES)
def test_each_lane_has_its_line(name: str, page_of: PageOf) -> None:
    """With its bound and why, in the snapshot's order; a stale one is judged by nothing."""
    snapshot: Snapshot = SCENES[name]()
    with Scene(snapshot).served() as url:
        page = shown(page_of(url))
        lines = page.locator(".system .s-list").first.locator("li")

        assert lines.count() == len(snapshot.system.gpus)
        for lane, line in zip(snapshot.system.gpus, lines.all(), strict=True):
            drawn = line.locator(".s-bound").text_content()
            bound = lane.bound
            assert bound is not None
            stale = snapshot.link.state == "stale"
            assert drawn == ("unknown ?" if stale else clean(f"{bound.state} {bound.mark}".strip()))
            assert clean(bound.why or "") in (line.locator(".s-why").text_content() or "") or stale
            assert line.locator(".s-name").text_content() == clean(lane.gpu_id)
        page.close()


def test_a_lane_is_shown_with_the_terminals_numbers(page_of: PageOf) -> None:
    """Utilisation, its bars, memory, temperature, power and clock."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url))
        assert text(page, ".s-line") == (
            "gpu1 97% █████▇████ 63.0/80.0G 91°C 388W 1140MHz THROTTLED !! thermal: 1140 of 1980 MHz; cool it"
        )
        host = page.locator(".s-line", has_text="host")
        assert " ".join(host.inner_text().split()) == (
            "host 64% ▅▅▆▅▅▆▅▅▅▆ ram 121.0/256.0G disk r 12 w 48 MB/s net 3 MB/s loader 6/8 "
            "telemetry lag 0.3s dropped 0"
        )
        assert text(page, ".system .row") == "System global SYNC-BOUND ! confidence 0.86"
        page.close()


def test_no_lane_and_no_host_are_shown_in_words(page_of: PageOf) -> None:
    """Never as zeros."""
    bare = msgspec.structs.replace(scenario.storm(), system=System(), feed=())
    with Scene(bare).served() as url:
        page = shown(page_of(url))
        assert text(page, ".system p") == "gpu no readings; overwatch doctor shows why"
        assert "host no readings yet" in text(page, ".system")
        page.close()


def test_services_come_after_the_machines(page_of: PageOf) -> None:
    """Worst first as they come, with a mark and their parts; eight at most, then how many more."""
    held = Service(name="replay", status="warning", age_s=1.0, parts=("fill 98%",),
                   bound=Bound(state="STARVED", why="no inserts"))  # fmt: skip
    silent = Service(name="rollout 1", status="silent", age_s=75.0)
    calm = tuple(Service(name=f"rollout {n}", status="ok", age_s=1.0) for n in range(2, 10))
    crowded = msgspec.structs.replace(scenario.storm(), processes=(held, silent, *calm))
    with Scene(crowded).served() as url:
        page = shown(page_of(url))
        lines = page.locator(".system .s-list").last.locator("li")
        drawn = [" ".join(one.split()) for one in lines.all_inner_texts()]
        assert drawn[:3] == ["replay ! STARVED no inserts fill 98%", "rollout 1 ! silent 1m", "rollout 2"]
        assert len(drawn) == 8
        assert text(page, ".system > a") == "+2 more services"
        page.close()


def test_the_machines_fit_a_phone(page_of: PageOf) -> None:
    """Nothing is wider than the screen."""
    with Scene(scenario.storm()).served() as url:
        page = shown(page_of(url, size=PHONE))
        page.wait_for_selector(".b-line[data-kind=env]")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        page.close()
