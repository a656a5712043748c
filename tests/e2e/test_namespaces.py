"""Trainers and collectors on hosts of their own, through kills, partitions, bad disks and wrong clocks.

Every trainer's own account is held against what the collectors recorded: what was emitted is recorded once,
or was counted as dropped by name.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from overwatch.events import EpisodeEnded, LogLine, Measured, Record
from overwatch.feeds.inputs import open_input
from overwatch.feeds.recording import Recording
from overwatch.recordings.index import Gone
from tests.e2e.killing import Collector, indexed
from tests.e2e.namespaces import Host, network
from tests.e2e.sdk.chaos import Ear, Trainer, training, wait_for
from tests.e2e.sdk.trainer import Ending
from tests.e2e.slow_disk import SlowDisk, slow_disk
from tests.e2e.test_collector_full_disk import mounted

PORT = 4318
DISK_MIB = 24
SLOW_MIB = 256
WRITE_S = 0.05
"""Of each write and flush of a slow disk: a commit of a journal is some six of them, behind other files'."""
CLOCK = """\
import time
true, true_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: true() + {0}, lambda: true_ns() + {0} * 10**9
"""
"""What Python runs first in a trainer and its exporter, whose clock is wrong by so many seconds."""
LATE_S = 400.0
"""Between the last record and the check of it, on a busy machine; clocks are wrong by more."""
ROOM = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'
"""The trainer's spool becomes a file system of 1 MiB."""


class Site:
    """Some trainers at some collectors, each on a host; a trainer emits to one collector."""

    def __init__(self, folder: Path, trainers: int, collectors: int) -> None:
        self.folder = folder
        self.trainers: list[Trainer] = []
        self.collectors: list[Collector] = []
        self.hosts: list[Host] = []
        """Of the collectors."""
        self.trainer_hosts: list[Host] = []
        self._names = [*(f"c{n}" for n in range(collectors)), *(f"t{n}" for n in range(trainers))]
        self._count = collectors

    @contextmanager
    def running(
        self, disks: dict[int, Path], clocks: dict[int, int], small: frozenset[int] = frozenset()
    ) -> Iterator[None]:
        """All of them; some collectors keep their data on `disks`, clocks are wrong by so many seconds."""
        with ExitStack() as stack:
            hosts = stack.enter_context(network(self._names))
            self.hosts, self.trainer_hosts = hosts[: self._count], hosts[self._count :]
            for number, host in enumerate(self.hosts):
                place = disks.get(number, self.folder / host.namespace)
                collector = Collector(place, *_sets(host), prefix=host.prefix)
                stack.callback(collector.kill)
                collector.start()
                self.collectors.append(collector)
            for number, host in enumerate(self.trainer_hosts):
                folder = self.folder / host.namespace
                (folder / "spool").mkdir(parents=True)
                prefix, close_s = host.prefix, 60.0
                if number in small:
                    prefix, close_s = (*prefix, "sh", "-c", ROOM, str(folder / "spool")), 2.0
                if number in clocks:
                    (folder / "sitecustomize.py").write_text(CLOCK.format(clocks[number]))
                    prefix = ("env", f"PYTHONPATH={folder}:{Path(__file__).parents[2]}", *prefix)
                endpoint = f"http://{self.hosts[number % self._count].address}:{PORT}"
                trainer = training(folder, endpoint, prefix=prefix, pace_s=0.005, close_s=close_s)
                self.trainers.append(stack.enter_context(trainer))
            yield

    def end(self) -> list[Ending]:
        """Every trainer ends well, then every collector."""
        endings = [trainer.ending() for trainer in self.trainers]
        for collector in self.collectors:
            collector.stop()
            assert "Traceback" not in collector.log
        return endings


def _sets(host: Host) -> tuple[str, ...]:
    return (
        f"receivers.otlp.protocols.http.endpoint={host.address}:{PORT}",
        "service.security.allow_insecure_bind=true",
    )


def recorded(collectors: list[Collector]) -> dict[str, Ear]:
    """What all collectors recorded, by run; a record that came twice must be the same both times."""
    ears: dict[str, Ear] = {}
    for collector in collectors:
        for _, decoded in Recording(collector.folder / "otlp").reported():
            for record in decoded.records:
                assert record.origin.run_id is not None
                ears.setdefault(record.origin.run_id, Ear([])).take(record)
    return ears


def shown_updates(collectors: list[Collector]) -> Counter[str]:
    """The updates of each run that a replay counts at its end."""
    found: Counter[str] = Counter()
    for collector in collectors:
        last = {
            snapshot.run.run_id: snapshot for snapshot in open_input(collector.folder / "otlp").recorded()
        }
        found.update({run: int(snapshot.counters["updates"]) for run, snapshot in last.items()})
    return found


def let_go(collectors: list[Collector]) -> Counter[str]:
    """Records of each run that recordings let go of for want of room, as their indexes count them."""
    entries = [entry for one in collectors for entry in indexed(one.folder / "otlp")]
    found: Counter[str] = Counter()
    for entry in entries:
        if isinstance(entry, Gone):
            found[entry.gone] += entry.records
    return found


def check_rest(ear: Ear, steps: int, gone: int) -> int:
    """The oldest records went, and no others; how many of the counted ones had come twice."""
    numbers = [record.seq for record in ear.records if record.seq is not None]
    first = min(numbers)
    assert sorted(numbers) == list(range(first, first + len(numbers)))
    assert 1 < first <= gone + 1
    assert ear.lines == [f"line {step}" for step in range(steps - len(ear.lines) + 1, steps + 1)]
    return gone + 1 - first


def last_batch(collectors: list[Collector], run_id: str) -> list[Record]:
    """The records of the newest request of a run."""
    found: list[Record] = []
    for collector in collectors:
        for _, decoded in Recording(collector.folder / "otlp").reported():
            found = [record for record in decoded.records if record.origin.run_id == run_id] or found
    return found


def emitted(records: list[Record]) -> Counter[str]:
    """How many calls of the trainer the records stand for, by kind."""
    found: Counter[str] = Counter()
    for record in records:
        event = record.event
        if isinstance(event, Measured):
            found[event.scope.value] += 1 if event.conflated is None else event.conflated.n
        elif isinstance(event, LogLine | EpisodeEnded):
            found[type(event).__name__] += 1
    return found


def check(
    site: Site, endings: list[Ending], clocks: dict[int, int], lossy: frozenset[int] = frozenset()
) -> None:
    """Every trainer's account to the record."""
    now_s = time.time()
    ears, shown, gone = recorded(site.collectors), shown_updates(site.collectors), let_go(site.collectors)
    total = Counter[str]()
    for number, (trainer, ending) in enumerate(zip(site.trainers, endings, strict=True)):
        ear = ears[trainer.plan.run_id]
        ahead_s = max(record.event.at for record in ear.records) / 1e9 - now_s
        assert abs(ahead_s - clocks.get(number, 0)) < LATE_S
        lost = sum(ending.dropped.values())
        total.update(emitted=ending.accepted, kept=ending.kept, dropped=lost, again=ear.duplicates)
        if number in lossy:
            # Its end is among what was dropped, and so is what was recorded as the cut took its answer.
            found = sum(emitted(ear.records).values()) + ending.kept + ending.dropped["not_kept"]
            unanswered = sum(emitted(last_batch(site.collectors, trainer.plan.run_id)).values())
            assert ending.dropped.keys() == {"not_kept"}
            assert found - ending.accepted in (0, unanswered)
            continue
        assert ending.kept == 0
        assert ending.dropped == {}
        assert ending.delivered
        if room := gone[trainer.plan.run_id]:
            # On the full disk, while others fill it: the collector makes room, and counts what went.
            assert number % len(site.collectors) == 0
            total.update(gone=room, again=check_rest(ear, ending.steps, room))
            continue
        ear.assert_whole(ending.steps)
        assert shown[trainer.plan.run_id] == ending.steps
    print(f"{len(endings)} trainers, {len(site.collectors)} collectors: {dict(total)}, none missing or twice")


def cut_and_kill(site: Site, rounds: int, seed: int, cut_s: float) -> None:
    """In turn: a collector is killed and started, another's cable, and a trainer's, is out for a while."""
    chance = random.Random(seed)  # noqa: S311 a test's own moments
    for turn in range(rounds):
        killed = site.collectors[turn % len(site.collectors)]
        away = site.hosts[(turn + 1) % len(site.hosts)]
        alone = chance.choice(site.trainer_hosts)
        killed.kill()
        away.cut()
        time.sleep(cut_s / 2)
        alone.cut()
        killed.start()
        time.sleep(cut_s / 2)
        away.join()
        alone.join()
        for trainer in site.trainers:
            trainer.wait_steps(20)


def fill(disk: Path, trainer: Trainer) -> None:
    """Leave the disk without room until the trainer has gone on for a while, then give it back."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    trainer.wait_steps(100)
    ballast.unlink()


def slow_down(disk: SlowDisk, trainer: Trainer, slow_s: float) -> None:
    """Slow for a while, then without any answer for half of it; the trainer goes on at its pace."""
    went = {}
    for how, within, seconds in (
        ("slow", disk.slow(WRITE_S), slow_s),
        ("stalled", disk.stalled(), slow_s / 2),
    ):
        with within:
            began, before = time.monotonic(), len(trainer.numbers("a"))
            trainer.wait_steps(100)
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))
            went[how] = (len(trainer.numbers("a")) - before) / (time.monotonic() - began)
    print(", ".join(f"{steps_s:.0f} steps/s while {how}" for how, steps_s in went.items()))


def test_two_trainers_and_two_collectors_lose_nothing(tmp_path: Path) -> None:
    """A kill, a partition, a full disk, and a trainer whose clock is a quarter of an hour ahead."""
    site, clocks = Site(tmp_path, trainers=2, collectors=2), {1: 900}
    with mounted(tmp_path / "disk", DISK_MIB) as disk, site.running({0: disk}, clocks):
        for trainer in site.trainers:
            trainer.wait_steps(20)
        cut_and_kill(site, rounds=1, seed=1, cut_s=1.0)
        fill(disk, site.trainers[0])
        check(site, site.end(), clocks)


def test_a_collector_on_a_slow_disk_loses_nothing(tmp_path: Path) -> None:
    """One trainer's collector is on it; it is slow, stalls, and is killed while it is slow."""
    site = Site(tmp_path, trainers=2, collectors=2)
    with slow_disk(tmp_path / "slow", SLOW_MIB) as slow, site.running({1: slow.folder}, {}):
        for trainer in site.trainers:
            trainer.wait_steps(20)
        slow_down(slow, site.trainers[1], slow_s=4.0)
        with slow.slow(WRITE_S):
            site.trainers[1].wait_steps(20)
            site.collectors[1].kill()
            site.collectors[1].start()
        check(site, site.end(), {})


@pytest.mark.long
@pytest.mark.timeout(900)
def test_eight_trainers_and_three_collectors_account_for_every_record(tmp_path: Path) -> None:
    """The same over and over; one trainer ends cut off with a spool of 1 MiB, and names what it dropped."""
    site, lossy = Site(tmp_path, trainers=8, collectors=3), frozenset({7})
    clocks = {1: 900, 2: -900, 3: 3600}
    with (
        mounted(tmp_path / "disk", 8 * DISK_MIB) as disk,
        slow_disk(tmp_path / "slow", SLOW_MIB) as slow,
        site.running({0: disk, 1: slow.folder}, clocks, lossy),
    ):
        for trainer in site.trainers:
            trainer.wait_steps(20)
        cut_and_kill(site, rounds=3, seed=2, cut_s=4.0)
        fill(disk, site.trainers[0])
        slow_down(slow, site.trainers[1], slow_s=30.0)
        with slow.slow(WRITE_S):
            cut_and_kill(site, rounds=3, seed=3, cut_s=4.0)
        site.trainer_hosts[7].cut()
        wait_for(lambda: site.trainers[7].account().at_risk, "a spool without room", 240)
        check(site, site.end(), clocks, lossy)
