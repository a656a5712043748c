"""A recording as the screen sees it: where it stands, and the few things that can be done with it."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

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
    marks: tuple[Mark, ...] = ()
    """Alarms that are known so far, in order."""
    surveyed: bool = True
    """All alarms are known: the whole recording was looked through."""
    following: bool = False
    """The recording grows."""


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

    def set_speed(self, speed: float) -> None:
        """Recording seconds a second; raises `ValueError` for one that does not play."""

    def find(self, kind: str, what: str) -> float | None:
        """When the next update, finding or event of that name is; `None` where none is known."""


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
    """`update 312`, `finding stall` or `event crash` as what and which; `None` for anything else."""
    kind, _, what = text.strip().partition(" ")
    return (kind, what.strip()) if kind in _KINDS and what.strip() else None


_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_AMOUNT: Final = re.compile(r"([+-]?)(\d+(?:\.\d+)?)(s|m|h|%)")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}


def when(text: str, playback: Playback) -> float:
    """`12:41:07` (local time of the recording's day), `+30s`, `-5m`, `90s` or `40%` as Unix seconds.

    Raises `ValueError` for anything else, and for a time outside of the recording.
    """
    if amount := _AMOUNT.fullmatch(text):
        sign, number, unit = amount[1], float(amount[2]), amount[3]
        if unit == "%":
            return playback.first + (playback.last - playback.first) * min(number, 100.0) / 100
        seconds = number * _SECONDS[unit]
        base = playback.time if sign else playback.first
        return min(max(playback.first, base + (-seconds if sign == "-" else seconds)), playback.last)
    if clock := _CLOCK.fullmatch(text):
        day = datetime.fromtimestamp(playback.first).astimezone()
        hours, minutes, seconds = int(clock[1]), int(clock[2]), float(clock[3] or 0)
        if hours < 24 and minutes < 60 and seconds < 60:
            begun = day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
            found = begun + hours * 3600 + minutes * 60 + seconds
            found += 86_400 if found < playback.first - 1 else 0
            if playback.first - 1 <= found <= playback.last + 1:
                return found
            raise ValueError(f"{text} is not in this recording")
    raise ValueError(
        f"{text!r} is no place; write 12:41:07, +30s, -5m, 40%, update 312, finding CODE or event WORDS"
    )


class Deck:
    """A replayed recording as a transport."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.play, self.step = replay.play, replay.step
        self.seek, self.set_speed, self.find = replay.seek, replay.set_speed, replay.find

    @property
    def playback(self) -> Playback:
        """Where it stands."""
        replay = self._replay
        first, last = replay.span
        return Playback(
            time=replay.time, first=first, last=last, playing=replay.playing, speed=replay.speed,
            busy=replay.busy, part=replay.part, marks=replay.marks, surveyed=replay.surveyed,
            following=replay.following,
        )  # fmt: skip
