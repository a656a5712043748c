"""The service `weights.v1`: what it takes, what it answers, what it streams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import psutil
import pytest
from google.protobuf.message import Message
from safetensors.torch import save

from overwatch_rl.artifacts.signing import Signer, make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.protos.weights.v1 import weights_pb2 as pb
from overwatch_rl.weights.channels import Place
from overwatch_rl.weights.encodings import Payload
from overwatch_rl.weights.manifest import WeightsManifest, artifact_of, encoded
from overwatch_rl.weights.publisher import Publisher
from overwatch_rl.weights.rpc import SERVICE, Remote, blob_of
from tests.overwatch_rl.weights.made import RUN, Run, is_whole, manifest, tensors, waited
from tests.overwatch_rl.weights.serving import RpcServer
from tests.ports import free_port

TOKEN = "a-token-of-24-characters"  # noqa: S105 of a test


@pytest.fixture
def server(run: Run) -> Iterator[RpcServer]:
    """With a token."""
    with RpcServer(run.folder.parent, free_port(), TOKEN) as server:
        yield server


@pytest.fixture
def line(server: RpcServer) -> Iterator[grpc.Channel]:
    """As any program in any language calls it."""
    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as line:
        yield line


def call(line: grpc.Channel, method: str, request: Message, token: str = TOKEN) -> bytes:
    """The answer's bytes."""
    send = line.unary_unary(f"/{SERVICE}/{method}", type(request).SerializeToString)
    answer: bytes = send(request, timeout=20, metadata=[("authorization", f"Bearer {token}")])
    return answer


def code_of(line: grpc.Channel, method: str, request: Message, token: str = TOKEN) -> tuple[str, str]:
    """Status and words of a call that is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        call(line, method, request, token)
    error: Any = caught.value
    return error.code().name, error.details()


def test_the_newest_is_sent_in_plain_fields_too(run: Run, line: grpc.Channel) -> None:
    """For programs that show or fetch; with the artifact where it is wanted."""
    assert code_of(line, "GetCurrent", pb.GetCurrentRequest(run_id=RUN))[0] == "NOT_FOUND"
    signed = run.put(Version(2, 7))
    request = pb.GetCurrentRequest(run_id=RUN, with_payload=True)
    blob = pb.WeightsBlob.FromString(call(line, "GetCurrent", request))
    held = run.store.get(artifact_of(Version(2, 7)))

    assert held is not None
    assert (blob.run_id, blob.lineage, blob.step) == (RUN, 2, 7)
    assert (blob.checksum, blob.published_at_ns) == (signed.sha256, signed.made_at_ns)
    assert blob.artifact_uri == artifact_of(Version(2, 7))
    assert (blob.manifest, blob.inline_payload) == (encoded(signed), held.data)
    bare = pb.WeightsBlob.FromString(call(line, "GetCurrent", pb.GetCurrentRequest(run_id=RUN)))
    assert (bare.manifest, bare.inline_payload) == (encoded(signed), b"")


def test_an_artifact_that_is_not_there_is_named(run: Run, line: grpc.Channel) -> None:
    """One that is gone, and what is no version."""
    code, words = code_of(line, "GetArtifact", pb.GetArtifactRequest(run_id=RUN, version="001-00000007"))
    assert (code, "is not there any more" in words) == ("NOT_FOUND", True)
    code, words = code_of(line, "GetArtifact", pb.GetArtifactRequest(run_id=RUN, version="../signing.key"))
    assert (code, words) == ("INVALID_ARGUMENT", "'../signing.key' is no version; e.g. 001-00000010")


def test_without_the_token_nothing_is_answered(run: Run, line: grpc.Channel) -> None:
    """Of no call."""
    run.put(Version(1, 0))
    for method, request in (
        ("GetCurrent", pb.GetCurrentRequest(run_id=RUN)),
        ("GetArtifact", pb.GetArtifactRequest(run_id=RUN, version="001-00000000")),
        ("PublishWeights", pb.WeightsBlob()),
    ):
        assert code_of(line, method, request, "another")[0] == "UNAUTHENTICATED"
    stream = line.unary_stream(f"/{SERVICE}/StreamWeights", pb.StreamWeightsRequest.SerializeToString)
    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        next(stream(pb.StreamWeightsRequest(), timeout=20))


def test_what_is_published_is_verified_as_by_an_actor(run: Run, line: grpc.Channel) -> None:
    """What is refused leaves nothing behind; a repeat changes nothing."""
    held = tensors(Version(1, 3))
    artifact = save(held)
    signed = run.signer.sign(manifest(Version(1, 3), artifact, held))
    change = msgspec.structs.replace
    stranger = make_key(run.folder / "other")
    refused = {
        "signature is not one of key": blob(run, change(signed, config_hash="other"), artifact),
        "is signed with key": blob(run, stranger.sign(signed), artifact),
        "it is of run 'run-2'": blob(run, run.signer.sign(change(signed, run_id="run-2")), artifact),
        "another SHA-256": blob(run, signed, artifact[:-1] + b"\xff"),
        "its artifact has 0 bytes": blob(run, signed, b""),
        "manifest cannot be read": pb.WeightsBlob(
            run_id=RUN, manifest=b"\x80\x04", public_key=run.signer.public
        ),
        "is no public key": blob_of(signed, Payload(artifact), "ed25519:short"),
        "is no name": pb.WeightsBlob(run_id="../up"),
    }
    for words, wrong in refused.items():
        if "run-2" in words:
            wrong.run_id = RUN
        code, found = code_of(line, "PublishWeights", wrong)
        assert (code, words in found) == ("INVALID_ARGUMENT", True), found
    assert run.key.newest() is None
    assert run.store.list("weights") == []

    for _ in range(2):
        answer = pb.PublishWeightsResponse.FromString(
            call(line, "PublishWeights", blob(run, signed, artifact))
        )
        assert answer.version == "001-00000003"
    found = run.subscriber().poll()
    assert found is not None
    assert found.version == Version(1, 3)
    older = run.signer.sign(change(signed, version=Version(1, 2)))
    code, found_words = code_of(line, "PublishWeights", blob(run, older, artifact))
    assert (code, "001-00000002 is not newer" in found_words) == ("FAILED_PRECONDITION", True)
    assert [one.key for one in run.store.list("weights") if one.key.endswith(".safetensors")] == [
        "weights/001-00000003.safetensors"
    ]


def test_a_run_is_of_the_key_of_its_first_version(run: Run, line: grpc.Channel) -> None:
    """Another key is refused from then on, also by a server that starts again; other runs have theirs."""
    publish(run, line, Version(1, 0), run.signer)
    stranger = make_key(run.folder / "other")
    with pytest.raises(grpc.RpcError, match=rf"is signed with key '{stranger.key_id}'"):
        publish(run, line, Version(1, 1), stranger)
    with RpcServer(run.folder.parent, free_port()) as again, grpc.insecure_channel(again.url[7:]) as other:
        with pytest.raises(grpc.RpcError, match=rf"is signed with key '{stranger.key_id}'"):
            publish(run, other, Version(1, 1), stranger)
        publish(run, other, Version(1, 1), run.signer)
        publish(run, other, Version(1, 7), stranger, run_id="run-2")
        for run_id, number in ((RUN, 1), ("run-2", 7)):
            answer = call(other, "GetCurrent", pb.GetCurrentRequest(run_id=run_id))
            assert pb.WeightsBlob.FromString(answer).step == number


def test_the_newest_artifacts_of_a_run_stay(run: Run, line: grpc.Channel) -> None:
    """As of a learner that publishes into a store."""
    for number in range(6):
        publish(run, line, Version(1, number), run.signer)
    names = [one.key for one in run.store.list("weights") if one.key.endswith(".safetensors")]
    assert names == [artifact_of(Version(1, number)) for number in (2, 3, 4, 5)]


def test_more_runs_than_are_remembered_are_served(run: Run, line: grpc.Channel) -> None:
    """They lie on disk."""
    publish(run, line, Version(1, 5), run.signer)
    for number in range(70):
        assert code_of(line, "GetCurrent", pb.GetCurrentRequest(run_id=f"other-{number}"))[0] == "NOT_FOUND"
    found = pb.WeightsBlob.FromString(call(line, "GetCurrent", pb.GetCurrentRequest(run_id=RUN)))
    assert found.step == 5
    publish(run, line, Version(1, 6), run.signer)


def blob(run: Run, stated: WeightsManifest, artifact: bytes) -> pb.WeightsBlob:
    """As the run's learner publishes it."""
    return blob_of(stated, Payload(artifact), run.signer.public)


def publish(run: Run, line: grpc.Channel, version: Version, signer: Signer, *, run_id: str = RUN) -> None:
    """As a learner with that key does it."""
    held = tensors(version)
    artifact = save(held)
    stated = signer.sign(manifest(version, artifact, held, run_id=run_id))
    call(line, "PublishWeights", blob_of(stated, Payload(artifact), signer.public))


def test_a_stream_sends_the_newest_and_then_what_is_newer(run: Run, line: grpc.Channel) -> None:
    """Nothing twice, nothing older; from a version on, where the caller names it."""
    run.put(Version(1, 0))
    start = line.unary_stream(
        f"/{SERVICE}/StreamWeights",
        pb.StreamWeightsRequest.SerializeToString,
        pb.WeightsBlob.FromString,
    )
    metadata = [("authorization", f"Bearer {TOKEN}")]
    stream = start(pb.StreamWeightsRequest(run_id=RUN, with_payload=True), timeout=60, metadata=metadata)
    later = start(pb.StreamWeightsRequest(run_id=RUN, after="001-00000000"), timeout=60, metadata=metadata)
    first = next(stream)
    run.put(Version(1, 1))
    second = next(stream)

    assert [(one.step, len(one.inline_payload) > 0) for one in (first, second)] == [(0, True), (1, True)]
    assert next(later).step == 1
    run.put(Version(2, 1))
    assert next(stream).lineage == 2
    stream.cancel()
    later.cancel()


def test_a_wait_ends_when_something_is_published(run: Run, server: RpcServer) -> None:
    """At once where it is there already."""
    remote = Remote(Place(url=server.url, run_id=RUN, token=TOKEN))
    assert remote.newest() is None
    run.put(Version(1, 0))
    remote.wait(3600.0)
    assert remote.newest() is not None
    remote.wait(0.05)
    run.put(Version(1, 1))
    remote.wait(3600.0)
    remote.close()


def test_a_learner_publishes_through_it(run: Run, server: RpcServer, tmp_path: Path) -> None:
    """With nothing on disk that an actor could reach otherwise; the token is in no argument."""
    learner = Run(tmp_path / "learner", place=Place(url=server.url, run_id=RUN, token=TOKEN))
    publisher = Publisher(learner.publishing(key_url=server.url, token=TOKEN))
    publisher.publish(Version(1, 0), tensors(Version(1, 0)))
    assert waited(publisher).status == "ok"
    assert publisher._sender is not None
    assert TOKEN not in " ".join(psutil.Process(publisher._sender.pid).cmdline())
    publisher.close()
    subscriber = learner.subscriber()
    found = subscriber.poll()
    subscriber.close()

    assert found is not None
    assert is_whole(found)
    assert not (learner.folder / "weights").exists()
    again = Publisher(learner.publishing(key_url=server.url, token=TOKEN))
    assert again.known == Version(1, 0)
    again.close()
    with pytest.raises(OSError, match=f"{server.url} does not answer as it should: UNAUTHENTICATED: send"):
        Publisher(learner.publishing(key_url=server.url))
