"""How far behind experience is, through resumes."""

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.learner.ancestry import Age, Ancestry


def test_in_one_life_age_is_the_difference_of_numbers() -> None:
    """The version of now has age 0."""
    first = Ancestry()

    assert first.version(7) == Version(1, 7)
    assert first.age(Version(1, 7), 7) == Age(0, is_abandoned=False)
    assert first.age(Version(1, 4), 7) == Age(3, is_abandoned=False)


def test_numbers_jump_at_a_resume_and_ages_do_not() -> None:
    """The checkpoint of update 10 goes on as number 16: what update 10 collected has age 0."""
    second = Ancestry().resumed(10, Version(2, 16))

    assert second.version(10) == Version(2, 16)
    assert second.version(12) == Version(2, 18)
    assert second.age(Version(1, 10), 10) == Age(0, is_abandoned=False)
    assert second.age(Version(1, 9), 12) == Age(3, is_abandoned=False)
    assert second.age(Version(2, 17), 12) == Age(1, is_abandoned=False)


def test_what_came_after_the_checkpoint_is_abandoned() -> None:
    """It is as old as the way back to the common weights and forward again, never of age 0."""
    second = Ancestry().resumed(10, Version(2, 16))

    assert second.age(Version(1, 13), 12) == Age(5, is_abandoned=True)
    assert second.age(Version(1, 11), 10) == Age(1, is_abandoned=True)


def test_a_life_without_a_checkpoint_is_abandoned_whole() -> None:
    """Life 2 ended before it saved; life 3 goes on from life 1."""
    third = Ancestry().resumed(10, Version(3, 30))

    assert third.age(Version(2, 20), 10) == Age(10, is_abandoned=True)
    assert third.age(Version(2, 30), 10) == Age(1, is_abandoned=True)
    assert Ancestry.of(third.kept()) == third
