"""The section of the exporter `email`: messages as mails, over SMTP."""

from pathlib import Path

import msgspec

from overwatch.collector.secrets import Secret
from overwatch.serve.mail import Encryption, Mail, Mailbox
from overwatch.serve.notices import Level, NoticeLimits


class EmailConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`exporters.email`."""

    host: str | None = None
    """The SMTP server, e.g. smtp.example.org."""
    port: int | None = None
    """Its port: 587 for starttls, 465 for tls, 25 for none, if left out."""
    encryption: Encryption = "starttls"
    """`starttls`, `tls` from the first byte, or `none`; plain text is never a substitute."""
    ca_file: Path | None = None
    """PEM file of authorities, in place of the system's."""
    username: str | None = None
    """User of the server, with a password."""
    password: Secret | None = None
    """Its password, e.g. `${env:SMTP_PASSWORD}`; never shown."""
    password_file: Path | None = None
    """A file with the password, read at each connection, so that it may be replaced."""
    sender: str | None = msgspec.field(default=None, name="from")
    """The address that mails come from."""
    to: tuple[str, ...] = ()
    """The addresses that they go to."""
    min_severity: Level = "warning"
    """The least severe finding that is sent: `info`, `warning` or `critical`."""
    per_minute: int = 10
    """Mails in any minute; what comes on top waits for its turn, the most severe first."""
    timeout_s: float = 10.0
    """Seconds to wait for each answer of the server."""

    def __post_init__(self) -> None:
        self.limits()
        if self.missing is None:
            self.carrier()

    @property
    def missing(self) -> tuple[str, str] | None:
        """The key without which nothing can be sent, and what to do; `None` where all are there."""
        if self.host is None:
            return "host", "the mails have no server; name one, e.g. smtp.example.org"
        if self.sender is None:
            return "from", "the mails have no sender; give an address, e.g. overwatch@example.org"
        if not self.to:
            return "to", "the mails have no receiver; give a list of addresses, e.g. [oncall@example.org]"
        return None

    def limits(self) -> NoticeLimits:
        """What is sent; raises `ValueError`."""
        return NoticeLimits(min_severity=self.min_severity, per_minute=self.per_minute)

    def carrier(self) -> Mail:
        """What mails it; raises `ValueError`."""
        mailbox = Mailbox(
            host=self.host or "",
            to=self.to,
            sender=self.sender or "",
            port=self.port,
            encryption=self.encryption,
            ca_file=self.ca_file,
            username=self.username,
            password=None if self.password is None else self.password.reveal(),
            password_file=self.password_file,
            timeout_s=self.timeout_s,
        )
        return Mail(mailbox)
