"""Secrets that the chart makes: once, the same at each upgrade, never where Helm cannot see them."""

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.overwatch.collector.pki import OPENSSL
from tests.real.helm.charts import (
    CLUSTER,
    MADE,
    NAMESPACE,
    NO_ENGINE,
    RELEASE,
    ChartRefusedError,
    engine,
    objects,
    render,
)

pytestmark = pytest.mark.skipif(engine() is None, reason=NO_ENGINE)
TLS = {"tls": {"enabled": True}}
DAY_S = 86_400
TOKENS, CERTIFICATE, AUTHORITY = (f"tower-overwatch-{name}" for name in ("tokens", "tls", "tls-ca"))


def secrets(values: dict[str, Any], scratch: Path, held: dict[str, Any] | None = None) -> dict[str, Any]:
    """The secrets of a render by name."""
    found = objects(render(values, scratch, held=held))
    return {one["metadata"]["name"]: one for one in found if one["kind"] == "Secret"}


def after(made: dict[str, Any], age_days: int = 0) -> dict[str, Any]:
    """A cluster that holds secrets of an install some days ago, by their paths."""
    for one in made.values():
        notes = one["metadata"]["annotations"]
        if MADE in notes:
            notes[MADE] = str(int(notes[MADE]) - age_days * DAY_S)
        notes |= {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
        one["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return CLUSTER | {f"namespaces/{NAMESPACE}/secrets/{name}": one for name, one in made.items()}


STACK = {"stack": {"enabled": True, "runId": "maze-1", "config": {"world": "goodhart:small"}}}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "security.existingTokenSecret"),
        ({**STACK, "security": {"existingTokenSecret": "mine"}}, "stack.existingTokenSecret"),
        ({**TLS, "security": {"existingTokenSecret": "mine"}}, "tls.existingSecret"),
    ],
)
def test_secrets_are_refused_where_helm_sees_no_cluster(
    values: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """As in Argo CD, where each render would make others; with secrets of the user's own it renders."""
    with pytest.raises(ChartRefusedError, match=rf"{named}: Helm sees no cluster.*would make other"):
        render(values, tmp_path, held={})
    own = {"security": {"existingTokenSecret": "mine"}, "tls": {"enabled": True, "existingSecret": "mine"}}

    assert secrets(own, tmp_path, held={}) == {}
    assert render(own, tmp_path, held={}) == render(own, tmp_path, held={})


def test_who_sees_only_the_namespace_may_install(tmp_path: Path) -> None:
    """Nothing beyond it has to be readable."""
    root = f"namespaces/{NAMESPACE}/configmaps/kube-root-ca.crt"
    held = {root: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}}

    assert set(secrets({}, tmp_path, held)) == {TOKENS}


def test_an_upgrade_keeps_tokens_and_certificates(tmp_path: Path) -> None:
    """A token that was edited in the cluster too."""
    first = secrets(TLS, tmp_path)
    first[TOKENS]["data"]["ingest"] = base64.b64encode(b"edited").decode()
    held = after(first, 179)
    again = secrets(TLS, tmp_path, held)

    assert {name: one["data"] for name, one in again.items()} == {
        name: one["data"] for name, one in first.items()
    }


def test_an_upgrade_keeps_the_tokens_of_the_stack(tmp_path: Path) -> None:
    """Each of its own, long enough for the servers to take it."""
    first = secrets(STACK, tmp_path)
    data = first["tower-overwatch-stack-tokens"]["data"]
    tokens = {base64.b64decode(token) for token in data.values()}

    assert set(data) == {"replay", "operator", "learner", "reader", "rollouts"}
    assert len(tokens) == len(data)
    assert min(map(len, tokens)) == 40
    assert secrets(STACK, tmp_path, after(first))["tower-overwatch-stack-tokens"]["data"] == data


def test_what_is_accepted_may_be_more_than_what_is_sent(tmp_path: Path) -> None:
    """Keys with the suffix start as the token itself, and are kept as they were edited."""
    values = {"security": {"acceptedSuffix": "-accepted"}}
    first = secrets(values, tmp_path)
    data = first[TOKENS]["data"]
    assert {data[f"{role}-accepted"] == data[role] for role in ("ingest", "read", "control")} == {True}
    data["ingest-accepted"] = base64.b64encode(b"old\nnew").decode()

    assert secrets(values, tmp_path, after(first))[TOKENS]["data"] == data


def verified(made: dict[str, Any], trusted: dict[str, Any], scratch: Path) -> str:
    """What `openssl verify` finds of a certificate by an authority that clients trust."""
    for name, one, key in (("cert.pem", made, "tls.crt"), ("ca.pem", trusted, "ca.crt")):
        (scratch / name).write_bytes(base64.b64decode(one[CERTIFICATE]["data"][key]))
    command = [str(OPENSSL), "verify", "-CAfile", "ca.pem", "cert.pem"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.skipif(OPENSSL is None, reason="no openssl to look at certificates with")
def test_an_old_certificate_is_renewed_by_the_authority_that_clients_trust(tmp_path: Path) -> None:
    """After half of its life an upgrade makes another one, and what clients trust stays."""
    first = secrets(TLS, tmp_path)
    again = secrets(TLS, tmp_path, after(first, 181))

    assert again[CERTIFICATE]["data"]["tls.crt"] != first[CERTIFICATE]["data"]["tls.crt"]
    assert again[CERTIFICATE]["data"]["ca.crt"] == first[CERTIFICATE]["data"]["ca.crt"]
    assert again[AUTHORITY]["data"] == first[AUTHORITY]["data"]
    assert again[TOKENS]["data"] == first[TOKENS]["data"]
    assert "cert.pem: OK" in verified(again, first, tmp_path)


def test_a_certificate_of_an_earlier_chart_is_kept_until_it_is_old(tmp_path: Path) -> None:
    """It has no authority of which the key is known, and its age is the secret's."""
    first = secrets(TLS, tmp_path)
    del first[AUTHORITY]
    held = after(first)
    notes = first[CERTIFICATE]["metadata"]["annotations"]
    del notes[MADE], notes["overwatch.dev/names"]
    first[CERTIFICATE]["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"
    young = secrets(TLS, tmp_path, held)
    first[CERTIFICATE]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    old = secrets(TLS, tmp_path, held)

    assert young[CERTIFICATE]["data"] == first[CERTIFICATE]["data"]
    assert AUTHORITY not in young
    assert old[CERTIFICATE]["data"]["tls.crt"] != first[CERTIFICATE]["data"]["tls.crt"]
    assert AUTHORITY in old


def test_other_names_make_another_certificate_of_the_same_authority(tmp_path: Path) -> None:
    """A router that is added has its own."""
    first = secrets(TLS, tmp_path)
    again = secrets(TLS | {"router": {"enabled": True}}, tmp_path, after(first))

    assert again[CERTIFICATE]["data"]["tls.crt"] != first[CERTIFICATE]["data"]["tls.crt"]
    assert again[CERTIFICATE]["data"]["ca.crt"] == first[CERTIFICATE]["data"]["ca.crt"]


def test_no_pod_mounts_the_authority(tmp_path: Path) -> None:
    """Its key signs whatever clients trust."""
    assert f"secretName: {AUTHORITY}" not in render(TLS, tmp_path)
