"""Whatever clients send, and whatever happens to it: the quick ways state what the parser finds."""

import os
import random
import time
from pathlib import Path

import msgspec
import pytest

from overwatch.journal import Signal
from tests.overwatch.otlp.fuzzing import Judge, stream

CORPUS = Path(__file__).parent / "corpus"
"""Streams that once mattered, or that reach what others do not: each a list of signal and body."""
LENGTH = 60
SECONDS = "OVERWATCH_FUZZ_S"


def kept(name: str, seed: int, length: int = LENGTH) -> bytes:
    """A stream as it lies in the corpus."""
    return msgspec.msgpack.encode([name, [(signal.value, body) for signal, body in stream(seed, length)]])


def run(seed: int) -> Judge:
    """Judge one stream; one that fails joins the corpus."""
    judge = Judge()
    for number, (signal, body) in enumerate(stream(seed, LENGTH), 1):
        if judge.differs(signal, body):
            CORPUS.mkdir(exist_ok=True)
            place = CORPUS / f"seed-{seed}.msgpack"
            place.write_bytes(kept(f"disagreed at {number}", seed, number))
            pytest.fail(f"seed {seed}: request {number} is read in two ways; kept as {place.name}")
    return judge


@pytest.mark.parametrize("place", sorted(CORPUS.glob("*.msgpack")), ids=lambda place: place.stem)
def test_the_corpus_is_read_in_one_way(place: Path) -> None:
    """Every stream that was kept."""
    judge = Judge()
    _, cases = msgspec.msgpack.decode(place.read_bytes(), type=tuple[str, list[tuple[str, bytes]]])
    assert cases
    for signal, body in cases:
        assert not judge.differs(Signal(signal), body)


def test_a_few_streams_are_read_in_one_way() -> None:
    """Enough that shapes are learned and used."""
    judges = [run(seed) for seed in range(12)]
    assert sum(judge.known for judge in judges) > sum(judge.requested for judge in judges) // 10


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ten_minutes_of_streams_are_read_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    """As many as fit; `OVERWATCH_FUZZ_S` sets another time in seconds."""
    seconds = float(os.environ.get(SECONDS, "600"))
    until, began = time.monotonic() + seconds, random.SystemRandom().randrange(1 << 40)
    requested = known = seed = 0
    while time.monotonic() < until:
        judge = run(began + seed)
        requested, known, seed = requested + judge.requested, known + judge.known, seed + 1
    with capsys.disabled():
        print(f"\n{seed} streams from seed {began}: {requested} requests, {known} of them by shape")
    assert known
