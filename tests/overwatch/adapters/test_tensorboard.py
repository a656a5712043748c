"""The writer: what it reports, that the real one gets the same calls, and how its run ends."""

import gc
import logging
import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils import tensorboard as real

from overwatch import sdk
from overwatch.adapters import tensorboard
from overwatch.adapters.scalars import UNCLOSED
from overwatch.adapters.starting import run_name, settings
from overwatch.adapters.summary_writers import WRITERS
from overwatch.adapters.tensorboard import SummaryWriter
from overwatch.adapters.writer_owners import OWNERS
from overwatch.events import EpisodeEnded, Measured, RunFinished, RunStarted
from overwatch.sdk import Run
from tests.overwatch.adapters.receiving import Received, local_run
from tests.overwatch.sdk.sink import Sink

PARAMETERS = "|param|value|\n|-|-|\n|env_id|CartPole-v1|\n|exp_name|ppo|\n|num_envs|4|\n|num_iterations|9|"


def _ends(sink: Sink) -> list[tuple[str, str | None]]:
    return [(event.outcome, event.reason) for event in sink.events(RunFinished)]


def test_a_run_is_named_by_the_table_of_settings(sink: Sink, tmp_path: Path) -> None:
    """As CleanRL writes it, before the first number; its episodes and updates follow."""
    writer = SummaryWriter(str(tmp_path / "CartPole-v1__ppo__1"))
    writer.add_text("hyperparameters", PARAMETERS)
    writer.add_scalar("charts/episodic_return", 21.0, 84)
    writer.add_scalar("charts/episodic_length", 21.0, 84)
    writer.add_scalar("losses/approx_kl", 0.01, 128)
    writer.close()
    (start,) = sink.events(RunStarted)
    (update,) = [one for one in sink.events(Measured) if "overwatch.policy.kl_divergence" in one.values]

    assert (start.task, start.algo, start.n_envs, start.updates) == ("CartPole-v1", "ppo", 4, 9)
    assert start.config["exp_name"] == "ppo"
    assert update.values["overwatch.policy.return"].array().tolist() == [21.0]
    assert [one.length and one.length.array().tolist() for one in sink.events(EpisodeEnded)] == [[21.0]]
    assert _ends(sink) == [("completed", None)]


def test_the_real_writer_has_every_call(tmp_path: Path) -> None:
    """Scalars with their steps, groups, texts, histograms and hyperparameters."""
    run, received = local_run()
    with SummaryWriter(str(tmp_path / "a"), "", None, 5, run=run) as writer:
        writer.add_scalar("losses/approx_kl", 0.25, 7)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 7)
        writer.add_text("note", "words")
        writer.add_histogram("weights", np.array([1.0, 2.0]), 7)
        writer.add_hparams({"lr": 0.1}, {"hparam/return": 3.0})
        writer.flush()
    written = EventAccumulator(str(tmp_path / "a"))
    written.Reload()

    assert [(one.step, one.value) for one in written.Scalars("losses/approx_kl")] == [(7, 0.25)]
    assert written.Tags()["histograms"] == ["weights"]
    assert written.Tags()["tensors"] == ["note/text_summary"]
    assert len([folder for folder in (tmp_path / "a").iterdir() if folder.is_dir()]) == 3
    names = {name for frame in received.frames for name in getattr(frame, "values", {})}
    assert {"overwatch.policy.kl_divergence", "overwatch.custom.both/a", "overwatch.custom.both/b"} <= names
    assert "overwatch.custom.hparam/return" in names


def test_a_run_that_was_given_goes_on(tmp_path: Path) -> None:
    """Its maker ends it; the writer's last update is sent."""
    run, received = local_run()
    writer = SummaryWriter(str(tmp_path), run=run)
    writer.add_scalar("losses/approx_kl", 0.25, 7)
    writer.close()
    assert received.of(RunFinished) == []
    assert len(received.frames) == 1


def test_an_exception_through_the_writer_fails_its_run(sink: Sink, tmp_path: Path) -> None:
    """Also where the caller catches it."""

    def train() -> None:
        with SummaryWriter(str(tmp_path)) as writer:
            writer.add_scalar("losses/approx_kl", 0.25, 7)
            raise ValueError("NaN in the policy")

    with pytest.raises(ValueError, match="NaN"):
        train()
    assert _ends(sink) == [("failed", "ValueError: NaN in the policy")]


def test_several_writers_are_several_runs(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment names one id."""
    monkeypatch.setenv("OVERWATCH_RUN_ID", "sweep")
    writers = [SummaryWriter(str(tmp_path / name)) for name in ("one", "two")]
    for writer in writers:
        writer.add_scalar("losses/approx_kl", 0.25, 7)
    for writer in writers:
        writer.close()
    sink.wait(lambda s: len(s.events(RunStarted)) == 2)
    assert len({record.origin.run_id for record in sink.records()}) == 2
    assert {start.task for start in sink.events(RunStarted)} == {"one", "two"}


WITHOUT = f"import sys; sys.modules.update(dict.fromkeys({WRITERS!r}))\n"
"""For programs that are about the run and not about event files: to import the package takes 1.4 s of CPU."""


@pytest.mark.parametrize(
    ("package", "end", "outcome"),
    [
        ("import sys\n", "", "completed"),
        (WITHOUT, "raise ValueError('x')", "failed"),
        (WITHOUT, "sys.exit(3)", "failed"),
    ],
)
def test_a_program_that_ends_without_close_ends_its_run(
    sink: Sink, tmp_path: Path, package: str, end: str, outcome: str
) -> None:
    """As the program does, with the package and without; its last update arrives."""
    program = (
        f"{package}"
        "from overwatch.adapters.tensorboard import SummaryWriter\n"
        f"writer = SummaryWriter({str(tmp_path)!r})\n"
        "writer.add_scalar('losses/approx_kl', 0.25, 7)\n"
        f"{end}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert [one[0] for one in _ends(sink)] == [outcome]
    assert [one for one in sink.events(Measured) if "overwatch.policy.kl_divergence" in one.values]


DROPPED = """
from overwatch.adapters.tensorboard import SummaryWriter

def trial(folder, is_good=True):
    writer = SummaryWriter(folder)
    writer.add_scalar("losses/approx_kl", 0.25, 7)
    if not is_good:
        raise ValueError("NaN in the policy")

try:
    trial("runs/first", is_good=False)
except ValueError:
    pass
"""


@pytest.mark.parametrize(
    ("package", "then", "ends"),
    [
        (WITHOUT, "", {"first": ("ended", UNCLOSED)}),
        (WITHOUT, "raise OSError('disk')", {"first": ("failed", "OSError: disk")}),
        ("", "trial('runs/second')", {
            "first": ("ended", UNCLOSED),
            "second": ("ended", UNCLOSED),
        }),
    ],
    ids=["program ends well", "program fails", "another begins"],
)  # fmt: skip
def test_a_writer_that_is_dropped_ends_its_run_as_far_as_is_known(
    sink: Sink, tmp_path: Path, package: str, then: str, ends: dict[str, tuple[str, str | None]]
) -> None:
    """A caught exception leaves nothing behind: the run ended, nobody knows how, unless the program fails."""
    program = package + DROPPED + then
    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, cwd=tmp_path)
    names = {
        record.origin.run_id: start.task
        for record in sink.records()
        if isinstance(start := record.event, RunStarted)
    }
    found = {
        names[record.origin.run_id]: (end.outcome, end.reason)
        for record in sink.records()
        if isinstance(end := record.event, RunFinished)
    }
    assert found == ends


def test_an_exception_that_a_notebook_has_shown_ends_the_run_of_its_writer(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was shown before its last number is another's."""
    for shown_before in (True, False):
        writer = SummaryWriter(str(tmp_path))
        error = ValueError("NaN in the policy")
        if shown_before:
            monkeypatch.setattr(sys, "last_value", error, raising=False)
        writer.add_scalar("losses/approx_kl", 0.25, 7)
        if not shown_before:
            monkeypatch.setattr(sys, "last_value", error, raising=False)
        del writer
        gc.collect()
    assert _ends(sink) == [
        ("ended", UNCLOSED),
        ("failed", "ValueError: NaN in the policy"),
    ]


def test_without_a_package_scalars_are_reported_and_the_rest_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With one line of log."""
    for name in WRITERS:
        monkeypatch.setitem(sys.modules, name, None)
    run, received = local_run()
    writer = SummaryWriter("runs/mine", run=run)
    with caplog.at_level(logging.WARNING):
        writer.add_image("image", [[0.0]], 1)
        writer.add_figure("figure", None)
    writer.add_scalar("losses/approx_kl", 0.25, 7)
    writer.close()

    assert len(received.frames) == 1
    assert [record.message for record in caplog.records] == [
        "add_image: only scalars are kept without a package; pip install tensorboard"
    ]
    assert writer.get_logdir() == "runs/mine"
    with pytest.raises(AttributeError, match="pip install tensorboard"):
        _ = writer.file_writer


def test_install_reaches_modules_that_imported_the_writer_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A library's own import, before or after; once more changes nothing; the real class stays behind it."""
    own = real.SummaryWriter
    library: Any = types.ModuleType("a_library")
    library.SummaryWriter = own
    monkeypatch.setitem(sys.modules, "a_library", library)
    monkeypatch.setattr(real, "SummaryWriter", own)
    tensorboard.install()
    mine: Any = library.SummaryWriter
    tensorboard.install()

    assert real.SummaryWriter is mine is library.SummaryWriter
    assert issubclass(mine, SummaryWriter)
    run, _ = local_run()
    writer = mine(str(tmp_path), run=run)
    assert type(writer._writer) is own
    writer.add_hparams({"lr": 0.1}, {"a": 1.0})
    writer.close()


def test_settings_are_read_from_a_table_and_from_nothing_else() -> None:
    """A text of another kind has none; a bar in a value is kept."""
    assert settings(PARAMETERS)["num_envs"] == "4"
    assert settings("|param|value|\n|-|-|\n|note|a|b|\n|target_kl|None|") == {"note": "a|b"}
    assert settings("just words") == {}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("runs/one", "one"),
        ("runs/one/summaries", "one"),
        ("a/exp/.summary/0", "exp"),
        ("runs", "run"),
        ("", "run"),
    ],
)
def test_a_run_is_named_by_the_folder_that_identifies_it(folder: str, name: str) -> None:
    """As rl_games, Sample Factory and CleanRL lay them out."""
    assert run_name(folder) == name


def _starting(monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], list[Received]]:
    """Arguments of `sdk.start`, and what its runs emit."""
    given: list[dict[str, Any]] = []
    received: list[Received] = []

    def start(**settings: Any) -> Run:
        run, frames = local_run()
        given.append(settings)
        received.append(frames)
        return run

    monkeypatch.setattr(sdk, "start", start)
    return given, received


class Trainer:
    """Makes a writer and never closes it."""

    def __init__(self, folder: Path) -> None:
        self.config = {"kl_threshold": 0.008, "lr_schedule": "adaptive"}
        self.cfg = types.SimpleNamespace(**self.config)
        self.writer = SummaryWriter(str(folder))

    def train(self, end: object) -> object:
        """Log and end so."""
        self.writer.add_scalar("losses/approx_kl", 0.25, 7)
        if isinstance(end, BaseException):
            raise end
        return end

    run = train


@pytest.mark.parametrize(
    ("package", "end", "outcome"),
    [
        ("rl_games", None, "completed"),
        ("rl_games", ValueError("NaN"), "failed"),
        ("rl_games", KeyboardInterrupt(), "interrupted"),
        ("sample_factory", 0, "completed"),
        ("sample_factory", 1, "failed"),
        ("sample_factory", 2, "interrupted"),
    ],
)
def test_a_run_ends_as_the_training_of_the_library_that_made_its_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, end: object, outcome: str
) -> None:
    """Also where the exception is caught and the writer stays; an adaptive rate states the trust region."""
    given, all_received = _starting(monkeypatch)
    kind = type("Agent", (Trainer,), {"__module__": f"{package}.agent"})
    trainer: Any = kind(tmp_path)
    with suppress(ValueError, KeyboardInterrupt):
        getattr(trainer, OWNERS[package].method)(end)

    assert [one.outcome for one in all_received[0].of(RunFinished)] == [outcome]
    assert given[0]["config"]["kl_threshold"] == 0.008
    assert given[0]["config"].get("target_kl") == (0.016 if package == "rl_games" else None)


def test_a_writer_takes_what_a_run_starts_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library writes of itself comes after; a misspelt argument of `install` is named."""
    given, _ = _starting(monkeypatch)
    with SummaryWriter(str(tmp_path), config={"target_kl": 0.02}, algo="ppo", task="mine") as writer:
        writer.add_hparams({"env_id": "CartPole-v1"}, {})
        writer.add_scalar("losses/approx_kl", 0.25, 7)
    assert (given[0]["algo"], given[0]["task"]) == ("ppo", "mine")
    assert given[0]["config"] == {"env_id": "CartPole-v1", "target_kl": 0.02}
    with pytest.raises(TypeError, match="not nothing"):
        tensorboard.install(nothing=1)
