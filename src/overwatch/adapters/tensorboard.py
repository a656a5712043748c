"""TensorBoard: a `SummaryWriter` that reports its scalars and passes all calls on to the real one.

    from overwatch.adapters.tensorboard import SummaryWriter
    writer = SummaryWriter("runs/1")

or, for a library that makes its own writer, `tensorboard.install()` once: those of `torch.utils.tensorboard`
and of tensorboardX are then this one. Both take the arguments of `overwatch.sdk.start`, e.g.
`install(config={"target_kl": 0.02}, library="rl_games")`. Serves CleanRL, skrl, rsl_rl, rl_games, Sample
Factory and what else writes scalars. Where neither package is installed scalars are reported all the same and
the rest is dropped, with one line of log. A writer is a run. Must not know what a tag means: `scalars` does.
"""

import logging
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Final, Self

from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.scalars import Scalars
from overwatch.adapters.starting import STARTING, Start, run_name, settings
from overwatch.adapters.summary_writers import WRITERS, class_of, real_writer
from overwatch.adapters.writer_owners import follow_owner
from overwatch.sdk import Run

log: Final = logging.getLogger("overwatch.adapters")

PARAMETERS: Final = "hyperparameters"
"""The tag under which CleanRL and its kind write their settings, as a table of Markdown."""
shared: list[Scalars] = []
"""A run that all writers report to instead of one of their own: W&B's, under `sync_tensorboard`."""


class SummaryWriter(Bordered):
    """Reports to `run`, or to a run of its own that ends with `close()`."""

    _real: ClassVar[Callable[..., Any] | None] = None
    """The class of the writer behind this one; `None` looks for one."""
    _settings: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Arguments of `overwatch.sdk.start` for every run of the class."""

    def __init__(self, *args: Any, run: Run | None = None, library: str | None = None, **kwargs: Any) -> None:
        real = self._real or real_writer()
        stated = {name: kwargs.pop(name) for name in STARTING & kwargs.keys()}
        library = library or self._settings.get("library")
        self._writer = None if real is None else real(*args, **kwargs)
        given = kwargs.get("log_dir") or kwargs.get("logdir") or next(iter(args), None)
        self.log_dir = str(given or getattr(self._writer, "log_dir", "runs"))
        self._start = Start(run, run_name(self.log_dir), settings={**self._settings, **stated})
        self._is_own = run is None and not shared
        self._scalars = shared[0] if shared and run is None else Scalars(self._start, library)
        if self._is_own:
            self._follow_owner()
        self._collected = weakref.finalize(self, self._scalars.leave)
        self._collected.atexit = False
        if not self._is_own:
            self._collected.detach()

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: float | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """One number of a step."""
        if self._writer is not None:
            self._writer.add_scalar(tag, scalar_value, global_step, *args, **kwargs)
        self._scalars.add(tag, scalar_value, global_step)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: float | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Several numbers of a step, below one tag."""
        if self._writer is not None:
            self._writer.add_scalars(main_tag, tag_scalar_dict, global_step, *args, **kwargs)
        for tag, value in tag_scalar_dict.items():
            self._scalars.add(f"{main_tag}/{tag}", value, global_step)

    def add_hparams(
        self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Settings, for a run that has not started; and numbers, which are of no update."""
        if self._writer is not None:
            self._writer.add_hparams(hparam_dict, metric_dict, *args, **kwargs)
        self._start.config |= hparam_dict
        self._scalars.aside(metric_dict)

    def add_text(self, tag: str, text_string: str, *args: Any, **kwargs: Any) -> None:
        """A text; the table of settings names the run and starts it."""
        if self._writer is not None:
            self._writer.add_text(tag, text_string, *args, **kwargs)
        if tag == PARAMETERS:
            self._note_settings(text_string)

    def flush(self) -> None:
        """Write what waits; the open update is whole."""
        if self._writer is not None:
            self._writer.flush()
        self._scalars.end()

    def close(self) -> None:
        """Close the writer, and the run if it is its own."""
        if self._writer is not None:
            self._writer.close()
        self._collected.detach()
        if self._is_own:
            self._scalars.close()
        else:
            self._scalars.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_writer" not in vars(self):
            raise AttributeError(name)
        if self._writer is not None:
            return getattr(self._writer, name)
        if name == "get_logdir":
            return lambda: self.log_dir
        if not name.startswith("add_"):
            raise AttributeError(f"{name!r} needs tensorboard; pip install tensorboard")
        return partial(self._drop, name)

    def _drop(self, name: str, *_: object, **__: object) -> None:
        if not self.failures:
            log.warning("%s: only scalars are kept without a package; pip install tensorboard", name)
        self.failures += 1

    @kept_out
    def _follow_owner(self) -> None:
        follow_owner(self._scalars, self._start.config)

    @kept_out
    def _note_settings(self, table: str) -> None:
        self._start.config |= settings(table)
        _ = self._scalars.run


def install(**settings: Any) -> None:
    """Have every `SummaryWriter` that is made from now on be this one, also where it was imported before.

    `settings` are arguments of `overwatch.sdk.start` for each writer's run. Raises `TypeError` for others.
    """
    if unknown := settings.keys() - STARTING - {"library"}:
        words = ", ".join(sorted(unknown))
        raise TypeError(f"install() takes the arguments of overwatch.sdk.start, not {words}")
    for name in WRITERS:
        real = class_of(name)
        if real is None:
            continue
        own = {"_real": staticmethod(real), "_settings": settings, "__module__": __name__}
        mine = type("SummaryWriter", (SummaryWriter,), own)
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            if names.get("SummaryWriter") is real and names.get("__name__") != real.__module__:
                module.SummaryWriter = mine  # type: ignore[attr-defined]
