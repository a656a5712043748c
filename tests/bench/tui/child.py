"""What runs in the terminal of the benchmark: our application or a DataTable, fed ten snapshots a second.

    python -m tests.bench.tui.child ours|table|storm ENVS SECONDS FILE

Writes what it measured of itself to FILE as JSON when it ends.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec
from textual.app import App, ComposeResult
from textual.widgets import DataTable

from overwatch.feeds import Connection
from overwatch.feeds.live import Listed, Update
from overwatch.snapshot import Env, FeedLine, Snapshot, View
from overwatch.snapshot.history import History, HistoryQuery
from overwatch.tui.app import OverwatchApp
from tests.overwatch.tui import scenario

ROWS = 256
"""Rows of a view, at any number of envs."""
PERIOD_S = 0.1
WARM_UP_S = 2.0
COLUMNS = ("env", "status", "anom", "return", "fps")


def snapshots(num_envs: int, *, storm: bool) -> Iterator[Snapshot]:
    """Without end: a tenth of the rows change each time; in a storm every line of the feed too."""
    full = scenario.storm()
    base, half = full.envs[1], num_envs // 2
    rows = min(ROWS, num_envs)
    values = [0.01 * i for i in range(rows)]
    groups = tuple(
        msgspec.structs.replace(group, n_envs=half, hidden=max(0, half - rows // 2))
        for group in full.board.groups
    )
    board = msgspec.structs.replace(full.board, groups=groups, counts={"ok": num_envs})
    run = msgspec.structs.replace(full.run, n_envs=num_envs)
    tick = 0
    while True:
        for i in range(tick % 10, rows, 10):
            values[i] = 0.01 * ((tick + i) % 97)
        envs = tuple(
            msgspec.structs.replace(base, env_id=i, gpu_id=f"gpu{i % 2}", episode_return=values[i])
            for i in range(rows)
        )
        at = full.time + tick * PERIOD_S
        feed = tuple(_line(at, tick, i) for i in range(64)) if storm else full.feed
        yield msgspec.structs.replace(full, time=at, envs=envs, board=board, run=run, feed=feed)
        tick += 1


def _line(at: float, tick: int, number: int) -> FeedLine:
    return FeedLine(
        time=at, severity="warning", subsystem="kasmina", message="", env_id=number, slot="r0c0",
        fields={"gate": "G2", "passed": "no", "grad_ratio": f"{(tick * 64 + number) % 1000 / 1000:.3f}"},
    )  # fmt: skip


class Fed:
    """Snapshots in real time, and how long each took to reach the terminal's driver."""

    run_id: str | None = None
    connection = Connection(state="up")
    age_s: float | None = 0.0

    def __init__(self, source: Iterator[Snapshot], seconds: float) -> None:
        self._source, self._seconds = source, seconds
        self.late_ms: list[float] = []
        """How late each snapshot was given: what else held the loop."""
        self.cpu_s = self.wall_s = 0.0

    def select(self, view: View) -> None:
        """The view stays."""

    async def runs(self) -> tuple[Listed, ...]:
        """None."""
        return ()

    def go(self, listed: Listed) -> None:
        """Stay."""

    async def history(self, run_id: str | None, wanted: HistoryQuery) -> History | None:
        """None."""

    async def acknowledge(self, finding_id: str, run_id: str) -> None:
        """Nobody to notify."""

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Ten a second, until the time is over."""
        yield self.connection
        begun = due = time.monotonic()
        cpu, reported_at = time.process_time(), begun
        made = 0.0
        while time.monotonic() < begun + WARM_UP_S + self._seconds:
            due += PERIOD_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            warm = time.monotonic() > begun + WARM_UP_S
            if warm:
                self.late_ms.append((time.monotonic() - due) * 1e3)
            else:
                cpu, reported_at, made = time.process_time(), time.monotonic(), 0.0
            before = time.process_time()
            snapshot = next(self._source)
            made += time.process_time() - before
            yield snapshot
        self.cpu_s, self.wall_s = time.process_time() - cpu - made, time.monotonic() - reported_at


class Ours(OverwatchApp):
    """The application; notes how long its frames take, and ends with its feed."""

    def __init__(self, fed: Fed) -> None:
        super().__init__(fed, "ws://127.0.0.1:4380")
        self._fed = fed
        self.paints: list[float] = []

    def paint(self) -> None:
        """As always, timed."""
        begun = time.perf_counter()
        super().paint()
        self.paints.append((time.perf_counter() - begun) * 1e3)

    async def _follow(self) -> None:
        await super()._follow()
        self.exit(0)


class Table(App[int]):
    """The same rows in a DataTable, changed cells updated in place."""

    def __init__(self, fed: Fed) -> None:
        super().__init__()
        self._fed = fed
        self.paints: list[float] = []

    def compose(self) -> ComposeResult:
        """One table."""
        yield DataTable()

    def on_mount(self) -> None:
        """Follow the feed."""
        table = self.query_one(DataTable)
        for name in COLUMNS:
            table.add_column(name, key=name)
        self.run_worker(self._follow())

    async def _follow(self) -> None:
        table = self.query_one(DataTable)
        async for update in self._fed.updates():
            if not isinstance(update, Snapshot):
                continue
            begun = time.perf_counter()
            for env in update.envs:
                key, cells = str(env.env_id), _cells(env)
                if key not in table.rows:
                    table.add_row(*cells, key=key)
                    continue
                for name, text in zip(COLUMNS[1:], cells[1:], strict=True):
                    if table.get_cell(key, name) != text:
                        table.update_cell(key, name, text)
            self.paints.append((time.perf_counter() - begun) * 1e3)
        self.exit(0)


def _cells(env: Env) -> tuple[str, str, str, str, str]:
    value, fps = env.episode_return or 0.0, env.fps or 0.0
    return (str(env.env_id), env.status, f"{env.anomaly.score:.1f}", f"{value:+.2f}", f"{fps:.0f}")


def main(kind: str, num_envs: int, seconds: float, file: Path) -> None:
    """Run until the feed ends."""
    fed = Fed(snapshots(num_envs, storm=kind == "storm"), seconds)
    app = Table(fed) if kind == "table" else Ours(fed)
    app.run()
    rss_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reported = {
        "paints": app.paints[round(WARM_UP_S / PERIOD_S) :], "late_ms": fed.late_ms, "cpu_s": fed.cpu_s,
        "wall_s": fed.wall_s, "rss_mib": rss_kib / 1024,
    }  # fmt: skip
    file.write_text(json.dumps(reported))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
