"""A program that is compiled again while it trains: each time the loop waits for the compiler. Pure."""

from itertools import pairwise
from typing import Final

from overwatch.catalog.compiling import RECOMPILES
from overwatch.diagnose.problem import UPDATES, Problem
from overwatch.state.run import RunState

LATELY: Final = 5
"""Updates that are looked at."""
MOSTLY: Final = 3
"""Of these with a recompile, from which it goes on and on."""


def recompiles(state: RunState) -> Problem | None:
    """Recompiles of the newest updates; a count that falls is another process's."""
    series = state.policy.get(RECOMPILES.name)
    newest = [] if series is None else [value for value in series.history.items if value is not None]
    with_one = sum(after > before for before, after in pairwise(newest[-LATELY - 1 :]))
    if series is None or not with_one:
        return None
    count, line = newest[-1], state.recompiled
    why = {} if line is None else line.fields
    reason = (f"{why.get('function', '')}: {why['reason']}",) if why.get("reason") else ()
    return Problem(
        code="recompiles",
        severity="warning" if with_one >= MOSTLY else "info",
        scope="policy",
        subject=RECOMPILES.short,
        at=series.at,
        message=(
            f"{count:.0f} recompile{'' if count == 1 else 's'} after warm-up, "
            f"in {with_one} of the last {LATELY} updates"
        ),
        hint="keep shapes and flags the same in each update, mark what changes as dynamic, or compile less",
        factors=reason,
        patience=UPDATES,
    )
