"""What a store stands on: a folder, or a bucket through `obstore`. Each operation once, without retries.

Rules: a file is whole or not there, and on the disk when `write` returns. `write` with a tag, or with `None`
for "not there", is refused with `TakenError` when the file is another. `PermanentError` is for what no
repetition mends; any other exception may pass. Must not know what the files mean.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

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
from obstore.store import GCSStore, MemoryStore, S3Store

from overwatch.file_lock import locked
from overwatch.platform import sync, sync_folder
from overwatch_rl.artifacts.digests import Bytes, xxh3_of
from overwatch_rl.artifacts.retrying import Patience

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_CHUNK: Final = 1 << 20
_AT_ONCE: Final = 64 << 20
"""A file of at most so many bytes is read once, for its tag and its content."""
_LOCK: Final = ".replace"
_OPTIONS: Final = ("endpoint", "region", "virtual_hosted_style_request", "allow_http")
"""What a URL's query may name; the rest is the provider's environment."""
_FOREVER: Final = (
    InvalidPathError, NotFoundError, FileNotFoundError, NotSupportedError, PermissionDeniedError,
    UnauthenticatedError, UnknownConfigurationKeyError,
)  # fmt: skip


class PermanentError(Exception):
    """What no repetition mends."""


class TakenError(Exception):
    """The file is another than the writer expected."""


class Tag(msgspec.Struct, frozen=True):
    """Which content of a file; another write gives another."""

    e_tag: str | None
    version: str | None = None


class Held(msgspec.Struct, frozen=True):
    """A file that was read."""

    data: bytes
    tag: Tag


class Entry(msgspec.Struct, frozen=True):
    """A file that was listed."""

    key: str
    size: int


Expected: TypeAlias = Tag | Literal["any"] | None
Opened: TypeAlias = tuple[Tag, Iterable[bytes]]


class Backend(Protocol):
    """One place for files."""

    base: str
    """Its URI."""

    def open(self, key: str) -> Opened | None:
        """Tag and content, in pieces; `None` where there is none."""
        ...

    def write(self, key: str, data: Bytes, expected: Expected) -> Tag:
        """Write whole; the new tag."""
        ...

    def names(self, prefix: str) -> list[Entry]:
        """Files below a prefix."""
        ...

    def remove(self, key: str) -> None:
        """Remove a file, if it is there."""
        ...


class Folder:
    """Files below a folder; a tag is the XXH3 of a file: it separates two contents, and guards nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.base = self._folder.as_uri()

    def open(self, key: str) -> Opened | None:
        """Tag and content."""
        path = self._path(key)
        try:
            file = path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            return None
        if os.fstat(file.fileno()).st_size <= _AT_ONCE:
            with file:
                data = file.read()
            return Tag(xxh3_of(data)), [data]
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return Tag(xxh3_of(content)), _pieces(file)

    def write(self, key: str, data: Bytes, expected: Expected) -> Tag:
        """Write beside, force to the disk, rename, force the name to the disk."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o666 & ~_umask())
                file.write(data)
                file.flush()
                sync(fd)
            tag = Tag(xxh3_of(data))
            if expected == "any":
                Path(partial).replace(path)
            else:
                with self._alone():
                    self._expect(path, expected)
                    Path(partial).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(partial).unlink()
            raise
        sync_folder(path.parent)
        return tag

    def names(self, prefix: str) -> list[Entry]:
        """Without those that are being written."""
        top = self._path(prefix) if prefix else self._folder
        return [
            Entry(str(Path(where, name).relative_to(self._folder)), Path(where, name).stat().st_size)
            for where, _, files in os.walk(top)
            for name in files
            if not name.startswith(".")
        ]

    def remove(self, key: str) -> None:
        """And the folder that it leaves empty."""
        path = self._path(key)
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
        if path.parent != self._folder:
            with suppress(OSError):
                path.parent.rmdir()

    def _expect(self, path: Path, expected: Tag | None) -> None:
        try:
            with path.open("rb") as file:
                held = Tag(xxh3_of(file.read()))
        except FileNotFoundError:
            held = None
        if held != expected:
            raise TakenError(f"{path} is another than expected")

    def _alone(self) -> AbstractContextManager[None]:
        """For a rename only."""
        return locked(self._folder / _LOCK, 0o644)

    def _path(self, key: str) -> Path:
        if not key or key.startswith("/") or "\0" in key or ".." in key.split("/"):
            raise PermanentError(f"{key!r} is no key; use relative names joined by /")
        return self._folder / key


class Bucket:
    """A part of a bucket."""

    def __init__(self, base: str, store: Any, *, has_generations: bool = False) -> None:
        self.base = base
        self._store = store
        self._has_generations = has_generations
        """Whether conditions are by version, as on GCS, and not by e-tag."""

    def open(self, key: str) -> Opened | None:
        """Tag and content, read as it comes."""
        with _named(key):
            try:
                found = obstore.get(self._store, key)
            except (NotFoundError, FileNotFoundError):
                return None
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


def backend_of(place: str | Path, patience: Patience) -> Backend:
    """What is at a folder or URL. Raises `ValueError` naming what is wrong with it."""
    text = str(place)
    if isinstance(place, Path) or "://" not in text:
        return Folder(Path(place))
    parts = urlsplit(text)
    make = _SCHEMES.get(parts.scheme)
    if make is None:
        raise ValueError(f"{text} is no store; use a folder, or a URL of {', '.join(_SCHEMES)}")
    return make(f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"), parts.query, patience)


def _file(base: str, _query: str, _patience: Patience) -> Backend:
    return Folder(Path(unquote(urlsplit(base).path)))


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


_SCHEMES: Final[dict[str, Callable[[str, str, Patience], Backend]]] = {
    "file": _file, "s3": _s3, "gs": _gs, "memory": _memory,
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
        raise ValueError(f"{base} cannot be opened: {str(error).splitlines()[0]}") from error


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


def _pieces(file: Any) -> Iterator[bytes]:
    with file:
        while piece := file.read(_CHUNK):
            yield piece


def _umask() -> int:
    hidden = os.umask(0o077)
    os.umask(hidden)
    return hidden
