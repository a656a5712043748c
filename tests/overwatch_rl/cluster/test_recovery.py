"""How soon training goes on after one process was killed, and where the seconds go: a table, not a limit.

Each process of a default cluster with a collector is killed once. Seconds are counted from the start of the
process that takes the place of the killed one; before it the cluster pauses for half a second. CPU is that
of the new process, which does not grow with other work on the machine.
"""

import itertools
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import psutil
import pytest

from overwatch_rl.learner.config import learner_config
from overwatch_rl.training.experience import EPISODES_A_LIFE
from tests.overwatch_rl.cluster.running import Running, settings, surviving

NAMES: Final = ("orchestrator", "replay", "actor-0", "actor-1", "learner", "collector")
SETTLED: Final = 10
"""Updates between two kills: more than are fetched ahead, so that the last ones come from the new process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What followed one kill."""

    name: str
    started_s: float
    """Until the process logged its first words: what it imports."""
    served_s: float
    """Until its own work counted again: see `serves`."""
    cpu_s: float
    """Of it, until then."""
    updated_s: float
    """Until the first update."""
    longest_s: float
    """Between two updates, from the kill until all of what was fetched ahead is used."""


class Watch:
    """Sees updates and lines as they come."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.updates: list[float] = []
        """When each one was seen."""
        self._seen = 0

    def look(self) -> None:
        """Take in what is new."""
        file = self.running.settings.trace
        assert file is not None
        count = file.read_bytes().count(b'"kind":"trained"') if file.exists() else 0
        self.updates += [time.monotonic()] * (count - self._seen)
        self._seen = count

    def until(self, is_so: Callable[[], bool], what: str) -> float:
        """Go on until it is so; when that was."""

        def looked() -> bool:
            self.look()
            return is_so()

        self.running.until(looked, what)
        return time.monotonic()

    def since(self, moment: float) -> list[float]:
        """Updates after a moment."""
        return [one for one in self.updates if one > moment]


def serves(watch: Watch, name: str) -> Callable[[], bool]:
    """Whether what the new process does counts: each by what it is for."""
    running, began = watch.running, time.time()
    made = running.settings

    def learns() -> bool:
        return bool(watch.since(moment))

    def acts() -> bool:
        """An episode of its new life was trained: episodes are numbered from the second that it began in."""
        newest = surviving(made.trace)[-1:] if made.trace is not None else []
        return any(_is_new(part, name, began) for one in newest for part in one.parts)

    def is_beaten() -> bool:
        """A heartbeat was accepted: its age is less than the time since the restart."""
        url = f"{running.cluster.places['orchestrator']}/api/v1/runs/{made.run_id}"
        try:
            with urllib.request.urlopen(url, timeout=1) as reply:  # noqa: S310 its own address
                found = msgspec.json.decode(reply.read())
        except OSError:
            return False
        return found["heartbeat_at"] is not None and _moment(found["heartbeat_at"]) > began

    def is_fed() -> bool:
        """More updates than were fetched ahead."""
        return len(watch.since(moment)) > made.config.depth + 1

    def is_shown() -> bool:
        """A snapshot was written by it."""
        return (made.out / "tower" / "snapshots.jsonl").stat().st_mtime > began

    moment = time.monotonic()
    kinds = {"orchestrator": is_beaten, "replay": is_fed, "learner": learns, "collector": is_shown}
    return kinds.get(name, acts)


def _moment(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _is_new(part: tuple[str, int, int, int], name: str, began: float) -> bool:
    env, episode = part[0], part[1]
    return env.partition("/")[0] == name.removeprefix("actor-") and episode >= int(began) * EPISODES_A_LIFE


def killed(watch: Watch, name: str) -> Recovered:
    """Kill one, and see what follows."""
    running = watch.running
    gone = time.monotonic()
    running.kill(name)
    lines = len(running.lines)
    began = time.monotonic()
    process = psutil.Process(running.cluster.supervisor.pid(name))

    def speaks() -> bool:
        return any(one == name for one, _ in running.lines[lines:])

    is_serving = serves(watch, name)
    started = watch.until(lambda: speaks() or is_serving(), f"{name} speaks") - began
    served = watch.until(is_serving, f"{name} serves") - began
    times = process.cpu_times()
    watch.until(lambda: len(watch.since(began)) >= SETTLED, f"updates after {name}")
    after = [gone, *watch.since(gone)]
    return Recovered(
        name=name,
        started_s=started,
        served_s=served,
        cpu_s=times.user + times.system,
        updated_s=watch.since(began)[0] - began,
        longest_s=max(later - one for one, later in itertools.pairwise(after)),
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_training_goes_on_soon_after_a_process_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever it is; what it takes is printed."""
    for variable in ("XDG_RUNTIME_DIR", "OVERWATCH_SPOOL_DIR", "OVERWATCH_RING_DIR"):
        monkeypatch.setenv(variable, str(tmp_path))
    given = learner_config({"heartbeat_s": 5}, {})
    made = settings(tmp_path, given, has_collector=True, is_reporting=True)
    with Running(made) as running:
        watch = Watch(running)
        watch.until(lambda: len(watch.updates) >= SETTLED, "the first updates")
        found = [killed(watch, name) for name in NAMES]
    print(f"\n{'killed':13} {'first line':>10} {'serves':>8} {'CPU':>6} {'update':>8} {'longest pause':>14}")
    for one in found:
        print(
            f"{one.name:13} {one.started_s:8.1f} s {one.served_s:6.1f} s {one.cpu_s:4.1f} s "
            f"{one.updated_s:6.1f} s {one.longest_s:12.1f} s"
        )
    history = surviving(tmp_path / "trace.jsonl")

    assert [one.updates for one in history] == list(range(1, len(history) + 1))
