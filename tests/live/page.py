"""The docs' page about which real program makes each alert fire; `python -m tests.live.page` writes it."""

from pathlib import Path
from typing import Final

from overwatch.catalog.alerts import PREFIX
from tests.live.faults import COLLECTOR, LONG, PROOFS, WAITS
from tests.live.flying import FLIGHT

PAGE: Final = Path(__file__).parents[2] / "docs" / "diagnosis" / "alerts.md"
_HEAD: Final = """<!-- Written by `python -m tests.live.page` from tests/live/faults.py. -->
# What makes each alert fire

Each alert was made to fire by a real program in which its fault was planted: by the program's own flags,
its environment, or a signal; never by the simulator, and never by setting the number that is judged. Its
telemetry went into a real collector; what that recorded was folded, its page of runs was taken once a second,
and `promtool` evaluated the shipped rules on it. Since these programs last seconds, the rules' holds (`for:`)
and the windows that follow from a run's length are divided by sixty there; limits and the holds of findings
are as shipped. `make long` runs them, with a program without a fault beside them, of which nothing fires, and
`make test` a sample; those that are marked *minutes* are judged over minutes.

## Runs

| alert | program | fault |
|---|---|---|
"""
_COLLECTOR: Final = """
## The collector

A collector with these faults at once, scraped by a real Prometheus, while six trainers report to it; it is
killed at the end.

| alert | fault |
|---|---|
"""
_WAITS: Final = """
## Not shown here

| alert | waits for |
|---|---|
"""


def text() -> str:
    """The page."""
    rows = {
        alert: f"`{_program(proof.program.module)}`{' *minutes*' if proof in LONG else ''} | {proof.fault}"
        for proof in (*PROOFS, *LONG)
        for alert in proof.alerts
    }
    waits = WAITS | {name: one.fault for name, one in COLLECTOR.items() if not one.is_planted}
    planted = {name: one.fault for name, one in COLLECTOR.items() if one.is_planted}
    return _HEAD + _table(rows) + _COLLECTOR + _table(planted) + _WAITS + _table(waits)


def _program(module: str) -> str:
    if module == FLIGHT:
        return "overwatch-rl train"
    return module.replace(".", "/") + ".py"


def _table(rows: dict[str, str]) -> str:
    return "".join(f"| `{PREFIX}{alert}` | {row} |\n" for alert, row in sorted(rows.items()))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
