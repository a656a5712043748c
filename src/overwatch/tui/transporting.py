"""What keys do to a recording: play, step, seek, change the speed, and leave the live run for its recording.

Owns who plays, and what the user is told when a key cannot do its work. Must not know snapshots or drawing.
"""

from overwatch.tui.playback import Playback, Transport, next_mark, next_speed, when


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
        """Go to a time as a person writes it; raises `ValueError` for what is none."""
        if self.transport is not None:
            self.transport.seek(when(text, self.transport.playback))

    def do_faster(self, way: int | str) -> None:
        """The next speed."""
        if self.transport is not None:
            self.transport.set_speed(next_speed(self.transport.playback.speed, int(way)))

    def do_mark(self, way: int | str) -> None:
        """To the alarm before or after this moment."""
        if self.transport is None:
            return
        time = next_mark(self.transport.playback, int(way))
        if time is None:
            self.notice = "no alarm met there so far"
        else:
            self.transport.seek(time)
