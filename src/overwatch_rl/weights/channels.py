"""The ways from a learner's weights to an actor: one row a channel.

A channel gives the newest manifest and the bytes of an artifact; it judges neither. Where the version key may
be written, the row has that too: the key only ever moves to a greater version, by any writer.
Raises `ChannelError`, an `OSError`, when what is asked does not answer. Must not know tensors; never imports
torch.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import obstore
import redis
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import HTTPStore

from overwatch.objects.retrying import Patience
from overwatch.objects.store import MOST_BYTES, is_remote, open_store
from overwatch.regular import SMALL_BYTES
from overwatch_rl.artifacts.signing import SignatureError, Verifier
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.manifest import (
    CURRENT,
    FOLDER,
    RejectedError,
    WeightsManifest,
    artifact_of,
    decoded,
    encoded,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig

CONNECT_S: Final = 2.0
REQUEST_S: Final = 20.0
"""Without a byte."""
POLL_INTERVAL_S: Final = 0.01
"""Least time between two looks into a folder."""
REQUEST_INTERVAL_S: Final = 0.05
"""Least time between two requests of what gives no notice."""
LONGEST_INTERVAL_S: Final = 0.25
"""Most time between two looks."""
_LOOK_SHARE: Final = 0.125
"""Of the time since the last change: a look costs CPU, and comes too late by so much at most."""
_ONCE: Final = Patience(deadline_s=0.001, request_s=REQUEST_S)
"""One try: who asks decides when to ask again."""


class ChannelError(OSError):
    """A channel that does not answer, or not as it should."""


class StaleError(ValueError):
    """The version key names a version that is not older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run's weights are found."""

    url: str
    """A folder, `file://`, `s3://`, `gs://`: the store; `redis://`; `http(s)://`: a learner."""
    run_id: str
    artifacts: str | None = None
    """Address of the store, where `url` is that of Redis."""
    token: str | None = None
    """Of the learner."""
    ca: Path | None = None
    """PEM: an authority of the learner's certificate, beside those of the system."""


def look_after(unchanged_s: float, soonest_s: float = POLL_INTERVAL_S) -> float:
    """Seconds until the next look at what has not changed for so long."""
    return min(max(soonest_s, _LOOK_SHARE * unchanged_s), LONGEST_INTERVAL_S)


class StoreChannel:
    """Artifacts and the version key in one store: what was published, which others judge."""

    def __init__(self, place: Place) -> None:
        where = place.artifacts or place.url
        self._store = open_store(where, _ONCE)
        self._interval_s = REQUEST_INTERVAL_S if is_remote(where) else POLL_INTERVAL_S
        self._seen: bytes | None = None
        self._changed = time.monotonic()

    def newest(self) -> bytes | None:
        """The newest manifest as it was written; `None` before the first."""
        found = self._read(CURRENT, SMALL_BYTES)
        if found != self._seen:
            self._seen, self._changed = found, time.monotonic()
        return found

    def artifact(self, version: Version) -> bytes:
        """The artifact of a version. Raises `FileNotFoundError` when it is gone: a newer one is there."""
        found = self._read(artifact_of(version), MOST_BYTES)
        if found is None:
            raise FileNotFoundError(f"the artifact of {version} is not there any more")
        return found

    def wait(self, seconds: float) -> None:
        """Return after so long, or sooner: a store gives no notice of changes.

        The next look comes the later the longer there was none.
        """
        time.sleep(min(seconds, look_after(time.monotonic() - self._changed, self._interval_s)))

    def close(self) -> None:
        """Let go of connections: nothing is open."""

    def move(self, manifest: WeightsManifest, verifier: Verifier) -> None:
        """Have the key name another version. Raises `StaleError` where it names one that is not older.

        `verifier` accepts what the run has signed. Moving it to where it is changes nothing.
        """
        held = self._store.get(CURRENT, most_bytes=SMALL_BYTES)
        if is_to_move(None if held is None else held.data, manifest, verifier):
            self._store.replace(CURRENT, encoded(manifest), None if held is None else held.tag)

    def _read(self, key: str, most_bytes: int) -> bytes | None:
        held = self._store.get(key, most_bytes=most_bytes)
        return None if held is None else held.data


class RedisChannel(StoreChannel):
    """Artifacts in a store, the version key in Redis.

    The key is polled; the message of each publish only ends a wait sooner.
    """

    def __init__(self, place: Place) -> None:
        if place.artifacts is None:
            raise ValueError("Redis holds the version only; name the store of the artifacts too")
        super().__init__(place)
        self._key = f"overwatch-rl:{FOLDER}:{place.run_id}"
        self._redis: Any = redis.Redis.from_url(
            place.url, socket_connect_timeout=CONNECT_S, socket_timeout=CONNECT_S, health_check_interval=30
        )
        self._notices: Any = None

    def newest(self) -> bytes | None:
        """The value of the key."""
        with _redis_errors():
            held: bytes | None = self._redis.get(self._key)
            return held

    def wait(self, seconds: float) -> None:
        """Until the next message."""
        until = time.monotonic() + seconds
        with suppress(redis.RedisError):
            if self._notices is None:
                self._notices = self._redis.pubsub(ignore_subscribe_messages=True)
                self._notices.subscribe(self._key)
            while (left := until - time.monotonic()) > 0:
                if self._notices.get_message(timeout=left) is not None:
                    return
            return
        self._notices = None
        time.sleep(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """End the connections."""
        self._redis.close()

    def move(self, manifest: WeightsManifest, verifier: Verifier) -> None:
        """Set the key, if it is the one that was read."""

        def change(pipe: Any) -> None:
            """Set and announce it in one transaction."""
            is_needed = is_to_move(pipe.get(self._key), manifest, verifier)
            pipe.multi()
            if is_needed:
                pipe.set(self._key, encoded(manifest))
                pipe.publish(self._key, str(manifest.version))

        with _redis_errors():
            self._redis.transaction(change, self._key)


class HttpChannel(StoreChannel):
    """Manifests and artifacts from a learner, over HTTP; nothing is written there.

    A manifest is read whole each time: what is damaged on the way must not be kept by its entity tag.
    """

    def __init__(self, place: Place) -> None:
        headers = {} if place.token is None else {"Authorization": f"Bearer {place.token}"}
        options: ClientConfig = {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "timeout": timedelta(seconds=REQUEST_S),
            "default_headers": headers,
        }
        if place.ca is not None:
            options["root_certificate"] = place.ca.read_bytes()
        self._url, self._interval_s = place.url, REQUEST_INTERVAL_S
        self._seen, self._changed = None, time.monotonic()
        self._http = HTTPStore.from_url(
            place.url,
            client_options=options,
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_S)},
        )

    def _read(self, key: str, most_bytes: int) -> bytes | None:  # noqa: ARG002 of stores
        try:
            return bytes(obstore.get(self._http, key.removesuffix(".json")).bytes())
        except (FileNotFoundError, NotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise ChannelError(f"{self._url} does not answer as it should: {first_line(error)}") from error


CHANNELS: Final[dict[str, type[StoreChannel]]] = {
    **dict.fromkeys(("", "file", "s3", "gs", "memory"), StoreChannel),
    **dict.fromkeys(("redis", "rediss", "unix"), RedisChannel),
    **dict.fromkeys(("http", "https"), HttpChannel),
}
"""By the scheme of an address; the empty one is that of a folder."""


def open_channel(place: Place) -> StoreChannel:
    """The channel of an address. Raises `ValueError` of one that is none."""
    scheme = urlsplit(place.url).scheme if "://" in place.url else ""
    if scheme not in CHANNELS:
        known = ", ".join(f"{name}://" for name in CHANNELS if name)
        raise ValueError(f"{place.url!r} is no place of weights; use a folder, or an address of {known}")
    return CHANNELS[scheme](place)


def open_key(place: Place) -> StoreChannel:
    """What holds the version key. Raises `ValueError` where none can be written."""
    channel = open_channel(place)
    if isinstance(channel, HttpChannel):
        raise ValueError(f"{place.url} is served by a learner and not written; use a store or Redis")  # noqa: TRY004 an address
    return channel


def is_to_move(held: bytes | None, manifest: WeightsManifest, verifier: Verifier) -> bool:
    """Whether a version key does not name a version yet: the reply to an earlier try may have been lost.

    What no accepted key signed is damaged, or of somebody else, and is replaced. Raises `StaleError` where a
    manifest of the same run is not older.
    """
    if held is None:
        return True
    try:
        found = decoded(held)
        verifier.check(found)
    except (RejectedError, SignatureError):
        return True
    if found == manifest:
        return False
    if found.run_id == manifest.run_id and found.version >= manifest.version:
        raise StaleError(f"the version key names {found.version}, {manifest.version} is not newer")
    return True


@contextmanager
def _redis_errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise ChannelError(f"Redis does not answer as it should: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """For a fault: libraries add pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
