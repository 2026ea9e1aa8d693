"""The objects that are applied, as JSON: pure functions of an order and the settings.

All hold to the standard *restricted* of PodSecurity: no root, no capabilities, a root file system that cannot be written. A
device needs no more than that, for a device plug-in or a DRA driver puts it into the container.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from gpupool.providers.contract import JobOrder
from gpupool.providers.kubernetes.settings import KubernetesSettings, toleration

#: An object of Kubernetes, as its API has it.
Manifest: TypeAlias = dict[str, Any]

#: Who applies the fields of these objects, as Kubernetes remembers it.
FIELD_MANAGER: Final = "gpupool"
_LABELS: Final = "jupyter-gpupool.github.io"
POOL_LABEL: Final = f"{_LABELS}/pool"
PROVIDER_LABEL: Final = f"{_LABELS}/provider"
ROLE_LABEL: Final = f"{_LABELS}/role"
JOB_LABEL: Final = f"{_LABELS}/job"
NODE_ANNOTATION: Final = f"{_LABELS}/node"
CONTAINER: Final = "agent"
#: Of the image's user, see containers/node.Dockerfile.
_USER: Final = 1000
_SECRETS: Final = "/run/secrets/gpupool"
_STATE: Final = "/var/lib/gpupool"
_TOKEN: Final = "token"  # noqa: S105 (a key's name)
_CA: Final = "ca.pem"
#: Seconds of the grace that are left for the agent's own end.
_OWN_END: Final = 10.0


def selector(settings: KubernetesSettings) -> str:
    """Finds the pods of this provider, and no others."""
    return f"{POOL_LABEL}={settings.pool_id},{PROVIDER_LABEL}={settings.name}"


def pod_name(settings: KubernetesSettings, job: str) -> str:
    """Of a job's pod: the same for the same job."""
    return f"gpupool-{settings.pool_id}-{job}"


def pod(settings: KubernetesSettings, order: JobOrder, owners: Sequence[Manifest] = ()) -> Manifest:
    """One node agent."""
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": round(settings.grace),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The pause container is then process 1. The kernel ignores a signal of process 1 until it has a handler: an agent that is
        # told to end in its first second would not hear it, and the pod would last for all of its grace.
        "shareProcessNamespace": True,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, order)],
        "volumes": _volumes(settings),
    }
    if settings.time_limit is not None:
        spec["activeDeadlineSeconds"] = max(1, round(settings.time_limit))
    if settings.device_class:
        spec["resourceClaims"] = [
            {"name": "devices", "resourceClaimTemplateName": _template_name(settings, order.devices)}
        ]
    if settings.node_selector:
        spec["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        spec["tolerations"] = [toleration(text) for text in settings.tolerations]
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    for key, value in (
        ("priorityClassName", settings.priority_class),
        ("serviceAccountName", settings.service_account),
        ("runtimeClassName", settings.runtime_class),
    ):
        if value:
            spec[key] = value
    made = _object("v1", "Pod", pod_name(settings, order.job), settings, owners)
    made["metadata"]["labels"] |= {JOB_LABEL: order.job, ROLE_LABEL: "node"}
    made["metadata"]["annotations"] = {
        NODE_ANNOTATION: order.node,
        # It goes back by itself when nobody needs it; until then sessions are on it.
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    return {**made, "spec": spec}


def _container(settings: KubernetesSettings, order: JobOrder) -> Manifest:
    command = [*settings.agent, "--name", order.node, "--listen-host", "0.0.0.0"]  # noqa: S104
    command += ["--advertise-host", "$(POD_IP)", "--drain-wait", f"{max(0.0, settings.grace - _OWN_END):g}s"]
    environment: list[Manifest] = [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        # A folder of its own: the volume itself belongs to root.
        {"name": "GPUPOOL_HOME", "value": f"{_STATE}/home"},
    ]
    mounts: list[Manifest] = [
        {"name": "state", "mountPath": _STATE},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    if settings.secret_name:
        command += ["--token-file", f"{_SECRETS}/{_TOKEN}"]
        mounts.append({"name": "secret", "mountPath": _SECRETS, "readOnly": True})
    if settings.ca_file:
        environment.append({"name": "GPUPOOL_CA_FILE", "value": f"{_SECRETS}/{_CA}"})
    if not settings.device_class and not settings.resource:
        # On a machine with GPUs the image's own word would give it all of them, past everybody's accounts.
        environment.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    environment += [{"name": name, "value": value} for name, value in (settings.environment or {}).items()]
    requests, limits = {"cpu": settings.cpu, "memory": settings.memory}, {"memory": settings.memory}
    resources: Manifest = {"requests": requests, "limits": limits}
    if settings.device_class:
        resources["claims"] = [{"name": "devices"}]
    elif settings.resource:
        requests[settings.resource] = limits[settings.resource] = str(order.devices)
    return {
        "name": CONTAINER,
        "image": settings.image,
        **({"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}),
        "command": command,
        "env": environment,
        "resources": resources,
        "volumeMounts": mounts,
        # Why an agent could not start is then in the pod's status, and from there before those that wait.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _volumes(settings: KubernetesSettings) -> list[Manifest]:
    found: list[Manifest] = [{"name": "state", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    if settings.secret_name:
        # Readable by the container's group alone; the owner is root, whatever is said here.
        found.append({"name": "secret", "secret": {"secretName": settings.secret_name, "defaultMode": 0o440}})
    return found


def secret(
    settings: KubernetesSettings, token: bytes, ca: bytes | None, owners: Sequence[Manifest] = ()
) -> Manifest:
    """The agents' token, and the authority of the pool's certificate."""
    data = {_TOKEN: _base64(token)} | ({_CA: _base64(ca)} if ca is not None else {})
    made = _object("v1", "Secret", settings.secret_name, settings, owners)
    return {**made, "type": "Opaque", "data": data}


def claim_template(
    settings: KubernetesSettings, devices: int, owners: Sequence[Manifest] = ()
) -> Manifest | None:
    """What the claim of each pod is made of; None: devices come from a device plug-in."""
    if not settings.device_class:
        return None
    name = _template_name(settings, devices)
    made = _object("resource.k8s.io/v1", "ResourceClaimTemplate", name, settings, owners)
    labels = dict(made["metadata"]["labels"])
    return {**made, "spec": {"metadata": {"labels": labels}, "spec": _claim(settings, devices)}}


def _claim(settings: KubernetesSettings, devices: int) -> Manifest:
    exactly: Manifest = {
        "deviceClassName": settings.device_class,
        "allocationMode": "ExactCount",
        "count": devices,
    }
    if settings.device_selector:
        exactly["selectors"] = [{"cel": {"expression": settings.device_selector}}]
    return {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}


def _template_name(settings: KubernetesSettings, devices: int) -> str:
    """Templates cannot be changed: another claim has another name."""
    text = json.dumps(_claim(settings, devices), sort_keys=True)
    return f"gpupool-{settings.pool_id}-{settings.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def owner_reference(owner: Mapping[str, Any]) -> Manifest:
    """To an object that was read: with it, what names it goes too."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def _object(
    api: str, kind: str, name: str, settings: KubernetesSettings, owners: Sequence[Manifest]
) -> Manifest:
    metadata: Manifest = {
        "name": name,
        "labels": {
            "app.kubernetes.io/name": "gpupool-node",
            "app.kubernetes.io/managed-by": "gpupool",
            POOL_LABEL: settings.pool_id,
            PROVIDER_LABEL: settings.name,
        },
    }
    if owners:
        metadata["ownerReferences"] = list(owners)
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
