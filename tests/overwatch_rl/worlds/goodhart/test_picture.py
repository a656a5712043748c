"""What a person sees of one agent's surroundings."""

import sys
from pathlib import Path

import pytest
import torch

from overwatch_rl.worlds.goodhart.cells import FOOD, MODES, POISON, glyphs
from overwatch_rl.worlds.goodhart.picture import frame, legend, text, write_gif

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
