"""A rule as it is configured, and as it is judged. Pure; must not know YAML."""

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from overwatch.catalog import Scope
from overwatch.diagnose.rules.where import UPDATED, Hold, RuleError, Term, hold_of, terms_of

__all__ = ["Rule", "RuleConfig", "Term"]

SEVERITIES: Final = ("critical", "warning", "info")
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
_HINT: Final = 300


class RuleConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `diagnosis.rules`. Raises `ValueError` for one that cannot be read."""

    name: str
    """What its findings are called: `rule-<name>`; lower case, digits and dashes."""
    where: str
    """When it is true, e.g. `policy.kl_divergence > 0.05 and policy.entropy < 0.2`."""
    hold: str | None = msgspec.field(default=None, name="for")
    """How long it must be: `30s`, `5 min`, `3 updates`; else 3 updates, or 2s where it is about machines."""
    severity: str = "warning"
    """`critical`, `warning` or `info`."""
    hint: str
    """What to do then: the runbook of its findings."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"rule name {self.name!r} has to be like slow-learner: a to z, 0 to 9 and -")
        if self.severity not in SEVERITIES:
            raise ValueError(
                f"rule {self.name}: severity {self.severity!r} is not one of {', '.join(SEVERITIES)}"
            )
        if not 0 < len(self.hint.strip()) <= _HINT:
            raise ValueError(f"rule {self.name}: hint has to say what to do, in 1 to {_HINT} characters")
        self.rule()

    def rule(self) -> "Rule":
        """The rule, ready to be judged; raises `ValueError`."""
        try:
            terms = terms_of(self.where)
            by_updates = all(term.scope in UPDATED for term in terms)
            hold = hold_of(self.hold or ("3 updates" if by_updates else "2s"), terms)
        except RuleError as error:
            raise ValueError(f"rule {self.name}: {error}") from None
        return Rule(
            name=self.name, terms=terms, hold=hold, severity=self.severity, hint=self.hint.strip()
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule that can be judged."""

    name: str
    terms: tuple[Term, ...]
    """All of them must hold."""
    hold: Hold
    severity: str
    hint: str

    @property
    def code(self) -> str:
        """The code of its findings."""
        return f"rule-{self.name}"

    @property
    def subject(self) -> Scope:
        """Of what there is a finding each: envs, lanes, or the run."""
        return next((term.scope for term in self.terms if term.scope in (Scope.ENV, Scope.GPU)), Scope.RUN)
