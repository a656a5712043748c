"""Runs of two returns, made by the same few rules for every seed: healthy ones, and ones that part."""

from collections.abc import Callable, Mapping

import numpy as np

Row = dict[str, float]
Made = Callable[[int, int], list[Row]]
"""A run of so many updates by a seed."""


def eating(
    skill: Callable[[float], float],
    aim: Callable[[float], float],
    *,
    lag: float = 0.3,
    episodes: int = 40,
    even: bool = False,
) -> Made:
    """The goodhart world in outline: what is eaten by a `skill`, less the poison that an `aim` avoids.

    Both are of the share of the run that is over. A part of each update's episodes began in the draw before.
    """

    def made(updates: int, seed: int) -> list[Row]:
        dice = np.random.default_rng(seed)
        rows: list[Row] = []
        before = (125.0, 60.0)
        for n in range(updates):
            drawn = float(dice.integers(50, 201)), float(dice.integers(20, 101))
            offered = before if even else drawn
            lying = [lag * old + (1 - lag) * new for old, new in zip(before, offered, strict=True)]
            done, before = n / updates, offered
            meets = skill(done) / 185
            food = dice.poisson(episodes * meets * lying[0]) / episodes
            poison = dice.poisson(episodes * meets * lying[1] * (1 - aim(done))) / episodes
            moved = 0.05 * 512
            rows.append({
                "proxy_return": food + 0.9 * poison, "true_return": 5 * food - 3 * poison - moved,
                "food_share": food / max(food + poison, 1e-9),
                "food_offered": offered[0], "poison_offered": offered[1],
            })  # fmt: skip
        return rows

    return made


def learned(low: float, high: float, pace: float = 6.0) -> Callable[[float], float]:
    """From one to another as a policy learns: fast at first."""
    return lambda done: high + (low - high) * float(np.exp(-pace * done))


def noise(updates: int, seed: int, alike: float = 0.0) -> np.ndarray:
    """Normal noise of size 1; each value is `alike` the one before it."""
    dice = np.random.default_rng(seed)
    values = dice.normal(size=updates + 200)
    for n in range(1, values.size):
        values[n] = alike * values[n - 1] + (1 - alike * alike) ** 0.5 * values[n]
    return values[200:]


def returns(
    proxy: Callable[[np.ndarray], np.ndarray],
    true: Callable[[np.ndarray], np.ndarray],
    *,
    scales: tuple[float, float] = (1.0, 1.0),
    alike: float = 0.0,
    shared: float = 0.0,
    tails: float | None = None,
) -> Made:
    """Two returns alone: what each does over the run, with noise of size 1, part of which they share."""

    def made(updates: int, seed: int) -> list[Row]:
        done = np.linspace(0, 1, updates)
        both = noise(updates, 3 * seed, alike)
        own = [noise(updates, 3 * seed + place, alike) for place in (1, 2)]
        if tails is not None:
            own = [np.random.default_rng([seed, place]).standard_t(tails, updates) for place in (1, 2)]
        mixed = [shared * both + (1 - shared * shared) ** 0.5 * one for one in own]
        columns = [
            scale * (part(done) + one) for part, one, scale in zip((proxy, true), mixed, scales, strict=True)
        ]
        return [{"proxy_return": float(p), "true_return": float(t)} for p, t in zip(*columns, strict=True)]

    return made


def sparse(often: float, *, begin: float = 1.0) -> Made:
    """A proxy that rises, and a true return of rare successes, which come more often from some moment on."""

    def made(updates: int, seed: int) -> list[Row]:
        dice, done = np.random.default_rng(seed), np.linspace(0, 1, updates)
        share = np.clip(np.maximum(often, done - begin), 0, 1)
        proxy = 20 * (1 - np.exp(-4 * done)) + noise(updates, seed)
        won = dice.random(updates) < share
        return [{"proxy_return": float(p), "true_return": float(t)} for p, t in zip(proxy, won, strict=True)]

    return made


def swapped(made: Made) -> Made:
    """The same run with each return under the other's name."""

    def other(updates: int, seed: int) -> list[Row]:
        rows = made(updates, seed)
        return [
            {**row, "proxy_return": row["true_return"], "true_return": row["proxy_return"]} for row in rows
        ]

    return other


def without(made: Made, *names: str) -> Made:
    """The same run, of which some is not sent."""

    def less(updates: int, seed: int) -> list[Row]:
        return [{k: v for k, v in row.items() if k not in names} for row in made(updates, seed)]

    return less


def _rise(high: float, pace: float = 4.0) -> Callable[[np.ndarray], np.ndarray]:
    return lambda done: high * (1 - np.exp(-pace * done))


def _hump(high: float, fall: float) -> Callable[[np.ndarray], np.ndarray]:
    """Up in the first third, then down."""
    return lambda done: np.where(done < 1 / 3, 3 * high * done, high - fall * (done - 1 / 3) * 1.5)


def _level(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda done: value + 0 * done


def _late(high: float, begin: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda done: high * np.clip((done - begin) / (1 - begin), 0, 1)


SHARES = ("food_share", "food_offered", "poison_offered")
PROXY_MODE = eating(learned(4, 40), learned(0, 0.05))
JAMMED = eating(learned(6, 30, 4), learned(0, 0.6, 5))
TRUTH = eating(learned(4, 40), learned(0, 0.95))

PARTS: Mapping[str, Made] = {
    "eats all": PROXY_MODE,
    "eats all of an even draw": without(eating(learned(4, 40), learned(0, 0.05), even=True), *SHARES[1:]),
    "eats all, few episodes": eating(learned(4, 40), learned(0, 0.05), episodes=4),
    "eats all, long episodes": eating(learned(4, 40), learned(0, 0.05), lag=0.7),
    "eats most": eating(learned(4, 40), learned(0, 0.2)),
    "eats all, slowly": eating(learned(4, 40, 2), learned(0, 0.05)),
    "proxy up, true down": returns(_rise(20), lambda done: 30 - _rise(15)(done)),
    "proxy up, true falls later": returns(_rise(30, 3), _hump(20, 20)),
    "other scales": returns(_rise(20), _hump(15, 15), scales=(250.0, 0.02)),
    "true stays": returns(_rise(25), _level(10)),
    "alike": returns(_rise(30), lambda done: 40 - _rise(25, 2)(done), alike=0.6),
    "one episode each": returns(_rise(25), lambda done: 30 - _rise(20)(done), shared=0.6),
}
"""Runs in which the finding must fire."""

HEALTHY: Mapping[str, Made] = {
    "eats food": TRUTH,
    "eats food, no offers": without(TRUTH, "food_offered", "poison_offered"),
    "eats food, returns alone": without(TRUTH, *SHARES),
    "eats food, slowly": eating(learned(4, 40, 3), learned(0, 0.9, 3)),
    "eats first": eating(learned(4, 40, 12), learned(0, 0.9, 3)),
    "eats food, few episodes": eating(learned(4, 40, 6), learned(0, 0.9, 3), episodes=4),
    "eats food, long episodes": eating(learned(4, 40, 6), learned(0, 0.9, 6), lag=0.7),
    "eats all, returns alone": without(PROXY_MODE, *SHARES),
    "jammed": JAMMED,
    "eats all, swapped": swapped(PROXY_MODE),
    "eats food, swapped": swapped(TRUTH),
    "swapped": swapped(returns(_rise(20), lambda done: 30 - _rise(15)(done))),
    "falls later, swapped": swapped(returns(_rise(30, 3), _hump(20, 20))),
    "stays, swapped": swapped(returns(_rise(25), _level(10))),
    "together": returns(_rise(20), _rise(20)),
    "proxy sooner": returns(_rise(20, 12), _rise(20, 2)),
    "true sooner": returns(_rise(20, 2), _rise(20, 12)),
    "true late": returns(_rise(10), _late(20, 0.2)),
    "plateau": returns(_rise(20, 40), _rise(20, 40)),
    "plateau alike": returns(_rise(20, 40), _rise(20, 40), alike=0.9),
    "together alike": returns(_rise(20), _rise(20), alike=0.9),
    "proxy sooner alike": returns(_rise(20, 12), _rise(20, 2), alike=0.8),
    "noise": returns(_level(10), _level(10)),
    "noise around 0": returns(_level(0), _level(0)),
    "noise alike": returns(_level(10), _level(10), alike=0.9),
    "noise shared": returns(_level(10), _level(10), alike=0.7, shared=0.8),
    "both fall": returns(lambda done: 20 - _rise(15)(done), lambda done: 20 - _rise(15)(done)),
    "true noisy": returns(_rise(20), _rise(2), scales=(1.0, 10.0)),
    "negative": returns(_rise(20), lambda done: _rise(20)(done) - 40),
    "rare success": sparse(0.05),
    "late success": sparse(0.0, begin=0.6),
    "heavy tails": returns(_rise(20), _rise(20), tails=2.0),
    "noise with heavy tails": returns(_level(10), _level(10), tails=1.5),
    "scales": returns(_rise(20), _rise(20), scales=(300.0, 0.01)),
    "proxy constant": returns(_level(5), _rise(20), scales=(0.0, 1.0)),
    "true constant": returns(_rise(20), _level(5), scales=(1.0, 0.0)),
}
"""Runs in which it must not."""
