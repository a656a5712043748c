"""The standard streams of a command that was started without some of them, as by `2>&-`.

Rules: a closed stream is the null device, so that no file of ours gets its number and no write to it fails.
Must not know commands.
"""

import os
import sys


def ensure() -> None:
    """Put the null device where a standard stream is closed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115 a number
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def log_to_stdout_without_stderr() -> None:
    """For commands that write nothing to stdout: a cause goes there where stderr is closed."""
    # The interpreter's own stream has a name; one of `ensure` has a number.
    if sys.stderr.name == 2:
        sys.stderr = sys.stdout
