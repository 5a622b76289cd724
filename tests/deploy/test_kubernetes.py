"""The manifests, as an API server would judge them, and as they fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest

from sentinel.api import health
from sentinel.cli import collect
from sentinel.settings import Settings
from tests.deploy.files import DEPLOY, MANIFESTS, documents, of_kind

BUILT_IN = [each for path in MANIFESTS for each in documents(path) if not each["apiVersion"].startswith("monitoring")]
"""All but what the Prometheus Operator defines, whose schema comes with it."""
WORKLOADS = [each for each in BUILT_IN if "template" in each.get("spec", {})]
KEYS = {(secret["metadata"]["name"], key) for secret in of_kind("Secret") for key in secret["stringData"]}
named = [f"{each['kind']}-{each['metadata']['name']}" for each in WORKLOADS]
every_workload = pytest.mark.parametrize("workload", WORKLOADS, ids=named)


def _pod(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]


def _containers(workload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from _pod(workload).get("initContainers", ())
    yield from _pod(workload)["containers"]


@pytest.mark.parametrize("manifest", BUILT_IN, ids=[f"{each['kind']}-{each['metadata']['name']}" for each in BUILT_IN])
def test_a_manifest_is_what_the_api_takes(manifest: dict[str, Any]) -> None:
    """The schema of the newest Kubernetes has no objection, and knows every field."""
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@every_workload
def test_the_cluster_sets_no_variable_of_ours(workload: dict[str, Any]) -> None:
    """No pod gets the SENTINEL_PORT that Kubernetes would make of the Service."""
    assert _pod(workload)["enableServiceLinks"] is False
    assert _pod(workload)["automountServiceAccountToken"] is False


@every_workload
def test_secrets_that_are_asked_for_are_made(workload: dict[str, Any]) -> None:
    """Every key is in the secrets' example, and a token comes as a file."""
    volumes = [each["secret"] for each in _pod(workload).get("volumes", ()) if "secret" in each]
    asked = [(each["secretName"], item["key"]) for each in volumes for item in each["items"]]
    for container in _containers(workload):
        refs = [each["valueFrom"]["secretKeyRef"] for each in container.get("env", ()) if "valueFrom" in each]
        asked += [(ref["name"], ref["key"]) for ref in refs]
        assert "token" not in {ref["key"] for ref in refs}
    assert set(asked) <= KEYS


def test_the_collector_listens_where_prometheus_looks() -> None:
    """Its pods open the port that `sentinel collect` takes, and the monitor selects them by that port's name."""
    (collector,) = of_kind("DaemonSet")
    (container,) = _pod(collector)["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == port["hostPort"] == collect.PORT
    (monitor,) = of_kind("PodMonitor")
    labels = collector["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port["name"]
    jobs = {job["job_name"] for job in documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]}
    assert jobs == {"sentinel", endpoint["relabelings"][0]["replacement"]}


@every_workload
def test_mounts_have_their_volumes(workload: dict[str, Any]) -> None:
    """Every mount names a volume of the pod, and every claim is made here."""
    volumes = {each["name"] for each in _pod(workload).get("volumes", ())}
    mounts = {each["name"] for container in _containers(workload) for each in container.get("volumeMounts", ())}
    assert mounts == volumes
    claims = {each["metadata"]["name"] for each in of_kind("PersistentVolumeClaim")}
    claimed = [each.get("persistentVolumeClaim") for each in _pod(workload).get("volumes", ())]
    assert {each["claimName"] for each in claimed if each} <= claims


def test_services_lead_to_pods() -> None:
    """Every Service selects the labels of one workload and a port that it opens; a Job's label is set by Kubernetes."""
    for service in of_kind("Service"):
        selector = service["spec"]["selector"]
        (workload,) = [
            each
            for each in WORKLOADS
            if selector.items() <= each["spec"]["template"].get("metadata", {}).get("labels", {}).items()
            or selector == {"job-name": each["metadata"]["name"]}
        ]
        opened = {port["name"]: port for each in _containers(workload) for port in each.get("ports", ())}
        for port in service["spec"]["ports"]:
            assert "targetPort" not in port or opened[port["targetPort"]]["containerPort"] == port["port"]


def test_the_daemon_is_probed_where_it_answers() -> None:
    """The probes ask paths that the daemon serves without a token, on the port that it listens on."""
    (daemon,) = of_kind("Deployment")
    (container,) = _pod(daemon)["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": Settings.model_fields["port"].default}]
    served = {route.path for route in health.router.routes}  # type: ignore[attr-defined]
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= served
    assert probes["liveness"]["path"] == "/health"  # /ready would have a standby killed
    assert probes["readiness"]["path"] == "/ready"


def test_the_schema_is_upgraded_while_no_daemon_runs() -> None:
    """An init container upgrades the database that the daemon then opens, and a rollout ends the old pods first."""
    (daemon,) = of_kind("Deployment")
    (upgrade,), (serve,) = _pod(daemon)["initContainers"], _pod(daemon)["containers"]
    assert upgrade["args"] == ["sentinel", "database", "upgrade"]
    given = [{each["name"]: each for each in container["env"]} for container in (upgrade, serve)]
    assert all(given[1][name] == value for name, value in given[0].items())
    assert daemon["spec"]["strategy"] == {"type": "Recreate"}


def test_the_daemon_may_do_nothing_that_it_need_not() -> None:
    """No root, no capability, no writable image, and memory that is bounded."""
    (daemon,) = of_kind("Deployment")
    assert _pod(daemon)["securityContext"]["runAsNonRoot"]
    for container in _containers(daemon):
        rights = container["securityContext"]
        assert (rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"]) == (False, True)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]


def test_prometheus_sees_the_standby_too() -> None:
    """The monitor selects the Service that leads to every daemon, ready or not, and shows the token of the secret."""
    (monitor,) = of_kind("ServiceMonitor")
    selector = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [each for each in of_kind("Service") if each["metadata"].get("labels") == selector]
    assert service["spec"]["publishNotReadyAddresses"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    credentials = endpoint["authorization"]["credentials"]
    assert (credentials["name"], credentials["key"]) in KEYS
    assert {"targetLabel": "job", "replacement": "sentinel"} in endpoint["relabelings"]


def test_a_training_holds_nothing_of_the_daemons() -> None:
    """No pod but the daemon's and the database's mounts the daemon's secret."""
    holders = {each["metadata"]["name"] for each in WORKLOADS if "'secretName': 'sentinel'" in str(each)}
    assert holders == {"sentinel", "sentinel-database"}
