"""Tower and learner stack of the chart, played by podman: a world is learned although the learner is killed.

`stack.py` has what is derived, and what of a cluster this is no proof of. Run with `-m long -s`.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.collecting import until
from tests.overwatch.collector.running import http
from tests.real.image.podman import Podman, absent
from tests.real.image.stack import Stack

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(absent() is not None, reason=str(absent())),
]
TOWER, LEARNER = "tower-overwatch-0", "tower-overwatch-learner-node-0-0"
ACTORS = ("tower-overwatch-actors-0", "tower-overwatch-actors-1")
RUN, UPDATES = "maze-1", 200
"""As `ci/stack-values.yaml` states."""
KILLED_AT = 20
"""Updates: two checkpoints are behind it."""
RETURN = 8.5
"""Of each of the last updates: a cluster in docs/learning.md has 9.2 to 9.4 after 100, random play -1."""
COLUMNS = 20
"""Of the curve: ten updates each."""
SOURCES = {"learner 0", "actor 0", "actor 1", "replay 0", "orchestrator 0"}
LIMIT_S = 1500


@pytest.fixture
def stack(podman: Podman, tower: str, rl: str, tmp_path: Path) -> Iterator[Stack]:
    """All pods, made."""
    made = Stack(podman, "stack", {"tower": tower, "rl": rl}, tmp_path)
    try:
        made.play()
        yield made
    finally:
        made.remove()


def _get(stack: Stack, path: str) -> Any:
    """What the tower shows; `None` where it does not answer."""
    token = stack.token("tower-overwatch-tokens", "read")
    try:
        reply = http(f"http://{stack.addresses[TOWER]}:4380/api/v1/{path}", authorization=f"Bearer {token}")
    except OSError:
        return None
    if reply.status != 200:
        if reply.status != 404:
            print(f"{path}: {reply.status} {reply.body[:200]!r}")
        return None
    return json.loads(reply.body)


def _run(stack: Stack) -> dict[str, Any]:
    """The run as the tower shows it."""
    found = _get(stack, f"snapshot?run={RUN}") or {"run": {"update": None, "outcome": None}}
    return dict(found["run"])


def test_the_stack_learns_its_world_although_its_learner_is_killed(stack: Stack) -> None:
    """Values as they are; SIGKILL after two checkpoints, and a new pod on the claim goes on with the run."""
    began = time.monotonic()
    until(lambda: (_run(stack)["update"] or 0) >= KILLED_AT, "the first updates", LIMIT_S)
    took = time.monotonic() - began
    assert all(stack.is_alive(name) for name in (LEARNER, *ACTORS))
    stack.kill(LEARNER)
    stack.make(LEARNER)
    until(lambda: stack.status(LEARNER) is not None, "the end of the learner", LIMIT_S)

    assert stack.status(LEARNER) == 0, stack.log(LEARNER)
    until(lambda: _run(stack)["outcome"], "the end of the run", LIMIT_S)
    assert (_run(stack)["outcome"], _run(stack)["update"]) == ("completed", UPDATES)
    past = f"history?run={RUN}&name=return&columns={COLUMNS}"
    (curve,) = until(lambda: _get(stack, past), "the past of the run", LIMIT_S)["curves"]
    print(f"\n{KILLED_AT} updates after {took:.0f} s, {UPDATES} after {time.monotonic() - began:.0f} s")
    first, low, high = curve["low"][0], curve["low"][-1], curve["high"][-1]
    print(f"return {first:.2f} at the start, {low:.2f} to {high:.2f} at the end")
    assert first < 0
    assert low >= RETURN
    assert {one["name"] for one in _get(stack, f"snapshot?run={RUN}")["link"]["sources"]} >= SOURCES
