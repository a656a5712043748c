"""Whose limits judge a run: its own word, or the collector's."""

import msgspec
import pytest

from overwatch.collector.exporters.aggregator import AggregatorConfig
from overwatch.events import Event
from overwatch.fold import FAST_NS, Fold, LifeStarted, next_tick
from overwatch.journal import Batch, Signal
from overwatch.otlp.encode import request
from overwatch.snapshot import Snapshot
from tests import fakes
from tests.fakes import START_NS


class Tower:
    """A fold with lives and a run, tick by tick."""

    def __init__(self, fold: Fold | None = None) -> None:
        self.fold = fold or Fold()
        self._tick = next_tick(START_NS)
        self._stated = 0

    def live(self, preset: str | None) -> None:
        """A life of a collector begins."""
        life = LifeStarted(version="1", pid=1, config_digest="d", preset=preset)
        self._take(Signal.START, msgspec.json.encode(life))

    def report(self, *events: Event) -> Snapshot:
        """The run's snapshot after these events."""
        body = request(fakes.records(events, fakes.ORIGIN, self._stated + 1), {})
        self._stated += len(events)
        self._take(Signal.LOGS, body)
        return self.snapshot

    def _take(self, signal: Signal, body: bytes) -> None:
        batch = Batch(sequence=1, stamp=self._tick, signal=signal, body=body)
        frame = self.fold.advance(self._tick, [batch], [])
        self._tick += FAST_NS
        if frame.snapshots:
            (self.snapshot,) = frame.snapshots.values()


def test_a_run_states_itself_whose_limits_judge_it() -> None:
    """A gradient norm of 7 is beyond the original's absolute limit, and beyond no median of its own."""
    tower = Tower()
    tower.live(None)
    plain = tower.report(fakes.started(START_NS), fakes.policy(START_NS, 1, grad_norm=7.0))
    original = Tower().report(
        fakes.started(START_NS, preset="esper"), fakes.policy(START_NS, 1, grad_norm=7.0)
    )

    assert (plain.run.preset, plain.policy["grad_norm"].status) == ("ppo", "ok")
    assert (original.run.preset, original.policy["grad_norm"].status) == ("esper", "warning")


def test_the_collector_may_set_it_for_all_runs() -> None:
    """Also for one that is there already and one that states another; a later life may leave it to them."""
    tower = Tower()
    tower.report(fakes.started(START_NS, preset="grpo"))
    tower.live("esper")
    reported = tower.report(fakes.policy(START_NS, 1, grad_norm=7.0))
    assert (reported.run.preset, reported.policy["grad_norm"].status) == ("esper", "warning")

    tower.live(None)
    assert tower.report(fakes.policy(START_NS, 2, grad_norm=7.0)).run.preset == "grpo"


def test_what_the_collector_set_outlives_a_restart() -> None:
    """A checkpoint keeps it, for runs that come later too."""
    tower = Tower()
    tower.live("esper")
    again = Tower(Fold.load(tower.fold.dump()))

    assert again.report(fakes.started(START_NS)).run.preset == "esper"


def test_an_algorithm_chooses_the_preset_where_none_is_given() -> None:
    """Over the wire, without a word about presets; one that is given wins."""
    chosen = [
        Tower().report(fakes.started(START_NS, algo=algo, preset=given)).run.preset
        for algo, given in (("GRPO", None), ("ppo_continuous_action", None), ("dqn", None), ("grpo", "esper"))
    ]

    assert chosen == ["grpo", "ppo-continuous", "ppo", "esper"]


def test_the_same_kl_is_too_much_in_every_preset() -> None:
    """What the record of KL fixes, no preset moves."""
    for preset in ("ppo", "ppo-continuous", "grpo", "esper"):
        tower = Tower()
        tower.live(preset)
        words = [tower.report(fakes.policy(START_NS, n, kl_divergence=kl)).policy["kl_divergence"].status
                 for n, kl in enumerate((0.015, 0.0151, 0.03, 0.0301), start=1)]  # fmt: skip
        assert words == ["ok", "warning", "warning", "critical"]


def test_a_preset_that_is_none_is_no_configuration() -> None:
    """The error names the one that was meant."""
    with pytest.raises(ValueError, match="did you mean 'esper'"):
        AggregatorConfig(preset="espr")
