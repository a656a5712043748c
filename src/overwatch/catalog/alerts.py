"""Which findings Prometheus reports to an operator: name, urgency and hold of each alert.

Owns the choice; what a finding is stays where it is made, its limits in the rows. Rules: what is `critical`
wakes somebody, so there are few; a row of the policy is reported as `warning`. An alert has the name of its
finding, so that whoever knows one knows the other. Must not know PromQL.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from overwatch.catalog import ROWS, Metric, Scope
from overwatch.catalog.runbooks import row_code

PREFIX: Final = "Overwatch"
QUEUE_FULL: Final = 0.8
"""Share of an exporter's queue from which on it is reported."""
STORAGE_FULL: Final = 0.85
"""Share of its room from which on the journal is nearly full; below it of the budget, a volume is too."""
CERTIFICATE_S: Final = 14 * 86_400
"""Seconds before the end of a certificate from which on the alert fires."""
FRAMES_LATE_S: Final = 30
"""Age of what a collector shows from which on the alert fires: in time it is a tenth of a second."""
DISK_SLOW_S: Final = 1.0
"""Mean time of a write and its sync from which on the disk of the journal is slow."""
DISK_STALLED_S: Final = 5.0
"""Time of one that is under way from which on it is, too: until it ends, senders are refused."""
NON_FINITE: Final = "non-finite"
"""Reported by a counter; by its finding where no counter came."""
SILENT_HOLD_S: Final = 900
"""Seconds of silence before a run that promised no end record is alerted: it may have ended well."""
ROW_HOLD_S: Final = 120
"""Seconds for which a row's finding stands before it is reported."""


class Area(Enum):
    """What an alert is about; causes of one area take symptoms of others."""

    COLLECTOR = "collector"
    RUN = "run"
    POLICY = "policy"
    FLEET = "fleet"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingAlert:
    """A finding that is reported."""

    code: str
    area: Area
    summary: str
    """One sentence that is the same for all of the same alert."""
    severity: str = "warning"
    hold_s: int = 60
    """Seconds for which the finding stands before it is reported, on top of its own hold."""

    @property
    def name(self) -> str:
        """The alert's name."""
        return alert_name(self.code)


_POLICY: Final = Area.POLICY
_FLEET: Final = Area.FLEET
_MACHINE: Final = Area.MACHINE
_RUN: Final = Area.RUN

FINDINGS: Final[tuple[FindingAlert, ...]] = (
    FindingAlert(
        code="policy-collapse",
        area=_POLICY,
        severity="critical",
        summary="The policy of a run has collapsed.",
    ),
    FindingAlert(code="policy-frozen", area=_POLICY, summary="No update moves the policy of a run any more."),
    FindingAlert(code="critic-diverged", area=_POLICY, summary="The critic of a run has diverged."),
    FindingAlert(code="loss-diverged", area=_POLICY, summary="The loss of a run has diverged."),
    FindingAlert(
        code="likelihood-displacement",
        area=_POLICY,
        summary="A model finds the answers unlikely that it should prefer.",
    ),
    FindingAlert(
        code="entropy-explosion",
        area=_POLICY,
        summary="Actions of a run spread further and further, and returns do not rise.",
    ),
    FindingAlert(
        code="oom-forecast",
        area=_MACHINE,
        severity="critical",
        hold_s=30,
        summary="A GPU of a run will soon be out of memory.",
    ),
    FindingAlert(
        code="gpu-lost",
        area=_MACHINE,
        hold_s=15,
        summary="A GPU of a run can no longer be reached.",
    ),
    FindingAlert(
        code="ecc-uncorrectable",
        area=_MACHINE,
        hold_s=15,
        summary="The memory of a GPU lost data that could not be corrected.",
    ),
    FindingAlert(
        code="kl-spike", area=_POLICY, hold_s=15, summary="One update moved the policy much too far."
    ),
    FindingAlert(
        code="steps-too-large",
        area=_POLICY,
        hold_s=120,
        summary="The updates of a run move its policy too far.",
    ),
    FindingAlert(
        code="critic-failing",
        area=_POLICY,
        hold_s=120,
        summary="The critic of a run explains nothing and its loss is high.",
    ),
    FindingAlert(
        code="reward-collapse", area=_POLICY, hold_s=120, summary="The return of a whole fleet fell."
    ),
    FindingAlert(
        code="reward-hacking",
        area=_POLICY,
        hold_s=30,
        summary="The proxy that a policy is paid by rises, and its true return does not follow.",
    ),
    FindingAlert(
        code="slow-drift", area=_POLICY, hold_s=120, summary="A number of a run creeps the wrong way."
    ),
    FindingAlert(
        code="zero-gradients", area=_POLICY, hold_s=120, summary="The gradients of a run are 0 or vanished."
    ),
    FindingAlert(
        code="gradient-spikes",
        area=_POLICY,
        hold_s=15,
        summary="The gradients of a run spike again and again.",
    ),
    FindingAlert(
        code="learning-rate-zero",
        area=_POLICY,
        hold_s=120,
        summary="The learning rate of a run is 0 while it goes on.",
    ),
    FindingAlert(
        code="rank-diverged", area=_POLICY, hold_s=120, summary="One rank of a run is far from the others."
    ),
    FindingAlert(
        code="env-crashed", area=_FLEET, hold_s=120, summary="An env of a run crashed and did not come back."
    ),
    FindingAlert(
        code="crash-storm", area=_FLEET, hold_s=15, summary="Envs of one lane crash one after another."
    ),
    FindingAlert(
        code="cull-storm", area=_FLEET, hold_s=30, summary="Seeds of one lane are culled in numbers."
    ),
    FindingAlert(code="env-stalled-many", area=_FLEET, hold_s=120, summary="Many envs of a run stand still."),
    FindingAlert(
        code="env-non-finite",
        area=_FLEET,
        hold_s=15,
        summary="An env of a run gives values that are no numbers.",
    ),
    FindingAlert(
        code="env-non-finite-many",
        area=_FLEET,
        hold_s=15,
        summary="Many envs of a run give values that are no numbers.",
    ),
    FindingAlert(code="gpu-fault", area=_MACHINE, hold_s=15, summary="A GPU of a run reported a fault."),
    FindingAlert(
        code="host-memory",
        area=_MACHINE,
        hold_s=30,
        summary="A machine of a run is short of memory, or soon is.",
    ),
    FindingAlert(
        code="disk-full", area=_MACHINE, summary="The disk that a run writes to is full, or soon is."
    ),
    FindingAlert(code="thermal-throttle", area=_MACHINE, summary="A GPU is too hot to run at full speed."),
    FindingAlert(
        code="power-throttle", area=_MACHINE, summary="A GPU has too little power to run at full speed."
    ),
    FindingAlert(code="straggler", area=_MACHINE, summary="One lane is slow and the others wait for it."),
    FindingAlert(code="io-starvation", area=_MACHINE, summary="A run waits for its data."),
    FindingAlert(code="queue-starved", area=_MACHINE, summary="A learner waits for experience."),
    FindingAlert(code="weights-slow", area=_MACHINE, summary="A run waits for new weights to arrive."),
    FindingAlert(code="training-stalled", area=_RUN, summary="A rank of a run is stuck in one phase."),
    FindingAlert(
        code="checkpoints-stopped", area=_RUN, summary="A run goes on and no longer saves checkpoints."
    ),
    FindingAlert(code="producer-gone", area=_RUN, summary="A process left a run that goes on without it."),
    FindingAlert(
        code="throughput-regression",
        area=_RUN,
        hold_s=120,
        summary="A run is much slower than at its best.",
    ),
    FindingAlert(
        code="too-many-names", area=_RUN, summary="A run brings more envs or names than there is room for."
    ),
    FindingAlert(
        code="overlapping-writers", area=_RUN, summary="Two processes claim to be one rank of a run."
    ),
    FindingAlert(
        code="rollouts-starved", area=_RUN, summary="A trainer waits for rollouts that do not come."
    ),
    FindingAlert(code="rollouts-full", area=_RUN, summary="A rollouts service has no room for more."),
    FindingAlert(code="rollouts-stale", area=_RUN, summary="Rollouts of a run become too old to be used."),
    FindingAlert(
        code="rollouts-env-dead",
        area=_FLEET,
        summary="An environment of a rollouts service is silent beyond its lease.",
    ),
    FindingAlert(
        code="service-down",
        area=_RUN,
        hold_s=15,
        summary="A process that a run needs beside its trainer is gone.",
    ),
    FindingAlert(
        code="heartbeats-failing", area=_RUN, summary="No heartbeat of a learner reaches its orchestrator."
    ),
    FindingAlert(
        code="heartbeats-late", area=_RUN, hold_s=15, summary="An orchestrator gets no heartbeat of a run."
    ),
    FindingAlert(
        code="learner-stalled", area=_RUN, summary="A learner has taken no optimiser step for ten minutes."
    ),
    FindingAlert(
        code="learner-degraded", area=_RUN, summary="A learner goes on without a service that it needs."
    ),
    FindingAlert(code="replay-failing", area=_RUN, summary="Too many requests to replay fail."),
    FindingAlert(
        code="replay-gap",
        area=_RUN,
        hold_s=15,
        summary="Experience is missing after a learner resumed.",
    ),
    FindingAlert(
        code="weights-old", area=_RUN, summary="A learner has published no weights for five minutes."
    ),
    FindingAlert(
        code="actor-stale", area=_FLEET, summary="An actor acts with weights that are many versions old."
    ),
    FindingAlert(code="checkpoint-slow", area=_RUN, summary="Checkpoints take longer than a minute."),
    FindingAlert(
        code="checkpoint-stalled", area=_RUN, summary="No checkpoint of a run can be stored any more."
    ),
    FindingAlert(
        code="learning-rate-cut",
        area=_POLICY,
        hold_s=15,
        summary="Training cut its learning rate because numbers broke.",
    ),
    FindingAlert(
        code="rolled-back",
        area=_POLICY,
        hold_s=15,
        summary="Training went back to an older checkpoint because numbers broke.",
    ),
    FindingAlert(code="clock-ahead", area=_RUN, summary="A process's clock is ahead of the collector's."),
)


def alert_name(code: str) -> str:
    """The name of a code's alert.

    >>> alert_name("policy-collapse")
    'OverwatchPolicyCollapse'
    """
    return PREFIX + "".join(word.capitalize() for word in code.split("-"))


def alerted_rows() -> tuple[Metric, ...]:
    """Rows of the policy that have an alert of their own: those that the default preset judges."""
    return tuple(
        row for row in ROWS if row.scope is Scope.POLICY and (row.limits.warning or row.limits.critical)
    )


def row_alert(row: Metric) -> FindingAlert:
    """The alert of a row's finding."""
    return FindingAlert(
        code=row_code(row),
        area=Area.POLICY,
        summary=f"The policy metric {row.short} of a run is beyond its limit.",
        hold_s=ROW_HOLD_S,
    )


def reported_codes() -> tuple[str, ...]:
    """Codes of all findings that have an alert of their own."""
    return (NON_FINITE, *(alert.code for alert in (*FINDINGS, *map(row_alert, alerted_rows()))))
