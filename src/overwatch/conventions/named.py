"""Attributes that describe a producer, of a subject or of a signal, rather than being a fact's own field.

Rules: what OpenTelemetry defines is marked imported and means what it means there. Must not know which
events exist.
"""

from typing import Final

from overwatch.catalog import Scope, Stage
from overwatch.conventions.model import Attribute, Member
from overwatch.otlp import wire


def _own(key: str, kind: str, brief: str, *examples: str | float | bool, note: str = "") -> Attribute:
    return Attribute(key=key, kind=kind, brief=brief, examples=examples, note=note)


def _theirs(
    key: str, kind: str, brief: str, *examples: str | float | bool, stability: str = "development"
) -> Attribute:
    return Attribute(
        key=key, kind=kind, brief=brief, examples=examples, stability=stability, imported=True
    )  # fmt: skip


def _words(words: tuple[str, ...]) -> tuple[Member, ...]:
    return tuple(Member(value=word) for word in words)


RUN: Final = (
    _own(wire.RUN_ID, "string", "The training run, the same for all of its processes.", "ppo-17"),
    _own(wire.TASK, "string", "What is trained on.", "morphogenesis", "CartPole-v1"),
    _own(wire.ALGORITHM, "string", "The algorithm that trains.", "ppo"),
)
"""Of the `rl.*` draft, at its stability: OpenTelemetry has not merged it, so it is defined here."""

PRODUCER: Final = (
    _own(wire.ROLE, "string", "What this process is in its run.", "trainer", "sampler", "learner"),
    _own(wire.RANK, "int", "Rank of this process among those of its role.", 0, 7),
    _own(wire.JOIN, "string", "Shared by the ranks of a launch that was given no run id.", "10.0.0.1:29500"),
    _own(wire.ATTEMPT, "int", "How often the launcher had started the run before.", 0),
    _own(wire.GROUP, "string", "The arm of a comparison that the run belongs to.", "baseline"),
    _own(wire.LIBRARY, "string", "The library whose own names the metrics have.", "sb3", "TRL"),
    _own("overwatch.vcs.dirty", "boolean", "Whether tracked files differ from the revision.", False),
    _own("slurm.job.id", "string", "Slurm's id of the job.", "81234"),
    _own("slurm.job.name", "string", "Slurm's name of the job.", "ppo"),
    _own("slurm.step.id", "string", "Slurm's id of the step.", "0"),
    _own("slurm.array.task.id", "string", "The task within a Slurm array.", "3"),
    _own("slurm.cluster.name", "string", "The Slurm cluster.", "hpc"),
    _own("slurm.partition.name", "string", "The Slurm partition.", "gpu"),
)

SUBJECT: Final = (
    _own(wire.ENV_ID, "int", "The environment, numbered over all ranks of the run.", 17),
    _own(wire.SLOT_ID, "string", "The slot of an environment.", "r0c0"),
    _own(wire.SEED_ID, "string", "The seed in a slot.", "seed-3"),
    _own(wire.LANE_ID, "string", "The lane: a GPU's UUID, `cpu`, or the trainer's own word.", "GPU-4bd1"),
    Attribute(
        key="overwatch.slot.stage", kind="string", brief="The stage of a slot's seed.",
        members=_words(tuple(stage.value for stage in Stage)),
    ),
    _own("overwatch.gpu.throttle", "string", "Why a GPU runs slower than it could.", "thermal,power"),
)  # fmt: skip

RECORD: Final = (
    _own(wire.SEQ, "int", "Number of the record within its producer's epoch, without gaps.", 4711),
    Attribute(key=wire.SCOPE, kind="string", brief="What a measurement or a value speaks of.",
              members=_words(tuple(scope.value for scope in Scope))),
    _own(wire.INDEX, "int", "Number of the update, or of the env step.", 120),
    Attribute(
        key="overwatch.custom", kind="template[double]", examples=(0.5,),
        brief="A trainer's own number, under its own name.",
        note="Names that no metric has travel below this key: shown, never judged. At most 256 a run.",
    ),
)  # fmt: skip

OPENTELEMETRY: Final = (
    _theirs(wire.SERVICE, "string", "Logical name of the service.", "overwatch-trainer", stability="stable"),
    _theirs(wire.INSTANCE, "string", "This life of this process.", "627cc493", stability="stable"),
    _theirs("service.namespace", "string", "Namespace of the service.", "research", stability="stable"),
    _theirs("service.version", "string", "Version of the service.", "1.4.0", stability="stable"),
    _theirs("telemetry.sdk.language", "string", "Language of the SDK.", "python", stability="stable"),
    _theirs("telemetry.sdk.name", "string", "Name of the SDK.", "opentelemetry", stability="stable"),
    _theirs("telemetry.sdk.version", "string", "Version of the SDK.", "1.45.2", stability="stable"),
    _theirs(wire.DISTRO, "string", "Name of the distribution.", "overwatch"),
    _theirs("telemetry.distro.version", "string", "Version of the distribution.", "0.2.0"),
    _theirs("deployment.environment.name", "string", "Deployment environment.", "lab", stability="stable"),
    _theirs("vcs.ref.head.revision", "string", "The revision that is trained.", "9d59409a"),
    _theirs("host.name", "string", "Name of the host.", "node-7"),
    _theirs("process.pid", "int", "Process id.", 4211),
    _theirs("k8s.pod.name", "string", "Name of the pod.", "trainer-0"),
    _theirs("k8s.pod.uid", "string", "UID of the pod.", "275ecb36"),
    _theirs("k8s.namespace.name", "string", "Namespace of the pod.", "training"),
    _theirs("k8s.node.name", "string", "Node of the pod.", "gpu-1"),
    _theirs("k8s.job.name", "string", "Job of the pod.", "ppo"),
    _theirs("k8s.container.name", "string", "Container of the pod.", "trainer"),
    _theirs("hw.id", "string", "The GPU's UUID, as DCGM writes it.", "GPU-4bd1"),
    _theirs("hw.type", "string", "Kind of the component.", "gpu"),
    _theirs("error.type", "string", "Class of the error.", "uncorrected", stability="stable"),
    _theirs("system.memory.state", "string", "State of the memory.", "used"),
    _theirs("system.filesystem.state", "string", "State of the filesystem.", "used"),
)
"""Defined by OpenTelemetry's semantic conventions 1.44.0."""

ENTITY_EVENTS: Final = (
    _own(wire.ENTITY_TYPE, "string", "Type of the entity.", "overwatch.env"),
    _own(wire.ENTITY_ID, "any", "Attributes that identify the entity."),
    _own(wire.ENTITY_DESCRIPTION, "any", "Attributes that describe the entity."),
    _own(wire.ENTITY_INTERVAL, "int", "Seconds between two reports.", 60),
    _own(wire.ENTITY_REASON, "string", "Why the entity is no more.", "completed"),
)
"""Of OpenTelemetry's data model of entities, in development."""

ATTRIBUTES: Final = (*RUN, *PRODUCER, *SUBJECT, *RECORD, *OPENTELEMETRY, *ENTITY_EVENTS)
