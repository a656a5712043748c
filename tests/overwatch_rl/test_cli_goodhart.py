"""The commands that look at one policy of goodhart."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.cli import main

TINY = ["--envs", "4", "--steps", "4", "--updates", "1", "--no-telemetry", "--log", "text", "--plan", "plain"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one of goodhart, one of another world."""
    folder = tmp_path_factory.mktemp("kept")
    for name, flags in (("a", ["--world", "goodhart:small"]), ("b", ["--slots", "1"])):
        result = CliRunner().invoke(main, ["train", *TINY, *flags, "--out", str(folder / name)])
        assert result.exit_code == 0, result.output
    return folder


def drawn(kept: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of drawing what the policy decides by."""
    result = CliRunner().invoke(main, ["saliency", *words])
    return result.exit_code, result.output


@pytest.mark.parametrize("of", ["action", "value"])
def test_saliency_is_a_picture_beside_the_view(kept: Path, tmp_path: Path, of: str) -> None:
    """Three parts of one size; the same seed gives the same picture, another one another."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pictures = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        file = tmp_path / f"{name}.png"
        words = (str(kept / "a"), "--out", str(file), "--of", of, "--states", "4", "--seed", str(seed))
        code, stated = drawn(kept, *words)
        assert (code, stated.startswith(f"wrote {file}; largest mean weight: row ")) == (0, True), stated
        pictures.append(file.read_bytes())
    with image.open(tmp_path / "one.png") as written:
        width, height = written.size

    assert width == 3 * height + 2 * 8
    assert (pictures[0] == pictures[1], pictures[0] == pictures[2]) == (True, False)


def test_what_cannot_be_drawn_is_a_usage_error(kept: Path, tmp_path: Path) -> None:
    """A world without a grid, an unknown format, a folder that is a file: each is named."""
    (tmp_path / "file").touch()
    board, other = str(kept / "a"), str(kept / "b")
    refused = {
        (other, str(tmp_path / "p.png")): "holds a policy of morphogenesis; name one of goodhart",
        (board, str(tmp_path / "p.none")): "p.none has no ending of a picture; name it e.g. p.png",
        (board, str(tmp_path / "file" / "p.png")): "file",
    }
    for (folder, out), error in refused.items():
        code, stated = drawn(kept, folder, "--out", out, "--states", "2")
        assert (code, error in " ".join(stated.split())) == (2, True), stated
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
