"""Pages that go on: ten snapshots a second behind the real view API, and what a page costs in processor time.

Costs are those of the page's main thread by the scheduler's clock, as Chromium counts them.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from playwright.sync_api import CDPSession, Page

from overwatch.snapshot import Snapshot, View
from tests.bench.tui.child import snapshots
from tests.overwatch.web.browser import Scene

HZ = 10
COUNTING = """
window.frames_ = 0;
window.addresses_ = [];
window.WebSocket = class extends WebSocket {
  constructor(...how) {
    super(...how);
    window.addresses_.push(String(how[0]));
    this.addEventListener("message", () => { window.frames_ += 1; });
  }
};
"""
"""Counts the frames of any page and keeps where they come from; the same for all that are compared."""


def cut(snapshot: Snapshot, view: View) -> Snapshot:
    """As many rows as a view wants."""
    return msgspec.structs.replace(snapshot, envs=snapshot.envs[: view.rows])


@contextmanager
def ticking(envs: int, *, storm: bool = False) -> Iterator[str]:
    """The address of a page that gets ten snapshots a second: a tenth of 256 rows change each time."""
    source = snapshots(envs, storm=storm)
    scene = Scene(next(source), of_view=cut)
    ending = threading.Event()

    def tick() -> None:
        while not ending.wait(1 / HZ):
            scene.show(next(source))

    with scene.served() as url:
        thread = threading.Thread(target=tick, name="ticks")
        thread.start()
        try:
            yield url
        finally:
            ending.set()
            thread.join()


@dataclass(frozen=True)
class Cost:
    """What a page did in a while."""

    frames: int
    script_ms: float
    task_ms: float

    @property
    def script_ms_a_frame(self) -> float:
        """CPU of its scripts for each frame that came."""
        return self.script_ms / max(1, self.frames)

    @property
    def task_ms_a_frame(self) -> float:
        """With styles, layout and painting."""
        return self.task_ms / max(1, self.frames)


class Meter:
    """What a page costs between two calls; the page counts its frames by `COUNTING`."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._before = self._read()

    def cost(self) -> Cost:
        """Since the last call."""
        now = self._read()
        frames, script, task = (b - a for a, b in zip(self._before, now, strict=True))
        self._before = now
        return Cost(int(frames), script * 1e3, task * 1e3)

    def heap_bytes(self) -> int:
        """What the page's scripts hold, after all that nobody holds is gone."""
        for _ in range(3):
            self._session.send("HeapProfiler.collectGarbage")
        return int(self._session.send("Runtime.getHeapUsage")["usedSize"])

    def _read(self) -> tuple[float, float, float]:
        metrics = {
            one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]
        }
        frames: int = self._page.evaluate("window.frames_")
        return frames, metrics["ScriptDuration"], metrics["TaskDuration"]
