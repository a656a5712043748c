"""What the collector's own page says about crowds: connections, and names beyond the caps of a run."""

import re
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families as plain_text

from overwatch.catalog import Scope
from overwatch.collector import Service
from overwatch.collector.telemetry import MOST_CAPPED, capped
from overwatch.events import Measured, scalars
from overwatch.serve.metrics_text import Text
from overwatch.serve.metrics_text import page as families_page
from overwatch.state.overflow import Overflow
from tests.overwatch.collector.running import eventually, http, run_started, running, told

ONE = "receivers.otlp.protocols.http.connections.max_connections=1"


def page(service: Service) -> str:
    """The collector's own metrics."""
    return http(f"{service.context.board.url('telemetry')}/metrics").body.decode()


def figure(service: Service, series: str) -> float | None:
    """One series of the page, `None` where it is not there."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", page(service), re.MULTILINE)
    return None if found is None else float(found[1])


def test_connections_are_counted_by_listener(tmp_path: Path) -> None:
    """Open ones, and those beyond the most; known at 0 from the start."""
    with running(tmp_path, ONE) as service:
        assert figure(service, 'overwatch_listener_connections{listener="otlp_http"}') == 0
        assert figure(service, 'overwatch_listener_turned_away_connections_total{listener="otlp_http"}') == 0
        for listener in ("otlp_grpc", "view", "health_check", "telemetry"):
            assert figure(service, f'overwatch_listener_cut_connections_total{{listener="{listener}"}}') == 0
        place = urlsplit(str(service.context.board.url("otlp_http")))
        address = (str(place.hostname), place.port or 0)
        with socket.create_connection(address):
            eventually(lambda: figure(service, 'overwatch_listener_connections{listener="otlp_http"}') == 1)
            with socket.create_connection(address) as second:
                assert second.recv(1) == b""
            away = 'overwatch_listener_turned_away_connections_total{listener="otlp_http"}'
            eventually(lambda: figure(service, away) == 1)


def test_names_beyond_a_cap_are_counted_and_named(tmp_path: Path) -> None:
    """The page says which run brought too many names, of what kind, and the first of them."""
    values = scalars({f"overwatch.custom.n{number:04}": 1.0 for number in range(300)})
    flood = Measured(at=time.time_ns(), scope=Scope.RUN, values=values)
    with running(tmp_path) as service:
        url = f"{service.context.board.url('otlp_http')}/v1/logs"
        body = told("run-flood", [run_started(), flood])
        assert http(url, body, content_type="application/x-protobuf").status == 200
        series = 'overwatch_tower_capped_total{rl_run_id="run-flood",kind="metric"}'
        eventually(lambda: figure(service, series) == 44)
        labels = 'rl_run_id="run-flood",kind="metric",name="overwatch.custom.n0256"'
        assert figure(service, f"overwatch_tower_offender_total{{{labels}}}") == 1


def test_only_the_worst_runs_are_listed() -> None:
    """The listing of what is too much is bounded, and a long name is cut."""
    runs = {f"run-{number:02}": Overflow() for number in range(40)}
    for number, overflow in enumerate(runs.values()):
        overflow.note("env", "x" * 500, number + 1)
    counts, names = plain_text(families_page(capped(runs), Text.PLAIN).decode())

    listed = [sample.labels["rl_run_id"] for sample in counts.samples]
    assert listed == [f"run-{number:02}" for number in reversed(range(40 - MOST_CAPPED, 40))]
    assert {len(sample.labels["name"]) for sample in names.samples} == {80}
