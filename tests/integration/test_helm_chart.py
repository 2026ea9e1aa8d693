"""The Helm chart as `helm` renders it: every object is one that Kubernetes' own schema allows, and the parts fit together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpupool.providers import settings
from gpupool.providers.kinds import Place
from gpupool.providers.kubernetes import manifests
from gpupool.providers.kubernetes.provider import KubernetesProvider

from tests.support.cluster.admission import restricted_problems
from tests.support.cluster.kinds import problems, schema_is_missing
from tests.support.helm import CHART, ROOT, helm_is_missing, pods_of, rendered, run

_MISSING = helm_is_missing() or schema_is_missing()
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

#: Ways to use the chart, by what they are about.
_VALUES: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "no provider": {"providers": {"kube": None}},
    "without TLS": {"pool": {"tls": {"mode": "off"}}},
    "a certificate of one's own": {"pool": {"tls": {"mode": "secret", "secretName": "cert"}}},
    "PostgreSQL": {
        "pool": {"postgresql": {"url": "postgresql+psycopg://gpupool@db/gpupool", "passwordSecret": "db"}}
    },
    "a Hub": {"pool": {"hub": {"apiUrl": "http://hub:8081/hub/api"}, "arguments": ["--hide-users"]}},
    "claims and two providers": {
        "image": {"pullSecrets": ["registry"]},
        "providers": {
            "kube": {"device_class": "gpu.nvidia.com", "node_options": ["--warm-workers", "2"], "secret": "own"},
            "soft": {
                "resource": "",
                "node_options": ["--driver", "software"],
                "tolerations": ["gpu=yes:NoSchedule"],
                "node_selector": {"a": "b", "c": "d"},
                "environment": {"A": 'x"y'},
                "time_limit": "8h",
            },
        },
    },
    "a token of one's own": {
        "image": {"pullPolicy": "Never"},
        "providers": {"kube": {"existing_secret": "mine", "environment": {"A": "b"}}},
    },
    "agents": {
        "agents": {"enabled": True, "tokenSecret": "tokens", "nodeSelector": {"gpu": "yes"},
                   "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
    },
    "agents with a certificate of one's own": {
        "pool": {"tls": {"mode": "secret", "secretName": "cert"}},
        "agents": {"enabled": True, "tokenSecret": "tokens", "resource": ""},
    },
    "watched": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {"monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    },
}  # fmt: skip


@pytest.mark.parametrize("values", _VALUES.values(), ids=_VALUES.keys())
def test_every_object_is_one_of_kubernetes(tmp_path: Path, values: Mapping[str, Any]) -> None:
    objects = rendered(tmp_path, values)
    assert {one["metadata"]["name"]: found for one in objects if (found := problems(one))} == {}
    assert [found for pod in pods_of(objects) if (found := restricted_problems(pod))] == []
    instances = {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in objects}
    assert instances == {"gpupool"}
    kinds = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize("values", _VALUES.values(), ids=_VALUES.keys())
def test_gpupool_understands_its_providers_and_may_do_what_they_need(
    tmp_path: Path, values: Mapping[str, Any]
) -> None:
    objects = rendered(tmp_path, values)
    files = [
        one["data"]["providers.toml"] for one in objects if one["metadata"]["name"] == "gpupool-providers"
    ]
    (stateful,) = [one for one in objects if one["kind"] == "StatefulSet"]
    command = stateful["spec"]["template"]["spec"]["containers"][0]["command"]
    if not files or not files[0].strip():
        assert "--providers" not in command
        assert not any(one["kind"] == "Role" for one in objects)
        return
    (tmp_path / "providers.toml").write_text(files[0])
    (role,) = [one for one in objects if one["kind"] == "Role"]
    for one in settings.read(tmp_path / "providers.toml"):
        place = Place(tmp_path, "unix:/x", "pool")
        written = "existing_secret" not in values.get("providers", {}).get(one.name, {})
        assert one.needs_token(place) == written
        provider = one.open(place, tmp_path / "node.token" if written else None)
        assert isinstance(provider, KubernetesProvider)
        own = provider._settings
        assert own.image_pull_policy == values.get("image", {}).get("pullPolicy", "IfNotPresent")
        assert written or (own.environment or {})["GPUPOOL_CA_FILE"].endswith("/ca.pem")
        patches = [
            rule for rule in role["rules"] if "secrets" in rule["resources"] and "patch" in rule["verbs"]
        ]
        assert all(own.secret_name in rule["resourceNames"] for rule in patches) and patches
        owners = [rule for rule in role["rules"] if "configmaps" in rule["resources"]]
        assert owners[0]["resourceNames"] == [own.owner.removeprefix("configmap/")]
        if own.device_class:
            assert any("resourceclaimtemplates" in rule["resources"] for rule in role["rules"])


def test_the_pool_may_read_no_secret(tmp_path: Path) -> None:
    (role,) = [one for one in rendered(tmp_path, {}) if one["kind"] == "Role"]
    verbs = {verb for rule in role["rules"] if "secrets" in rule["resources"] for verb in rule["verbs"]}
    assert verbs == {"create", "patch"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"imag": {}}, "imag"),
        ({"pool": {"tls": {"mode": "on"}}}, "mode"),
        ({"pool": {"postgresql": {"url": "postgresql+psycopg://me:secret@db/x"}}}, "url"),
        ({"pool": {"tls": {"mode": "secret"}}}, "secretName"),
        ({"providers": {"Kube": {}}}, "Kube"),
        ({"providers": {"kube": {"maximum": 1.5}}}, "maximum"),
        ({"agents": {"enabled": True}}, "tokenSecret"),
        ({"nodePorts": {"first": 80}}, "first"),
    ],
)
def test_values_that_are_wrong_are_refused(tmp_path: Path, values: Mapping[str, Any], said: str) -> None:
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(values))
    done = run(tmp_path, "template", "gpupool", str(CHART), "--values", str(tmp_path / "wrong.yaml"))
    assert done.returncode != 0
    assert said in done.stderr


def test_it_passes_helms_own_check(tmp_path: Path) -> None:
    done = run(tmp_path, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_a_node_has_less_time_to_drain_than_its_pod_to_end(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {"agents": {"enabled": True, "tokenSecret": "tokens"}})
    (pod,) = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "DaemonSet"]
    (agent,) = pod["containers"]
    drain = agent["command"][agent["command"].index("--drain-wait") + 1]
    assert 0 < int(drain.removesuffix("s")) < pod["terminationGracePeriodSeconds"]


def test_network_policies_select_the_pods_that_there_are(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {"agents": {"enabled": True, "tokenSecret": "tokens"}})
    policies = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "NetworkPolicy"}
    (pool,) = [
        one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] == "StatefulSet"
    ]
    (agent,) = [
        one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] == "DaemonSet"
    ]
    assert policies["gpupool-pool"]["podSelector"]["matchLabels"].items() <= pool.items()
    nodes = policies["gpupool-nodes"]["podSelector"]["matchLabels"].items()
    assert nodes <= agent.items()
    assert nodes <= {manifests.ROLE_LABEL: "node"}.items()


def test_names_stay_when_the_chart_is_newer(tmp_path: Path) -> None:
    """Selectors and names of what has a state: Kubernetes would refuse to change them, or lose it."""
    before = rendered(tmp_path, {})
    after = rendered(tmp_path, {"image": {"tag": "9.9.9"}, "providers": {"kube": {"maximum": 9}}})

    def kept(objects: list[dict[str, Any]]) -> Any:
        return [
            (
                one["kind"],
                one["metadata"]["name"],
                one["spec"].get("selector"),
                one["spec"].get("volumeClaimTemplates"),
            )
            for one in objects
            if one["kind"] in ("StatefulSet", "Service", "NetworkPolicy")
        ] + sorted((one["kind"], one["metadata"]["name"]) for one in objects)

    assert kept(before) == kept(after)


def _checksum(objects: list[dict[str, Any]]) -> str:
    (stateful,) = [one for one in objects if one["kind"] == "StatefulSet"]
    return str(stateful["spec"]["template"]["metadata"]["annotations"]["checksum/providers"])


@pytest.mark.parametrize(
    "values", [{"image": {"node": "other"}}, {"nodePorts": {"first": 50000, "last": 50199}}]
)
def test_the_pool_begins_anew_when_its_nodes_become_others(tmp_path: Path, values: Mapping[str, Any]) -> None:
    before = _checksum(rendered(tmp_path, {}))
    assert before == _checksum(rendered(tmp_path, {}))
    assert before != _checksum(rendered(tmp_path, values))


def test_metrics_stay_inside_the_cluster(tmp_path: Path) -> None:
    objects = rendered(tmp_path, {"service": {"type": "LoadBalancer"}, "serviceMonitor": {"enabled": True}})
    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
    ports = {
        name: (one["spec"]["type"], [port["name"] for port in one["spec"]["ports"]])
        for name, one in services.items()
    }
    assert ports == {
        "gpupool": ("LoadBalancer", ["pool"]),
        "gpupool-metrics": ("ClusterIP", ["metrics"]),
    }
    (monitor,) = [one for one in objects if one["kind"] == "ServiceMonitor"]
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    assert labels <= services["gpupool-metrics"]["metadata"]["labels"].items()
    assert not labels <= services["gpupool"]["metadata"]["labels"].items()


def test_the_values_for_zero_to_jupyterhub_fit_the_chart(tmp_path: Path) -> None:
    values = yaml.safe_load((ROOT / "containers" / "helm" / "jupyterhub.yaml").read_text())["singleuser"]
    objects = rendered(
        tmp_path,
        {"pool": {"hub": {"apiUrl": "http://hub:8081/hub/api"}}},
        release="gpupool",
        namespace="jhub",
    )
    notes = run(
        tmp_path, "install", "gpupool", str(CHART), "--namespace", "jhub", "--dry-run=client", "--hide-secret"
    ).stdout
    assert f"GPUPOOL_ENDPOINT={values['extraEnv']['GPUPOOL_ENDPOINT']}\n" in notes
    (volume,) = values["storage"]["extraVolumes"]
    (authority,) = [one for one in objects if one["metadata"]["name"] == volume["configMap"]["name"]]
    file = Path(values["extraEnv"]["GPUPOOL_CA_FILE"])
    assert str(file.parent) == values["storage"]["extraVolumeMounts"][0]["mountPath"]
    assert file.name in authority["data"]
    (pool,) = [
        one["spec"]["template"]["metadata"]["labels"] for one in objects if one["kind"] == "StatefulSet"
    ]
    assert pool["hub.jupyter.org/network-access-hub"] == "true"
    to_pool, to_nodes = values["networkPolicy"]["egress"]
    assert to_pool["to"][0]["podSelector"]["matchLabels"].items() <= pool.items()
    (provided,) = [
        one["data"]["providers.toml"] for one in objects if "providers.toml" in one.get("data", {})
    ]
    ports = re.search(r"(\d+)-(\d+)", provided)
    assert ports is not None
    assert (str(to_nodes["ports"][0]["port"]), str(to_nodes["ports"][0]["endPort"])) == (ports[1], ports[2])
    (policy,) = [one for one in objects if one["metadata"]["name"] == "gpupool-pool"]
    assert {"podSelector": {"matchLabels": {"component": "singleuser-server"}}} in policy["spec"]["ingress"][
        0
    ]["from"]
