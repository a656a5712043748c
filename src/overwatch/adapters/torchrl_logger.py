"""TorchRL's loggers, of loops by hand; `overwatch.adapters.torchrl` watches them.

Rules: the numbers of one step are an update. The run begins with the first number, and ends with
`logger.shutdown()` or with the program. Must not know what a name means: `scalars` does.
"""

from typing import Any

from overwatch import sdk
from overwatch.adapters.border import Bordered, kept_out
from overwatch.adapters.methods import watch
from overwatch.adapters.scalars import Scalars
from overwatch.catalog import Library


def watch_logger(logger: Any, run: sdk.Run | None) -> None:
    """Report what is logged to `run`, or to a run of its own."""
    _Logger(logger, run)


class _Logger(Bordered):
    def __init__(self, logger: Any, run: sdk.Run | None) -> None:
        self._given, self._task = run, getattr(logger, "exp_name", None)
        self._scalars = Scalars(self._start, Library.TORCHRL.value)
        self._is_within = False
        calls = {"log_scalar": self._scalar, "log_metrics": self._metrics, "shutdown": self._end}
        watch(logger, calls)

    def _start(self) -> sdk.Run:
        return self._given or sdk.start(task=self._task)

    def _scalar(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._is_within:
            self._add(*args, **kwargs)
        return method(*args, **kwargs)

    def _metrics(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        self._is_within = True  # most loggers log them one by one
        try:
            return method(*args, **kwargs)
        finally:
            self._is_within = False
            self._add_all(*args, **kwargs)

    @kept_out
    def _add(self, name: str, value: Any, step: Any = None, *_: Any, **__: Any) -> None:
        self._scalars.add(name, value, step)

    @kept_out
    def _add_all(self, metrics: Any, step: Any = None, *_: Any, **__: Any) -> None:
        for name, value in metrics.items():
            self._scalars.add(name, value, step)

    def _end(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        if self._given is None:
            self._scalars.close()
        else:
            self._scalars.end()
        return method(*args, **kwargs)
