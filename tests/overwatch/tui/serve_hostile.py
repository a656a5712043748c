"""The application in a terminal, fed snapshots of hostile strings, going through its pages by itself.

    python -m tests.overwatch.tui.serve_hostile COUNT

Ends with its help page after so many snapshots.
"""

import asyncio
import itertools
import sys
from collections.abc import AsyncGenerator

from overwatch.feeds import Connection
from overwatch.feeds.live import Listed, Update
from overwatch.snapshot import View
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.tui.app import OverwatchApp
from overwatch.tui.commands import press
from tests.overwatch.tui import drawers, hostile
from tests.overwatch.tui.test_paging import _runs

PRESSES = (
    "enter", "i", "escape", "escape", "i", "escape", "1", "f", "escape", "l", "k", "i", "escape", "escape",
    "A", "A", "P", "j", "P", "R", "R", "H", "H", "slash", "escape", "colon", "escape",
)  # fmt: skip


class Hostile:
    """A feed of the corpus."""

    run_id: str | None = None
    connection = Connection(state="up")
    age_s: float | None = 0.0

    def __init__(self, count: int) -> None:
        self.texts = hostile.corpus(2000)[:: max(1, 2000 // count)]
        self.text = ""
        self.app: OverwatchApp | None = None

    def select(self, view: View) -> None:
        """The view stays."""

    async def runs(self) -> tuple[Listed, ...]:
        """Runs with foreign names."""
        return tuple(
            Listed(collector=self.text, run=hostile.poisoned(one.run, self.text), reason=self.text)
            for one in _runs()
        )

    def go(self, listed: Listed) -> None:
        """Stay."""

    async def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """None."""

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """Nothing to notify."""

    async def updates(self) -> AsyncGenerator[Update, None]:
        """One snapshot a string, a key after each."""
        yield self.connection
        keys, base = itertools.cycle(PRESSES), drawers.opened()
        for text in self.texts:
            self.text = text
            yield hostile.poisoned_snapshot(base, self.text)
            await asyncio.sleep(0.02)
            self.press(next(keys))
        self.press("escape")
        self.press("question_mark")
        await asyncio.sleep(0.5)
        if self.app is not None:
            self.app.exit(0)

    def press(self, key: str) -> None:
        """As if the user did."""
        if self.app is not None:
            press(self.app.session, key, None, 0.0)
            self.app.paint()


feed = Hostile(int(sys.argv[1]))
feed.app = OverwatchApp(feed, "ws://127.0.0.1:4380")
sys.exit(feed.app.run())
