"""What torch does in a thread, operation by operation."""

from collections import Counter

from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Counts every operation that torch runs in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN204
        self.seen[func.name().partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))
