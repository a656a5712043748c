"""Frames made by the real fold from events, for the tests of what reads frames."""

from collections.abc import Iterable, Sequence

from overwatch.aggregator import Frame
from overwatch.catalog import Scope, find
from overwatch.events import Column, Event, Measured
from overwatch.fold import FAST_NS, Fold, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.snapshot import View
from overwatch.snapshot.heat import HeatMap, HeatQuery
from overwatch.snapshot.history import History, HistoryQuery
from tests import fakes
from tests.fakes import START_NS


class Frames:
    """A fold that receives events and makes frames, with a clock of its own."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._tick = next_tick(START_NS)
        self._sequence = 0
        self._seqs: dict[str, int] = {}

    def report(
        self,
        run_id: str,
        events: Sequence[Event],
        views: Iterable[tuple[str | None, View]] = (),
        *,
        service: str | None = None,
        epoch: str = "e1",
        ours: bool = True,
    ) -> Frame:
        """The frame after these events of one run, sent by one life of a service."""
        self._sequence += 1
        first = self._seqs.get(run_id, 1)
        self._seqs[run_id] = first + len(events)
        origin = fakes.Origin(run_id=run_id, epoch=epoch, ours=ours)
        namespace, _, name = (service or "").rpartition("/")
        owner = {"service.namespace": namespace, "service.name": name}
        body = request(
            fakes.records(events, origin, first), {key: word for key, word in owner.items() if word}
        )
        batch = Batch(sequence=self._sequence, stamp=self._tick, signal=Signal.LOGS, body=body)
        return self._advance([batch], views)

    def history(self, run_id: str | None, query: HistoryQuery) -> History | None:
        """The past of a run as of the newest frame."""
        return self._fold.history(run_id, query)

    def heat(self, run_id: str | None, query: HeatQuery) -> HeatMap | None:
        """Envs or lanes of a run over time, as of the newest frame."""
        return self._fold.heat(run_id, query)

    def skip(self, ticks: int, views: Iterable[tuple[str | None, View]] = ()) -> Frame:
        """The last of `ticks` frames without news; those before it are judged and not projected."""
        for _ in range(ticks - 1):
            self._fold.take(self._tick, [])
            self._tick += FAST_NS
        return self._advance([], views)

    @property
    def now(self) -> int:
        """Producer time of what is sent next, in Unix nanoseconds."""
        return self._tick

    def _advance(self, batches: Sequence[Batch], views: Iterable[tuple[str | None, View]]) -> Frame:
        frame = self._fold.advance(self._tick, batches, list(views))
        self._tick += FAST_NS
        return frame


def gpu(at: int, lane: str, **values: float) -> Measured:
    """One reading of one lane by short name."""
    keys = {"gpu_id": Column.of_labels([lane])}
    return Measured(at=at, scope=Scope.GPU, keys=keys, values=_columns(Scope.GPU, values))


def host(at: int, **values: float) -> Measured:
    """One reading of the host by short name."""
    return Measured(at=at, scope=Scope.HOST, values=_columns(Scope.HOST, values))


def _columns(scope: Scope, values: dict[str, float]) -> dict[str, Column]:
    rows = {short: find(short, scope) for short in values}
    return {row.name: Column.scalar(values[short]) for short, row in rows.items() if row is not None}


def busy_run(frames: Frames, run_id: str = "run-1", n_envs: int = 32) -> Frame:
    """A run with everything that a page can show."""
    at = frames.now
    ids = list(range(n_envs))
    return frames.report(
        run_id,
        [
            fakes.started(at, n_envs=n_envs, devices=("cuda:0",), slots=("r0c0",)),
            fakes.policy(at, 1, kl_divergence=0.0421, entropy=0.5, clip_fraction=0.1, my_own=7.0),
            fakes.envs(at, ids, 1, reward=[1.0] * n_envs, step_time=[0.01] * n_envs),
            fakes.slots(at, ids, ["r0c0"] * n_envs, ["training"] * n_envs),
            gpu(at, "cuda:0", utilization=0.93, temperature_c=71.0, power_w=310.0, ecc_uncorrected=2.0),
            host(at, cpu_utilization=0.4, ram_used_bytes=2.0e9),
            fakes.crashed(at, 3),
            fakes.non_finite(at, "overwatch.env.reward", (3,)),
        ],
    )
