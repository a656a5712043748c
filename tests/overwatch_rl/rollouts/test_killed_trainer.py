"""A trainer process that is killed before it used its batch gets the batch again, from a real server."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from overwatch_rl.rollouts.calls import Calls, Target
from overwatch_rl.rollouts.consumer import Consumer, LeasedBatch
from tests.overwatch_rl.rollouts.serving import ENV, TRAINER, group
from tests.overwatch_rl.rollouts.test_process import started

END_S: Final = 60.0

_EXPLICIT: Final = """
import sys
from overwatch_rl.rollouts.calls import Target
from overwatch_rl.rollouts.consumer import Consumer
batch = Consumer(Target(url=sys.argv[1])).batch()
print(*(one["id"] for one in batch.items), *(one["redelivered"] for one in batch.items), flush=True)
sys.stdin.read()
"""
_OLD_WIRE: Final = """
import json, sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "/batch") as reply:
    items = json.load(reply)["items"]
print(*(one["id"] for one in items), *(one["redelivered"] for one in items), flush=True)
sys.stdin.read()
"""


@contextmanager
def life(program: str, url: str) -> Iterator[str]:
    """A trainer process that has its batch and did nothing with it yet: ids and flags; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline()
    finally:
        process.kill()
        process.communicate(timeout=END_S)


def fill(calls: Calls) -> list[int]:
    """A trainer that began, an environment, and a batch with a group more; the groups' ids."""
    calls.post("/register", TRAINER)
    assert calls.get("/batch")["batch"] is None
    env_id = calls.post("/register-env", ENV)["env_id"]
    return [calls.post("/scored_data", group(env_id, first))["id"] for first in (1, 4, 7)]


def ids_of(batch: LeasedBatch) -> list[tuple[int, bool]]:
    """Which groups, and whether they were delivered before."""
    return [(one["id"], one["redelivered"]) for one in batch.items]


def test_a_batch_that_was_not_acknowledged_comes_again_flagged() -> None:
    """When its lease is over, whoever asks; once it is acknowledged no more."""
    flags = ("--durability", "memory", "--no-telemetry", "--lease-s", "1")
    with started(*flags) as (url, _), closing(Calls(Target(url=url))) as calls:
        first, second, last = fill(calls)
        with life(_EXPLICIT, url) as printed:
            assert printed.split() == [str(first), str(second), "False", "False"]
        with closing(Consumer(Target(url=url))) as trainer:
            trainer.register(batch_size=TRAINER["batch_size"], max_token_len=8)
            again = trainer.batch()
            assert again is not None
            assert ids_of(again) == [(first, True), (second, True)]
            assert trainer.acknowledge(again)
            assert isinstance(trainer.try_batch(), dict)

            fourth = calls.post("/scored_data", group(0, 9))["id"]
            following = trainer.batch()
            assert following is not None
            assert ids_of(following) == [(last, False), (fourth, False)]


def test_a_trainer_of_the_old_wire_gets_it_again_once_it_registers() -> None:
    """It acknowledges by asking for the next batch; a new life states that it is one by registering first."""
    flags = ("--durability", "memory", "--no-telemetry")
    with started(*flags) as (url, _), closing(Calls(Target(url=url))) as calls:
        first, second, _ = fill(calls)
        with life(_OLD_WIRE, url) as printed:
            assert printed.split() == [str(first), str(second), "False", "False"]
        calls.post("/register", TRAINER)
        again: dict[str, Any] = calls.get("/batch")

        assert [(one["id"], one["redelivered"]) for one in again["items"]] == [(first, True), (second, True)]
        assert calls.get("/batch")["lack"] == "few"
