"""A command of `overwatch-rl` that ends with its parent: `python -m overwatch_rl.grpo.child grpo-handler …`.

The parent holds the other end of standard input: when it is gone, however it ended, the command gets SIGTERM.
"""

import os
import runpy
import signal
import threading


def _end_with_parent() -> None:
    while os.read(0, 4096):  # Not by `sys.stdin`, whose lock would be waited for at the end.
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()
    runpy.run_module("overwatch_rl.cli", run_name="__main__")
