"""What is found in trainings of other libraries: as they learn, and at 1,000 times their learning rate.

Owns the trainings: a program of `examples/`, what is changed in it so that it trains to the return that is
known of its task, and what is changed besides so that it cannot learn. `make libraries-judged` runs each
beside a real collector, keeps its recording below `build/judged/` and what was found in `judged.json`, and
draws the page anew.

`python -m tests.libraries.judged [NAME ...] --run` runs some; `--again` judges their recordings once more.
"""

import argparse
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from packaging.requirements import Requirement

from overwatch.analyse.findings import Findings
from overwatch.feeds.recording import Recording
from overwatch.snapshot import Snapshot
from tests.libraries.examples import FOLDER, ROOT, Example, examples
from tests.libraries.running import python_of, watched

PAGE: Final = ROOT / "docs" / "adapters-judged.md"
KEPT: Final = Path(__file__).with_name("judged.json")
RECORDED: Final = ROOT / "build" / "judged"
HEALTHY: Final = "healthy"
BROKEN: Final = "broken"
NAMED_WITHIN: Final = 20
"""Updates within which a run that cannot learn must be named."""
LEVEL: Final = 5
"""Newest values whose median is what a run reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training."""

    example: str
    """Whose program it is."""
    task: str
    reaches: float
    """What is known of the task: the level that a policy which learned it has."""
    row: str = "return"
    is_low: bool = False
    """Whether less of the row is better."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Of the program: what stands in it once, and what stands there instead."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """The same for the run that cannot learn, of what the changes left."""
    words: tuple[str, ...] = ()
    """Arguments."""
    broken_words: tuple[str, ...] = ()
    """Arguments of the run that cannot learn, in place of the others."""
    needs: tuple[str, ...] = ()
    """Packages beyond those of the example."""

    def program(self, source: str, kind: str) -> str:
        """The program to run. Raises `ValueError` for a change of what does not stand there once."""
        steps = [self.changes, *([self.broken] if kind == BROKEN else [])]
        for old, new in (pair for step in steps for pair in step.items()):
            if source.count(old) != 1:
                raise ValueError(f"{old!r} stands {source.count(old)} times in {self.example}; name it once")
            source = source.replace(old, new)
        return source


def _sb3(task: str, envs: int, steps: int, settings: str, rate: float) -> dict[str, Mapping[str, str]]:
    """The first example with another task, and with a thousand times its learning rate."""
    vector = "from stable_baselines3.common.env_util import make_vec_env\n"
    return {
        "changes": {
            'env = gym.make("CartPole-v1")': f'{vector}env = make_vec_env("{task}", {envs}, seed=1)',
            "env, verbose=1)": f"env, seed=1, learning_rate={rate:g}, {settings})",
            "total_timesteps=10_000": f"total_timesteps={steps}",
        },
        "broken": {
            f"learning_rate={rate:g}": f"learning_rate={1000 * rate:g}",
            f"total_timesteps={steps}": f"total_timesteps={steps // 2}",
        },
    }  # fmt: skip


_SAC: Final = {
    "import PPO": "import SAC",
    'PPO("MlpPolicy"': 'SAC("MlpPolicy"',
    'env = gym.make("CartPole-v1")': 'env = gym.make("Pendulum-v1")',
    # Its return is a mean over episodes: of ten, so that the first ones are not in the last one's.
    "env, verbose=1)": "env, seed=1, learning_rate=1e-3, learning_starts=200, stats_window_size=10)",
    "total_timesteps=10_000": "total_timesteps=8_000, log_interval=1",
}
_OWN_CRITIC: Final = "DiscreteCritic(preprocess_net=Net(state_shape=(4,), hidden_sizes=(64, 64)))"
_SHAPED: Final = "config.rewards_shaper = lambda rewards, *_: 0.01 * rewards"
"""Unscaled, the critic's gradient is hundreds of times the policy's, and the clip of both leaves it none."""
_RLOO: Final = {
    "from trl import GRPOConfig, GRPOTrainer": "from trl import RLOOConfig, RLOOTrainer",
    "trainer = GRPOTrainer(": "trainer = RLOOTrainer(",
    "args=GRPOConfig(": "args=RLOOConfig(",
    # Its reference model is loaded by name, and this one has none.
    "use_cpu=True,": "use_cpu=True,\n                beta=0.0,",
}
_LARGER: Final = {"n_embd=64, n_layer=1, n_head=2": "n_embd=256, n_layer=4, n_head=4"}
"""A model whose updates take as long as it takes to see each of them."""
_LONG: Final = ("--steps", "60", "--learning-rate")

CASES: Final[Mapping[str, Case]] = {
    "sb3-cartpole": Case(
        example="sb3", task="PPO, CartPole-v1", reaches=475,
        **_sb3("CartPole-v1", 8, 60_000, "n_steps=128, n_epochs=8", 1e-3),
    ),
    "sb3-acrobot": Case(
        example="sb3", task="PPO, Acrobot-v1", reaches=-100,
        **_sb3("Acrobot-v1", 16, 200_000, "n_steps=256, gae_lambda=0.94, n_epochs=4", 3e-4),
    ),
    "sb3-pendulum": Case(
        example="sb3", task="PPO, Pendulum-v1", reaches=-250,
        **_sb3("Pendulum-v1", 4, 100_000, "n_steps=1024, gamma=0.9, use_sde=True, sde_sample_freq=4", 1e-3),
    ),
    "sb3-lunarlander": Case(
        example="sb3", task="PPO, LunarLander-v3", reaches=200, needs=("box2d==2.3.10", "pygame==2.6.1"),
        **_sb3(
            "LunarLander-v3", 16, 500_000,
            "n_steps=256, gamma=0.999, gae_lambda=0.98, ent_coef=0.01", 1e-3,
        ),
    ),
    "sb3-sac": Case(
        example="sb3", task="SAC, Pendulum-v1", reaches=-250, changes=_SAC,
        broken={"learning_rate=1e-3": "learning_rate=1"},
    ),
    "cleanrl": Case(
        example="cleanrl_ppo", task="PPO, CartPole-v1", reaches=475,
        # The rate of CleanRL's own script; the example's larger one, which is soon done, forgets at times.
        changes={"learning_rate: float = 1e-3": "learning_rate: float = 2.5e-4",
                 "total_timesteps: int = 25_600": "total_timesteps: int = 256_000",
                 "num_iterations: int = 50": "num_iterations: int = 500"},
        broken={"learning_rate: float = 2.5e-4": "learning_rate: float = 0.25",
                "total_timesteps: int = 256_000": "total_timesteps: int = 25_600",
                "num_iterations: int = 500": "num_iterations: int = 50"},
    ),
    "torchrl": Case(
        example="torchrl_ppo", task="PPO, CartPole-v1", reaches=475,
        changes={"24_000": "100_000"},
        broken={"100_000": "24_000"}, words=("1e-3",), broken_words=("1",),
    ),
    "tianshou": Case(
        example="tianshou_ppo", task="PPO, CartPole-v1", reaches=475,
        changes={"max_epochs=4": "max_epochs=16", "DiscreteCritic(preprocess_net=net)": _OWN_CRITIC},
        broken={"max_epochs=16": "max_epochs=4"},
        words=("1e-3",), broken_words=("1",),
    ),
    "skrl": Case(
        example="skrl_ppo", task="PPO, Pendulum-v1", reaches=-250,
        changes={"6_400": "16_000", "= 0.9, 0.95": f"= 0.9, 0.95\n{_SHAPED}"},
        broken={"16_000": "6_400"}, words=("1e-3",), broken_words=("1",),
    ),
    "rsl_rl": Case(
        example="rsl_rl_ppo", task="PPO, point masses", reaches=-8, words=("1e-3",), broken_words=("1",),
        changes={"num_learning_iterations=80": "num_learning_iterations=120"},
        broken={"num_learning_iterations=120": "num_learning_iterations=60"},
    ),
    "rllib": Case(
        example="rllib", task="PPO, CartPole-v1", reaches=400,
        changes={
            "train_batch_size_per_learner=512, num_epochs=4": "train_batch_size_per_learner=2048, lr=1e-3",
            "range(8)": "range(25)",
        },
        broken={"lr=1e-3": "lr=1", "range(25)": "range(22)"},
    ),
    "trl-grpo": Case(
        example="trl_grpo", task="GRPO, a letter repeated", reaches=0.8,
        words=(*_LONG, "3e-3"), broken_words=(*_LONG, "3"),
    ),
    "trl-rloo": Case(
        example="trl_grpo", task="RLOO, a letter repeated", reaches=0.8, changes=_RLOO,
        words=(*_LONG, "3e-3"), broken_words=(*_LONG, "3"),
    ),
    "trl-sft": Case(
        example="trl_sft", task="SFT, the alphabet", reaches=0.4, row="total_loss", is_low=True,
        changes=_LARGER, words=(*_LONG, "1e-3"), broken_words=(*_LONG, "1"),
    ),
    "trl-dpo": Case(
        example="trl_sft", task="DPO, the alphabet", reaches=0.1, row="total_loss", is_low=True,
        changes=_LARGER, words=(*_LONG, "1e-4", "--dpo"), broken_words=(*_LONG, "0.1", "--dpo"),
    ),
}  # fmt: skip
"""By name. What is known: Gymnasium's own thresholds, RL Zoo's benchmark where there is none, and for
programs of our own what a policy that learned its task earns, or the loss of a model that did."""


OF_TIME: Final = ("policy-update-time", "recompiles")
"""Findings of the policy that are about time."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One finding."""

    severity: str
    """The worst that it was."""
    code: str
    update: int
    """Of the run, when it was first there."""
    scope: str
    message: str

    @property
    def is_about_learning(self) -> bool:
        """Whether it names what the policy does, or that the program died of a value that is no number."""
        died = self.code == "run-failed" and re.search(r"\b(nan|inf)\b", self.message.lower()) is not None
        return died or self.scope == "policy"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One run, and what was reported of it."""

    status: int
    updates: int
    reached: float | None
    """The best level of the case's row; `None` where it never had a value."""
    findings: list[Found] = msgspec.field(name="said")

    def of(self, severity: str) -> list[Found]:
        """Findings that were as bad as this."""
        return [one for one in self.findings if one.severity == severity]

    @property
    def named(self) -> Found | None:
        """The first finding that is about learning, and bad."""
        found = [one for one in self.findings if one.severity != "info" and one.is_about_learning]
        found = [one for one in found if one.code not in OF_TIME]
        return min(found, key=lambda one: one.update, default=None)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Both runs of one case."""

    name: str
    versions: str
    healthy: Ran
    broken: Ran


def run(name: str, kind: str, example: Example) -> int:
    """Train; the recording is left below `build/judged/`. Returns how the program ended."""
    case, folder = CASES[name], RECORDED / f"{name}-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    script = folder / example.script.name
    script.write_text(case.program(example.source, kind), encoding="utf-8")
    python = python_of(example)
    words = case.broken_words if kind == BROKEN and case.broken_words else case.words
    seen = watched([str(python), str(script), *words], python, folder)
    if kind == HEALTHY and seen.status != 0:
        raise SystemExit(f"{name} ended with {seen.status}:\n{seen.output[-5000:]}")
    (folder / "status").write_text(str(seen.status))
    return seen.status


def judged(name: str, kind: str) -> Ran:
    """What a recording is called, tick by tick as it was live."""
    case, folder = CASES[name], RECORDED / f"{name}-{kind}"
    findings, updates, levels = Findings(), 0, list[float]()
    for frame in Recording(folder / "otlp").frames():
        for snapshot in frame.snapshots.values():
            findings.take(snapshot, 0.0)
            updates = max(updates, snapshot.run.update or 0)
            levels += _level(snapshot, case.row)
    found = [
        Found(
            severity=one.severity, code=one.finding.code, update=one.update or 0,
            scope=one.finding.subject.scope, message=one.finding.message,
        )
        for one in findings.by_key.values()
    ]  # fmt: skip
    best = (min if case.is_low else max)(levels, default=None)
    status = int((folder / "status").read_text())
    return Ran(status=status, updates=updates, reached=best, findings=found)


def _level(snapshot: Snapshot, row: str) -> list[float]:
    value = snapshot.policy.get(row)
    known = [] if value is None else [one for one in value.history if one is not None]
    return [median(known[-LEVEL:])] if known else []


_HEAD: Final = f"""<!-- Generated by `make libraries-judged` from tests/libraries/judged.json. -->
# Libraries, as judged

What is found in trainings of other libraries. Each line is a program of `examples/`, trained on a CPU to the
return that is known of its task, and once more with a thousand times its learning rate, at which it cannot
learn. Both ran beside a real collector.

- **reached**: the best median of {LEVEL} updates. **Of**: Gymnasium's own threshold, RL Zoo's benchmark where
  there is none, or what a policy earns that learned a task of ours. Of SFT and DPO it is the loss, and less
  is better.
- **critical**, **warning**: findings that stood at any time, at their worst, each with the update at which it
  was there first. A healthy run has none that is critical, and at most one warning in a hundred updates (one
  in a shorter run).
- **named**: the first finding about learning in the other run, a warning or worse, and its update;
  `run-failed` where the program died of a value that is no number. It should be there within
  {NAMED_WITHIN} updates.

"""
_TABLE: Final = """| run | task | updates | reached | of | critical | warning | healthy | named | at update |
|---|---|---|---|---|---|---|---|---|---|
"""


def is_healthy(ran: Ran) -> bool:
    """No critical finding, and one warning in a hundred updates."""
    return not ran.of("critical") and len(ran.of("warning")) <= max(1, ran.updates // 100)


def is_learned(case: Case, ran: Ran) -> bool:
    """Whether a run came to what is known of its task."""
    if ran.reached is None:
        return False
    return ran.reached <= case.reaches if case.is_low else ran.reached >= case.reaches


def page(results: Iterable[Result]) -> str:
    """The whole page."""
    kept = [one for name in CASES for one in results if one.name == name]
    lines = [_HEAD + _TABLE + "\n".join(_line(one) for one in kept), "", "## What each showed", ""]
    for one in kept:
        lines += [f"- **{one.name}** ({one.versions or 'PyTorch alone'})"]
        for kind, ran in ((HEALTHY, one.healthy), ("rate × 1,000", one.broken)):
            listed = "; ".join(
                f"{each.severity} `{each.code}` at {each.update}: {each.message}" for each in ran.findings
            )
            ended = f", ended with status {ran.status}" if ran.status else ""
            lines += [f"    - {kind}, {ran.updates} updates{ended}: {listed or 'nothing'}"]
    unrun = [name for name in CASES if name not in {one.name for one in kept}]
    lines += ["", f"Not run yet: {', '.join(unrun)}."] if unrun else []
    return "\n".join(lines) + "\n"


def _line(one: Result) -> str:
    case, ran = CASES[one.name], one.healthy
    named = one.broken.named
    reached = "–" if ran.reached is None else f"{ran.reached:.4g}"
    cells = [
        one.name, case.task, ran.updates, reached if is_learned(case, ran) else f"**{reached}**",
        f"{case.reaches:g}", *(_codes(ran.of(severity)) for severity in ("critical", "warning")),
        "yes" if is_healthy(ran) else "**no**",
        "**not**" if named is None else f"`{named.code}` ({named.severity})",
        f"of {one.broken.updates}" if named is None else _late(named.update),
    ]  # fmt: skip
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _codes(findings: list[Found]) -> str:
    return ", ".join(f"`{one.code}` at {one.update}" for one in findings) or "0"


def _late(update: int) -> str:
    return f"**{update}**" if update > NAMED_WITHIN else str(update)


def kept() -> list[Result]:
    """What was found last."""
    return msgspec.json.decode(KEPT.read_bytes(), type=list[Result]) if KEPT.exists() else []


def main() -> None:
    """Run what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of the cases; all where none is named")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--again", action="store_true", help="judge the recordings of the last run once more")
    flags = parser.parse_args()
    found = {one.name: one for one in kept() if one.name in CASES}
    for name in flags.names or CASES if flags.run or flags.again else ():
        example = _example(CASES[name])
        for kind in (HEALTHY, BROKEN) if flags.run else ():
            run(name, kind, example)
        if (RECORDED / f"{name}-{BROKEN}" / "status").exists():
            healthy, broken = judged(name, HEALTHY), judged(name, BROKEN)
            found[name] = Result(name=name, versions=example.versions, healthy=healthy, broken=broken)
            print(_line(found[name]), flush=True)
            _write(list(found.values()))
    _write(list(found.values()))


def _example(case: Case) -> Example:
    example = next(one for one in examples(FOLDER) if one.name == case.example)
    more = tuple(Requirement(one) for one in case.needs)
    return replace(example, requirements=(*example.requirements, *more))


def _write(results: list[Result]) -> None:
    ordered = [one for name in CASES for one in results if one.name == name]
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    PAGE.write_text(page(ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
