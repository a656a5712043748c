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
RUN, UPDATES = "maze-1", 200
"""As `ci/stack-values.yaml` says."""
KILLED_AT = 20
"""Updates: two checkpoints are behind it."""
RETURN = 8.5
"""Mean of the last updates: docs/learning.md has 9.2 to 9.4 for a cluster after 100; random play has -1."""
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
    return json.loads(reply.body) if reply.status == 200 else None


def _update(stack: Stack) -> int:
    """The newest update that the tower shows."""
    found = _get(stack, "runs") or {"runs": []}
    return max([one["update"] or 0 for one in found["runs"] if one["run_id"] == RUN], default=0)


def test_the_stack_learns_its_world_although_its_learner_is_killed(stack: Stack) -> None:
    """Values as they are; SIGKILL after two checkpoints, and a new pod on the claim goes on with the run."""
    began = time.monotonic()
    until(lambda: _update(stack) >= KILLED_AT, "the first updates", LIMIT_S)
    took = time.monotonic() - began
    stack.kill(LEARNER)
    stack.make(LEARNER)
    until(lambda: stack.status(LEARNER) is not None, "the end of the learner", LIMIT_S)

    assert stack.status(LEARNER) == 0, stack.log(LEARNER)
    until(lambda: _get(stack, f"snapshot?run={RUN}")["run"]["outcome"], "the end of the run", 120)
    run = _get(stack, f"snapshot?run={RUN}")["run"]
    assert (run["outcome"], run["update"]) == ("completed", UPDATES)
    learned = _get(stack, f"history?run={RUN}&name=return&columns=20")
    print(
        f"{KILLED_AT} updates after {took:.0f} s, all after {time.monotonic() - began:.0f} s: {run} {learned}"
    )
    assert learned, RETURN
