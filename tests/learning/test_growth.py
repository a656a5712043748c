"""What was kept of trained policies that grow networks: bars hold, the page is what they came to."""

import pytest

from tests.learning import growth


@pytest.fixture(scope="module")
def kept() -> growth.Results:
    """What was kept."""
    return growth.read()


def test_every_bar_holds_of_what_was_kept(kept: growth.Results) -> None:
    """Each of five seeds is ahead of waiting, of chance and of the best fixed schedule."""
    assert [one.seed for one in kept.seeds] == list(growth.SEEDS)
    assert kept.failures() == []


def test_it_is_of_the_recipe_of_today(kept: growth.Results) -> None:
    """A preset that changes has to be trained again."""
    assert kept.recipe == growth.recipe()


def test_the_page_is_what_it_came_to(kept: growth.Results) -> None:
    """Page and picture are drawn from it."""
    assert growth.PAGE.read_text(encoding="utf-8") == growth.page(kept)
    assert (growth.DOCS / "learning-growth.svg").read_text(encoding="utf-8") == growth.drawn(kept)


def test_a_policy_that_is_behind_fails(kept: growth.Results) -> None:
    """One that only waits is not ahead of waiting."""
    one = kept.seeds[0]
    waits = growth.Grown(
        seed=one.seed, curve=one.curve, played=one.played | {"trained": one.played["random"]}
    )
    spoilt = growth.Results(recipe=kept.recipe, seeds=[waits])
    assert any("over best schedule" in words for words in spoilt.failures())


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_new_trainings_hold_every_bar() -> None:
    """All five seeds, trained anew."""
    seeds = [growth.grow(seed) for seed in growth.SEEDS]
    assert growth.Results(recipe=growth.recipe(), seeds=seeds).failures() == []
