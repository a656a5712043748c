"""Trainers of several modes side by side in a terminal: a column each.

Owns the screen only; the trainers are `Modes`. Quitting is confirmed and stops all trainers. Text from a
trainer is shown as it is, never read as markup.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Label, Sparkline, Static

from overwatch_rl.modes import Mode, Modes

REFRESH_S: Final = 0.5
BAR: Final = 16
"""Cells of the bar of a share of 1."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a column."""

    name: str
    label: str
    fmt: str


ROWS: Final = (
    Row("return", "return", "+.2f"),
    Row("true_return", "true return", "+.2f"),
    Row("proxy_return", "proxy return", "+.2f"),
    Row("food_share", "food share", ".0%"),
    Row("survival", "survival", ".0f"),
    Row("policy_loss", "policy loss", "+.4f"),
    Row("value_loss", "value loss", ".4f"),
    Row("entropy", "entropy", ".0%"),
    Row("explained_variance", "explained variance", "+.2f"),
    Row("kl_divergence", "KL", ".4f"),
)
"""In their order; a row of which nothing has come is not shown."""
PARTS: Final = 2 * len(ROWS) + 3
"""Widgets of a column."""


class Column(VerticalScroll):
    """One mode."""

    DEFAULT_CSS = """
    Column { width: 1fr; border: round $primary; padding: 0 1; }
    Column Sparkline { height: 1; }
    #state, #actions { margin: 0 0 1 0; }
    """

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self._mode = mode
        self.border_title = mode.name

    def compose(self) -> ComposeResult:
        """A line on how it goes, the rows, what is done, what is seen."""
        yield Static(id="state", markup=False)
        for row in ROWS:
            yield Label(id=row.name, markup=False)
            yield Sparkline([], id=f"{row.name}-line")
        yield Static(id="actions", markup=False)
        yield Static(id="view", markup=False)

    def show(self, values: Sequence[dict[str, Any]], view: Sequence[str]) -> None:
        """Draw what its trainer has written so far, while its widgets are there: the timer outlives them."""
        if len(self.children) < PARTS:
            return
        self.query_one("#state", Static).update(state_of(self._mode, values))
        for row in ROWS:
            history = [one[row.name] for one in values if row.name in one]
            label, line = (
                self.query_one(f"#{row.name}", Label),
                self.query_one(f"#{row.name}-line", Sparkline),
            )
            label.display = line.display = bool(history)
            if history:
                label.update(f"{row.label}  {history[-1]:{row.fmt}}")
                line.data = [value for value in history if math.isfinite(value)]
        self.query_one("#actions", Static).update("\n".join(action_bars(values[-1] if values else {})))
        self.query_one("#view", Static).update("\n".join(view))


def state_of(mode: Mode, values: Sequence[dict[str, Any]]) -> str:
    """How a mode goes, in a line; of a trainer that failed also the last that it wrote."""
    done = f"update {values[-1]['update']}" if values else "starting"
    status = mode.process.poll()
    if mode.outcome is None and status is None:
        return done
    if mode.outcome in ("completed", "interrupted"):
        return f"{mode.outcome} after {done}"
    reason = mode.reason or (mode.errors[-1] if mode.errors else f"exit status {status}")
    return f"failed after {done}: {reason}"


def action_bars(values: dict[str, Any]) -> list[str]:
    """The share of each operation as a bar."""
    shares = {
        name.removeprefix("action/"): share
        for name, share in values.items()
        if name.startswith("action/") and math.isfinite(share)
    }
    width = max(map(len, shares), default=0)
    return [
        f"{label:{width}} {'█' * round(share * BAR):{BAR}} {share:4.0%}" for label, share in shares.items()
    ]


class Confirm(ModalScreen[bool]):
    """Asks whether to stop the trainers."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Stop all trainers"),
        Binding("n,escape", "answer(False)", "Go on"),
    ]
    DEFAULT_CSS = """
    Confirm { align: center middle; }
    Confirm Label { padding: 1 4; border: thick $warning; background: $surface; }
    """

    def compose(self) -> ComposeResult:
        """The question."""
        yield Label("Stop all trainers and quit?  y stops them, n goes on")

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 the signature of an action
        """Close with the answer."""
        self.dismiss(answer)


class Dashboard(App[None]):
    """All modes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "confirm_end", "Quit", key_display="q", priority=True)
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, modes: Modes) -> None:
        super().__init__()
        self._trainers = modes

    def compose(self) -> ComposeResult:
        """A column a mode."""
        with Horizontal():
            for mode in self._trainers.modes:
                yield Column(mode)
        yield Footer()

    def on_mount(self) -> None:
        """Draw now, and again and again."""
        self.refresh_columns()
        self.set_interval(REFRESH_S, self.refresh_columns)

    def refresh_columns(self) -> None:
        """Draw what has come."""
        columns = self.screen_stack[0].query(Column)
        for column, mode in zip(columns, self._trainers.modes, strict=False):  # they go before the timer does
            column.show(*self._trainers.snapshot(mode))

    def action_confirm_end(self) -> None:
        """Quit; while something trains, only when that is confirmed."""
        if isinstance(self.screen, Confirm):
            return
        if not self._trainers.is_training:
            self.exit()
            return
        self.push_screen(Confirm(), lambda is_sure: self.exit() if is_sure else None)
