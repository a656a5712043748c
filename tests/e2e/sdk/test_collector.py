"""A trainer and a real collector that is killed: what was called delivered is in the recording."""

import contextlib
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from overwatch.feeds.recording import Recording
from overwatch.journal import Signal
from overwatch.recordings.index import Located
from tests.e2e.collecting import ENDPOINT_KEYS
from tests.e2e.sdk.chaos import Ear, training, wait_for

LIVES = 3


def quiet_port() -> int:
    """A free port that no connection gets by chance between two lives."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)  # noqa: S311 any will do
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class RealCollector:
    """`overwatch collect` on one port, over several lives."""

    def __init__(self, folder: Path) -> None:
        port = quiet_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self.otlp = folder / "otlp"
        self._ready = folder / "ready.json"
        self._log = folder / "collector.log"
        sets = [f"{key}=127.0.0.1:0" for key in ENDPOINT_KEYS[1:]]
        sets += [
            f"{ENDPOINT_KEYS[0]}=127.0.0.1:{port}",
            f"exporters.otlp_file.path={self.otlp}",
            f"exporters.snapshots.path={folder / 'snapshots.jsonl'}",
            f"extensions.file_storage.directory={folder / 'journal'}",
        ]
        words = [word for item in sets for word in ("--set", item)]
        self._command = [sys.executable, "-m", "overwatch.cli", "collect", *words]
        self._env = {
            **os.environ, "OVERWATCH_READY_FILE": str(self._ready), "XDG_RUNTIME_DIR": str(folder / "run")
        }  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin a life, and wait until it takes requests."""
        self._ready.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._env)
        self._process = process
        wait_for(lambda: self._ready.is_file() or process.poll() is not None, "the collector")
        assert process.poll() is None, self._log.read_text()

    def kill(self) -> None:
        """End a life without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """End well: all that was acknowledged is in the recording."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(60) == 0, self._log.read_text()

    def ear(self) -> Ear:
        """What is in the recording's log batches."""
        recording = Recording(self.otlp)
        logs = [entry for entry in recording.source.entries() if isinstance(entry, Located)]
        batches = recording.read([entry for entry in logs if entry.signal is Signal.LOGS])
        return Ear([("/v1/logs", batch.body) for batch in batches])

    @property
    def size(self) -> int:
        """Bytes of the recording's index."""
        with contextlib.suppress(FileNotFoundError):
            return (self.otlp / "index.jsonl").stat().st_size
        return 0


@contextlib.contextmanager
def collector_in(folder: Path) -> Iterator[RealCollector]:
    """A collector; it is gone with the block."""
    collector = RealCollector(folder)
    collector.start()
    try:
        yield collector
    finally:
        collector.kill()


def test_a_killed_collector_has_all_that_was_delivered(tmp_path: Path) -> None:
    """Three lives of one collector, two of them ended by kill -9 while a trainer speaks."""
    with collector_in(tmp_path) as collector, training(tmp_path, collector.endpoint, close_s=30.0) as trainer:
        for _ in range(LIVES - 1):
            before = collector.size
            wait_for(lambda: collector.size > before, "a recorded batch")  # noqa: B023 called at once
            collector.kill()
            trainer.wait_steps(50)
            collector.start()
        ending = trainer.ending()
        assert ending.delivered, (ending, trainer.errors())
        collector.end()
        collector.ear().assert_whole(ending.steps)
