"""A chain of collectors killed under load: what was acknowledged arrives at its end, and is seen once."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from overwatch.feeds.recording import Recording
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.killing import Collector, Sender, told
from tests.e2e.test_collector_kills import last_fold, seen_lines
from tests.overwatch.collector.forwarding import sets
from tests.ports import free_port


def chain(folder: Path, name: str) -> tuple[Collector, Collector]:
    """A collector that forwards by exporter `name`, and the one that it forwards to."""
    port = free_port()
    door = "http" if name == "otlphttp" else "grpc"
    end = Collector(folder / "end", f"receivers.otlp.protocols.{door}.endpoint=127.0.0.1:{port}")
    return Collector(folder / "middle", *sets(name, f"http://127.0.0.1:{port}")), end


def survive(folder: Path, name: str, cycles: int, *, both: bool, seed: int = 0) -> None:
    """Kill the middle so often under load, with `both` the end as well; then hold all against each other."""
    middle, end = chain(folder, name)
    senders = [Sender(f"run-{number}", middle) for number in range(3)]
    chance = random.Random(seed)  # noqa: S311 a test's own moments
    end.start()
    for sender in senders:
        sender.start()
    try:
        for _ in range(cycles):
            middle.start()
            threading.Event().wait(chance.uniform(0.1, 0.8))
            if both:
                end.kill()
            middle.kill()
            if both:
                end.start()
        middle.start()
    finally:
        for sender in senders:
            sender.stop()
    arrived(end, {sender.run_id: sender.acknowledged for sender in senders}, folder)
    middle.stop()
    end.stop()
    once(end, senders)
    assert "Traceback" not in middle.log + end.log
    assert "are lost" not in middle.log


def arrived(end: Collector, lines: dict[str, int], folder: Path) -> None:
    """Wait until the end shows the last line of every run."""
    endpoints = end.endpoints
    assert endpoints is not None

    def has_all() -> bool:
        shown = {run: snapshot_of(endpoints, run) for run in lines}
        return all(
            found is not None and any(f" {lines[run]} " in entry.message for entry in found.feed)
            for run, found in shown.items()
        )

    until(has_all, f"the last lines in {folder}", 120)


def once(end: Collector, senders: list[Sender]) -> None:
    """Every acknowledged line is in the recording of the end, and its fold counts each once."""
    copies = Counter(told(end.folder / "otlp"))
    for sender in senders:
        found = {number for run, number in copies if run == sender.run_id}
        assert found == set(range(1, sender.acknowledged + 1))
    seen = seen_lines(last_fold(Recording(end.folder / "otlp")))
    assert seen == {sender.run_id: sender.acknowledged for sender in senders}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["otlp", "otlphttp"])
def test_a_collector_in_the_middle_is_killed(name: str, tmp_path: Path) -> None:
    """Twice, by both protocols."""
    survive(tmp_path, name, 2, both=False)


def test_both_collectors_of_a_chain_are_killed(tmp_path: Path) -> None:
    """The target dies with requests unanswered, the middle with its place not yet kept."""
    survive(tmp_path, "otlphttp", 2, both=True)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("both", [False, True])
def test_a_chain_is_killed_over_and_over(tmp_path: Path, seed: int, *, both: bool) -> None:
    """A hundred times, in pieces of a chain each."""
    survive(tmp_path, "otlphttp", 25, both=both, seed=seed)
