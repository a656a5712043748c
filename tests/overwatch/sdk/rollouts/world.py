"""A small world of seeds in slots, as per-step calls and as dense columns of the same steps.

It makes legal moves by chance, one of a slot a step, and keeps what telemetry gets of each step twice: as
the calls of `overwatch.sdk.Run` that a trainer makes, and as rows of columns.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from overwatch.catalog.stages import BY_CODE, TRANSITIONS, Stage
from overwatch.sdk import Run, WordTables

SLOTS = ("r0c0", "r0c1", "r0c2")
BLUEPRINTS = ("norm", "attention", "conv")
OPS = ("wait", "germinate", "prune")
REASONS = ("passed", "pruned", "over")
GATES = (("G0", ("stage",)), ("G2", ("stage", "age", "health")))
WORDS = WordTables(
    heads=(("op", OPS), ("slot", SLOTS), ("blueprint", BLUEPRINTS)),
    uses=((True, False, False), (True, True, True), (True, True, False)),
    slots=SLOTS,
    blueprints=BLUEPRINTS,
    reasons=REASONS,
    gates=GATES,
)


class World:
    """N envs with K slots; the same seed makes the same steps."""

    def __init__(self, envs: int, seed: int = 0) -> None:
        self.envs = envs
        self.step = 0
        self._chance = np.random.default_rng(seed)
        shape = (envs, len(SLOTS))
        self._seeds = np.zeros(shape, int)
        self._returns, self._lengths = np.zeros(envs), np.zeros(envs, "i4")
        self._stage = np.full(shape, Stage.DORMANT.code)
        self._age, self._alpha, self._blueprint = (
            np.zeros(shape, int),
            np.zeros(shape, "f4"),
            np.full(shape, -1),
        )
        self.calls: list[Callable[[Run], None]] = []
        """What a trainer that makes a call for each thing of each step calls."""

    def rollout(self, steps: int) -> dict[str, np.ndarray]:
        """Take some steps; their columns."""
        rows = [self._take() for _ in range(steps)]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def report(self, run: Run, columns: Mapping[str, Any], **more: Any) -> None:
        """Report a rollout that just ended; a step takes a second."""
        steps = len(columns["reward"])
        first = self.step - steps + 1
        run.rollout(
            first_step=first, steps=steps, envs=self.envs, at_first=1e9 + first, at_last=1e9 + self.step,
            **columns, **more,
        )  # fmt: skip

    def _take(self) -> dict[str, np.ndarray]:
        chance, envs = self._chance, self.envs
        self.step += 1
        actions = chance.integers(0, 3, (envs, 3))
        reward, metric = chance.normal(size=envs).astype("f4"), chance.random(envs).astype("f4")
        grad = np.where(chance.random((envs, len(SLOTS))) < 0.5, np.nan, 0.5).astype("f4")
        gates = [self._gate() for _ in range(envs)]
        moves = [move for env in range(envs) for move in self._moves(env)]
        reason = np.zeros(self._stage.shape, "u1")
        for env, slot, code, _ in moves:
            reason[env, slot] = code
        self._alpha = np.where(
            self._stage == Stage.BLENDING.code, self._alpha + np.float32(0.25), self._alpha
        )
        self._returns, self._lengths = self._returns + reward, self._lengths + 1
        terminated, truncated = chance.random(envs) < 0.1, chance.random(envs) < 0.1
        row = {
            "actions": actions, "reward": reward, "metric": metric,
            "terminated": terminated, "truncated": truncated,
            "episode_return": self._returns.copy(), "episode_length": self._lengths.copy(),
            "slot_stage": self._stage.astype("u1"), "slot_blueprint": self._blueprint.astype("i2"),
            "slot_alpha": self._alpha.copy(), "slot_age": self._age.astype("i4"), "slot_grad": grad,
            "slot_reason": reason,
            "gate": np.array([gate["code"] for gate in gates], "u1"),
            "gate_slot": np.array([gate["slot"] for gate in gates], "u1"),
            "gate_passed": np.array([gate["failed"] == 0 for gate in gates]),
            "gate_score": np.array([gate["score"] for gate in gates], "f4"),
            "gate_failed": np.array([gate["failed"] for gate in gates], "u1"),
        }  # fmt: skip
        self._call(row, moves)
        self._age += 1
        self._restart(terminated | truncated)
        return row

    def _restart(self, ended: np.ndarray) -> None:
        self._returns[ended], self._lengths[ended] = 0, 0
        self._stage[ended], self._age[ended] = Stage.DORMANT.code, 0
        self._alpha[ended], self._blueprint[ended] = 0, -1

    def _gate(self) -> dict[str, Any]:
        code = int(self._chance.integers(0, len(GATES) + 1))
        bits = len(GATES[code - 1][1]) if code else 0
        failed = int(self._chance.integers(0, 1 << bits))
        score = np.nan if self._chance.random() < 0.5 else np.float32(self._chance.random())
        return {
            "code": code,
            "slot": int(self._chance.integers(0, len(SLOTS))),
            "failed": failed,
            "score": score,
        }

    def _moves(self, env: int) -> list[tuple[int, int, int, dict[str, Any]]]:
        """Moves of an env's slots, each with the code of its reason and what a call is given of it."""
        found = []
        for slot in range(len(SLOTS)):
            before = BY_CODE[self._stage[env, slot]]
            after = sorted(TRANSITIONS[before], key=lambda stage: stage.code)
            if not after or self._chance.random() < 0.4:
                continue
            now = after[self._chance.integers(0, len(after))]
            if now is Stage.GERMINATED:
                self._seeds[env, slot] += 1
                self._blueprint[env, slot] = self._chance.integers(0, len(BLUEPRINTS))
            code = int(self._chance.integers(0, len(REASONS) + 1))
            blueprint = int(self._blueprint[env, slot])
            facts = {
                "slot": SLOTS[slot], "before": before, "after": now,
                "blueprint": None if blueprint < 0 else BLUEPRINTS[blueprint],
                "alpha": float(self._alpha[env, slot]), "age": int(self._age[env, slot]),
                "reason": REASONS[code - 1] if code else None,
            }  # fmt: skip
            found.append((env, slot, code, facts))
            self._stage[env, slot], self._age[env, slot] = now.code, 0
            self._alpha[env, slot] = (
                1.0 if now is Stage.HOLDING else self._alpha[env, slot] if now is Stage.BLENDING else 0
            )
            if not now.shows_blueprint:
                self._blueprint[env, slot] = -1
        return found

    def seed_id(self, env: int, slot: int) -> str:
        """The name of the newest seed of a slot."""
        return f"{env}-{SLOTS[slot]}-{self._seeds[env, slot]}"

    def _call(self, row: Mapping[str, np.ndarray], moves: list[tuple[int, int, int, dict[str, Any]]]) -> None:
        envs, step, calls = list(range(self.envs)), self.step, self.calls
        uses = WORDS.uses
        heads = {
            name: [
                WORDS.heads[place][1][a[place]] if uses[a[0]][place] else None
                for a in row["actions"].tolist()
            ]
            for place, name in enumerate(("op", "slot", "blueprint"))
        }
        calls.append(partial(Run.actions, env_id=envs, step=step, **heads))
        calls.append(partial(Run.envs, env_id=envs, step=step, reward=row["reward"], metric=row["metric"]))
        for env in envs:
            if not row["gate"][env]:
                continue
            name, checks = GATES[row["gate"][env] - 1]
            failed, slot, score = (
                int(row["gate_failed"][env]),
                int(row["gate_slot"][env]),
                float(row["gate_score"][env]),
            )
            calls.append(
                partial(
                    Run.gate_evaluated, env_id=env, slot=SLOTS[slot], seed_id=self.seed_id(env, slot),
                    gate=name, passed=not failed, score=None if np.isnan(score) else score,
                    checks_passed=[check for bit, check in enumerate(checks) if not failed >> bit & 1],
                    checks_failed=[check for bit, check in enumerate(checks) if failed >> bit & 1],
                )
            )  # fmt: skip
        calls.extend(
            partial(Run.seed_stage_changed, env_id=env, seed_id=self.seed_id(env, slot), **facts)
            for env, slot, _, facts in moves
        )
        flat = {name: row[f"slot_{name}"].reshape(-1) for name in ("stage", "alpha", "age", "grad")}
        stages = [BY_CODE[code].value for code in flat.pop("stage").tolist()]
        codes = [
            None if code < 0 else BLUEPRINTS[code] for code in row["slot_blueprint"].reshape(-1).tolist()
        ]
        calls.append(
            partial(
                Run.slots, env_id=[env for env in envs for _ in SLOTS], slot=list(SLOTS) * self.envs,
                stage=stages, blueprint=codes, step=step,
                **flat,
            )
        )  # fmt: skip
        ended = np.flatnonzero(row["terminated"] | row["truncated"])
        if ended.size:
            calls.append(
                partial(
                    Run.episodes, env_id=ended, episode_return=row["episode_return"][ended],
                    length=row["episode_length"][ended], metric=row["metric"][ended], step=step,
                )
            )  # fmt: skip
