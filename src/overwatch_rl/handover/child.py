"""A command that ends with its parent: `python -m overwatch_rl.handover.child overwatch_rl.cli evaluate …`.

The parent holds the other end of standard input: when it is gone, however it ended, the command gets SIGTERM.
"""

import os
import runpy
import signal
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 4096):  # Not by `sys.stdin`, whose lock would be waited for at the end.
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True, name="parent").start()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__")
