"""A run that was kept, or a backup, from its URL into a folder from which it is replayed.

Rules: the restore is that of `place`: verified, whole or not there. An address may end with a run's part of
the place, or with its id. Must not know who looks at it, nor when it is removed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from overwatch.backup.manifest import BackupError
from overwatch.backup.one_run import name_of
from overwatch.backup.place import names, read, restore
from overwatch.objects.retrying import Patience
from overwatch.objects.store import StoreError, below, open_store

_LOOK: Final = Patience(deadline_s=15.0, request_s=10.0)
"""For the first answer, for which a person waits."""
_MOST_NAMED: Final = 10
_MOST_LOOKED: Final = 64
_DEEPEST: Final = 4
"""Parts of an address that may be an id with slashes."""
_OF_THE_MACHINE: Final = "169.254.169.254"
"""Where a machine in a cloud gets credentials of its own; asked where the environment has none."""
_SECRETS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def fetch(url: str, into: Path) -> Path:
    """Restore what a URL names below a folder; where it lies.

    Raises `BackupError` naming the runs that are there where the URL names none, `ValueError`, `OSError`.
    """
    scheme = urlsplit(url).scheme
    try:
        place = _found(url)
    except StoreError as error:
        if _OF_THE_MACHINE in str(error):
            needed = _SECRETS.get(scheme, "those of the provider")
            raise BackupError(
                f"{_plain(url)}: there are no credentials; set {needed} in the environment"
            ) from error
        raise BackupError(f"{error}; look at the address, the network and the credentials") from error
    store = open_store(place)
    _, manifest = read(store)
    folder = into / (unquote(urlsplit(store.uri()).path).rpartition("/")[2] or "backup")
    restore(store, manifest, folder)
    return folder


def _found(url: str) -> str | Path:
    """The place of the backup that a URL names. Raises `BackupError` where there is none."""
    for place in _meant(url):
        if names(open_store(place, _LOOK)):
            return place
    for at in (url, _above(url, 1)[0]):
        runs = [] if at is None else _runs(at)
        if runs:
            more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
            raise BackupError(
                f"{_plain(url)} is no run that was kept; {_plain(at or '')} holds "
                f"{', '.join(runs[:_MOST_NAMED])}{more}: add one to the address"
            )
    raise BackupError(
        f"{_plain(url)} holds no run that was kept and no backup; name one that `object_store` or "
        "`overwatch backup make` wrote"
    )


def _meant(url: str) -> Iterator[str | Path]:
    """Places that a URL may name: itself, and those of a run whose id its end may be."""
    yield url
    for parts in range(1, _DEEPEST + 1):
        above, run_id = _above(url, parts)
        if above is None:
            return
        if name_of(run_id) != run_id:
            yield below(above, name_of(run_id))


def _above(url: str, parts: int) -> tuple[str | None, str]:
    """A URL without its last parts, `None` where it has fewer, and these."""
    found = urlsplit(url)
    held = found.path.strip("/").split("/")
    if not held[0] or len(held) < parts:
        return None, ""
    path = "/" + "/".join(held[:-parts])
    return urlunsplit(found._replace(path=path)), unquote("/".join(held[-parts:]))


def _runs(place: str) -> list[str]:
    """Runs that have a part of a place, of the first parts that there are."""
    parts = open_store(place, _LOOK).parts()[:_MOST_LOOKED]
    return [part for part in parts if names(open_store(below(place, part), _LOOK))]


def _plain(url: str) -> str:
    """Without its options."""
    return url.partition("?")[0]
