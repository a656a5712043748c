"""The list of runs of many collectors as a screen that refreshes in place.

Owns the table and its cursor, and nothing else: who asks the collectors is given, and a run that is chosen is
handed back, for the terminal to open. Nothing that came from a collector is parsed as markup.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Static

from overwatch.feeds.fleet import COLUMNS, RIGHT, FleetRow, cells

_COLOURS: Final = {"CRIT": "red", "AWAY": "red", "WARN": "yellow", "OK": "green"}


class FleetApp(App[FleetRow]):
    """Rows, the worst first; Enter returns the run under the cursor, q returns `None`."""

    CSS = "Static { height: 1; } DataTable { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "Leave")]

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[FleetRow]]], every_s: float) -> None:
        """`fetch` gives the rows, and is awaited anew `every_s` seconds after it answered."""
        super().__init__()
        self._fetch = fetch
        self._every_s = every_s
        self._rows: Sequence[FleetRow] = ()

    def compose(self) -> ComposeResult:
        """A head, and the table."""
        yield Static(" asking the collectors", id="head", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one(DataTable).add_columns(*COLUMNS)
        self.run_worker(self._refresh(), exclusive=True)

    async def _refresh(self) -> None:
        self._show(await self._fetch())
        self.set_timer(self._every_s, lambda: self.run_worker(self._refresh(), exclusive=True))

    def _show(self, rows: Sequence[FleetRow]) -> None:
        """The cursor stays on its run, wherever that is in the order now."""
        table = self.query_one(DataTable)
        under = self._picked()
        key = None if under is None else (under.collector, under.run)
        self._rows = rows
        table.clear()
        for row in rows:
            table.add_row(*map(_cell, COLUMNS, cells(row)))
        at = next((at for at, row in enumerate(rows) if (row.collector, row.run) == key), 0)
        table.move_cursor(row=at)
        self.query_one("#head", Static).update(f" {summary(rows)} · Enter opens a run · q leaves")

    def _picked(self) -> FleetRow | None:
        at = self.query_one(DataTable).cursor_row
        return self._rows[at] if 0 <= at < len(self._rows) else None

    def on_data_table_row_selected(self) -> None:
        """Hand the run back."""
        row = self._picked()
        if row is not None and row.run is not None:
            self.exit(row)


def summary(rows: Sequence[FleetRow]) -> str:
    """How many runs of how many collectors there are, and how many do not answer."""
    runs = len({row.run for row in rows if row.run is not None})
    away = sum(row.state == "away" for row in rows)
    return f"{runs} runs · {len({row.collector for row in rows})} collectors, {away} away"


def _cell(column: str, word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""), justify="right" if column in RIGHT else "left")
