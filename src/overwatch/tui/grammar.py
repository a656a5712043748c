"""One grammar for small things: glyphs, chips, sparklines, numbers, durations, statuses, key=value pairs.

Pure functions from a part of a snapshot to text; the screens and `--format text` share them. Every glyph is
one cell wide, and `to_ascii` has a one-cell stand-in for each, so that a frame keeps its shape.
Must not know panels, widths of the terminal, or colours.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from enum import Enum
from typing import Final

from overwatch.catalog import Stage, parse_stage
from overwatch.catalog.chips import CODE, LABEL, code_of, labelled
from overwatch.catalog.durations import duration
from overwatch.catalog.figures import PREFIXES
from overwatch.catalog.figures import no_zero as no_zero  # noqa: PLC0414 a part of this grammar
from overwatch.catalog.figures import number as number  # noqa: PLC0414 as before
from overwatch.catalog.stages import Tone
from overwatch.snapshot import Slot
from overwatch.tui.text import Role, Span, cells, clean, cut, left

_BEYOND: Final = 1e15
ABSENT: Final = "–"
BARS: Final = "▁▂▃▄▅▆▇█"

_ASCII: Final = str.maketrans(
    {
        **dict(zip(BARS, "_.:-=+*#", strict=True)),
        **{stage.glyph: stage.ascii for stage in Stage},
        "–": "-", "─": "-", "━": "=", "│": "|", "┃": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "°": " ",
        **dict.fromkeys(map(chr, range(0x2801, 0x2900)), "*"), "\u2800": " ",
        "↑": "^", "↓": "v", "→": ">", "›": ">", "▾": "v", "▸": ">", "×": "x", "…": ".",
        "┤": "|", "┈": ".", "░": ":", "▲": "^", "←": "<", "⇧": "^",
    }
)  # fmt: skip

STATUS_WORDS: Final = ("crashed", "diverging", "stalled", "degraded", "ok", "unknown")
"""Env statuses in the order in which counts name them, worst first."""
_STATUS_SHORT: Final = {
    "crashed": "CRSH", "diverging": "DIVG", "stalled": "STAL", "degraded": "DEGR", "ok": "OK",
    "unknown": "unkn",
}  # fmt: skip
_STATUS_ROLES: Final = {
    "crashed": Role.CRIT, "diverging": Role.CRIT, "stalled": Role.WARN, "degraded": Role.WARN,
    "ok": Role.MUTED,
}  # fmt: skip
_SEVERITIES: Final = {
    "critical": ("CRIT", Role.CRIT), "warning": ("WARN", Role.WARN), "info": ("INFO", Role.INFO),
    "debug": ("DBUG", Role.MUTED), "ok": ("OK", Role.OK),
}  # fmt: skip
_TONES: Final = {
    Tone.WARN: Role.WARN, Tone.MUTED: Role.MUTED, Tone.NEW: Role.STAGE_NEW, Tone.TRAIN: Role.STAGE_TRAIN,
    Tone.BLEND: Role.STAGE_BLEND, Tone.HOLD: Role.STAGE_HOLD, Tone.DONE: Role.STAGE_DONE,
    Tone.FAIL: Role.STAGE_FAIL,
}  # fmt: skip
_OPS: Final = {
    "GERMINATE": "GERM",
    "ADVANCE": "ADV",
    "FOSSILISE": "FOSS",
    "FOSSILIZE": "FOSS",
    "SET_ALPHA": "SETA",
    "SET_ALPHA_TARGET": "SETA",
}


class ChipSize(Enum):
    """How much a chip shows; the value is its width in cells, 0 for a whole line."""

    DOT = 1
    SMALL = 4
    LABELLED = 12
    FULL = 0


def to_ascii(text: str) -> str:
    """The same cells in 0x20 to 0x7e; what has no stand-in becomes `?`, one for each cell."""
    if text.isascii():
        return text
    known = text.translate(_ASCII)
    if known.isascii():
        return known
    return "".join(char if char.isascii() else "?" * cells(char) for char in known)


def stage_role(stage: Stage) -> Role:
    """The meaning of a stage's glyph."""
    return _TONES[stage.facets.tone]


def chip(name: str, slot: Slot | None, size: ChipSize, codes: dict[str, str]) -> Span:
    """One slot as `glyph + slot label + blueprint + alpha + stage`, as much of it as the size has room for.

    `codes` maps a blueprint to its two letters; a slot that the env does not have is absent.
    """
    if slot is None:
        return Span(ABSENT + " " * max(0, size.value - 1), Role.MUTED)
    stage = parse_stage(slot.stage)
    role = stage_role(stage)
    if size is ChipSize.DOT:
        return Span(stage.glyph, role)
    if size is ChipSize.FULL:
        return Span(_full_chip(name, slot, stage), role)
    code = left(clean(code_of(slot.blueprint, codes)), CODE) if slot.blueprint else ""
    if size is ChipSize.SMALL:
        alpha = slot.alpha if stage.shows_alpha else None
        tenth = "" if alpha is None else str(min(9, max(0, int(alpha * 10 + 1e-9))))
        text = f"{stage.glyph}{code if stage.shows_blueprint else ''}{tenth}"
    else:
        text = labelled(cut(clean(name), LABEL), stage, code, slot.alpha)
    return Span(left(text, size.value), role)


def _full_chip(name: str, slot: Slot, stage: Stage) -> str:
    words = [clean(name), stage.glyph, stage.label]
    if stage.shows_blueprint and slot.blueprint:
        words.append(clean(slot.blueprint))
    if stage.shows_alpha and slot.alpha is not None:
        words.append(f"{slot.alpha:.2f}")
    if slot.age is not None:
        words.append(f"age {slot.age}")
    if slot.gate:
        words.append(clean(slot.gate))
    return " ".join(words)


def sparkline(
    values: Sequence[float | None], width: int, limits: tuple[float, float] | None = None
) -> list[Span]:
    """`width` bars, newest right: blank where a sample is missing, `!` where it was not finite.

    With `limits`, bars run from the first to the second, and the full block means at or past it. Without,
    they run over the values, but over no less than 5 % of their median: noise never looks like drama.
    """
    shown = list(values[-width:])
    finite = sorted(value for value in shown if value is not None and math.isfinite(value))
    low, high = limits or _window(finite)
    spans = [Span(" " * (width - len(shown)))] if len(shown) < width else []
    run = ""
    for value in shown:
        if value is not None and not math.isfinite(value):
            spans += [Span(run), Span("!", Role.CRIT)] if run else [Span("!", Role.CRIT)]
            run = ""
        else:
            run += " " if value is None else BARS[_level(value, low, high)]
    return [*spans, Span(run)] if run else spans


def _window(finite: list[float]) -> tuple[float, float]:
    if not finite:
        return 0.0, 1.0
    least = 0.05 * abs(finite[len(finite) // 2]) or 1e-9
    middle = (finite[0] + finite[-1]) / 2
    span = max(finite[-1] - finite[0], least)
    return middle - span / 2, middle + span / 2


def _level(value: float, low: float, high: float) -> int:
    if high == low:
        return 0
    share = (value - low) / (high - low)
    if share >= 1:
        return 7
    return min(6, max(0, round(share * 7)))


def short(value: float) -> str:
    """Three digits and an SI prefix: `31.2k`, `812k`, `1.43G`, `42`; beyond all prefixes `7.6e18`."""
    if abs(value) >= _BEYOND:
        return f"{value:.1e}".replace("e+", "e")
    for scale, letter in PREFIXES:
        if abs(value) >= scale:
            scaled = value / scale
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f}{letter}"
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def age(seconds: float) -> str:
    """An age that is counted on the screen: tenths below ten seconds, then as a duration."""
    return f"{max(0.0, seconds):.1f}s" if seconds < 9.95 else duration(seconds)


def clock(unix_s: float, zone: tzinfo | None, *, millis: bool) -> str:
    """Time of day in `zone`, `None` meaning this machine's."""
    when = datetime.fromtimestamp(unix_s, UTC).astimezone(zone)
    return f"{when:%H:%M:%S}.{when.microsecond // 1000:03d}" if millis else f"{when:%H:%M:%S}"


def zoned(unix_s: float, zone: tzinfo | None) -> str:
    """Time of day with its zone: `17:33:59 UTC+01:00`."""
    when = datetime.fromtimestamp(unix_s, UTC).astimezone(zone)
    return f"{when:%H:%M:%S} {timezone(when.utcoffset() or timedelta())}"


def date(unix_s: float, zone: tzinfo | None) -> str:
    """Day in `zone`, `None` meaning this machine's."""
    return f"{datetime.fromtimestamp(unix_s, UTC).astimezone(zone):%Y-%m-%d}"


def status(word: str, *, compact: bool) -> Span:
    """An env's status: eight cells at most, four in compact."""
    if compact:
        text = _STATUS_SHORT.get(word, cut(clean(word).upper(), 4))
    else:
        text = word if word == "unknown" else cut(clean(word).upper(), 9)
    return Span(text, _STATUS_ROLES.get(word, Role.STALE))


def status_counts(counts: dict[str, int], between: str = " ") -> str:
    """`1 CRASHED 5 DEGRADED 58 OK`: worst first, without those that are zero."""
    words = [
        f"{counts[word]:,} {status(word, compact=False).text}" for word in STATUS_WORDS if counts.get(word)
    ]
    return between.join(words)


def severity(word: str) -> Span:
    """`CRIT`, `WARN`, `INFO` or `OK`."""
    text, role = _SEVERITIES.get(word, (cut(clean(word).upper(), 4), Role.TEXT))
    return Span(text, role)


def operation(word: str) -> str:
    """An operation's short word: `PRUNE`, `GERM`."""
    name = clean(word).upper()
    return _OPS.get(name, cut(name, 5))


def lane_word(gpu_id: str | None, *, compact: bool) -> str:
    """A lane's name, `g0` for `gpu0` in compact."""
    if gpu_id is None:
        return ABSENT
    name = clean(gpu_id)
    return f"g{name[3:]}" if compact and name.startswith("gpu") and name[3:].isdigit() else name


def pairs(words: Sequence[str], room: int) -> str:
    """As many words as fit, each whole, then `+n` for the rest."""
    kept = ""
    for index, word in enumerate(words):
        longer = f"{kept} {word}" if kept else word
        rest = len(words) - index - 1
        more = f" +{rest}" if rest else ""
        if cells(longer) + len(more) > room:
            return f"{kept} +{rest + 1}".strip() if kept else cut(word, room)
        kept = longer
    return kept


def quoted(value: str) -> str:
    """A value of a `key=value` pair, in quotes where it has blanks."""
    text = clean(value)
    return f"'{text}'" if " " in text or not text else text


def reasons(words: Sequence[str], room: int) -> str:
    """Whole reasons, strongest first, joined by ` · `; dropped ones are counted; one alone ends in `…`."""
    if not words:
        return ""
    for keep in range(len(words), 0, -1):
        rest = len(words) - keep
        text = " · ".join(map(clean, words[:keep])) + (f" +{rest}" if rest else "")
        if cells(text) <= room:
            return text
    more = f" +{len(words) - 1}" if len(words) > 1 else ""
    return cut(clean(words[0]), room - len(more)) + more
