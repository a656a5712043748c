"""From frames to messages for people: one when a finding starts, one when it ends or its run does.

Rules: what is sent follows from what stands and what was sent, so that after a flood, an outage or a restart
the readers know what is true then. A run's end clears nothing: what was open then is sent as `open_at_end`,
never as ended. A flood is capped: what is beyond the cap waits, the most severe first. What is over before it
could be sent is counted and never sent; an end is sent for each start that was sent, and for nothing else.
Pure: the frame's tick is the only clock. Must not know how messages travel.
"""

import math
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec

from overwatch.catalog.durations import duration
from overwatch.collector.setting_types import bounded
from overwatch.fold import Frame
from overwatch.snapshot import Finding, View

Shape = Literal["json", "slack"]
Level = Literal["info", "warning", "critical"]
Status = Literal["started", "ended", "open_at_end"]
Key: TypeAlias = tuple[str, str]
"""A run, and a finding of it."""

GONE_NS: Final = 600_000_000_000
"""So long a run may be absent from frames, after a restart or for a fault, before its findings are over."""
_RANK: Final = {"info": 0, "warning": 1, "critical": 2}
_MINUTE_NS: Final = 60_000_000_000
_MARK: Final = {"critical": ":red_circle:", "warning": ":large_yellow_circle:", "info": ":large_blue_circle:"}
_DEFAULT: Final = View()
_SLACK: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "'", "@": "@\u200b"})
"""What would call people, draw a link or end a code span, as text that only looks like it."""


class NotifierConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is sent, how fast and by what: what the sections of all notifiers have."""

    min_severity: Level = "warning"
    """The least severe finding that is sent: `info`, `warning` or `critical`."""
    per_minute: int = 30
    """Messages in any minute; what comes on top waits for its turn, the most severe first."""
    timeout_s: float = 10.0
    """Seconds that delivering a message may take; then it is given up and tried again."""
    page_url: str = ""
    """Where readers reach the page, e.g. `https://overwatch.example/`; messages link to their finding."""

    def __post_init__(self) -> None:
        if self.page_url and not is_of_a_server(self.page_url):
            raise ValueError(f"page_url {self.page_url!r} is no http:// or https:// URL of a server")
        bounded(self, "per_minute")
        bounded(self, "timeout_s", most=60)

    @property
    def shown(self) -> str:
        """Where messages go, without what may be secret in it."""
        raise NotImplementedError

    def deliver(self, notice: "Notice") -> tuple[str, float | None]:
        """What went wrong, empty when nothing did, and how long to wait at least for another try, if any."""
        raise NotImplementedError


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    status: Status
    run_id: str
    at: float
    """Unix seconds of the tick."""
    finding: Finding
    waiting: int = 0
    """Messages that wait for their turn, because there are too many."""
    held_back: int = 0
    """Findings that were over before they could be sent, since the last message."""
    page: str | None = None
    """Address of the finding on the page, where the configuration has the page's."""

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.run_id, self.finding.id

    def body(self, shape: Shape) -> bytes:
        """The request's body."""
        if shape == "slack":
            return msgspec.json.encode({"text": self._text()})
        return msgspec.json.encode({"version": 1, **msgspec.to_builtins(self)})

    @property
    def _about(self) -> str:
        subject = self.finding.subject
        return subject.scope if subject.id is None else f"{subject.scope} {subject.id}"

    @property
    def _others(self) -> list[str]:
        """What else there is, that this message is not about."""
        waiting = [f"({self.waiting} more wait for their turn)"] if self.waiting else []
        return waiting + ([f"({self.held_back} more came and went meanwhile)"] if self.held_back else [])

    def _text(self) -> str:
        finding = self.finding
        mark = ":white_check_mark:" if self.status == "ended" else _MARK.get(finding.severity, "")
        status = self.status.replace("open_at_end", "open when the run ended")
        lines = [
            f"{mark} *{finding.code}* {status} · run `{_plain(self.run_id)}` · {_plain(self._about)}",
            _plain(finding.message),
        ]
        if self.status != "ended" and finding.hint:
            lines.append(f"→ {_plain(finding.hint)}")
        since = datetime.fromtimestamp(finding.since, UTC).isoformat(sep=" ", timespec="seconds")
        lasted = f", for {duration(self.at - finding.since)}" if self.status != "started" else ""
        lines += [f"since {since}{lasted}", *([self.page] if self.page else [])]
        return "\n".join(lines + self._others)


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """A finding whose start was sent, and whose end was not."""

    run_id: str
    finding: Finding

    @property
    def key(self) -> Key:
        """What it is about."""
        return self.run_id, self.finding.id


class Notices:
    """What was sent, and what is to be sent next. For one thread."""

    def __init__(self, config: NotifierConfig, reported: Iterable[Reported] = ()) -> None:
        """`reported` is what an earlier life sent."""
        self._config = config
        self._reported = {one.key: one for one in reported}
        self._waiting: set[Key] = set()
        """Starts that were not sent yet."""
        self._missing: dict[str, int] = {}
        """Runs of which something was sent and that are not there, since which tick."""
        self._tick = 0
        self._sent: deque[int] = deque()
        self._held_back = 0
        """Findings that were over before they could be sent, since the last message."""
        self.missed = 0
        """All such findings."""

    @property
    def reported(self) -> list[Reported]:
        """What the next life has to know."""
        return list(self._reported.values())

    def due(self, frame: Frame) -> list[Notice]:
        """What may be sent of a frame now, the most severe first; call `sent` for each that was."""
        self._tick = frame.tick
        shown = {run: one for (run, view), one in frame.snapshots.items() if view == _DEFAULT}
        standing = {
            (run_id, finding.id): finding
            for run_id, snapshot in shown.items()
            for finding in snapshot.findings
            if finding.cleared_at is None
        }
        least = _RANK[self._config.min_severity]
        loud = ((key, one) for key, one in standing.items() if _RANK.get(one.severity, 0) >= least)
        starts = [(key, one) for key, one in loud if key not in self._reported]
        gone = self._gone(shown)
        ends: list[tuple[Status, Key, Finding]] = []
        for key, one in list(self._reported.items()):
            now = standing.get(key)
            if now is not None and now.ended_at is not None and one.finding.ended_at is None:
                ends.append(("open_at_end", key, now))
            elif now is None and key[0] in gone and one.finding.ended_at is not None:
                del self._reported[key]
            elif now is None and (key[0] in shown or key[0] in gone):
                ends.append(("ended", key, one.finding))
        self._look_back({key for key, _ in starts})
        return self._capped([*(("started", *one) for one in starts), *ends])

    def sent(self, notice: Notice) -> None:
        """A notice of the newest frame was sent, or is not to be tried again."""
        if notice.status != "ended":
            self._reported[notice.key] = Reported(run_id=notice.run_id, finding=notice.finding)
            self._waiting.discard(notice.key)
        else:
            self._reported.pop(notice.key, None)
        self._held_back -= notice.held_back
        self._sent.append(self._tick)

    def _gone(self, shown: Iterable[str]) -> set[str]:
        """The runs of which something was sent and that have not been there for long."""
        missing = {run_id for run_id, _ in self._reported}.difference(shown)
        self._missing = {run_id: self._missing.get(run_id, self._tick) for run_id in missing}
        return {run_id for run_id, since in self._missing.items() if self._tick - since >= GONE_NS}

    def _look_back(self, starts: set[Key]) -> None:
        """Count what was to be sent when last looked, and is over."""
        over = len(self._waiting - starts)
        self._held_back += over
        self.missed += over
        self._waiting = starts

    def _capped(self, due: list[tuple[Status, Key, Finding]]) -> list[Notice]:
        """As many as may be sent now; the others wait."""
        while self._sent and self._sent[0] <= self._tick - _MINUTE_NS:
            self._sent.popleft()
        room = self._config.per_minute - len(self._sent)
        due.sort(key=lambda one: -_RANK.get(one[2].severity, 0))
        return [
            Notice(
                status=status,
                run_id=run_id,
                at=self._tick / 1e9,
                finding=finding,
                waiting=max(0, len(due) - room),
                held_back=0 if place else self._held_back,
                page=self._page(status, run_id, finding),
            )
            for place, (status, (run_id, _), finding) in enumerate(due[: max(0, room)])
        ]

    def _page(self, status: Status, run_id: str, finding: Finding) -> str | None:
        """Address of a finding; one that has ended is shown as it was when it began."""
        place = {"run": run_id, "finding": finding.id}
        place |= {"at": str(math.ceil(finding.since))} if status == "ended" else {}
        base = self._config.page_url
        return f"{base.rstrip('/')}/?{urlencode(place)}" if base else None


def is_of_a_server(url: str) -> bool:
    """Whether a URL is one of HTTP with a host and a port that can be."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _plain(text: str) -> str:
    """Text of telemetry as one line that mentions no person and is no markup."""
    return _line(text).translate(_SLACK)


def _line(text: str) -> str:
    """Text of telemetry as one line."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
