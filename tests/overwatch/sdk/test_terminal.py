"""What a trainer's own terminal shows of its run."""

import io
import sys
from pathlib import Path

import pytest

import overwatch.sdk
from overwatch import discovery
from overwatch.sdk.terminal import VARIABLE
from tests.overwatch.collector.running import running
from tests.overwatch.sdk.sink import http_sink
from tests.overwatch.sdk.test_link import run_script


@pytest.fixture(autouse=True)
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without the variable, which all other tests have."""
    monkeypatch.delenv(VARIABLE, raising=False)


def lines(text: str) -> list[str]:
    """Those of ours."""
    return [line.removeprefix("overwatch: ") for line in text.splitlines() if line.startswith("overwatch: ")]


def test_a_run_prints_where_it_reports_and_a_card_of_what_the_collector_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines at the start and five at the end, on the error stream, with the end in them."""
    with running(tmp_path) as service:
        discovery.write(service.endpoints)
        run = overwatch.sdk.start(run_id="r", sample=False)
        assert lines(capsys.readouterr().err) == [
            f"run r reports to {service.endpoints.otlp_http}",
            "watch it: overwatch tui --run r",
        ]
        for update in range(3):
            run.update(update=update, return_=8.5 - update, kl_divergence=0.01)
            assert run.flush(60.0)
        assert run.close(60.0, outcome="failed", reason="no\x1b[31m more").delivered
    shown = capsys.readouterr()
    how, returned, stood, time, look = lines(shown.err)
    assert how.startswith("run r failed after 3 updates, ")
    assert "\x1b" not in shown.err
    assert returned.split() == ["return", "+6.500,", "best", "+8.500", "at", "update", "0"]
    assert stood.split() == ["problems", "no", "other"]
    assert "run.phase" in time
    assert look.split() == ["look", "overwatch", "report", str(tmp_path / "otlp"), "--run", "r"]
    assert shown.out == ""


def test_what_no_collector_took_is_counted_with_the_commands_that_send_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The exporter logs that the collector is away, once; the card names how much waits."""
    run = overwatch.sdk.start(run_id="r", endpoint="http://127.0.0.1:9", sample=False)
    run.log("kept")
    run.flush(8.0)
    report = run.close(1.0)
    shown = lines(capfd.readouterr().err)
    away = [line for line in shown if "does not take telemetry" in line]
    assert len(away) == 1
    assert "overwatch sync" in away[0]
    assert f"  kept    {report.kept:,} records wait on disk: http://127.0.0.1:9 did not take them" in shown
    assert shown[-1] == "  send    overwatch collect receives them, overwatch sync sends them"


@pytest.mark.parametrize("how", ["argument", "variable", "rank"])
def test_a_run_that_is_asked_to_be_quiet_prints_nothing(
    how: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor does its exporter of a collector that is away; another rank than the first is quiet by itself."""
    if how == "variable":
        monkeypatch.setenv(VARIABLE, "1")
    run = overwatch.sdk.start(
        run_id="r", endpoint="http://127.0.0.1:9", sample=False, quiet=how == "argument",
        rank=1 if how == "rank" else 0,
    )  # fmt: skip
    run.log("kept")
    run.flush(1.0)
    run.close(1.0)
    assert capfd.readouterr().err == ""


def test_a_worker_prints_nothing() -> None:
    """What multiprocessing starts is a part of a program that prints for itself."""
    with http_sink() as sink:
        done = run_script(f"""
            import multiprocessing, overwatch.sdk
            def work():
                run = overwatch.sdk.start(run_id="w", endpoint={sink.endpoint!r}, sample=False)
                run.log("1")
                assert run.close(30.0).delivered
            worker = multiprocessing.get_context("fork").Process(target=work)
            worker.start()
            worker.join()
            assert worker.exitcode == 0
        """)
    assert lines(done.stderr) == []


class _Broken(io.TextIOBase):
    def write(self, _: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise ValueError("closed")


@pytest.mark.parametrize("stream", [None, _Broken()])
def test_an_error_stream_that_takes_nothing_costs_the_lines_alone(
    stream: io.TextIOBase | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program without one, as under pythonw, trains and reports as ever."""
    with http_sink() as sink:
        monkeypatch.setattr(sys, "stderr", stream)
        run = overwatch.sdk.start(run_id="r", endpoint=sink.endpoint, sample=False)
        run.log("1")
        assert run.close(30.0).delivered
