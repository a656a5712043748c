"""Kills at many points: what an actor acts with is never torn, and never older than what it had."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
import pytest

from overwatch.platform import SHARED_MEMORY
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import open_channel
from overwatch_rl.weights.publisher import Publisher
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.weights.made import LONG_S, Run, is_whole, tensors

ROOT = Path(__file__).parents[3]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


@pytest.fixture
def quick() -> Iterator[Run]:
    """A run in memory where there is such a folder: a kill is no power loss."""
    above = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=above) as folder:
        yield Run(Path(folder) / "run")


class Reader:
    """An actor in a thread that looks without a pause; notes what it sees wrong."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.seen: list[Version] = []
        self.wrong: list[str] = []
        self._subscriber = subscriber
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Return when so many versions were taken."""
        while len(self.seen) < count:
            assert self._thread.is_alive()
            self._is_over.wait(0.001)

    def _read(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_over.is_set()
            found = self._subscriber.poll()
            if found is not None:
                if not is_whole(found):
                    self.wrong.append(f"{found.version} is torn")
                self.seen.append(found.version)
            if self._subscriber.rejected:
                self.wrong.append(str(self._subscriber.fault))
                return


def test_a_writer_killed_at_any_line_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Whole, and the next version is published as if nothing had been."""
    words = [sys.executable, str(Path(__file__).with_name("killed.py")), str(tmp_path)]
    ran = subprocess.run(words, check=False, env=ENV, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= 150


@pytest.mark.parametrize(
    ("versions", "kills"),
    [
        pytest.param(10_000, 20, marks=pytest.mark.timeout(900)),
        pytest.param(100_000, 400, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_a_reader_sees_whole_versions_in_order(quick: Run, versions: int, kills: int) -> None:
    """While the process that writes is killed again and again, at whatever it does."""
    draw = random.Random(versions)  # noqa: S311 a test
    killed = set(draw.sample(range(1, versions), kills))
    publisher = Publisher(quick.publishing())
    subscriber = Subscriber(open_channel(quick.place), quick.accepted())
    is_known: set[Version] = set()
    lost = 0
    with Reader(subscriber) as reader:
        for number in range(versions):
            version = Version(1, number)
            publisher.publish(version, tensors(version))
            done = []
            if number in killed:
                done = publisher.finished(draw.choice([0.0, 0.0005, 0.001]))
                if publisher._sender is not None:
                    os.kill(publisher._sender.pid, signal.SIGKILL)
            for one in done or publisher.finished(LONG_S):
                assert one.status in ("ok", "error"), one
                lost += one.status == "error"
                if one.status == "ok":
                    is_known.add(one.version)
        last = Version(1, versions)
        assert [one.status for one in publisher.close(last, tensors(last))][-1] == "ok"

    assert reader.wrong == []
    assert reader.seen == sorted(set(reader.seen))
    assert reader.seen[-1] == last
    assert len(reader.seen) > kills
    assert lost <= 2 * kills
    assert len(is_known) >= versions - 2 * kills


@pytest.mark.parametrize("kills", [6, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_learner_that_is_killed_goes_on_above_all_that_was_seen(quick: Run, kills: int) -> None:
    """With its process or without; each life is a lineage, and no number is used in two."""
    draw = random.Random(kills)  # noqa: S311 a test
    words = [sys.executable, str(Path(__file__).with_name("trainer.py")), str(quick.folder)]
    with Reader(quick.subscriber()) as reader:
        for life in range(1, kills + 1):
            learner = subprocess.Popen(words, env=ENV)
            try:
                reader.wait_for(len(reader.seen) + draw.randrange(1, 40))
            finally:
                writers = psutil.Process(learner.pid).children()
                learner.kill()
                learner.wait()
                if life % 2:
                    for one in writers:
                        with suppress(psutil.NoSuchProcess):
                            one.kill()
            assert reader.wrong == []
        publisher = Publisher(quick.publishing(), busy_s=LONG_S)
        known = publisher.known
        publisher.close()

    assert reader.wrong == []
    assert reader.seen[-1] == known
    assert reader.seen == sorted(set(reader.seen))
    numbers = [one.number for one in reader.seen]
    assert numbers == sorted(set(numbers))
    assert {one.lineage for one in reader.seen} == set(range(1, kills + 1))
