"""What a configuration names outside of itself, tried without opening a door: tokens and certificates.

Must not know where a configuration comes from.
"""

from collections.abc import Iterator

from overwatch.collector.guard import Guard
from overwatch.collector.health import Health
from overwatch.collector.settings import CollectorConfig, listeners
from overwatch.collector.tally import Tally


def unusable(config: CollectorConfig) -> Iterator[str]:
    """What could not be read at a start now, each thing once."""
    guard = Guard(config.service.security, Health(), Tally())
    found: dict[str, None] = {}
    try:
        guard.load()
    except (OSError, ValueError) as error:
        found[f"service.security.tokens: {error}"] = None
    for listener in listeners(config):
        try:
            guard.certificates(listener.tls, shared=False)
        except (OSError, ValueError) as error:
            found[f"tls: {error}"] = None
    yield from found
