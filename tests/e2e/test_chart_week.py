"""A week on the chart's volume, as the chart sets the collector: never refused for lack of room."""

from pathlib import Path

import pytest

from overwatch.feeds.player import Player
from overwatch.feeds.recording import Recording
from overwatch.snapshot import View
from tests.e2e.chart_week import AT_ONCE, SHIFTS, Week, chart_settings, chart_values
from tests.e2e.test_collector_full_disk import mounted

SCALE = 80
"""The volume is so many times smaller than the chart's, so that what a collector works off in minutes fills
each part of it several times; it is the smallest in which every part has room to work."""
OF_MEMORY = 0.75
"""Of the pod's limit, as the collector finds it by itself in the pod."""
DAYS = 8
"""On the last one the runs of the first have been over for a week."""


def mib(quantity: str) -> int:
    """What Kubernetes calls e.g. 20Gi."""
    assert quantity.endswith("Gi"), quantity
    return int(quantity.removesuffix("Gi")) << 10


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_week_on_the_charts_volume_is_never_refused(tmp_path: Path) -> None:
    """Runs come and go, days pass, old numbers make room; every request is accepted at once."""
    values = chart_values()
    size = mib(values["persistence"]["size"]) // SCALE
    limit = round(mib(values["collector"]["resources"]["limits"]["memory"]) * OF_MEMORY)
    with mounted(tmp_path / "disk", size) as disk:
        week = Week(disk, f"receivers.otlp.limits.limit_mib={limit}", *chart_settings())
        for day in range(DAYS):
            week.live(day)
        player = Player(Recording(disk / "otlp"))
        player.seek(player.last)
        newest = week.ended[-AT_ONCE:]
        shown = [player.look(run_id, View()) for run_id in newest]
        left = {path.name.split("-")[0] for path in (disk / "otlp").glob("*.zst")}

    sent = week.sent >> 20
    print(f"volume {size} MiB, {sent} MiB in {week.requests} requests, {week.repeated} again, {week.most}")
    assert sent > size
    assert len(week.ended) == DAYS * SHIFTS * AT_ONCE
    assert [one.run.outcome for one in shown if one is not None] == ["completed"] * AT_ONCE
    assert left
    assert set(week.most.parts) == {"journal", "checkpoints", "otlp_file", "archive"}
    assert all(week.most.parts.values())
    assert week.most.share <= 1.0
    assert week.most.used < (size << 20) * 0.95
    assert 0 < week.most.rss <= limit << 20
