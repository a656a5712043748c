"""Bearer tokens by role: who may send, who may read, who may act.

Rules: a role without tokens is open, save `control`, which gets a fresh token at each start; a token of
`control` also reads. Tokens are compared by their SHA-256 in constant time, all of them at each look. What a
browser keeps is made of a token, admits where the token does, and does not reveal it. A file that changes is
taken up once two looks in a row found the same in it, as one may come while it is being written; a file that
cannot be used leaves the tokens of its role as they were. A peer that sent too many wrong tokens waits for
the next answer; what it sends that is right is not held up. Must not know transports.
"""

import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from overwatch.collector.setting_types import Secret
from overwatch.regular import read_regular

LONGEST_TOKEN: Final = 4096
"""Most characters of a token."""

MOST_WRONG: Final = 5
"""Wrong tokens of one peer that are judged at once."""
AGAIN_S: Final = 10.0
"""After so long one more is."""
_MOST_PEERS: Final = 1024
_MOST_TOKENS: Final = 64
_SCHEME: Final = "bearer"


class Role(Enum):
    """What a token allows; the value is its key in the configuration."""

    INGEST = "ingest"
    READ = "read"
    CONTROL = "control"


class Denial(Enum):
    """Why a request may not come in."""

    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"


class Throttle:
    """How many wrong tokens each peer may still send, of the last peers that did; safe from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._owed: OrderedDict[str, float] = OrderedDict()
        """When all that a peer sent is forgotten."""
        self._guesses: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        """Wrong tokens that were counted, by peer."""

    def wait_s(self, peer: str) -> float:
        """How long a peer has to wait before its next token is judged."""
        return max(0.0, self._owed.get(peer, 0.0) - self._clock() - (MOST_WRONG - 1) * AGAIN_S)

    def wrong(self, peer: str) -> float:
        """Count a wrong token, unless its peer has to wait; how long that is."""
        with self._lock:
            wait_s = self.wait_s(peer)
            if not wait_s:
                self._owed[peer] = max(self._owed.pop(peer, 0.0), self._clock()) + AGAIN_S
                if len(self._owed) > _MOST_PEERS:
                    self._owed.popitem(last=False)
            return wait_s

    def guess(self, peer: str, authorization: Sequence[str]) -> float:
        """As `wrong`, of headers: a program that repeats its one wrong token guesses nothing."""
        token = _presented(authorization)
        if token is None or (guess := (peer, _digest(token))) in self._guesses:
            return 0.0
        wait_s = self.wrong(peer)
        if not wait_s:
            self._guesses[guess] = None
            if len(self._guesses) > _MOST_PEERS * MOST_WRONG:
                self._guesses.popitem(last=False)
        return wait_s


class TokenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`service.security.tokens.<role>`, with the keys of otelcol's extension `bearertokenauth`."""

    token: Secret | None = None
    """The token, e.g. `${env:OVERWATCH_INGEST_TOKEN}`."""
    tokens: tuple[Secret, ...] = ()
    """Several that hold at once, so that one can be replaced without a gap."""
    filename: Path | None = None
    """A file with one token a line, all of which hold; taken up anew when it changes."""

    def __post_init__(self) -> None:
        given = (self.token is not None) + bool(self.tokens) + (self.filename is not None)
        if given != 1:
            raise ValueError("give one of token, tokens and filename")
        for secret in self.inline:
            problem = _problem(secret.reveal())
            if problem:
                raise ValueError(f"a token {problem}")

    @property
    def inline(self) -> tuple[Secret, ...]:
        """The tokens that stand in the configuration itself."""
        return self.tokens if self.token is None else (self.token,)


class TokensConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`service.security.tokens`; a role that is left out is open."""

    ingest: TokenConfig | None = None
    """Who may send OTLP."""
    read: TokenConfig | None = None
    """Who may read snapshots and metrics."""
    control: TokenConfig | None = None
    """Who may act, e.g. acknowledge a finding; a fresh token at each start if left out."""

    def of(self, role: Role) -> TokenConfig | None:
        """The tokens of a role."""
        return {Role.INGEST: self.ingest, Role.READ: self.read, Role.CONTROL: self.control}[role]


class Tokens:
    """The tokens that hold now; `load` before anything is judged, safe from any thread."""

    def __init__(self, config: TokensConfig) -> None:
        self._config = config
        self._fresh = Secret(secrets.token_urlsafe(32))
        self._lock = threading.Lock()
        self._held: Mapping[Role, tuple[Secret, ...]] = {}
        self._seen: Mapping[Role, tuple[Secret, ...]] = {}
        """What the last look found."""
        self._digests: tuple[tuple[Role, bytes], ...] = ()
        self._kept: tuple[tuple[Role, bytes], ...] = ()
        """The same of what browsers keep."""
        self.changes = 0
        """How often the tokens changed; judgements of before the last time may not hold any more."""

    def load(self) -> None:
        """Read all tokens; raises `OSError` or `ValueError`."""
        with self._lock:
            self._seen = {role: tuple(self._read(role)) for role in Role}
            self._hold(self._seen)

    def reload(self, *, at_once: bool) -> tuple[str, ...]:
        """Read all tokens anew, the border to their files: why those of a role are kept, if they are.

        Without `at_once` a change holds when the next call finds it too.
        """
        with self._lock:
            found, wrong = dict(self._held), []
            for role in Role:
                try:
                    found[role] = tuple(self._read(role))
                except (OSError, ValueError) as error:
                    wrong.append(str(error))
            seen, self._seen = self._seen, found
            steady = [role for role in Role if at_once or found[role] == seen.get(role)]
            self._hold({**self._held, **{role: found[role] for role in steady}})
            return tuple(wrong)

    def _hold(self, held: Mapping[Role, tuple[Secret, ...]]) -> None:
        if held == self._held:
            return
        texts = [(role, one.reveal()) for role in Role for one in held[role]]
        self._digests = tuple((role, _digest(text)) for role, text in texts)
        self._kept = tuple((role, _digest(kept_for(text))) for role, text in texts)
        self._held = held
        self.changes += 1

    def first(self, role: Role) -> Secret | None:
        """A token to use for a role, `None` where it needs none."""
        held = self._held.get(role)
        return held[0] if held else None

    @property
    def texts(self) -> frozenset[str]:
        """Every token in plain text, for what must keep them out of logs."""
        return frozenset(one.reveal() for held in self._held.values() for one in held)

    def judge(self, role: Role, authorization: Sequence[str]) -> Denial | None:
        """`None` where requests with these `authorization` headers have the role."""
        return self._judged(role, _presented(authorization), self._digests)

    def roles_of(self, token: str) -> frozenset[Role]:
        """The roles for which this very token holds."""
        presented = _digest(token)
        return frozenset(role for role, digest in self._digests if hmac.compare_digest(digest, presented))

    def judge_kept(self, role: Role, kept: str) -> Denial | None:
        """The same of what a browser keeps."""
        return self._judged(role, kept, self._kept)

    def _judged(self, role: Role, given: str | None, known: tuple[tuple[Role, bytes], ...]) -> Denial | None:
        if not self._held.get(role):
            return None
        if given is None:
            return Denial.UNAUTHENTICATED
        presented = _digest(given)
        # Every token is looked at, so that the time gives nothing away about which one is near.
        matched = {held for held, digest in known if hmac.compare_digest(digest, presented)}
        if not matched:
            return Denial.UNAUTHENTICATED
        if role in matched or (role is Role.READ and Role.CONTROL in matched):
            return None
        return Denial.FORBIDDEN

    def _read(self, role: Role) -> Iterator[Secret]:
        config = self._config.of(role)
        if config is None:
            if role is Role.CONTROL:
                yield self._fresh
            return
        if config.filename is None:
            yield from config.inline
            return
        yield from _from_file(role, config.filename)


def _from_file(role: Role, file: Path) -> Iterator[Secret]:
    lines = read_regular(file).decode("utf-8", "replace").splitlines()
    found = [line.strip() for line in lines if line.strip()]
    if not 1 <= len(found) <= _MOST_TOKENS:
        raise ValueError(
            f"{file}: {len(found)} tokens for {role.value}; write 1 to {_MOST_TOKENS}, one a line"
        )
    for at, token in enumerate(found, start=1):
        problem = _problem(token)
        if problem:
            raise ValueError(f"{file}: token {at} for {role.value} {problem}")
        yield Secret(token)


def _problem(token: str) -> str | None:
    if not token:
        return "is empty"
    if len(token) > LONGEST_TOKEN:
        return f"has {len(token)} characters; {LONGEST_TOKEN} are the most"
    if not all("!" <= character <= "~" for character in token):
        return "has a character that is not visible ASCII; no header can carry it"
    return None


def kept_for(token: str) -> str:
    """What a browser keeps instead of a token: it cannot be presented in a header, nor turned back."""
    return hmac.new(token.encode(), b"overwatch page", sha256).hexdigest()


def _presented(authorization: Sequence[str]) -> str | None:
    """The one bearer token of the headers; `None` when there is none, or more than one header."""
    if len(authorization) != 1:
        return None
    scheme, _, token = authorization[0].partition(" ")
    token = token.strip(" ")
    return token if scheme.lower() == _SCHEME and _problem(token) is None else None


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
