"""The trainer in one process: it learns, its control does not, and a sampler that is wrong is found."""

import math
from pathlib import Path

import pytest

from overwatch.catalog import Scope, of_scope
from overwatch.events import LogLine
from overwatch_rl.algorithms.grpo import GRPOConfig
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.grpo.base import BaseConfig
from overwatch_rl.grpo.trainer import LoopConfig, Taken
from tests import fakes
from tests.fakes import START_NS
from tests.overwatch.test_preset import Tower
from tests.overwatch_rl.grpo.local import SMALL_BASE, Local, Training, shuffled, training

LANGUAGE = (
    "reward_std", "groups_alike", "answers_cut", "sampler_weight", "sampler_ess", "sampler_kl", "token_error",
    "mfu", "data_age_updates", "kl_k1", "kl_reference", "entropy_nats",
)  # fmt: skip
"""Rows of the catalogue that trainers of language models emit."""
SHORT = BaseConfig(steps=4, examples=16, width=16, layers=1)
"""A base model that knows nothing."""


def small(folder: Path, updates: int, *, seed: int = 0, config: GRPOConfig | None = None) -> Training:
    """A short training of a small model, answers one update old."""
    learned = config or GRPOConfig(learning_rate=1e-3)
    loop = LoopConfig(updates=updates, judge_every=updates)
    made = training(Local(folder, age=1, seed=seed), loop, base=SMALL_BASE, config=learned, seed=seed)
    made.trainer.run()
    return made


def test_it_learns_and_its_control_does_not(tmp_path: Path) -> None:
    """Held-out prompts earn far more than at first; with shuffled advantages no more than by chance."""
    learned = small(tmp_path / "a", 30).trainer.judged
    control = small(tmp_path / "b", 30, config=shuffled(GRPOConfig(learning_rate=1e-3))).trainer.judged

    assert learned[30].mean > learned[0].mean + 8 * learned[0].standard_error
    assert control[30].mean <= control[0].mean + 2 * control[0].standard_error


def test_same_seed_same_numbers(tmp_path: Path) -> None:
    """All but what a clock measures."""
    one, other = (small(tmp_path / name, 2).reporter.updates for name in "ab")

    for left, right in zip(one, other, strict=True):
        timed = {"update_time", "mfu"}
        assert {k: repr(v) for k, v in left.items() if k not in timed} == {
            k: repr(v) for k, v in right.items() if k not in timed
        }


@pytest.fixture
def tiny(tmp_path: Path) -> Training:
    """Three updates of a model that knows nothing, not begun."""
    return training(Local(tmp_path), LoopConfig(updates=3, judge_every=2, peak_flops=1e9), base=SHORT)


def test_versions_are_stated_before_a_batch_is_acknowledged(tiny: Training) -> None:
    """One a batch; whoever samples next has the new weights."""
    assert tiny.trainer.run() == "completed"

    assert tiny.source.versions == [Version(lineage=1, number=number) for number in range(4)]
    assert tiny.source.acknowledged == [1, 2, 3]


def test_every_number_is_a_row_of_the_catalogue(tiny: Training) -> None:
    """And those of language models are all there, but for what no batch of groups all alike has."""
    tiny.trainer.run()
    rows = {row.short for row in of_scope(Scope.POLICY)}

    for values in tiny.reporter.updates:
        assert set(values) - {"update"} <= rows
        undefined = set() if "policy_loss" in values else {"kl_k1", "kl_reference"}
        assert set(LANGUAGE) - undefined <= set(values)
        assert 0 < values["mfu"] < math.inf
    assert all(math.isfinite(tiny.reporter.updates[0][name]) for name in ("data_age_updates", "mfu"))


def test_nothing_is_claimed_of_a_device_that_was_not_declared(tmp_path: Path) -> None:
    """Without its peak there is no share of it; a peak that cannot be is an error that names it."""
    made = training(Local(tmp_path), LoopConfig(updates=1), base=SHORT)
    made.trainer.run()

    assert "mfu" not in made.reporter.updates[0]
    with pytest.raises(ValueError, match=r"peak_flops is -1\.0; use a number above 0"):
        LoopConfig(peak_flops=-1.0)


def test_held_out_prompts_are_looked_at_at_first_now_and_then_and_at_last(tiny: Training) -> None:
    """Each look is a line of the log."""
    tiny.trainer.run()
    lines = [fact.message for fact in tiny.reporter.facts if isinstance(fact, LogLine)]

    assert sorted(tiny.trainer.judged) == [0, 2, 3]
    assert [line.split()[-2] for line in lines if "held-out" in line] == ["0", "2", "3"]


def test_it_ends_when_it_is_asked_to(tiny: Training) -> None:
    """After the update that runs, with what was asked as its outcome."""
    requested = iter([None, None, "interrupted"])

    assert tiny.trainer.run(lambda: next(requested, "interrupted")) == "interrupted"
    assert tiny.trainer.updates_done < 3


class _Broken(Local):
    """A source of which one batch has no log-probabilities."""

    def take(self, stop: object) -> Taken | None:
        """The batch, in place of the second one a useless one."""
        taken = super().take(stop)  # type: ignore[arg-type]
        if taken is None or len(self.acknowledged) != 1:
            return taken
        groups = [{**group, "inference_logprobs": None} for group in taken.groups]
        return Taken(groups=groups, numbers=taken.numbers)


def test_a_batch_without_log_probs_teaches_nothing_and_blocks_nothing(tmp_path: Path) -> None:
    """It is acknowledged, named group by group, and no update is made of it."""
    made = training(_Broken(tmp_path, groups=2), LoopConfig(updates=2), base=SHORT)
    made.trainer.run()
    lines = [fact.message for fact in made.reporter.facts if isinstance(fact, LogLine)]

    assert [line.partition(";")[0] for line in lines if "not learned from" in line] == [
        f"not learned from: batch[{place}].inference_logprobs: is absent" for place in (0, 1)
    ]
    assert made.source.acknowledged == [1, 2, 3]
    assert [values["update"] for values in made.reporter.updates] == [1, 2]


def test_a_run_goes_on_where_it_was_kept_with_numbers_that_were_never_given_out(tmp_path: Path) -> None:
    """Updates are counted from its beginning; samplers take the new weights for the newest."""
    first = training(Local(tmp_path), LoopConfig(updates=2), base=SHORT)
    first.trainer.run()
    position = first.trainer.position()
    again = training(Local(tmp_path), LoopConfig(updates=3), base=SHORT, seed=5)

    again.trainer.go_on(position, newest=7)
    again.trainer.run()

    assert again.source.versions[0] == Version(lineage=1, number=8)
    assert [values["update"] for values in again.reporter.updates] == [3]


STALE_FROM = 10


def judged_by_the_tower(updates: list[dict[str, float]], at: int) -> tuple[int | None, str]:
    """The update at which a finding of the mismatch stands for the first time, and its id."""
    tower = Tower()
    tower.report(fakes.started(START_NS, algo="grpo"))
    for number, values in enumerate(updates, start=1):
        numbers = {name: value for name, value in values.items() if name != "update" and math.isfinite(value)}
        snapshot = tower.report(fakes.policy(START_NS + number * at, number, **numbers))
        for finding in snapshot.findings:
            if "token-error" in finding.id or "sampler-kl" in finding.id:
                return number, finding.id
    return None, ""


def test_a_stale_sampler_is_found_before_the_return_falls(tmp_path: Path) -> None:
    """It keeps its weights and stamps the newest version; before that no mismatch is found."""
    source = Local(tmp_path, age=1, stale=lambda number: number >= STALE_FROM)
    made = training(
        source, LoopConfig(updates=25, judge_every=25), config=GRPOConfig(learning_rate=1e-3, recent=1)
    )
    made.trainer.run()
    updates = made.reporter.updates

    found, _ = judged_by_the_tower(updates, at=1_000_000_000)

    assert found is not None
    assert STALE_FROM < found <= STALE_FROM + 10
    before = [values["return"] for values in updates[:STALE_FROM]]
    until = [values["return"] for values in updates[STALE_FROM:found]]
    assert sum(until) / len(until) > sum(before) / len(before)
