"""What a run told in words: its configuration, its lines, and the lives of its seeds. Pure."""

from dataclasses import dataclass, field
from typing import Final

from overwatch.analyse.curves import fresh_values
from overwatch.catalog import Stage
from overwatch.events import Event, GateEvaluated, RunStarted, SeedStageChanged
from overwatch.projection.run import feed_line
from overwatch.projection.text import safe, safe_or_none
from overwatch.snapshot import FeedLine
from overwatch.state.feed import entry_of

MOST_LINES: Final = 1_000_000
MOST_MOVES: Final = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A seed entered a stage."""

    time: float
    """Seconds since the run began."""
    stage: Stage
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class Seed:
    """The life of one seed."""

    env_id: int
    slot: str
    seed_id: str
    blueprint: str | None = None
    moves: list[Move] = field(default_factory=list)
    gates: int = 0
    failed: int = 0
    """Gates that it did not pass."""


@dataclass(slots=True)
class Facts:
    """What one run told, in order."""

    config: dict[str, str] = field(default_factory=dict)
    lines: list[FeedLine] = field(default_factory=list)
    seeds: dict[str, Seed] = field(default_factory=dict)
    """By id, in the order in which they were first told of."""
    beyond: int = 0
    """Lines and moves beyond what is kept."""
    _feed: tuple[FeedLine, ...] = ()
    """The last one taken."""

    def take(self, event: Event, began: float) -> None:
        """Go on with one event of the run, which began at this Unix second."""
        match event:
            case RunStarted():
                self.config |= {safe(name): safe(value) for name, value in event.config.items()}
            case SeedStageChanged():
                self._move(event, began)
            case GateEvaluated():
                seed = self.seeds.get(event.seed_id)
                if seed is not None:
                    seed.gates += 1
                    seed.failed += not event.passed
            case _:
                pass
        entry = entry_of(event)
        if entry is not None and len(self.lines) < MOST_LINES:
            self.lines.append(feed_line(entry))
        elif entry is not None:
            self.beyond += 1

    def take_feed(self, feed: tuple[FeedLine, ...]) -> None:
        """Go on with the feed of a snapshot, where nothing else is left; it holds the newest lines only."""
        if feed != self._feed:
            self.lines += feed[len(feed) - fresh_values(self._feed, feed, 1) :]
        self._feed = feed

    def _move(self, event: SeedStageChanged, began: float) -> None:
        seed = self.seeds.get(event.seed_id)
        if seed is None:
            if len(self.seeds) >= MOST_MOVES:
                self.beyond += 1
                return
            seed = self.seeds[event.seed_id] = Seed(
                env_id=event.env_id, slot=safe(event.slot), seed_id=safe(event.seed_id)
            )
        seed.blueprint = safe_or_none(event.blueprint) or seed.blueprint
        seed.moves.append(
            Move(time=event.at / 1e9 - began, stage=event.after, reason=safe_or_none(event.reason))
        )
