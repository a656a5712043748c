"""The fleet as one would write it first: an object an env, a loop over them. The bench's comparator.

Same facts, same factors and limits, same view as the tower's columns; only what one tick of the bench needs.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

from overwatch.catalog import BY_NAME, Scope
from overwatch.diagnose.factor import HARD, SOFT_CAP, AnomalyLimits
from overwatch.diagnose.fleet import far, most_events
from overwatch.events import ActionTaken, EpisodeEnded, Event, Measured
from overwatch.state.arrays import NORMAL
from overwatch.state.env_tables import ACTIONS, HUGE, RETURNS, SAMPLES, SHOWN_RETURNS, STRIDE, STRIDE_NS

MARGIN = 0.5


@dataclass(slots=True)
class Slot:
    """One slot of one env."""

    stage: str | None = None
    alpha: float | None = None
    age: int | None = None
    blueprint: str | None = None


@dataclass(slots=True)
class Sample:
    """What an env emitted at one step."""

    step: int
    at: int
    rent: float | None
    metric: float | None


@dataclass(slots=True)
class Env:
    """One env."""

    env_id: int
    lane: str | None = None
    seen_at: int = 0
    values: dict[str, float] = field(default_factory=dict)
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RETURNS))
    episode_at: int = 0
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    step: int = 0
    actions: deque[str | None] = field(default_factory=lambda: deque(maxlen=ACTIONS))
    slots: dict[str, Slot] = field(default_factory=dict)
    culls: deque[int] = field(default_factory=deque)
    crashed_at: int = 0
    score: float = 0.0
    held: float = 0.0
    status: str = "ok"
    reasons: list[tuple[float, str]] = field(default_factory=list)


def median(values: list[float]) -> float:
    """The middle."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


class PlainFleet:
    """All envs, by id."""

    def __init__(self) -> None:
        self.envs: dict[int, Env] = {}
        self.order: list[Env] = []
        self.limits = AnomalyLimits()

    def apply(self, event: Event) -> None:
        """Fold one event, env by env."""
        match event:
            case Measured(scope=Scope.ENV):
                self._measure(event)
            case Measured(scope=Scope.SLOT):
                self._slots(event)
            case EpisodeEnded():
                ids, returns = event.env_id.array().tolist(), event.episode_return.array().tolist()
                for env_id, value in zip(ids, returns, strict=True):
                    env = self._env(env_id)
                    env.returns.append(value)
                    env.episode_at = event.at
                    env.seen_at = max(env.seen_at, event.at)
            case ActionTaken():
                for env_id, op in zip(event.env_id.array().tolist(), event.op.words(), strict=True):
                    self._env(env_id).actions.append(op)
            case _:
                pass

    def _env(self, env_id: int) -> Env:
        env = self.envs.get(env_id)
        if env is None:
            env = self.envs[env_id] = Env(env_id)
            self.order.append(env)
        return env

    def _measure(self, event: Measured) -> None:
        lanes = event.values["lane"].words()
        reported = {
            BY_NAME[name].short: column.array().tolist()
            for name, column in event.values.items()
            if name in BY_NAME
        }
        for place, env_id in enumerate(event.keys["env_id"].array().tolist()):
            env = self._env(env_id)
            env.lane = lanes[place]
            for short, column in reported.items():
                env.values[short] = column[place]
            env.seen_at = max(env.seen_at, event.at)
            if env.crashed_at < event.at:
                env.crashed_at = 0
            env.step = event.index or env.step + 1
            last = env.samples[-1] if env.samples else None
            if last is None or (env.step - last.step >= STRIDE and event.at - last.at >= STRIDE_NS):
                env.samples.append(
                    Sample(env.step, event.at, env.values.get("rent"), env.values.get("metric"))
                )

    def _slots(self, event: Measured) -> None:
        names = event.keys["slot"].words()
        stages = event.values["overwatch.slot.stage"].words()
        alphas = event.values["overwatch.slot.alpha"].array().tolist()
        ages = event.values["overwatch.slot.age"].array().tolist()
        for place, env_id in enumerate(event.keys["env_id"].array().tolist()):
            env = self._env(env_id)
            slot = env.slots.setdefault(names[place] or "", Slot())
            if stages[place] == "pruned" and slot.stage != "pruned":
                env.culls.append(event.at)
            slot.stage, slot.alpha, slot.age = stages[place], alphas[place], ages[place]
            env.seen_at = max(env.seen_at, event.at)

    def assess(self, now: int) -> None:
        """Score every env, rank them."""
        envs = list(self.envs.values())
        for env in envs:
            env.status, env.reasons = "ok", []
        self._pace(envs)
        self._returns(envs)
        self._rents(envs)
        self._culls(envs, now)
        for env in envs:
            if env.crashed_at:
                self._emit(env, HARD, "crashed", "crashed")
            env.score = sum(weight for weight, _ in env.reasons)
            if abs(env.score - env.held) > MARGIN or (env.score == 0 and env.held > 0):
                env.held = env.score
        self.order.sort(key=lambda env: -env.held)

    def _emit(self, env: Env, weight: float, status: str, reason: str) -> None:
        env.status = status
        env.reasons.append((weight, reason))

    def _pace(self, envs: list[Env]) -> None:
        known = [env.values["step_time"] for env in envs if "step_time" in env.values]
        lanes: dict[str | None, list[float]] = {}
        for env in envs:
            if "step_time" in env.values:
                lanes.setdefault(env.lane, []).append(env.values["step_time"])
        paces = {lane: median(steps) for lane, steps in lanes.items()}
        if len(known) >= 4 and min(known) != max(known):
            usual = median(known)
            for env in envs:
                times = env.values.get("step_time", 0.0) / usual
                if (
                    times >= self.limits.slow_step
                    and times * usual >= self.limits.slow_step * paces[env.lane]
                ):
                    weight = min(times / self.limits.slow_step, SOFT_CAP)
                    self._emit(env, weight, "stalled", f"step {times:.1f}x the median")
        spoke = sorted(env.seen_at for env in envs)
        lively = spoke[-1 - len(spoke) // 8]
        for env in envs:
            quiet_s = (lively - env.seen_at) / 1e9
            if quiet_s >= self.limits.silent_s:
                self._emit(env, 1.0 + quiet_s / 20, "stalled", f"silent for {quiet_s:.0f}s")

    def _returns(self, envs: list[Env]) -> None:
        judged, recents, earliers, noises = [], [], [], []
        for env in envs:
            if len(env.returns) < 5 or any(abs(value) >= HUGE for value in env.returns):
                continue
            reported = list(env.returns)
            num_recent = 5 if len(reported) >= 10 else 4
            newest, before = sorted(reported[-num_recent:]), reported[:-num_recent]
            middle = median(before)
            judged.append(env)
            recents.append((newest[2], newest[3], reported[-1]))
            earliers.append(middle)
            if len(before) >= 5:
                noises.append(median([abs(value - middle) for value in before]))
        if len(judged) < 8 or not noises:
            return
        noise = NORMAL * median(noises)
        values = sorted(recent for recent, _, _ in recents)
        centre = median(values)
        tenth = values[len(values) // 10]
        mad = median([abs(value - centre) for value in values])
        spread = max(NORMAL * mad, (centre - tenth) / 1.2816, noise / 2)
        if noise <= 0 or spread <= 0:
            return
        usual = min(centre, median([last for _, _, last in recents]))
        limit = far(len(judged), self.limits.margin)
        for env, (recent, fourth, _), earlier in zip(judged, recents, earliers, strict=True):
            low, own = (usual - recent) / spread, (earlier - recent) / max(spread, noise)
            if low >= limit and own >= self.limits.own_drop and (usual - fourth) / spread >= limit / 2:
                self._emit(env, min(1.0 + low / limit, SOFT_CAP), "degraded", f"return {low:.1f} mad low")

    def _rents(self, envs: list[Env]) -> None:
        found: list[tuple[Env, float, float]] = []
        for env in envs:
            whole = [sample for sample in env.samples if sample.at > env.episode_at]
            old = [sample for sample in whole if env.step - sample.step >= self.limits.gain_steps]
            if not old or "rent" not in env.values or "metric" not in env.values:
                continue
            oldest = old[-1]
            inside = [
                sample.rent for sample in whole if sample.step >= oldest.step and sample.rent is not None
            ]
            least = min(*inside, env.values["rent"])
            found.append((env, least, env.values["metric"] - (oldest.metric or 0.0)))
        if len(found) < 4:
            return
        rents = sorted(least for _, least, _ in found)
        usual = median(rents)
        mad = median([abs(least - usual) for least in rents])
        tenth = rents[-1 - len(rents) // 10]
        spread = max(NORMAL * mad, (tenth - usual) / 1.2816) or abs(usual) / 2
        limit = far(len(found), self.limits.margin)
        for env, least, gain in found:
            high = (least - usual) / spread
            dear = high >= limit and least >= self.limits.rent_times * usual
            if dear and gain <= 0.01 * abs(env.values["metric"]):
                self._emit(env, min(high / limit, SOFT_CAP), "degraded", f"rent {least:.2f}")

    def _culls(self, envs: list[Env], now: int) -> None:
        for env in envs:
            while env.culls and env.culls[0] < now - 60_000_000_000:
                env.culls.popleft()
        counts = [len(env.culls) for env in envs]
        top = max(counts)
        if top < self.limits.least_events:
            return
        usual = (sum(counts) - top) / (len(counts) - 1)
        limit = max(most_events(usual, len(counts)), self.limits.least_events)
        for env, count in zip(envs, counts, strict=True):
            if count >= limit:
                self._emit(env, min(count / limit, SOFT_CAP), "degraded", f"{count} culls in 60s")

    def view(self, rows: int) -> dict[str, object]:
        """The board's rows, groups and rollups."""
        returns = {env.env_id: self._mean(env) for env in self.order}
        lanes: dict[str | None, list[Env]] = {}
        for env in self.order:
            lanes.setdefault(env.lane, []).append(env)
        census = Counter(slot.stage for env in self.order for slot in env.slots.values())
        return {
            "rows": [self._row(env, returns[env.env_id]) for env in self.order[:rows]],
            "counts": Counter(env.status for env in self.order),
            "census": census,
            "groups": [self._group(lane, envs, returns) for lane, envs in lanes.items()],
        }

    def _mean(self, env: Env) -> float | None:
        newest = list(env.returns)[-SHOWN_RETURNS:]
        return sum(newest) / len(newest) if newest else None

    def _row(self, env: Env, mean: float | None) -> dict[str, object]:
        reasons = [reason for _, reason in sorted(env.reasons, reverse=True)[:3]]
        return {
            "env_id": env.env_id,
            "lane": env.lane,
            "status": env.status,
            "score": env.score,
            "reasons": reasons,
            "return": mean,
            **env.values,
            "slots": {name: (slot.stage, slot.alpha, slot.age) for name, slot in env.slots.items()},
        }

    def _group(
        self, lane: str | None, envs: list[Env], returns: dict[int, float | None]
    ) -> dict[str, object]:
        means = [mean for env in envs if (mean := returns[env.env_id]) is not None]
        medians = {
            name: median([env.values[name] for env in envs if name in env.values])
            for name in ("metric", "rent", "step_time")
        }
        ordered = sorted(means)
        return {
            "lane": lane,
            "n": len(envs),
            "counts": Counter(env.status for env in envs),
            "p10": ordered[round(0.1 * (len(ordered) - 1))] if ordered else None,
            "p90": ordered[round(0.9 * (len(ordered) - 1))] if ordered else None,
            "median_return": median(means) if means else None,
            "census": Counter(slot.stage for env in envs for slot in env.slots.values()),
            **medians,
        }
