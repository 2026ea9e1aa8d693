"""A release of the chart from its installation to its end, with `helm` itself, on any cluster that tests can act on.

The pool runs in its pod, with the rights that the chart gave it. Users are pods, as JupyterHub starts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.support.helm import CHART, run
from tests.support.patience import until_late

#: How many devices a program sees.
COUNTS_DEVICES = (
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int()\n"
    "assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0\n"
    "print('devices', n.value)"
)


class ActedOn(Protocol):
    """What the story does to a cluster: the one in this process and one behind `kubectl` can do it."""

    kubeconfig: Path

    def put(self, value: Mapping[str, Any], /) -> Any: ...
    def objects(self, kind: str, namespace: str = "", api: str = "v1") -> list[dict[str, Any]]: ...
    def pods(self, namespace: str = "") -> list[dict[str, Any]]: ...
    def output(self, namespace: str, name: str) -> str: ...
    def run_in(self, namespace: str, pod: str, command: Sequence[str]) -> str: ...


@dataclass
class Release:
    """A release named gpupool.

    Attributes:
        made: The cluster.
        folder: For helm's caches.
        values: Options of `helm` for each installation and upgrade.
        image: Of users' pods.
        port: Of the pool's service.
        steps: Seconds since `begun` at which something was seen first.
    """

    made: ActedOn
    namespace: str
    folder: Path
    values: Sequence[str]
    image: str = "gpupool-singleuser"
    port: int = 7460
    begun: float = field(default_factory=time.monotonic)
    steps: dict[str, float] = field(default_factory=dict)

    def helm(self, *arguments: str) -> None:
        done = run(self.folder, *arguments, "--namespace", self.namespace, kubeconfig=self.made.kubeconfig)
        assert done.returncode == 0, done.stderr

    def install(self, *values: str) -> None:
        self.helm("install", "gpupool", str(CHART), *self.values, *values)
        self.wait("the pool serves", lambda: "serving" in self.log_of_pool(), 60)

    def wait(self, step: str, what: Callable[[], Any], seconds: float) -> Any:
        deadline = until_late(seconds)
        while not (found := what()):
            said = {pod["metadata"]["name"]: pod.get("status") for pod in self.made.pods(self.namespace)}
            assert time.monotonic() < deadline, f"{step}: {said}\n{self.log_of_pool()}"
            time.sleep(0.1)
        self.steps[step] = time.monotonic() - self.begun
        return found

    def log_of_pool(self) -> str:
        try:
            return self.made.output(self.namespace, "gpupool-0")
        except OSError:
            return "no log"

    def nodes(self) -> list[Mapping[str, Any]]:
        """Pods that the pool has asked for."""
        return [pod for pod in self.made.pods(self.namespace) if pod["metadata"]["name"].startswith("gpupool-") and
                "jupyter-gpupool.github.io/job" in pod["metadata"]["labels"]]  # fmt: skip

    def uid(self, kind: str, name: str, api: str = "v1") -> str:
        (found,) = [
            one for one in self.made.objects(kind, self.namespace, api) if one["metadata"]["name"] == name
        ]
        return str(found["metadata"]["uid"])

    def certificate(self) -> Mapping[str, str]:
        (found,) = [
            one["data"] for one in self.made.objects("Secret", self.namespace) if one["metadata"]["name"] == "gpupool-tls"
        ]  # fmt: skip
        return dict(found)

    def phase(self, pod: str) -> str:
        return next(
            str(one["status"]["phase"])
            for one in self.made.pods(self.namespace)
            if one["metadata"]["name"] == pod
        )

    # ---- users

    def user(self, name: str) -> None:
        """A token of the pool for her, in a Secret of her name."""
        token = self.made.run_in(self.namespace, "gpupool-0", ["gpupool", "token", "create", "--user", name])
        metadata = {"name": name, "namespace": self.namespace}
        self.made.put(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": token.strip()}}
        )  # fmt: skip

    def start(self, pod: str, user: str, program: str) -> None:
        """Her pod runs the program on a fifth of a GPU, when there is one."""
        command = ["gpupool", "run", "-p", "0.2", "--wait", "10m", "--", "python", "-c", program]
        self.made.put(self._pod(pod, user, command))

    def ended(self, pod: str, seconds: float) -> str:
        """What the program has written, when it has ended well."""
        self.wait(f"{pod} has ended", lambda: self.phase(pod) in ("Succeeded", "Failed"), seconds)
        said = self.made.output(self.namespace, pod)
        assert self.phase(pod) == "Succeeded", f"{said}\n{self.log_of_pool()}"
        return said

    def _pod(self, name: str, user: str, command: list[str]) -> dict[str, Any]:
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": {"component": "singleuser-server"},
            },
            "status": {"phase": "Pending"},  # a real API server writes its own
            "spec": {
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "user", "image": self.image, "command": command,
                        "securityContext": {
                            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                        },
                        "env": [
                            {"name": "GPUPOOL_ENDPOINT", "value": f"tls:gpupool.{self.namespace}.svc:{self.port}"},
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
                    {"name": "token", "secret": {"secretName": user, "defaultMode": 0o440}},
                    {"name": "state", "emptyDir": {}},
                ],
            },
        }  # fmt: skip


def from_its_installation_to_its_end(release: Release) -> None:
    """A share for a user without any node before, an upgrade, and the end."""
    release.install()
    before = _what_has_a_state(release)
    certificate = release.certificate()

    # A user of the pool asks for a share: a pod comes, serves her, and goes when nobody needs it.
    release.user("ann")
    release.begun = time.monotonic()
    release.start("ann-1", "ann", COUNTS_DEVICES)
    release.wait("a node's pod is there", release.nodes, 60)
    assert "devices 1" in release.ended("ann-1", 120)
    release.wait("the node's pod is gone", lambda: not release.nodes(), 60)

    # An upgrade changes what it is about, and nothing that has a state.
    more = ("--set", "providers.kube.minimum=1", "--set", "providers.kube.maximum=2")
    release.helm("upgrade", "gpupool", str(CHART), *release.values, *more)
    assert _what_has_a_state(release) == before
    assert release.certificate() == certificate
    release.wait("the pool has begun anew, with its new minimum", release.nodes, 90)
    leave_nothing(release, "ann-1")


def _what_has_a_state(release: Release) -> Mapping[str, str]:
    return {
        "StatefulSet": release.uid("StatefulSet", "gpupool", "apps/v1"),
        "PersistentVolumeClaim": release.uid("PersistentVolumeClaim", "state-gpupool-0"),
        "ConfigMap": release.uid("ConfigMap", "gpupool-providers"),
    }


#: What the cluster itself puts into each namespace, some of it on OpenShift only.
_OF_THE_CLUSTER = {
    ("ConfigMap", "kube-root-ca.crt"),
    ("ConfigMap", "openshift-service-ca.crt"),
    ("ServiceAccount", "default"),
}


#: Kinds of everything that the chart and the pool make, but pods.
_MADE = (
    ("Secret", "v1"), ("ConfigMap", "v1"), ("Service", "v1"), ("ServiceAccount", "v1"), ("PersistentVolumeClaim", "v1"),
    ("StatefulSet", "apps/v1"), ("Role", "rbac.authorization.k8s.io/v1"), ("RoleBinding", "rbac.authorization.k8s.io/v1"),
    ("NetworkPolicy", "networking.k8s.io/v1"),
)  # fmt: skip


def leave_nothing(release: Release, *users: str) -> None:
    """Nothing is left of the release but its volume, and the users' pods and secrets."""
    release.helm("uninstall", "gpupool")
    release.wait(
        "the release is gone",
        lambda: {pod["metadata"]["name"] for pod in release.made.pods(release.namespace)} == set(users),
        90,
    )
    kept = _OF_THE_CLUSTER | {("PersistentVolumeClaim", "state-gpupool-0"), ("Secret", "ann")}

    def left() -> set[tuple[str, str]]:
        return {
            (kind, one["metadata"]["name"])
            for kind, api in _MADE
            for one in release.made.objects(kind, release.namespace, api)
        } - kept

    # What the pool made goes when a garbage collector sees that its owner is gone.
    deadline = until_late(60)
    while found := left():
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    assert release.uid("PersistentVolumeClaim", "state-gpupool-0")
