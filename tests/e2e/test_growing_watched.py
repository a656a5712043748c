"""Two ranks that grow networks, watched for ten minutes: what telemetry costs, what is shown, memory."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from overwatch.snapshot import Snapshot
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector
from tests.e2e.test_storms_terminal import Screen

RANK = Path(__file__).with_name("growing_rank.py")
RANKS, ENVS, SLOTS, STEPS = 2, 32, 6, 60
SECONDS = float(os.environ.get("OVERWATCH_WATCHED_S", "600"))
LOOKS = 10
"""At the terminal and at memory, evenly over the time."""
SETTLED = 2
"""The look from which on memory does not grow any more."""
GROWTH, ROOM = 1.1, 32 << 20
"""Of what a process holds: noise of allocators."""
PATIENCE_S = 600.0
"""On a machine with much other work."""
RUN = "grown"
SIZE = (160, 50)


@dataclass
class Look:
    """One moment."""

    at_s: float
    held: dict[str, int]
    """Bytes that each process has in memory."""
    shown: str
    """What the terminal shows."""
    snapshot: Snapshot


@dataclass
class Watched:
    """Processes of a training that is watched."""

    collector: Collector
    training: "subprocess.Popen[bytes]"
    screen: Screen
    looks: list[Look] = field(default_factory=list)

    def held(self) -> dict[str, int]:
        """Bytes in memory by process."""
        found = {"terminal": psutil.Process(self.screen.pid).memory_info().rss}
        for one in psutil.Process(os.getpid()).children(recursive=True):
            with suppress(psutil.Error):
                words, rank = " ".join(one.cmdline()), one.environ().get("RANK")
                for name, word in (("rank", RANK.name), ("exporter", "overwatch.sdk.exporter")):
                    if rank is not None and word in words:
                        found[f"{name} {rank}"] = one.memory_info().rss
                if "overwatch.cli collect" in words:
                    found["collector"] = one.memory_info().rss
        return found

    def snapshot(self) -> Snapshot | None:
        """What the collector shows now."""
        assert self.collector.endpoints is not None
        return snapshot_of(self.collector.endpoints, RUN)

    def look(self, at_s: float) -> Look:
        """Take in one moment."""
        snapshot = until(self.snapshot, "a snapshot", PATIENCE_S)
        taken = Look(at_s, self.held(), self.screen.shown(), snapshot)
        self.looks.append(taken)
        return taken


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """A collector, two ranks that train, and a terminal on it."""
    collector = Collector(folder / "collector")
    endpoints = collector.start()
    words = ["train", "--world", "morphogenesis", "--envs", str(ENVS), "--slots", str(SLOTS)]
    words += ["--seconds", str(SECONDS), "--run-id", RUN, "--endpoint", str(endpoints.otlp_http)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    with (folder / "training.log").open("wb") as log:
        training = subprocess.Popen(
            [*torchrun, str(RANK), "--", str(folder), *words, "--log", "json"],
            env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "OVERWATCH_QUIET": "1"},
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    tui = [sys.executable, "-m", "overwatch.cli", "tui", "--connect", str(endpoints.view)]
    screen = Screen(
        f"ow-{os.getpid()}-grown", ["env", "-u", "COLUMNS", "-u", "LINES", "LANG=C.UTF-8", *tui], SIZE
    )
    try:
        yield Watched(collector, training, screen)
        collector.stop()
    finally:
        screen.end()
        training.terminate()
        training.wait(60)
        collector.kill()


def shares(folder: Path) -> dict[str, dict[str, Any]]:
    """Of each rank: telemetry's share of the training thread, and where it went."""
    found = {}
    for rank in range(RANKS):
        spent = json.loads((folder / f"rank-{rank}.json").read_text())
        main = {kind: nanoseconds / 1e9 for kind, nanoseconds in spent["main"].items()}
        found[str(rank)] = {
            "share": main["ours"] / (main["ours"] + main["theirs"]),
            "main_s": main,
            "others_s": {name: nanoseconds / 1e9 for name, nanoseconds in spent["others"].items()},
            "places_s": {name: nanoseconds / 1e9 for name, nanoseconds in spent["places"]},
        }
    return found


def faults(look: Look, before: Look | None) -> list[str]:
    """What the terminal or the collector shows and is not so of two healthy ranks.

    On a machine with much other work telemetry may come late, which both must show as such.
    """
    snapshot, shown = look.snapshot, look.shown
    found = re.search(r"episode ([\d,]+)  update (\d+) ", shown)
    update, earlier = snapshot.run.update or 0, 0 if before is None else before.snapshot.run.update or 0
    parts = (f"{RANKS * ENVS} env", "r0c0 r0c1 r0c2 r1c0 r1c1 r1c2", "FEED", "POLICY PULSE")
    holds = {
        f"update {update} follows {earlier}": update >= earlier,
        f"all envs are in {snapshot.board.counts}": sum(snapshot.board.counts.values()) == RANKS * ENVS,
        "the feed has lines": bool(snapshot.feed),
        "nothing was dropped": snapshot.counters["sdk_dropped"] == 0,
        f"{snapshot.verdict} is none of a fault": snapshot.verdict.severity in ("ok", "info", "warning"),
        "the terminal is live": re.search(r"git .* (LIVE|CATCHING UP) ", shown) is not None,
        "the terminal shows the update": found is not None and abs(int(found[2]) - update) <= 1,
        **{f"the terminal shows {part}": part in shown for part in parts},
    }
    return [f"{look.at_s:.0f} s, not so: {name}" for name, is_so in holds.items() if not is_so]


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 2 * PATIENCE_S)
def test_two_ranks_that_grow_networks_are_watched_for_ten_minutes(tmp_path: Path) -> None:
    """The terminal shows every env and update, nothing is lost, memory stays; the share is printed."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: apt-get install tmux")
    with watched(tmp_path) as run:
        run.screen.until(rf"{RANKS * ENVS} env", PATIENCE_S)
        began, found = time.monotonic(), list[str]()
        for number in range(1, LOOKS):
            due = began + number * SECONDS / LOOKS
            until(lambda due=due: time.monotonic() >= due, "the next look", SECONDS)  # type: ignore[misc] # bound now
            look = run.look(time.monotonic() - began)
            print(
                f"{look.at_s:.0f} s", look.held, look.snapshot.run.update, look.snapshot.verdict, sep="\n  "
            )
            print(look.shown, flush=True)
            found += faults(look, run.looks[-2] if number > 1 else None)
        assert run.training.wait(SECONDS + PATIENCE_S) == 0, (tmp_path / "training.log").read_text()[-4000:]
        ended = until(
            lambda: (one := run.snapshot()) and one.run.outcome and one, "the end of the run", PATIENCE_S
        )
        run.screen.until("completed", PATIENCE_S)
    print(json.dumps(shares(tmp_path), indent=1))
    print({name: ended.counters[name] for name in sorted(ended.counters)})
    assert found == []
    settled, last = run.looks[SETTLED - 1].held, run.looks[-1].held
    assert {"terminal", "collector", *(f"rank {n}" for n in range(RANKS))} < set(last)
    assert {name: size for name, size in last.items() if size > settled[name] * GROWTH + ROOM} == {}
    log = (tmp_path / "training.log").read_text().splitlines()
    updates = [line for line in log if line.startswith("{") and json.loads(line)["event"] == "update"]
    assert ended.counters["updates"] == ended.run.update == len(updates) > 2
    assert ended.counters["episodes"] >= ended.counters["steps"] // STEPS
