"""Whoever shows or counts stages follows the one table of them."""

from overwatch.analyse import report_time
from overwatch.catalog.bounds import ROWS, Colour
from overwatch.catalog.stages import TRANSITIONS, Life, Stage, Tone, of_life
from overwatch.simulate import seeds
from overwatch.tui.grammar import stage_role


def test_every_stage_has_facets_and_a_place_in_a_life() -> None:
    """No stage is left out, and none is in two."""
    assert sorted(stage.code for life in Life for stage in of_life(life)) == list(range(len(Stage)))
    assert set(TRANSITIONS) == set(Stage)
    assert all(stage.facets.glyph and stage.facets.ascii.isascii() for stage in Stage)


def test_every_tone_is_drawn_by_the_terminal_and_the_report() -> None:
    """A tone that one of them does not know would hide a stage."""
    assert {stage.facets.tone for stage in Stage} == set(Tone)
    assert len({stage_role(stage) for stage in Stage}) == len(Tone)
    assert set(report_time.TONES) == set(Tone)


def test_the_simulator_knows_how_every_stage_ends_that_does_not_last() -> None:
    """A slot that grows or is cleaned up goes on to a stage that may follow."""
    for stage in of_life(Life.GROWING, Life.CLEANING):
        assert seeds.WAYS[stage].onward in stage.facets.onward


def test_every_verdict_has_a_colour_of_the_report() -> None:
    """And no colour of the legend is without a verdict."""
    assert {row.colour for row in ROWS} == set(Colour)
