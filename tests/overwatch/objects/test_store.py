"""Files are whole or not there, in a folder and in a bucket alike."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from overwatch.objects.backends import Expected, Folder, PermanentError, Tag
from overwatch.objects.digests import Bytes, sha256_of
from overwatch.objects.retrying import Patience
from overwatch.objects.store import ConflictError, LostError, Store, StoreError, below, is_remote, open_store
from tests.overwatch_rl.servers import FaultProxy, s3_url

SOON = Patience(deadline_s=1.0, request_s=10.0, first_s=0.01, most_s=0.05)
"""Of a store that does not answer."""
ALIVE = Patience(request_s=10.0, first_s=0.01, most_s=0.05)
LONG = Patience(deadline_s=60.0, request_s=0.3, first_s=0.01, most_s=0.05)
PLACES = ("folder", "memory", "s3")


@pytest.fixture(params=PLACES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty one of each kind."""
    match request.param:
        case "folder":
            return open_store(tmp_path / "store", ALIVE)
        case "memory":
            return open_store(f"memory://{uuid4().hex}", ALIVE)
        case _:
            return open_store(s3_url(request.getfixturevalue("moto_address"), uuid4().hex), ALIVE)


def sha256(data: bytes) -> str:
    """Its digest."""
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 6 << 20])
def test_what_was_written_is_read(store: Store, size: int) -> None:
    """Also empty, also in parts; written once more it is another."""
    data = bytes(range(256)) * (size // 256) or b"x" * size
    store.put("a/b", data, verify=True)
    held = store.get("a/b", sha256(data))

    assert held is not None
    assert held.data == data
    assert [(one.key, one.size) for one in store.list()] == [("a/b", size)]
    store.put("a/b", b"other")
    again = store.get("a/b")
    assert again is not None
    assert again.data == b"other"
    assert again.tag != held.tag


def test_a_place_below_another_is_of_the_same_kind(tmp_path: Path) -> None:
    """Also of a folder that is named as a URL."""
    url = tmp_path.as_uri()
    open_store(below(url, "one")).put("a", b"x")
    assert (tmp_path / "one/a").read_bytes() == b"x"
    assert below(tmp_path, "one") == below(str(tmp_path), "one") == tmp_path / "one"


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_tag_of_a_folder_is_the_digest_of_what_is_read_with_it(tmp_path: Path, size: int) -> None:
    """Whether the file is read at once or in pieces; a writer gets the same tag."""
    folder, data = Folder(tmp_path), b"x" * size
    written = folder.write("a", data, "any")
    opened = folder.open("a")
    folder.write("a", b"another", "any")

    assert opened is not None
    assert opened[0] == written == Tag(sha256_of(data))
    assert b"".join(opened[1]) == data


def test_keys_are_listed_below_a_prefix(store: Store) -> None:
    """In order, of a whole part of the name; removed ones are gone, and removed twice without an error."""
    for key in ("b/2", "b/10", "bb/1", "c"):
        store.put(key, b"1")

    assert [one.key for one in store.list()] == ["b/10", "b/2", "bb/1", "c"]
    assert [one.key for one in store.list("b")] == ["b/10", "b/2"]
    assert store.list("none") == []
    store.delete("b/2", "b/10", "b/2")
    assert [one.key for one in store.list()] == ["bb/1", "c"]


def test_what_is_not_there_is_none(store: Store) -> None:
    """And an error where it was to be fetched."""
    assert store.get("none") is None
    with pytest.raises(LostError, match=rf"there is no {store.uri('none')}"):
        store.fetch({"none": None}, Path("/nowhere"))


def test_several_are_fetched_into_a_folder(store: Store, tmp_path: Path) -> None:
    """By the last part of their keys, checked."""
    files = {f"v/{number}": bytes([number]) * 3000 for number in range(9)}
    for key, data in files.items():
        store.put(key, data)
    into = tmp_path / "into"
    into.mkdir()
    store.fetch({key: sha256(data) for key, data in files.items()}, into)

    assert {f"v/{one.name}": one.read_bytes() for one in into.iterdir()} == files
    with pytest.raises(LostError, match=r"v/3 is damaged: it has another SHA-256"):
        store.fetch({"v/3": sha256(b"other")}, into)


def test_a_digest_that_never_fits_is_an_error(store: Store) -> None:
    """With the key's URI."""
    store.put("a", b"1")
    with pytest.raises(LostError, match=rf"{store.uri('a')} is damaged: it has another SHA-256"):
        store.get("a", sha256(b"2"))


def test_a_value_is_replaced_by_one_that_knows_it(store: Store) -> None:
    """First by one that expects none, then with the tag; anybody else meets a conflict."""
    first = store.replace("latest", b"1", None)
    second = store.replace("latest", b"2", first)
    for expected in (None, first):
        with pytest.raises(ConflictError, match="was replaced by another writer"):
            store.replace("latest", b"3", expected)

    held = store.get("latest")
    assert held is not None
    assert (held.data, held.tag) == (b"2", second)


def test_of_several_writers_one_replaces(store: Store) -> None:
    """However they meet."""
    tag = store.replace("latest", b"first", None)
    won, lost = [], []
    together = threading.Barrier(8)

    def write(name: bytes) -> None:
        together.wait()
        try:
            store.replace("latest", name, tag)
            won.append(name)
        except ConflictError:
            lost.append(name)

    threads = [threading.Thread(target=write, args=(b"%d" % number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    held = store.get("latest")
    assert held is not None
    assert (won, len(lost)) == ([held.data], 7)


def test_a_place_is_checked_before_it_is_written(store: Store) -> None:
    """And nothing is left of the check."""
    store.check()
    assert store.list() == []


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    """Two writers could overwrite each other there."""

    class Careless(Folder):
        def write(self, key: str, data: Bytes, expected: Expected) -> Tag:
            assert expected != "any"
            return super().write(key, data, "any")

    with pytest.raises(
        ValueError, match=r"(?s)ignores the condition of a write, .* use a folder, or an object"
    ):
        Store(Careless(tmp_path), SOON).check()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("http://x/y", "http://x/y is no store; use a folder, or a URL of file, s3, gs, az, memory"),
        ("s3:///x", "s3:///x names no bucket; use s3://bucket/prefix"),
        ("s3://b/x?secret_access_key=y", "the option secret_access_key; use endpoint, .* for secrets"),
        ("gs://b/x?colour=red", "the option colour; use endpoint"),
        ("s3://b/x?virtual_hosted_style_request=maybe", "s3://b/x cannot be opened: "),
    ],
)
def test_a_place_that_is_none_is_named(place: str, words: str) -> None:
    """Before any request, with what to use."""
    with pytest.raises(ValueError, match=words) as caught:
        open_store(place)
    assert "secret_access_key=y" not in str(caught.value)


def test_a_url_is_no_folder() -> None:
    """As commands take either."""
    assert [is_remote(one) for one in ("s3://b/x", "gs://b", Path("/x"), "runs/a", "file:///x")] == [
        True, True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["", "/etc/x", "../x", "a/../../x", "a\0b"])
def test_a_key_stays_below_its_folder(tmp_path: Path, key: str) -> None:
    """Whatever a manifest names."""
    with pytest.raises(PermanentError, match="is no key; use relative names"):
        Folder(tmp_path / "store").open(key)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """By the system's words."""
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file/below cannot be written: .*; name another place"):
        open_store(tmp_path / "file" / "below", SOON).check()


def test_a_store_that_is_gone_is_given_up(moto_address: str) -> None:
    """At the deadline, for each operation, naming the URI without its options, and how often it was tried."""
    with FaultProxy(moto_address, rate=1.0, kinds=("error", "drop")) as proxy:
        gone = open_store(s3_url(proxy.address, uuid4().hex), SOON)
        calls: list[tuple[str, Callable[[], object]]] = [
            ("write", lambda: gone.put("a", b"1")),
            ("read", lambda: gone.get("a")),
            ("list", gone.list),
            ("remove", lambda: gone.delete("a")),
            ("replace", lambda: gone.replace("a", b"1", None)),
        ]
        for verb, call in calls:
            with pytest.raises(
                StoreError, match=rf"cannot {verb} s3://bucket/\w+(/a)? \(\d+ tries in \S+ s\): "
            ):
                call()
        assert sum(proxy.met.values()) > 2 * len(calls)
        with pytest.raises(ValueError, match=r"cannot be written: .*; name another place"):
            gone.check()


def test_one_try_is_given_up_with_the_time_that_it_took(moto_address: str) -> None:
    """Not with that in which another would have begun: a request may take long."""
    once = Patience(deadline_s=0.001, request_s=20.0)
    with FaultProxy(moto_address, rate=1.0, kinds=("error",)) as proxy:
        gone = open_store(s3_url(proxy.address, uuid4().hex), once)
        with pytest.raises(StoreError, match=r"cannot read s3://bucket/\w+/a \(1 try in \S+ s\): "):
            gone.get("a")


@pytest.fixture(scope="module")
def faulty(moto_address: str) -> Iterator[FaultProxy]:
    """A third of all requests fail."""
    with FaultProxy(moto_address, seed=3) as proxy:
        yield proxy


def test_all_that_a_store_promises_holds_under_faults(faulty: FaultProxy) -> None:
    """Errors, lost replies, time-outs, flipped bytes: values are what was written, conflicts are true."""
    store = open_store(s3_url(faulty.address, uuid4().hex), LONG)
    other = open_store(s3_url(faulty.address, store.uri().rpartition("/")[2]), LONG)
    store.check()
    tag = None
    for number in range(25):
        data = b"%d" % number * 100
        store.put("file", data, verify=True)
        held = store.get("file", sha256(data))
        assert held is not None
        writer = (store, other)[number % 2]
        tag = writer.replace("latest", data, tag)
        with pytest.raises(ConflictError):
            (other, store)[number % 2].replace("latest", b"stale", None)

    assert set(faulty.met) > {"none", "error", "error after", "drop", "hang", "corrupt reply"}
