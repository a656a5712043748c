"""Shapes that come again are learned; those that do not cost little."""

import random

from overwatch.journal import Signal
from overwatch.otlp.decode import decode
from overwatch.otlp.lengths import LEARN_AT, MORE_SELDOM, MOST_LENGTHS, MOST_OF_ONE
from overwatch.otlp.templates import Templates
from tests.overwatch.otlp.test_template import T, fleet

METRICS = Signal.METRICS


def body(envs: int = 100, export: int = 0, name: str = "") -> bytes:
    """One export of a fleet; of a name that is as long as others, another shape."""
    request = fleet(envs, T + export * 10**9, 1.5 + export)
    if name:
        request.resource_metrics[0].resource.attributes[1].value.string_value = name
    return request.SerializeToString()


def learned(templates: Templates, **given: object) -> None:
    """Let a shape come until it is known."""
    for export in range(LEARN_AT):
        assert templates.read(METRICS, body(export=export, **given)) is None  # type: ignore[arg-type]
        templates.study(METRICS, body(export=export, **given))  # type: ignore[arg-type]


def test_a_shape_is_learned_when_it_came_a_few_times() -> None:
    """From then on it is read as the general path reads it."""
    templates = Templates()
    learned(templates)
    later = body(export=7)
    assert templates.read(METRICS, later) == decode(METRICS, later)
    assert templates.learned == 1


def test_other_signals_and_small_bodies_are_nobodys_shape() -> None:
    """They are left to the general path."""
    templates = Templates()
    for _ in range(LEARN_AT + 1):
        templates.study(Signal.LOGS, body())
        templates.study(METRICS, body(envs=1))
    assert templates.read(Signal.LOGS, body()) is None
    assert templates.learned == 0


def test_bodies_of_one_length_that_are_never_alike_are_learned_ever_more_seldom() -> None:
    """A stream that never repeats costs a few templates, however long it is."""
    templates, dice = Templates(), random.Random(1)  # noqa: S311 reproducible
    request = fleet(40)
    points = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    for _ in range(LEARN_AT * MORE_SELDOM**3):
        for point, env in zip(points, dice.sample(range(40), 40), strict=True):
            point.attributes[0].value.int_value = env
        templates.study(METRICS, request.SerializeToString())
    assert templates.learned == 4


def test_clients_of_one_length_have_a_template_each() -> None:
    """Up to a few; the one that fitted last stays."""
    templates = Templates()
    names = [f"client-{number}" for number in range(MOST_OF_ONE + 1)]
    for name in names:
        for export in range(LEARN_AT * MORE_SELDOM ** (len(names))):
            if templates.read(METRICS, body(export=export, name=name)) is not None:
                break
            templates.study(METRICS, body(export=export, name=name))
    known = [name for name in names if templates.read(METRICS, body(export=9, name=name)) is not None]
    assert known == names[1:]


def test_memory_is_bounded() -> None:
    """Templates that were not used for longest go first, and lengths are not counted for ever."""
    least = Templates()
    learned(least)
    some = Templates(most_bytes=400_000)
    for envs in (100, 200, 300, 400):
        learned(some, envs=envs)
    assert some.learned == 4
    assert some.read(METRICS, body(envs=100)) is None
    assert some.read(METRICS, body(envs=400)) is not None
    for length in range(MOST_LENGTHS + 10):
        some.study(METRICS, bytes(5000 + length))
    assert some.read(METRICS, body(envs=400)) is None
