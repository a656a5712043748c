"""Any numbers of any updates: nothing raises, and judging on from a checkpoint ends in the same bytes."""

import math
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overwatch import codec
from overwatch.catalog import Scope
from overwatch.diagnose import Assessment, assess
from overwatch.diagnose.assess import dump, load
from overwatch.events import CurriculumChanged, EarlyStopped, Event, FindingAcknowledged, NonFiniteSeen
from overwatch.projection import project
from overwatch.snapshot import View
from overwatch.state import apply
from overwatch.state import dump as dump_state
from overwatch.state import load as load_state
from tests import fakes
from tests.fakes import SECOND, START_NS

ROWS = (
    "kl_divergence", "clip_fraction", "entropy", "explained_variance", "value_loss", "grad_norm", "return",
    "ratio_max", "ratio_min", "kl_k1",
)  # fmt: skip
ANY = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, 1e308, -1e308, 5e-324])
LEVELS = st.floats(0.001, 100.0)
VALUES = st.fixed_dictionaries({}, optional=dict.fromkeys(ROWS, LEVELS | ANY))
STRETCHES = st.lists(st.tuples(st.integers(1, 30), VALUES, st.booleans()), min_size=1, max_size=6)
"""So many updates alike, and whether each is half as large again as the one before it."""
FACTS = st.sampled_from(["stop", "task", "nan", "ack", None, None])


def _events(
    stretches: Sequence[tuple[int, dict[str, float], bool]], facts: Sequence[str | None]
) -> list[Event]:
    reported: list[Event] = [fakes.started(START_NS)]
    number = 0
    for (length, values, grows), fact in zip(stretches, facts, strict=False):
        for i in range(length):
            number += 1
            factor = 1.02**i if grows else 1.0
            now = {name: value * factor for name, value in values.items()}
            reported.append(fakes.policy(START_NS + number * SECOND, index=number, **now))
        reported += _fact(fact, number)
    return reported


def _fact(word: str | None, number: int) -> list[Event]:
    at = START_NS + number * SECOND
    match word:
        case "stop":
            return [
                EarlyStopped(
                    at=at, update=number, epoch=1, kl_divergence=0.02, target=0.015, minibatches_skipped=1
                )
            ]
        case "task":
            return [CurriculumChanged(at=at, name="level")]
        case "nan":
            return [NonFiniteSeen(at=at, scope=Scope.POLICY, metric="loss", kind="nan")]
        case "ack":
            return [FindingAcknowledged(at=at, finding="policy-kl-divergence:policy:kl_divergence")]
    return []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STRETCHES, st.lists(FACTS, min_size=6, max_size=6), st.integers(0, 100))
def test_any_updates_are_judged_and_judged_on_alike(
    stretches: list[tuple[int, dict[str, float], bool]], facts: list[str | None], cut: int
) -> None:
    """Straight through and through a checkpoint: the same bytes; every view goes over the wire."""
    records = fakes.records(_events(stretches, facts))
    state, resumed = fakes.folded([records[0].event]), fakes.folded([records[0].event])
    straight, reloaded = Assessment(), Assessment()
    for number, record in enumerate(records[1:]):
        stamp = record.event.at + 1_000_000
        apply(state, record, stamp)
        straight = assess(state, straight, stamp).assessment
        apply(resumed, record, stamp)
        reloaded = assess(resumed, reloaded, stamp).assessment
        if number == cut % len(records):
            resumed, reloaded = load_state(dump_state(resumed)), load(dump(reloaded))
    snapshot = project(state, assess(state, straight, state.last_stamp), View())

    assert dump(reloaded) == dump(straight)
    assert dump_state(resumed) == dump_state(state)
    assert codec.decode(codec.encode(snapshot)) == snapshot
