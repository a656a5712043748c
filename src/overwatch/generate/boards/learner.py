"""The dashboard of a learner with its services: who lives, what waits for what, how old weights are."""

from overwatch.catalog import prometheus_name
from overwatch.catalog.learner import (
    ACTOR_STEPS,
    CHECKPOINT_DURATION,
    CHECKPOINT_STALLED,
    DATA_AGE,
    DEGRADED,
    HEARTBEATS,
    LEARNING_RATE_CUTS,
    POLICY_LOSS,
    QUEUE_DEPTH,
    QUEUE_LIMIT,
    REDELIVERED,
    REPLAY_GAPS,
    ROLLBACKS,
    SAMPLE_LATENCY,
    SAMPLES,
    SGD_STEPS,
    VALUE_LOSS,
    VERSIONS_BEHIND,
    WEIGHTS_AGE,
    WEIGHTS_PUBLISH,
)
from overwatch.catalog.replay import (
    COMMANDS,
    HEARTBEAT_AGE,
    HEARTBEAT_LATENCY,
    HTTP_DURATION,
    TRANSITIONS,
)
from overwatch.generate.boards import promql, words
from overwatch.generate.boards.of_runs import RUN_ALERTS, RUN_VARIABLES
from overwatch.generate.boards.questions import (
    PROCESS,
    PROCESS_LEGEND,
    RUN,
    each,
    figure,
    late,
    lines,
    rate,
    worst,
)
from overwatch.generate.boards.spec import Dashboard, Look, Panel, Query
from overwatch.generate.boards.uids import Board

LEARNER = Dashboard(
    board=Board.LEARNER,
    title="learner",
    asks="Does experience reach the learner, and do its weights reach the actors?",
    variables=RUN_VARIABLES,
    alerts=RUN_ALERTS,
    panels=(
        figure(
            "Degraded",
            "Above 0 while the learner goes on without a service that it needs.",
            f"max({worst(DEGRADED)})",
            steps=words.ANY_IS_A_WARNING,
        ),
        figure(
            "Checkpoints stalled",
            "Above 0 while no checkpoint can be stored and training goes on: a crash loses what came since.",
            f"max({worst(CHECKPOINT_STALLED)})",
            steps=words.ANY_IS_A_WARNING,
        ),
        figure(
            "Age of weights",
            "How long ago the learner published weights; actors act with what was published last.",
            f"max({worst(WEIGHTS_AGE)})",
            "s",
        ),
        figure(
            "Versions behind",
            "How many versions old the weights of the actor furthest behind are.",
            f"max({worst(VERSIONS_BEHIND)})",
        ),
        figure(
            "Newest heartbeat",
            "How long ago the orchestrator had a heartbeat; beyond 45 s it takes the run for stale.",
            f"max({worst(HEARTBEAT_AGE)})",
            "s",
        ),
        figure(
            "Rollbacks",
            "How often training went back to an older checkpoint in the last hour because its numbers broke.",
            f"sum({promql.increase(promql.of_run(prometheus_name(ROLLBACKS)), '1h')})",
            steps=words.ANY_IS_A_WARNING,
        ),
        lines(
            "Batches that the learner has fetched ahead",
            "At 0 the learner waits for experience; at the limit experience waits for the learner.",
            *each(
                worst,
                PROCESS,
                (QUEUE_DEPTH, f"fetched {PROCESS_LEGEND}"),
                (QUEUE_LIMIT, f"limit {PROCESS_LEGEND}"),
            ),
        ),
        lines(
            "Samples a second, by how they ended",
            "Empty ones wait for actors; errors wait for the replay server.",
            *each(rate, ("status",), (SAMPLES, "{{status}}")),
            stacked=True,
        ),
        Panel(
            title="Wait for a sample",
            about="How long the learner waited; a point beside the lines is one sample, and opens its trace.",
            look=Look.LINES,
            queries=(
                Query(expr=late(SAMPLE_LATENCY, 0.5), name="p50", has_exemplars=True),
                Query(expr=late(SAMPLE_LATENCY, 0.99), name="p99", has_exemplars=True),
            ),
            unit="s",
        ),
        lines(
            "Steps a second",
            "Environment steps of the actors, and optimiser steps of the learner.",
            *each(rate, RUN, (ACTOR_STEPS, "env {{rl_run_id}}"), (SGD_STEPS, "optimiser {{rl_run_id}}")),
        ),
        lines(
            "Losses",
            "Losses of the policy and of the value function; what is not finite is an alert of its own.",
            *each(worst, RUN, (POLICY_LOSS, "policy {{rl_run_id}}"), (VALUE_LOSS, "value {{rl_run_id}}")),
        ),
        lines(
            "Age of what is learned from",
            "How many versions behind experience was when the learner trained on it.",
            Query(expr=late(DATA_AGE, 0.5), name="p50"),
            Query(expr=late(DATA_AGE, 0.99), name="p99"),
        ),
        lines(
            "Weights published a second, by how it ended",
            "A publish that fails is tried again; actors keep the last version until then.",
            *each(rate, ("status",), (WEIGHTS_PUBLISH, "{{status}}")),
            stacked=True,
        ),
        lines(
            "Time to save a checkpoint",
            "From its beginning until it is stored and checked; the trainer itself waits for much less.",
            Query(expr=late(CHECKPOINT_DURATION, 0.5), name="p50", has_exemplars=True),
            Query(expr=late(CHECKPOINT_DURATION, 0.95), name="p95", has_exemplars=True),
            unit="s",
        ),
        lines(
            "Broken numbers, and served again",
            "Cuts of the learning rate, gaps after a resume, and chunks that were served again, a second.",
            *each(
                rate,
                RUN,
                (LEARNING_RATE_CUTS, "cuts {{rl_run_id}}"),
                (REPLAY_GAPS, "gaps {{rl_run_id}}"),
                (REDELIVERED, "served again {{rl_run_id}}"),
            ),
        ),
        lines(
            "Heartbeats",
            "Sent a second by how they ended, and how long they are on their way.",
            *each(rate, ("status",), (HEARTBEATS, "{{status}}")),
            Query(expr=late(HEARTBEAT_LATENCY, 0.99), name="p99 latency"),
        ),
        lines(
            "Control",
            "Commands by how they ended, and changes of the state of runs, a second.",
            *each(rate, ("kind", "status"), (COMMANDS, "{{kind}} {{status}}")),
            *each(rate, ("from", "to"), (TRANSITIONS, "{{from}} to {{to}}")),
        ),
        lines(
            "Time of a request to the orchestrator",
            "By its route; a slow one delays commands and heartbeats, never training.",
            Query(expr=late(HTTP_DURATION, 0.99, ("route",)), name="p99 {{route}}"),
            unit="s",
        ),
    ),
)
"""The dashboard."""
