"""A collector on a small disk that fills up: it refuses, is watched all the while, and goes on by itself."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector, Sender, told

SIZE_MIB = 24


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=700", "tmpfs", str(place)]
    if subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("a small file system needs the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_refuses_serves_and_resumes(small_disk: Path, tmp_path: Path) -> None:
    """Every acknowledged line is recorded once, nothing is torn, also over a kill on the full disk."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((SIZE_MIB - 6) << 20))
    collector = Collector(tmp_path / "own", f"extensions.file_storage.directory={small_disk}",
                          f"exporters.otlp_file.path={small_disk}/otlp")  # fmt: skip
    sender = Sender("run-0", collector)
    endpoints = collector.start()
    sender.start()
    try:
        until(lambda: sender.refusals[503] > 20, "a refusal that may be retried")
        full = snapshot_of(endpoints, "run-0")
        assert full is not None
        until(lambda: (now := snapshot_of(endpoints, "run-0")) and now.time > full.time, "the tower to go on")
        before = sender.acknowledged

        collector.kill()
        collector.start()
        until(lambda: sender.refusals[503] > 40 or sender.acknowledged > before, "an answer on a full disk")

        ballast.unlink()
        refused = sender.refusals[503]
        acknowledged = sender.acknowledged
        until(lambda: sender.acknowledged > acknowledged, "requests to be accepted again", 20)
        assert set(sender.refusals) == {503}
        assert refused > 20
    finally:
        sender.stop()
    collector.stop()

    copies = Counter(number for _, number in told(small_disk / "otlp"))
    assert set(copies) == set(range(1, sender.acknowledged + 1))
    assert "Traceback" not in collector.log
