"""What to do about a run as a whole: its end, its silence, its processes, its pace."""

from typing import Final

from overwatch.catalog.runbooks.book import Runbook

ENTRIES: Final = (
    Runbook(
        code="run-failed",
        means="The trainer, or the rank that failed first, ended with an error.",
        confirm="The verdict and the feed hold the reason it gave; the trainer's log holds the traceback.",
        act="Fix what the reason names, then start again from the newest checkpoint, which the header names.",
    ),
    Runbook(
        code="factor-off",
        means=(
            "A factor of another distribution could not be loaded, raised, or gave what is no factor. It is "
            "switched off for this run; all else is judged as before."
        ),
        confirm="The finding names the factor and its error; `pip list` shows whose it is.",
        act="Report it to its author, or set `diagnosis.plugins.NAME: 0` in the collector's configuration.",
    ),
    Runbook(
        code="run-lost",
        means=(
            "The trainer was killed, as its exporter saw, or nothing was received of the run for so long "
            "that it is taken for dead without an end record. Findings that were open then are kept."
        ),
        confirm="Look for its process on its node; look for the out-of-memory killer in the kernel's log.",
        act=(
            "Where the process lives, look at its network and its exporter. Where it is gone, read its last "
            "lines and start again from the newest checkpoint."
        ),
    ),
    Runbook(
        code="telemetry-stale",
        means=(
            "The run has sent nothing for longer than it usually does. All that is shown is as old as that "
            "silence."
        ),
        confirm="Compare the age in the header with the sources below it: one silent source, or all of them?",
        act=(
            "Look at the trainer's process and its log, then at the way from it to the collector. What an "
            "exporter could not deliver it keeps and sends later."
        ),
    ),
    Runbook(
        code="collector-away",
        means="The collector itself was away; what was sent meanwhile is coming in now.",
        confirm="The header shows CATCHING UP with the age of the data.",
        act="Nothing. No alarm is raised for the gap; wait until the header shows LIVE.",
    ),
    Runbook(
        code="producer-gone",
        means=(
            "A process of the run was killed, failed, or is silent without an end record, while the "
            "trainer goes on. It is reported once, for ten minutes; how the run ends is rank 0's to decide."
        ),
        confirm="The message names the process and the reason; the list of sources shows its age.",
        act=(
            "Nothing where workers come and go by design. Else look at that process: it may hang, be "
            "stopped, or have lost its network. Its values are shown as they were."
        ),
    ),
    Runbook(
        code="run-silent",
        means=(
            "A producer that sends no end record emits nothing for longer than it ever did: it has finished, "
            "was killed, or pauses. A stock OpenTelemetry SDK does not show which, nor do files that "
            "`overwatch follow` reads."
        ),
        confirm="Look for its process on its node, and at the last update against the planned number.",
        act=(
            "Where it finished, acknowledge the finding. Where it was killed, start again from the newest "
            "checkpoint. A program that emits `overwatch.run_finished`, or uses Overwatch's SDK, shows its "
            "end."
        ),
    ),
    Runbook(
        code="overlapping-writers",
        means="Two living processes claim to be the same rank of the same run, so their numbers mix.",
        confirm="Two epochs of one role and rank send records at the same time.",
        act="End the one that should not be there, or give the second run an id of its own.",
    ),
    Runbook(
        code="clock-ahead",
        means="A process sends times that the collector's clock has not reached: one of both is wrong.",
        confirm="Run `overwatch doctor` on both machines: it reports whether the clock is synchronised.",
        act=(
            "Start chrony or systemd-timesyncd on the machine that is not. Ages, holds and windows have the "
            "difference removed; times of day, and what is compared between machines, have not."
        ),
    ),
    Runbook(
        code="too-many-names",
        means=(
            "The run brought more envs, lanes, slots or names than there is room for: envs that are silent "
            "for long are evicted, and what is new is left out."
        ),
        confirm=(
            "The message names the kind, how often, and some of the offenders; "
            "`overwatch_tower_capped_total` counts by kind, and whether it still rises."
        ),
        act=(
            "Names and ids must not carry values such as step numbers, episodes or file names: give them a "
            "fixed name and put the value beside it. Where all envs are real, raise "
            "`exporters.aggregator.max_state_mib` and the memory limit."
        ),
    ),
    Runbook(
        code="too-many-findings",
        means="More is wrong at once than is shown; the worst are shown, the others are counted.",
        confirm="The message states how many are left out and how bad they are.",
        act="Look for the one cause: crashes, a lane, a network. The rest mostly goes with it.",
    ),
    Runbook(
        code="training-stalled",
        means="A rank is in one phase of the loop for far longer than that phase ever took.",
        confirm=(
            "The message names rank, phase and the usual time; `py-spy dump` of its process shows the line."
        ),
        act=(
            "Look at the rank that stopped first: a collective that waits for a dead rank, a full disk, a "
            "loader that hangs. End the run where nothing moves, and go on from its checkpoint."
        ),
    ),
    Runbook(
        code="checkpoints-stopped",
        means=(
            "Two saves failed, by the lines of the log; or checkpoints came at regular intervals, and now "
            "more than two of them are missing while updates go on. A failure from here on costs all that "
            "was learned since."
        ),
        confirm="The message names the usual interval; the feed holds the newest checkpoint with its path.",
        act=(
            "Look at the trainer's log for a save that failed, at the disk and its quota. A trainer that "
            "stops saving on purpose needs nothing: acknowledge it."
        ),
    ),
    Runbook(
        code="throughput-regression",
        means="The run does fewer steps a second than in its own best hour.",
        confirm="The message names both rates and the phase that grew.",
        act=(
            "Follow the phase that grew: envs, inference, update, waiting. Compare lanes for one that is "
            "slow."
        ),
    ),
    Runbook(
        code="throughput-below-baseline",
        means="The run does fewer steps a second than the recording it is compared with.",
        confirm="The message names both rates; compare the two runs' configuration and machines.",
        act="Look for what differs: number of envs, compile and precision modes, drivers, neighbours.",
    ),
    Runbook(
        code="factor-off",
        means="A factor that an extension brought raised an error and is switched off for this run.",
        confirm="The message names the factor and its error.",
        act="Fix or remove the extension; the other factors go on without it.",
    ),
)
