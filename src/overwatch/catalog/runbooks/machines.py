"""What to do about lanes, ranks and what feeds them."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

ENTRIES: Final = (
    Runbook(
        code="thermal-throttle",
        means="The device slows itself down because it is too hot; lanes that share a barrier wait for it.",
        confirm=(
            "See `nvidia-smi -q -d PERFORMANCE`: it reports thermal slowdown, the clock is below its "
            "maximum, and other GPUs are not throttled."
        ),
        act="Check fans, airflow and dust; lower its power cap; move the work until it is cool.",
    ),
    Runbook(
        code="power-throttle",
        means="The device is held at its power cap, or a power brake is on.",
        confirm="Its throttle reasons name power; its power is at the limit shown.",
        act="Raise the cap where the supply allows it; else accept it and balance the lanes.",
    ),
    Runbook(
        code="clock-low",
        means="The device runs well below its clock and gives no reason of heat or power.",
        confirm="Clock against maximum in the lane's row, while it is busy.",
        act="Look for application clocks that were set, a power-saving mode, or another tenant.",
    ),
    Runbook(
        code="straggler",
        means="One lane or rank takes longer than the others, which wait for it at every barrier.",
        confirm="Compare step times of the lanes; the message states by how much it is slower.",
        act="Look for a neighbour on that machine, a slower link, more or heavier envs on that lane.",
    ),
    Runbook(
        code="oom-forecast",
        means="The lane's memory fills up and, as it has grown so far, is full soon.",
        confirm="Memory of that lane over the last minutes; the message gives rate and time left.",
        act="Save a checkpoint now; look for tensors that are kept from step to step; shrink the batch.",
    ),
    Runbook(
        code="gpu-lost",
        means=(
            "The driver no longer reaches a GPU (Xid 79: it fell off the bus), or its readings ended while "
            "the process that reads it goes on with others. What runs on it hangs or fails."
        ),
        confirm="See `nvidia-smi` and `dmesg | grep -i xid` there; the feed holds the driver's words.",
        act=(
            "Save a checkpoint from the ranks that still work, drain the machine, reset the GPU or restart "
            "the machine; one that falls off the bus again has a fault of power, riser or board."
        ),
    ),
    Runbook(
        code="ecc-uncorrectable",
        means=(
            "The GPU's memory lost data that could not be corrected since this run began: its driver's "
            "counter rose, or it reported Xid 48, 64, 94 or 95."
        ),
        confirm="See `nvidia-smi -q -d ECC,ROW_REMAPPER` for counters, and rows that wait to be replaced.",
        act=(
            "Go on from a checkpoint of before it, after the GPU was reset; where it happens again, replace "
            "it."
        ),
    ),
    Runbook(
        code="gpu-fault",
        means="The driver reported a fault of the GPU that is neither the program's nor lost memory.",
        confirm="The message holds number and meaning; `dmesg` holds what came around it.",
        act="Watch it; a fault that comes again within days needs a reset of the GPU, then another GPU.",
    ),
    Runbook(
        code="host-memory",
        means=(
            "The machine, or the container's control group, is short of memory or will be soon at the pace "
            "it rises. The kernel ends a process when nothing is left, mostly the trainer."
        ),
        confirm="The host's row shows used and total; file cache that can go at once is not counted as used.",
        act=(
            "Save a checkpoint. Look for what grows: a replay buffer, data workers, caches, lists of "
            "tensors. Raise the container's limit where the machine has more."
        ),
    ),
    Runbook(
        code="disk-full",
        means=(
            "The disk that the run's checkpoints go to is full, will be soon, or has less room than its "
            "newest checkpoint took."
        ),
        confirm="See `df -h` and `df -i` in the folder of the checkpoints, on the machine that is named.",
        act="Remove old checkpoints and logs; keep fewer of them; write them to another disk.",
    ),
    Runbook(
        code="io-starvation",
        means="Lanes wait for data: the loader's queue is empty while they rest.",
        confirm="Depth of the queue, reading rate of the disk, utilisation of the lanes.",
        act="More loader workers, local or cached data, larger reads.",
    ),
    Runbook(
        code="queue-starved",
        means="The learner waits for experience: those who collect do not keep up.",
        confirm="Its phases: the share of waiting grew, the update itself did not. The hint states what "
        "actors do meanwhile: they are slow, they are too few, or replay and the way to it are slow.",
        act="More collectors or envs, cheaper inference, a smaller learner; for replay its log and host.",
    ),
    Runbook(
        code="weights-slow",
        means="Bringing new weights to those who collect takes a large part of the loop.",
        confirm="The share of the weights phase, beside rollout and update.",
        act="Send less often, in half precision, or while the next rollout runs.",
    ),
)
