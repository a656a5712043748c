"""The page in Debian's Chromium, over the real view API: what the tests of the page start from.

A page that is opened by `page_of` fails its test when the browser reports an error or a breach of the content
policy, or asks another host for anything. Snapshots come from a whole collector (`collecting`), from a
recording (`recorded`), or from `Scene`, which puts given snapshots behind the real view API.
"""

import asyncio
import os
import re
import shutil
import socket
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    WebSocket,
    sync_playwright,
)

from overwatch.aggregator import Frame
from overwatch.collector import Service
from overwatch.collector.net import Address
from overwatch.collector.recording_view import RecordingView
from overwatch.events import Event
from overwatch.feeds.inputs import open_input
from overwatch.feeds.player import player_of
from overwatch.fold import TowerStats
from overwatch.serve.pages import Pages
from overwatch.serve.stream import FrameNotifier, ViewApi
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from tests.overwatch.collector import running

REPORTS = "addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.violatedDirective))"
WIDE, PHONE = (1400, 900), (360, 740)
UNREACHABLE = (
    r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|WebSocket connection to .* failed"
)
"""What Chromium writes while the collector is not there; for `expected` of a page that outlives one."""

PageOf = Callable[..., Page]


def chromium() -> str | None:
    """The program of Debian's package, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


_GONE: set[str] = set()
"""Hosts that were served and are no more: a page that is still open asks in vain."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium for the tests of one module; until its end, Playwright keeps an event loop in this thread."""
    found = chromium()
    if found is None:
        why = "the page is tested in Chromium, which is missing: apt-get install chromium"
        if os.environ.get("OVERWATCH_REQUIRE_REAL") == "1":
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        # Its own sandbox needs user namespaces, which a container seldom has; only our page is opened.
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page_of(browser: Browser) -> Iterator[PageOf]:
    """Opens addresses, each as a new user: `page_of(url, size=PHONE, scheme="dark", expected="pattern")`.

    `expected` is a pattern of what the browser may report; everything else fails the test at its end. Wait by
    selectors and addresses: `wait_for_function` evaluates text, which the page's policy forbids.
    """
    faults: list[str] = []

    def page_of(url: str, *, expected: str = "", **how: object) -> Page:
        return opened(browser, url, faults, expected, **how)

    yield page_of
    for context in browser.contexts:
        context.close()
    if faults:
        pytest.fail("the browser reported:\n" + "\n".join(faults))


def opened(
    browser: Browser,
    url: str,
    faults: list[str],
    expected: str = "",
    **how: Any,
) -> Page:
    """A page of a new user; `how` takes `size`, `scheme`, and what a context of Playwright's takes."""
    size: tuple[int, int] = how.pop("size", WIDE)
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=how.pop("scheme", "light"),
        timezone_id="UTC", locale="en-GB", **{"reduced_motion": "reduce", **how},
    )  # fmt: skip
    context.add_init_script(REPORTS)
    page = context.new_page()
    _watch(page, urlsplit(url).netloc, faults, expected)
    page.goto(url)
    return page


def _watch(page: Page, host: str, faults: list[str], expected: str) -> None:
    """Collect what a page must not do."""

    def fault(text: str) -> None:
        is_gone = host in _GONE and "ERR_CONNECTION_REFUSED" in text
        if not is_gone and not (expected and re.search(expected, text)):
            faults.append(text)

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            fault(f"console: {message.text} ({message.location.get('url', '')})")

    def on_address(asked: Request | WebSocket) -> None:
        parts = urlsplit(asked.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != host:
            fault(f"another host: {asked.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: fault(f"script: {error}"))
    page.on("request", on_address)
    page.on("websocket", on_address)


def shown(page: Page) -> Page:
    """The page once it has a snapshot."""
    page.wait_for_selector("#top h1:not(:empty)")
    return page


T = TypeVar("T")
ROUNDS: Final = 4
"""Of an event loop, from an accepted connection to its protocol: its task, its transport, its protocol."""
SETTLES_S: Final = 20.0
"""On a machine with much other work."""


def settled(page: Page, read: Callable[[], T], wanted: T) -> T:
    """What is read once it is as wanted; what is read last where it does not become so."""
    until = time.monotonic() + SETTLES_S
    while (found := read()) != wanted and time.monotonic() < until:
        page.wait_for_timeout(50)
    return found


def cleaned(text: str) -> str:
    """Without what turns text around or has no width; controls are `?`; two marks on a character at most."""
    kept = "".join(one for one in text if unicodedata.category(one) != "Cf")
    shown = "".join(
        "?" if unicodedata.category(one) in ("Cc", "Zl", "Zp") and one not in "\n\t" else one for one in kept
    )
    return re.sub("([\u0300-\u036f\ufe00-\ufe0f]{2})[\u0300-\u036f\ufe00-\ufe0f]+", r"\1", shown)


def text(page: Page, selector: str) -> str:
    """What a reader sees of a part, with single blanks."""
    return " ".join(page.locator(selector).first.inner_text().split())


def pinched(page: Page, selector: str, begin: tuple[float, float], end: tuple[float, float]) -> None:
    """Two fingers on a part of the page, from and to shares of its width; the page needs `has_touch=True`."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    session = page.context.new_cdp_session(page)

    def touch(kind: str, *shares: float) -> None:
        points = [
            {"x": box["x"] + share * box["width"], "y": box["y"] + 40, "id": finger}
            for finger, share in enumerate(shares)
        ]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", begin[0])
    touch("touchStart", *begin)
    for step in range(1, 9):
        touch("touchMove", *(a + (b - a) * step / 8 for a, b in zip(begin, end, strict=True)))
    touch("touchEnd", end[0])
    touch("touchEnd")
    session.detach()


@contextmanager
def collecting(folder: Path, *sets: str) -> Iterator[tuple[Service, str]]:
    """A whole collector in this process, and the address of its page."""
    with running.running(folder, *sets) as service:
        _GONE.discard(urlsplit(page_address(service)).netloc)
        yield service, page_address(service)
        _GONE.add(urlsplit(page_address(service)).netloc)


@contextmanager
def recorded(path: Path) -> Iterator[str]:
    """The address of a recording's page, as `overwatch web` serves it."""
    opened = open_input(path)
    view = RecordingView(lambda: player_of(opened), Address(host="127.0.0.1", port=0))
    view.start()
    try:
        yield view.url
        _GONE.add(urlsplit(view.url).netloc)
    finally:
        view.stop()


def page_address(service: Service) -> str:
    """Where a collector serves its page."""
    view = service.endpoints.view
    assert view is not None
    return "http://" + view.partition("://")[2].rstrip("/") + "/"


def trained(service: Service, run_id: str, events: Sequence[Event], first_seq: int = 1) -> None:
    """What a trainer of ours sends to the collector."""
    body = running.reported(run_id, events, first_seq)
    answer = running.http(
        f"{service.endpoints.otlp_http}/v1/logs", body, content_type="application/x-protobuf"
    )
    assert answer.status == 200, answer


class Scene:
    """Given snapshots behind the real view API: each view of a run gets what `show` was given last."""

    def __init__(
        self,
        *snapshots: Snapshot,
        history: Callable[[HistoryQuery], History | None] | None = None,
        of_view: Callable[[Snapshot, View], Snapshot] | None = None,
    ) -> None:
        self.notifier = FrameNotifier()
        self.frame: Frame | None = None
        self._views: list[tuple[str | None, View]] = []
        self._lock = threading.Lock()
        self._snapshots: dict[str, Snapshot] = {}
        self._history = history
        self._of_view = of_view or (lambda snapshot, _: snapshot)
        self.show(*snapshots)

    def show(self, *snapshots: Snapshot) -> None:
        """Publish them, the last one as the newest run's; from any thread."""
        with self._lock:
            self._snapshots |= {one.run.run_id: one for one in snapshots}
            newest = snapshots[-1].run.run_id if snapshots else next(reversed(self._snapshots), None)
            views = {View(), *(view for _, view in self._views)}
            made = {
                (run, view): self._of_view(one, view)
                for run, one in self._snapshots.items()
                for view in views
            }
            ticks = [one.time for one in self._snapshots.values()]
            self.frame = Frame(
                tick=round(max(ticks, default=0.0) * 1e9), slow=True, newest=newest, snapshots=made,
                recorded=(), tower=TowerStats(),
            )  # fmt: skip
        self.notifier.publish(self.frame)

    def behind_s(self) -> float:
        """What a test shows is of whatever time it likes."""
        return 0.0

    def watch(self, run_id: str | None, view: View) -> None:
        """Take a view, and publish what there is for it."""
        self._views.append((run_id, view))
        self.show()

    def unwatch(self, run_id: str | None, view: View) -> None:
        """Leave a view."""
        self._views.remove((run_id, view))

    def history(self, run_id: str | None, wanted: HistoryQuery) -> "Future[History | None]":
        """The past, if the test gave one; else that of a run without any."""
        coming: Future[History | None] = Future()
        run = run_id or (self.frame.newest if self.frame else None)
        coming.set_result(self._history(wanted) if self._history else History(run_id=run) if run else None)
        return coming

    def heat(self, run_id: str | None, wanted: HeatQuery) -> "Future[HeatMap | None]":
        """Nothing was judged."""
        coming: Future[HeatMap | None] = Future()
        run = run_id or (self.frame.newest if self.frame else None)
        coming.set_result(HeatMap(run_id=run, of=wanted.of) if run else None)
        return coming

    @contextmanager
    def served(self, port: int = 0) -> Iterator[str]:
        """The address of its page, as long as it is served; nothing can be acknowledged."""
        with served(self._application, port) as url:
            yield url
        self.notifier.close()

    def _application(self) -> web.Application:
        app = ViewApi(self, self.notifier).app()
        Pages().add_to(app)
        return app


async def ended(runner: web.AppRunner, listening: socket.socket) -> None:
    """Accept no more, then close every connection.

    A browser opens connections ahead of time. Of one whose transport is made after the server was closed, an
    event loop before Python 3.12 keeps the socket open. So those that were accepted become known first.
    """
    asyncio.get_running_loop().remove_reader(listening)
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
    await runner.cleanup()


@contextmanager
def served(make: Callable[[], web.Application], port: int = 0) -> Iterator[str]:
    """An application in a thread of its own, and its address."""
    bound: Future[str] = Future()
    over: list[Callable[[], None]] = []
    listening = socket.create_server(("127.0.0.1", port))

    async def serve() -> None:
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        over.append(lambda: loop.call_soon_threadsafe(ending.set))
        runner = web.AppRunner(make(), shutdown_timeout=0.1)
        try:
            await runner.setup()
            await web.SockSite(runner, listening).start()
            host, taken = listening.getsockname()
            bound.set_result(f"http://{host}:{taken}/")
            await ending.wait()
        except BaseException as error:
            if bound.done():
                raise
            bound.set_exception(error)
        finally:
            await ended(runner, listening)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="page")
    thread.start()
    try:
        url = bound.result(30)
        _GONE.discard(urlsplit(url).netloc)
        yield url
        _GONE.add(urlsplit(url).netloc)
    finally:
        for end in over:
            end()
        thread.join(30)
