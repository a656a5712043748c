"""Rows about parts of the reward and the lifecycle of seeds, as means of an update.

Of worlds that grow a host. A reward's part is its mean over all steps of all envs of an update. Limits of the
preset `esper` are in the original's units: rewards of several units an episode, accuracy in percentage
points. The signs of a policy that games its reward are judged in every preset, and never
critical: several critical rows would be taken for a collapse.
"""

from functools import partial
from typing import Final

from overwatch.catalog.metric import (
    Direction,
    Kind,
    Limit,
    Limits,
    Metric,
    NonFinite,
    Scope,
    Side,
    above,
    below,
)

_row = partial(Metric, kind=Kind.GAUGE, scope=Scope.POLICY)
_seeds = partial(_row, non_finite=NonFinite.UNDEFINED)
_signs = partial(_row, unit="1", direction=Direction.DOWN, non_finite=NonFinite.UNDEFINED, fmt=".0%")
_part = partial(_row, unit="{reward}", fmt="+.3f")


def _cost(critical: float) -> Limits:
    """Of a part that only takes away: something is a warning, this much is critical."""
    return Limits(
        warning=Limit(side=Side.BELOW, value=0.0), critical=Limit(side=Side.AT_OR_BELOW, value=critical)
    )


ROWS: Final = (
    _part(
        name="overwatch.policy.reward_gain",
        asks="What did a step earn for the task metric's gain?",
        label="rw gain",
        presets={"esper": _cost(-0.5)},
        tele=("TELE-651",),
    ),
    _part(
        name="overwatch.policy.reward_contribution",
        asks="What did a step earn for what its connected seeds contribute, by ablation?",
        label="rw contr",
        presets={"esper": below(0.0)},
        tele=("TELE-652",),
    ),
    _part(
        name="overwatch.policy.reward_attribution",
        asks="What did a step earn for contribution that also showed as progress?",
        label="rw attr",
        presets={"esper": below(0.0)},
        tele=("TELE-653",),
    ),
    _part(
        name="overwatch.policy.reward_rent",
        asks="What did a step pay for parameters that were grown?",
        label="rw rent",
    ),
    _part(
        name="overwatch.policy.reward_occupancy",
        asks="What did a step pay for slots that were taken?",
        label="rw occup",
    ),
    _part(
        name="overwatch.policy.reward_stage_bonus",
        asks="What did a step earn for moving seeds on, less what seeds that went back cost?",
        label="rw stage",
        tele=("TELE-656",),
    ),
    _part(
        name="overwatch.policy.reward_alpha_shock",
        asks="What did a step pay for sudden changes of alpha?",
        label="rw shock",
        presets={"esper": _cost(-0.05)},
        tele=("TELE-657",),
    ),
    _part(
        name="overwatch.policy.reward_attribution_penalty",
        asks="What did a step pay for contribution far beyond progress?",
        label="rw pen",
        presets={"esper": _cost(-0.05)},
        tele=("TELE-658",),
    ),
    _part(
        name="overwatch.policy.reward_action_cost",
        asks="What did a step pay for its operation, and for prunes that were left to the lifecycle?",
        label="rw op",
    ),
    _part(
        name="overwatch.policy.reward_terminal",
        asks="What did a step earn, on average, for accuracy at the end of its episode?",
        label="rw end",
    ),
    _part(
        name="overwatch.policy.reward_penalty",
        asks="What did a step pay for rollbacks by the governor?",
        label="rw roll",
    ),
    _part(
        name="overwatch.policy.reward_hindsight",
        asks="What did a step earn for seeds that had helped a fossil and were pruned before?",
        label="rw hind",
        tele=("TELE-659",),
    ),
    _row(
        name="overwatch.policy.scaffolds",
        unit="{seed}",
        asks="How many seeds that were pruned were credited for having helped a fossil?",
        label="scaffold",
        fmt=".0f",
        tele=("TELE-660",),
    ),
    _row(
        name="overwatch.policy.scaffold_delay",
        unit="{step}",
        asks="How many steps after their prune did that credit come, on average?",
        label="scf dly",
        non_finite=NonFinite.UNDEFINED,
        fmt=".1f",
        tele=("TELE-661",),
    ),
    _part(
        name="overwatch.policy.reward_fossil_bonus",
        asks="What did a step earn for seeds that became part of the host?",
        label="rw foss",
        tele=("TELE-662",),
    ),
    _part(
        name="overwatch.policy.reward_blending_warning",
        asks="What did a step pay for blending seeds that do harm?",
        label="rw blend",
        presets={"esper": _cost(-0.1)},
        tele=("TELE-663",),
    ),
    _part(
        name="overwatch.policy.reward_holding_warning",
        asks="What did a step pay for holding seeds too long?",
        label="rw hold",
        presets={"esper": _cost(-0.05)},
        tele=("TELE-664",),
    ),
    _row(
        name="overwatch.policy.shaping_share",
        unit="1",
        asks="What share of the reward, sizes of its parts added up, was shaping?",
        label="shaping",
        presets={
            "esper": Limits(
                critical=Limit(side=Side.ABOVE, value=0.4),
                other=Limits(warning=Limit(side=Side.BELOW, value=0.1)),
            )
        },
        non_finite=NonFinite.UNDEFINED,
        fmt=".0%",
        fix="a policy that lives on shaping learns the shaping: lower its weight",
        tele=("TELE-400",),
    ),
    _row(
        name="overwatch.policy.gaming_share",
        unit="1",
        asks="In what share of the steps did the rules against gaming the reward act?",
        label="gaming",
        presets={"esper": above(0.05, 0.10, at=True)},
        direction=Direction.DOWN,
        fmt=".1%",
        fix="look at the envs that earn most: what do they do that the task does not want?",
        tele=("TELE-401",),
    ),
    _seeds(
        name="overwatch.policy.hypervolume",
        unit="{volume}",
        asks="How good are the best trades between metric and size, from 0 to a perfect metric at no size?",
        label="hypervol",
        direction=Direction.UP,
        tele=("TELE-402",),
    ),
    _seeds(
        name="overwatch.policy.germinations",
        short="germination_rate",
        unit="{seed}",
        asks="How many seeds germinated in an episode, on average?",
        label="germ/ep",
        fmt=".2f",
        tele=("TELE-506",),
        depends_on=("event:seed_stage_changed",),
    ),
    _seeds(
        name="overwatch.policy.prunes",
        short="prune_rate",
        unit="{seed}",
        asks="How many seeds were pruned in an episode, on average?",
        label="prune/ep",
        presets={
            "esper": Limits(
                warning=Limit(side=Side.AT_OR_ABOVE, value=1.0), critical=Limit(side=Side.ABOVE, value=2.0)
            )
        },
        fmt=".2f",
        tele=("TELE-507",),
        depends_on=("event:seed_stage_changed",),
    ),
    _seeds(
        name="overwatch.policy.fossils",
        short="fossilise_rate",
        unit="{seed}",
        asks="How many seeds became part of their host in an episode, on average?",
        label="foss/ep",
        fmt=".2f",
        tele=("TELE-508",),
        depends_on=("event:seed_stage_changed",),
    ),
    _seeds(
        name="overwatch.policy.blend_success",
        unit="1",
        asks="Of the seeds whose blending came to an end, what share became part of their host?",
        label="blend ok",
        presets={"esper": below(0.70, 0.50)},
        direction=Direction.UP,
        fmt=".0%",
        tele=("TELE-512",),
        depends_on=("event:seed_stage_changed",),
    ),
    _seeds(
        name="overwatch.policy.seed_lifespan",
        unit="{step}",
        asks="For how many steps did a seed live, on average?",
        label="lifespan",
        presets={"esper": below(10.0, 5.0)},
        fmt=".1f",
        tele=("TELE-513",),
        depends_on=("event:seed_stage_changed",),
    ),
    _signs(
        name="overwatch.policy.overclaimed_seeds",
        asks="Of the seeds on trial, at what share of steps did one contribute over 5 times its host's gain?",
        label="overclm",
        limits=above(0.2),
        fix="the seeds make themselves needed: a lower alpha, longer training before they blend, less paid "
        "for contribution",
    ),
    _signs(
        name="overwatch.policy.ransom_seeds",
        asks="Of the seeds on trial, at what share of steps was one needed by a host that is worse for it?",
        label="ransom",
        limits=above(0.2),
        fix="such seeds cost accuracy and are missed when pruned: prune them early, pay for progress alone",
    ),
    _signs(
        name="overwatch.policy.starved_seeds",
        asks="In what share of the steps with new connected seeds did they get under 1 % of the gradient?",
        label="starved",
        limits=above(0.25),
        fix="new seeds act and hardly learn: raise alpha sooner, blend by adding, scale their learning rate",
    ),
    _row(
        name="overwatch.policy.rollbacks",
        unit="{rollback}",
        asks="How many hosts did the governor roll back in an update?",
        label="rollback",
        limits=above(0.0),
        hold=(2, 5),
        fmt=".0f",
        fix="hosts are ruined again and again: lower the hosts' learning rate, or what the policy may do to "
        "alpha in one step",
    ),
)
