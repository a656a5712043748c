"""The learner stack of the chart: commands that programs take, the links they name and no more, valid kinds.

Judged on the kept manifests: it holds where Helm is not.
"""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
import pytest
import yaml
from cryptography import x509
from kubeflow_trainer_api import models

from tests.real.helm.charts import (
    CHART,
    CI,
    CLUSTER,
    NAMESPACE,
    NO_ENGINE,
    ChartRefusedError,
    engine,
    kept,
    objects,
    of,
    render,
    templates,
)

needs_helm = pytest.mark.skipif(engine() is None, reason=NO_ENGINE)
FILES = [path for path in CI if path.name.startswith("stack")]
each_file = pytest.mark.parametrize("values", FILES, ids=lambda path: path.stem)
SINGLE, GPU, TRAINJOB = (
    CHART / f"ci/{name}-values.yaml" for name in ("stack", "stack-gpu", "stack-trainjob")
)
COMPONENT = "app.kubernetes.io/component"
TELEMETRY = 4318
NAMED = {"secret": "secretName", "persistentVolumeClaim": "claimName", "configMap": "name"}
"""Of volumes: where a kind has the name of what it shows."""
STACK = {"enabled": True, "runId": "maze-1", "config": {"world": "goodhart:small"}}
ALONE = {part: {"enabled": False} for part in ("orchestrator", "replay", "learner", "actors")}


class Link(NamedTuple):
    """A connection between two parts; port 0 stands for all."""

    source: str
    target: str
    port: int


def parts(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each container of the stack, by its part; a TrainJob has one."""
    for _, template in templates(found):
        labels = template["metadata"].get("labels", {})
        for container in template["spec"]["containers"]:
            if "overwatch-rl" in container["image"]:
                yield labels[COMPONENT], container
    for job in of(found, "TrainJob"):
        yield "trainer", job["spec"]["trainer"]


def files(found: list[dict[str, Any]], root: Path) -> None:
    """The folders that containers mount, with what can be there before a start."""
    (config,) = [one["data"] for one in of(found, "ConfigMap") if "run.yaml" in one["data"]]
    names = {"stack": ("replay", "operator", "learner", "reader", "rollouts"), "run": ("run.yaml",),
             "tls": ("tls.crt", "tls.key", "ca.crt")}  # fmt: skip
    for folder, held in names.items():
        (root / folder).mkdir()
        for name in held:
            (root / folder / name).write_text(config.get(name, f"token-of-{name}-for-tests\n"))


def words(container: dict[str, Any], root: Path) -> list[str]:
    """Its arguments, as its program gets them in its first pod."""
    changed = [word.replace("/etc/overwatch", str(root)) for word in container["args"]]
    return [re.sub(r"\$\((POD_INDEX|NODE_RANK)\)", "0", word) for word in changed]


def parsed(given: list[str]) -> click.Context:
    """What `overwatch-rl` understands; raises `click.UsageError`."""
    from overwatch_rl.cli import COMMANDS

    (command,) = [one for one in COMMANDS if one.name == given[0]]
    return command.make_context(given[0], given[1:])


@each_file
def test_every_command_is_one(values: Path, tmp_path: Path) -> None:
    """By the programs' own parsers: a flag that was renamed, or a file that is not mounted, fails."""
    from torch.distributed.run import get_args_parser

    found = kept(values)
    files(found, tmp_path)
    held = list(parts(found))

    assert held
    for part, container in held:
        given = words(container, tmp_path)
        if container.get("command") == ["torchrun"]:
            group = get_args_parser().parse_args(given)
            assert (group.module, group.training_script) == (True, "overwatch_rl.cli"), part
            given = group.training_script_args
            given = given[1:] if given[0] == "--" else given
        parsed(given)


def test_a_flag_that_no_program_has_is_found(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    found = kept(SINGLE)
    files(found, tmp_path)
    (actor,) = [words(one, tmp_path) for part, one in parts(found) if part == "actors"]

    with pytest.raises(click.NoSuchOption, match="--replays"):
        parsed([word.replace("--replay", "--replays") for word in actor])
    (tmp_path / "stack/replay").unlink()
    with pytest.raises(click.BadParameter, match="does not exist"):
        parsed(actor)


@pytest.mark.parametrize("values", [SINGLE, GPU], ids=lambda path: path.stem)
def test_servers_and_the_run_are_configured_as_their_programs_ask(values: Path, tmp_path: Path) -> None:
    """Tokens where others can reach a server, tables that are ones, a world that there is."""
    from overwatch_rl.learner.config import learner_config, of_file
    from overwatch_rl.orchestrator.config import OrchestratorConfig
    from overwatch_rl.replay.settings import table_config

    found = kept(values)
    files(found, tmp_path)
    held = {part: parsed(words(container, tmp_path)).params for part, container in parts(found)}

    config = learner_config(of_file(held["learner"]["config"]))
    assert config.world == yaml.safe_load(values.read_text())["stack"]["config"]["world"]
    (table,) = [table_config(text) for text in held["replay"]["table"]]
    assert table.name == held["learner"]["table"]
    if values == SINGLE:
        held["orchestrator"].pop("config", None)
        assert OrchestratorConfig(**held["orchestrator"]).store == "sqlite:////var/lib/overwatch/runs.db"
    assert held["learner"]["replay"] == held["actors"]["replay"]
    assert held["learner"]["listen_token"] == held["actors"]["weights_token"]
    assert held["orchestrator"]["operator_token"] not in (
        held[one]["orchestrator_token"] for one in ("learner", "actors")
    )


def hosts(found: list[dict[str, Any]]) -> dict[str, str]:
    """Every name by which something is called in the release, to its component."""
    known = {}
    for service in of(found, "Service"):
        component = service["spec"]["selector"][COMPONENT]
        known[service["metadata"]["name"]] = component
    for one in of(found, "StatefulSet") + of(found, "JobSet"):
        name, component = one["metadata"]["name"], one["metadata"]["labels"][COMPONENT]
        pods = range(one["spec"].get("replicas", 1))
        prefix = f"{name}-node-0" if one["kind"] == "JobSet" else name
        known |= {f"{prefix}-{number}.{name}": component for number in pods}
    return known


def named(found: list[dict[str, Any]]) -> set[Link]:
    """The links that command lines and environments name; raises `KeyError` for an unknown host."""
    known, links = hosts(found), set()

    def component(host: str) -> str:
        return known[host.removesuffix(".cluster.local").removesuffix(f".{NAMESPACE}.svc")]

    for part, container in parts(found):
        args = container["args"]
        env = {one["name"]: one.get("value", "") for one in container["env"]}
        urls = [word for word in args if re.match(r"(grpcs?|https?)://", word)]
        for url in map(urlsplit, [*urls, env["OTEL_EXPORTER_OTLP_ENDPOINT"]]):
            assert url.hostname
            assert url.port
            links.add(Link(part, component(url.hostname), url.port))
        if "--master-addr" in args:
            # Ranks meet at one port and then use others.
            links.add(Link(part, component(args[args.index("--master-addr") + 1]), 0))
    return links


def policies(found: list[dict[str, Any]], direction: str, peers: str) -> set[Link]:
    """The links that policies of the stack allow in one direction, to and from parts of the release."""
    links = set()
    for policy in of(found, "NetworkPolicy"):
        own = policy["spec"]["podSelector"]["matchLabels"].get(COMPONENT)
        for rule in policy["spec"].get(direction) or [] if own else []:
            for peer in rule[peers]:
                other = peer.get("podSelector", {}).get("matchLabels", {}).get(COMPONENT)
                ends = (own, other) if direction == "egress" else (other, own)
                ports = [port["port"] for port in rule.get("ports", [{"port": 0}])]
                links |= {Link(*ends, port) for port in ports if other}
    return links


@each_file
def test_policies_allow_the_links_that_commands_name_and_no_others(values: Path) -> None:
    """In both directions; telemetry is let in by the collectors' own policy."""
    found = kept(values)
    links = named(found)
    if of(found, "TrainJob"):
        links.add(Link("trainer", "trainer", 0))  # torchrun has it from the runtime

    assert {link.port for link in links} >= {TELEMETRY}
    assert policies(found, "egress", "to") == links
    assert policies(found, "ingress", "from") == {link for link in links if link.port != TELEMETRY}


@each_file
def test_every_part_has_a_policy_of_both_directions(values: Path) -> None:
    """So what no rule names is refused; the rollouts API is called by pods with a label alone."""
    found = kept(values)
    held = {
        one["spec"]["podSelector"]["matchLabels"].get(COMPONENT): one["spec"]
        for one in of(found, "NetworkPolicy")
    }

    for part in {part for part, _ in parts(found)}:
        assert held[part]["policyTypes"] == ["Ingress", "Egress"], part
    if "rollouts" in held:
        (rule,) = held["rollouts"]["ingress"]
        assert rule["from"] == [{"podSelector": {"matchLabels": {"overwatch.dev/rollouts": "true"}}}]


@each_file
def test_every_service_selects_a_pod(values: Path) -> None:
    """By its labels."""
    found = kept(values)
    labels = [template["metadata"]["labels"].items() for _, template in templates(found)]

    for service in of(found, "Service"):
        assert any(service["spec"]["selector"].items() <= held for held in labels), service["metadata"][
            "name"
        ]


@each_file
def test_every_secret_and_claim_is_made_or_named_by_the_values(values: Path) -> None:
    """A pod waits for ever for one that is not there."""
    found, text = kept(values), values.read_text()
    made = {
        one["metadata"]["name"]
        for kind in ("Secret", "PersistentVolumeClaim", "ConfigMap")
        for one in of(found, kind)
    }
    wanted = {
        volume[kind][key]
        for _, template in templates(found) for volume in template["spec"].get("volumes", ())
        for kind, key in NAMED.items()
        if kind in volume
    }  # fmt: skip

    assert {name for name in wanted - made if name not in text} == set()


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob"])
def test_jobs_of_other_operators_are_valid_by_their_schemas(kind: str) -> None:
    """Those of Kubeflow's package: what a model does not take, or does not know, is an error."""
    model = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}[kind]
    held = [one for values in FILES for one in of(kept(values), kind)]

    assert held
    for one in held:
        assert model.from_dict(one).to_dict() == one
        wrong = {**one, "spec": {**one["spec"], "suspended": True}}
        assert model.from_dict(wrong).to_dict() != wrong


@each_file
def test_every_part_that_runs_on_is_begun_again_where_it_hangs(values: Path) -> None:
    """Within a start that has its time; what looks needs neither Python nor a disk that can be written."""
    for part, container in parts(kept(values)):
        if "livenessProbe" not in container:
            assert values == TRAINJOB, part
            continue
        start, live = container["startupProbe"], container["livenessProbe"]
        assert start["periodSeconds"] * start["failureThreshold"] >= 300, part
        assert live["periodSeconds"] * live["failureThreshold"] >= 60, part
        if not container.get("ports"):
            program, file, *_ = live["exec"]["command"]
            assert start["exec"] == live["exec"]
            # Ended in order, with status 0, a Job would count as complete.
            assert start["terminationGracePeriodSeconds"] == live["terminationGracePeriodSeconds"] == 5
            assert (program, file) == ("find", "/tmp/alive/0")
            assert container["args"][container["args"].index("--alive") + 1] == "/tmp/alive"
            assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])


@needs_helm
@pytest.mark.parametrize(("start", "tries"), [(60, 12), (1, 1)])
def test_how_long_a_start_and_a_silence_may_take_are_values(start: int, tries: int, tmp_path: Path) -> None:
    """A trainer is asked for the file of each of its processes."""
    trainer = {"trainer": {"enabled": True, "processesPerNode": 2}}
    stack = STACK | ALONE | trainer | {"livenessSeconds": 77, "startSeconds": start}
    (container,) = [one for _, one in parts(objects(render({"stack": stack}, tmp_path)))]

    assert container["startupProbe"]["failureThreshold"] == tries
    assert container["livenessProbe"]["exec"]["command"] == [
        "find", "/tmp/alive/0", "/tmp/alive/1", "!", "-newermt", "-77seconds", "-exec", "false", "{}", "+",
    ]  # fmt: skip


def test_a_trainjob_takes_no_probe() -> None:
    """So its runtime has to have it: what is laid over a runtime's container knows none."""
    fields = models.TrainerV1alpha1ContainerPatch.model_fields

    assert {"name", "env"} <= fields.keys()
    assert not [name for name in fields if "probe" in name.lower()]


@each_file
def test_what_a_queue_admits_waits_in_it(values: Path) -> None:
    """Learner, trainer and actors; servers need none."""
    queue = yaml.safe_load(values.read_text())["stack"].get("queue")
    for one in kept(values):
        labels = one["metadata"].get("labels", {})
        is_queued = labels.get(COMPONENT) in ("learner", "actors", "trainer") and one["kind"] in (
            "JobSet", "TrainJob", "StatefulSet",
        )  # fmt: skip
        assert labels.get("kueue.x-k8s.io/queue-name") == (queue if is_queued else None), one["metadata"][
            "name"
        ]


def test_a_trainjobs_pods_are_restricted() -> None:
    """By what is laid over the runtime's template."""
    (job,) = of(kept(TRAINJOB), "TrainJob")
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert {"cpu", "memory"} <= job["spec"]["trainer"]["resourcesPerNode"]["limits"].keys()


@needs_helm
def test_the_certificate_has_every_name_that_the_stack_calls(tmp_path: Path) -> None:
    """Also of each replay server, and in another domain than the usual one."""
    values = yaml.safe_load(GPU.read_text()) | {"network": {"clusterDomain": "cluster.example"}}
    found = objects(render(values, tmp_path))
    (data,) = [one["data"] for one in of(found, "Secret") if one["metadata"]["name"] == "tower-overwatch-tls"]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
    held = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    names = set(held.get_values_for_type(x509.DNSName))
    called = {
        urlsplit(word).hostname
        for _, container in parts(found) for word in container["args"] if re.match("(grpcs|https)://", word)
    }  # fmt: skip

    assert len(called) == 4
    assert all(host in names or f"*.{host.partition('.')[2]}" in names for host in called if host)


@needs_helm
@pytest.mark.parametrize(
    ("values", "stated"),
    [
        ({"runId": ""}, "stack.runId"),
        ({"learner": {"replicas": 2}}, "a run has one learner"),
        ({"replay": {"enabled": False}}, "stack.learner.enabled without stack.replay.enabled"),
        ({"orchestrator": {"enabled": False}}, "stack.actors.enabled without stack.orchestrator.enabled"),
        ({"config": {}}, "stack.config.world"),
        ({"trainer": {"enabled": True}}, "stack.trainer.enabled and stack.learner.enabled"),
        ({"extraEgress": {"learners": []}}, "learners is no part"),
        (ALONE, "none of its parts"),
    ],
)  # fmt: skip
def test_a_stack_that_cannot_work_is_refused_with_the_reason(
    values: dict[str, Any], stated: str, tmp_path: Path
) -> None:
    """Before anything is made; `config` is laid over the default, so an empty one names no world."""
    stack = STACK | values
    with pytest.raises(ChartRefusedError, match=re.escape(stated)):
        render({"stack": stack}, tmp_path)


@needs_helm
@pytest.mark.parametrize(
    ("values", "stated"),
    [
        ({"replay": {"shards": 2}}, "stack.replay.shards differs from that of run maze-1"),
        ({"runId": "maze-2"}, "stack.runId differs"),
        ({"config": {"world": "goodhart"}}, "stack.config differs"),
        ({"actors": {"replicas": 9}}, None),
    ],
)
def test_a_living_run_keeps_what_it_began_with(
    values: dict[str, Any], stated: str | None, tmp_path: Path
) -> None:
    """Shards, run and configuration; the number of actors may change."""
    (first,) = [one for one in of(kept(SINGLE), "ConfigMap") if "run.yaml" in one["data"]]
    stack = yaml.safe_load(SINGLE.read_text())["stack"] | values
    first["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": "tower", "meta.helm.sh/release-namespace": NAMESPACE,
    }  # fmt: skip
    held = CLUSTER | {f"namespaces/{NAMESPACE}/configmaps/{first['metadata']['name']}": first}

    if stated is None:
        assert render({"stack": stack}, tmp_path, held=held)
    else:
        with pytest.raises(ChartRefusedError, match=stated.replace(".", r"\.")):
            render({"stack": stack}, tmp_path, held=held)
