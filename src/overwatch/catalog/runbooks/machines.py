"""What to do about lanes, ranks and what feeds them."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

ENTRIES: Final = (
    Runbook(
        code="thermal-throttle",
        means="The device slows itself down because it is too hot; lanes that share a barrier wait for it.",
        confirm=(
            "Its throttle reasons name heat, and its clock is below its maximum; others are not throttled."
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
        confirm="Compare step times of the lanes; the message says by how much it is slower.",
        act="Look for a neighbour on that machine, a slower link, more or heavier envs on that lane.",
    ),
    Runbook(
        code="oom-forecast",
        means="The lane's memory fills up and, as it has grown so far, is full soon.",
        confirm="Memory of that lane over the last minutes; the message gives rate and time left.",
        act="Save a checkpoint now; look for tensors that are kept from step to step; shrink the batch.",
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
        confirm="Its phases: the share of waiting grew, the update itself did not.",
        act="More collectors or envs, cheaper inference, or a smaller learner.",
    ),
    Runbook(
        code="weights-slow",
        means="Bringing new weights to those who collect takes a large part of the loop.",
        confirm="The share of the weights phase, beside rollout and update.",
        act="Send less often, in half precision, or while the next rollout runs.",
    ),
)
