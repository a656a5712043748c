"""Mails arrive at a real SMTP server, encrypted and with a user, are tried again, and give no secret away."""

import email
import email.policy
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

from overwatch.collector.exporters.email import EmailConfig, mail
from overwatch.collector.exporters.notices import Notice
from overwatch.collector.setting_types import Secret
from overwatch.snapshot import Finding, Subject
from tests.overwatch.collector import pki
from tests.overwatch.collector.exporters.test_webhook import Books, crashed, notifying
from tests.ports import free_port

PASSWORD = "canary-77"  # noqa: S105 of a test


class Postbox:
    """What a mail server took, and what it answers."""

    def __init__(self) -> None:
        self.answers = ["250 OK"]
        """To each mail in turn, the last one for ever."""
        self.refused = frozenset[str]()
        """Receivers that it does not know."""
        self.mails: list[EmailMessage] = []
        self.receivers: list[list[str]] = []
        self.users: list[str] = []
        self.was_encrypted: list[bool] = []
        self.tries = 0
        self.changed = threading.Condition()

    def wait(self, count: int) -> None:
        """Until so many mails were taken."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.mails) >= count, 30), self.tries

    async def handle_RCPT(  # noqa: N802 a hook of aiosmtpd
        self, _: SMTP, __: Any, envelope: Envelope, address: str, ___: Any
    ) -> str:
        """Take a receiver, or not."""
        if address in self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 a hook of aiosmtpd
        self, _: SMTP, session: Any, envelope: Envelope
    ) -> str:
        """Take a mail, or refuse it."""
        with self.changed:
            answer = self.answers[min(self.tries, len(self.answers) - 1)]
            self.tries += 1
            if answer.startswith("250"):
                content = envelope.content
                assert isinstance(content, bytes)
                parsed = email.message_from_bytes(content, policy=email.policy.default)
                assert isinstance(parsed, EmailMessage)
                self.mails.append(parsed)
                self.receivers.append(list(envelope.rcpt_tos))
                self.was_encrypted.append(session.ssl is not None)
            self.changed.notify_all()
        return answer

    def log_in(self, _: SMTP, __: Any, ___: Any, ____: str, reported: Any) -> AuthResult:
        """Let the one user in who knows the password."""
        assert isinstance(reported, LoginPassword)
        self.users.append(reported.login.decode())
        return AuthResult(success=reported.password == PASSWORD.encode(), handled=False)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and a certificate of this machine."""
    if pki.OPENSSL is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("keys")
    pki.authority(folder, "ca")
    pki.signed(folder, "server", extension="subjectAltName=IP:127.0.0.1,DNS:localhost")
    return folder


@contextmanager
def server(box: Postbox, keys: Path | None = None, **how: Any) -> Iterator[int]:
    """An SMTP server on this machine; its port. With `keys` it offers STARTTLS and asks for a user."""
    context = None
    if keys is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / "server.pem", keys / "server.key")
        how = {
            "require_starttls": True,
            "auth_required": True,
            "authenticator": box.log_in,
            **how,
        }
    port = free_port()
    running = Controller(box, hostname="127.0.0.1", port=port, tls_context=context, ready_timeout=30, **how)
    running.start()
    try:
        yield port
    finally:
        running.stop()


def box_of(port: int, **how: Any) -> EmailConfig:
    """A mailbox of this machine's server, in plain text unless set."""
    reported = {
        "host": "127.0.0.1",
        "port": port,
        "encryption": "none",
        "sender": "Overwatch <tower@rl.example>",
    }
    return EmailConfig(**{"to": ("oncall@rl.example", "second@rl.example"), **reported, **how})


def notice(**how: Any) -> Notice:
    """A message about a collapse."""
    finding = Finding(
        id="policy-collapse:policy", code="policy-collapse", severity="critical", since=1_700_000_000.0,
        subject=Subject(scope="policy"), message="policy collapse: KL and clip beyond their limits",
        hint="stop; go back to the last good checkpoint", factors=("KL beyond its limit",),
    )  # fmt: skip
    reported = Notice(status="started", run_id="ppo-3", at=1_700_000_030.0, finding=finding)
    return msgspec.structs.replace(reported, **how)


def test_a_finding_is_a_mail_over_starttls_with_a_user(keys: Path, tmp_path: Path) -> None:
    """Encrypted before the password goes; the password is read anew from its file."""
    box, secret = Postbox(), tmp_path / "password"
    secret.write_text("old\n")
    with server(box, keys) as port:
        carrier = box_of(port, host="localhost", encryption="starttls", ca_file=keys / "ca.pem",
                         username="tower", password_file=secret)  # fmt: skip
        refused = carrier.deliver(notice())
        secret.write_text(f"{PASSWORD}\n")
        assert carrier.deliver(notice()) == ("", None)

    assert refused == ("SMTP 535: user or password is refused", 0.0)
    assert box.was_encrypted == [True]
    assert set(box.users) == {"tower"}
    assert box.receivers == [["oncall@rl.example", "second@rl.example"]]
    (taken,) = box.mails
    assert taken["subject"] == "critical: Policy collapse started · run ppo-3"
    text = taken.get_content()
    for line in ("policy collapse: KL and clip beyond their limits", "- KL beyond its limit", "Next: stop;"):
        assert line in text


def test_tls_from_the_first_byte(keys: Path) -> None:
    """As on port 465; a server whose authority is not trusted gets nothing."""
    box, port = Postbox(), free_port()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    running = Controller(box, hostname="127.0.0.1", port=port, ssl_context=context, ready_timeout=30)
    running.start()
    try:
        unknown = box_of(port, encryption="tls").deliver(notice())
        known = box_of(port, encryption="tls", ca_file=keys / "ca.pem").deliver(notice())
    finally:
        running.stop()

    assert unknown == ("SSLCertVerificationError", 0.0)
    assert known == ("", None)
    assert len(box.mails) == 1


def test_plain_text_is_no_substitute() -> None:
    """A server that offers no STARTTLS gets nothing, and is tried again."""
    box = Postbox()
    with server(box) as port:
        trouble, again = box_of(port, encryption="starttls").deliver(notice())

    assert (box.tries, again) == (0, 0.0)
    assert "STARTTLS" in trouble


@pytest.mark.parametrize(
    ("answer", "again"), [("451 busy", 0.0), ("421 going", 0.0), ("550 spam", None), ("554 no", None)]
)
def test_a_refusal_for_now_is_tried_again_and_a_final_one_is_not(answer: str, again: float | None) -> None:
    """4xx and 5xx, as SMTP has them; the server's words are not repeated."""
    box = Postbox()
    box.answers = [answer]
    with server(box) as port:
        trouble, found = box_of(port).deliver(notice())

    assert found == again
    assert answer.split(maxsplit=1)[0] in trouble
    assert answer.split()[1] not in trouble


def test_some_receivers_are_enough() -> None:
    """Another try would send it twice to them; where all are refused nothing arrived."""
    box = Postbox()
    box.refused = frozenset({"second@rl.example"})
    with server(box) as port:
        assert box_of(port).deliver(notice()) == ("", None)
        box.refused = frozenset({"second@rl.example", "oncall@rl.example"})
        trouble, again = box_of(port).deliver(notice())

    assert box.receivers == [["oncall@rl.example"]]
    assert (again, "550" in trouble) == (None, True)


def test_a_server_that_is_away_gets_what_stands_when_it_is_back() -> None:
    """Once, from the notifier's own thread, with the start and then the end."""
    box, books, port = Postbox(), Books(), free_port()
    notifier = notifying(box_of(port), books)
    notifier.start()
    try:
        notifier.publish(crashed(3))
        books.wait(lambda reported: reported.errors)
        running = Controller(box, hostname="127.0.0.1", port=port, ready_timeout=30)
        running.start()
        try:
            notifier.publish(crashed(3, ticks=1))
            box.wait(1)
            notifier.publish(crashed(ticks=2))
            box.wait(2)
        finally:
            running.stop()
    finally:
        notifier.close()
    first, second = box.mails

    assert (books.arrived, books.gone) == (2, 0)
    assert "started" in first["subject"]
    assert "ended" in second["subject"]
    assert second["in-reply-to"] == first["message-id"] != second["message-id"]


def test_telemetry_makes_no_header_and_no_line() -> None:
    """Names with line ends, of any length, in any script."""
    hostile = "x\r\nBcc: all@rl.example\r\n\r\n" + "é" * 5000
    finding = msgspec.structs.replace(notice().finding, message=hostile, code=hostile, hint=hostile)
    made = email.message_from_bytes(
        mail(notice(run_id=hostile, finding=finding), box_of(25)).as_bytes(), policy=email.policy.default
    )

    assert made["bcc"] is None
    assert set(made.keys()) >= {"From", "To", "Subject", "Message-ID"}
    assert len(str(made["subject"])) <= 150
    assert isinstance(made, EmailMessage)
    assert "\nBcc:" not in made.get_content()


@pytest.mark.parametrize(
    ("how", "stated"),
    [
        ({"host": "a b"}, "host 'a b'"),
        ({"port": 70000}, "port is 70000"),
        ({"to": ("oncall",)}, "to 'oncall' is no address"),
        ({"to": ("a@b\r\nBcc: c@d",)}, "is no address"),
        ({"sender": "tower"}, "from 'tower' is no address"),
        ({"username": "u"}, "belong together"),
        ({"password": Secret(PASSWORD)}, "belong together"),
        ({"username": "u", "password": Secret(PASSWORD), "password_file": Path("x")}, "give one of"),
        ({"username": "u", "password": Secret(PASSWORD), "host": "smtp.example.org"}, "in plain text"),
        ({"timeout_s": 0}, "timeout_s 0 is not"),
        ({"timeout_s": 61}, "timeout_s 61 is not"),
    ],
)
def test_a_mailbox_that_cannot_be_used_is_refused(how: dict[str, Any], stated: str) -> None:
    """With the value, without the password."""
    with pytest.raises(ValueError, match=re.escape(stated)) as refused:
        box_of(**{"port": 25, **how})
    assert PASSWORD not in str(refused.value)


def test_a_password_file_that_is_gone_is_trouble_for_now(tmp_path: Path) -> None:
    """It may come back; nothing was sent without it, and no password shows."""
    shown = box_of(25, username="u", password=Secret(PASSWORD))
    box = box_of(free_port(), username="u", password_file=tmp_path / "none")

    assert box.deliver(notice()) == ("FileNotFoundError", 0.0)
    assert PASSWORD not in f"{shown!r}{shown.shown}"
