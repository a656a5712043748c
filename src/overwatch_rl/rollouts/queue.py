"""The queue of rollouts: everything that may be asked of it, as functions over one `State`.

Each changes the state in place and returns the answer; the store writes what changed, and only then the
answer goes out. `now` is nanoseconds of the queue's clock. Any call that names an environment renews it.
`sweep` is to be called every second: it ends leases and tickets whose time is over and takes the share of
silent environments. `restarted` is to be called once when a server begins. Must not know a clock, SQL,
sockets or files.
"""

from overwatch_rl.rollouts.admission import accept, admit, full
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
from overwatch_rl.rollouts.registration import disconnect_env, info, register_env, status_env, wandb_info
from overwatch_rl.rollouts.shares import shares, unreachable

__all__ = [
    "accept",
    "acknowledge",
    "admit",
    "batch",
    "broken",
    "delivered",
    "disconnect_env",
    "extend",
    "full",
    "info",
    "move_version",
    "register_env",
    "register_trainer",
    "release",
    "reset",
    "restarted",
    "shares",
    "status",
    "status_env",
    "sweep",
    "unreachable",
    "wandb_info",
]
