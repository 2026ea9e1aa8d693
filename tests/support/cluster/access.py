"""Who may do what: RBAC as it is written in the objects of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.cluster.kinds import Kind, kind_of
from tests.support.cluster.store import StatusError, Store

_RBAC = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class User:
    """A caller. `name` as Kubernetes writes it; an administrator may do everything."""

    name: str
    admin: bool = False


def check(store: Store, user: User, verb: str, kind: Kind, part: str, namespace: str, name: str) -> None:
    """Raises StatusError: the user may not. `part`: of the object, such as ``status``."""
    if user.admin:
        return
    for binding in store.all(kind_of(_RBAC, "RoleBinding"), namespace or "-"):
        reference = binding["roleRef"]
        if reference["kind"] != "Role" or not any(
            _is(user, subject) for subject in binding.get("subjects", ())
        ):
            continue
        role = store.find(kind_of(_RBAC, "Role"), namespace, reference["name"])
        if role is not None and any(
            _allows(rule, verb, kind, part, name) for rule in role.get("rules") or ()
        ):
            return
    what = f"{kind.plural}/{part}" if part else kind.plural
    raise StatusError(
        403,
        "Forbidden",
        f'{what} "{name}" is forbidden: User "{user.name}" cannot {verb} resource "{what}" '
        f'in API group "{kind.group}" in the namespace "{namespace}"',
    )


def _is(user: User, subject: Mapping[str, Any]) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return subject["kind"] == "User" and subject["name"] == user.name


def _allows(rule: Mapping[str, Any], verb: str, kind: Kind, part: str, name: str) -> bool:
    what = f"{kind.plural}/{part}" if part else kind.plural
    names = rule.get("resourceNames") or ()
    return (
        (verb in rule["verbs"] or "*" in rule["verbs"])
        and (kind.group in rule["apiGroups"] or "*" in rule["apiGroups"])
        and (what in rule["resources"] or "*" in rule["resources"])
        # A rule with names cannot be about something that has none yet, nor about lists.
        and (not names or (name in names and verb != "create"))
    )
