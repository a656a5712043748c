"""Parts of buckets through `obstore`: S3, GCS, Azure, and memory for tests.

Rules: those of `backends`. Secrets come from the provider's environment alone. Must not know what the files
mean.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec
import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from overwatch.objects.backends import (
    Backend,
    Entry,
    Expected,
    Opened,
    PermanentError,
    Tag,
    TakenError,
    check_size,
)
from overwatch.objects.digests import Bytes
from overwatch.objects.retrying import Patience

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_CHUNK: Final = 1 << 20
_OPTIONS: Final = ("endpoint", "region", "virtual_hosted_style_request", "allow_http")
"""What a URL's query may name; the rest is the provider's environment."""
_FOREVER: Final = (
    InvalidPathError, NotFoundError, FileNotFoundError, NotSupportedError, PermissionDeniedError,
    UnauthenticatedError, UnknownConfigurationKeyError,
)  # fmt: skip


class Bucket:
    """A part of a bucket."""

    def __init__(self, base: str, store: Any, *, has_generations: bool = False) -> None:
        self.base = base
        self._store = store
        self._has_generations = has_generations
        """Whether conditions are by version, as on GCS, and not by e-tag."""

    def open(self, key: str, most_bytes: int | None = None) -> Opened | None:
        """Tag and content, read as it comes."""
        with _named(key):
            try:
                found = obstore.get(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return None
            check_size(found.meta["size"], most_bytes)
            return self._tag(found.meta), _streamed(found)

    def write(self, key: str, data: Bytes, expected: Expected) -> Tag:
        """In parts where it is large."""
        mode: Any = "create"
        if isinstance(expected, Tag):
            mode = {name: value for name, value in msgspec.structs.asdict(expected).items() if value}
        elif expected == "any":
            mode = "overwrite"
        with _named(key):
            return self._tag(obstore.put(self._store, key, data, mode=mode))

    def names(self, prefix: str) -> list[Entry]:
        """Of all pages."""
        with _named(prefix):
            pages = obstore.list(self._store, prefix or None)
            return [Entry(one["path"], one["size"]) for page in pages for one in page]

    def remove(self, key: str) -> None:
        """One request."""
        with _named(key), suppress(NotFoundError, FileNotFoundError):
            obstore.delete(self._store, key)

    def _tag(self, meta: Mapping[str, Any]) -> Tag:
        if self._has_generations:
            return Tag(meta["e_tag"], meta["version"])
        return Tag(meta["e_tag"])


_memories: Final[dict[str, MemoryStore]] = {}


def _memory(base: str, _query: str, _patience: Patience) -> Backend:
    return Bucket(base, _memories.setdefault(base, MemoryStore()))


def _s3(base: str, query: str, patience: Patience) -> Backend:
    options = _options(base, query)
    client = _client(options, patience)
    with _configured(base):
        store = S3Store.from_url(base, client_options=client, retry_config={"max_retries": 0}, **options)
        return Bucket(base, store)


def _gs(base: str, query: str, patience: Patience) -> Backend:
    options = _options(base, query)
    client = _client(options, patience)
    with _configured(base):
        store = GCSStore.from_url(base, client_options=client, retry_config={"max_retries": 0}, **options)
        return Bucket(base, store, has_generations=True)


def _az(base: str, query: str, patience: Patience) -> Backend:
    options = _options(base, query)
    client = _client(options, patience)
    with _configured(base):
        store = AzureStore.from_url(base, client_options=client, retry_config={"max_retries": 0}, **options)
        return Bucket(base, store)


BUCKETS: Final[dict[str, Callable[[str, str, Patience], Backend]]] = {
    "s3": _s3, "gs": _gs, "az": _az, "memory": _memory,
}  # fmt: skip
"""One row a kind of place."""


def _options(base: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = dict(parse_qsl(query))
    if not urlsplit(base).netloc:
        raise ValueError(f"{base} names no bucket; use {urlsplit(base).scheme}://bucket/prefix")
    for name in options:
        if name not in _OPTIONS:
            raise ValueError(
                f"{base} has the option {name}; use {', '.join(_OPTIONS)}, and the provider's environment "
                "variables for secrets and the rest"
            )
    return options


def _client(options: dict[str, Any], patience: Patience) -> "ClientConfig":
    is_plain = options.pop("allow_http", "false") == "true" or options.get("endpoint", "").startswith("http:")
    return {
        "allow_http": is_plain,
        "connect_timeout": timedelta(seconds=min(5.0, patience.request_s)),
        "read_timeout": timedelta(seconds=patience.request_s),
        "timeout": timedelta(seconds=max(patience.deadline_s, patience.request_s)),
    }


@contextmanager
def _configured(base: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        why = str(error).splitlines()[0]
        raise ValueError(
            f"{base} cannot be opened: {why}; look at the address and the provider's environment variables"
        ) from error


@contextmanager
def _named(key: str) -> Iterator[None]:
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as error:
        raise TakenError(f"{key} is another than expected") from error
    except _FOREVER as error:
        raise PermanentError(str(error).splitlines()[0]) from error


def _streamed(found: Any) -> Iterator[bytes]:
    for chunk in found.stream(min_chunk_size=_CHUNK):
        yield bytes(chunk)
