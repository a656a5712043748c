"""Which runs of the archive go."""

from overwatch.serve.keeping import Limits, beyond
from overwatch.snapshot import RunLine

DAY_S = 86_400.0
NOW_S = 100 * DAY_S


def line(run_id: str, days: float, outcome: str | None = "completed") -> RunLine:
    """One run that was put away so many days ago."""
    return RunLine(
        run_id=run_id, newest=False, state="ended", outcome=outcome, severity="ok", text="", archived=True,
        time=NOW_S - days * DAY_S,
    )  # fmt: skip


KEPT = [(line("d", 1), 10), (line("b", 3), 10), (line("a", 3), 10), (line("c", 2), 10)]


def gone(limits: Limits) -> list[tuple[str, str]]:
    """What goes, in order."""
    return [*beyond(KEPT, limits, NOW_S)]


def test_without_limits_nothing_goes() -> None:
    """As shipped."""
    assert gone(Limits()) == []


def test_the_oldest_go_first_and_those_of_one_moment_by_their_ids() -> None:
    """By each limit alone, whatever the order in which they are given."""
    assert gone(Limits(bytes=15)) == [("a", "bytes"), ("b", "bytes"), ("c", "bytes")]
    assert gone(Limits(runs=1)) == [("a", "count"), ("b", "count"), ("c", "count")]
    assert gone(Limits(days=1.5)) == [("a", "age"), ("b", "age"), ("c", "age")]
    assert gone(Limits(days=3)) == []
    assert gone(Limits(runs=3, bytes=25)) == [("a", "count"), ("b", "bytes")]
