"""Where each telemetry record of the original system lives here: row, event, field; or why nowhere.

Rows name their own records; this page names all records, and those that are no row. A record is never both.
Fields are paths from `Snapshot`, where `*` stands for every entry. Must not know snapshots: what a path leads
to is checked by the tests of the catalogue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from overwatch.catalog.metric import Metric


@dataclass(frozen=True, slots=True)
class InRow:
    """A metric of its own."""

    name: str
    """Full name."""


@dataclass(frozen=True, slots=True)
class InEvent:
    """A part of something that happens."""

    tag: str
    field: str
    what: str


@dataclass(frozen=True, slots=True)
class InField:
    """A part of the snapshot."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class StruckOut:
    """Not here, on purpose."""

    why: str
    what: str


Place = InRow | InEvent | InField | StruckOut

_PAIRS: Final = "as many numbers an env as pairs of slots: `slot.interaction` is what those of a seed come to"
_BESIDE: Final = "the few values stand beside each other in the drawer"

ELSEWHERE: Final[Mapping[str, InEvent | InField | StruckOut]] = MappingProxyType(
    {
        "TELE-001": InField("run.task", "task name"),
        "TELE-010": InField("run.episode", "current episode"),
        "TELE-011": InEvent("action_taken", "step", "current epoch"),
        "TELE-012": InEvent("run_started", "config", "max epochs"),
        "TELE-013": InField("run.batch", "current batch"),
        "TELE-014": InField("run.batches", "max batches"),
        "TELE-020": InField("run.elapsed_s", "runtime"),
        "TELE-100": InField("run.update", "PPO data received"),
        "TELE-111": InField("policy.*.history", "KL history"),
        "TELE-121": InField("policy.*.trend", "entropy velocity"),
        "TELE-122": InField("findings.*.code", "collapse risk"),
        "TELE-124": InField("policy.*.status", "entropy collapsed"),
        "TELE-133": InField("policy.*.history", "policy-loss history"),
        "TELE-134": InField("policy.*.history", "value-loss history"),
        "TELE-151": InField("policy.*.value", "per-head ratio max"),
        "TELE-170": InField("policy.*.value", "per-head entropy"),
        "TELE-302": InEvent("non_finite_seen", "metric", "per-head NaN latch"),
        "TELE-303": InEvent("non_finite_seen", "metric", "per-head Inf latch"),
        "TELE-311": InField("policy.*.history", "gradient-norm history"),
        "TELE-320": InField("policy.*.value", "per-head gradient norm"),
        "TELE-321": InField("policy.*.history", "previous per-head norm"),
        "TELE-500": InField("run.slots", "total slots"),
        "TELE-502": InField("aggregates.seed_census", "active seeds"),
        "TELE-503": InEvent("seed_stage_changed", "after", "seeds fossilised"),
        "TELE-504": InEvent("seed_stage_changed", "after", "seeds pruned"),
        "TELE-505": InEvent("seed_stage_changed", "after", "seeds germinated"),
        "TELE-509": InField("policy.*.trend", "germination trend"),
        "TELE-510": InField("policy.*.trend", "prune trend"),
        "TELE-511": InField("policy.*.trend", "fossilise trend"),
        "TELE-520": InEvent("run_started", "config", "counterfactual strategy"),
        "TELE-522": InField("envs.*.metric", "counterfactual combined accuracy"),
        "TELE-525": StruckOut(_PAIRS, "pair contributions"),
        "TELE-532": StruckOut(_BESIDE, "Shapley ranked slots"),
        "TELE-533": StruckOut(_BESIDE, "Shapley mean"),
        "TELE-534": StruckOut(_BESIDE, "Shapley std"),
        "TELE-550": InField("envs.*.slots.*.blueprint", "seed blueprint id"),
        "TELE-553": InEvent("seed_stage_changed", "fields", "alpha curve"),
        "TELE-554": InEvent("seed_stage_changed", "fields", "blend tempo"),
        "TELE-555": InEvent("seed_stage_changed", "fields", "seed parameters"),
        "TELE-556": StruckOut(
            "an env's metric moves for many reasons; what a seed adds is `slot.contribution`",
            "seed accuracy delta",
        ),
        "TELE-560": StruckOut(
            "the rate of a number that is worked out now and then is mostly noise", "contribution velocity"
        ),
        "TELE-600": InEvent("non_finite_seen", "count", "observation NaN count"),
        "TELE-601": InEvent("non_finite_seen", "count", "observation Inf count"),
        "TELE-620": InField("aggregates.best", "best-run peak accuracy"),
        "TELE-621": InEvent("episode_ended", "metric", "best-run final accuracy"),
        "TELE-622": StruckOut("rewind shows the env over that time", "best-run trajectory"),
        "TELE-623": InEvent("episode_ended", "growth_ratio", "best-run growth ratio"),
        "TELE-624": InField("aggregates.episodes.*.number", "best-run episode"),
        "TELE-625": InEvent("episode_ended", "best_step", "best-run peak epoch"),
        "TELE-626": InField("aggregates.episodes", "scoreboard best"),
        "TELE-627": InField("aggregates.mean_best", "scoreboard mean of bests"),
        "TELE-628": InEvent("episode_ended", "fossils", "best-run fossilised"),
        "TELE-629": InEvent("episode_ended", "prunes", "best-run pruned"),
        "TELE-630": InField("envs.*.status", "env status"),
        "TELE-631": InField("run.reward_mode", "env reward mode"),
        "TELE-632": InEvent("env_rolled_back", "env_id", "env rolled back"),
        "TELE-633": InEvent("env_rolled_back", "reason", "rollback reason"),
        "TELE-634": InField("envs.*.stale", "env last update age"),
        "TELE-639": InField("detail.trends", "mean reward"),
        "TELE-642": InEvent("run_started", "config", "host parameters"),
        "TELE-645": InField("detail.actions", "action history"),
        "TELE-646": InField("detail.trends", "accuracy history"),
        "TELE-647": InField("detail.trends", "reward history"),
        "TELE-648": InEvent("action_taken", "op", "total actions"),
        "TELE-649": InField("aggregates.actions", "action counts"),
        "TELE-650": InField("envs.*.status", "env status, twice"),
        "TELE-670": InEvent("seed_stage_changed", "blueprint", "blueprint spawns"),
        "TELE-671": InEvent("seed_stage_changed", "blueprint", "blueprint fossilised"),
        "TELE-672": InEvent("seed_stage_changed", "blueprint", "blueprint prunes"),
        "TELE-701": InField("link.state", "connected"),
        "TELE-703": InField("link.sources", "training thread alive"),
        "TELE-710": InField("run.steps_per_s", "epochs per second"),
        "TELE-740": InField("system.gpus.*.bound", "memory alarm"),
        "TELE-741": InField("system.gpus.*.bound", "memory alarm devices"),
        "TELE-750": InEvent("run_started", "group", "A/B group id"),
        "TELE-760": InField("run.modes.compile", "torch.compile status"),
        "TELE-800": InEvent("action_taken", "op", "recent decisions"),
        "TELE-801": InField("envs.*.last_action", "last-action env id"),
        "TELE-802": InField("detail.actions", "last-action time"),
        "TELE-810": InField("feed", "event-log entry schema"),
        "TELE-811": InField("feed.*.time", "event time"),
        "TELE-812": InField("feed.*.kind", "event type"),
        "TELE-813": InField("feed.*.env_id", "event env id"),
        "TELE-814": InField("feed.*.message", "event message"),
        "TELE-815": InField("feed.*.fields", "event metadata"),
        "TELE-816": InField("feed_rate", "total events received"),
    }
)
"""Records that are no row."""

_IDS: Final = """
001 010-014 020-021 100 110-111 120-124 130-136 140-144 150-151 160-161 170
200 210-214 220-228 300-303 310-311 320-321 330-332 340
400-402 500-515 520-525 530-534 550-560
600-603 610 620-629 630-645 646-650 651-664 670-672
701-703 710-711 720-721 730-731 740-741 750 760 770 800-802 810-816
"""

SEED_ONLY: Final = frozenset({"TELE-112", "TELE-113"})
"""Named by the record of KL as what is computed from it; the original never had them, this catalogue may."""


def ids() -> tuple[str, ...]:
    """Every id of the original's records, in order."""
    found = []
    for word in _IDS.split():
        first, _, last = word.partition("-")
        found += [f"TELE-{number:03d}" for number in range(int(first), int(last or first) + 1)]
    return tuple(found)


def places(rows: Iterable[Metric]) -> dict[str, Place]:
    """Where each record lives, by id; a record that several rows name is where the first is."""
    found: dict[str, Place] = {}
    for row in rows:
        for record in row.tele:
            found.setdefault(record, InRow(row.name))
    return dict(sorted({**ELSEWHERE, **found}.items()))
