"""From flags to what the parts of the orchestrator are given; the parts validate themselves.

Raises `ValueError` naming the value and the fix. Must not know how anything is served.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from overwatch_rl.orchestrator.api import ROLES
from overwatch_rl.orchestrator.pulses import Pace
from overwatch_rl.web.authorisation import Authorisation, read_token
from overwatch_rl.web.process import address, endpoint
from overwatch_rl.web.site import ConnectionLimits, tls_context


class OrchestratorFlags(TypedDict):
    """What `overwatch-rl orchestrator` was given."""

    listen: str
    store: str
    operator_token: Path | None
    learner_token: Path | None
    reader_token: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    heartbeat_s: float
    stale_s: float
    unresponsive_s: float
    max_connections: int
    run_id: str | None
    endpoint: str | None
    telemetry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorSettings:
    """One server."""

    host: str
    port: int
    """0 for any that is free."""
    store: str
    """URL of a database."""
    authorisation: Authorisation
    pace: Pace
    connections: ConnectionLimits
    tls: ssl.SSLContext | None
    """`None` for plain HTTP."""
    run_id: str | None
    endpoint: str | None
    is_reporting: bool


def orchestrator_settings(flags: OrchestratorFlags) -> OrchestratorSettings:
    """Assemble and validate; raises `OSError` where a file cannot be read."""
    host, port = address(flags["listen"])
    return OrchestratorSettings(
        host=host,
        port=port,
        store=flags["store"],
        authorisation=Authorisation(host, _tokens(flags), "--operator-token"),
        pace=Pace(
            least_s=flags["heartbeat_s"], stale_s=flags["stale_s"], unresponsive_s=flags["unresponsive_s"]
        ),
        connections=ConnectionLimits(most=flags["max_connections"], read_s=30.0, idle_s=75.0),
        tls=tls_context(flags["tls_cert"], flags["tls_key"]),
        run_id=flags["run_id"],
        endpoint=endpoint(flags["endpoint"]),
        is_reporting=flags["telemetry"],
    )


def _tokens(flags: OrchestratorFlags) -> dict[str, str]:
    """By role; without an operator's nobody could command, so one of the others alone is a mistake."""
    files = dict(
        zip(ROLES, (flags["operator_token"], flags["learner_token"], flags["reader_token"]), strict=True)
    )
    tokens: dict[str, str] = {role: read_token(file) for role, file in files.items() if file is not None}
    if tokens and "operator" not in tokens:
        raise ValueError(
            f"there is a token of {', '.join(tokens)} and none of operator; add --operator-token"
        )
    return tokens
