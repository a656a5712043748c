"""Rows that only trainers of language models send: groups of answers, sampler against trainer, preferences.

Limits are of the preset `grpo`. One value a policy update.
"""

from functools import partial
from typing import Final

from overwatch.catalog.alias import draft
from overwatch.catalog.metric import Direction, Kind, Metric, NonFinite, Scope, above, below, between

_row = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY)
_MISMATCH: Final = "compare precision, kernels and weights of the sampler with the trainer's"

CHOSEN: Final = _row(
    name="overwatch.policy.chosen_log_prob",
    unit="{nat}",
    asks="How likely does the model find the preferred answers, as the log probability of a whole answer?",
    label="chosen",
    direction=Direction.UP,
    fmt="+.1f",
    feeds=("finding:likelihood-displacement",),
)

ROWS: Final = (
    CHOSEN,
    _row(
        name="overwatch.policy.reward_std",
        unit="{reward}",
        asks="How much do the rewards of one group's answers differ?",
        label="rew std",
        fmt=".3f",
    ),
    _row(
        name="overwatch.policy.groups_alike",
        unit="1",
        asks="What share of the groups taught nothing, because all their answers earned the same?",
        label="grp same",
        presets={"grpo": above(0.5, at=True)},
        direction=Direction.DOWN,
        chooses="grpo",
        fmt=".0%",
        fix="mix harder and easier questions; sample hotter or more answers",
    ),
    _row(
        name="overwatch.policy.answers_cut",
        unit="1",
        asks="What share of the answers was cut at the greatest length?",
        label="cut",
        presets={"grpo": above(0.25, at=True)},
        direction=Direction.DOWN,
        chooses="grpo",
        fmt=".0%",
        fix="allow longer answers, or make length cost something",
    ),
    _row(
        name="overwatch.policy.sampler_weight",
        unit="{weight}",
        asks="Is the mean ratio of the trainer's to the sampler's probabilities about 1?",
        label="smp wght",
        presets={"grpo": between(below(0.5), above(2.0))},
        chooses="grpo",
        fmt=".3f",
        fix=_MISMATCH,
    ),
    _row(
        name="overwatch.policy.sampler_ess",
        unit="1",
        asks="How large a share of the samples counts, after weighting trainer against sampler?",
        label="smp ess",
        presets={"grpo": below(0.3)},
        direction=Direction.UP,
        chooses="grpo",
        fmt=".0%",
        fix=_MISMATCH,
    ),
    _row(
        name="overwatch.policy.sampler_kl",
        unit="{nat}",
        asks="How far is the trainer's policy from the one that sampled, with the same weights?",
        label="smp kl",
        presets={"grpo": between(below(-0.1), above(0.1))},
        direction=Direction.DOWN,
        chooses="grpo",
        fmt="+.4f",
        fix=_MISMATCH,
    ),
    _row(
        name="overwatch.policy.token_error",
        unit="{factor}",
        asks="By what factor do the sampler's and the trainer's probabilities of a token differ, on average?",
        label="tok err",
        presets={"grpo": above(1.02, 1.1)},
        direction=Direction.DOWN,
        chooses="grpo",
        fmt=".3f",
        fix=_MISMATCH,
    ),
    _row(
        name="overwatch.policy.mfu",
        unit="1",
        asks="What share of the arithmetic that the devices can do went into the model?",
        presets={"grpo": below(0.15)},
        direction=Direction.UP,
        non_finite=NonFinite.UNDEFINED,
        fmt=".0%",
        aliases=(draft("rl.train.mfu"),),
    ),
    _row(
        name="overwatch.policy.data_versions_behind",
        short="data_age_updates",
        unit="{update}",
        asks="How many updates old was the policy that collected what was learned from?",
        label="data age",
        presets={"grpo": above(8.0)},
        direction=Direction.DOWN,
        fmt=".1f",
        fix="sample less ahead, or publish weights more often",
    ),
)
