"""What is remembered of each run: columnar tables and `apply`, the only code that changes them."""

from overwatch.state.apply import apply, new_run
from overwatch.state.run import RunState, dump, load

__all__ = ["RunState", "apply", "dump", "load", "new_run"]
