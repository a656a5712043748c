"""The shape of an alert rule, with the series that its tests are made of."""

from dataclasses import dataclass

from overwatch.catalog.alerts import Area, alert_name
from overwatch.catalog.runbooks import ALL, Runbook, runbook
from overwatch.generate.rules.series import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert rule."""

    code: str
    """Names the alert, its runbook and its finding."""
    area: Area
    severity: str = "warning"
    expr: str
    hold_s: int
    summary: str
    more: str = ""
    """What follows the runbook's first words in the description."""
    word: str = ""
    """What follows the code in the name, where several alerts have one."""
    by: tuple[str, ...] = ("rl_run_id",)
    """Labels of what fires."""
    bad: tuple[Input, ...]
    """Series that make it true from the first evaluation on, but for `lead` of them."""
    good: tuple[Input, ...]
    """The same series when nothing is wrong."""
    lead: int = 0
    """Evaluations before there is enough to see."""
    fires_without_data: bool = False

    @property
    def name(self) -> str:
        """The alert's name."""
        return alert_name(self.code) + self.word

    @property
    def description(self) -> str:
        """What it means, for the run or job that it fires of."""
        owner = "Run {{ $labels.rl_run_id }}" if "rl_run_id" in self.by else "Job {{ $labels.job }}"
        return f"{owner}: {self._book.means}" + (f" {self.more}" if self.more else "")

    @property
    def runbook(self) -> str:
        """How to confirm it and what to do."""
        return f"Confirm: {self._book.confirm} Do: {self._book.act}"

    @property
    def _book(self) -> Runbook:
        text = ALL.get(self.code) or runbook(self.code)
        if text is None:
            raise LookupError(f"{self.code} has no runbook; write one in overwatch.catalog.runbooks")
        return text

    @property
    def run(self) -> str:
        """Id of the run that its tests are about."""
        return self.code.replace("-", "_")

    def inputs(self, *, bad: bool) -> tuple[Input, ...]:
        """Series of its tests."""
        return tuple(one.of(self.run) for one in (self.bad if bad else self.good))
