"""The page for a long time: frames come and go, and nothing of them is kept."""

import pytest
from playwright.sync_api import Browser

from tests.overwatch.web.browser import opened, shown
from tests.overwatch.web.frames import COUNTING, HZ, Meter, ticking

MIB = 1 << 20


@pytest.mark.parametrize(
    ("first_s", "last_s"),
    [(15, 60), pytest.param(300, 1800, marks=[pytest.mark.long, pytest.mark.timeout(2700)])],
)
def test_the_page_is_flat_in_memory(first_s: int, last_s: int, browser: Browser) -> None:
    """What scripts hold grows by no more than 2 MiB, however many frames come with new lines of the feed."""
    faults: list[str] = []
    with ticking(1024, storm=True) as url:
        page = opened(browser, url, faults)
        page.add_init_script(COUNTING)
        page.reload()
        shown(page)
        meter = Meter(page)
        page.wait_for_timeout(first_s * 1e3)
        first = meter.heap_bytes()
        page.wait_for_timeout((last_s - first_s) * 1e3)
        last, frames = meter.heap_bytes(), meter.cost().frames
        page.context.close()

    assert not faults
    assert frames > HZ * last_s / 20, "frames came"
    assert last - first < 2 * MIB, f"{first / MIB:.1f} MiB, then {last / MIB:.1f} MiB after {frames} frames"
