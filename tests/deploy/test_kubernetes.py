"""The Kubernetes manifests: valid, restricted, and about things that exist."""

import re
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from headway.worker import WorkerSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VERSION = "1.33"
WORKLOADS = {"Deployment", "StatefulSet"}


def workloads(rendered):
    return [document for document in rendered if document["kind"] in WORKLOADS]


def pod(document):
    return document["spec"]["template"]["spec"]


def containers(document):
    return [*pod(document).get("initContainers", []), *pod(document)["containers"]]


def ours(rendered):
    """Workloads that run the image with Headway in it."""
    return [
        workload
        for workload in workloads(rendered)
        if containers(workload)[0]["image"].startswith("headway:")
    ]


def named(rendered, kind):
    return {document["metadata"]["name"] for document in rendered if document["kind"] == kind}


def test_every_object_is_what_kubernetes_expects(rendered):
    assert len(rendered) > 20
    for document in rendered:
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_all_parts_are_there(rendered):
    assert named(rendered, "Deployment") == {
        "headway-scheduler",
        "headway-dispatcher",
        "headway-console",
        "headway-worker",
        "headway-worker-typescript",
        "jaeger",
    }
    assert named(rendered, "PodDisruptionBudget") == {
        f"headway-{name}" for name in ("scheduler", "dispatcher", "console", "worker")
    }
    replicas = {
        document["metadata"]["name"]: document["spec"]["replicas"]
        for document in rendered
        if document["kind"] == "Deployment"
    }
    assert replicas["headway-scheduler"] == replicas["headway-dispatcher"] == 2


def test_every_pod_is_restricted(rendered):
    """The rules of the pod security standard `restricted`, and a read-only root on top."""
    for document in workloads(rendered):
        name, spec = document["metadata"]["name"], pod(document)
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        for container in containers(document):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"], name
            assert container["resources"]["limits"]["memory"], name
        for volume in spec.get("volumes", []):
            assert "hostPath" not in volume, name


def test_what_is_referred_to_exists(rendered):
    accounts, secrets = named(rendered, "ServiceAccount"), named(rendered, "Secret")
    maps = named(rendered, "ConfigMap")
    for document in workloads(rendered):
        spec = pod(document)
        assert spec.get("serviceAccountName", "default") in accounts | {"default"}
        for volume in spec.get("volumes", []):
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets
            if "configMap" in volume:
                assert volume["configMap"]["name"] in maps
            for source in volume.get("projected", {}).get("sources", []):
                assert source.get("configMap", {"name": min(maps)})["name"] in maps
                assert source.get("secret", {"name": min(secrets)})["name"] in secrets
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        volumes |= {
            claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", [])
        }
        for container in containers(document):
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            for source in container.get("envFrom", []):
                assert source["configMapRef"]["name"] in maps


def test_no_secret_is_in_the_environment(rendered):
    for document in workloads(rendered):
        for container in containers(document):
            for variable in container.get("env", []):
                assert "secretKeyRef" not in variable.get("valueFrom", {})
                assert not re.search(r"://[^/]*:[^/]*@", variable.get("value", ""))


def test_probes_ask_what_the_services_answer(rendered):
    for document in ours(rendered):
        if document["kind"] != "Deployment":
            continue
        one = pod(document)["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in one["ports"]}
        environment = {variable["name"]: variable["value"] for variable in one["env"]}
        listens_on = int(environment["HEADWAY_HEALTH_ADDRESS"].rpartition(":")[2])
        for probe, path in (
            ("startupProbe", "/livez"),
            ("livenessProbe", "/livez"),
            ("readinessProbe", "/readyz"),
        ):
            request = one[probe]["httpGet"]
            assert (request["path"], ports[request["port"]]) == (path, listens_on)


def test_prometheus_is_sent_to_where_metrics_are(rendered):
    scraped = set()
    for document in ours(rendered):
        notes = document["spec"]["template"]["metadata"].get("annotations", {})
        if "prometheus.io/scrape" not in notes:
            continue
        one = pod(document)["containers"][0]
        [port] = [port["containerPort"] for port in one["ports"] if port["name"] == "health"]
        assert (notes["prometheus.io/port"], notes["prometheus.io/path"]) == (str(port), "/metrics")
        scraped.add(document["metadata"]["name"])
    assert scraped == {
        f"headway-{service}" for service in ("scheduler", "dispatcher", "worker", "console")
    }


def test_the_monitor_selects_what_is_scraped(rendered):
    """For the Prometheus operator, whose resources no schema of Kubernetes knows."""
    [monitor] = yaml.safe_load_all((DEPLOY / "k8s" / "monitoring" / "pod-monitor.yaml").read_text())
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("health", "/metrics")
    selected = {
        workload["metadata"]["name"]
        for workload in workloads(rendered)
        if matches(monitor["spec"]["selector"], workload["spec"]["template"]["metadata"]["labels"])
    }
    assert selected == {
        f"headway-{name}" for name in ("scheduler", "dispatcher", "worker", "console")
    }


def test_everybody_is_probed_but_the_worker_in_typescript(rendered):
    without = {
        document["metadata"]["name"]
        for document in workloads(rendered)
        for container in pod(document)["containers"]
        if not {"livenessProbe", "readinessProbe"} <= set(container)
    }
    assert without == {"headway-worker-typescript"}


def test_a_second_apply_changes_what_is_there(rendered):
    """A Job cannot be changed: another setting or image would make `kubectl apply` fail."""
    assert not {"Job", "Pod"} & {document["kind"] for document in rendered}


def test_images_have_versions_and_are_not_pulled_when_they_are_there(rendered):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = {}
    for document in workloads(rendered):
        for container in containers(document):
            assert container["imagePullPolicy"] == "IfNotPresent", document["metadata"]["name"]
            name, _, images[name] = container["image"].partition(":")
    assert images["headway"] == images["headway-worker-typescript"] == version
    assert not {"", "latest"} & set(images.values())


def test_servers_may_take_their_time_to_start_and_to_answer(rendered):
    for name in ("postgres", "nats"):
        [document] = [item for item in workloads(rendered) if item["metadata"]["name"] == name]
        [container] = pod(document)["containers"]
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["timeoutSeconds"] >= 5
    # A stream that is out of order must not restart the server.
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz?js-enabled-only=true"


def test_labels_of_ours_have_one_prefix():
    text = "".join(path.read_text() for path in (DEPLOY / "k8s").rglob("*.yaml"))
    assert set(re.findall(r"^\s*(headway[\w.-]*/)[\w-]+:", text, re.MULTILINE)) == {"headway.dev/"}


def test_a_worker_has_longer_to_end_than_it_drains(rendered):
    for name in ("headway-worker", "headway-worker-typescript"):
        [worker] = [
            workload for workload in workloads(rendered) if workload["metadata"]["name"] == name
        ]
        assert pod(worker)["terminationGracePeriodSeconds"] > WorkerSettings().drain_seconds + 10


class TestNetwork:
    """Connections that the policies allow."""

    @pytest.fixture
    def may(self, rendered):
        policies = [
            document["spec"] for document in rendered if document["kind"] == "NetworkPolicy"
        ]
        labels = {
            workload["metadata"]["name"]: workload["spec"]["template"]["metadata"]["labels"]
            for workload in workloads(rendered)
        }

        def allowed(own, rules, other, port):
            """Whether any rule that holds for a pod lets it talk to another on a port."""
            return any(
                any(item["port"] == port for item in rule.get("ports", []))
                and (
                    rules not in ("to", "from")
                    or rules not in rule
                    or any(
                        "namespaceSelector" not in peer
                        and matches(peer["podSelector"], labels[other])
                        for peer in rule[rules]
                    )
                )
                for policy in policies
                if matches(policy["podSelector"], labels[own])
                for rule in policy.get("egress" if rules == "to" else "ingress", [])
            )

        return lambda source, target, port: (
            allowed(source, "to", target, port) and allowed(target, "from", source, port)
        )

    def test_every_pod_is_closed_before_anything_is_opened(self, rendered):
        [nothing] = [
            item["spec"] for item in rendered if item["metadata"]["name"] == "headway-nothing"
        ]
        assert "ingress" not in nothing
        assert "egress" not in nothing
        for document in workloads(rendered):
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert matches(nothing["podSelector"], labels), document["metadata"]["name"]

    @pytest.mark.parametrize(
        "service", ["headway-scheduler", "headway-dispatcher", "headway-console"]
    )
    def test_services_reach_the_database(self, may, service):
        assert may(service, "postgres", 5432)

    @pytest.mark.parametrize("stranger", ["headway-worker", "headway-worker-typescript", "jaeger"])
    def test_nobody_else_does(self, may, stranger):
        assert not may(stranger, "postgres", 5432)

    def test_all_of_us_reach_nats_and_jaeger(self, may, rendered):
        for name in (
            "headway-scheduler",
            "headway-dispatcher",
            "headway-console",
            "headway-worker",
            "headway-worker-typescript",
        ):
            assert may(name, "nats", 4222)
            assert may(name, "jaeger", 4318)
        assert not may("postgres", "nats", 4222)
        assert not may("headway-worker", "headway-scheduler", 8080)
        assert not may("headway-worker", "headway-console", 8000)

    def test_an_ingress_controller_in_another_namespace_reaches_the_console(self, rendered):
        [policy] = [
            document["spec"]
            for document in rendered
            if document["metadata"]["name"] == "headway-to-console"
        ]
        [rule] = policy["ingress"]
        [elsewhere] = [peer for peer in rule["from"] if "namespaceSelector" in peer]
        assert matches(elsewhere["namespaceSelector"], {"headway.dev/reaches-console": "true"})
        assert not matches(elsewhere["namespaceSelector"], {})
        assert "podSelector" not in elsewhere

    @pytest.mark.parametrize("service", ["scheduler", "dispatcher", "worker", "console"])
    def test_a_prometheus_next_door_may_scrape_and_no_more(self, rendered, service):
        [policy] = [
            item["spec"] for item in rendered if item["metadata"]["name"] == "headway-metrics"
        ]
        [document] = [
            workload
            for workload in ours(rendered)
            if workload["metadata"]["name"] == f"headway-{service}"
        ]
        assert matches(policy["podSelector"], document["spec"]["template"]["metadata"]["labels"])
        [rule] = policy["ingress"]
        assert [item["port"] for item in rule["ports"]] == [
            port["containerPort"]
            for port in pod(document)["containers"][0]["ports"]
            if port["name"] == "health"
        ]
        [peer] = rule["from"]
        assert peer["namespaceSelector"]["matchLabels"] == {"headway.dev/metrics": "true"}
        assert matches(peer["podSelector"], {"app.kubernetes.io/name": "prometheus"})


def matches(selector, labels):
    """Whether a label selector selects these labels."""
    wanted = selector.get("matchLabels", {})
    among = selector.get("matchExpressions", [])
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        labels.get(expression["key"]) in expression["values"] for expression in among
    )
