"""One agent's surroundings, as rows of text and as frames of a picture.

Rules: reads a view on the host, so it is for watching and not for the loop. Pillow is asked for only where
a file is written. Must not know policies or screens.

Shape letters: V rows and columns of the view.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from overwatch.output import output
from overwatch_rl.worlds.goodhart.cells import FOOD, POISON

AGENT: Final = "@"

_COLOURS: Final = (
    (24, 26, 32), (96, 96, 104), (64, 176, 96), (192, 64, 80), (224, 192, 96), (160, 96, 192),
)  # fmt: skip
_AGENT_COLOUR: Final = (96, 160, 240)
_CELL_PIXELS: Final = 16
_FRAME_MS: Final = 120
_LEAST: Final = 1e-30
"""Below which a weight counts as 0."""
_HEAT_COLOUR: Final = (255, 176, 48)
"""Of the largest weight."""


def legend(glyphs: str) -> str:
    """What the characters stand for, in one line; `glyphs`: those of the world's observations."""
    food, poison = glyphs[FOOD], glyphs[POISON]
    return f"{AGENT} agent  " + (f"{food} interesting" if food == poison else f"{food} food  {poison} poison")


def text(view: Tensor, glyphs: str) -> list[str]:
    """A row of characters for each row of the view (V V int8), as the agent sees it."""
    rows = [[glyphs[code] for code in row] for row in view.tolist()]
    rows[len(rows) // 2][len(rows) // 2] = AGENT
    return [" ".join(row) for row in rows]


def frame(view: Tensor) -> np.ndarray:
    """Rows x columns x RGB of bytes, from V V int8: always the truth."""
    palette = np.array(_COLOURS, dtype=np.uint8)
    pixels = palette[view.cpu().numpy()]
    pixels[len(pixels) // 2, len(pixels) // 2] = _AGENT_COLOUR
    return _enlarged(pixels)


def heat(weights: Tensor) -> np.ndarray:
    """A frame of V V weights, 0 or more: black for 0, the brighter the larger its share of the largest."""
    shares = (weights / weights.max().clamp(min=_LEAST)).cpu().numpy()[..., None]
    return _enlarged((shares * np.array(_HEAT_COLOUR)).round().astype(np.uint8))


def beside(frames: Sequence[np.ndarray]) -> np.ndarray:
    """Frames of one height as one, from left to right with a white line between."""
    line = np.full((len(frames[0]), _CELL_PIXELS // 2, 3), 255, dtype=np.uint8)
    parts = [part for pixels in frames for part in (line, pixels)][1:]
    return np.concatenate(parts, axis=1)


def write_picture(path: Path, pixels: np.ndarray) -> None:
    """Write one picture, in the format of the file's name; raises `ValueError` where it cannot be."""
    _save(path, _pillow(path).fromarray(pixels))


def write_gif(path: Path, frames: Sequence[np.ndarray]) -> None:
    """Write frames as a moving picture; raises `ValueError` where there are none or Pillow is missing."""
    if not frames:
        raise ValueError(f"{path} needs a frame or more")
    first, *rest = map(_pillow(path).fromarray, frames)
    _save(path, first, save_all=True, append_images=rest, duration=_FRAME_MS, loop=0)


def _save(path: Path, image: Any, **options: Any) -> None:
    """Write in the format of the file's name, which Pillow has where it can be read; raises `ValueError`."""
    kind = _pillow(path).registered_extensions().get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path} has no ending of a picture; name it e.g. {path.stem}.png")
    try:
        with output(path) as stream:
            image.save(stream, format=kind, **options)
    except OSError as error:
        raise ValueError(f"{error}; name another file") from error


def _enlarged(pixels: np.ndarray) -> np.ndarray:
    larger: np.ndarray = pixels.repeat(_CELL_PIXELS, axis=0).repeat(_CELL_PIXELS, axis=1)
    return larger


def _pillow(path: Path) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise ValueError(f"a picture as {path} needs Pillow; pip install pillow") from error
    return Image
