"""What the page costs in Chromium: longest tasks, scripting beside JSON.parse, bytes beside the terminal's.

Processor time of the page's main thread by the scheduler's clock, ours and the comparator in turn. Versions
and load are printed; gates nothing.

    python tests/bench/bench_web.py [--quick]
"""

import asyncio
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import aiohttp
from playwright.sync_api import Browser, Page, sync_playwright

from overwatch.feeds.live import query_of
from overwatch.snapshot import View
from tests.bench.web import trace
from tests.bench.web.pages import curves, fleet
from tests.overwatch.web.browser import chromium, opened, shown
from tests.overwatch.web.frames import COUNTING, Cost, Meter, ticking

LOADING_S = 3.0
"""What a page does before counts nowhere."""
ENVS, ROWS, POINTS = 1024, 16_384, 100_000
BLANK = """(address) => {
  new WebSocket(address).onmessage = ({ data }) => { window.last_ = JSON.parse(data); };
}"""
"""A page that only parses."""


def _emit(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tasks(browser: Browser, seconds: float) -> None:
    """The longest tasks of scrolling rows, then of zooming curves, each for half of the time."""
    faults: list[str] = []
    for title, make, act in (
        (f"scrolling {ROWS:,} rows", fleet, _scroll), (f"zooming {POINTS:,} points", curves, _zoom),
    ):  # fmt: skip
        with make(ROWS if make is fleet else POINTS) as url:
            page = shown(opened(browser, url, faults))
            page.wait_for_timeout(LOADING_S * 1e3)
            browser.start_tracing(page=page, categories=trace.CATEGORIES)
            acts = act(page, seconds / 2)
            found = trace.tasks(browser.stop_tracing())
            page.context.close()
        if faults:
            raise RuntimeError("the browser reported:\n" + "\n".join(faults))
        _emit(
            f"{title:28} {len(found):6} tasks  longest {max(found):6.1f} ms  "
            f"p99.9 {_at(found, 0.999):6.1f} ms  over 50 ms: {sum(one > 50 for one in found)}  ({acts} acts)"
        )


def _scroll(page: Page, seconds: float) -> int:
    """By the wheel, by keys, and far jumps by the bar."""
    page.locator(".board [role=grid]").hover()
    page.locator(".board [role=grid]").focus()
    until, acts = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        acts += 1
        if acts % 40 == 0:
            page.locator(".board [role=grid]").evaluate(
                "(grid, share) => { grid.scrollTop = share * grid.scrollHeight; }", (acts // 40 * 0.37) % 1
            )
        elif acts % 4 == 0:
            page.keyboard.press("PageDown")
        else:
            page.mouse.wheel(0, 700)
        page.wait_for_timeout(30)
    if not page.locator(".board [role=grid]").evaluate("(grid) => grid.scrollTop"):
        raise RuntimeError("the board was not scrolled: nothing was measured")
    return acts


def _zoom(page: Page, seconds: float) -> int:
    """In and out by the wheel and keys, with the cursor that all charts share."""
    acts = _see_all(page)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        acts += 1
        if acts % 10 == 0:
            page.keyboard.press("zZ()"[acts // 10 % 4])
        elif acts % 25 == 0:
            page.mouse.wheel(0, 500)
        else:
            page.keyboard.down("Control")
            page.mouse.wheel(0, -120 if acts % 40 < 25 else 160)
            page.keyboard.up("Control")
        page.mouse.move(300 + acts * 7 % 300, 350 + acts % 5)
        page.wait_for_timeout(30)
    return acts


def _see_all(page: Page) -> int:
    """Bring every chart into sight once, so that all points have come; back to the first."""
    charts = page.locator("figure")
    places = range(0, charts.count(), 12)
    for place in places:
        charts.nth(place).scroll_into_view_if_needed()
        page.wait_for_timeout(150)
    page.locator("figure canvas").first.hover()
    return len(places)


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _fed(browser: Browser, url: str, blank: str | None, seconds: float) -> tuple[Cost, str]:
    """What one page costs; `blank` is the stream that a blank page opens instead of ours."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    context.add_init_script(COUNTING)
    page = context.new_page()
    page.goto(f"{url}api/v1/runs" if blank else url)
    if blank:
        page.evaluate(BLANK, blank)
    else:
        shown(page)
    page.wait_for_timeout(LOADING_S * 1e3)
    meter = Meter(page)
    page.wait_for_timeout(seconds * 1e3)
    cost = meter.cost()
    address: str = page.evaluate("window.addresses_.at(-1)")
    context.close()
    return cost, address


def scripting(browser: Browser, seconds: float) -> None:
    """Scripting a frame beside a page that parses, ours twice as A/A control; bytes of both streams."""
    with ticking(ENVS) as url:
        ours, address = _fed(browser, url, None, seconds)
        blank, _ = _fed(browser, url, address, seconds)
        again, _ = _fed(browser, url, None, seconds)
        _emit(f"{'':28} {'frames':>6} {'script ms':>10} {'all ms':>8}   a frame of {ENVS:,} envs at 10 Hz")
        for title, cost in (("the page", ours), ("a page that parses", blank), ("the page again", again)):
            _emit(f"{title:28} {cost.frames:6} {cost.script_ms_a_frame:10.2f} {cost.task_ms_a_frame:8.2f}")
        mean = statistics.mean((ours.script_ms_a_frame, again.script_ms_a_frame))
        _emit(f"scripting beside JSON.parse: {mean / blank.script_ms_a_frame:.1f} times")
        stream = url.replace("http", "ws", 1) + "api/v1/stream"
        terminal = f"{stream}?" + "&".join(f"{key}={value}" for key, value in query_of(View()).items())
        # Playwright keeps an event loop in this thread.
        with ThreadPoolExecutor(1) as other_thread:
            coming = other_thread.submit(asyncio.run, _bytes([address, terminal], min(seconds, 10.0)))
            page, other = coming.result()
    _emit(
        f"bytes a second: the page {page / 1e3:.0f} kB, the terminal {other / 1e3:.0f} kB: "
        f"{page / other:.2f} times"
    )


async def _bytes(addresses: list[str], seconds: float) -> list[float]:
    """A second of each stream, both at once."""

    async def one(session: aiohttp.ClientSession, address: str) -> float:
        count = 0
        async with session.ws_connect(address) as socket:
            await socket.receive()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while True:
                        count += len((await socket.receive_str()).encode())
        return count / seconds

    async with aiohttp.ClientSession() as session:
        return await asyncio.gather(*(one(session, address) for address in addresses))


def main(seconds: float) -> None:
    """Measure and print."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        _emit(f"Chromium {browser.version}, load {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
        tasks(browser, seconds)
        scripting(browser, seconds / 2)
        browser.close()
    _emit(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main(30.0 if "--quick" in sys.argv[1:] else 60.0)
