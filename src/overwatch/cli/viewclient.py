"""One-shot reads of a collector's view API and scrape page, for commands that need a single answer."""

import urllib.parse
from http import HTTPStatus
from typing import Final

import msgspec

from overwatch import codec, discovery
from overwatch.delivery.connection import http_request
from overwatch.feeds.live import history_query, is_readable, query_of
from overwatch.snapshot import Snapshot, View
from overwatch.snapshot.history import Ask, History
from overwatch.snapshot.history import decode as decode_history

DEFAULT_VIEW = "ws://127.0.0.1:4380"
TIMEOUT_S = 5.0
_MOST: Final = 256 << 20
"""Bytes of a snapshot, a history or a page that are read."""


class ViewUnreachableError(ValueError):
    """No collector answers at the given place."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """`status` is that of the reply, where there was one."""
        super().__init__(message)
        self.status = status


def view_url(connect: str | None) -> str:
    """Where the view API is: as given, else as announced on this machine, else the default port.

    Raises `ValueError` for an address that is not `ws://HOST:PORT` or `wss://HOST:PORT`.
    """
    if connect is None:
        found = discovery.read()
        return found.view if found is not None and found.view is not None else DEFAULT_VIEW
    parts = urllib.parse.urlsplit(connect)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ValueError(f"--connect {connect!r} is not an address; write it like {DEFAULT_VIEW}")
    return f"{parts.scheme}://{parts.netloc}"


def http_url(url: str) -> str:
    """The same address over HTTP."""
    return url.replace("ws://", "http://", 1).replace("wss://", "https://", 1)


def fetch(url: str) -> bytes:
    """The body of a GET; raises `ViewUnreachableError` naming the address and the reason."""
    token = discovery.token_to_read(url)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        reply = http_request(url, timeout_s=TIMEOUT_S, headers=headers, most=_MOST)
    except OSError as error:
        raise ViewUnreachableError(
            f"no collector answers at {url} ({error}); run `overwatch collect`, or name it with --connect"
        ) from error
    if reply.status != HTTPStatus.OK:
        detail = reply.body.decode(errors="replace")[:300]
        raise ViewUnreachableError(f"{url} answered {reply.status}: {detail}", reply.status)
    return reply.body


def fetch_history(address: str, run_id: str, ask: Ask) -> History | None:
    """The past of a run; `None` where the collector has none to give."""
    query = urllib.parse.urlencode(history_query(run_id, ask))
    try:
        found = decode_history(fetch(f"{http_url(address)}/api/v1/history?{query}"))
    except (ViewUnreachableError, msgspec.DecodeError):
        return None
    return found if is_readable(found) else None


def fetch_snapshot(address: str, run_id: str | None, view: View | None = None) -> Snapshot | None:
    """The latest snapshot of a run (the newest run without an id); `None` while there is no run."""
    asked = query_of(view or View()) | ({} if run_id is None else {"run": run_id})
    try:
        return codec.decode(fetch(f"{http_url(address)}/api/v1/snapshot?{urllib.parse.urlencode(asked)}"))
    except ViewUnreachableError as error:
        if error.status == HTTPStatus.NOT_FOUND and run_id is None:
            return None
        raise
