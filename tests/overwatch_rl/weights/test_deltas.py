"""An actor that takes deltas: what it acts with is what was signed, however they are damaged."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from safetensors.torch import save

from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import open_channel
from overwatch_rl.weights.encodings import DELTA, Base, encoded_delta
from overwatch_rl.weights.manifest import artifact_of
from overwatch_rl.weights.publisher import Publisher
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.weights.made import Run, is_whole, tensors, waited


@pytest.fixture
def deltas(run: Run) -> Iterator[tuple[Publisher, Subscriber]]:
    """A learner that publishes deltas, and an actor that took its first version."""
    publisher = Publisher(run.publishing(encoding=DELTA))
    subscriber = Subscriber(open_channel(run.place), run.accepted(), encoding=DELTA)
    with closing(subscriber):
        publish(publisher, Version(1, 0))
        assert subscriber.poll() is not None
        yield publisher, subscriber
    with suppress(OSError):  # A test may have closed it.
        publisher.close()


def publish(publisher: Publisher, version: Version) -> None:
    """And wait until it is there."""
    publisher.publish(version, tensors(version))
    assert waited(publisher).status == "ok"


def test_versions_that_were_left_out_are_made_from_the_deltas_between(
    deltas: tuple[Publisher, Subscriber],
) -> None:
    """As long as they are kept; then the whole artifact is read, and deltas lead on from that."""
    publisher, subscriber = deltas
    for numbers, reads in (
        ([1, 2, 3], {"whole": 1, "delta": 1}),
        ([4, 5, 6, 7, 8], {"whole": 2, "delta": 1}),
        ([9], {"whole": 2, "delta": 2}),
    ):
        for number in numbers:
            publish(publisher, Version(1, number))
        found = subscriber.poll()
        assert found is not None
        assert found.version == Version(1, numbers[-1])
        assert is_whole(found)
        assert subscriber.reads == reads


def test_a_learner_that_resumed_begins_with_a_whole_artifact(
    run: Run, deltas: tuple[Publisher, Subscriber]
) -> None:
    """It has no version before; the actor needs none."""
    publisher, subscriber = deltas
    publisher.close()
    resumed = Publisher(run.publishing(encoding=DELTA))
    publish(resumed, Version(2, 1))
    assert not (run.folder / artifact_of(Version(2, 1), DELTA)).exists()
    assert subscriber.poll() is not None
    publish(resumed, Version(2, 2))
    assert subscriber.poll() is not None
    resumed.close()

    assert subscriber.reads == {"whole": 2, "delta": 1}


def _another(run: Run) -> None:
    """A sound delta, of the version before."""
    path = run.folder / artifact_of(Version(1, 2), DELTA)
    path.write_bytes((run.folder / artifact_of(Version(1, 1), DELTA)).read_bytes())


def _cut_delta(run: Run) -> None:
    path = run.folder / artifact_of(Version(1, 2), DELTA)
    path.write_bytes(path.read_bytes()[:-3])


def _flip_delta(run: Run) -> None:
    """In what is packed, with a head that is whole."""
    path = run.folder / artifact_of(Version(1, 2), DELTA)
    content = bytearray(path.read_bytes())
    content[-2] ^= 0xFF
    path.write_bytes(content)


def _swapped(run: Run) -> None:
    """A delta to other weights, of the right size, from the right version: only the digest shows it."""
    base = Base(Version(1, 1), save(tensors(Version(1, 1))))
    other = encoded_delta(base, save(tensors(Version(1, 77))), 4)
    (run.folder / artifact_of(Version(1, 2), DELTA)).write_bytes(other)


@pytest.mark.parametrize("spoil", [_cut_delta, _flip_delta, _swapped])
def test_a_damaged_delta_is_counted_and_the_whole_is_read(
    run: Run, deltas: tuple[Publisher, Subscriber], spoil: Callable[[Run], None]
) -> None:
    """The version is taken all the same; nothing that was made of it is acted with."""
    publisher, subscriber = deltas
    publish(publisher, Version(1, 1))
    assert subscriber.poll() is not None
    publish(publisher, Version(1, 2))
    spoil(run)
    found = subscriber.poll()

    assert found is not None
    assert found.version == Version(1, 2)
    assert is_whole(found)
    assert subscriber.reads == {"whole": 2, "delta": 1, "damaged": 1}
    assert (subscriber.fault, subscriber.rejected) == (None, 0)


def test_an_older_delta_is_no_way_to_a_version(run: Run, deltas: tuple[Publisher, Subscriber]) -> None:
    """It leads past what the actor has: the whole is read."""
    publisher, subscriber = deltas
    publish(publisher, Version(1, 1))
    assert subscriber.poll() is not None
    publish(publisher, Version(1, 2))
    _another(run)
    found = subscriber.poll()

    assert found is not None
    assert is_whole(found)
    assert subscriber.reads == {"whole": 2, "delta": 1}


def test_of_a_damaged_delta_and_a_damaged_artifact_nothing_is_used(
    run: Run, deltas: tuple[Publisher, Subscriber]
) -> None:
    """The version that was taken before stays."""
    publisher, subscriber = deltas
    for number in (1, 2):
        publish(publisher, Version(1, number))
    _swapped(run)
    path = run.folder / artifact_of(Version(1, 2))
    path.write_bytes(path.read_bytes()[:-1])

    assert subscriber.poll() is None
    assert "bytes, the manifest states" in str(subscriber.fault)
    assert subscriber.acting is not None
    assert subscriber.acting.version == Version(1, 0)
