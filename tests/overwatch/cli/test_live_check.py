"""`overwatch catalog live-check`."""

import gzip
import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from overwatch.cli import main
from overwatch.cli.live_check import ListeningError, listen
from overwatch.events import EnvCrashed, Origin, Record
from overwatch.journal import Signal
from overwatch.otlp import wire
from overwatch.otlp.encode import request
from overwatch.otlp.jsonl import to_json
from tests.fakes import START_NS


def _run(*arguments: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["catalog", "live-check", *arguments], input=given)


def _body() -> bytes:
    origin = Origin(run_id="r", epoch="e", ours=True)
    return request([Record(origin=origin, event=EnvCrashed(at=START_NS, env_id=3, error="boom"), seq=1)], {})


def test_a_simulated_run_is_emitted_in_registered_names_only(tmp_path: Path) -> None:
    """No violation, and every name that is emitted is in the registry; faults included."""
    out = tmp_path / "run"
    faults = ("--fault", "crash-storm@4", "--fault", "cull-storm@6", "--fault", "nan@8")
    size = ("--gpus", "2", "--envs", "4", "--seconds", "12", "--out", str(out))
    made = CliRunner().invoke(main, ["simulate", *size, *faults])
    assert made.exit_code == 0, made.output

    result = _run(str(out), "--format", "json")

    report = json.loads(result.stdout)
    assert (result.exit_code, report["findings"], report["registered_share"]) == (0, [], 1.0)
    assert report["items"]["log records"] > 300


def test_lines_of_standard_input_are_checked_and_bad_ones_counted() -> None:
    """Status 1 where something breaks the registry, and it is named."""
    good = to_json(Signal.LOGS, _body())
    bad = good.replace(b"overwatch.env_crashed", b"my.crash")

    result = _run("-", given=b"\n".join([good, bad, b"{}", b"garbage", b'{"resourceLogs": 3}']))

    assert result.exit_code == 1
    assert "event my.crash: no event of the registry is called so (missing_event, 1 times)" in result.output
    assert "3 lines or batches could not be read" in result.output


def test_what_fails_can_be_chosen() -> None:
    """`--fail-on none` only reports."""
    bad = to_json(Signal.LOGS, _body()).replace(b"overwatch.env_crashed", b"my.crash")

    assert _run("-", "--fail-on", "none", given=bad).exit_code == 0


@pytest.mark.parametrize("place", ["/no/such/file", "-", "http://127.0.0.1", "grpc://x:y"])
def test_what_holds_no_telemetry_is_reported_in_one_line(place: str) -> None:
    """Status 2, and what to give instead."""
    result = _run(place, "--seconds", "0.1", given=b"nothing")

    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert place in result.output


def test_a_folder_without_a_recording_is_reported(tmp_path: Path) -> None:
    """As every other command on recordings reports it."""
    result = _run(str(tmp_path))

    assert result.exit_code == 2
    assert "holds nothing that can be replayed" in result.output


def _post(url: str, body: bytes, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    requested = urllib.request.Request(url, body, named)  # noqa: S310 our own loopback server
    try:
        with urllib.request.urlopen(requested, timeout=10) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)


def test_otlp_is_received_over_http() -> None:
    """Protobuf, JSON and gzip; what is none of them is refused."""
    received: list[wire.Request] = []
    with listen("http://127.0.0.1:0", received.append) as place:
        url = f"{place}/v1/logs"
        proto = "application/x-protobuf"
        assert _post(url, _body(), Content_Type=proto) == 200
        assert _post(url, gzip.compress(_body()), Content_Type=proto, Content_Encoding="gzip") == 200
        assert _post(url, to_json(Signal.LOGS, _body()), Content_Type="application/json") == 200
        assert _post(url, b"\xff", Content_Type=proto) == 400
        assert _post(url, b"{", Content_Type="application/json") == 400
        assert _post(url, b"not gzip", Content_Type=proto, Content_Encoding="gzip") == 400
        assert _post(url, b"", Content_Type="text/plain") == 415
        assert _post(f"{place}/v1/nothing", b"", Content_Type=proto) == 404

    assert [type(one).__name__ for one in received] == ["ExportLogsServiceRequest"] * 3


def test_otlp_is_received_over_grpc() -> None:
    """Any client's Export; a body that is none is an invalid argument."""
    received, came = [], threading.Event()

    def take(one: wire.Request) -> None:
        received.append(one)
        came.set()

    with listen("grpc://127.0.0.1:0", take) as place:  # noqa: SIM117 the channel needs the place
        with grpc.insecure_channel(place.removeprefix("grpc://")) as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.logs.v1.LogsService/Export")
            assert export(_body(), timeout=10) == b""
            with pytest.raises(grpc.RpcError) as refused:
                export(b"\xff", timeout=10)
    assert came.is_set()
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_busy_port_is_reported() -> None:
    """With what to do."""
    with listen("http://127.0.0.1:0", lambda _: None) as place:  # noqa: SIM117
        with pytest.raises(ListeningError, match="use another port"), listen(place, lambda _: None):
            pass
