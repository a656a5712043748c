"""A window of a tenth of a second: fewer records, nothing lost that somebody reads."""

import msgspec

from overwatch.catalog import KL
from overwatch.events import Conflated, Measured, PhaseEnded
from overwatch.sdk.exporter.window import BURST, RATE, SECOND_NS, Window
from overwatch.sdk.frames import Update
from tests import fakes
from tests.fakes import START_NS

KL_NAME = KL.name


def _update(index: int, kl: float) -> Measured:
    return fakes.policy(START_NS + index, index=index, kl_divergence=kl, entropy=0.5)


def test_one_measurement_goes_through_as_it_is() -> None:
    """Nothing is conflated that came alone."""
    window = Window()
    window.add(_update(1, 0.01))
    assert window.take().numbers == (_update(1, 0.01),)


def test_each_update_of_a_burst_is_a_record_and_those_beyond_are_folded_and_counted() -> None:
    """A second later so many more are records; what was folded shows its breaches."""
    window = Window()
    for index in range(BURST + 20):
        window.add(_update(index, {BURST + 7: 0.2, BURST + 9: 0.02}.get(index, 0.001)))
    passed = window.take()
    *single, event = passed.numbers
    assert single == [_update(index, 0.001) for index in range(BURST)]
    assert passed.counted_numbers == BURST + 20
    assert (event.index, event.values[KL_NAME].first()) == (BURST + 19, 0.001)
    reported = event.conflated
    assert reported is not None
    assert (reported.n, reported.updates, reported.first) == (20, 20, BURST)
    assert (reported.low[KL_NAME].first(), reported.high[KL_NAME].first()) == (0.001, 0.2)
    assert (reported.criticals[KL_NAME], reported.warnings[KL_NAME]) == (1, 1)

    later = event.at + SECOND_NS
    for index in range(RATE + 5):
        window.add_update(Update(at=later, values={KL_NAME: 0.01}, index=2000 + index), size=0)
    counted = [event.updates(None) for event in window.take().numbers if isinstance(event, Measured)]
    assert (len(counted), sum(counted)) == (RATE + 1, RATE + 5)


def test_what_was_conflated_before_counts_fully() -> None:
    """A record that stands for several stays as it is, in its place."""
    window = Window()
    reported = msgspec.structs.replace(_update(3, 0.002), conflated=Conflated(n=3, first=1, updates=3))
    window.add(_update(0, 0.05))
    window.add(reported, counted=3)
    passed = window.take()
    assert passed.numbers == (_update(0, 0.05), reported)
    assert passed.counted_numbers == 4


def test_columns_of_the_same_envs_merge_and_others_stay_apart() -> None:
    """A column that only some steps report keeps its newest value."""
    window = Window()
    window.add(fakes.envs(START_NS, [0, 1], index=1, reward=[1.0, 2.0], metric=[0.1, 0.2]))
    window.add(fakes.envs(START_NS + 1, [0, 1], index=2, reward=[3.0, 4.0]))
    window.add(fakes.envs(START_NS + 2, [5], index=2, reward=[9.0]))
    both, other = window.take().numbers
    assert both.index == 2
    assert both.conflated == Conflated(n=2, first=1)
    assert both.values["overwatch.env.reward"].array().tolist() == [3.0, 4.0]
    assert both.values["overwatch.env.metric"].array().tolist() == [0.1, 0.2]
    assert other.keys["env_id"].array().tolist() == [5]


def test_steps_of_a_rollout_are_emitted_at_the_rate_of_steps_that_come_as_they_are_taken() -> None:
    """They come at once: of each tenth of a second in which they were taken one record, with how many."""
    window = Window()
    for step in range(100):
        at = START_NS + step * 30_000_000
        window.add(fakes.envs(at, [0, 1], index=step, reward=[step, 0.0]), is_rolled=True)
    passed = window.take().numbers
    assert len(passed) == 25
    assert [event.at - START_NS for event in passed][:3] == [90_000_000, 210_000_000, 330_000_000]
    assert all(event.conflated is not None and event.conflated.n == 4 for event in passed)
    assert [event.index for event in passed][:2] == [3, 7]


def test_a_change_of_stage_is_never_conflated_away() -> None:
    """Training, pruned, dormant within a tenth of a second are three records."""
    window = Window()
    for number, stage in enumerate(("training", "training", "pruned", "dormant")):
        window.add(fakes.slots(START_NS + number, [0], ["r0c0"], [stage]))
    stages = [event.values["overwatch.slot.stage"].words() for event in window.take().numbers]
    assert stages == [["training"], ["pruned"], ["dormant"]]


def test_facts_stay_in_order_and_are_never_conflated() -> None:
    """Two equal facts are two facts."""
    window = Window()
    facts = [PhaseEnded(at=START_NS, phase="update", duration_s=0.5)] * 2
    for fact in facts:
        window.add(fact)
    window.add(PhaseEnded(at=START_NS, phase="sync", duration_s=0.1), counted=0)
    passed = window.take()
    assert [fact.phase for fact in passed.facts if isinstance(fact, PhaseEnded)] == [
        "update",
        "update",
        "sync",
    ]
    assert passed.counted_facts == 2
