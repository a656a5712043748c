"""A collapse of the policy goes on until it is over."""

from overwatch.diagnose.policy_findings import collapse_of
from overwatch.diagnose.problem import Problem


def _row(subject: str, severity: str = "warning") -> Problem:
    return Problem(
        code=f"policy-{subject}",
        severity=severity,
        scope="policy",
        subject=subject,
        at=1,
        message="m",
        hint="h",
    )


def test_one_better_update_is_no_recovery() -> None:
    """Rows that would not make a collapse keep one that stands; a single warning does not."""
    rows = [_row("clip_fraction"), _row("grad_norm"), _row("value_loss")]
    assert collapse_of(rows, [], falling=False) is None
    assert collapse_of(rows, [], falling=False, is_open=True) is not None
    assert collapse_of([_row("kl_divergence", "critical")], [], falling=False, is_open=True) is not None
    assert collapse_of([_row("clip_fraction")], [], falling=False, is_open=True) is None
