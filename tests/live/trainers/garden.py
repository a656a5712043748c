"""Envs in which seeds germinate, train and pass a gate, or are pruned; the bar of the gate can be raised."""

import argparse
import time

import numpy as np

import overwatch.sdk
from overwatch.catalog import Stage
from tests.live.trainers.reporting import reporting

STEP_S = 0.25


def main() -> None:
    """Grow seeds, one an env at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--envs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--raised-after", type=float, default=50.0, help="seconds")
    parser.add_argument("--bar", type=float, default=9.0, help="what it is raised to")
    flags = parser.parse_args()
    chance, began = np.random.default_rng(0), time.monotonic()
    ages, seeds = chance.integers(8, size=flags.envs), np.zeros(flags.envs, dtype=int)
    step = 0
    run_of = reporting(
        run_id=flags.run_id,
        task="garden",
        n_envs=flags.envs,
        slots=["r0"],
        endpoint=flags.endpoint,
        sample=False,
    )
    with run_of as run:
        while (passed_s := time.monotonic() - began) < flags.seconds:
            step += 1
            time.sleep(STEP_S)
            ages += 1
            run.envs(step=step, reward=chance.normal(1.0, 0.1, flags.envs))
            bar = flags.bar if passed_s > flags.raised_after else -2.0
            for env in np.flatnonzero(ages >= 8).tolist():
                ripe(run, (env, int(seeds[env])), float(chance.normal()), bar)
                ages[env], seeds[env] = 0, seeds[env] + 1


def ripe(run: overwatch.sdk.Run, owner: tuple[int, int], score: float, bar: float) -> None:
    """A seed meets its gate, and the next one germinates."""
    env, number = owner
    seed = f"{env}-r0-{number}"
    passed = score >= bar
    run.gate_evaluated(env_id=env, slot="r0", seed_id=seed, gate="G2", passed=passed, score=score)
    moves = (
        (Stage.TRAINING, Stage.BLENDING), (Stage.BLENDING, Stage.HOLDING), (Stage.HOLDING, Stage.FOSSILISED)
    ) if passed else ((Stage.TRAINING, Stage.PRUNED),)  # fmt: skip
    for before, after in moves:
        run.seed_stage_changed(env_id=env, slot="r0", seed_id=seed, before=before, after=after)
    following = f"{env}-r0-{number + 1}"
    for before, after in ((Stage.DORMANT, Stage.GERMINATED), (Stage.GERMINATED, Stage.TRAINING)):
        run.seed_stage_changed(env_id=env, slot="r0", seed_id=following, before=before, after=after)


if __name__ == "__main__":
    main()
