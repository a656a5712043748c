"""How the collector is: its phase and the condition of its components, in otelcol's JSON.

Rules: a component that fails is said in the answer and logged once until it recovers; only the phase
decides whether the collector is available. Must not know HTTP or what components do.
"""

import logging
import threading
import time
from datetime import UTC, datetime
from enum import Enum

import msgspec

_log = logging.getLogger("overwatch.collector")


class Phase(Enum):
    """Where the collector is in its life; the value is otelcol's word."""

    STARTING = "Starting"
    OK = "OK"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class Component(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The condition of one component."""

    status: str
    error: str | None = None


class Health:
    """The collector's condition; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phase = Phase.STARTING
        self._since = datetime.now(UTC)
        self._began = time.monotonic()
        self._errors: dict[str, str] = {}

    @property
    def phase(self) -> Phase:
        """Where the collector is in its life."""
        return self._phase

    @property
    def uptime_s(self) -> float:
        """Seconds since the collector became what it is."""
        return time.monotonic() - self._began

    def enter(self, phase: Phase) -> None:
        """Go to the next phase."""
        with self._lock:
            self._phase = phase

    def failed(self, component: str, error: str) -> None:
        """Note that a component cannot do its work; logged when it could until now."""
        with self._lock:
            known = component in self._errors
            self._errors[component] = error
        if not known:
            _log.error("%s fails: %s", component, error)

    def recovered(self, component: str) -> None:
        """Note that a component works."""
        with self._lock:
            known = self._errors.pop(component, None)
        if known is not None:
            _log.warning("%s works again", component)

    @property
    def degraded(self) -> dict[str, str]:
        """What each component that fails last said."""
        with self._lock:
            return dict(self._errors)

    def answer(self) -> tuple[int, bytes]:
        """HTTP status and JSON body of a health request."""
        with self._lock:
            phase, errors = self._phase, dict(self._errors)
        available = phase is Phase.OK
        body = {
            "status": "Server available" if available else "Server not available",
            "upSince": self._since.isoformat(),
            "uptime": f"{self.uptime_s:.3f}s",
            "phase": phase.value,
            "components": {
                name: Component(status="RecoverableError", error=error) for name, error in errors.items()
            },
        }
        return (200 if available else 503), msgspec.json.encode(body)
