"""How runs are judged: the configuration, and what is made of it once.

An unknown name is an error with those that are known; the same configuration judges the same way, live and
in a replay. Must not know where a configuration comes from, or YAML.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from overwatch.diagnose.anomaly import Anomalies, Plugin, load_plugins, plugin_names
from overwatch.diagnose.factor import AnomalyLimits
from overwatch.diagnose.problem import Problem
from overwatch.state.run import RunState


class DiagnosisConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`diagnosis`. Raises `ValueError` for weights below 0."""

    anomaly: AnomalyLimits = AnomalyLimits()
    """When an env stands out, and how much each factor weighs."""
    plugins: dict[str, float] = {}
    """Weights of installed factors of others, by name; 0 turns one off, 1 where it is not named."""

    def __post_init__(self) -> None:
        for name, weight in self.plugins.items():
            if not weight >= 0:
                raise ValueError(f"weight of plugin {name} is {weight}; it must be 0 (off) or above")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """A configuration, ready to judge with."""

    limits: AnomalyLimits = field(default_factory=AnomalyLimits)
    plugins: tuple[Plugin, ...] = ()
    broken: dict[str, str] = field(default_factory=dict)
    """Plugins that cannot be loaded, with the reason."""


def judging(config: DiagnosisConfig) -> Judging:
    """What a configuration means on this machine."""
    found, broken = load_plugins(config.plugins)
    return Judging(limits=config.anomaly, plugins=found, broken=broken)


def failed_factors(state: RunState, how: Judging, anomalies: Anomalies) -> Iterator[Problem]:
    """Which factors of others failed."""
    failed = {**how.broken, **anomalies.off}
    if failed:
        stated = ", ".join(f"{name} ({reason})" for name, reason in sorted(failed.items()))
        yield Problem(
            code="factor-off",
            at=state.first_at,
            message=f"installed factors failed: {stated}",
            hint="envs are judged without it in this run; report it to its author, or set its weight to 0",
        )


def unknown(config: DiagnosisConfig) -> Iterator[tuple[str, str]]:
    """What a configuration names and this machine does not have, as (path, what is wrong and what to do)."""
    there = plugin_names()
    for name in sorted(config.plugins.keys() - there):
        yield f"diagnosis.plugins.{name}", f"no installed plugin gives this; there is {', '.join(there)}"
