"""Detectors of others on the same series; run by a Python that has them, with nothing of this project.

    pip install rlwatch==0.5.1 rldoctor==0.2.0 rlprobe==0.1.0 zen-rl==0.1.0

Series come as lines of JSON on standard input, each a list of updates; what a peer found goes out as lines.
Each peer is asked as its own live mode asks it: rlwatch at every update, the others at every fifth.
"""

import json
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

Found = list[tuple[int, str, str]]
"""Update, finding, and `warning` or `critical`."""
Updates = list[dict[str, float]]
EVERY = 5


def _rlwatch(updates: Updates) -> Found:
    from rlwatch.config import RLWatchConfig
    from rlwatch.detectors import DetectorSuite

    suite, names = DetectorSuite(RLWatchConfig()), {"kl": "kl_divergence", "reward": "reward_mean"}
    taken = ("entropy", "kl", "reward", "reward_std", "advantage_std", "loss", "grad_norm")
    found = []
    for number, values in enumerate(updates):
        given = {names.get(name, name): values[name] for name in taken if name in values}
        found += [(number, one.detector, one.severity) for one in suite.check_step(number, **given)]
    return found


def _again(updates: Updates, judge: Callable[[int], list[tuple[str, str]]]) -> Found:
    """What comes anew as the run grows."""
    known, found = set[tuple[str, str]](), list[tuple[int, str, str]]()
    for count in range(2 * EVERY, len(updates) + EVERY, EVERY):
        now = set(judge(min(count, len(updates))))
        found += [(min(count, len(updates)) - 1, *one) for one in sorted(now - known)]
        known |= now
    return found


def _rlprobe(updates: Updates) -> Found:
    from rlprobe.doctor.engine import diagnose_view
    from rlprobe.doctor.runview import RunView
    from rlprobe.schemas import RunManifest, StepRecord

    names = {
        "kl": "kl_mean", "entropy": "entropy_mean", "reward": "reward_mean", "learning_rate": "lr",
        "advantage_std": "adv_std", "explained_variance": "value_explained_variance",
    }  # fmt: skip
    rows = [
        StepRecord(step=number, **{names.get(name, name): value for name, value in values.items()})
        for number, values in enumerate(updates)
    ]
    about = RunManifest(run_id="run", created_at="2026-01-01T00:00:00", algorithm="ppo")

    def judge(count: int) -> list[tuple[str, str]]:
        found = diagnose_view(RunView(about, rows[:count])) if count >= 30 else []
        words = {"warn": "warning", "critical": "critical"}
        return [(one.signature_id, words[one.severity]) for one in found if one.severity in words]

    return _again(updates, judge)


def _rldoctor(updates: Updates) -> Found:
    from rl_doctor.live import LiveMonitor

    names = {"reward": "reward_mean", "clip_fraction": "pg_clipfrac", "learning_rate": "lr"}
    monitor, found = LiveMonitor(on_finding=lambda _: None, check_every=EVERY), list[tuple[int, str, str]]()
    for number, values in enumerate(updates):
        given = {names.get(name, name): value for name, value in values.items()}
        found += [
            (number, one.detector, one.severity.name.lower()) for one in monitor.log(given, step=number)
        ]
    return found


def _zen(updates: Updates) -> Found:
    from zen.detect.rules import detect

    names = {"kl": "train/approx_kl", "entropy": "train/entropy_loss", "reward": "rollout/ep_rew_mean"}

    def judge(count: int) -> list[tuple[str, str]]:
        series: dict[str, list[Any]] = {}
        for number, values in enumerate(updates[:count]):
            for name in names.keys() & values.keys():
                series.setdefault(names[name], []).append((number, values[name]))
        return [(one["mode"], "warning") for one in detect(series)]

    return _again(updates, judge)


PEERS = {"rlwatch": _rlwatch, "rldoctor": _rldoctor, "rlprobe": _rlprobe, "zen-rl": _zen}


def main() -> None:
    """Judge each line."""
    warnings.simplefilter("ignore")
    logging.disable()
    for line in sys.stdin:
        updates = json.loads(line)
        found = {}
        for name, judge in PEERS.items():
            try:
                found[name] = judge(updates)
            except ImportError:
                continue
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
