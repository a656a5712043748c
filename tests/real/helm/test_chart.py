"""The chart: what Helm makes of it is kept, valid by Kubernetes' own schemas, and within policy.

Policy is judged on the kept manifests too, so it holds where Helm is not.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from overwatch import config as configuration
from overwatch.collector.settings import problems
from tests.real.helm.charts import (
    CHART,
    CI,
    HEAD,
    NO_ENGINE,
    ChartRefusedError,
    digest,
    engine,
    jobs,
    kept,
    objects,
    of,
    pods,
    render,
    rendered,
    steady,
)

VERSIONS = ("1.27", "1.37")
"""The oldest Kubernetes that the chart allows, and the newest there are schemas of."""

OTHERS = ("monitoring.coreos.com/", "gateway.networking.k8s.io/", "jobset.x-k8s.io/", "trainer.kubeflow.org/")
"""Groups of kinds that Kubernetes itself does not bring."""

needs_helm = pytest.mark.skipif(engine() is None, reason=NO_ENGINE)
each_file = pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)


def _values(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text()) or {}


@needs_helm
@each_file
def test_the_kept_manifests_are_what_helm_makes(
    values: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`OVERWATCH_KEEP_RENDERED=1` writes them anew."""
    import os

    made = steady(objects(render(_values(values), tmp_path)))
    if os.environ.get("OVERWATCH_KEEP_RENDERED"):
        rendered(values).parent.mkdir(exist_ok=True)
        rendered(values).write_text(made)

    assert rendered(values).read_text() == made


@each_file
def test_the_kept_manifests_are_of_this_chart(values: Path) -> None:
    """A template changed without Helm fails here; `OVERWATCH_KEEP_RENDERED=1` with Helm mends it."""
    assert rendered(values).read_text().startswith(HEAD.format(digest=digest()))


def test_every_values_file_has_its_manifests_and_no_other_iskept() -> None:
    """A file that went leaves nothing behind."""
    assert sorted((CHART / "ci/rendered").iterdir()) == sorted(map(rendered, CI))


@each_file
def test_manifests_are_valid_by_kubernetes_own_schemas(values: Path) -> None:
    """Strictly: an unknown field is an error. Of a JobSet its jobs are; others' kinds have no schema here."""
    found = kept(values)
    found += [job for one in of(found, "JobSet") for job in jobs(one)]

    assert len(found) > 4
    for one in found:
        if not one["apiVersion"].startswith(OTHERS):
            for version in VERSIONS:
                kubernetes_validate.validate(one, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    """Else the test above would prove nothing."""
    (service, *_) = of(kept(CHART / "ci/default-values.yaml"), "Service")

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**service, "specs": {}}, VERSIONS[0], strict=True)


@each_file
def test_pods_are_restricted(values: Path) -> None:
    """By the Pod Security Standard `restricted`, with a root file system that cannot be written."""
    found = list(pods(kept(values)))

    assert found
    for name, pod in found:
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, name
        assert security.get("runAsUser", 10001) > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert all(
            set(volume) - {"name"} <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
            for volume in pod.get("volumes", ())
        ), name
        for container in pod["containers"] + pod.get("initContainers", []):
            held = container["securityContext"]
            assert held["allowPrivilegeEscalation"] is False, name
            assert held["readOnlyRootFilesystem"] is True, name
            assert held["capabilities"] == {"drop": ["ALL"]}, name
            assert not any("hostPort" in port for port in container.get("ports", ())), name


@each_file
def test_no_pod_has_a_token_of_the_cluster(values: Path) -> None:
    """Nothing here asks the API server anything."""
    found = kept(values)

    assert all(pod["automountServiceAccountToken"] is False for _, pod in pods(found))
    assert all(one["automountServiceAccountToken"] is False for one in of(found, "ServiceAccount"))
    assert not [one for one in found if "Role" in one["kind"]]


@each_file
def test_images_are_pinned_and_containers_limited(values: Path) -> None:
    """A version or a digest; requests and limits of CPU and memory."""
    for name, pod in pods(kept(values)):
        for container in pod["containers"]:
            image = container["image"]
            assert "@sha256:" in image or (":" in image and not image.endswith(":latest")), (name, image)
            for part in ("requests", "limits"):
                assert {"cpu", "memory"} <= container["resources"][part].keys(), name


@each_file
def test_what_runs_on_is_probed(values: Path) -> None:
    """Health needs no token. What no service leads to has no port and no readiness."""
    for name, pod in pods(kept(values)):
        if name.partition(" ")[0] in ("StatefulSet", "Deployment", "DaemonSet", "JobSet"):
            for container in pod["containers"]:
                assert "livenessProbe" in container, name
                assert ("readinessProbe" in container) == bool(container.get("ports")), name


@each_file
def test_mounts_and_ports_belong_together(values: Path) -> None:
    """Every mount has its volume, every port of a service and every probe its container's."""
    found = kept(values)
    named = {
        port["name"]
        for _, pod in pods(found) for container in pod["containers"] for port in container.get("ports", ())
    }  # fmt: skip
    for service in of(found, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    for one in found:
        claims = {claim["metadata"]["name"] for claim in one.get("spec", {}).get("volumeClaimTemplates", ())}
        for name, pod in pods([one]):
            volumes = {volume["name"] for volume in pod.get("volumes", ())} | claims
            for container in pod["containers"]:
                assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes, name


@each_file
def test_the_collectors_configuration_is_one(values: Path, tmp_path: Path) -> None:
    """The collector takes the file that the chart makes for it."""
    (text,) = [one["data"]["collector.yaml"] for one in of(kept(values), "ConfigMap")
               if "collector.yaml" in one["data"]]  # fmt: skip
    path = tmp_path / "collector.yaml"
    path.write_text(text)

    assert list(problems(configuration.load(path, ()))) == []


def test_the_default_install_lets_trainers_in_by_a_label() -> None:
    """OTLP from the release's namespace and from labelled ones; scrapes from one; nothing else."""
    (policy,) = of(kept(CHART / "ci/default-values.yaml"), "NetworkPolicy")
    telemetry, scrapes, views = policy["spec"]["ingress"]

    assert telemetry["from"] == [
        {"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"overwatch.dev/trainers": "true"}}},
    ]  # fmt: skip
    assert [port["port"] for port in telemetry["ports"]] == [4317, 4318]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}} in scrapes[
        "from"
    ]
    assert views["from"] == [{"podSelector": {}}]


def test_a_collector_that_is_not_ready_is_seen_but_gets_no_telemetry() -> None:
    """Probes ask two paths; snapshots and metrics have a service of their own, which is the one scraped."""
    found = kept(CHART / "ci/default-values.yaml")
    (collector,) = of(found, "StatefulSet")
    (container,) = collector["spec"]["template"]["spec"]["containers"]
    probes = {
        name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    services = {one["metadata"]["name"]: one for one in of(found, "Service")}
    ports = {
        name: (
            one["spec"].get("publishNotReadyAddresses", False),
            {port["name"] for port in one["spec"]["ports"]},
        )
        for name, one in services.items()
    }
    (monitor,) = of(found, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()

    assert probes == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
    assert ports == {
        "tower-overwatch": (False, {"otlp-grpc", "otlp-http"}),
        "tower-overwatch-pods": (False, {"otlp-grpc"}),
        "tower-overwatch-view": (True, {"view", "metrics", "internal"}),
    }
    assert [name for name, one in services.items() if wanted <= one["metadata"]["labels"].items()] == [
        "tower-overwatch-view"
    ]


def test_collectors_and_routers_are_drained_one_at_a_time() -> None:
    """Each kind has a budget of its own."""
    budgets = of(kept(CHART / "ci/full-values.yaml"), "PodDisruptionBudget")

    assert {one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"] for one in budgets} == {
        "collector", "router",
    }  # fmt: skip
    assert {one["spec"]["maxUnavailable"] for one in budgets} == {1}


def test_what_goes_out_can_be_limited() -> None:
    """To names, to the collectors and to what is listed; not by default, as targets are not known here."""
    (open_,) = of(kept(CHART / "ci/default-values.yaml"), "NetworkPolicy")
    (policy,) = of(kept(CHART / "ci/full-values.yaml"), "NetworkPolicy")
    names, collectors, extra = policy["spec"]["egress"]

    assert open_["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert [port["port"] for port in collectors["ports"]] == [4317]
    assert extra["to"] == [{"namespaceSelector": {"matchLabels": {"team": "observability"}}}]


def test_the_service_monitor_has_two_endpoints_and_the_scrape_token() -> None:
    """Runs keep their own labels; jobs are those that the alert rules name."""
    (monitor,) = of(kept(CHART / "ci/default-values.yaml"), "ServiceMonitor")
    ends = {end["port"]: end for end in monitor["spec"]["endpoints"]}

    assert {port: end["honorLabels"] for port, end in ends.items()} == {"metrics": True, "internal": False}
    assert all(end["authorization"]["credentials"]["key"] == "read" for end in ends.values())
    assert [ends[port]["relabelings"][0]["replacement"] for port in ("metrics", "internal")] == [
        "overwatch", "overwatch-collector",
    ]  # fmt: skip


@needs_helm
def test_alerts_link_to_the_grafana_that_people_open(tmp_path: Path) -> None:
    """Not to that of the machine where the rules were generated."""
    text = render(_values(CHART / "ci/full-values.yaml"), tmp_path)

    assert "http://127.0.0.1:3000" not in text
    assert "dashboard_url: https://grafana.example.com/d/overwatch-collector" in text


def test_boards_and_rules_are_those_of_the_project() -> None:
    """A ConfigMap for each board, under the sidecar's label; the rules' groups."""
    found = kept(CHART / "ci/default-values.yaml")
    boards = [one for one in of(found, "ConfigMap") if "-board-" in one["metadata"]["name"]]
    (rule,) = of(found, "PrometheusRule")

    assert {name for one in boards for name in one["data"]} == {
        path.name for path in (CHART / "files/dashboards").glob("*.json")
    }
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in boards)
    assert "overwatch-collector" in {group["name"] for group in rule["spec"]["groups"]}


def test_a_router_keeps_each_run_at_one_collector() -> None:
    """By the run's id, over the addresses of the headless service, and nobody gets in without the token."""
    found = kept(CHART / "ci/full-values.yaml")
    (text,) = [one["data"]["router.yaml"] for one in of(found, "ConfigMap") if "router.yaml" in one["data"]]
    router = yaml.safe_load(text)
    balancing = router["exporters"]["load_balancing"]

    assert balancing["routing_attributes"] == ["rl.run.id"]
    assert balancing["resolver"]["dns"]["hostname"].startswith("tower-overwatch-pods.rl.svc")
    assert set(router["service"]["pipelines"]) == {"logs", "metrics", "traces"}
    assert all(
        listener["auth"] == {"authenticator": "bearertokenauth"}
        for listener in router["receivers"]["otlp"]["protocols"].values()
    )
    (job,) = of(found, "Job")
    env = {one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "https://tower-overwatch-router:4318"


def test_users_groups_and_volumes_can_be_left_to_the_cluster() -> None:
    """As OpenShift needs: no user, group or claim; the data is in an emptyDir of the size that was given."""
    found = kept(CHART / "ci/openshift-values.yaml")
    (collector,) = of(found, "StatefulSet")
    volumes = {one["name"]: one for one in collector["spec"]["template"]["spec"]["volumes"]}

    for name, pod in pods(found):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys(), name
    assert "volumeClaimTemplates" not in collector["spec"]
    assert "persistentVolumeClaimRetentionPolicy" not in collector["spec"]
    assert volumes["data"]["emptyDir"] == {"sizeLimit": "4Gi"}


def test_all_listeners_are_at_the_address_that_was_given() -> None:
    """IPv6 for the collector and the router, whose own settings win."""
    found = kept(CHART / "ci/openshift-values.yaml")
    (text,) = [one["data"]["router.yaml"] for one in of(found, "ConfigMap") if "router.yaml" in one["data"]]
    doors = yaml.safe_load(text)["receivers"]["otlp"]["protocols"]

    assert (doors["grpc"]["endpoint"], doors["grpc"]["max_recv_msg_size_mib"]) == ("0.0.0.0:4317", 16)
    assert doors["grpc"]["auth"] == {"authenticator": "bearertokenauth"}
    assert doors["http"]["endpoint"] == "[::]:4318"
    assert ".svc.cluster.example" in text
    (own,) = [
        one["data"]["collector.yaml"] for one in of(found, "ConfigMap") if "collector.yaml" in one["data"]
    ]
    assert own.count("'[::]:") + own.count('"[::]:') == 6


def test_hosts_from_outside_lead_to_the_view_and_to_where_trainers_send() -> None:
    """By an Ingress and by routes of a Gateway; the collector answers to those names."""
    found = kept(CHART / "ci/openshift-values.yaml")
    (ingress,) = of(found, "Ingress")
    leads = {
        rule["host"]: rule["http"]["paths"][0]["backend"]["service"] for rule in ingress["spec"]["rules"]
    }
    (route,) = of(found, "HTTPRoute")
    (own,) = [
        one["data"]["collector.yaml"] for one in of(found, "ConfigMap") if "collector.yaml" in one["data"]
    ]

    assert leads == {
        "overwatch.apps.example.org": {"name": "tower-overwatch-view", "port": {"number": 4380}},
        "otlp.apps.example.org": {"name": "tower-overwatch-router", "port": {"number": 4318}},
    }
    assert set(ingress["spec"]["tls"][0]["hosts"]) == set(leads)
    assert route["spec"]["hostnames"] == ["overwatch.example.org"]
    assert route["spec"]["rules"][0]["backendRefs"] == [{"name": "tower-overwatch-view", "port": 4380}]
    allowed = yaml.safe_load(own)["service"]["security"]["allowed_hosts"]
    assert {"overwatch.example.org", *leads} <= set(allowed)


@needs_helm
@pytest.mark.parametrize(
    ("given", "shown"), [("", None), ("fast", "fast"), ("-", "")], ids=["the cluster's", "named", "none"]
)
def test_a_storage_class_is_the_clusters_a_named_one_or_none(
    given: str, shown: str | None, tmp_path: Path
) -> None:
    """`storageClassName: ""` asks for a volume that an administrator made."""
    (collector,) = of(objects(render({"persistence": {"storageClass": given}}, tmp_path)), "StatefulSet")

    assert collector["spec"]["volumeClaimTemplates"][0]["spec"].get("storageClassName") == shown


@needs_helm
@pytest.mark.parametrize(
    ("values", "stated"),
    [
        ({"ingress": {"enabled": True}}, "ingress.viewHost"),
        ({"httpRoute": {"enabled": True, "viewHost": "a.b"}}, "httpRoute.parentRefs"),
        ({"network": {"listen": "::"}}, "/network/listen"),
        ({"replicas": 2}, "would split a run's requests over pods"),
        ({"autoscaling": {"enabled": True}}, "the only writer of its runs"),
        ({"security": {"plaintextInCluster": False}}, "how telemetry travels"),
        ({"agent": {"enabled": True}}, "agent.runId"),
        ({"image": {"tag": "latest"}}, "another image each day"),
        ({"nosuch": 1}, "nosuch"),
        ({"collector": {"resource": {}}}, "resource"),
        ({"replicas": "two"}, "/replicas"),
        ({"persistence": {"size": "20GB"}}, "/persistence/size"),
        ({"service": {"type": "External"}}, "/service/type"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    values: dict[str, Any], stated: str, tmp_path: Path
) -> None:
    """Before anything is made."""
    with pytest.raises(ChartRefusedError, match=stated.replace(".", r"\.")):
        render(values, tmp_path)


@needs_helm
def test_the_notes_have_the_variables_to_copy(tmp_path: Path) -> None:
    """Label, endpoint, headers with the token, and that telemetry is plain text."""
    notes = render({}, tmp_path, notes=True)

    for part in (
        "kubectl label namespace TRAINING overwatch.dev/trainers=true",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://tower-overwatch.rl.svc.cluster.local:4318",
        "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20$OVERWATCH_INGEST_TOKEN",
        "plain text",
    ):
        assert part in notes
