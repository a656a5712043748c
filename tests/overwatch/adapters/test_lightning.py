"""Lightning: what the logger and the callback report, alone and together, and how a run ends.

Skipped where the library is not installed: it needs an environment of its own, `examples/lightning_ppo.txt`.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from overwatch.catalog import CUSTOM_PREFIX
from overwatch.catalog.policy import LEARNING_RATE
from overwatch.events import CheckpointSaved, PhaseEnded, RunFinished
from overwatch.sdk import Run
from overwatch.sdk.frames import Update
from tests.overwatch.adapters.receiving import Received, local_run

lightning = pytest.importorskip("lightning.pytorch", reason="needs what examples/lightning_ppo.txt lists")

from overwatch.adapters.lightning import OverwatchCallback, OverwatchLogger  # noqa: E402 it imports the library

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 4
UPDATE_TIME = "overwatch.policy.update_time"
Started = list[tuple[dict[str, Any], Received]]


class Line(lightning.LightningModule):  # type: ignore[misc, name-defined]  # the library has no types
    """Fits a line; at one step it raises, where it has an error."""

    def __init__(self, learning_rate: float = 0.1, error: BaseException | None = None) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["error"])
        self.line, self.error, self.learning_rate = torch.nn.Linear(1, 1), error, learning_rate

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        """One step."""
        if index == 1 and self.error is not None:
            raise self.error
        loss = self.line(batch).square().mean()
        self.log_dict({"policy_loss": loss, "loss_actor": loss})
        return loss

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        """One batch of other data."""
        self.log("val_loss", self.line(batch).square().mean())

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The simplest one."""
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate)

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        """As many batches as steps."""
        return DataLoader(torch.ones(STEPS, 1))  # type: ignore[arg-type]  # a tensor has items and a length

    val_dataloader = test_dataloader = train_dataloader


def _trainer(folder: Path, *, logger: Any = False, callbacks: tuple[Any, ...] = (), **settings: Any) -> Any:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    return lightning.Trainer(
        default_root_dir=folder, max_epochs=1, accelerator="cpu", log_every_n_steps=1, num_sanity_val_steps=0,
        logger=logger, callbacks=list(callbacks), **(quiet | settings),
    )  # fmt: skip


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What each run is started with and emits that an adapter starts by itself."""
    started: Started = []

    def start(**given: Any) -> Run:
        run, received = local_run()
        started.append((given, received))
        return run

    monkeypatch.setattr("overwatch.adapters.lightning_logger.sdk.start", start)
    return started


def _merged(received: Received) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for update in received.of(Update):
        found.setdefault(update.index, {}).update(update.values)
    return found


def _names(received: Received) -> set[str]:
    return {name for values in _merged(received).values() for name in values}


@pytest.mark.parametrize("parts", ["logger", "callback", "both"])
def test_either_is_a_run_and_both_are_one(tmp_path: Path, own: Started, parts: str) -> None:
    """Each step's numbers are there once; the callback adds time and phases."""
    logger = OverwatchLogger() if parts != "callback" else False
    callback = OverwatchCallback()
    trainer = _trainer(tmp_path, logger=logger, callbacks=() if parts == "logger" else (callback,))
    trainer.fit(Line())

    ((given, received),) = own
    assert (given["task"], given["config"]) == ("Line", {"learning_rate": 0.1})
    updates = _merged(received)
    assert list(updates)[:STEPS] == list(range(STEPS))
    assert all("overwatch.policy.loss" in updates[step] for step in range(STEPS))
    assert f"{CUSTOM_PREFIX}val_loss" in _names(received)
    assert (UPDATE_TIME in _names(received)) == (parts != "logger")
    phases = {event.phase for event in received.of(PhaseEnded)}
    assert phases == (set() if parts == "logger" else {"update", "load", "evaluation"})
    assert [event.outcome for event in received.of(RunFinished)] == ["completed"]
    assert callback.failures == 0
    assert trainer.loggers == ([logger] if logger else [])


def test_a_modules_own_names_are_those_of_an_update_where_it_learns_from_rewards(
    tmp_path: Path, own: Started
) -> None:
    """`policy_loss` may be anything elsewhere; `loss_actor` is Lightning's own example's."""
    _trainer(tmp_path, callbacks=(OverwatchCallback(),)).fit(Line())
    _trainer(tmp_path, callbacks=(OverwatchCallback(algo="ppo"),)).fit(Line())

    (_, plain), (given, declared) = own
    assert f"{CUSTOM_PREFIX}policy_loss" in _names(plain)
    assert f"{CUSTOM_PREFIX}policy_loss" not in _names(declared)
    assert given["algo"] == "ppo"
    assert {event.phase for event in declared.of(PhaseEnded)} == {"update", "rollout", "evaluation"}


class Scheduled(Line):
    """Halves the rate after each step; the bias may have a rate of its own."""

    def __init__(self, of_bias: float) -> None:
        super().__init__()
        self.of_bias = of_bias

    def configure_optimizers(self) -> Any:
        """A rate for the weight and one for the bias."""
        groups = [{"params": [self.line.weight]}, {"params": [self.line.bias], "lr": self.of_bias}]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        halved = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return [optimizer], [{"scheduler": halved, "interval": "step"}]


@pytest.mark.parametrize(("of_bias", "rates"), [(0.1, [0.1, 0.05, 0.025, 0.0125]), (0.2, [None] * STEPS)])
def test_a_step_has_the_rate_that_it_was_taken_with(
    tmp_path: Path, own: Started, of_bias: float, rates: list[float | None]
) -> None:
    """Not the one that a schedule sets after it; none where there are two."""
    _trainer(tmp_path, callbacks=(OverwatchCallback(),)).fit(Scheduled(of_bias))

    ((_, received),) = own
    updates = _merged(received)
    assert [updates[step].get(LEARNING_RATE.name) for step in range(STEPS)] == rates


@pytest.mark.parametrize("parts", ["logger", "callback", "both"])
@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ValueError("bad"), ("failed", "ValueError: bad")),
        (KeyboardInterrupt(), ("interrupted", "KeyboardInterrupt")),
    ],
)
def test_a_run_ends_with_a_fit_that_is_left_by_an_exception(
    tmp_path: Path, own: Started, parts: str, error: BaseException, ending: tuple[str, str]
) -> None:
    """At once and with its reason, also where the caller catches it; after Ctrl-C Lightning exits."""
    logger = OverwatchLogger() if parts != "callback" else False
    trainer = _trainer(tmp_path, logger=logger, callbacks=() if parts == "logger" else (OverwatchCallback(),))
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises((ValueError, SystemExit)):
            trainer.fit(Line(error=error))
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores it from here on

    ((_, received),) = own
    assert [(event.outcome, event.reason) for event in received.of(RunFinished)] == [ending]
    assert trainer.loggers == ([logger] if logger else [])


class Terminates(lightning.Callback):  # type: ignore[misc, name-defined]  # the library has no types
    """Ends this process as a scheduler does, which Lightning notices after a batch."""

    def on_train_batch_start(self, *_: object) -> None:
        """A batch begins."""
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_termination_is_an_interruption(tmp_path: Path, own: Started) -> None:
    """Lightning raises an exit without a status, which is no completion."""
    with pytest.raises(SystemExit):
        _trainer(tmp_path, callbacks=(OverwatchCallback(), Terminates())).fit(Line())

    ((_, received),) = own
    assert [(event.outcome, event.reason) for event in received.of(RunFinished)] == [
        ("interrupted", "SIGTERMException")
    ]


def test_a_checkpoint_is_a_fact_and_stays_where_it_was(tmp_path: Path, own: Started) -> None:
    """The logger that is lent does not move the folder."""
    kept = lightning.callbacks.ModelCheckpoint()
    trainer = _trainer(tmp_path, callbacks=(OverwatchCallback(), kept), enable_checkpointing=True)
    trainer.fit(Line())

    (saved,) = own[0][1].of(CheckpointSaved)
    assert Path(saved.path).is_file()
    assert Path(saved.path).parent == tmp_path / "checkpoints"


def test_a_given_run_goes_on(tmp_path: Path, own: Started) -> None:
    """Two fits and a test are one run; names are those of an update."""
    run, received = local_run()
    for _ in range(2):
        _trainer(tmp_path, callbacks=(OverwatchCallback(run),)).fit(Line())
    _trainer(tmp_path, logger=OverwatchLogger(run)).test(Line(), verbose=False)

    assert own == []
    assert received.of(RunFinished) == []
    assert f"{CUSTOM_PREFIX}val_loss" in _names(received)
    assert f"{CUSTOM_PREFIX}policy_loss" not in _names(received)


def test_training_goes_on_when_reporting_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run that breaks at every call is counted and logged once by each part."""
    callback = OverwatchCallback(object())  # type: ignore[arg-type]  # no run at all
    trainer = _trainer(tmp_path, callbacks=(callback,))
    trainer.fit(Line())

    assert trainer.global_step == STEPS
    assert callback.failures > 1
    assert caplog.text.count("OverwatchCallback.") == 1
