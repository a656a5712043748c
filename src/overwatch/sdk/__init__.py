"""How a trainer reports: `run = overwatch.sdk.start(...)`, then `run.update(...)`, and that is all.

Everything is handed to an exporter process; no call raises into training and none waits. Importing this
loads the standard library, msgspec, the catalogue and the events; nothing else.
"""

from overwatch.sdk.launch import start
from overwatch.sdk.lifetime import Report
from overwatch.sdk.recompiles import Recompiles
from overwatch.sdk.rollouts.columns import WordTables
from overwatch.sdk.run import Run

__all__ = ["Recompiles", "Report", "Run", "WordTables", "start"]
