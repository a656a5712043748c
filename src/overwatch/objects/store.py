"""Files by key in a folder or an object store: whole or not there, repeated on failure, checked by digest.

`open_store` takes a folder, `s3://bucket/prefix`, `gs://bucket/prefix`, or `memory://` for tests. Region,
endpoint and addressing come from the URL's query or the provider's usual environment variables, secrets from
the latter alone.
Rules: every operation is repeated until the deadline of its `Patience`, then raises `StoreError`, which is an
`OSError` and names the URI. `replace` is the only write that looks at what was there: exactly one of several
writers succeeds. A store that cannot do that is refused. Must not know what the files mean.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import uuid4

from overwatch.extras import STORE
from overwatch.objects.backends import (
    Backend,
    Entry,
    Folder,
    Held,
    PermanentError,
    Tag,
    TakenError,
)
from overwatch.objects.digests import Bytes, sha256_of
from overwatch.objects.retrying import Patience, Tries

T = TypeVar("T")
MOST_BYTES: Final = 4 << 30
"""Of a file that is read into memory, where no less is asked for."""
_AT_ONCE: Final = 4
"""Files that are fetched at the same time."""
_DAMAGES: Final = 8
"""How often the same file comes damaged until it is lost: that happens on the way, but not so often."""


class StoreError(OSError):
    """An operation that was given up."""


class ConflictError(StoreError):
    """Somebody else has replaced the value since it was read."""


class LostError(StoreError):
    """A file that is missing, or damaged however often it is read: other files may be whole."""


class _DamagedError(Exception):
    """What came is not what was to come; another try may bring it."""


class Store:
    """One place for files, each with a key such as `001-00000010/policy.safetensors`."""

    def __init__(self, backend: Backend, patience: Patience) -> None:
        self.backend = backend
        self.patience = patience

    def uri(self, key: str = "") -> str:
        """Where a file lies, for a person and for records; without secrets or options."""
        return f"{self.backend.base}/{key}".rstrip("/")

    def put(self, key: str, data: Bytes, *, verify: bool = False) -> None:
        """Write a file whole; with `verify` read it back and write again until its SHA-256 is right."""

        def once() -> None:
            """Write once; raise where it reads back otherwise."""
            self.backend.write(key, data, "any")
            if verify and self._digest(key) != digest:
                raise _DamagedError("it has another SHA-256 when read back")

        digest = sha256_of(data) if verify else ""
        self._repeat("write", key, once)

    def get(self, key: str, sha256: str | None = None, *, most_bytes: int = MOST_BYTES) -> Held | None:
        """A file with its tag, `None` where there is none; read again while its SHA-256 is another one.

        One of more bytes is refused, as it would fill the memory.
        """

        def once() -> Held | None:
            opened = self.backend.open(key, most_bytes)
            if opened is None:
                return None
            tag, chunks = opened
            data = b"".join(chunks)
            if sha256 is not None and sha256_of(data) != sha256:
                raise _DamagedError("it has another SHA-256 than was asked for")
            return Held(data=data, tag=tag)

        return self._repeat("read", key, once)

    def fetch(self, wanted: Mapping[str, str | None], into: Path) -> None:
        """Read several at once into a folder, as files called by the last part of their keys.

        `wanted` is key to SHA-256 or `None`. Raises `LostError` where one is missing or damaged.
        """
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch") as threads:
            done = [threads.submit(self._fetch_one, key, digest, into) for key, digest in wanted.items()]
            for one in done:
                one.result()

    def list(self, prefix: str = "") -> list[Entry]:
        """Files below a prefix that ends a part of their keys, in the order of their keys."""
        found = self._repeat("list", prefix, lambda: self.backend.names(prefix))
        return sorted(found, key=lambda entry: entry.key)

    def delete(self, *keys: str) -> None:
        """Remove files, in this order; one that is not there is removed."""
        for key in keys:
            self._repeat("remove", key, lambda key=key: self.backend.remove(key))  # type: ignore[misc]

    def replace(self, key: str, data: bytes, expected: Tag | None) -> Tag:
        """Write, if the file is still the one with this tag, or with `None` is not there; its new tag.

        Raises `ConflictError` when it is another. `data` must differ from what anybody else writes there, as
        whether a write whose reply was lost took effect is found out by reading.
        """
        tag, is_first = expected, True

        def once() -> Tag:
            nonlocal tag, is_first
            if not is_first:  # The try before may have been taken: its reply was lost, or its body damaged.
                held = self._held(key)
                if held is not None and held.data == data:
                    return held.tag
                if (None if held is None else held.tag) != tag:
                    raise ConflictError(f"{self.uri(key)} was replaced by another writer")
            is_first = False
            tag = self.backend.write(key, data, tag)
            held = self._held(key)
            if held is not None and held.tag == tag and held.data != data:
                raise _DamagedError("it is another when read back")
            return tag

        return self._repeat("replace", key, once)

    def check(self) -> None:
        """Raise `ValueError` unless files can be written here, each by one writer at a time.

        For a process that will write, before it begins.
        """
        key = f".check-{uuid4().hex}"
        wrong = Tag(e_tag='"00000000000000000000000000000000"', version="1")

        def is_refused(expected: Tag | None) -> bool:
            with suppress(TakenError):
                self.backend.write(key, b"another", expected)
                return False
            return True

        try:
            self.replace(key, b"first", None)
            ignored = [
                one for one in (None, wrong) if not self._repeat("check", key, partial(is_refused, one))
            ]
            self.delete(key)
        except OSError as error:
            raise ValueError(f"{self.uri()} cannot be written: {error}; name another place") from error
        if ignored:
            raise ValueError(
                f"{self.uri()} ignores the condition of a write, so two learners could overwrite each other; "
                "use a folder, or an object store with conditional writes"
            )

    def _fetch_one(self, key: str, digest: str | None, into: Path) -> None:
        def once() -> None:
            opened = self.backend.open(key)
            if opened is None:
                raise LostError(f"there is no {self.uri(key)}")
            with (into / key.rpartition("/")[2]).open("wb") as file:
                found = hashlib.sha256()
                for chunk in opened[1]:
                    found.update(chunk)
                    file.write(chunk)
            if digest is not None and found.hexdigest() != digest:
                raise _DamagedError("it has another SHA-256 than was asked for")

        self._repeat("read", key, once)

    def _digest(self, key: str) -> str:
        opened, found = self.backend.open(key), hashlib.sha256()
        for chunk in () if opened is None else opened[1]:
            found.update(chunk)
        return found.hexdigest()

    def _held(self, key: str) -> Held | None:
        opened = self.backend.open(key)
        return None if opened is None else Held(data=b"".join(opened[1]), tag=opened[0])

    def _repeat(self, verb: str, key: str, once: Callable[[], T]) -> T:
        why, damages, number, began = "", 0, 0, time.monotonic()
        for number in Tries(self.patience):  # noqa: B007 reported when it is given up
            try:
                return once()
            except StoreError:
                raise
            except PermanentError as error:
                raise StoreError(f"{self.uri(key)}: {error}") from error
            except _DamagedError as error:
                damages, why = damages + 1, str(error)
                if damages == _DAMAGES:
                    raise LostError(f"{self.uri(key)} is damaged: {error}") from error
            except Exception as error:  # noqa: BLE001 whatever a request meets
                why = _words(error)
        tries = f"{number + 1} {'try' if number == 0 else 'tries'} in {time.monotonic() - began:.3g} s"
        raise StoreError(f"cannot {verb} {self.uri(key)} ({tries}): {why}")


SCHEMES: Final = ("file", "s3", "gs", "az", "memory")
"""Of URLs that are stores."""


def _backend_of(place: str | Path, patience: Patience) -> Backend:
    text = str(place)
    if isinstance(place, Path) or "://" not in text:
        return Folder(Path(place))
    parts = urlsplit(text)
    base = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{text} is no store; use a folder, or a URL of {', '.join(SCHEMES)}")
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    if STORE.missing:
        raise ValueError(STORE.need)
    from overwatch.objects.buckets import BUCKETS

    return BUCKETS[parts.scheme](base, parts.query, patience)


def open_store(place: str | Path, patience: Patience | None = None) -> Store:
    """The store at a folder or URL; no request is made.

    Raises `ValueError` naming what is wrong with it, or what is missing.
    """
    patience = patience or Patience()
    return Store(_backend_of(place, patience), patience)


def is_remote(place: str | Path) -> bool:
    """Whether a place is a URL and not a folder."""
    return "://" in str(place) and not str(place).startswith("file://")


def below(place: str | Path, name: str) -> str | Path:
    """A place in another, which keeps the options of its URL.

    >>> below("s3://bucket/run?region=x", "checkpoints")
    's3://bucket/run/checkpoints?region=x'
    """
    if isinstance(place, Path) or "://" not in place:
        return Path(place) / name
    parts = urlsplit(str(place))
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def _words(error: Exception) -> str:
    """The first line: object stores add pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
