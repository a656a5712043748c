"""What could be judged of a run's policy: rules that lacked a row, names that no row knows, keys of a fix.

Owns which rows a rule needs. Pure.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from overwatch.analyse.story import Story
from overwatch.catalog import ROWS, Scope
from overwatch.catalog.policy import (
    CLIP_FRACTION,
    ENTROPY,
    EXPLAINED_VARIANCE,
    GRAD_NORM,
    KL,
    LEARNING_RATE,
    RETURN,
    VALUE_LOSS,
)
from overwatch.catalog.policy import ROWS as PULSE
from overwatch.catalog.runbooks import row_code

CUSTOM: Final = "overwatch.custom."
NEEDS: Final[Mapping[str, tuple[frozenset[str], ...]]] = MappingProxyType(
    {
        code: tuple(frozenset(row.short for row in group) for group in groups)
        for code, groups in {
            "reward-collapse": ((RETURN,),),
            "policy-collapse": ((RETURN, KL, CLIP_FRACTION), (ENTROPY, KL, CLIP_FRACTION, GRAD_NORM)),
            "policy-frozen": (
                (KL, CLIP_FRACTION), (ENTROPY, EXPLAINED_VARIANCE, VALUE_LOSS, RETURN),
            ),
            "critic-diverged": ((VALUE_LOSS,),),
            "critic-failing": ((EXPLAINED_VARIANCE,), (VALUE_LOSS,)),
            "steps-too-large": ((KL,), (CLIP_FRACTION,)),
            "kl-spike": ((KL,),),
            "zero-gradients": ((GRAD_NORM,),),
            "gradient-spikes": ((GRAD_NORM,),),
            "learning-rate-zero": ((LEARNING_RATE,),),
            "converged": ((ENTROPY,), (RETURN,)),
        }.items()
    }
)  # fmt: skip
"""By code, groups of rows: the rule needs at least one row of each group."""
KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "learning rate": ("learning_rate", "lr", "actor_lr", "policy_lr", "optimizer_lr"),
        "epochs": ("n_epochs", "update_epochs", "num_epochs", "ppo_epochs", "num_ppo_epochs", "epochs"),
        "target_kl": ("target_kl", "desired_kl", "kl_target"),
        "entropy coefficient": ("ent_coef", "entropy_coef", "entropy_coeff", "ent_coeff"),
        "clip gradients": ("max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad"),
        "scale of rewards": ("reward_scale", "norm_reward", "normalize_reward"),
    }
)
"""By words in a hint, the settings that it is about, as libraries call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A rule that had nothing to judge."""

    code: str
    needs: tuple[str, ...]
    """For each missing group the short names of its rows, joined by "or": one of them must be sent."""


def skipped(story: Story) -> tuple[Skipped, ...]:
    """Rules about the policy that could not be applied, since a row never came."""
    sent = {name for name, curve in story.curves.policy.items() if len(curve)}
    sent |= {RETURN.short} if story.last.counters.get("episodes") else set()
    rows = [
        row for row in PULSE if any(s.warning or s.critical for s in row.limits_for(story.run.preset).sides)
    ]
    needs = {row_code(row): (frozenset({row.short}),) for row in rows} | dict(NEEDS)
    lacking = {code: [group for group in groups if not group & sent] for code, groups in needs.items()}
    return tuple(
        Skipped(code=code, needs=tuple(" or ".join(sorted(group)) for group in groups))
        for code, groups in lacking.items()
        if groups
    )


def unknown(story: Story) -> dict[str, str | None]:
    """Names of the policy that no row knows, and so are shown and not judged, with the nearest known one."""
    known = [row.short for row in ROWS if row.scope is Scope.POLICY]
    custom = [name.removeprefix(CUSTOM) for name, curve in story.curves.policy.items() if curve.row is None]
    return {name: next(iter(_near(name, known)), None) for name in custom}


def _near(name: str, known: list[str]) -> list[str]:
    last = name.rpartition("/")[2].lower()
    return difflib.get_close_matches(last, known, 1, 0.75)


def config_keys(hint: str, config: Mapping[str, str]) -> tuple[str, ...]:
    """Settings of the run that a hint is about, with their values."""
    words = hint.lower()
    found: Iterable[str | None] = (
        next((name for name in names if name in config), None)
        for phrase, names in KEYS.items()
        if phrase in words or any(name in words for name in names if "_" in name)
    )
    return tuple(f"{name} = {config[name]}" for name in found if name is not None)
