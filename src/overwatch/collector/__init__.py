"""The collector process: receivers, exporters, extensions, and the service that starts and stops them.

Must not know the command line, YAML or the environment's variables beyond what is handed in.
"""

from overwatch.collector.process import run
from overwatch.collector.service import Service, StartError
from overwatch.collector.settings import CollectorConfig

__all__ = ["CollectorConfig", "Service", "StartError", "run"]
