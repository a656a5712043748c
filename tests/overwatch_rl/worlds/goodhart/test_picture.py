"""What a person sees of one agent's surroundings."""

import sys
from pathlib import Path

import pytest
import torch

from overwatch_rl.worlds.goodhart.cells import FOOD, MODES, POISON, glyphs
from overwatch_rl.worlds.goodhart.picture import beside, frame, heat, legend, text, write_gif, write_picture

VIEW = torch.zeros(5, 5, dtype=torch.int8)
VIEW[0, 4], VIEW[3, 1] = FOOD, POISON


def test_text_is_the_view_with_the_agent_in_the_middle() -> None:
    """Rows downwards, columns to the right."""
    assert text(VIEW, glyphs(MODES["ground_truth"])) == [
        "· · · · o",
        "· · · · ·",
        "· · @ · ·",
        "· x · · ·",
        "· · · · ·",
    ]
    assert legend(glyphs(MODES["ground_truth"])) == "@ agent  o food  x poison"


def test_to_a_proxy_agent_food_and_poison_look_alike() -> None:
    """One sign for both, and one word."""
    rows = text(VIEW, glyphs(MODES["proxy"]))

    assert (rows[0][-1], rows[3][2]) == ("o", "o")
    assert legend(glyphs(MODES["proxy"])) == "@ agent  o interesting"


def test_a_frame_has_a_colour_a_kind() -> None:
    """Square cells, three bytes each pixel, food, poison, agent and ground apart."""
    pixels = frame(VIEW)
    colours = {
        tuple(pixels[row * 16 + 8, column * 16 + 8]) for row, column in ((0, 4), (3, 1), (2, 2), (0, 0))
    }

    assert (pixels.shape, str(pixels.dtype)) == ((80, 80, 3), "uint8")
    assert len(colours) == 4


def test_without_pillow_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is needed for the file alone."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"agent\.gif needs Pillow; pip install pillow"):
        write_gif(tmp_path / "agent.gif", [frame(VIEW)])


def test_a_moving_picture_needs_a_frame(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(ValueError, match=r"agent\.gif needs a frame or more"):
        write_gif(tmp_path / "agent.gif", [])


def test_frames_become_a_gif(tmp_path: Path) -> None:
    """As many pictures as there are frames, of their size."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    other = VIEW.clone()
    other[1, 1] = FOOD
    write_gif(tmp_path / "agent.gif", [frame(VIEW), frame(other)])

    with image.open(tmp_path / "agent.gif") as written:
        assert (written.size, written.n_frames) == ((80, 80), 2)


def test_heat_is_the_share_of_the_largest_weight() -> None:
    """Black where nothing weighs, also where nothing does anywhere."""
    weights = torch.zeros(5, 5)
    weights[1, 2], weights[3, 3] = 2.0, 1.0
    pixels = heat(weights).astype(int)
    largest, half = pixels[1 * 16 + 8, 2 * 16 + 8], pixels[3 * 16 + 8, 3 * 16 + 8]

    assert pixels.shape == (80, 80, 3)
    assert abs(2 * half - largest).max() <= 1
    assert largest.max() == 255
    assert pixels.reshape(-1, 3).any(axis=1).sum() == 2 * 16 * 16
    assert not heat(torch.zeros(5, 5)).any()


def test_frames_lie_beside_each_other() -> None:
    """With a white line between, none at the edges."""
    joined = beside([frame(VIEW), heat(torch.zeros(5, 5))])

    assert joined.shape == (80, 168, 3)
    assert (joined[:, 80:88] == 255).all()
    assert (joined[:, :80] == frame(VIEW)).all()


def test_a_picture_names_the_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what to install."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ValueError, match=r"view\.png needs Pillow; pip install pillow"):
        write_picture(tmp_path / "view.png", frame(VIEW))
