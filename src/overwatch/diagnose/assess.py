"""`assess`: from state to judgement, once per fast tick; owns all memory over time.

Ranks with hysteresis and findings with their first moment live here, in `Assessment`, which is part of a
checkpoint. Pure: the previous assessment comes in, the next goes out.
"""

from dataclasses import dataclass

import msgspec

from overwatch.diagnose.anomaly import Anomalies, AnomalyLimits, score_envs
from overwatch.diagnose.findings import Open, follow, problems
from overwatch.diagnose.fleet import fleet_of
from overwatch.diagnose.link import LinkJudgement, judge_link
from overwatch.diagnose.ranking import rank
from overwatch.state.arrays import Floats, Ints, decode_hook, encode_hook, floats, ints
from overwatch.state.run import RunState


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives a tick."""

    tick: int = 0
    order: Ints = msgspec.field(default_factory=lambda: ints(0))
    """Env rows, worst first."""
    held: Floats = msgspec.field(default_factory=lambda: floats(0))
    """The score each env is ranked by."""
    findings: dict[str, Open] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An assessment with what only this tick's projection needs."""

    assessment: Assessment
    anomalies: Anomalies
    link: LinkJudgement


def assess(state: RunState, previous: Assessment, tick: int, limits: AnomalyLimits | None = None) -> Judged:
    """Judge one run at `tick` (Unix ns on the stamp clock)."""
    limits = limits or AnomalyLimits()
    fleet = fleet_of(state)
    anomalies = score_envs(fleet, limits)
    link = judge_link(state, tick)
    order, held = rank(anomalies.scores, previous.held, previous.order)
    findings = follow(previous.findings, problems(state, fleet, anomalies, link, limits), tick)
    return Judged(
        assessment=Assessment(tick=tick, order=order, held=held, findings=findings),
        anomalies=anomalies,
        link=link,
    )


def dump(assessment: Assessment) -> bytes:
    """The assessment as bytes, for a checkpoint."""
    return msgspec.msgpack.encode(assessment, enc_hook=encode_hook)


def load(data: bytes) -> Assessment:
    """The assessment from `dump`'s bytes."""
    return msgspec.msgpack.decode(data, type=Assessment, dec_hook=decode_hook)
