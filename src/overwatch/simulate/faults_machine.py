"""Faults of machines and of the training loop itself: what holds a run back although nothing is broken.

Must not know how a run obeys its conditions.
"""

from typing import Final

from msgspec.structs import replace

from overwatch.simulate.conditions import Conditions
from overwatch.simulate.ramp import Fault, ramp


def power_throttle(now: Conditions, since_s: float) -> Conditions:
    """The last lane's power cap falls within 3 s, and its clock with it, to 65 %."""
    return replace(now, capped=max(now.capped, ramp(since_s, 3)))


def memory_creep(now: Conditions, since_s: float) -> Conditions:
    """The first lane keeps a little at each update: full within four minutes."""
    return replace(now, leak=max(now.leak, ramp(since_s, 240)))


def envs_slow(now: Conditions, _since_s: float) -> Conditions:
    """Most of each update waits for envs; the lanes rest meanwhile."""
    took = {"collect": 0.92, "env_wait": 0.75, "inference": 0.1, "update": 0.06}
    return replace(now, resting=0.7, phases={**now.phases, **took})


def inference_slow(now: Conditions, _since_s: float) -> Conditions:
    """Most of each update chooses actions, one at a time."""
    took = {"collect": 0.9, "env_wait": 0.15, "inference": 0.7, "update": 0.08}
    return replace(now, resting=0.4, phases={**now.phases, **took})


def learner_slow(now: Conditions, _since_s: float) -> Conditions:
    """Most of each update learns, with minibatches so small that the lanes rest between them."""
    took = {"collect": 0.2, "env_wait": 0.1, "inference": 0.05, "update": 0.78}
    return replace(now, resting=0.2, phases={**now.phases, **took})


def weights_slow(now: Conditions, _since_s: float) -> Conditions:
    """A third of each update brings new weights to the actors."""
    took = {"collect": 0.45, "weights": 0.33}
    return replace(now, resting=0.35, phases={**now.phases, **took})


def saving_slow(now: Conditions, _since_s: float) -> Conditions:
    """A third of each update saves a checkpoint."""
    took = {"collect": 0.45, "checkpoint": 0.33}
    return replace(now, resting=0.35, phases={**now.phases, **took})


def queue_starved(now: Conditions, since_s: float) -> Conditions:
    """The learner's queue of experience runs dry within 3 s."""
    return replace(now, queue=1 - 0.97 * ramp(since_s, 3), resting=0.5 * ramp(since_s, 3))


def small_kernels(now: Conditions, _since_s: float) -> Conditions:
    """Kernels run all the time, draw a quarter of the power, and keep one core full with launching them."""
    return replace(now, launching=True)


def sawtooth(now: Conditions, since_s: float) -> Conditions:
    """The lanes work for two seconds and rest for two, and nobody says why."""
    return replace(now, resting=0.85 if int(since_s) % 4 >= 2 else 0.0)


def training_stuck(now: Conditions, _since_s: float) -> Conditions:
    """Training stops within an update; its process lives and the machines are read."""
    return replace(now, stuck=True, resting=1.0)


def slowdown(now: Conditions, _since_s: float) -> Conditions:
    """Half as many steps are taken; collecting is what takes the time."""
    return replace(now, pace=0.5 * now.pace)


def gpu_off_bus(now: Conditions, _since_s: float) -> Conditions:
    """The last GPU falls off the bus: its driver reports Xid 79, and its readings end."""
    return replace(now, gpu_state="off-bus")


def gpu_silent(now: Conditions, _since_s: float) -> Conditions:
    """The readings of the last GPU end, and nothing reports why; the other goes on."""
    return replace(now, gpu_state="silent")


def ecc_errors(now: Conditions, since_s: float) -> Conditions:
    """The last GPU cannot correct two memory errors, beside three from before the run."""
    return replace(now, ecc=3.0 if since_s < 1 else 5.0)


def host_leak(now: Conditions, since_s: float) -> Conditions:
    """The host's memory fills up within 60 s."""
    return replace(now, hoarded=max(now.hoarded, 0.99 * ramp(since_s, 60)))


def disk_fills(now: Conditions, since_s: float) -> Conditions:
    """The disk fills up within 60 s."""
    return replace(now, disk=max(now.disk, 0.55 + 0.45 * ramp(since_s, 60)))


def disk_full(now: Conditions, _since_s: float) -> Conditions:
    """The disk has nothing left."""
    return replace(now, disk=1.0)


def checkpoints_end(now: Conditions, _since_s: float) -> Conditions:
    """No checkpoint is saved any more, while updates go on."""
    return replace(now, saving="none")


def best_checkpoints(now: Conditions, _since_s: float) -> Conditions:
    """Only the best policy is saved, when it is one: more and more rarely, by no schedule."""
    return replace(now, saving="best")


def odd_machine(now: Conditions, _since_s: float) -> Conditions:
    """Memory is at 93 %, a large disk at 97 %, and a GPU counts three old errors; none of it changes."""
    return replace(now, hoarded=0.87, disk=0.97, ecc=3.0)


def buffer_fills(now: Conditions, since_s: float) -> Conditions:
    """A replay buffer takes the host's memory to 80 % within a minute, and is full then."""
    return replace(now, hoarded=max(now.hoarded, 0.62 * ramp(since_s, 60)))


MACHINE_FAULTS: Final[dict[str, Fault]] = {
    "power-throttle": power_throttle,
    "memory-creep": memory_creep,
    "envs-slow": envs_slow,
    "inference-slow": inference_slow,
    "learner-slow": learner_slow,
    "weights-slow": weights_slow,
    "saving-slow": saving_slow,
    "queue-starved": queue_starved,
    "small-kernels": small_kernels,
    "sawtooth": sawtooth,
    "training-stuck": training_stuck,
    "slowdown": slowdown,
    "gpu-off-bus": gpu_off_bus,
    "gpu-silent": gpu_silent,
    "ecc-errors": ecc_errors,
    "host-leak": host_leak,
    "disk-fills": disk_fills,
    "disk-full": disk_full,
    "checkpoints-end": checkpoints_end,
    "best-checkpoints": best_checkpoints,
    "odd-machine": odd_machine,
    "buffer-fills": buffer_fills,
}
