"""What the drawer shows of seeds that grow: numbers with their words, strips over time, the choice."""

from overwatch.catalog.stages import Stage
from overwatch.snapshot import Choice, Detail, Stay
from overwatch.tui.panels import growth
from overwatch.tui.text import cells, plain


def stay(time: float, stage: Stage) -> Stay:
    """A stage that was entered."""
    return Stay(time=time, stage=stage.value, glyph=stage.glyph)


def test_a_strip_shows_each_stage_as_long_as_it_lasted() -> None:
    """Blank before the first move; the last stage goes on until now; a line below names the window."""
    detail = Detail(env_id=1, lives={
        "r0c0": (stay(100.0, Stage.GERMINATED), stay(110.0, Stage.TRAINING)),
        "r0c1": (stay(115.0, Stage.GERMINATED),),
    })  # fmt: skip
    first, second, window = (plain(tuple(row)) for row in growth.lives(detail, 25, 120.0))
    glyphs = Stage.GERMINATED.glyph, Stage.TRAINING.glyph
    assert first == f"r0c0 {glyphs[0] * 9}{glyphs[1] * 11}"
    assert second == f"r0c1 {' ' * 14}{glyphs[0] * 6}"
    assert window.strip() == "20s until now"
    assert cells(first) == cells(second) == 25


def test_moves_of_one_moment_show_the_last() -> None:
    """Nothing is divided by no time."""
    detail = Detail(env_id=1, lives={"r0c0": (stay(5.0, Stage.PRUNED), stay(5.0, Stage.EMBARGOED))})
    assert Stage.EMBARGOED.glyph * 12 in plain(tuple(growth.lives(detail, 10, 5.0)[0]))


def test_numbers_have_their_words_and_unknown_ones_their_names() -> None:
    """In the order of the table; those that were not reported are not there."""
    detail = Detail(env_id=1, numbers={"rollbacks": 2, "host_loss": 0.5, "seed_share": 0.25, "odd": 3.0})
    assert growth.host(detail) == ["loss 0.500", "gradient to new seeds 25%", "set back 2 ×", "odd 3"]


def test_a_slot_shows_what_its_seed_adds() -> None:
    """Contribution first."""
    detail = Detail(env_id=1, slots={"r0c1": {"shapley": 0.018, "contribution": 0.021}})
    assert [plain(tuple(row)) for row in growth.adds(detail)] == ["r0c1 adds +0.021 · share +0.018"]


def test_a_choice_names_what_was_likeliest_beside_it() -> None:
    """Short words of operations; without alternatives the one alone; without a choice nothing."""
    sure = Choice(op="GERMINATE", probability=0.62)
    rest = Choice(op="WAIT", probability=0.3)
    shown = growth.choice(Detail(env_id=1, choice=(sure, rest)))
    assert [plain(tuple(row)) for row in shown] == ["GERM 62%  else WAIT 30%"]
    assert plain(tuple(growth.choice(Detail(env_id=1, choice=(sure,)))[0])) == "GERM 62%"
    assert growth.choice(Detail(env_id=1)) == []
