"""An address of the configuration, and what stands before it.

Must not know which components listen.
"""

from dataclasses import dataclass

from overwatch.collector.auth import Role
from overwatch.collector.tls import TlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address, by the path of its key below the section that has it, or in the whole file."""

    path: str
    endpoint: str
    tls: TlsConfig | None
    role: Role | None
    """Whose token it asks for; `None` asks for none."""
    shares_tls: bool = True
    """Whether it takes the TLS of `service.security` where it has none of its own."""
    takes_min_version: bool = True
    """Whether its server can refuse TLS 1.2."""
