"""The queue of rollouts: everything that may be asked of it, as pure functions over one `State`.

    decision = queue.accept(state, offers, now)      # changes nothing
    for operation in decision.operations:
        queue.apply(state, operation)                # the only code that changes the state
    # log those for which `is_logged`, wait until they are safe, then send decision.answer

`now` is Unix nanoseconds. Any call that names an environment renews it. `sweep` is to be called every few
seconds: it ends leases and tickets whose time is over and takes the share of silent environments. `restarted`
is to be called once when a log was read. Must not know a clock, sockets, files or payloads.
"""

from overwatch_rl.rollouts.admission import accept, admit, permits
from overwatch_rl.rollouts.answers import ANONYMOUS, Decision, Limits
from overwatch_rl.rollouts.fold import apply, snapshot
from overwatch_rl.rollouts.leases import (
    acknowledge,
    batch,
    broken,
    delivered,
    extend,
    move_version,
    register_trainer,
    release,
    reset,
    restarted,
    status,
    sweep,
)
from overwatch_rl.rollouts.operations import is_logged
from overwatch_rl.rollouts.registration import disconnect_env, register_env, status_env
from overwatch_rl.rollouts.shares import shares, unreachable
from overwatch_rl.rollouts.state import State

__all__ = [
    "ANONYMOUS",
    "Decision",
    "Limits",
    "State",
    "accept",
    "acknowledge",
    "admit",
    "apply",
    "batch",
    "broken",
    "delivered",
    "disconnect_env",
    "extend",
    "is_logged",
    "move_version",
    "permits",
    "register_env",
    "register_trainer",
    "release",
    "reset",
    "restarted",
    "shares",
    "snapshot",
    "status",
    "status_env",
    "sweep",
    "unreachable",
]
