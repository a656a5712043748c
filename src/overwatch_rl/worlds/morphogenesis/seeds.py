"""What became of seeds, and the numbers of an update that follow from it.

Owns what is counted of seeds at each step, and `summary`: policy rows from the columns of a rollout. Pure,
vectorised; must not know networks, the rewards' formulas or policies.

Shape letters: T steps, N envs, K slots, E episodes that ended.
"""

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from overwatch.catalog.stages import Life, Stage, of_life
from overwatch_rl.undefined import ratio, where_defined
from overwatch_rl.worlds.morphogenesis.rewards import (
    BIG_JUMP,
    PARTS,
    TRIED,
    Evidence,
    RewardConfig,
    holds_to_ransom,
    overclaims,
)

LARGEST: Final = 10.0
"""Size of a grown host, in multiples of the host alone, from which on no trade is worth anything."""
STARVED: Final = 0.01
"""Share of a host's gradient below which its newest connected seeds do not learn."""


def counted(evidence: Evidence, config: RewardConfig) -> dict[str, Tensor]:
    """What a step did to seeds, N each."""
    pruned, fossilised = evidence.reached(Stage.PRUNED), evidence.reached(Stage.FOSSILISED)
    lives = evidence.within(*of_life(Life.GROWING, Life.GRAFTED))
    ends = evidence.is_end[:, None] & lives
    tried = evidence.within(*TRIED)
    was_tried = evidence.was_within(*TRIED)
    life = (evidence.life + ends.long()).where(pruned | ends, 0)
    claims = overclaims(evidence, config)
    gamed = claims.any(dim=1) | (evidence.alpha_change.abs() > BIG_JUMP).any(dim=1)
    counts = {
        "germinated": evidence.reached(Stage.GERMINATED),
        "pruned": pruned,
        "fossilised": fossilised,
        "blends_ended": fossilised | (pruned & was_tried) | (ends & tried),
        "lives_ended": pruned | ends,
        "tried": tried,
        "overclaimed": claims,
        "ransomed": holds_to_ransom(evidence),
    }
    columns = {f"seeds_{name}": found.sum(dim=1).to(torch.uint8) for name, found in counts.items()}
    return columns | {"seeds_life": life.sum(dim=1).to(torch.int32), "gamed": gamed}


SUMMARISED: Final = (
    "reward_gain",
    "reward_contribution",
    "reward_attribution",
    "reward_rent",
    "reward_occupancy",
    "reward_stage_bonus",
    "reward_alpha_shock",
    "reward_attribution_penalty",
    "reward_blending_warning",
    "reward_holding_warning",
    "reward_action_cost",
    "reward_fossil_bonus",
    "reward_hindsight",
    "reward_terminal",
    "reward_penalty",
    "shaping_share",
    "gaming_share",
    "scaffolds",
    "scaffold_delay",
    "hypervolume",
    "germination_rate",
    "prune_rate",
    "fossilise_rate",
    "blend_success",
    "seed_lifespan",
    "overclaimed_seeds",
    "ransom_seeds",
    "starved_seeds",
    "rollbacks",
)
"""Names of what `summary` gives, in its order."""


def summary(columns: Mapping[str, Tensor], ended: Tensor) -> dict[str, Tensor]:
    """Rows of the policy from the columns of a rollout, T N each; `ended` T N bool, where an episode did.

    A mean over what did not happen is undefined.
    """
    parts = {part.name: columns[f"reward_{part.name}"] for part in PARTS}
    sizes = {name: value.abs().sum() for name, value in parts.items()}
    shaping = torch.stack([sizes[part.name] for part in PARTS if part.role == "shaping"]).sum()
    counts = {
        name.removeprefix("seeds_"): value.sum()
        for name, value in columns.items()
        if name.startswith("seeds_")
    }
    episodes, scaffolds = ended.sum(), columns["scaffolds"].sum()
    share = columns["seed_share"]
    return {f"reward_{name}": value.mean() for name, value in parts.items()} | {
        "shaping_share": ratio(shaping, torch.stack(list(sizes.values())).sum()),
        "gaming_share": columns["gamed"].float().mean(),
        "scaffolds": scaffolds.float(),
        "scaffold_delay": ratio(columns["scaffold_delay"].sum(), scaffolds),
        "hypervolume": hypervolume(columns["metric"], columns["growth_ratio"], ended),
        "germination_rate": ratio(counts["germinated"], episodes),
        "prune_rate": ratio(counts["pruned"], episodes),
        "fossilise_rate": ratio(counts["fossilised"], episodes),
        "blend_success": ratio(counts["fossilised"], counts["blends_ended"]),
        "seed_lifespan": ratio(counts["life"], counts["lives_ended"]),
        "overclaimed_seeds": ratio(counts["overclaimed"], counts["tried"]),
        "ransom_seeds": ratio(counts["ransomed"], counts["tried"]),
        "starved_seeds": ratio((share < STARVED).sum(), share.isfinite().sum()),
        "rollbacks": ratio((columns["governor"] > 0).sum(), episodes),
    }


def hypervolume(metric: Tensor, size: Tensor, ended: Tensor) -> Tensor:
    """The area that the best trades of episodes that ended leave behind them; undefined without any.

    Each final metric reaches from its size (in multiples of the host alone) up to `LARGEST`, so that a trade
    which is both larger and worse than another adds nothing (Zitzler and Thiele 1998). 1 is a perfect metric
    at no growth. All T N.
    """
    at = size.flatten().clamp(1.0, LARGEST).where(ended.flatten(), LARGEST)
    order = at.argsort()
    ends = torch.cat([at[order], at.new_full((1,), LARGEST)])
    height = metric.flatten().clamp(0.0, 1.0)[order].cummax(dim=0).values
    area = (height * ends.diff()).sum() / (LARGEST - 1.0)
    return where_defined(ended.any(), area)
