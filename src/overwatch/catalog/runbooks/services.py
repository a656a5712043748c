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
            "a batch reports this when it is registered."
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
        confirm="The message states how many and for how long; the service's `/status` has them by name.",
        act=(
            "Look at its handler's process and log; start it again where it is gone. What it sends later is "
            "accepted, and its share comes back at once. One that ended for good should disconnect."
        ),
    ),
    Runbook(
        code="service-down",
        means=(
            "A process that a run needs beside its trainer is gone: killed, failed, or silent without "
            "an end record while the run goes on."
        ),
        confirm=(
            "The message names it and for how long. `ps`, `systemctl status` or `kubectl get pods` show "
            "whether it lives; a process that lives and is silent has lost its way to the collector."
        ),
        act=(
            "Start it again: what replay accepted, what was saved and what is published is still "
            "there. The others wait and go on by themselves. Where it dies again, its log has the "
            "reason in its last lines."
        ),
    ),
    Runbook(
        code="heartbeats-failing",
        means=(
            "The learner sends heartbeats to its orchestrator, and none has been answered for three "
            "quarters of a minute."
        ),
        confirm=(
            "See `learner_heartbeats_total` by status. `curl` the orchestrator's `/healthz` from the "
            "learner's machine."
        ),
        act=(
            "Start the orchestrator again, or mend the way to it: address, token, certificate. "
            "Training goes on meanwhile; commands wait until it is back."
        ),
    ),
    Runbook(
        code="heartbeats-late",
        means="The orchestrator has had no heartbeat of a run for longer than a learner may be silent.",
        confirm=(
            "See `orchestrator_heartbeat_age_seconds`. Is the learner there in the services panel, "
            "and does it count heartbeats that fail?"
        ),
        act=(
            "Where the learner is gone, start it again: it goes on from its latest checkpoint. Where "
            "it lives, look at the way from it to the orchestrator."
        ),
    ),
    Runbook(
        code="learner-stalled",
        means=(
            "The learner lives and has taken no optimiser step for ten minutes, and the run is not paused."
        ),
        confirm=(
            "The message states how long. `learner_replay_queue_depth` at 0 means that no experience "
            "comes; above 0 the update itself is stuck."
        ),
        act=(
            "Without experience look at replay and the actors. With experience look at the learner's "
            "stack (`py-spy dump`), at its device and at storage. A pause is made with the "
            "orchestrator, and is no stall."
        ),
    ),
    Runbook(
        code="checkpoint-slow",
        means="Of the last checkpoints, one in twenty took longer than a minute to be written.",
        confirm=(
            "See `learner_checkpoint_duration_seconds`, and the phase `checkpoint`: does the trainer "
            "itself wait?"
        ),
        act=(
            "Look at the disk or the bucket: throughput, throttling, distance. Save less often, or "
            "compress less. While one is written others are left out, so a crash costs more training."
        ),
    ),
    Runbook(
        code="checkpoint-stalled",
        means="No checkpoint can be stored, and training goes on without one.",
        confirm=(
            "The gauge `learner_checkpoint_stalled` is 1. The log of the learner has the error: no "
            "room, no access, no route."
        ),
        act=(
            "Mend the store: what could not be stored is tried again by itself. Until then a crash goes back "
            "to the newest checkpoint that there is; pause the run where that is too much to lose."
        ),
    ),
    Runbook(
        code="weights-old",
        means=(
            "The learner has published no weights for five minutes, and the run is not paused: actors "
            "act with old ones."
        ),
        confirm=(
            "See `learner_weights_age_seconds`, and `learner_weights_publish_total` by status. Does "
            "it take optimiser steps?"
        ),
        act=(
            "Where publishing fails, mend the store or the version key; the learner tries again by itself. "
            "Where an update takes minutes, raise the throttle's limit or make updates shorter."
        ),
    ),
    Runbook(
        code="actor-stale",
        means=(
            "An actor acts with weights that are many versions old, so what it collects is far from "
            "the policy that learns."
        ),
        confirm=(
            "See `actor_versions_behind`, and the actor's log: does it reach the version key, do "
            "weights verify?"
        ),
        act=(
            "Where it cannot read the version key or the store, mend that. Where it verifies and "
            "refuses, its public key is another run's. Where rollouts are long, make them shorter: "
            "weights are adopted between two."
        ),
    ),
    Runbook(
        code="replay-failing",
        means="More than 5 % of what a process asked of replay in the last minute failed.",
        confirm=(
            "See `learner_samples_total` and `actor_appends_total` by status, and "
            "`replay_requests_total` by method and status."
        ),
        act=(
            "Look at the replay server: its log, its memory, its disk. A learner with an encoding or "
            "a table that replay does not know fails with each request, and states this in its log."
        ),
    ),
    Runbook(
        code="learner-degraded",
        means="The learner goes on without a service that it needs, and tries to reach it again.",
        confirm="The learner's log names the service and the error; `learner_degraded` is 1.",
        act=(
            "Start that service again. Beyond its patience the learner stops training and waits; it "
            "goes on by itself when the service is back."
        ),
    ),
    Runbook(
        code="replay-gap",
        means=(
            "After it resumed, the learner found that experience is missing between its checkpoint "
            "and what replay serves."
        ),
        confirm="The learner's log states from which lease to which; `learner_replay_gaps_total` rose.",
        act=(
            "Nothing for a replay server that was started again: what its tables held in memory is gone. "
            "Experience that must survive belongs in Redis; there, look at its disk and its log."
        ),
    ),
    Runbook(
        code="learning-rate-cut",
        means="Numbers of an update were not finite, and training cut its learning rate.",
        confirm=(
            "The feed has the cut with both rates and the update that caused it; "
            "`learner_learning_rate_cuts_total` counts them."
        ),
        act=(
            "One cut may be enough. Where they repeat, look at what the numbers of that update came "
            "from: rewards, observations, log-probabilities. A rollback follows after several."
        ),
    ),
    Runbook(
        code="rolled-back",
        means="Numbers stayed broken, and training went back to an older checkpoint.",
        confirm="The feed has the rollback with both updates; `learner_rollbacks_total` counts them.",
        act=(
            "Look for the cause before the next one: the batch that broke it, a world that pays what "
            "is no number, a learning rate that is too high. Updates since that checkpoint are lost."
        ),
    ),
)
