"""Which real program, with which fault, makes each alert of the tower fire: the data of the docs' tables.

A program may prove several alerts. An alert that no program here fires has its reason in `WAITS`; one that
judges the collector itself is in `COLLECTOR`.
"""

from dataclasses import dataclass
from typing import Final

from tests.live.flying import FLIGHT, PATIENCE_S, ROOT, Program

_BANDIT: Final = "gym:tests.live.worlds:"


def _flight(name: str, world: str, *words: str, updates: int = 50, **more: object) -> Program:
    """A training of `overwatch-rl` in a world with a fault; its updates take a quarter of a second."""
    # The types of what is given by name are those of a program's fields.
    shape = ("--envs", "4", "--steps", "32", "--updates", str(updates), "--log", "json")
    return Program(name=name, module=FLIGHT, words=("--world", _BANDIT + world, *shape, *words), **more)  # type: ignore[arg-type]  # fields of a program


def _trainer(name: str, module: str, words: str = "", **more: object) -> Program:
    """A trainer of `tests/live/trainers`, which reports through the SDK."""
    return Program(name=name, module=f"tests.live.trainers.{module}", words=tuple(words.split()), **more)  # type: ignore[arg-type]  # as above


def _clustered(name: str, words: str, *, until: str = "", patience_s: float = PATIENCE_S) -> Program:
    """A cluster of real processes, which fails after a while."""
    more = ("--until", until) if until else ()
    return Program(
        name=name,
        module="tests.live.trainers.clustered",
        words=(*words.split(), "--out", "{folder}/run", *more),
        patience_s=patience_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A program with a fault, and the alerts that it must bring."""

    program: Program
    fault: str
    """In words, for the docs."""
    alerts: tuple[str, ...]
    """Without `Overwatch`."""
    rows: tuple[str, ...] = ()
    """That are counted because of the fault."""


def _proof(program: Program, fault: str, *alerts: str, rows: tuple[str, ...] = ()) -> Proof:
    return Proof(program=program, fault=fault, alerts=alerts, rows=rows)


PROOFS: Final = (
    _proof(
        _flight(
            "held", "Held-v0", "--out", "{folder}/run", "--checkpoint-every", "5", updates=60, held_s=40.0
        ),
        "its process is stopped (SIGSTOP) for 40 s while what exports goes on",
        "TrainingStalled",
        "UpdatesAbsent",
        "UsefulTimeBurnFast",
        "UsefulTimeBurnSlow",
        "CheckpointStale",
    ),
    _proof(
        _flight("no-number", "NoNumber-v0", updates=50),
        "the env's reward becomes NaN",
        "NonFinite",
        "EnvNonFinite",
    ),
    _proof(
        _flight(
            "raising",
            "Raising-v0",
            "--set",
            "workers=subprocess",
            updates=30,
            env={"OVERWATCH_PRESET": "esper"},
        ),
        "envs in subprocesses raise again and again; advantages are beyond what the preset `esper` allows",
        "CrashStorm",
        "PolicyRow",
    ),
    _proof(_flight("failing", "Failing-v0"), "the env raises in the process that trains", "RunFailed"),
    _proof(
        _flight("slow-env", "Slow-v0", updates=48), "a step of the env takes 20 ms more", "PolicyUpdateTime"
    ),
    _proof(
        _trainer("sft", "tuner", "--algo sft --times 30"),
        "fine-tuning of a small language model with 30 times a healthy learning rate",
        "LossDiverged",
    ),
    _proof(
        _trainer("dpo", "tuner", "--algo dpo --times 100"),
        "preference tuning (DPO) of a small language model with 100 times a healthy learning rate",
        "LikelihoodDisplacement",
    ),
    _proof(
        _trainer("cut", "bandit", "--fault stopped", cut=True),
        "its machine goes: the process and what exports are killed at once",
        "TelemetryStale",
        "RunLost",
    ),
    _proof(
        _trainer("foreign", "foreign"),
        "a trainer with OpenTelemetry's SDK alone is killed (SIGKILL)",
        "RunSilent",
    ),
    _proof(
        _trainer("twice", "bandit", "--updates 100", twice=True),
        "it is started twice with one run id",
        "OverlappingWriters",
    ),
    _proof(
        _trainer("ahead", "bandit", "--updates 120", env={"PYTHONPATH": str(ROOT / "tests/live/ahead")}),
        "the clock of its machine is a minute ahead",
        "ClockAhead",
    ),
    _proof(
        _trainer("names", "bandit", "--fault names --at 5 --updates 20"),
        "names of numbers carry the batch",
        "TooManyNames",
    ),
    _proof(
        _trainer("deaf", "learner", "--deaf --updates 90"),
        "what exports is stopped (SIGSTOP) while the trainer logs much",
        "TelemetryDropped",
    ),
    _proof(
        _trainer("disk", "learner", "--out {folder}/disk --kib 400 --updates 90", disk_mib=6),
        "its checkpoints fill a small disk",
        "DiskFull",
        "CheckpointsStopped",
    ),
    _proof(
        _trainer("hoard", "learner", "--hoards --updates 120", memory_mib=300),
        "it keeps every batch, in a small control group",
        "HostMemory",
    ),
    _proof(_trainer("starved", "learner", "--acting 0.3"), "its actor is slow", "QueueStarved"),
    _proof(_trainer("loading", "learner", "--loading 0.1"), "its data loader is slow", "IoStarvation"),
    _proof(_trainer("weights", "learner", "--publishing 0.1"), "handing out weights is slow", "WeightsSlow"),
    _proof(
        _trainer("straggler", "gloo", "--slow 1 --updates 150 --seconds 240"),
        "two ranks of `overwatch-rl train` over gloo, one is stopped (SIGSTOP) for 0.07 s of each 0.1 s",
        "Straggler",
    ),
    _proof(
        _trainer("astray", "ranks", "--astray 2"),
        "one of three ranks has forty times the learning rate",
        "RankDiverged",
    ),
    _proof(
        _trainer("rank-killed", "ranks", "--killed 2 --updates 100"),
        "one of three ranks is killed (SIGKILL), the others go on",
        "ProducerGone",
    ),
    _proof(_trainer("hanging", "fleet", "--hang 24"), "24 of 48 envs hang", "EnvStalledMany"),
    _proof(_trainer("crashed", "fleet", "--crash 1"), "one env dies and is not replaced", "EnvCrashed"),
    _proof(_trainer("poisoned", "fleet", "--poison 24"), "24 of 48 envs give NaN", "EnvNonFiniteMany"),
    _proof(
        _trainer("collapse", "bandit", "--fault worthless"),
        "a policy that explores no more earns nothing any more",
        "PolicyCollapse",
    ),
    _proof(
        _trainer("worthless", "bandit", "--fault worthless --entropy 4"),
        "a policy that explores earns nothing any more",
        "RewardCollapse",
    ),
    _proof(
        _trainer("aimless", "bandit", "--fault noise --at 0 --lr 30 --entropy 4 --target-kl 50 --updates 60"),
        "nothing that it does changes what is paid, and the learning rate is far too high",
        "PolicyEntropy",
        "PolicyExplainedVariance",
    ),
    _proof(
        _trainer("frozen", "bandit", "--fault noise --lr 300 --at 0 --updates 40"),
        "a learning rate a thousand times too high",
        "PolicyFrozen",
    ),
    _proof(
        _trainer("detached", "bandit", "--fault detached"),
        "the loss is detached from the policy",
        "ZeroGradients",
    ),
    _proof(
        _trainer("annealed", "bandit", "--anneal 30 --updates 70"),
        "the schedule of the learning rate ends too early",
        "LearningRateZero",
    ),
    _proof(
        _trainer("proxy", "bandit", "--fault proxy --at 0 --lr 0.1 --updates 100"),
        "an arm is paid for that is worth less than nothing",
        "RewardHacking",
    ),
    _proof(
        _trainer("infinite", "bandit", "--fault infinite --raw"),
        "in three of five updates one reward is infinite",
        "PolicyGradNan",
        "PolicyGradInf",
    ),
    _proof(
        _trainer("masked", "bandit", "--fault masked --target-kl 50 --entropy 2 --updates 70"),
        "an arm is forbidden where it learns and not where it acts",
        "StepsTooLarge",
        "PolicyLogRatioClamped",
        "PolicyFirstRatioError",
    ),
    _proof(
        _trainer("tilted-k1", "bandit", "--fault tilted --entropy 1 --at 25 --only kl_k1"),
        "probabilities differ, of a trainer that sends no better estimate",
        "PolicyKlK1",
    ),
    _proof(
        _trainer("tilted", "bandit", "--fault tilted --entropy 1 --at 25 --only kl_div"),
        "probabilities differ between acting and learning",
        "PolicyKlDivergence",
        "TrustRegionBurnFast",
        "TrustRegionBurnSlow",
    ),
    _proof(
        _trainer(
            "leaping",
            "bandit",
            "--fault rare --at 0 --lr 30 --target-kl 50 --entropy 0.3 --updates 60 --pace 0.3 --only ratio_m",
        ),
        "what is paid changes every four updates, and the learning rate is far too high",
        "PolicyRatioMax",
        "PolicyRatioMin",
    ),
    _proof(
        _trainer("leap", "bandit", "--fault hot --lr 1 --at 60 --entropy 2 --updates 60"),
        "one update with a hundred times the learning rate",
        "KlSpike",
    ),
    _proof(
        _trainer("loud", "bandit", "--fault louder --raw --entropy 2 --lr 0.1 --updates 62"),
        "rewards become noise, a little at a time learned from",
        "PolicyGradNorm",
    ),
    _proof(
        _trainer("noisy", "bandit", "--fault noisy --lr 0.001 --pace 0.3 --only value"),
        "rewards become noisier, and the policy hardly learns",
        "PolicyValueLoss",
    ),
    _proof(
        _trainer("louder", "bandit", "--fault louder --raw --entropy 2"),
        "rewards become noise, and advantages are not normalised",
        "PolicyClipFraction",
    ),
    _proof(
        _trainer("creeping", "bandit", "--fault louder --raw --entropy 2 --pace 0.4 --only kl_div"),
        "rewards become noise, of a trainer that sends KL alone",
        "SlowDrift",
    ),
    _proof(
        _trainer("outliers", "bandit", "--fault outliers --raw --entropy 2 --lr 0.05 --updates 110"),
        "every twelfth batch has two outliers",
        "GradientSpikes",
    ),
    _proof(
        _trainer(
            "shuffled",
            "bandit",
            "--fault shuffled --entropy 2 --at 61 --updates 90 --pace 0.5 --only expl,value",
        ),
        "what is paid changes places, and the critic no longer learns",
        "CriticFailing",
    ),
    _proof(
        _trainer("runaway", "bandit", "--fault runaway --updates 105"),
        "the critic's steps are more than twice too long",
        "CriticDiverged",
    ),
    _proof(
        _trainer("ailing", "hosts"),
        "hosts forget what they knew while their seeds hardly learn; now and then a loss overflows",
        "PolicyOverclaimedSeeds",
        "PolicyRansomSeeds",
        "PolicyStarvedSeeds",
        "PolicyRollbacks",
    ),
    _proof(_trainer("served-full", "served", "--fault full"), "its trainer takes nothing", "RolloutsFull"),
    _proof(
        _trainer("served-stale", "served", "--fault stale"),
        "its trainer goes on to newer versions without taking what waits",
        "RolloutsStale",
    ),
    _proof(
        _trainer("served-dead", "served", "--fault dead"),
        "one of two handlers is killed (SIGKILL)",
        "RolloutsEnvDead",
    ),
    _proof(
        _clustered("clustered-replay", "--fault replay --seconds 50"),
        "its replay server is stopped (SIGSTOP) for 50 s",
        "ServiceDown",
        "LearnerDegraded",
    ),
    _proof(
        _clustered("clustered-orchestrator", "--fault orchestrator --seconds 75"),
        "its orchestrator is stopped (SIGSTOP) for 75 s",
        "HeartbeatsFailing",
    ),
    _proof(
        _clustered("clustered-wiped", "--fault wiped --seconds 20", until="these weights lack"),
        "replay and learner are killed (SIGKILL) at once, and what replay kept is gone",
        "ReplayGap",
        "ReplayFailing",
        rows=("learner.replay_gaps",),
    ),
    _proof(
        _clustered("clustered-overflowing", "--fault overflowing --seconds 8", until="weights are those"),
        "rewards become so large that no gradient is finite",
        "LearningRateCut",
        "RolledBack",
        rows=("learner.learning_rate_cuts", "learner.rollbacks"),
    ),
    _proof(
        _clustered("clustered-unstored", "--fault unstored --seconds 12", until="checkpoints are stalled"),
        "where its checkpoints lie is a file",
        "CheckpointStalled",
    ),
    _proof(
        _clustered("clustered-unreached", "--fault unreached --seconds 75"),
        "what lies between its learner and its orchestrator answers with errors for 75 s",
        "HeartbeatsLate",
        rows=("orchestrator.health_events",),
    ),
    _proof(
        _clustered("clustered-unmirrored", "--fault unmirrored --seconds 60"),
        "the copy of the store that its actors read gets no new weights",
        "ActorStale",
    ),
)
"""Together some seventy seconds of CPU."""

LONG: Final = (
    _proof(_trainer("pruning", "garden"), "after 50 s the bar of a gate is raised", "CullStorm"),
    _proof(
        _trainer("slowing", "learner", "--updates 1300 --slows-after 1080"),
        "after two minutes loading takes twice the time of all else",
        "ThroughputRegression",
    ),
    _proof(
        _trainer("served-starved", "served", "--fault starved --seconds 120"),
        "its handlers leave while the trainer asks",
        "RolloutsStarved",
    ),
    _proof(
        _clustered("clustered-slow-store", "--fault slow-store --seconds 360", patience_s=900),
        "its bucket answers each request late, so that a checkpoint takes more than a minute",
        "CheckpointSlow",
    ),
    _proof(
        _clustered("clustered-idle", "--fault replay --seconds 640", patience_s=1200),
        "its replay server is stopped (SIGSTOP) for 640 s",
        "LearnerStalled",
        "WeightsOld",
    ),
)
"""Programs that take minutes, since what they prove is judged over minutes."""

HEALTHY: Final = _trainer("healthy", "bandit")
"""A program without a fault: nothing fires."""

WAITS: Final = {
    "OomForecast": "a GPU",
    "GpuLost": "a GPU",
    "EccUncorrectable": "a GPU",
    "GpuFault": "a GPU",
    "ThermalThrottle": "a GPU",
    "PowerThrottle": "a GPU",
    "PolicyAdvantageStd": "advantages that nobody normalises: tests/overwatch/diagnose/test_policy.py",
    "EntropyExplosion": "rsl_rl in an environment of its own: `make libraries-judged ONLY=rsl_rl`",
}
"""Alerts that no program here fires: about what no machine without a GPU has, or what a library has alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCollector:
    """How an alert about the collector comes to fire."""

    fault: str
    is_planted: bool = True
    """Whether `test_collector_alerts` plants it; else `fault` is what it waits for."""


COLLECTOR: Final = {
    "CollectorDown": OfCollector(fault="the collector is killed"),
    "CollectorRefusing": OfCollector(fault="its disk is full"),
    "StorageFilling": OfCollector(fault="its disk is full"),
    "ExporterQueueFull": OfCollector(fault="a disk too slow for the recording", is_planted=False),
    "CertificateEnding": OfCollector(fault="a certificate of two days"),
    "ConnectionsRefused": OfCollector(fault="`max_connections` is 4, and six trainers report"),
    "SeriesDropped": OfCollector(fault="`max_series` is 40"),
    "RunsRefused": OfCollector(fault="`max_runs` is 1"),
    "FramesLate": OfCollector(fault="a collector with half a minute more work than time", is_planted=False),
    "JournalSlow": OfCollector(fault="a disk that takes seconds for a write", is_planted=False),
    "RunUnjudged": OfCollector(fault="an error in Overwatch itself", is_planted=False),
}
"""Alerts about the collector's own rows."""
