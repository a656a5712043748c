"""Paint time of the overview with 256 env rows, beside a Textual DataTable that shows the same rows.

Both run in one process on the same changing snapshots; a tenth of the rows change between two frames.
Prints CPU time a frame (median, 99th percentile) and the ratio, with the overview measured twice as an A/A
control and an application that paints nothing as the floor of the measurement; gates nothing.

    python tests/bench/bench_tui_paint.py
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import msgspec
from textual.app import App, ComposeResult
from textual.widgets import DataTable

sys.path.insert(0, str(Path(__file__).parents[2]))

from overwatch.feeds import Connection
from overwatch.feeds.live import Update
from overwatch.snapshot import Env, Snapshot
from overwatch.tui.app import OverwatchApp
from tests.overwatch.tui import scenario

ROWS = 256
FRAMES = 100
WARM_UP = 10


class _Silent:
    """A feed that never says anything: frames are painted by hand."""

    run_id: str | None = None
    connection = Connection(state="up")
    age_s: float | None = 0.0

    async def updates(self) -> AsyncGenerator[Update, None]:
        await asyncio.Event().wait()
        yield self.connection


class _Table(App[None]):
    """The same rows in a DataTable, changed cells updated in place."""

    def compose(self) -> ComposeResult:
        yield DataTable()

    def on_mount(self) -> None:
        table = self.query_one(DataTable)
        for name in ("env", "status", "anom", "return", "fps"):
            table.add_column(name, key=name)
        for env in _frame(0).envs:
            table.add_row(*_cells(env), key=str(env.env_id))


def _cells(env: Env) -> tuple[str, str, str, str, str]:
    value, fps = env.episode_return or 0.0, env.fps or 0.0
    return (str(env.env_id), env.status, f"{env.anomaly.score:.1f}", f"{value:+.2f}", f"{fps:.0f}")


def _frame(tick: int) -> Snapshot:
    full = scenario.storm()
    base = full.envs[1]
    envs = tuple(
        msgspec.structs.replace(
            base,
            env_id=i,
            gpu_id=f"gpu{i % 2}",
            episode_return=0.01 * ((tick if i % 10 == tick % 10 else 0) + i),
        )
        for i in range(ROWS)
    )
    groups = tuple(msgspec.structs.replace(group, n_envs=ROWS // 2) for group in full.board.groups)
    return msgspec.structs.replace(
        full, envs=envs, board=msgspec.structs.replace(full.board, groups=groups, counts={"ok": ROWS})
    )


async def _time(app: App[None] | App[int], paint: Callable[[Snapshot], None]) -> list[float]:
    """Milliseconds of CPU from a snapshot to an application that is idle again, for each frame."""
    frames = [_frame(tick) for tick in range(FRAMES + WARM_UP)]
    spent = []
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        for frame in frames:
            begun = time.process_time()
            paint(frame)
            await pilot.pause()
            spent.append((time.process_time() - begun) * 1e3)
    return spent[WARM_UP:]


def _overview() -> list[float]:
    app = OverwatchApp(_Silent(), "ws://127.0.0.1:4380")

    def paint(snapshot: Snapshot) -> None:
        app._snapshot = snapshot
        app.paint()

    return asyncio.run(_time(app, paint))


def _nothing() -> list[float]:
    app = OverwatchApp(_Silent(), "ws://127.0.0.1:4380")
    return asyncio.run(_time(app, lambda _: None))


def _table() -> list[float]:
    app = _Table()

    def paint(snapshot: Snapshot) -> None:
        table = app.query_one(DataTable)
        for env in snapshot.envs:
            for name, text in zip(("status", "anom", "return", "fps"), _cells(env)[1:], strict=True):
                if table.get_cell(str(env.env_id), name) != text:
                    table.update_cell(str(env.env_id), name, text)

    return asyncio.run(_time(app, paint))


def main() -> None:
    """Measure and print."""
    runs = {
        "nothing": _nothing(),
        "overview": _overview(),
        "overview again": _overview(),
        "DataTable": _table(),
    }
    for name, spent in runs.items():
        p50, p99 = statistics.median(spent), sorted(spent)[int(0.99 * len(spent))]
        sys.stdout.write(f"{name:<16} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms\n")
    ratio = statistics.median(runs["DataTable"]) / statistics.median(runs["overview"])
    sys.stdout.write(f"DataTable / overview, p50: {ratio:.1f}\n")


if __name__ == "__main__":
    main()
