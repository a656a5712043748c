"""A week of a collector as the chart runs it: a life a day, and runs that come and go in each."""

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import yaml

from overwatch.catalog import Scope
from overwatch.discovery import Endpoints
from overwatch.events import Column, Event, Measured
from overwatch.fold import SLOW_NS
from tests import fakes
from tests.e2e.collecting import snapshot_of, until
from tests.e2e.quarter import resident
from tests.e2e.test_left_checkpoints import Reported, living
from tests.overwatch.collector.running import http
from tests.real.helm.charts import CHART, objects, rendered

DAY_NS: Final = 86_400 * SLOW_NS
ENVS: Final = 128
AT_ONCE: Final = 3
"""Runs of a day that live together, beside the one that lives all week."""
_OF_THE_POD: Final = ("endpoint", "address", "tokens", "tls")
"""Keys that name the pod's own network and secrets."""
_LOOK_S: Final = 0.1
SHIFTS: Final = 2
"""A day."""
STEPS: Final = 100
"""Updates of each run in a shift, some 40 KB each."""
_IN_MEMORY_DAYS: Final = 7
"""So long a run that is over stays there, as shipped."""
_SPEED: Final = 2
"""Time goes by so much faster, and jumps to the next day between two lives."""
_NUMBERS: Final = ("reward", "return", "metric", "rent", "step_time")
_STEPS_OF_UPDATE: Final = 8
_PACE_S: Final = 0.005
"""Between two requests: some megabytes a second at most, which the collector works off."""
_TOO_SLOW: Final = b"you sent more of it than others"
"""In the answer to who is to wait until what waits is worked off."""
_PART: Final = re.compile(r'^overwatch_storage_part_bytes\{part="([^"]+)"\} (\S+)$', re.MULTILINE)
_BUDGET: Final = re.compile(r"^overwatch_storage_max_bytes (\S+)$", re.MULTILINE)


def chart_settings() -> tuple[str, ...]:
    """What the chart's defaults set of a collector, but for where it listens and who may connect."""
    kept = objects(rendered(CHART / "ci/default-values.yaml").read_text())
    texts = (one["data"].get("collector.yaml") for one in kept if one["kind"] == "ConfigMap")
    (text,) = (text for text in texts if text is not None)
    return tuple(_flat(yaml.safe_load(text)))


def chart_values() -> dict[str, Any]:
    """The chart's values."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


def _flat(section: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in section.items():
        if key in _OF_THE_POD:
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}={json.dumps(value)}"


@dataclass(slots=True, kw_only=True)
class Measures:
    """The most that was seen."""

    rss: int = 0
    used: int = 0
    """Bytes on the volume."""
    share: float = 0.0
    """Of all parts, of their budget."""
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes by part."""


class Watch:
    """Looks at a life from outside until it is left."""

    def __init__(self, endpoints: Endpoints, disk: Path, most: Measures) -> None:
        self._endpoints, self._disk, self._most = endpoints, disk, most
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        looks = 0
        while not self._stopping.wait(_LOOK_S):
            self._most.rss = max(self._most.rss, resident(self._endpoints.pid))
            self._most.used = max(self._most.used, shutil.disk_usage(self._disk).used)
            looks += 1
            if looks % 10 == 0:
                self._look_at_parts()

    def _look_at_parts(self) -> None:
        page = http(f"{self._endpoints.telemetry}/metrics").body.decode()
        parts = {name: int(float(size)) for name, size in _PART.findall(page)}
        most = _BUDGET.search(page)
        for name, size in parts.items():
            self._most.parts[name] = max(self._most.parts.get(name, 0), size)
        if most is not None:
            self._most.share = max(self._most.share, sum(parts.values()) / float(most[1]))


class Trainer(Reported):
    """A run whose numbers do not pack."""

    repeated = 0
    """Requests that were not accepted at once."""
    sent = 0
    """Bytes that were accepted."""

    def begin(self, endpoints: Endpoints) -> None:
        """Emit the first event."""
        self.emit(endpoints, fakes.started(self.now, n_envs=ENVS, devices=("gpu0", "gpu1")))

    def step(self, endpoints: Endpoints, chance: np.random.Generator) -> None:
        """Emit one update, with the steps of the envs in it."""
        self.updates += 1
        at, ids = self.now, Column.of(np.arange(ENVS, dtype=np.int32))
        events: list[Event] = [
            *(
                Measured(
                    at=at + step,
                    scope=Scope.ENV,
                    keys={"env_id": ids},
                    values={f"overwatch.env.{name}": Column.of(chance.random(ENVS)) for name in _NUMBERS},
                    index=self.updates,
                )
                for step in range(_STEPS_OF_UPDATE)
            ),
            fakes.policy(at, self.updates, kl_divergence=0.01, entropy=float(chance.random())),
        ]
        if self.updates % 8 == 0:
            ended = chance.choice(ENVS, size=ENVS // 8, replace=False).tolist()
            events.append(fakes.ended(at, ended, chance.normal(10.0, 1.0, len(ended)).tolist()))
        self.emit(endpoints, *events)

    def deliver(self, endpoints: Endpoints, body: bytes) -> None:
        """Send a request; where the machine is too slow for it, again: that is no lack of room."""
        url, kind = f"{endpoints.otlp_http}/v1/logs", "application/x-protobuf"

        def is_accepted() -> bool:
            reply = http(url, body, "POST", content_type=kind)
            assert reply.status == 200 or (reply.status == 503 and _TOO_SLOW in reply.body), reply.body
            self.repeated += reply.status != 200
            return reply.status == 200

        until(is_accepted, "a request to be accepted", 120)
        self.sent += len(body)

    def end(self, endpoints: Endpoints) -> None:
        """Emit the last event."""
        self.emit(endpoints, fakes.finished(self.now))


class Week:
    """Days, each a life of a collector on one volume; every request must be accepted."""

    def __init__(self, disk: Path, *sets: str) -> None:
        self.most = Measures()
        self.requests = self.repeated = self._sent = 0
        self.ended: list[str] = []
        """Runs that are over, the newest last."""
        self._disk, self._sets = disk, sets
        self._chance = np.random.default_rng(7)
        self._first = time.time_ns()
        self._lasting = Trainer("all-week", self._first, _SPEED)

    @property
    def sent(self) -> int:
        """Bytes that were accepted."""
        return self._sent + self._lasting.sent

    def live(self, day: int) -> None:
        """One day."""
        began = self._began(day)
        self._lasting.began = began
        with (
            living(self._disk, began, *self._sets, every=None, speed=_SPEED) as endpoints,
            Watch(endpoints, self._disk, self.most),
        ):
            if day == 0:
                self._lasting.begin(endpoints)
            for shift in range(SHIFTS):
                self._work(endpoints, began, f"day-{day}-shift-{shift}")
            self._check(endpoints, day)

    def _began(self, day: int) -> int:
        """What makes the time of a life that begins now be of a day."""
        wanted = self._first + day * DAY_NS
        return (_SPEED * time.time_ns() - wanted) // (_SPEED - 1)

    def _work(self, endpoints: Endpoints, began: int, name: str) -> None:
        """Runs that begin, live and end together, beside the one that lives on."""
        runs = [Trainer(f"{name}-{number}", began, _SPEED) for number in range(AT_ONCE)]
        for run in runs:
            run.begin(endpoints)
        for _ in range(STEPS):
            for run in (self._lasting, *runs):
                run.step(endpoints, self._chance)
                self.requests += 1
                time.sleep(_PACE_S)
        for run in runs:
            self._check_living(endpoints, run)
            run.end(endpoints)
            self.repeated += run.repeated
            self._sent += run.sent
            self.ended.append(run.run_id)

    def _check_living(self, endpoints: Endpoints, run: Trainer) -> None:
        """It is judged as of what it emitted last, with all its envs."""

        def judged() -> bool:
            shown = snapshot_of(endpoints, run.run_id)
            if shown is None or shown.run.update != run.updates:
                return False
            assert shown.run.outcome is None
            return sum(shown.board.counts.values()) == ENVS

        until(judged, f"{run.run_id} to be judged", 120)

    def _check(self, endpoints: Endpoints, day: int) -> None:
        """At the end of a day what was over is over, and the collector is ready.

        Of what has left memory the archive keeps what its small share of the volume holds.
        """
        self._check_living(endpoints, self._lasting)
        for run_id in self.ended[max(0, day + 1 - _IN_MEMORY_DAYS) * SHIFTS * AT_ONCE :]:
            until(lambda run_id=run_id: _is_over(endpoints, run_id), f"the end of {run_id}", 120)  # type: ignore[misc] # bound now
        until(lambda: http(str(endpoints.health)).status == 200, "the collector to be well", 120)


def _is_over(endpoints: Endpoints, run_id: str) -> bool:
    shown = snapshot_of(endpoints, run_id)
    return shown is not None and shown.run.outcome == "completed"
