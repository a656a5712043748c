"""One rank of three that is slow, from three processes through a real collector to what is shown."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overwatch.discovery import Endpoints
from overwatch.snapshot import Finding, Snapshot
from tests.e2e.collecting import collecting, snapshot_of, until

RUN = "three-ranks"
RANKS = 3
TRAINER = """
import os, sys, time
from pathlib import Path
import overwatch.sdk
endpoint, stop, slow = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
rank = int(os.environ["RANK"])
# So far apart that what a busy machine adds to every rank does not bring them together.
work_s, sync_s = (0.9, 0.02) if rank == slow else (0.1, 0.82)
if slow < 0:
    work_s, sync_s = 0.6, 0.01
run = overwatch.sdk.start(task="ant", n_envs=2, endpoint=endpoint, sample=False)
# A start costs the ranks that began before it: none works before all have started.
(stop.parent / f"started-{rank}").touch()
while len(list(stop.parent.glob("started-*"))) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.01)
update = 0
while not stop.exists():
    update += 1
    with run.phase("update"):
        time.sleep(work_s)
    with run.phase("sync"):
        time.sleep(sync_s)
    run.update(update=update, entropy=0.9)
    run.envs(step=update, env_id=[2 * rank, 2 * rank + 1], reward=[1.0, 2.0])
run.close(timeout=60)
"""

pytestmark = pytest.mark.timeout(180)


@contextmanager
def _training(folder: Path, slow: int) -> Iterator[Endpoints]:
    """Three ranks of a run, of which one may be slow, and the collector that receives them."""
    script, stop = folder / "train.py", folder / "stop"
    script.write_text(TRAINER)
    with collecting(folder) as endpoints:
        command = [sys.executable, str(script), endpoints.otlp_http or "", str(stop), str(slow)]
        ranks = [
            subprocess.Popen(
                command,
                env={**os.environ, "OVERWATCH_RUN_ID": RUN, "RANK": str(rank), "WORLD_SIZE": str(RANKS)},
                stdin=subprocess.DEVNULL,
            )
            for rank in range(RANKS)
        ]
        try:
            yield endpoints
        finally:
            stop.touch()
            codes = [rank.wait(90) for rank in ranks]
        assert codes == [0] * RANKS


def _straggler(snapshot: Snapshot | None, reported: str = "") -> Finding | None:
    found = () if snapshot is None else snapshot.findings
    return next(
        (finding for finding in found if finding.code == "straggler" and reported in finding.message), None
    )


def test_the_rank_that_others_wait_for_is_named(tmp_path: Path) -> None:
    """The finding names rank 2, with its update against that of the others, and both that wait once known."""
    with _training(tmp_path, slow=2) as endpoints:
        finding = until(lambda: _straggler(snapshot_of(endpoints, RUN), "2 ranks"), "a straggler", 90)
        snapshot = snapshot_of(endpoints, RUN)

    assert (finding.subject.id, finding.severity) == ("rank 2", "critical")
    assert re.fullmatch(r"straggler: update \S+ against \S+ \(rank 2\); 2 ranks wait", finding.message)
    assert snapshot is not None
    assert snapshot.run.ranks == RANKS
    assert len(snapshot.envs) == 2 * RANKS
    assert snapshot.system.bound is not None
    assert "rank 2" in (snapshot.system.bound.why or "")


def test_ranks_that_work_alike_are_not_accused(tmp_path: Path) -> None:
    """After twenty updates of each there is no straggler."""
    with _training(tmp_path, slow=-1) as endpoints:
        snapshot = until(
            lambda: (s := snapshot_of(endpoints, RUN)) and (s.run.update or 0) >= 20 and s, "20 updates", 90
        )

    assert _straggler(snapshot) is None
