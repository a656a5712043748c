"""An actor takes newer weights that are what they should be, and keeps what it has otherwise."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from overwatch_rl.artifacts.signing import make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.weights.channels import open_channel
from overwatch_rl.weights.manifest import RejectedError, Shape, artifact_of, decoded
from overwatch_rl.weights.subscriber import Subscriber
from tests.overwatch_rl.weights.made import Run, is_whole

OLD, NEW = Version(1, 3), Version(1, 4)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Stands until it is moved."""
    return Clock()


def test_newer_weights_are_taken_whole_and_once(run: Run) -> None:
    """A greater number, and any number of a greater lineage."""
    subscriber = run.subscriber()
    assert subscriber.poll() is None
    assert (subscriber.acting, subscriber.age_s()) == (None, None)
    for version in (Version(1, 0), Version(1, 7), Version(2, 1)):
        run.put(version)
        found = subscriber.poll()
        assert found is not None
        assert found.version == version
        assert is_whole(found)
        assert subscriber.poll() is None
        assert subscriber.acting == found.manifest
        age_s = subscriber.age_s()
        assert age_s is not None
        assert age_s >= 0
    assert (subscriber.fault, subscriber.rejected) == (None, 0)


def _flip(run: Run) -> None:
    path = run.folder / artifact_of(NEW)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _cut(run: Run) -> None:
    path = run.folder / artifact_of(NEW)
    path.write_bytes(path.read_bytes()[:-1])


def _remove(run: Run) -> None:
    (run.folder / artifact_of(NEW)).unlink()


def _change(run: Run) -> None:
    """One field that is signed."""
    known = run.key.newest()
    assert known is not None
    run.name(msgspec.json.encode(msgspec.structs.replace(decoded(known), version=Version(1, 5))))


def _strange(run: Run) -> None:
    """Signed, but by another key."""
    known = run.key.newest()
    assert known is not None
    run.name(msgspec.json.encode(make_key(run.folder / "other.key").sign(decoded(known))))


def _shaped(run: Run) -> None:
    found = run.put(Version(1, 5))
    more = found.tensors | {"policy.w": msgspec.structs.replace(found.tensors["policy.w"], shape=(3, 300))}
    run.name(msgspec.json.encode(run.signer.sign(msgspec.structs.replace(found, tensors=more))))


def _digested(run: Run) -> None:
    """A manifest with one wrong digest of a tensor, signed."""
    found = run.put(Version(1, 5))
    more = found.tensors | {"policy.w": msgspec.structs.replace(found.tensors["policy.w"], xxh3="0" * 32)}
    run.name(msgspec.json.encode(run.signer.sign(msgspec.structs.replace(found, tensors=more))))


FAULTS: dict[str, tuple[Callable[[Run], object], str]] = {
    "a flipped bit of the artifact": (_flip, "another SHA-256"),
    "a cut artifact": (_cut, "bytes, the manifest states"),
    "no artifact": (_remove, "is not there any more"),
    "a changed manifest": (_change, "signature is not one of key"),
    "another key": (_strange, "is signed with key"),
    "another run": (
        lambda run: run.put(Version(1, 5), run_id="run-2"),
        "it is of run 'run-2'; wanted is 'run-1'",
    ),
    "another format": (lambda run: run.put(Version(1, 5), format=2), "has format 2; this version reads 1"),
    "other tensors": (_shaped, r"tensor 'policy.w' is F32 \[3, 300\], wanted is F32 \[300, 3\]"),
    "a wrong digest of a tensor": (_digested, "tensor 'policy.w' has another XXH3"),
    "no manifest": (lambda run: run.name(b'{"version": '), "manifest cannot be read"),
    "text that is no UTF-8": (lambda run: run.name(b'{"run_id": "\xff"}'), "manifest cannot be read"),
    "an empty manifest": (lambda run: run.name(b""), "manifest cannot be read"),
    "a manifest without an end": (lambda run: run.name(b'{"x":' + b"[" * 99_999), "manifest cannot be read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_not_used_and_what_follows_is(run: Run, fault: str, clock: Clock) -> None:
    """The version that was taken before stays, the fault is named, the next sound version ends it."""
    subscriber = Subscriber(open_channel(run.place), run.accepted(), clock=clock)
    run.put(OLD)
    assert subscriber.poll() is not None
    run.put(NEW)
    spoil, words = FAULTS[fault]
    spoil(run)

    assert subscriber.poll() is None
    assert re.search(words, str(subscriber.fault)), subscriber.fault
    assert subscriber.acting is not None
    assert subscriber.acting.version == OLD
    clock.now += 10.0
    run.put(Version(1, 9))
    found = subscriber.poll()
    assert found is not None
    assert found.version == Version(1, 9)
    assert is_whole(found)
    assert subscriber.fault is None


def test_an_older_manifest_that_comes_again_is_not_used(run: Run, clock: Clock) -> None:
    """Though it is whole and signed; the newest again is no fault."""
    subscriber = Subscriber(open_channel(run.place), run.accepted(), clock=clock)
    old = run.put(OLD)
    assert subscriber.poll() is not None
    new = run.put(NEW)
    assert subscriber.poll() is not None
    run.name(msgspec.json.encode(old))

    assert subscriber.poll() is None
    assert subscriber.fault is not None
    assert "001-00000003 is not newer than 001-00000004, which is in use" in subscriber.fault
    run.name(msgspec.json.encode(new))
    clock.now += 10.0
    assert subscriber.poll() is None
    assert (subscriber.fault, subscriber.rejected) == (None, 1)


def test_faults_slow_polling_down_and_a_success_ends_that(run: Run, clock: Clock) -> None:
    """At most a second, and nothing is read meanwhile."""
    subscriber = Subscriber(open_channel(run.place), run.accepted(), clock=clock)
    run.put(OLD)
    run.name(b"{}")
    judged = []
    while clock.now < 60.0:
        subscriber.poll()
        judged.append(subscriber.rejected)
        clock.now += 0.01

    assert 60 <= subscriber.rejected <= 130
    assert judged[:5] == [1] * 5
    (run.folder / "weights" / "current.json").unlink()
    run.put(NEW)
    clock.now += 1.0
    assert subscriber.poll() is not None
    run.put(Version(1, 5))
    assert subscriber.poll() is not None


def test_the_first_weights_are_waited_for(run: Run) -> None:
    """Until they are there, or the time is over: then with the reason."""
    with pytest.raises(TimeoutError, match=r"no weights of run-1 in 0.05 s: nothing is published yet"):
        run.subscriber().first(0.05)
    run.name(b"{}")
    with pytest.raises(TimeoutError, match=r"no weights of run-1 in 0.05 s: a version was not used: its man"):
        run.subscriber().first(0.05)
    run.put(OLD)
    assert run.subscriber().first(5.0).version == OLD


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.lists(
        st.tuples(st.builds(Version, st.integers(1, 3), st.integers(0, 5)), st.booleans(), st.booleans()),
        max_size=12,
    )
)
def test_whatever_is_found_the_version_only_grows(
    run: Run, tmp_path_factory: pytest.TempPathFactory, order: list[tuple[Version, bool, bool]]
) -> None:
    """The model: the greatest sound one so far, each seen once."""
    fresh = Run(tmp_path_factory.mktemp("run"))
    clock = Clock()
    subscriber = Subscriber(open_channel(fresh.place), fresh.accepted(), clock=clock)
    greatest: Version | None = None
    for version, is_sound, is_cut in order:
        (fresh.folder / "weights" / "current.json").unlink(missing_ok=True)
        fresh.put(version, **({} if is_sound else {"run_id": "run-2"}))
        if is_cut:
            path = fresh.folder / artifact_of(version)
            path.write_bytes(path.read_bytes()[:-2])
        clock.now += 10.0
        found = subscriber.poll()
        if is_sound and not is_cut and (greatest is None or version > greatest):
            greatest = version
            assert found is not None
            assert is_whole(found)
        else:
            assert found is None
        assert (None if subscriber.acting is None else subscriber.acting.version) == greatest


def test_a_manifest_states_what_a_tensor_is() -> None:
    """As a person reads it in a fault."""
    assert str(Shape("F32", (3, 4))) == "F32 [3, 4]"


def test_a_manifest_of_something_else_is_named() -> None:
    """Not raised as what the decoder raises."""
    with pytest.raises(RejectedError, match="its manifest cannot be read"):
        decoded(b"\x80\x04pickle")


def test_the_folder_of_a_run_is_made_by_its_key(tmp_path: Path) -> None:
    """So that an actor may wait there before anything is published."""
    assert Run(tmp_path / "a" / "b").subscriber().poll() is None
