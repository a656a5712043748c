"""A trainer that tells updates of several kinds in turns has a function for each of them."""

import pytest

from overwatch.sdk.rings.ringset import RingSet
from overwatch.sdk.rings.written import MAX_CHAIN
from tests.overwatch.sdk.rings.test_fast import Trainer, values_of

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture
def trainer(rings: RingSet) -> Trainer:
    """A trainer whose short way is new."""
    return Trainer(rings)


def test_updates_of_several_kinds_keep_their_functions(trainer: Trainer) -> None:
    """Told in turns, as a trainer and its evaluation do, none goes the general way any more."""
    kinds: list[dict[str, float]] = [{"kl": 1.0}, {"loss": 2.0, "kl": 3.0}, {"eval": 4.0}, {"loss": 5.0}]
    for _ in range(4):
        for kind in kinds:
            trainer.update(**kind)
    assert trainer.written == len(kinds)
    uses = {names: known.uses for names, known in trainer.fast._known.items() if known}
    trainer.said()
    for index in range(300):
        trainer.update(update=index, **kinds[index % len(kinds)])
        assert values_of(trainer.said()) == [{f"full.{k}": v for k, v in kinds[index % len(kinds)].items()}]
    assert {names: known.uses for names, known in trainer.fast._known.items() if known} == uses
    assert trainer.written == len(kinds)


def test_of_more_kinds_than_functions_all_arrive(trainer: Trainer) -> None:
    """However many take turns: no function asks more than a few others."""
    for index in range(400):
        kind = f"kind{index * 7 % 9}"
        trainer.update(update=index, **{kind: 1.5})
        assert values_of(trainer.said()) == [{f"full.{kind}": 1.5}]
    assert len(trainer.fast._chained) <= MAX_CHAIN
