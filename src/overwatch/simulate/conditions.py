"""How a simulated run is at one moment: what faults change, and what its parts obey.

Must not know faults, nor how a part obeys.
"""

import msgspec


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is at one moment; the defaults are a healthy run."""

    crashing: float = 0.0
    """Crashes per second of each env in the crash pool of the last lane."""
    culling: float = 0.0
    """Culls per second of each growing seed in the cull pool of the first lane."""
    collapse: float = 0.0
    """How far the policy has collapsed, 0 to 1."""
    poisoned: bool = False
    """Whether losses, gradients and some rewards are NaN."""
    heat: float = 0.0
    """How far the last lane is throttled by heat, 0 to 1."""
    leak: float = 0.0
    """How much of its free memory the first lane has lost, 0 to 1."""
    starved: float = 0.0
    """How far the loader's queue has run dry, 0 to 1."""
    drag: float = 1.0
    """Step time of the last lane, times its usual."""
    capped: float = 0.0
    """How far the last lane is throttled by its power cap, 0 to 1."""
    resting: float = 0.0
    """Share of their work that all lanes leave."""
    launching: bool = False
    """Whether the lanes run small kernels that one core launches."""
    queue: float | None = None
    """Filled share of the learner's queue; `None` where nobody tells."""
    phases: dict[str, float] = {}
    """Seconds of phases of each update, where they are not the usual."""
    stuck: bool = False
    """Whether training does not go on, while its process lives."""
    pace: float = 1.0
    """Share of the usual steps that are taken."""
    misery: float = 0.0
    """How far rewards have fallen, 0 to 1."""
    level: int = 1
    """How hard the task is; the trainer says when it changes."""
    silent: bool = False
    """Whether the producer says nothing any more."""
    failed: bool = False
    """Whether the trainer says that it failed, and ends."""
    killed: bool = False
    """Whether the trainer is killed, as its exporter reports."""
    times: dict[str, float] = {}
    """What rows of the policy are multiplied by."""
    plus: dict[str, float] = {}
    """What is added to rows of the policy."""
    paid_s: float | None = None
    """For how long the policy has been paid by a proxy that it games; `None` where no proxy pays it."""
    absent: frozenset[str] = frozenset()
    """Rows of the policy that this run does not have."""
    lost: frozenset[str] = frozenset()
    """Rows of the policy that are NaN, and of which no fact tells."""
    wild: float = 0.0
    """Share of updates whose step is three times the usual, by chance."""
    stopping: bool = False
    """Whether updates go a little beyond their target and are stopped in time."""
    sparse: bool = False
    """Whether only the end of an episode pays, all or nothing."""
    names: int = 0
    """New names that each update tells."""
    gpu_state: str = ""
    """What became of the last lane: `off-bus`, reported by its driver; `silent`, without a report."""
    ecc: float | None = None
    """Uncorrected memory errors that the last lane counts; `None` where it counts none."""
    hoarded: float = 0.0
    """How much of the host's free memory is gone, 0 to 1."""
    disk: float = 0.55
    """Used share of the disk."""
    saving: str = "all"
    """Which checkpoints are saved: `all` of the schedule, the `best`, or `none`."""
    ailment: str = ""
    """What is wrong with the last env: `crash`, `nan`, `nan-column`, `silent`, `slow`, `reward` or `rent`."""
