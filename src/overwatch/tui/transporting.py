"""What keys do to a recording: play, step, seek, change the speed, and leave the live run for its recording.

Owns who plays, and what the user is told when a key cannot do its work. Must not know snapshots or drawing.
"""

from overwatch.tui.playback import Playback, Transport, named, next_mark, next_speed, when


class Transporting:
    """The part of a session that is about recordings."""

    def __init__(self, transport: Transport | None = None) -> None:
        self.transport = transport
        self.leaving = False
        self.replaying = False
        """The user leaves to look at the recording of this run."""
        self.recorded = False
        """A recording of the live run is known here."""
        self.notice: str | None = None

    @property
    def playback(self) -> Playback | None:
        """The place in the recording, if one is shown."""
        return None if self.transport is None else self.transport.playback

    def do_replay(self, _: int | str) -> None:
        """Leave the live run for its recording, where one is known."""
        if not self.recorded:
            self.notice = "no recording of this run is known here; overwatch tui --replay DIR plays one"
            return
        self.replaying = self.leaving = True

    def do_play(self, _: int | str) -> None:
        """Play or pause the recording."""
        if self.transport is not None:
            self.transport.play(playing=not self.transport.playback.playing)

    def do_step(self, by: int | str) -> None:
        """Seconds on or back."""
        if self.transport is not None:
            self.transport.step(int(by))

    def seek(self, text: str) -> None:
        """Go to a time, an update, a finding or an event; raises `ValueError` for what is none."""
        transport = self.transport
        if transport is None:
            return
        wanted = named(text)
        if wanted is None:
            transport.seek(when(text, transport.playback))
            return
        kind, what = wanted
        if kind == "update" and not what.isdecimal():
            raise ValueError(f"an update is a number, not {what!r}; e.g. seek update 312")
        transport.search(kind, what)

    def cancel_seek(self) -> bool:
        """Give up the step or seek that is under way; whether there was one."""
        if self.transport is None or not self.transport.playback.busy:
            return False
        self.transport.cancel()
        return True

    def set_speed(self, text: str) -> None:
        """Play at a speed as a person writes it, `8` or `0.5x`; raises `ValueError` for what is none."""
        if self.transport is not None:
            try:
                speed = float(text.removesuffix("x"))
            except ValueError:
                raise ValueError(f"{text!r} is no speed; write 0.1 to 1000") from None
            self.transport.set_speed(speed)

    def do_faster(self, way: int | str) -> None:
        """The next speed."""
        if self.transport is not None:
            self.transport.set_speed(next_speed(self.transport.playback.speed, int(way)))

    def do_mark(self, way: int | str) -> None:
        """To the alarm before or after this moment."""
        if self.transport is None:
            return
        time = next_mark(self.transport.playback, int(way))
        surveyed = self.transport.playback.surveyed
        if time is None and int(way) > 0 and not surveyed:
            self.transport.search("alarm", "")
        elif time is None:
            self.notice = "no alarm there" if surveyed else "no alarm found there so far"
        else:
            self.transport.seek(time)
