"""What keys do to a recording: play, step, seek, change the speed, and leave the live run for its recording.

Without a recording they do nothing. Must not know drawing.
"""

from overwatch.tui.playback import named, next_mark, next_speed, when
from overwatch.tui.session import Session


def replay(session: Session) -> None:
    """Leave the live run for its recording, where one is known."""
    if not session.ui.recorded:
        session.ui.notice = "no recording of this run is known here; overwatch tui --replay DIR plays one"
        return
    session.requests.replaying = session.requests.leaving = True


def play(session: Session) -> None:
    """Play or pause."""
    if session.transport is not None:
        session.transport.play(playing=not session.transport.playback.playing)


def step(session: Session, by: int) -> None:
    """Seconds on or back."""
    if session.transport is not None:
        session.transport.step(by)


def seek(session: Session, text: str) -> None:
    """Go to a time, an update, a finding or an event; raises `ValueError` for what is none."""
    transport = session.transport
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


def cancel_seek(session: Session) -> bool:
    """Give up the step or seek that is under way; whether there was one."""
    if session.transport is None or not session.transport.playback.busy:
        return False
    session.transport.cancel()
    return True


def set_speed(session: Session, text: str) -> None:
    """Play at a speed as a person writes it, `8` or `0.5x`; raises `ValueError` for what is none."""
    if session.transport is not None:
        try:
            speed = float(text.removesuffix("x"))
        except ValueError:
            raise ValueError(f"{text!r} is no speed; write 0.1 to 1000") from None
        session.transport.set_speed(speed)


def faster(session: Session, way: int) -> None:
    """The next speed."""
    if session.transport is not None:
        session.transport.set_speed(next_speed(session.transport.playback.speed, way))


def mark(session: Session, way: int) -> None:
    """To the alarm before or after this moment."""
    if session.transport is None:
        return
    time = next_mark(session.transport.playback, way)
    surveyed = session.transport.playback.surveyed
    if time is None and way > 0 and not surveyed:
        session.transport.search("alarm", "")
    elif time is None:
        session.ui.notice = "no alarm there" if surveyed else "no alarm found there so far"
    else:
        session.transport.seek(time)
