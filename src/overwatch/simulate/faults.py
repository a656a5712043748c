"""What can go wrong in a simulated run: how its conditions are at one moment, and a table of faults.

A fault is a pure function: it changes the conditions by the seconds since it began. Several are applied in
the order of the table, so their order on a command line does not matter. Must not know how a run obeys
conditions.
"""

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace


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
    """Filled share of the learner's queue; `None` where none is reported."""
    phases: dict[str, float] = {}
    """Seconds of phases of each update, where they are not the usual."""
    stuck: bool = False
    """Whether training does not go on, while its process lives."""
    pace: float = 1.0
    """Share of the usual steps that are taken."""
    misery: float = 0.0
    """How far rewards have fallen, 0 to 1."""
    level: int = 1
    """How hard the task is; the trainer reports its changes."""
    silent: bool = False
    """Whether the producer sends nothing any more."""
    failed: bool = False
    """Whether the trainer reports that it failed, and ends."""
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
    """Rows of the policy that are NaN without a fact about it."""
    wild: float = 0.0
    """Share of updates whose step is three times the usual, by chance."""
    stopping: bool = False
    """Whether updates go a little beyond their target and are stopped in time."""
    sparse: bool = False
    """Whether only the end of an episode pays, all or nothing."""
    names: int = 0
    """New names that each update sends."""
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


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A fault and when it begins."""

    name: str
    at_s: float
    """Seconds since the run's start."""


class FaultError(ValueError):
    """A fault that cannot be planned; the message lists those that there are."""


Fault: TypeAlias = Callable[[Conditions, float], Conditions]

_HEALTHY: Final = Conditions()
_JUMP_S: Final = 2.0
"""Seconds until a jump of a row is whole."""


def ramp(since_s: float, over_s: float) -> float:
    """From 0 to 1 within so many seconds, then 1."""
    return min(1.0, since_s / over_s)


def _is(**values: Any) -> Fault:
    """Conditions that have these values while the fault lasts."""
    return lambda now, _: replace(now, **values)


def _climbs(over_s: float, **spans: float) -> Fault:
    """Conditions that rise by so much within `over_s` seconds, unless they are higher already."""

    def fault(now: Conditions, since_s: float) -> Conditions:
        """Return the conditions so many seconds after the fault began."""
        risen = {name: getattr(_HEALTHY, name) + span * ramp(since_s, over_s) for name, span in spans.items()}
        return replace(now, **{name: max(getattr(now, name), value) for name, value in risen.items()})

    return fault


def _waits(resting: float, **phases: float) -> Fault:
    """Phases of an update that take so many seconds, while the lanes leave a share of their work."""
    return lambda now, _: replace(now, resting=resting, phases={**now.phases, **phases})


def _becomes(**factors: float) -> Fault:
    """Rows that are so many times what they were from one update to the next."""
    return lambda now, _: replace(now, times={**now.times, **factors})


def _times(**factors: float) -> Fault:
    """Rows that become so many times what they were, within two updates."""

    def fault(now: Conditions, since_s: float) -> Conditions:
        """Return the conditions so many seconds after the fault began."""
        whole = ramp(since_s + 1, _JUMP_S)
        return _becomes(**{row: 1 + (factor - 1) * whole for row, factor in factors.items()})(now, since_s)

    return fault


def _creeps(**rates: float) -> Fault:
    """Rows that grow by a share of what they were with each update, or shrink."""
    return lambda now, since_s: _becomes(
        **{row: max(0.0, 1 + rate * since_s) for row, rate in rates.items()}
    )(now, since_s)


def _explains(now: Conditions, less: float) -> Conditions:
    """The critic explains so much less."""
    return replace(now, plus={**now.plus, "explained_variance": -less})


def _policy_collapse(now: Conditions, since_s: float) -> Conditions:
    return _climbs(30, misery=0.6)(_climbs(8, collapse=1)(now, since_s), since_s)


def _queue_starved(now: Conditions, since_s: float) -> Conditions:
    return replace(now, queue=1 - 0.97 * ramp(since_s, 3), resting=0.5 * ramp(since_s, 3))


_STILL: Final = {"kl_divergence": 0.0, "kl_joint": 0.0, "kl_max": 0.0, "clip_fraction": 0.0}


def _policy_frozen(now: Conditions, since_s: float) -> Conditions:
    ruined = _explains(replace(now, misery=1.0), 4.0)
    return _becomes(**_STILL, entropy=0.0, value_loss=1e13, grad_norm=1e6)(ruined, since_s)


def _silent_collapse(now: Conditions, since_s: float) -> Conditions:
    gone = ramp(since_s + 1, 10)
    return _becomes(entropy=1 - 0.8 * gone)(replace(now, misery=max(now.misery, gone)), since_s)


def _critic_failure(now: Conditions, since_s: float) -> Conditions:
    return _times(value_loss=8.0)(_explains(now, 1.5 * ramp(since_s + 1, _JUMP_S)), since_s)


def _warming_up(now: Conditions, since_s: float) -> Conditions:
    steps = ("learning_rate", "kl_divergence", "kl_joint", "kl_max", "clip_fraction")
    return _becomes(**dict.fromkeys(steps, 0.05 + 0.95 * ramp(since_s, 60)))(now, since_s)


def _taking_off(now: Conditions, since_s: float) -> Conditions:
    lift = ramp(max(0.0, since_s - 60), 60)
    grown = _becomes(
        kl_divergence=0.3 + 0.9 * lift, clip_fraction=0.2 + 1.2 * lift, grad_norm=0.5 + 4.5 * lift,
        value_loss=0.3 + 3.0 * lift,
    )  # fmt: skip
    return replace(grown(now, since_s), misery=max(now.misery, 1 - lift))


def _grpo(now: Conditions, since_s: float) -> Conditions:
    done = ramp(since_s, 150)
    grown = _becomes(
        kl_divergence=0.03 + 0.3 * done, kl_joint=0.03 + 0.3 * done, clip_fraction=0.02 + 0.2 * done,
        grad_norm=0.05 + 0.2 * done, entropy=1 - 0.4 * done, learning_rate=0.003,
    )  # fmt: skip
    without = now.absent | {"explained_variance", "value_loss"}
    return replace(grown(now, since_s), absent=without, misery=max(now.misery, 0.8 * (1 - done)))


FAULTS: Final[dict[str, Fault]] = {
    # Envs of the last lane crash one after another for 30 s; each comes back after 20 s.
    "crash-storm": lambda now, since_s: replace(now, crashing=0.25 if since_s < 30 else 0.0),
    # Seeds of some envs on the first lane fail their gates and are culled, until the end.
    "cull-storm": _is(culling=0.3),
    # KL and clipping shoot up, entropy and explained variance fall, within 8 s; returns follow slowly.
    "policy-collapse": _policy_collapse,
    # Losses, gradients and the rewards of two envs are NaN at once.
    "nan": _is(poisoned=True),
    # The last lane heats up, its clock falls to 58 %, its envs slow down.
    "thermal-throttle": _climbs(5, heat=1),
    # The first lane's memory climbs to 99 %.
    "oom-climb": _climbs(45, leak=1),
    # The loader's queue runs dry and the lanes wait for it.
    "io-starvation": _climbs(3, starved=1),
    # The last lane's steps take 2.5 times as long; the other lanes wait.
    "straggler": _climbs(2, drag=1.5),
    # Rewards of all envs fall.
    "reward-collapse": _climbs(4, misery=1),
    # The task gets harder and the trainer reports it: all envs earn less at once, and nothing is wrong.
    "curriculum-step": lambda now, _: replace(now, level=now.level + 1),
    # The producer goes silent and never reports that it ended.
    "stale": _is(silent=True),
    # The trainer reports that it failed, and ends.
    "run-failed": _is(failed=True),
    # The trainer is killed by a signal, and its exporter reports which.
    "killed": _is(killed=True),
    #
    # Of machines and of the training loop itself: what holds a run back although nothing is broken.
    #
    # The last lane's power cap falls, and its clock with it, to 65 %.
    "power-throttle": _climbs(3, capped=1),
    # The first lane keeps a little at each update: full within four minutes.
    "memory-creep": _climbs(240, leak=1),
    # Most of each update waits for envs; the lanes rest meanwhile.
    "envs-slow": _waits(0.7, collect=0.92, env_wait=0.75, inference=0.1, update=0.06),
    # Most of each update chooses actions, one at a time.
    "inference-slow": _waits(0.4, collect=0.9, env_wait=0.15, inference=0.7, update=0.08),
    # Most of each update learns, with minibatches so small that the lanes rest between them.
    "learner-slow": _waits(0.2, collect=0.2, env_wait=0.1, inference=0.05, update=0.78),
    # A third of each update brings new weights to the actors.
    "weights-slow": _waits(0.35, collect=0.45, weights=0.33),
    # A third of each update saves a checkpoint.
    "saving-slow": _waits(0.35, collect=0.45, checkpoint=0.33),
    # The learner's queue of experience runs dry.
    "queue-starved": _queue_starved,
    # Kernels run all the time, draw a quarter of the power, and keep one core full with launching them.
    "small-kernels": _is(launching=True),
    # The lanes work for two seconds and rest for two, without a reported reason.
    "sawtooth": lambda now, since_s: replace(now, resting=0.85 if int(since_s) % 4 >= 2 else 0.0),
    # Training stops within an update; its process lives and the machines are read.
    "training-stuck": _is(stuck=True, resting=1.0),
    # Half as many steps are taken; collecting is what takes the time.
    "slowdown": lambda now, _: replace(now, pace=0.5 * now.pace),
    # The last GPU falls off the bus: its driver reports Xid 79, and its readings end.
    "gpu-off-bus": _is(gpu_state="off-bus"),
    # The readings of the last GPU end, and nothing reports why; the other goes on.
    "gpu-silent": _is(gpu_state="silent"),
    # The last GPU cannot correct two memory errors, beside three from before the run.
    "ecc-errors": lambda now, since_s: replace(now, ecc=3.0 if since_s < 1 else 5.0),
    # The host's memory fills up, and the disk.
    "host-leak": _climbs(60, hoarded=0.99),
    "disk-fills": _climbs(60, disk=0.45),
    "disk-full": _is(disk=1.0),
    # No checkpoint is saved any more, while updates go on.
    "checkpoints-end": _is(saving="none"),
    # Only the best policy is saved, when it is one: more and more rarely, by no schedule.
    "best-checkpoints": _is(saving="best"),
    # Memory is at 93 %, a large disk at 97 %, and a GPU counts three old errors; none of it changes.
    "odd-machine": _is(hoarded=0.87, disk=0.97, ecc=3.0),
    # A replay buffer takes the host's memory to 80 % within a minute, and is full then.
    "buffer-fills": _climbs(60, hoarded=0.62),
    #
    # Of the last env alone: it crashes and stays down, its reward is NaN with a fact or in its column alone,
    # it is silent, its steps take six times as long, its rewards fall, it pays ten times the most rent for
    # nothing, it does the same thing over and over.
    #
    "env-crash": _is(ailment="crash"),
    "env-nan": _is(ailment="nan"),
    "env-nan-column": _is(ailment="nan-column"),
    "env-silent": _is(ailment="silent"),
    "env-slow": _is(ailment="slow"),
    "env-reward": _is(ailment="reward"),
    "env-rent": _is(ailment="rent"),
    "env-actions": _is(ailment="actions"),
    #
    # Of the policy: rows that jump, creep or go blank. A simulated run does one update a second.
    #
    # One update moves the policy sixty times as far as usual.
    "kl-spike": lambda now, since_s: _becomes(kl_divergence=60.0)(now, since_s) if since_s < 1 else now,
    "kl-high": _times(kl_divergence=3.5),
    "clip-high": _times(clip_fraction=4.0),
    "steps-too-large": _times(kl_divergence=6.0, clip_fraction=4.0),
    "entropy-collapse": _times(entropy=0.08),
    "gradient-explosion": _times(grad_norm=15.0),
    # The critic is worse than none: its loss is eight times what it was, explained variance below 0.
    "critic-failure": _critic_failure,
    "ratio-explosion": _times(ratio_max=8.0),
    "ratio-collapse": _times(ratio_min=0.05),
    "sampler-mismatch": _times(first_ratio_error=20_000.0),
    "updates-slow": _times(update_time=3.0),
    # One update ruins all weights: none moves the policy any more, the critic is lost, returns fall.
    "policy-frozen": _policy_frozen,
    # The critic's loss is ten orders of magnitude too large, and explains nothing.
    "critic-diverged": lambda now, since_s: _becomes(value_loss=1e10)(_explains(now, 3.0), since_s),
    # Entropy and returns fall within ten updates; KL and clipping are as ever.
    "silent-collapse": _silent_collapse,
    # One update in fifteen has gradients forty times as large as usual.
    "gradient-spikes": lambda now, since_s: (
        _becomes(grad_norm=40.0)(now, since_s) if since_s % 15 < 1 else now
    ),
    "zero-gradients": _becomes(grad_norm=0.0),
    "learning-rate-zero": _becomes(learning_rate=0.0),
    "early-explosion": _becomes(kl_divergence=700.0, clip_fraction=8.0, grad_norm=300.0),
    # Loss and gradient are NaN, and the trainer sends no fact about it.
    "silent-nan": lambda now, _: replace(now, lost=now.lost | {"policy_loss", "grad_norm"}),
    "kl-creep": _creeps(kl_divergence=0.02),
    "clip-creep": _creeps(clip_fraction=0.02),
    # The critic explains a little less with each update.
    "explained-variance-creep": lambda now, since_s: _explains(now, 0.015 * since_s),
    # What the policy earns sinks, slowly.
    "returns-creep": _climbs(150, misery=1),
    # The policy is paid by a proxy: both returns rise for a moment, then it games the proxy.
    "reward-hacking": lambda now, since_s: replace(now, paid_s=since_s),
    # Each update sends a hundred names that no row knows.
    "names-flood": _is(names=100),
    #
    # What only looks like trouble.
    #
    # One update in twenty goes three times as far as usual: bad luck of a batch.
    "noisy-updates": _is(wild=0.05),
    # Updates go beyond their target and are stopped in time, within the warning band.
    "early-stops": _is(stopping=True),
    # The policy becomes sure of itself within a minute, and earns its best.
    "solved": lambda now, since_s: _becomes(entropy=1 - 0.92 * ramp(since_s, 60))(now, since_s),
    # Only the end of an episode pays, all or nothing; the trainer reports that the task changed.
    "sparse-rewards": lambda now, _: replace(now, sparse=True, level=now.level + 1),
    # A schedule divides the learning rate by ten: steps and gradients shrink.
    "learning-rate-drop": _becomes(learning_rate=0.1, kl_divergence=0.15, clip_fraction=0.2, grad_norm=0.7),
    "measured-early": _becomes(**_STILL),
    # The learning rate rises from a twentieth to its full size within a minute, and steps with it.
    "learning-rate-warm-up": _warming_up,
    # After a minute without success returns rise, and steps, gradients and the critic's loss with them.
    "take-off": _taking_off,
    # A language model that learns without a critic: tiny steps that grow, small gradients, more reward.
    "grpo": _grpo,
}
"""By the name that a command line gives; the seconds are those in which a condition changes."""


def parse_fault(word: str) -> Planned:
    """Read `NAME@SECOND`; raises `FaultError` naming the fault meant, or all that there are."""
    name, at, second = word.partition("@")
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise FaultError(f"fault {name!r} is not known; {hint}there are: {', '.join(FAULTS)}")
    try:
        at_s = float(second)
    except ValueError:
        at_s = -1.0
    if not at or not 0 <= at_s < float("inf"):
        raise FaultError(f"fault {word!r} has no second to begin at; write it like {name}@20")
    return Planned(name=name, at_s=at_s)


def conditions_at(second: float, planned: Iterable[Planned]) -> Conditions:
    """The run's conditions `second` seconds after its start."""
    begun = {plan.name: plan.at_s for plan in sorted(planned, key=lambda plan: -plan.at_s)}
    now = Conditions()
    for name, fault in FAULTS.items():
        if name in begun and second >= begun[name]:
            now = fault(now, second - begun[name])
    return now
