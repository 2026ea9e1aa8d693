"""A release from its installation to its end, with `helm` itself.

The pool runs in its pod, with the rights that the chart gave it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.cluster import Cluster, cluster
from tests.support.cluster.containers import isolation_is_missing
from tests.support.cluster.kinds import schema_is_missing
from tests.support.helm import CHART, helm_is_missing, run
from tests.support.patience import until_late
from tests.support.pool_node import native_worker_is_built

_MISSING = (
    helm_is_missing()
    or schema_is_missing()
    or isolation_is_missing()
    or ("" if native_worker_is_built() else "needs the native build (`make build`)")
)
pytestmark = [pytest.mark.skipif(bool(_MISSING), reason=_MISSING), pytest.mark.slow]

_NAMESPACE = "gp"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


#: All pods share this machine's network.
_PORT, _METRICS = _free_port(), _free_port()
#: Software GPUs, and times for a test.
_VALUES = (
    "--set", f"service.port={_PORT}", "--set", f"service.metricsPort={_METRICS}",
    "--set", "providers.kube.resource=", "--set", "providers.kube.cpu=100m", "--set", "providers.kube.memory=512Mi",
    "--set", "providers.kube.idle=5s", "--set", "providers.kube.grace=20s", "--set", "providers.kube.device_memory_mib=2048",
    "--set-json", 'providers.kube.node_options=["--driver","software","--memory-mib","2048"]',
)  # fmt: skip
_PROGRAM = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int()\n"
    "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0\n"
    "print('devices', n.value)"
)


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with cluster(gpus=()) as running:
        running.namespace(_NAMESPACE)
        yield running


def helm(made: Cluster, folder: Path, *arguments: str) -> None:
    done = run(folder, *arguments, "--namespace", _NAMESPACE, kubeconfig=made.kubeconfig)
    assert done.returncode == 0, done.stderr


def wait(what: Callable[[], Any], seconds: float, made: Cluster) -> Any:
    deadline = until_late(seconds)
    while not (found := what()):
        said = {pod["metadata"]["name"]: pod["status"] for pod in made.pods(_NAMESPACE)}
        assert time.monotonic() < deadline, f"{said}\n{log_of_pool(made)}"
        time.sleep(0.1)
    return found


def log_of_pool(made: Cluster) -> str:
    try:
        return made.output(_NAMESPACE, "gpupool-0")
    except OSError:
        return "no log"


def nodes(made: Cluster) -> list[Mapping[str, Any]]:
    return [pod for pod in made.pods(_NAMESPACE) if pod["metadata"]["name"].startswith("gpupool-") and
            "jupyter-gpupool.github.io/job" in pod["metadata"]["labels"]]  # fmt: skip


def uid(made: Cluster, kind: str, name: str, api: str = "v1") -> str:
    (found,) = [one for one in made.objects(kind, _NAMESPACE, api) if one["metadata"]["name"] == name]
    return str(found["metadata"]["uid"])


def user_pod(name: str, command: list[str]) -> dict[str, Any]:
    """A pod as JupyterHub starts them for users, with a token of the pool."""
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE, "labels": {"component": "singleuser-server"}},
        "status": {"phase": "Pending"},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
            "containers": [
                {
                    "name": "user", "image": "gpupool-singleuser", "command": command,
                    "env": [
                        {"name": "GPUPOOL_ENDPOINT", "value": f"tls:gpupool.{_NAMESPACE}.svc:{_PORT}"},
                        {"name": "GPUPOOL_CA_FILE", "value": "/etc/gpupool/ca.crt"},
                        {"name": "GPUPOOL_TOKEN_FILE", "value": "/run/secrets/gpupool/token"},
                        {"name": "GPUPOOL_HOME", "value": "/var/lib/gpupool/home"},
                    ],
                    "volumeMounts": [
                        {"name": "ca", "mountPath": "/etc/gpupool"},
                        {"name": "token", "mountPath": "/run/secrets/gpupool"},
                        {"name": "state", "mountPath": "/var/lib/gpupool"},
                    ],
                }
            ],
            "volumes": [
                {"name": "ca", "configMap": {"name": "gpupool-ca"}},
                {"name": "token", "secret": {"secretName": "ann", "defaultMode": 0o440}},
                {"name": "state", "emptyDir": {}},
            ],
        },
    }  # fmt: skip


def test_a_release_from_its_installation_to_its_end(made: Cluster, tmp_path: Path) -> None:
    helm(made, tmp_path, "install", "gpupool", str(CHART), "--disable-openapi-validation", *_VALUES)
    wait(lambda: "serving" in log_of_pool(made), 60, made)
    before = {
        "StatefulSet": uid(made, "StatefulSet", "gpupool", "apps/v1"),
        "PersistentVolumeClaim": uid(made, "PersistentVolumeClaim", "state-gpupool-0"),
        "ConfigMap": uid(made, "ConfigMap", "gpupool-providers"),
    }
    (certificate,) = [
        one["data"] for one in made.objects("Secret", _NAMESPACE) if one["metadata"]["name"] == "gpupool-tls"
    ]

    # A user of the pool asks for a share: a pod comes, serves her, and goes when nobody needs it.
    token = made.run_in(_NAMESPACE, "gpupool-0", ["gpupool", "token", "create", "--user", "ann"])
    metadata = {"name": "ann", "namespace": _NAMESPACE}
    made.put(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token.strip()}}
    )
    made.put(
        user_pod("ann-1", ["gpupool", "run", "-p", "0.2", "--wait", "10m", "--", "python", "-c", _PROGRAM])
    )
    wait(lambda: nodes(made), 60, made)
    wait(lambda: phase(made, "ann-1") in ("Succeeded", "Failed"), 120, made)
    assert phase(made, "ann-1") == "Succeeded", f"{made.output(_NAMESPACE, 'ann-1')}\n{log_of_pool(made)}"
    assert "devices 1" in made.output(_NAMESPACE, "ann-1")
    wait(lambda: not nodes(made), 60, made)

    # An upgrade changes what it is about, and nothing that has a state.
    helm(made, tmp_path, "upgrade", "gpupool", str(CHART), "--disable-openapi-validation", *_VALUES,
         "--set", "providers.kube.minimum=1", "--set", "providers.kube.maximum=2")  # fmt: skip
    after = {
        "StatefulSet": uid(made, "StatefulSet", "gpupool", "apps/v1"),
        "PersistentVolumeClaim": uid(made, "PersistentVolumeClaim", "state-gpupool-0"),
        "ConfigMap": uid(made, "ConfigMap", "gpupool-providers"),
    }
    assert after == before
    (now,) = [
        one["data"] for one in made.objects("Secret", _NAMESPACE) if one["metadata"]["name"] == "gpupool-tls"
    ]
    assert now == certificate
    wait(lambda: nodes(made), 90, made)  # the pool has begun anew, with its new minimum

    # Nothing is left of it but its volume.
    helm(made, tmp_path, "uninstall", "gpupool")
    wait(lambda: [pod["metadata"]["name"] for pod in made.pods(_NAMESPACE)] == ["ann-1"], 90, made)
    left = {
        (kind, one["metadata"]["name"])
        for kind, api in (
            ("Secret", "v1"), ("ConfigMap", "v1"), ("Service", "v1"), ("ServiceAccount", "v1"), ("PersistentVolumeClaim", "v1"),
            ("StatefulSet", "apps/v1"), ("Role", "rbac.authorization.k8s.io/v1"),
            ("RoleBinding", "rbac.authorization.k8s.io/v1"), ("NetworkPolicy", "networking.k8s.io/v1"),
        )
        for one in made.objects(kind, _NAMESPACE, api)
    }  # fmt: skip
    assert left == {("PersistentVolumeClaim", "state-gpupool-0"), ("Secret", "ann")}


def phase(made: Cluster, name: str) -> str:
    return next(
        str(pod["status"]["phase"]) for pod in made.pods(_NAMESPACE) if pod["metadata"]["name"] == name
    )
