"""What was answered about ten recordings at the freeze is answered today, at the doors that users have."""

import gzip
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from overwatch.cli import main
from tests.e2e.collecting import LIMIT_S, collecting, until
from tests.overwatch.collector.running import http

GOLDEN: Final = Path(__file__).parents[1] / "golden"
ANSWERS: Final[dict[str, Any]] = json.loads((GOLDEN / "answers.json").read_text(encoding="utf-8"))
RUNS: Final = {run: answer["recording"] for run, answer in ANSWERS.items() if run != "compare"}
COUNTERS: Final = ("update", "updates", "episode", "steps", "n_envs", "ranks", "started", "outcome")
TEXTS: Final = ("label", "fmt", "unit")
CORRECTED: Final = {"overwatch_run_steps counter": "it was 0 where no program numbers steps; it is absent"}
Parser = Callable[[str], Iterable[Metric]]
Families = dict[str, set[str]]
PAGES: Final[tuple[tuple[str, str, Parser], ...]] = (
    ("prom", "text/plain", parse_text),
    ("openmetrics", "application/openmetrics-text; version=1.0.0", parse_openmetrics),
)
TIMES: Final = re.compile(r'"((?:observed|start)?[tT]imeUnixNano)":\s*"(\d+)"')


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ten recordings as an OpenTelemetry Collector's file exporter writes them."""
    folder = tmp_path_factory.mktemp("golden")
    for packed in (GOLDEN / "recordings").rglob("*.gz"):
        place = folder / packed.parent.name / packed.stem
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def _overwatch(*words: str) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def _numbers(node: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Every reading that has a value, by its place in the snapshot."""
    if isinstance(node, dict):
        value = node.get("value")
        if isinstance(value, int | float) and "status" in node:
            yield path, value
        for key, below in node.items():
            yield from _numbers(below, f"{path}/{key}")
    elif isinstance(node, list):
        for at, below in enumerate(node):
            name = below.get("id", below.get("name", at)) if isinstance(below, dict) else at
            yield from _numbers(below, f"{path}/{name}")


@pytest.mark.parametrize("run", RUNS)
def test_a_recording_replays_to_the_same_numbers(run: str, recordings: Path) -> None:
    """Each value of each snapshot is there, and what counts the run's progress."""
    lines = gzip.decompress((GOLDEN / f"snapshots-{run}.jsonl.gz").read_bytes()).decode().splitlines()
    result = _overwatch("replay", str(recordings / RUNS[run]), "--every", "10", "--run", run)
    now = {snapshot["time"]: snapshot for snapshot in map(json.loads, result.stdout.splitlines())}

    for before in map(json.loads, lines):
        after = now[before["time"]]
        values = dict(_numbers(after))
        differing = {path: (value, values.get(path)) for path, value in _numbers(before)}
        assert {path: pair for path, pair in differing.items() if pair[1] != pytest.approx(pair[0])} == {}
        counted = {name: before["run"][name] for name in COUNTERS if before["run"][name]}
        assert {name: after["run"][name] for name in counted} == counted
    assert lines


@pytest.mark.parametrize("run", RUNS)
def test_commands_end_with_the_same_status(run: str, recordings: Path) -> None:
    """`audit` passes and fails the same runs; `query` finds what it found; a frame is drawn."""
    asked = {key: answer for key, answer in ANSWERS[run].items() if key != "recording"}
    for answer in asked.values():
        place = str(recordings / RUNS[run])
        words = [place if word == "PATH" else word for word in answer["command"]]
        assert _overwatch(*words).exit_code == answer["exit"], words


def test_a_comparison_parts_the_same_numbers(recordings: Path) -> None:
    """The JSON of `compare` names what it named."""
    before = json.loads(ANSWERS["compare"]["stdout"])
    paths = [str(recordings / name) for name in ("healthy", "collapse")]
    after = json.loads(_overwatch("compare", *paths, "--format", "json").stdout)

    counted = ("run", "updates", "episodes", "steps", "seconds")
    assert [[run[key] for key in counted] for run in after["runs"]] == [
        [run[key] for key in counted] for run in before["runs"]
    ]
    assert before.keys() <= after.keys()


def _fetch(url: str) -> Any:
    """The answer in JSON; `None` while the recording is still being read."""
    reply = http(url)
    return None if reply.status == 503 else json.loads(reply.body)


@pytest.mark.parametrize("name", ["healthy", "collapse", "storm"])
def test_history_answers_the_same(name: str, recordings: Path) -> None:
    """A recording that is served answers its curves with the same values."""
    asked = json.loads((GOLDEN / f"history-{name}.json").read_text(encoding="utf-8"))
    path = next(path for path in asked if path.startswith("/api/v1/history"))
    command = [sys.executable, "-m", "overwatch.cli", "web", str(recordings / name), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            address = next(found[0] for line in lines if (found := re.search(r"http://127[^ /]+", line)))
            answer = until(lambda: _fetch(f"{address}{path}"), "the recording", LIMIT_S)
        finally:
            process.terminate()
    before, after = ({curve["name"]: curve for curve in made["curves"]} for made in (asked[path], answer))

    assert set(asked[path]["names"]) <= set(answer["names"])
    for curve, frozen in before.items():
        assert {key: after[curve][key] for key in frozen if key not in TEXTS} == {
            key: value for key, value in frozen.items() if key not in TEXTS
        }


def _families(text: str, parse: Parser) -> Families:
    """Names with types of a page, each with the names of its labels."""
    return {
        f"{family.name} {family.type}": {label for sample in family.samples for label in sample.labels}
        for family in parse(text)
    }


def test_the_prometheus_page_has_the_same_series(recordings: Path, tmp_path: Path) -> None:
    """Names, types and labels of two real programs' runs, in both formats."""
    sent = (recordings / "real/logs.jsonl", recordings / "real/metrics.jsonl")
    newest = max(int(time_ns) for path in sent for _, time_ns in TIMES.findall(path.read_text()))
    later = time.time_ns() - newest
    with collecting(tmp_path) as endpoints:
        for path in sent:
            for line in path.read_text().splitlines():
                moved = TIMES.sub(lambda found: f'"{found[1]}":"{int(found[2]) + later}"', line)
                url = f"{endpoints.otlp_http}/v1/{path.stem}"
                assert http(url, moved.encode(), content_type="application/json").status == 200
        for suffix, accept, parse in PAGES:
            before = _families((GOLDEN / f"metrics.{suffix}").read_text(encoding="utf-8"), parse)
            missing = partial(_missing, before, f"{endpoints.metrics}/metrics", accept, parse)
            until(lambda missing=missing: not missing(), f"the same series as {suffix}: {missing()}")


def _missing(before: Families, url: str, accept: str, parse: Parser) -> list[str]:
    """Series that the frozen page has and the page at a URL has not."""
    now = _families(http(url, accept=accept).body.decode(), parse)
    missing = {name for name, labels in before.items() if not labels <= now.get(name, {"absent"})}
    return sorted(missing - CORRECTED.keys())
