"""What of the findings outlives a run: what stood when it last emitted is kept, neither cleared nor judged.

A run that is silent, lost or over has no values to judge by, and its end heals nothing. What is only true of
a run that goes on leaves with it, and so does what the end itself brought about: loops that stop, envs that
wait, processes that leave. Pure.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from overwatch.diagnose.follow import Followed
from overwatch.diagnose.problem import Problem
from overwatch.diagnose.silence import AWAY, LOST
from overwatch.state.run import RunState

OF_THE_LINE: Final = frozenset(
    {AWAY, LOST, "telemetry-stale", "run-silent", "run-failed", "clock-ahead", "overlapping-writers"}
)
"""About telemetry that comes: without any they are not true."""
OF_THE_LOOP: Final = frozenset(
    {"env-stalled", "env-stalled-many", "training-stalled", "producer-gone", "service-down"}
)
"""About a loop that goes on: they stand where the policy still learned after they began."""


def outliving(state: RunState, followed: Followed, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Those of some problems that are true of a run that emits nothing too."""
    for problem in problems:
        known = followed.open.get(problem.id)
        since = problem.at if known is None else known.since
        is_shutdown = problem.code in OF_THE_LOOP and since >= state.last_update_at
        if problem.code not in OF_THE_LINE and not is_shutdown:
            yield problem
