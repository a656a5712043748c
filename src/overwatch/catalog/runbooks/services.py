"""What to do about services beside a trainer."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

ENTRIES: Final = (
    Runbook(
        code="rollouts-starved",
        means=(
            "A trainer asks the rollouts service for batches and gets none, and at the pace at which "
            "sequences come the next one is minutes away."
        ),
        confirm=(
            "The message names what waits, what a batch takes and the pace. See "
            "`overwatch_rollouts_accepted_total` by environment and `overwatch_rollouts_refused_total` by "
            "reason."
        ),
        act=(
            "Look whether handlers run, rest or are refused: a wrong length or a NaN refuses all of one "
            "environment. Start more of them, or take smaller batches. A queue whose group sizes cannot make "
            "a batch says so when it is registered."
        ),
    ),
    Runbook(
        code="rollouts-full",
        means="As many sequences wait as may: handlers are asked to rest, and what they send is refused.",
        confirm=(
            "Compare `overwatch_rollouts_served_total` with `overwatch_rollouts_accepted_total`: which "
            "stands still? `overwatch_rollouts_pauses_total` has the environments."
        ),
        act=(
            "Where the trainer takes none, look at its process: stuck, dead, or in a long update. Where it "
            "is as fast as it should be, run fewer handlers: what waits for long is old when it is used."
        ),
    ),
    Runbook(
        code="rollouts-stale",
        means="What waits is more versions behind than is allowed, or much expires before it is served.",
        confirm=(
            "See `overwatch_rollouts_data_age` beside `overwatch_rollouts_max_staleness`, and "
            "`overwatch_rollouts_expired_total` by environment: slow ones lose most."
        ),
        act=(
            "Hand out fewer tickets, so that less is under way; or allow more versions behind where the "
            "algorithm weights old data. Throwing away costs the slowest, longest answers first."
        ),
    ),
    Runbook(
        code="rollouts-env-dead",
        means="An environment is silent for longer than its lease, and the others have its share.",
        confirm="The message says how many and for how long; the service's `/status` has them by name.",
        act=(
            "Look at its handler's process and log; start it again where it is gone. What it sends later is "
            "accepted, and its share comes back at once. One that ended for good should disconnect."
        ),
    ),
)
