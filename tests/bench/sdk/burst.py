"""Facts all at once: none is lost, none comes twice, and the account states it."""

import statistics
from collections import Counter
from pathlib import Path

from overwatch.events import LogLine
from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from tests.bench.sdk.collectors import recorded
from tests.bench.sdk.emitters import WARM
from tests.bench.sdk.host import Cores, collector, worker
from tests.bench.sdk.stats import Goals, emit

FACTS = 20_000
WITHIN_S = 0.16
WAIT_S = 30.0


def measure(rounds: int, folder: Path, cores: Cores, goals: Goals) -> None:
    """Measure and print so many bursts of one trainer."""
    place = folder / "burst"
    out = place / "arrived"
    place.mkdir(parents=True)
    took: list[float] = []
    dropped: dict[str, int] = {}
    with (
        collector("recording", cores, 0, out) as endpoint,
        worker("overwatch", endpoint, place, cores) as one,
    ):
        assert one is not None
        for _ in range(rounds):
            reported = one.wanted("burst", call="fact", calls=FACTS, wait_s=WAIT_S)
            took.append(reported["took"] / 1e9)
            dropped = reported["dropped"]
            if not reported["delivered"]:
                emit(f"not delivered within {WAIT_S:.0f} s")
    came = Counter(
        message
        for _, body in recorded(out)
        for record in decode(Signal.LOGS, body).records
        if isinstance(record.event, LogLine) and record.event.subsystem == "burst"
        for message in [str(record.event.fields.get("index"))]
    )
    came.subtract(str(i) for i in range(WARM))
    least, most = min(came.values(), default=0), max(came.values(), default=0)
    emit(
        f"{rounds} bursts of {FACTS} facts in {statistics.median(took):.3f} s (worst {max(took):.3f} s); "
        f"of each number {least} to {most} arrived; dropped: {dropped or 'none'}"
    )
    lost = sum(max(rounds - came[str(i)], 0) for i in range(FACTS))
    goals.most(f"burst of {FACTS} facts, seconds, median", statistics.median(took), WITHIN_S, " s")
    goals.most("burst, facts lost", lost, 0)
    goals.most("burst, facts that came twice", sum(came.values()) - rounds * FACTS + lost, 0)
    goals.most("burst, lost facts that the account does not name", abs(lost - sum(dropped.values())), 0)
