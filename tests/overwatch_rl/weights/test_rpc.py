"""The service `weights.v1`: what it takes, what it answers, what it streams."""

from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.message import Message
from safetensors.torch import save

from overwatch_rl.artifacts.signing import make_key
from overwatch_rl.artifacts.versions import Version
from overwatch_rl.protos.weights.v1 import weights_pb2 as pb
from overwatch_rl.weights.channels import Place
from overwatch_rl.weights.manifest import artifact_of, encoded
from overwatch_rl.weights.publisher import Publisher
from overwatch_rl.weights.rpc import SERVICE, Remote, blob_of
from tests.overwatch_rl.weights.made import RUN, Run, manifest, tensors, waited
from tests.overwatch_rl.weights.serving import RpcServer
from tests.ports import free_port

TOKEN = "a-token-of-24-characters"  # noqa: S105 of a test


@pytest.fixture
def server(run: Run) -> Iterator[RpcServer]:
    """With a token."""
    with RpcServer(run.place, run.accepted(), free_port(), TOKEN) as server:
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


def test_the_newest_is_told_in_plain_fields_too(run: Run, line: grpc.Channel) -> None:
    """For programs that show or fetch; with the artifact where it is wanted."""
    assert code_of(line, "GetCurrent", pb.GetCurrentRequest())[0] == "NOT_FOUND"
    signed = run.put(Version(2, 7))
    blob = pb.WeightsBlob.FromString(call(line, "GetCurrent", pb.GetCurrentRequest(with_payload=True)))
    held = run.store.get(artifact_of(Version(2, 7)))

    assert held is not None
    assert (blob.run_id, blob.lineage, blob.step) == (RUN, 2, 7)
    assert (blob.checksum, blob.published_at_ns) == (signed.sha256, signed.made_at_ns)
    assert blob.artifact_uri == artifact_of(Version(2, 7))
    assert (blob.manifest, blob.inline_payload) == (encoded(signed), held.data)
    bare = pb.WeightsBlob.FromString(call(line, "GetCurrent", pb.GetCurrentRequest()))
    assert (bare.manifest, bare.inline_payload) == (encoded(signed), b"")


def test_an_artifact_that_is_not_there_is_named(run: Run, line: grpc.Channel) -> None:
    """One that is gone, and what is no version."""
    code, words = code_of(line, "GetArtifact", pb.GetArtifactRequest(version="001-00000007"))
    assert (code, "is not there any more" in words) == ("NOT_FOUND", True)
    code, words = code_of(line, "GetArtifact", pb.GetArtifactRequest(version="../signing.key"))
    assert (code, words) == ("INVALID_ARGUMENT", "'../signing.key' is no version; e.g. 001-00000010")


def test_without_the_token_nothing_is_answered(run: Run, line: grpc.Channel) -> None:
    """Of no call."""
    run.put(Version(1, 0))
    for method, request in (
        ("GetCurrent", pb.GetCurrentRequest()),
        ("GetArtifact", pb.GetArtifactRequest(version="001-00000000")),
        ("PublishWeights", pb.WeightsBlob()),
    ):
        assert code_of(line, method, request, "another")[0] == "UNAUTHENTICATED"
    stream = line.unary_stream(f"/{SERVICE}/StreamWeights", pb.StreamWeightsRequest.SerializeToString)
    with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
        next(stream(pb.StreamWeightsRequest(), timeout=20))


def test_what_is_published_is_verified_as_by_an_actor(run: Run, line: grpc.Channel) -> None:
    """The artifact may come along; what is refused leaves nothing behind."""
    held = tensors(Version(1, 3))
    artifact = save(held)
    signed = run.signer.sign(manifest(Version(1, 3), artifact, held))
    change = msgspec.structs.replace
    refused = {
        "signature is not one of key": blob_of(change(signed, config_hash="other"), artifact),
        "is signed with key": blob_of(make_key(run.folder / "other").sign(signed), artifact),
        "it is of run 'run-2'": blob_of(run.signer.sign(change(signed, run_id="run-2")), artifact),
        "another SHA-256": blob_of(signed, artifact[:-1] + b"\xff"),
        "manifest cannot be read": pb.WeightsBlob(manifest=b"\x80\x04"),
    }
    for words, blob in refused.items():
        code, found = code_of(line, "PublishWeights", blob)
        assert (code, words in found) == ("INVALID_ARGUMENT", True), found
    assert run.key.newest() is None
    assert run.store.list("weights") == []

    answer = pb.PublishWeightsResponse.FromString(call(line, "PublishWeights", blob_of(signed, artifact)))
    assert answer.version == "001-00000003"
    found = run.subscriber().poll()
    assert found is not None
    assert found.version == Version(1, 3)
    older = run.signer.sign(change(signed, version=Version(1, 2)))
    code, found_words = code_of(line, "PublishWeights", blob_of(older))
    assert (code, "001-00000002 is not newer" in found_words) == ("FAILED_PRECONDITION", True)


def test_a_stream_sends_the_newest_and_then_what_is_newer(run: Run, line: grpc.Channel) -> None:
    """Nothing twice, nothing older; from a version on, where the caller names it."""
    run.put(Version(1, 0))
    start = line.unary_stream(
        f"/{SERVICE}/StreamWeights",
        pb.StreamWeightsRequest.SerializeToString,
        pb.WeightsBlob.FromString,
    )
    metadata = [("authorization", f"Bearer {TOKEN}")]
    stream = start(pb.StreamWeightsRequest(with_payload=True), timeout=60, metadata=metadata)
    later = start(pb.StreamWeightsRequest(after="001-00000000"), timeout=60, metadata=metadata)
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


def test_a_learner_publishes_through_it(run: Run) -> None:
    """The artifact goes to the store, the version by the service."""
    with RpcServer(run.place, run.accepted(), free_port()) as server:
        publisher = Publisher(run.publishing(redis=server.url))
        publisher.publish(Version(1, 0), tensors(Version(1, 0)))
        assert waited(publisher).status == "ok"
        publisher.close()
        found = run.subscriber(Place(url=server.url, run_id=RUN)).poll()
    assert found is not None
    assert found.version == Version(1, 0)
