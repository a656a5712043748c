"""The state of one run: everything the fold remembers, and nothing derived.

Only `apply` changes it. Serialisable whole, so a checkpoint is the state itself.
"""

import math
from typing import Final

import msgspec

from overwatch.catalog import NO_LIMITS, Limits, Metric
from overwatch.catalog.judging import declared, run_limits
from overwatch.catalog.policy import ENTROPY
from overwatch.catalog.presets import DEFAULT, preset_for
from overwatch.events import (
    CheckpointSaved,
    CommandApplied,
    EarlyStopped,
    FindingAcknowledged,
    LogLine,
    Origin,
    RunFinished,
    RunStarted,
    RunStateChanged,
    TrainingRecovered,
)
from overwatch.state.arrays import Ring, decode_hook, encode_hook
from overwatch.state.envs import Envs
from overwatch.state.machines import Gauge, HostReadings, LaneHealth, Peaks, Rested, Throttle
from overwatch.state.names import OFFENDERS, LaneIds, Overflow
from overwatch.state.policy import Pairs, Rest, Series
from overwatch.state.rhythm import Pace, Phase, Rhythm
from overwatch.state.services import Services
from overwatch.state.sources import Ranks, Source

FEED = 200
FACTS = 4096
"""Facts about single envs remembered in all, whatever else the feed holds."""
FACTS_OF_ENV = 64
"""The same about one env, so that a few busy ones do not crowd out the others."""
SAVES = 9
"""Checkpoints whose times are remembered."""
STOPS = 256
RECOVERIES = 16
SAVE_SECONDS = 20
"""Early stops remembered: as many as one record of many updates can hold, and more."""
SLOT_NAMES = 128
"""Names of slots: each costs a place in every env."""
PHASE_NAMES = 64
"""Of one rank."""
MAX_RANKS = 4096
LANES = 1024
OTHER = "(other)"
"""Stands for all words beyond the most."""
ACKS = 64
"""Newest acknowledgements remembered: those between two ticks."""
BEST = 5
"""Episodes remembered as the best."""
PAUSED: Final = "paused"
"""The state in which nothing has to go on."""
ACTIONS = 64
"""Steps whose actions make up the action mix."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the feed, as text that is still raw."""

    at: int
    severity: str
    subsystem: str
    kind: str
    message: str
    env_id: int | None = None
    slot: str | None = None
    seed_id: str | None = None
    fields: dict[str, str] = {}
    stage: str | None = None
    """The stage that the slot entered, of a line about a move..."""
    alpha: float | None = None
    """...and how far its seed is blended in."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One that ended, as it is remembered among the best."""

    env_id: int
    at: int
    rank: float
    """What it is compared by: the best of its metric, else its last, else its return; higher is better."""
    number: int
    """Of those that this env finished, from 1."""
    values: dict[str, float]
    """What was reported of it, by the name of the event's field."""


class Best(msgspec.Struct, kw_only=True):
    """The best episodes, and the mean of all bests."""

    episodes: list[Episode] = []
    """Best first."""
    total: float = 0.0
    count: int = 0

    @property
    def least(self) -> float:
        """What an episode must rank above to be remembered."""
        return self.episodes[-1].rank if len(self.episodes) >= BEST else -math.inf

    def push(self, episode: Episode) -> None:
        """Remember an episode that ranks above the least."""
        kept = sorted([*self.episodes, episode], key=lambda one: -one.rank)
        self.episodes = kept[:BEST]


class Facts(msgspec.Struct, kw_only=True):
    """The newest lines about each env."""

    by_env: dict[int, list[Entry]] = {}
    """Oldest line first; the env that was reported longest ago first."""
    total: int = 0

    def push(self, env_id: int, entry: Entry) -> None:
        """Remember a line; what is beyond the env's share goes, else the oldest of the env quiet longest."""
        reported = self.by_env.pop(env_id, [])
        self.by_env[env_id] = reported
        reported.append(entry)
        self.total += 1
        if len(reported) > FACTS_OF_ENV:
            self._drop(env_id)
        elif self.total > FACTS:
            self._drop(next(iter(self.by_env)))

    def of(self, env_id: int) -> list[Entry]:
        """What is remembered of one env, oldest first."""
        return self.by_env.get(env_id, [])

    def _drop(self, env_id: int) -> None:
        reported = self.by_env[env_id]
        del reported[0]
        self.total -= 1
        if not reported:
            del self.by_env[env_id]


class FailedSaves(msgspec.Struct, frozen=True, kw_only=True):
    """Saves that failed since the newest checkpoint, by the lines about them."""

    count: int = 0
    first_at: int = 0
    at: int = 0
    message: str = ""
    """The newest line."""


class Names(msgspec.Struct):
    """Words seen so far, with a number each; order of first sight."""

    words: list[str] = msgspec.field(default_factory=list)
    codes: dict[str, int] = msgspec.field(default_factory=dict)
    most: int = 1024
    """How many words there may be, the one for all others among them."""
    beyond: dict[str, int] = msgspec.field(default_factory=dict)
    """How often words came for which there was no room; the first few."""

    def code(self, word: str) -> int:
        """The number of a word; a new word gets the next one, and one too many that of `OTHER`."""
        found = self.codes.get(word)
        if found is None and word != OTHER and len(self.words) >= self.most - 1:
            if word in self.beyond or len(self.beyond) < OFFENDERS:
                self.beyond[word] = self.beyond.get(word, 0) + 1
            return self.code(OTHER)
        if found is None:
            found = self.codes[word] = len(self.words)
            self.words.append(word)
        return found


class RunState(msgspec.Struct, kw_only=True):
    """What is known of one run."""

    origin: Origin
    """The first origin received: names the run, and its task and algorithm when no start record does."""
    started: RunStarted | None = None
    finished: RunFinished | None = None
    """The end, once the producer that holds the run has ended."""
    first_at: int = 0
    """Producer's time of the first record."""
    last_at: int = 0
    """Newest producer time."""
    last_stamp: int = 0
    back_stamp: int = 0
    """When the collector last began again after it was away, earlier by the silence before that still counts;
    0 = it never was."""
    ranks: Ranks = msgspec.field(default_factory=Ranks)
    sources: dict[str, Source] = msgspec.field(default_factory=dict)
    policy: dict[str, Series] = msgspec.field(default_factory=dict)
    """By full metric name."""
    services: Services = msgspec.field(default_factory=Services)
    """What processes report of the services that they are, and what they count."""
    pairs: Pairs = msgspec.field(default_factory=Pairs)
    """The proxy return beside the true one."""
    update: int | None = None
    index: int | None = None
    """Number of the newest update, where its trainer gave one."""
    updates: int = 0
    last_update_at: int = 0
    entropy_in_nats: bool = False
    """Whether what is called `entropy` turned out to be no share."""
    no_shares: list[str] = msgspec.field(default_factory=list)
    """Full names of other shares that turned out to be none."""
    episodes: int = 0
    has_resumed: bool = False
    """Whether a life went on from a checkpoint of a life before."""
    steps: int = 0
    step_index: dict[int, int] = msgspec.field(default_factory=dict)
    """Newest env step number of each rank."""
    reported: dict[str, float] = msgspec.field(default_factory=dict)
    """Totals as producers that count themselves last sent them, by what and by rank."""
    step_marks: Ring[tuple[int, int]] = msgspec.field(default_factory=lambda: Ring(256))
    """(producer time, total steps), for windowed rates."""
    envs: Envs = msgspec.field(default_factory=Envs)
    slot_names: Names = msgspec.field(default_factory=lambda: Names(most=SLOT_NAMES))
    blueprint_names: Names = msgspec.field(default_factory=Names)
    op_names: Names = msgspec.field(default_factory=Names)
    lane_names: Names = msgspec.field(default_factory=Names)
    lane_ids: LaneIds = msgspec.field(default_factory=LaneIds)
    actions: Ring[dict[str, int]] = msgspec.field(default_factory=lambda: Ring(ACTIONS))
    lanes: dict[str, dict[str, Gauge]] = msgspec.field(default_factory=dict)
    """Readings by the lane's name, then by short name."""
    throttles: dict[str, Throttle] = msgspec.field(default_factory=dict)
    """By the lane's name."""
    lane_ranks: dict[str, int] = msgspec.field(default_factory=dict)
    """The rank that last reported envs on a lane."""
    phases: dict[int, dict[str, Phase]] = msgspec.field(default_factory=dict)
    """By rank, then by phase."""
    beside: dict[str, dict[str, Phase]] = msgspec.field(default_factory=dict)
    """Phases of services beside the trainer, by process, then by phase."""
    rhythms: dict[int, Rhythm] = msgspec.field(default_factory=dict)
    """What each rank's training does after what."""
    pace: Pace = msgspec.field(default_factory=Pace)
    """What the run got done over time."""
    peaks: dict[str, Peaks] = msgspec.field(default_factory=dict)
    """Of memory, by the lane's name."""
    rested: dict[str, Rested] = msgspec.field(default_factory=dict)
    """How long each lane had nothing to do, by its name."""
    host: dict[str, Gauge] = msgspec.field(default_factory=dict)
    hosts: dict[str, HostReadings] = msgspec.field(default_factory=dict)
    """Each machine's own readings of what fills up, by its node, or by the rank that reads it."""
    lane_health: dict[str, LaneHealth] = msgspec.field(default_factory=dict)
    """By the lane's name."""
    reported_counts: dict[str, float] = msgspec.field(default_factory=dict)
    """The run's counters as a foreign producer keeps them itself, by short name."""
    tower: dict[str, float] = msgspec.field(default_factory=dict)
    """The producer's own counters, by short name."""
    non_finite: int = 0
    non_finite_last: str | None = None
    non_finite_at: int = 0
    crashes: int = 0
    rollbacks: int = 0
    early_stop: EarlyStopped | None = None
    """The newest one."""
    early_stops: Ring[EarlyStopped] = msgspec.field(default_factory=lambda: Ring(STOPS))
    """The newest ones."""
    kl_rest: Rest | None = None
    """Of the newest record of KL, the updates before its last; `None` where it holds one update."""
    checkpoint: CheckpointSaved | None = None
    """The newest one."""
    failed_saves: FailedSaves = FailedSaves()
    recoveries: Ring[TrainingRecovered] = msgspec.field(default_factory=lambda: Ring(RECOVERIES))
    """The newest ones."""
    control: RunStateChanged | None = None
    """In which state the run is, by who controls it."""
    resumed_at: int = 0
    """Producer's time at which its newest pause ended; 0 without one that is over."""
    command: CommandApplied | None = None
    """The newest one."""
    save_seconds: Ring[float] = msgspec.field(default_factory=lambda: Ring(SAVE_SECONDS))
    """How long the newest checkpoints took, where that was reported."""
    saves: Ring[tuple[int, int]] = msgspec.field(default_factory=lambda: Ring(SAVES))
    """(producer time, updates so far) of the newest checkpoints that a schedule may have made."""
    heeded: int = 0
    """Records folded so far that a policy may be judged by: all but those about envs, lanes, phases
    and the log alone."""
    recompiled: LogLine | None = None
    """The newest line about what was compiled again."""
    task_changed_at: int = 0
    """Newest producer's time when most envs last got another task; 0 = none did."""
    feed: Ring[Entry] = msgspec.field(default_factory=lambda: Ring(FEED))
    feed_total: int = 0
    feed_marks: Ring[tuple[int, int]] = msgspec.field(default_factory=lambda: Ring(64))
    """(producer time, lines so far), for the feed's rate."""
    facts: Facts = msgspec.field(default_factory=Facts)
    best: Best = msgspec.field(default_factory=Best)
    """Lines about one env each."""
    acks: Ring[FindingAcknowledged] = msgspec.field(default_factory=lambda: Ring(ACKS))
    acks_total: int = 0
    overflow: Overflow = msgspec.field(default_factory=Overflow)
    """What was beyond a cap."""

    preset_by_names: str | None = None
    """The preset that a run's names chose."""
    judged_by: str | None = None
    """The preset that the collector sets for every run; `None` leaves it to the run."""

    @property
    def paused_at(self) -> int | None:
        """Producer's time since which it is paused; `None` where it is not, or has ended."""
        control = self.control
        is_paused = control is not None and control.after == PAUSED and self.finished is None
        return control.at if control is not None and is_paused else None

    @property
    def algo(self) -> str | None:
        """The algorithm, as its start record or its origin names it."""
        return (self.started.algo if self.started else None) or self.origin.algo

    @property
    def preset(self) -> str:
        """Which limits judge this run."""
        algo = self.origin.algo
        chosen = self.started.chosen if self.started else None if algo is None else preset_for(algo)
        return self.judged_by or chosen or self.preset_by_names or DEFAULT

    def lane(self, lane_id: str) -> str:
        """What a lane is called, known from here on."""
        name = self.lane_ids.name(lane_id)
        self.lane_names.code(name)
        return name

    def lane_code(self, lane_id: str) -> int:
        """The number of a lane's name."""
        return self.lane_names.code(self.lane_ids.name(lane_id))

    def call_lane(self, lane_id: str, label: str, node: str | None) -> None:
        """Learn what a lane is called."""
        self.lane_ids.call(lane_id, label, node, self.lane_names.codes)

    def series(self, name: str) -> Series | None:
        """A number over time, of the policy or of a service."""
        return self.policy.get(name) or self.services.series(name)

    def limits(self, row: Metric) -> Limits:
        """What judges a row in this run: its preset's limits; KL follows a target that the run declared.

        An entropy in nats of which no maximum is known is judged by nothing.
        """
        if row is ENTROPY and self.entropy_in_nats and self.declared("max_entropy") is None:
            return NO_LIMITS
        return run_limits(row, self.preset, self.started.config if self.started else {})

    def declared(self, name: str) -> float | None:
        """A setting of the run's configuration, where it is a number above 0."""
        return declared(self.started.config, name) if self.started else None


_decoder: Final = msgspec.msgpack.Decoder(RunState, dec_hook=decode_hook)


def dump(state: RunState) -> bytes:
    """The state as bytes. Tables keep their order of first sight, which views show."""
    return msgspec.msgpack.encode(state, enc_hook=encode_hook)


def load(data: bytes) -> RunState:
    """The state from `dump`'s bytes; raises `msgspec.ValidationError` on anything else."""
    return _decoder.decode(data)
