"""A recording as the screen sees it: where it stands, and the few things that can be done with it."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from overwatch.catalog.durations import duration
from overwatch.feeds.replay import Replay
from overwatch.feeds.survey import Mark

SPEEDS: Final = (
    0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 125.0, 250.0, 500.0, 1000.0,
)  # fmt: skip
_KINDS: Final = ("update", "finding", "event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback:
    """The place in a recording; times in Unix seconds."""

    time: float
    first: float
    last: float
    playing: bool
    speed: float = 1.0
    busy: bool = False
    """It is on its way to another place."""
    part: float = 0.0
    """How much of the way there is done, while that takes long."""
    known: float = 1.0
    """How much of the past of this place was read, while charts wait for it."""
    marks: tuple[Mark, ...] = ()
    """Alarms that are known so far, in order."""
    surveyed: bool = True
    """All alarms are known: the whole recording was looked through."""
    following: bool = False
    """The recording grows."""
    still: bool = False
    """One frame of it is shown, which neither plays nor takes keys."""


class Transport(Protocol):
    """What plays a recording."""

    @property
    def playback(self) -> Playback:
        """Where it stands."""

    def play(self, *, playing: bool) -> None:
        """Play on, or pause."""

    def step(self, by: int) -> None:
        """So many recorded seconds on, or back; pauses."""

    def seek(self, time: float) -> None:
        """Go to a Unix time."""

    def search(self, kind: str, what: str) -> None:
        """Go to the next update, finding or event of that name, however far that is to look for."""

    def cancel(self) -> None:
        """Stay where it was before the step or seek that is under way."""

    def set_speed(self, speed: float) -> None:
        """Recording seconds a second; raises `ValueError` for one that does not play."""


def next_speed(speed: float, way: int) -> float:
    """The speed `way` places faster; stays at the ends."""
    place = min(range(len(SPEEDS)), key=lambda index: abs(SPEEDS[index] - speed))
    return SPEEDS[min(max(0, place + way), len(SPEEDS) - 1)]


def next_mark(playback: Playback, way: int) -> float | None:
    """When the alarm before or after this moment was; one that is less than a second ago is this moment."""
    times = sorted(mark.place for mark in playback.marks)
    if way > 0:
        return next((at for at in times if at > playback.time + 0.05), None)
    return next((at for at in reversed(times) if at < playback.time - 1.05), None)


def named(text: str) -> tuple[str, str] | None:
    """`update 312`, `@update 312`, `finding stall` or `event crash` as what and which; else `None`."""
    kind, _, what = text.strip().removeprefix("@").partition(" ")
    return (kind, what.strip()) if kind in _KINDS and what.strip() else None


_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_AMOUNT: Final = re.compile(r"([+-]?)(\d+(?:\.\d+)?)(s|m|h|%|)")
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
PLACES: Final = "84, 1:24, 12:41:07, +30s, -5m, 40%, update 312, finding CODE or event WORDS"
"""What a place may be, by examples."""


def when(text: str, playback: Playback) -> float:
    """A place in a recording as Unix seconds.

    `84` and `90s` are counted from its begin, `+30s` and `-5m` from here, `40%` is a share of it. `1:24` is
    counted from the begin where it is that long, else a time of day; `12:41:07` is a local time of day where
    it is one in the recording, else counted from the begin. Raises `ValueError` for anything else, and for
    what is outside of the recording.
    """
    if amount := _AMOUNT.fullmatch(text):
        sign, number, unit = amount[1], float(amount[2]), amount[3]
        length = playback.last - playback.first
        if unit == "%" and not sign:
            return playback.first + length * min(number, 100.0) / 100
        if unit != "%":
            seconds = number * _SECONDS[unit]
            base = playback.time if sign else playback.first
            return min(max(playback.first, base + (-seconds if sign == "-" else seconds)), playback.last)
    if clock := _CLOCK.fullmatch(text):
        of_day, offset = _of_day(clock, playback), _offset(clock, playback)
        found = of_day if offset is None or (clock[3] and of_day is not None) else offset
        if found is None:
            long = duration(playback.last - playback.first)
            raise ValueError(f"{text} is not in this recording, which is {long} long")
        return found
    raise ValueError(f"{text!r} is no place; write {PLACES}")


def _of_day(clock: re.Match[str], playback: Playback) -> float | None:
    """A time of day on the recording's day, or on the next one; `None` where it is not in the recording."""
    hours, minutes, seconds = int(clock[1]), int(clock[2]), float(clock[3] or 0)
    if hours >= 24 or minutes >= 60 or seconds >= 60:
        return None
    day = datetime.fromtimestamp(playback.first).astimezone()
    begun = day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    found = begun + hours * 3600 + minutes * 60 + seconds
    found += 86_400 if found < playback.first - 1 else 0
    return found if playback.first - 1 <= found <= playback.last + 1 else None


def _offset(clock: re.Match[str], playback: Playback) -> float | None:
    """`m:ss` or `h:mm:ss` from the begin; `None` where the recording is not that long."""
    parts = [float(part) for part in clock.groups() if part is not None]
    if any(part >= 60 for part in parts[1:]):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + part
    found = playback.first + seconds
    return found if found <= playback.last + 1 else None


class Deck:
    """A replayed recording as a transport."""

    def __init__(self, replay: Replay, *, still: bool = False) -> None:
        self._replay, self._still = replay, still
        self.play, self.step = replay.play, replay.step
        self.seek, self.search, self.cancel = replay.seek, replay.search, replay.cancel
        self.set_speed = replay.set_speed

    @property
    def playback(self) -> Playback:
        """Where it stands."""
        replay = self._replay
        first, last = replay.span
        return Playback(
            time=replay.time, first=first, last=last, playing=replay.playing, speed=replay.speed,
            busy=replay.busy, part=replay.part, known=replay.known, marks=replay.marks,
            surveyed=replay.surveyed, following=replay.following, still=self._still,
        )  # fmt: skip
