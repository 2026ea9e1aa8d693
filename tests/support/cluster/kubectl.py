"""A cluster that is there already, driven by `kubectl`: what tests can do to it, as `cluster.py` offers it for the one in this
process.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.helm import program


class KubectlError(OSError):
    """`kubectl` failed. The message is what it said."""


class KubectlCluster:
    """A real cluster.

    Attributes:
        kubeconfig: of somebody who may make namespaces, and everything in them.
    """

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What `kubectl` prints.

        Raises:
            KubectlError: It failed.
        """
        found = program("kubectl")
        assert found is not None
        done = subprocess.run(
            [found, "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def namespace(self, name: str, security: str = "restricted") -> None:
        labels = {"pod-security.kubernetes.io/enforce": security}
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def remove_namespace(self, name: str) -> None:
        """With everything in it; it returns when nothing is left."""
        self.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=280s")

    def put(self, value: Mapping[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(value))

    def objects(self, kind: str, namespace: str = "", api: str = "v1") -> list[dict[str, Any]]:
        group, _, version = api.rpartition("/")
        full = f"{kind}.{version}.{group}" if group else kind
        found: list[dict[str, Any]] = json.loads(
            self.kubectl("get", full, "--namespace", namespace, "--output=json")
        )["items"]
        return found

    def pods(self, namespace: str = "") -> list[dict[str, Any]]:
        return self.objects("Pod", namespace)

    def evict(self, namespace: str, name: str) -> None:
        """As `kubectl drain` does for each pod of a machine."""
        eviction = {
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}
        }  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        self.kubectl("create", "--raw", path, "--filename=-", stdin=json.dumps(eviction))

    def kill(self, namespace: str, name: str) -> None:
        self.kubectl("delete", "pod", name, "--namespace", namespace, "--grace-period=1", "--wait=false")

    def output(self, namespace: str, name: str) -> str:
        return self.kubectl("logs", name, "--namespace", namespace)

    def run_in(self, namespace: str, pod: str, command: Sequence[str]) -> str:
        return self.kubectl("exec", "--namespace", namespace, pod, "--", *command)
