"""Each row of the rollouts service is emitted by its real server: not by a call written for a test.

The program is `overwatch-rl rollouts`; a trainer and environments of this test use it over HTTP until all
that it counts has happened once. What it reported is read where it arrives.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from overwatch.catalog import Scope, of_scope
from overwatch.events import Measured, Tallied
from tests.overwatch.collector.running import eventually
from tests.overwatch.sdk.sink import Sink, http_sink
from tests.overwatch_rl.rollouts.serving import ENV, TRAINER, group

END_S: Final = 60.0
EXPLICIT: Final = {"Overwatch-Lease": "1"}


@contextmanager
def _server(endpoint: str) -> Iterator[Callable[..., Any]]:
    """The real program with short leases; what asks it."""
    flags = ["--listen", "127.0.0.1:0", "--durability", "memory", "--run-id", "live", "--endpoint", endpoint,
             "--lease-s", "1", "--max-staleness", "1"]  # fmt: skip
    command = [sys.executable, "-m", "overwatch_rl.cli", "rollouts", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3].rstrip(",")

        def query(path: str, body: object = None, headers: dict[str, str] | None = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(url + path, data, headers or {})  # noqa: S310 its own address
            try:
                with urllib.request.urlopen(request, timeout=END_S) as reply:  # noqa: S310 as above
                    return json.load(reply)
            except urllib.error.HTTPError as error:
                with error:
                    return json.load(error)

        yield query
        process.terminate()
        assert process.wait(END_S) == 0
    finally:
        process.kill()
        process.communicate()


def _names(sink: Sink) -> set[str]:
    """Rows that came."""
    counted = {one.metric for event in sink.events(Tallied) for one in event.series}
    return counted | {name for event in sink.events(Measured) for name in event.values}


def test_every_row_of_the_rollouts_service_is_emitted_by_its_server() -> None:
    """Groups accepted, refused, expired, served, served again; an environment that is asked to rest."""
    with http_sink() as sink, _server(sink.endpoint) as query:
        query("/register", TRAINER)
        query("/batch", headers=EXPLICIT)
        query("/register-env", ENV)
        good = [group(first=first, version={"lineage": 0, "number": 0}) for first in range(6)]
        query("/scored_data_list", [*good, group(first=9, scores=["x", 1.0])])
        first = query("/batch", headers=EXPLICIT)
        assert first["lease"]
        again = eventually(
            lambda: (
                (got := query("/batch", headers=EXPLICIT)).get("batch")
                and any(item["redelivered"] for item in got["items"])
                and got
            )
        )
        query(f"/lease/{again['lease']['id']}/ack", {})
        eventually(lambda: "overwatch.rollouts.data_age" in _names(sink))
        query("/admit", {"env_id": 0, "groups": 99})
        query("/version", {"lineage": 0, "number": 50})
        assert query("/batch", headers=EXPLICIT)["batch"] is None
        wanted = {row.name for row in of_scope(Scope.ROLLOUTS)}
        eventually(lambda: "overwatch.rollouts.expired" in _names(sink))

    assert wanted - _names(sink) == set()
    assert {record.origin.role for record in sink.records()} == {"rollouts"}
