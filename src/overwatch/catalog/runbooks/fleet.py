"""What to do about envs and their seeds."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

_OPEN: Final = "Open the env: its last actions, its events and its traceback are in its detail."

ENTRIES: Final = (
    Runbook(
        code="env-crashed",
        means="An env died. It counts as crashed until it reports numbers again.",
        confirm=_OPEN,
        act=(
            "Repair what its error names; look whether the same action or observation came before each crash."
        ),
    ),
    Runbook(
        code="env-crashed-many",
        means="So many envs are down that they are reported together.",
        confirm="The board, filtered by status crashed: one lane, one version, one moment?",
        act=(
            "Look for what they share, above all machine and library; then at one of them as for a single "
            "crash."
        ),
    ),
    Runbook(
        code="crash-storm",
        means="Envs of one lane crash one after another.",
        confirm="The message names lane, number and the newest env. " + _OPEN,
        act="Look at the lane's device and its driver first, then at the env; drain the lane if it goes on.",
    ),
    Runbook(
        code="env-non-finite",
        means="An env sent a value that is not a number.",
        confirm=_OPEN + " The first field that went is named.",
        act="Look for divisions and logarithms in reward and observation; clip or normalise; reset the env.",
    ),
    Runbook(
        code="env-non-finite-many",
        means="Many envs send values that are not numbers.",
        confirm="Whether the policy does too: then it is the cause, and the envs only show it.",
        act="Stop and reload the newest checkpoint from before the first one.",
    ),
    Runbook(
        code="env-stalled",
        means="An env is silent, or steps far more slowly than the others.",
        confirm="Its step time beside its lane's; its age on the board.",
        act="Look at its process and what it waits for; restart it alone where the trainer can.",
    ),
    Runbook(
        code="env-stalled-many",
        means="Many envs are silent or slow.",
        confirm="Whether they share a lane or a host.",
        act="Look at that host: processor, memory, disk; then at the env itself.",
    ),
    Runbook(
        code="env-degraded",
        means=(
            "Some envs do worse than the others of the fleet: they earn less, pay rent for nothing, lose "
            "seeds, or repeat one action. All of them are one finding."
        ),
        confirm="The board, filtered by status degraded; the reasons stand in each env's detail.",
        act="Open the worst one, and one that is ok beside it: what differs in seed, level, or data?",
    ),
    Runbook(
        code="cull-storm",
        means="Seeds of one lane are culled far more often than before.",
        confirm="The gate that most of them failed, and on what, is in the hint.",
        act="Look at the seeds that failed: gradients, blueprint, the host's own accuracy at that moment.",
    ),
)
