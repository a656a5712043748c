"""A message as an e-mail over SMTP.

Rules: a connection that was to be encrypted is never used in plain text; user and password go over an
encrypted connection, or to this machine. Nothing of telemetry can make a header. A password appears in no
message of ours. The end of a finding answers the mail of its start, so that a reader's program shows both
together. Must not know when a message is due.
"""

import ipaddress
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, TypeAlias

from overwatch.serve.notices import Notice

Encryption: TypeAlias = Literal["starttls", "tls", "none"]
PORTS: Final[dict[Encryption, int]] = {"starttls": 587, "tls": 465, "none": 25}
_LONGEST_SUBJECT: Final = 150
_MOST_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    """Where mails go, and by which server."""

    host: str
    to: tuple[str, ...]
    sender: str
    port: int | None = None
    """That of the encryption without: 587, 465 or 25."""
    encryption: Encryption = "starttls"
    ca_file: Path | None = None
    """Authorities in place of the system's."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    """Read at each connection, so that it may be replaced."""
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.host or not self.host.isprintable() or " " in self.host:
            raise ValueError(f"host {self.host!r} is no name of a server; write e.g. smtp.example.org")
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"port is {self.port}; use 1 to 65535, or leave it out")
        if not self.to:
            raise ValueError("to is empty; give at least one address")
        for key, address in (("from", self.sender), *(("to", one) for one in self.to)):
            if not _is_address(address):
                raise ValueError(f"{key} {address!r} is no address; write name@example.org")
        if self.password is not None and self.password_file is not None:
            raise ValueError("give one of password and password_file")
        if (self.username is None) != (self.password is None and self.password_file is None):
            raise ValueError("username and a password belong together; give both or neither")
        if self.username is not None and self.encryption == "none" and not _is_loopback(self.host):
            raise ValueError("encryption is none: a password would go in plain text; use starttls or tls")
        if not 0 < self.timeout_s <= 60:
            raise ValueError(f"a mail server answers within 60 s or is given up, not {self.timeout_s} s")

    @property
    def at(self) -> int:
        """The port."""
        return PORTS[self.encryption] if self.port is None else self.port

    def secret(self) -> str:
        """The password as it is now. Raises `OSError`."""
        if self.password_file is None:
            return self.password or ""
        with self.password_file.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace").rstrip("\r\n")


class Mail:
    """Carries messages to a mailbox, a connection a message."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    @property
    def shown(self) -> str:
        """The server."""
        return f"smtp://{self._mailbox.host}:{self._mailbox.at}"

    def deliver(self, notice: Notice) -> tuple[str, float | None]:
        """Send one mail; see `Carrier`.

        A server that is away, or refuses for now (4xx) or who sends, is tried again; a refusal of the mail
        itself (5xx) is final. A mail that some receivers got has arrived: another try would send it twice.
        """
        try:
            server = self._connected()
            try:
                server.send_message(mail(notice, self._mailbox))
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
        box = self._mailbox
        secret = box.secret()
        context = None
        if box.encryption != "none":
            context = ssl.create_default_context(cafile=None if box.ca_file is None else str(box.ca_file))
        if box.encryption == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(box.host, box.at, timeout=box.timeout_s, context=context)
        else:
            server = smtplib.SMTP(box.host, box.at, timeout=box.timeout_s)
        try:
            if box.encryption == "starttls":
                server.starttls(context=context)
            if box.username is not None:
                server.login(box.username, secret)
        except BaseException:
            server.close()
            raise
        return server


def mail(notice: Notice, box: Mailbox) -> EmailMessage:
    """A message as a mail."""
    made = EmailMessage()
    made["From"], made["To"] = box.sender, ", ".join(box.to)
    made["Subject"] = notice.headline[:_LONGEST_SUBJECT]
    made["Date"] = formatdate(notice.at, localtime=False)
    about = f"{notice.run_id}\0{notice.finding.id}\0{notice.finding.since}"
    thread = sha256(about.encode("utf-8", "replace")).hexdigest()[:32]
    domain = parseaddr(box.sender)[1].rpartition("@")[2]
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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
