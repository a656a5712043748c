"""Weights & Biases: a module in its place, which reports what is logged and passes all on to the real one.

    from overwatch.adapters import wandb
    wandb.init(project="cartpole", config=config)
    wandb.log({"losses/value_loss": 0.5})

Each row that W&B would commit is one update. What this module does not have is the real module's; without the
package the usual calls do nothing, with one line of log. Under `sync_tensorboard` the writers of
`overwatch.adapters.tensorboard` report to W&B's run. Must not know what a name means: `scalars` does.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from overwatch.adapters import tensorboard as writers
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.numbers import flat
from overwatch.adapters.scalars import Scalars
from overwatch.adapters.starting import started
from overwatch.adapters.wandb_absent import Entries, Nothing, entries_of, installed

ANOTHER: Final = ("ended", "another run began without finish()")
"""How a run ends that `init` ends: whether its loop went well is not known."""
logger: Final = logging.getLogger("overwatch.adapters")

FORWARDED: Final = ("config", "summary")
"""What the module has of the run in progress."""


class Tracked(Bordered):
    """A run of W&B's and a run here; ends with `finish()`."""

    def __init__(
        self, real: Any, config: object, name: str, settings: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.real = real
        self.config: Any = Entries(entries_of(config)) if real is None else real.config
        self.summary: Any = Entries() if real is None else real.summary
        self._step = 0
        self.scalars: Final = Scalars(
            lambda: started(
                name, {key: value for key, value in dict(self.config).items() if key != "_wandb"}, settings
            )
        )

    @property
    def step(self) -> int:
        """The step that the next row has."""
        return self._step if self.real is None else int(self.real.step)

    def log(
        self,
        data: Mapping[str, Any],
        step: int | None = None,
        commit: bool | None = None,  # noqa: FBT001 as W&B has it
        **more: Any,
    ) -> None:
        """Numbers of a row, which is whole with `commit`, or with a greater `step`."""
        if self.real is not None:
            self.real.log(data, step=step, commit=commit, **more)
        elif step is None or step >= self._step:
            self.summary.update(data)
        self._note(data, step, commit=step is None if commit is None else commit)

    def finish(self, exit_code: int | None = None, *args: Any, **kwargs: Any) -> None:
        """End both runs; as failed with another exit code than 0, or while an exception is handled."""
        if self.real is not None:
            self.real.finish(exit_code, *args, **kwargs)
        self.end(*(("failed", f"exit code {exit_code}") if exit_code else ()))

    def end(self, outcome: str | None = None, reason: str | None = None) -> None:
        """End the run here alone."""
        if self in _current:
            _current.remove(self)
        writers.shared[:] = [one for one in writers.shared if one is not self.scalars]
        self.scalars.close(outcome, reason)

    @kept_out
    def _note(self, data: Mapping[str, Any], step: int | None, *, commit: bool) -> None:
        if step is not None and step < self._step:
            return  # W&B drops it too, and warns
        self._step = self._step if step is None else step
        for name, value in flat(data, "."):
            self.scalars.add(name, value, self._step)
        if commit:
            self.scalars.end()
            self._step += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.real is not None:
            self.real.__exit__(kind, error, trace)
        self.end()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "real" not in vars(self):
            raise AttributeError(name)
        return Nothing() if self.real is None else getattr(self.real, name)


_current: Final[list[Tracked]] = []
"""Runs in progress, the newest last."""


def init(*args: Any, **kwargs: Any) -> Tracked:
    """Begin a run; W&B's own arguments."""
    module, reinit = installed(), kwargs.get("reinit")
    real = None if module is None else module.init(*args, **kwargs)
    if reinit in (None, False, "default", "return_previous") or real is not None:
        for one in _current:
            if one.real is real:
                return one
    if reinit != "create_new":
        while _current:
            _current[-1].end(*ANOTHER)
    if real is None:
        logger.warning("wandb is not installed: what is logged is reported to Overwatch alone")
    name = kwargs.get("name") or getattr(real, "name", None) or kwargs.get("project") or "run"
    # A name that was given is the run's; what W&B or its configuration has comes only without one.
    settings = {"task": str(kwargs["name"])} if kwargs.get("name") else {}
    run = Tracked(real, kwargs.get("config"), str(name), settings)
    _current.append(run)
    if kwargs.get("sync_tensorboard"):
        writers.shared[:] = [run.scalars]
    return run


def log(data: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
    """Numbers of a row of the newest run."""
    if _current:
        _current[-1].log(data, *args, **kwargs)
    else:
        __getattr__("log")(data, *args, **kwargs)


def finish(*args: Any, **kwargs: Any) -> None:
    """End the newest run."""
    if _current:
        _current[-1].finish(*args, **kwargs)


def __getattr__(name: str) -> Any:
    """Whatever else W&B has."""
    if name.startswith("__") and name != "__version__":
        raise AttributeError(name)
    if name == "run":
        return _current[-1] if _current else None
    if name in FORWARDED and _current:
        return getattr(_current[-1], name)
    module = installed()
    return Nothing() if module is None else getattr(module, name)
