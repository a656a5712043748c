"""The exporter `email`: a message as a mail over SMTP.

Rules: a connection that was to be encrypted is never used in plain text; user and password go over an
encrypted connection, or to this machine. Nothing of telemetry can make a header. A password appears in no
message of ours. The end of a finding answers the mail of its start, so that a reader's program shows both
together. Must not know when a message is due.
"""

import smtplib
import ssl
from contextlib import suppress
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from overwatch.collector.exporters.notices import Notice, NotifierConfig
from overwatch.collector.net import is_loopback
from overwatch.collector.setting_types import Secret

Encryption: TypeAlias = Literal["starttls", "tls", "none"]
PORTS: Final[dict[Encryption, int]] = {"starttls": 587, "tls": 465, "none": 25}
_LONGEST_SUBJECT: Final = 150
_MOST_BYTES: Final = 1 << 16


class EmailConfig(NotifierConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    per_minute: int = 10
    """Mails in any minute; what comes on top waits for its turn, the most severe first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        host = self.host
        if host is not None and (not host or not host.isprintable() or " " in host):
            raise ValueError(f"host {host!r} is no name of a server; write e.g. smtp.example.org")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port is {self.port}; use 1 to 65535, or leave it out")
        for key, address in (("from", self.sender), *(("to", one) for one in self.to)):
            if address is not None and not _is_address(address):
                raise ValueError(f"{key} {address!r} is no address; write name@example.org")
        if self.password is not None and self.password_file is not None:
            raise ValueError("give one of password and password_file")
        if (self.username is None) != (self.password is None and self.password_file is None):
            raise ValueError("username and a password belong together; give both or neither")
        if self.username is not None and self.encryption == "none" and not is_loopback(host or ""):
            raise ValueError("encryption is none: a password would go in plain text; use starttls or tls")

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

    @property
    def shown(self) -> str:
        """The server."""
        return f"smtp://{self.host}:{self._at}"

    @property
    def _at(self) -> int:
        return PORTS[self.encryption] if self.port is None else self.port

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Send one mail.

        A server that is away, or refuses for now (4xx) or who sends, is tried again; a refusal of the mail
        itself (5xx) is final. A mail that some receivers got has arrived: another try would send it twice.
        """
        try:
            server = self._connected()
            try:
                server.send_message(mail(notice, self))
            finally:
                # Whatever the server answers to this, the mail is where it is.
                with suppress(OSError, smtplib.SMTPException):
                    server.quit()
                server.close()
        except smtplib.SMTPAuthenticationError as error:
            return f"SMTP {error.smtp_code}: user or password is refused", 0.0
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            return f"SMTP {max(codes, default=0)}: every receiver is refused", _again(min(codes, default=0))
        except smtplib.SMTPResponseException as error:
            return f"SMTP {error.smtp_code}", _again(error.smtp_code)
        except smtplib.SMTPNotSupportedError:
            return "the server does not offer what is needed: STARTTLS, AUTH or UTF-8 addresses", 0.0
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return type(error).__name__, 0.0
        return "", None

    def _connected(self) -> smtplib.SMTP:
        """A connection that may be used. Raises `OSError`, `SMTPException`."""
        secret = self._secret()
        context, host = None, self.host or ""
        if self.encryption != "none":
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        if self.encryption == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, self._at, timeout=self.timeout_s, context=context)
        else:
            server = smtplib.SMTP(host, self._at, timeout=self.timeout_s)
        try:
            if self.encryption == "starttls":
                server.starttls(context=context)
            if self.username is not None:
                server.login(self.username, secret)
        except BaseException:
            server.close()
            raise
        return server

    def _secret(self) -> str:
        """The password as it is now. Raises `OSError`."""
        if self.password_file is None:
            return "" if self.password is None else self.password.reveal()
        with self.password_file.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").rstrip("\r\n")


def mail(notice: Notice, config: EmailConfig) -> EmailMessage:
    """A message as a mail."""
    made, sender = EmailMessage(), config.sender or ""
    made["From"], made["To"] = sender, ", ".join(config.to)
    made["Subject"] = notice.headline[:_LONGEST_SUBJECT]
    made["Date"] = formatdate(notice.at, localtime=False)
    about = f"{notice.run_id}\0{notice.finding.id}\0{notice.finding.since}"
    thread = sha256(about.encode("utf-8", "replace")).hexdigest()[:32]
    domain = parseaddr(sender)[1].rpartition("@")[2]
    made["Message-ID"] = f"<{thread}.{notice.status}@{domain}>"
    if notice.status != "started":
        made["In-Reply-To"] = made["References"] = f"<{thread}.started@{domain}>"
    # Programs that answer mails while their owner is away leave these alone.
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(notice.plain)
    return made


def _again(code: int) -> float | None:
    return 0.0 if code < 500 else None


def _is_address(text: str) -> bool:
    """Whether a text is `name@host`, or `Name <name@host>`."""
    _, address = parseaddr(text)
    if not text.isprintable() or "@" not in address:
        return False
    try:
        made = Address(addr_spec=address)
    except (HeaderParseError, ValueError, IndexError):
        return False
    return bool(made.username and made.domain)
