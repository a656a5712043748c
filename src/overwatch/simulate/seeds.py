"""The seeds of a simulated fleet: a grid of slots, moved on by the step, sent as facts.

Owns stage, blueprint and clock of every (env, slot). Columns are worked out at once; only slots in which
something happens at a step are visited one by one. What may become of a seed is a table: how long each stage
lasts, which gate ends it, how often that passes; every move in it is legal by the catalogue. Must not know
rewards or machines.
"""

from typing import Final

import msgspec
import numpy as np

from overwatch.catalog import Scope, Stage
from overwatch.catalog.stages import BY_CODE, Life, of_life
from overwatch.events import Column, Event, GateEvaluated, Measured, SeedStageChanged
from overwatch.simulate.faults import Conditions
from overwatch.simulate.settings import Dice, Floats, Ints, Settings, full_name

BLUEPRINTS: Final = {
    "conv_small": "cs", "conv_light": "cl", "conv_heavy": "ch", "attention": "at", "bottleneck": "bn",
    "depthwise": "dw",
}  # fmt: skip


GRADIENT_CHECK: Final = "gradient_ratio"
"""The check that looks at a seed's gradient health."""


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a stage ends."""

    onward: Stage
    seconds: tuple[float, float]
    """Shortest and longest stay."""
    op: str | None = None
    """What the policy does to move on; absent where the stage ends by itself."""
    gate: str | None = None
    passing: float = 1.0
    """Share of the seeds that pass."""
    check: str = ""
    """The check that decides."""
    need: float = 0.0
    """What the check needs."""
    retry: Stage | None = None
    """Where the policy sends a seed now and then instead of having its gate checked."""


WAYS: Final[dict[Stage, Way]] = {
    Stage.UNKNOWN: Way(onward=Stage.DORMANT, seconds=(2.0, 5.0)),
    Stage.GERMINATED: Way(
        onward=Stage.TRAINING, seconds=(1.0, 3.0), op="ADVANCE", gate="G1", passing=0.995,
        check="seed_health", need=0.5,
    ),
    Stage.TRAINING: Way(
        onward=Stage.BLENDING, seconds=(8.0, 20.0), op="ADVANCE", gate="G2", passing=0.97,
        check=GRADIENT_CHECK, need=0.10,
    ),
    Stage.BLENDING: Way(
        onward=Stage.HOLDING, seconds=(6.0, 15.0), op="ADVANCE", gate="G3", passing=0.99,
        check="alpha_hold", need=1.0,
    ),
    Stage.HOLDING: Way(
        onward=Stage.FOSSILISED, seconds=(4.0, 10.0), op="FOSSILIZE", gate="G5", passing=0.99,
        check="contribution", need=0.01, retry=Stage.BLENDING,
    ),
    Stage.PRUNED: Way(onward=Stage.EMBARGOED, seconds=(1.0, 1.0)),
    Stage.EMBARGOED: Way(onward=Stage.RESETTING, seconds=(5.0, 5.0)),
    Stage.RESETTING: Way(onward=Stage.DORMANT, seconds=(1.0, 1.0)),
}  # fmt: skip
"""Stages that end; the others last until something else ends them."""

RETRYING: Final = 0.06
"""Share of the seeds that are sent back where their way has a retry."""
GROWING: Final = of_life(Life.GROWING)
PAYING: Final = tuple(stage for stage in Stage if stage.facets.pays_rent)
EARLY: Final = GROWING[:-1]
"""Stages that a cull storm culls from."""

GERMINATIONS_PER_S: Final = 2.0
"""In the whole fleet, so that a large one does not drown its feed."""
AT_START: Final = 96
"""Most seeds that grow when the run starts."""
POOL: Final = 6
"""Most envs that a cull storm hits."""
CHUNK: Final = 1 << 16
"""Most slots of one measurement."""
_NAMES: Final = tuple(BLUEPRINTS)
_NEVER: Final = np.iinfo(np.int64).max
_GRADIENT: Final = (0.3, 0.9)
"""Lowest and highest gradient health of a seed that is well."""


class Seeds:
    """All slots of a run. Ops of the current step are in `ops`: env to (operation, slot, blueprint)."""

    def __init__(self, settings: Settings) -> None:
        n, slots = settings.n_envs, settings.slots
        self._settings = settings
        self._dice = Dice(settings.seed, 1)
        self._names = settings.slot_names
        self._stage: Ints = np.full((n, slots), Stage.DORMANT.code, dtype=np.int64)
        self._blueprint: Ints = np.full((n, slots), -1, dtype=np.int64)
        self._since: Ints = np.zeros((n, slots), dtype=np.int64)
        self._until: Ints = np.full((n, slots), _NEVER, dtype=np.int64)
        self._serial: Ints = np.zeros((n, slots), dtype=np.int64)
        self._grad: Floats = np.full((n, slots), np.nan)
        """Gradient health around which each seed's varies; NaN before it trains."""
        self._gradients = Dice(settings.seed, 6)
        self._pool = min(max(2, settings.envs // 8), POOL, settings.envs)
        self._germination = min(0.15, GERMINATIONS_PER_S / n) / settings.rate_hz
        self.ops: dict[int, tuple[str, int, int]] = {}
        if slots:
            self._plant()

    def _plant(self) -> None:
        """A fleet that has grown for a while: settled slots, growing seeds, a few slots not probed yet."""
        n, slots = self._stage.shape
        kind = self._dice.uniform(n * slots).reshape(n, slots)
        growing = min(0.3, AT_START / (n * slots))
        unknown = kind >= 1.0 - min(0.02, 8 / (n * slots))
        unknown[0, slots - 1] = True
        self._stage[kind < growing + 0.15] = Stage.FOSSILISED.code
        for env, slot in np.argwhere(kind < growing).tolist():
            self._enter(env, slot, GROWING[self._dice.below(len(GROWING))], 0)
        for env, slot in np.argwhere(unknown).tolist():
            self._enter(env, slot, Stage.UNKNOWN, 0)
        named = np.isin(self._stage, [stage.code for stage in PAYING + GROWING])
        drawn = (self._dice.uniform(n * slots).reshape(n, slots) * len(_NAMES)).astype(np.int64)
        self._blueprint[named] = drawn[named]
        self._serial[named] = 1
        learning = np.isin(self._stage, [stage.code for stage in PAYING])
        self._grad[learning] = self._gradient_levels(int(learning.sum()))

    def _enter(self, env: int, slot: int, stage: Stage, step: int) -> None:
        self._stage[env, slot] = stage.code
        self._since[env, slot] = step
        if stage is Stage.GERMINATED:
            self._grad[env, slot] = np.nan
        elif stage is Stage.TRAINING:
            self._grad[env, slot] = self._gradient_levels(1)[0]
        way = WAYS.get(stage)
        if way is None:
            self._until[env, slot] = _NEVER
            return
        low, high = way.seconds
        self._until[env, slot] = step + self._settings.steps_in(low + (high - low) * self._dice.one())

    def paying(self) -> Ints:
        """How many slots of each env cost rent, shape (n,)."""
        paying: Ints = np.isin(self._stage, [stage.code for stage in PAYING]).sum(axis=1)
        return paying

    def advance(self, step: int, at: int, alive: np.ndarray, now: Conditions) -> list[Event]:
        """Move every seed whose time has come, germinate new ones; `alive` is a mask of shape (n,)."""
        self.ops = {}
        events: list[Event] = []
        culled = self._culls(alive, now)
        due = (self._until <= step) & alive[:, None]
        learned = self._stage == Stage.TRAINING.code
        for env, slot in np.argwhere(due | culled).tolist():
            events += self._move(env, slot, step, at, storm=bool(culled[env, slot]))
        # A gate that failed for a gradient has just measured it; the next full account would come too late.
        events += self._told(learned & (self._stage == Stage.PRUNED.code), step, at)
        for env in self._sprouting(alive, now).tolist():
            free = np.flatnonzero(self._stage[env] == Stage.DORMANT.code)
            if free.size:
                events += self._germinate(env, int(free[self._dice.below(free.size)]), step, at)
        return events

    def _culls(self, alive: np.ndarray, now: Conditions) -> np.ndarray:
        """Mask of the slots that a storm culls."""
        hit = np.zeros(self._stage.shape, dtype=bool)
        chance = self._dice.uniform(self._pool * self._stage.shape[1]).reshape(self._pool, -1)
        early = np.isin(self._stage[: self._pool], [stage.code for stage in EARLY])
        hit[: self._pool] = early & (chance < now.culling / self._settings.rate_hz)
        hit &= alive[:, None]
        return hit

    def _sprouting(self, alive: np.ndarray, now: Conditions) -> Ints:
        """Envs that germinate a seed at this step; those in a storm try again and again."""
        chance = np.full(alive.size, self._germination)
        chance[: self._pool] += now.culling / self._settings.rate_hz
        return np.flatnonzero((self._dice.uniform(alive.size) < chance) & alive)

    def _germinate(self, env: int, slot: int, step: int, at: int) -> list[Event]:
        self._serial[env, slot] += 1
        self._blueprint[env, slot] = self._dice.below(len(_NAMES))
        self.ops[env] = ("GERMINATE", slot, int(self._blueprint[env, slot]))
        gate = GateEvaluated(
            at=at, env_id=env, slot=self._names[slot], seed_id=self._seed_id(env, slot), gate="G0",
            passed=True, checks_passed=("seed_id", "blueprint_id"),
        )  # fmt: skip
        return [gate, self._change(env, slot, Stage.GERMINATED, step, at, reason="policy")]

    def _move(self, env: int, slot: int, step: int, at: int, *, storm: bool) -> list[Event]:
        """End a slot's stage by its way, or by failing its gate in a storm."""
        way = WAYS[BY_CODE[int(self._stage[env, slot])]]
        if way.retry is not None and not storm and self._dice.one() < RETRYING:
            self.ops[env] = ("SET_ALPHA", slot, -1)
            return [self._change(env, slot, way.retry, step, at, reason="policy")]
        passed = not storm and self._dice.one() < way.passing
        after = way.onward if passed else Stage.PRUNED
        if way.op is not None:
            self.ops[env] = (way.op if passed else "PRUNE", slot, -1)
        if way.gate is None:
            return [self._change(env, slot, after, step, at)]
        score = way.need * ((1.2 + self._dice.one()) if passed else (0.2 + 0.6 * self._dice.one()))
        if way.check == GRADIENT_CHECK:
            score = self._grad[env, slot] = float(self._grad[env, slot]) if passed else score
        check = (way.check,)
        gate = GateEvaluated(
            at=at, env_id=env, slot=self._names[slot], seed_id=self._seed_id(env, slot), gate=way.gate,
            passed=passed, score=round(score, 4), checks_passed=check if passed else (),
            checks_failed=() if passed else check,
            message=None if passed else _missed(way, score),
        )  # fmt: skip
        return [gate, self._change(env, slot, after, step, at, reason=None if passed else "gate")]

    def _change(
        self, env: int, slot: int, after: Stage, step: int, at: int, *, reason: str | None = None
    ) -> Event:
        before = BY_CODE[int(self._stage[env, slot])]
        age = step - int(self._since[env, slot])
        seed_id, code = self._seed_id(env, slot), int(self._blueprint[env, slot])
        self._enter(env, slot, after, step)
        if after is Stage.DORMANT:
            self._blueprint[env, slot] = -1
        return SeedStageChanged(
            at=at, env_id=env, slot=self._names[slot], seed_id=seed_id, before=before, after=after,
            blueprint=_NAMES[code] if code >= 0 and after.shows_blueprint else None,
            alpha=0.0 if after is Stage.BLENDING else None, age=age, reason=reason,
        )  # fmt: skip

    def _seed_id(self, env: int, slot: int) -> str:
        return f"{env}-{self._names[slot]}-{self._serial[env, slot]}"

    def start_afresh(self, env_ids: Ints, step: int, at: int) -> list[Event]:
        """Empty the slots of those envs, of an episode that ended, in which nothing can grow any more."""
        full = env_ids[(self._stage[env_ids] == Stage.FOSSILISED.code).all(axis=1)]
        if not full.size or not self._names:
            return []
        self._stage[full] = Stage.DORMANT.code
        self._blueprint[full] = -1
        self._since[full] = step
        mask = np.zeros(self._stage.shape, dtype=bool)
        mask[full] = True
        return self._told(mask, step, at)

    def measured(self, step: int, at: int, *, whole: bool) -> list[Event]:
        """The slots as numbers: all of them, or those in which a seed is on its way."""
        if not self._names:
            return []
        resting = (Stage.DORMANT.code, Stage.FOSSILISED.code)
        mask = np.ones(self._stage.shape, dtype=bool) if whole else ~np.isin(self._stage, resting)
        return self._told(mask, step, at)

    def _told(self, mask: np.ndarray, step: int, at: int) -> list[Event]:
        envs, slots = np.nonzero(mask)
        return [
            self._rows(envs[low : low + CHUNK], slots[low : low + CHUNK], step, at)
            for low in range(0, envs.size, CHUNK)
        ]

    def _rows(self, envs: Ints, slots: Ints, step: int, at: int) -> Measured:
        stage = self._stage[envs, slots]
        age = np.minimum(step - self._since[envs, slots], np.iinfo(np.int16).max)
        return Measured(
            at=at,
            scope=Scope.SLOT,
            keys={"env_id": Column.of(envs.astype(np.int32)), "slot": words(slots, self._names)},
            values={
                full_name("stage", Scope.SLOT): words(stage, tuple(stage.value for stage in BY_CODE)),
                "blueprint": words(self._blueprint[envs, slots], _NAMES),
                full_name("alpha", Scope.SLOT): Column.of(self._alpha(envs, slots, step).astype(np.float32)),
                full_name("age", Scope.SLOT): Column.of(age.astype(np.int16)),
                full_name("grad", Scope.SLOT): Column.of(
                    self._gradient_health(envs, slots).astype(np.float32)
                ),
            },
            index=step,
        )

    def _alpha(self, envs: Ints, slots: Ints, step: int) -> Floats:
        """NaN where no seed blends in; 0 to 1 over its blending; 1 after it."""
        stage, since = self._stage[envs, slots], self._since[envs, slots]
        blending = stage == Stage.BLENDING.code
        span = np.where(blending, np.maximum(self._until[envs, slots] - since, 1), 1)
        done = np.isin(stage, (Stage.HOLDING.code, Stage.FOSSILISED.code))
        rising = np.minimum((step - since) / span, 1.0)
        alpha: Floats = np.where(blending, rising, np.where(done, 1.0, np.nan))
        return alpha

    def _gradient_levels(self, n: int) -> Floats:
        low, high = _GRADIENT
        levels: Floats = low + (high - low) * self._gradients.uniform(n)
        return levels

    def _gradient_health(self, envs: Ints, slots: Ints) -> Floats:
        """NaN where no seed learns; that of a pruned one stays as it was at its end."""
        stage, grad = self._stage[envs, slots], self._grad[envs, slots]
        learning = np.isin(stage, [stage.code for stage in PAYING])
        told: Floats = np.where(stage == Stage.PRUNED.code, grad, np.nan)
        varied = grad[learning] * (1.0 + 0.05 * self._gradients.noise(int(learning.sum())))
        told[learning] = np.clip(varied, 0.0, 1.0)
        return told


def _missed(way: Way, score: float) -> str:
    """`gradient ratio 0.04 < 0.10`; a need below a tenth takes one more decimal."""
    places = 2 if way.need >= 0.1 else 3
    return f"{way.check.replace('_', ' ')} {score:.{places}f} < {way.need:.{places}f}"


def words(codes: Ints, labels: tuple[str, ...]) -> Column:
    """A dictionary-coded column of up to 127 words, one byte a row; -1 is absent."""
    return Column(dtype="|i1", data=codes.astype(np.int8).tobytes(), labels=labels)
