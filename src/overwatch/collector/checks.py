"""What a configuration names outside of itself, tried without opening a door: tokens, certificates, plugins.

Nothing is connected to. Must not know where a configuration comes from.
"""

from collections.abc import Iterator

from overwatch.collector.guard import Guard
from overwatch.collector.health import Health
from overwatch.collector.settings import CollectorConfig, forwards, listeners
from overwatch.collector.tally import Tally
from overwatch.delivery.connection import tls_context
from overwatch.diagnose.judging import unknown


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
    for name, forward in forwards(config).items():
        try:
            targets = forward.destinations(config.exporting(name)).values()
        except ValueError:  # what cannot work by itself: `settings.problems`
            continue
        for tls in [to.origin.tls for to in targets if to.origin.tls is not None]:
            try:
                tls_context(tls)
            except OSError as error:
                files = ", ".join(file for file in (tls.authorities, tls.certificate, tls.key) if file)
                found[f"exporters.{name}.tls: {files}: {error.strerror or error}"] = None
    yield from found
    yield from (f"{path}: {what}" for path, what in unknown(config.diagnosis))
