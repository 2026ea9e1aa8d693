"""The kinds of objects that the cluster knows, and Kubernetes' own schema of them."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Kubernetes' version, as the schema has it.
VERSION = "v1.37.0"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `schema`: it is checked with Kubernetes' own."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    schema: bool = True

    @property
    def api(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.api}" if self.group else f"/api/{self.version}"


KINDS = tuple(
    Kind(group, version, plural, kind, namespaced, schema)
    for group, version, plural, kind, namespaced, schema in (
        ("", "v1", "namespaces", "Namespace", False, True),
        ("", "v1", "nodes", "Node", False, True),
        ("", "v1", "pods", "Pod", True, True),
        ("", "v1", "secrets", "Secret", True, True),
        ("", "v1", "configmaps", "ConfigMap", True, True),
        ("", "v1", "services", "Service", True, True),
        ("", "v1", "serviceaccounts", "ServiceAccount", True, True),
        ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, True),
        ("", "v1", "resourcequotas", "ResourceQuota", True, True),
        ("", "v1", "events", "Event", True, True),
        ("apps", "v1", "deployments", "Deployment", True, True),
        ("apps", "v1", "statefulsets", "StatefulSet", True, True),
        ("apps", "v1", "daemonsets", "DaemonSet", True, True),
        ("rbac.authorization.k8s.io", "v1", "roles", "Role", True, True),
        ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, True),
        ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", True, True),
        ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, True),
        ("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, True),
        ("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, True),
        ("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor", True, False),
    )
)


def kind_of(api: str, kind: str) -> Kind:
    """Raises KeyError: there is none."""
    found = next((one for one in KINDS if (one.api, one.kind) == (api, kind)), None)
    if found is None:
        raise KeyError(f"{api} {kind}")
    return found


def schema_is_missing() -> str:
    """Why nothing can be checked; empty: it can."""
    if importlib.util.find_spec("kubernetes_validate") is None:
        return "needs the package kubernetes-validate, which has Kubernetes' schema"
    return "" if _folder().is_dir() else f"kubernetes-validate has no schema of Kubernetes {VERSION}"


def problems(value: Mapping[str, Any]) -> list[str]:
    """What Kubernetes' schema has against an object: unknown fields too. Kinds without a schema are not checked."""
    try:
        kind = kind_of(str(value.get("apiVersion")), str(value.get("kind")))
    except KeyError as error:
        return [f"no kind {error.args[0]} is known"]
    if not kind.schema:
        return []
    errors = sorted(_validator(kind).iter_errors(value), key=lambda error: list(map(str, error.path)))
    return [f"{'.'.join(map(str, error.path)) or kind.kind}: {error.message[:200]}" for error in errors]


def _folder() -> Path:
    spec = importlib.util.find_spec("kubernetes_validate")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "kubernetes-json-schema" / f"{VERSION}-local-strict"


@functools.cache
def _registry() -> Any:
    from referencing import Registry, Resource

    definitions = json.loads((_folder() / "_definitions.json").read_text())
    return Registry().with_resource(definitions["$id"], Resource.from_contents(definitions))


@functools.cache
def _validator(kind: Kind) -> Any:
    from jsonschema.validators import Draft202012Validator

    group = kind.group.partition(".")[0]
    name = f"{kind.kind.lower()}-{f'{group}-' if group else ''}{kind.version}.json"
    return Draft202012Validator(json.loads((_folder() / name).read_text()), registry=_registry())
