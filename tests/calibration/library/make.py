"""Makes the library: `python -m tests.calibration.library.make --half open` trains what is not there yet.

The seeds and settings of the sealed half are drawn from the commit that freezes the rules: `--half sealed
--commit SHA`. One training at a time, each in a process of its own; a series is written whole or not at all,
so this may be killed and started again at any time. `--plan` prints the cases.
"""

import argparse
import importlib
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import torch

from overwatch.events import EpisodeEnded
from tests.calibration.library.drawing import Draw
from tests.calibration.library.kinds import KINDS, SB3, plan
from tests.calibration.library.series import FOLDER, HALVES, WORLDS, Case, Series, write
from tests.calibration.library.tape import Tape, record
from tests.calibration.library.worlds import FAULTS, MAKERS, Fault

ROOT: Final = "drawn-from"
"""File beside the trainings, with what their seeds were drawn from."""
PATIENCE_S: Final = 900.0
POINTS: Final = 40
"""Of the curve of returns."""
TRAINERS: Final[dict[str, str]] = {
    **dict.fromkeys(SB3, "sb3"),
    **dict.fromkeys(("cleanrl-ppo", "cleanrl-dqn"), "cleanrl"),
    **dict.fromkeys(("our-ppo", "our-grpo", "trl-grpo"), "ours"),
}
"""The module that trains with an algorithm."""
Train = Callable[[Draw, Fault, float], None]


def trainer(algorithm: str) -> Train:
    """What trains with an algorithm."""
    found: Train = importlib.import_module(f"tests.calibration.library.{TRAINERS[algorithm]}").train
    return found


def run(case: Case) -> Series:
    """Train one case in this process."""
    kind, draw = KINDS[case.kind], Draw(case)
    fault = Fault(size=draw.of("size"))
    name = "reward-flipped" if case.kind == "eval-falls" else case.kind
    if name in FAULTS:
        fault.of_env = name
        fault.envs = draw.one("envs", (1, 2, 64)) if name in ("resets-at-once", "env-stuck") else 64
        fault.envs = 1 if name in ("env-dies", "env-slow", "reward-nan") else fault.envs
    is_midway = draw.of("midway") < kind.midway
    begins = (draw.between("begins", 0.3, 0.6) if is_midway else 0.0) if kind.is_broken else 2.0
    tape, began, error = record(), time.process_time(), None
    watch = _Began(fault, tape.since)
    try:
        trainer(case.algorithm)(draw, watch, begins)
    except Exception as raised:  # noqa: BLE001 some faults end a training: that is what is to be seen
        error = f"{type(raised).__name__}: {raised}".partition("\n")[0][:200]
    if kind.is_broken and watch.began_ns is None:
        raise RuntimeError(f"{case.name}: the fault never began; {error}")
    if case.world not in MAKERS and not watch.episodes:
        watch.episodes += _sent(tape)
    monotonic = time.monotonic() - tape.since() / 1e9
    return Series(
        case=case,
        start_ns=tape.start_ns,
        settings=draw.noted | {"size": f"{fault.size:.3f}", "envs": str(fault.envs)}
        if fault.of_env
        else draw.noted,
        began_ns=watch.began_ns if kind.is_broken else None,
        returns=_curve([(at - monotonic, value) for at, value in watch.episodes]),
        error=error,
        cpu_s=time.process_time() - began,
        moments=tuple(sorted(tape.moments, key=lambda moment: moment.after_ns)),
    )


class _Began(Fault):
    """A fault that notes when it is turned on."""

    def __init__(self, fault: Fault, since: Callable[[], int]) -> None:
        self.began_ns: int | None = None
        self._since = since
        super().__init__(of_env=fault.of_env, size=fault.size, envs=fault.envs)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "is_on" and value and self.began_ns is None:
            self.began_ns = self._since()
        super().__setattr__(name, value)


def _sent(tape: Tape) -> list[tuple[float, float]]:
    """Returns of the episodes that a run of our own world sent."""
    ended = [one for moment in tape.moments for one in moment.events if isinstance(one, EpisodeEnded)]
    offset = time.monotonic() - time.time_ns() / 1e9
    return [(one.at / 1e9 + offset, float(value)) for one in ended for value in one.episode_return.array()]


def _curve(episodes: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    parts = np.array_split(np.array(episodes).reshape(-1, 2), min(POINTS, max(len(episodes), 1)))
    return tuple((float(part[-1, 0]), float(part[:, 1].mean())) for part in parts if len(part))


def _child(case: Case, path: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with np.errstate(all="ignore"):
            series = run(case)
        write(series, path)
    last = series.returns[-1][1] if series.returns else float("nan")
    print(
        f"{case.name}: {series.outcome}, {last:.2f} of {WORLDS[case.world][1]:g}, {series.cpu_s:.0f} s CPU,"
        f" {len(series.moments)} moments, {path.stat().st_size >> 10} KiB {series.error or ''}",
        flush=True,
    )


def make(cases: list[Case], folder: Path) -> None:
    """Train what is not there, one after the other."""
    for name in {TRAINERS[case.algorithm] for case in cases}:
        importlib.import_module(f"tests.calibration.library.{name}")
    forked = multiprocessing.get_context("fork")
    for case in cases:
        path = folder / f"{case.name}.bin"
        if path.exists():
            continue
        process = forked.Process(target=_child, args=(case, path))
        process.start()
        process.join(PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode:
            print(f"{case.name}: not made, exit status {process.exitcode}", flush=True)


def of_folder(folder: Path, default: str) -> str:
    """What the trainings in a folder were drawn from."""
    path = folder / ROOT
    return path.read_text(encoding="utf-8") if path.exists() else default


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES, default="open")
    parser.add_argument("--commit", help="the commit that freezes the rules; its hash draws the sealed half")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.half == "sealed" and len(given.commit or "") != 40:
        parser.error("--half sealed needs --commit with all 40 digits of the commit that freezes the rules")
    root = given.commit if given.half == "sealed" else "open"
    cases = [case for case in plan(given.half, root) if given.only in case.name]
    if given.plan:
        print("\n".join(case.name for case in cases), f"\n{len(cases)} cases")
        return
    folder = given.folder or FOLDER / given.half
    folder.mkdir(parents=True, exist_ok=True)
    if root != of_folder(folder, root):
        parser.error(f"{folder} holds trainings of {of_folder(folder, root)}; a half is drawn once")
    (folder / ROOT).write_text(root, encoding="utf-8")
    os.nice(19 - os.nice(0))
    make(cases, folder)


if __name__ == "__main__":
    main()
