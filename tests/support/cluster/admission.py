"""What is refused or completed before an object is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.support.cluster.kinds import Kind, kind_of
from tests.support.cluster.store import StatusError, Store

_NAMES = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: What of a workload may change after it was made; of other kinds all may.
_CHANGEABLE = {
    "StatefulSet": {
        "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
    },
    "ResourceClaimTemplate": set(),
    "Pod": {"nodeName", "activeDeadlineSeconds"},
}  # fmt: skip
_RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


def admit(store: Store, kind: Kind, new: dict[str, Any], old: Mapping[str, Any] | None) -> None:
    """Completes `new`, or raises StatusError."""
    name = new["metadata"].get("name", "")
    if not _NAMES.fullmatch(name) and kind.group != "rbac.authorization.k8s.io":
        raise StatusError(
            422, "Invalid", f"metadata.name: Invalid value: {name!r}: a lowercase RFC 1123 subdomain"
        )
    if kind.namespaced and store.find(kind_of("v1", "Namespace"), "", new["metadata"]["namespace"]) is None:
        raise StatusError(404, "NotFound", f'namespaces "{new["metadata"]["namespace"]}" not found')
    if kind.kind == "Pod":
        _complete_pod(new)
    if old is not None:
        _check_change(kind, new, old)
        return
    if kind.kind == "Pod":
        _check_pod_security(store, new)
        _check_quota(store, new)


def _complete_pod(pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("schedulerName", "default-scheduler")
    pod.setdefault("status", {"phase": "Pending", "qosClass": "Burstable"})


def _check_change(kind: Kind, new: Mapping[str, Any], old: Mapping[str, Any]) -> None:
    changeable = _CHANGEABLE.get(kind.kind)
    if changeable is not None:
        before, after = old.get("spec", {}), new.get("spec", {})
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)} - changeable
        if changed:
            raise StatusError(
                422, "Invalid", f'{kind.kind} "{new["metadata"]["name"]}" is invalid: spec: Forbidden: updates to '
                f"{', '.join(sorted(changed))} are forbidden",
            )  # fmt: skip
    if kind.kind in ("Deployment", "DaemonSet") and new["spec"]["selector"] != old["spec"]["selector"]:
        raise StatusError(422, "Invalid", f"{kind.kind}: spec.selector: field is immutable")


def _check_pod_security(store: Store, pod: Mapping[str, Any]) -> None:
    namespace = store.get(kind_of("v1", "Namespace"), "", pod["metadata"]["namespace"])
    level = namespace["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce", "privileged")
    found = restricted_problems(pod["spec"]) if level == "restricted" else []
    if found:
        raise StatusError(
            403, "Forbidden", f'pods "{pod["metadata"]["name"]}" is forbidden: violates PodSecurity "restricted:latest": '
            + "; ".join(found),
        )  # fmt: skip


def restricted_problems(spec: Mapping[str, Any]) -> list[str]:
    """What the standard *restricted* of PodSecurity has against a pod."""
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in spec.get("volumes", ()):
        if not (volume.keys() - {"name"}) <= _RESTRICTED_VOLUMES:
            found.append(f"volume {volume['name']}")
    own = spec.get("securityContext", {})
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        context = container.get("securityContext", {})
        name = container["name"]
        capabilities = context.get("capabilities", {})
        checks = {
            "privileged": not context.get("privileged"),
            "allowPrivilegeEscalation": context.get("allowPrivilegeEscalation") is False,
            "capabilities": capabilities.get("drop") == ["ALL"]
            and set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"},
            "runAsNonRoot": context.get("runAsNonRoot", own.get("runAsNonRoot")) is True,
            "runAsUser": context.get("runAsUser", own.get("runAsUser")) != 0,
            "seccompProfile": context.get("seccompProfile", own.get("seccompProfile", {})).get("type")
            in ("RuntimeDefault", "Localhost"),
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", ())),
        }
        found += [f"{key} (container {name!r})" for key, holds in checks.items() if not holds]
    return found


def _check_quota(store: Store, pod: Mapping[str, Any]) -> None:
    namespace = pod["metadata"]["namespace"]
    for quota in store.all(kind_of("v1", "ResourceQuota"), namespace):
        for key, limit in quota["spec"].get("hard", {}).items():
            resource = key.removeprefix("requests.")
            if resource == key:
                continue
            living = [
                one for one in store.all(kind_of("v1", "Pod"), namespace)
                if one.get("status", {}).get("phase") not in ("Succeeded", "Failed")
            ]  # fmt: skip
            used, asked = sum(requested(one, resource) for one in living), requested(pod, resource)
            if used + asked > int(limit):
                raise StatusError(
                    403, "Forbidden", f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: '
                    f"{quota['metadata']['name']}, requested: {key}={asked}, used: {key}={used}, limited: {key}={limit}",
                )  # fmt: skip


def requested(pod: Mapping[str, Any], resource: str) -> int:
    """Of a resource that is counted in whole devices."""
    containers = pod["spec"]["containers"]
    return sum(int(one.get("resources", {}).get("requests", {}).get(resource, 0)) for one in containers)
