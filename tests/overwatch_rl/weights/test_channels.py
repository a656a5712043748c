"""Every channel: what was published is read, the newest stays the newest, and one that is gone states it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from overwatch_rl.artifacts.signing import Verifier, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import (
    CHANNELS,
    LONGEST_INTERVAL_S,
    POLL_INTERVAL_S,
    REQUEST_INTERVAL_S,
    Place,
    StaleError,
    look_after,
    open_channel,
    open_key,
)
from overwatch_rl.weights.checking import check_weights, rounded, shapes_of
from overwatch_rl.weights.manifest import Accepted, artifact_of
from overwatch_rl.weights.publisher import Publisher
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.servers import FaultProxy, RedisServer, s3_url
from tests.overwatch_rl.weights.made import RUN, Run, is_whole, waited
from tests.overwatch_rl.weights.serving import Server
from tests.ports import free_port

TOKEN = "a-token-of-24-characters"  # noqa: S105 of a test


@dataclass(frozen=True, kw_only=True)
class Way:
    """A run, and the place where an actor finds its weights."""

    run: Run
    place: Place
    stop: Callable[[], None] | None = None
    """Take away what answers; `None` where nothing runs that could be gone."""
    start: Callable[[], None] = lambda: None
    """Bring it back."""


Make = Callable[[Path, pytest.FixtureRequest, ExitStack], Way]


def _folder(folder: Path, _: pytest.FixtureRequest, __: ExitStack) -> Way:
    run = Run(folder)
    return Way(run=run, place=run.place)


def _s3(folder: Path, request: pytest.FixtureRequest, stack: ExitStack) -> Way:
    proxy = stack.enter_context(
        FaultProxy(request.getfixturevalue("moto_address"), rate=0.0, kinds=["error"])
    )
    run = Run(folder, artifacts=s3_url(proxy.address, folder.parent.name))

    def fail(rate: float) -> None:
        proxy.rate = rate

    return Way(run=run, place=run.place, stop=lambda: fail(1.0), start=lambda: fail(0.0))


def _redis(folder: Path, request: pytest.FixtureRequest, _: ExitStack) -> Way:
    server: RedisServer = request.getfixturevalue("redis_server")
    run = Run(folder, key_url=server.url)
    return Way(run=run, place=run.place, stop=server.kill, start=server.start)


def _http(folder: Path, _: pytest.FixtureRequest, stack: ExitStack) -> Way:
    run = Run(folder)
    server = stack.enter_context(Server(open_channel(run.place), free_port(), TOKEN))
    place = Place(url=server.url, run_id=RUN, token=TOKEN)
    return Way(run=run, place=place, stop=server.stop, start=server.start)


WAYS: dict[str, Make] = {
    "store": _folder,
    "store, S3": _s3,
    "redis": _redis,
    "http": _http,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    """One of each."""
    with ExitStack() as stack:
        yield WAYS[request.param](tmp_path / "run", request, stack)


def test_every_row_is_tried_here() -> None:
    """A new one needs a way here."""
    assert len(WAYS) == len(set(CHANNELS.values())) + 1


def test_what_was_published_is_read(way: Way) -> None:
    """The manifest as it was written, the artifact byte for byte; nothing before the first."""
    channel = open_channel(way.place)
    assert channel.newest() is None
    for version in (Version(1, 0), Version(1, 1)):
        signed = way.run.put(version)
        assert channel.newest() == channel.newest() == msgspec.json.encode(signed)
        held = way.run.store.get(artifact_of(version))
        assert held is not None
        assert channel.artifact(version) == held.data
    channel.close()


def test_bfloat16_reaches_an_actor_by_each_way(way: Way) -> None:
    """What an actor acts with is what was signed: the learner's weights, rounded."""
    place = way.run.place
    publisher = Publisher(
        way.run.publishing(
            artifacts=place.artifacts, key_url=place.url,
            dtype="bfloat16",
        )
    )  # fmt: skip
    accepted = Accepted(
        run_id=RUN, verifier=way.run.verifier, shapes=shapes_of(rounded(drifted(0), "bfloat16"))
    )
    subscriber = Subscriber(open_channel(way.place), accepted)
    for number in range(4):
        publisher.publish(Version(1, number), drifted(number))
        done = waited(publisher)
        assert done.status == "ok", done
        found = subscriber.first(20.0)
        assert found.version == Version(1, number)
        assert check_weights(drifted(number), found) == ["w"]  # It is not what the learner has,
        near = {name: one.float() for name, one in rounded(drifted(number), "bfloat16").items()}
        assert check_weights(near, found) == []  # it is what it published.
    publisher.close()
    subscriber.close()


def drifted(number: int) -> dict[str, Tensor]:
    """Weights after some small updates."""
    draw = torch.Generator().manual_seed(1)
    held = torch.randn(128, 128, generator=draw)
    for _ in range(number):
        held += 1e-3 * torch.randn(128, 128, generator=draw).sign()
    return {"w": held, "b": torch.full((16,), float(number))}


def test_an_artifact_that_is_not_kept_is_missing(way: Way) -> None:
    """Which an actor meets that was slower than the learner."""
    way.run.put(Version(1, 0))
    way.run.store.delete(artifact_of(Version(1, 0)))

    with pytest.raises(FileNotFoundError):
        open_channel(way.place).artifact(Version(1, 0))


def test_an_actor_keeps_its_version_while_a_channel_is_gone(way: Way) -> None:
    """It states it, and takes the next one when the channel is back."""
    subscriber = way.run.subscriber(way.place)
    way.run.put(Version(1, 0))
    assert subscriber.first(20.0).version == Version(1, 0)
    if way.stop is not None:
        way.stop()
        assert subscriber.poll() is None
        assert subscriber.fault is not None
        assert subscriber.acting is not None
        assert subscriber.acting.version == Version(1, 0)
        way.start()
    way.run.put(Version(1, 1))

    found = subscriber.first(20.0)
    assert found.version == Version(1, 1)
    assert is_whole(found)
    assert subscriber.fault is None
    subscriber.close()


def test_a_wait_ends_by_itself(way: Way) -> None:
    """Also where what would end it sooner is gone."""
    channel = open_channel(way.place)
    channel.wait(0.01)
    if way.stop is not None:
        way.stop()
    channel.wait(0.01)
    channel.close()


@pytest.mark.parametrize("name", [name for name in WAYS if name != "http"])
def test_a_version_key_moves_forward_only(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Also when the writer of a killed learner moves it; what no key of the run signed is replaced."""
    with ExitStack() as stack:
        run = WAYS[name](tmp_path / "run", request, stack).run
        old, newer = run.put(Version(1, 5)), run.put(Version(2, 1))
        text = msgspec.json.encode(newer)
        run.key.move(newer, run.verifier)
        for stale in (old, run.signer.sign(msgspec.structs.replace(newer, made_at_ns=0))):
            with pytest.raises(StaleError, match=r"key names 002-00000001, 00\d-0000000\d is not newer"):
                open_key(run.place).move(stale, run.verifier)
        assert run.key.newest() == text
        run.put(Version(3, 0), run_id="run-2")
        run.put(Version(1, 0))
        stranger = make_key(run.folder / "other.key")
        other = stranger.sign(msgspec.structs.replace(newer, version=Version(9, 9)))
        run.key.move(other, Verifier(stranger.public))
        run.put(Version(1, 1))


@pytest.mark.parametrize("name", [name for name in WAYS if name != "http"])
def test_of_writers_at_once_the_greatest_version_stays(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each moves the key as often as it can; nobody ever reads it going back."""
    with ExitStack() as stack:
        run = WAYS[name](tmp_path / "run", request, stack).run
        pattern = run.put(Version(1, 0))
        failed: list[Exception] = []

        def write(first: int) -> None:
            key = open_key(run.place)
            for number in range(first, 61, 3):
                manifest = run.signer.sign(msgspec.structs.replace(pattern, version=Version(1, number)))
                for _ in range(200):
                    try:
                        key.move(manifest, run.verifier)
                    except StaleError:
                        break
                    except OSError:
                        continue  # Another was quicker.
                    break
                else:
                    failed.append(AssertionError(f"{number} was never written"))

        writers = [threading.Thread(target=write, args=(first,)) for first in (1, 2, 3)]
        for writer in writers:
            writer.start()
        seen = []
        while any(writer.is_alive() for writer in writers):
            try:
                text = run.key.newest()
            except OSError:
                continue  # The server fails some requests of so many at once; whoever polls looks again.
            assert text is not None
            seen.append(msgspec.json.decode(text, type=type(pattern)).version)
        text = run.key.newest()

    assert failed == []
    assert seen
    assert text is not None
    assert msgspec.json.decode(text, type=type(pattern)).version == Version(1, 60)
    assert seen == sorted(seen)


def test_a_message_of_redis_ends_a_wait(tmp_path: Path, redis_server: RedisServer) -> None:
    """Polling finds the same without it; a waiting actor finds it at once."""
    run = Run(tmp_path / "run", key_url=redis_server.url)
    channel = open_channel(run.place)
    channel.wait(0.01)  # From now on it is notified.
    run.put(Version(1, 0))
    began = time.monotonic()
    channel.wait(60.0)

    assert time.monotonic() - began < 60.0
    assert channel.newest() is not None
    channel.close()


def test_a_token_that_is_wrong_is_a_fault(run: Run) -> None:
    """Named as what the learner answered."""
    with Server(open_channel(run.place), free_port(), TOKEN) as server:
        subscriber = run.subscriber(Place(url=server.url, run_id=RUN, token=TOKEN.upper()))
        run.put(Version(1, 0))

        assert subscriber.poll() is None
    assert subscriber.fault is not None
    assert "does not answer as it should" in subscriber.fault


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            {"url": "ftp://host/x"},
            "'ftp://host/x' is no place of weights; use a folder, or an address of file://",
        ),
        ({"url": "redis://host"}, "Redis holds the version only; name the store of the artifacts too"),
    ],
)
def test_a_place_that_is_none_is_refused(place: dict[str, str], words: str) -> None:
    """With what may be named."""
    with pytest.raises(ValueError, match=words):
        open_channel(Place(run_id=RUN, **place))


def test_a_learner_is_not_written_to() -> None:
    """Its own writer does that."""
    with pytest.raises(ValueError, match="by a learner and not written; use a store or Redis"):
        open_key(Place(url="http://127.0.0.1:1", run_id=RUN))


def test_a_way_that_spoils_what_it_carries_spoils_no_actor(run: Run) -> None:
    """A proxy between learner and actor fails every other request: versions only grow and are whole."""
    kinds = ["error", "drop", "corrupt reply", "slow"]
    with (
        Server(open_channel(run.place), free_port()) as server,
        FaultProxy(server.url, rate=0.5, seed=5, kinds=kinds) as proxy,
    ):
        channel = open_channel(Place(url=proxy.address, run_id=RUN))
        subscriber = Subscriber(channel, run.accepted(), longest_pause_s=0.01)
        seen = []
        for number in range(60):
            run.put(Version(1, number))
            found = subscriber.first(20.0) if number % 6 == 5 else subscriber.poll()
            if found is not None:
                assert is_whole(found)
                seen.append(found.version)
        proxy.rate = 0.0
        last = run.put(Version(1, 60)).version
        assert subscriber.first(20.0).version == last
    assert seen == sorted(set(seen))
    assert len(seen) >= 10
    assert subscriber.rejected > 0
    assert proxy.met["corrupt reply"] > 0


def test_a_store_that_does_not_change_is_looked_at_less_often() -> None:
    """A change is seen an eighth of the time too late at most, and a look is never far away."""
    looks, waited = 0, 0.0
    while waited < 2.0:
        looks, waited = looks + 1, waited + look_after(waited)
        assert POLL_INTERVAL_S <= look_after(waited) <= LONGEST_INTERVAL_S

    assert look_after(0.0) == POLL_INTERVAL_S
    assert look_after(0.0, REQUEST_INTERVAL_S) == REQUEST_INTERVAL_S
    assert waited <= 2.0 * 1.125
    assert looks < 40
    assert look_after(3600.0) == LONGEST_INTERVAL_S
