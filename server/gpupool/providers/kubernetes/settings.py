"""What the provider of pods is told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_LABEL_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_QUANTITY: Final = re.compile(r"\d{1,12}(\.\d{1,9})?(m|k|Ki|M|Mi|G|Gi|T|Ti)?", re.ASCII)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: Objects that may own the pods, with the path of their API.
OWNERS: Final = {"configmap": "v1", "statefulset": "apps/v1", "deployment": "apps/v1"}


class KubernetesSettingsError(ValueError):
    """A setting cannot be used; one sentence, without the place where it stands."""


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """What the provider of pods is told.

    Attributes:
        pool_id: marks this pool's objects, in their labels and names.
        name: of the provider in the pool.
        agent: the agent's command in the container, without its name.
        image: of the container; its user needs no rights.
        namespace: of the pods; empty: the pool's own, or that of the kubeconfig's context.
        kubeconfig: a file; empty: the pool's service account, or where there is none, what kubectl uses.
        context: of the kubeconfig; empty: the current one.
        resource: of one device, for a device plug-in: ``nvidia.com/gpu``; empty: none is asked for.
        device_class: of one device, for a claim (DRA); then `resource` counts for nothing.
        device_selector: a CEL expression that a claim's devices must fulfil.
        cpu: that is requested, as Kubernetes writes it.
        memory: that is requested, and never exceeded.
        node_selector: labels of Kubernetes' nodes.
        tolerations: ``KEY``, ``KEY:EFFECT``, ``KEY=VALUE:EFFECT``.
        priority_class: of the pods.
        service_account: of the pods, which get no token of it.
        runtime_class: of the pods.
        image_pull_secrets: names of Secrets.
        image_pull_policy: ``Always``, ``IfNotPresent`` or ``Never``; empty: Kubernetes' own choice.
        environment: of the container.
        time_limit: seconds after which Kubernetes ends a pod; None: never.
        grace: seconds between SIGTERM and SIGKILL; sessions move to other nodes meanwhile.
        secret: the Secret with the agents' token; empty: one with a name that follows from the provider's.
        token_file: what is put into it; None: the Secret is there already.
        ca_file: the authority of the pool's certificate; goes into the Secret, too.
        owner: ``configmap/NAME``: with it the pods go; empty: they have none.
        keep_ended: seconds for which a pod that has ended can still be looked at.
    """

    pool_id: str
    name: str
    agent: Sequence[str]
    image: str
    namespace: str = ""
    kubeconfig: str = ""
    context: str = ""
    resource: str = "nvidia.com/gpu"
    device_class: str = ""
    device_selector: str = ""
    cpu: str = "1"
    memory: str = "4Gi"
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[str] = ()
    priority_class: str = ""
    service_account: str = ""
    runtime_class: str = ""
    image_pull_secrets: Sequence[str] = ()
    image_pull_policy: str = ""
    environment: Mapping[str, str] | None = None
    time_limit: float | None = None
    grace: float = 120.0
    secret: str = ""
    token_file: Path | None = None
    ca_file: Path | None = None
    owner: str = ""
    keep_ended: float = 3600.0

    def __post_init__(self) -> None:
        """Raises KubernetesSettingsError: Kubernetes could not have it."""
        for key, pattern in (
            ("namespace", _NAMESPACE), ("secret", _OBJECT), ("priority_class", _OBJECT), ("runtime_class", _OBJECT),
            ("service_account", _OBJECT), ("resource", _LABEL_KEY), ("device_class", _OBJECT), ("cpu", _QUANTITY),
            ("memory", _QUANTITY),
        ):  # fmt: skip
            value = getattr(self, key)
            if value and not pattern.fullmatch(value):
                raise KubernetesSettingsError(f"{key} is {value[:80]!r}, which Kubernetes would refuse")
        if self.image_pull_policy not in ("", *_PULL_POLICIES):
            raise KubernetesSettingsError(
                f"image_pull_policy is {self.image_pull_policy[:80]!r}, not one of {', '.join(_PULL_POLICIES)}"
            )
        for name in self.image_pull_secrets:
            if not _OBJECT.fullmatch(name):
                raise KubernetesSettingsError(f"image_pull_secrets has {name[:80]!r}, which names no Secret")
        for key, value in (self.node_selector or {}).items():
            if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
                raise KubernetesSettingsError(f"node_selector has {key[:80]}={value[:80]}, which is no label")
        for variable in self.environment or {}:
            if not _VARIABLE.fullmatch(variable):
                raise KubernetesSettingsError(f"environment has {variable[:80]!r}, which is no variable")
        if not self.image:
            raise KubernetesSettingsError("image is missing: the image of the node agent")
        if self.device_selector and not self.device_class:
            raise KubernetesSettingsError("device_selector is for claims; it needs device_class")
        if self.ca_file and not self.token_file:
            raise KubernetesSettingsError(
                f"ca_file {self.ca_file} goes into the Secret that the pool writes, and it writes none"
            )
        if self.time_limit is not None and self.time_limit < 1:
            raise KubernetesSettingsError(f"time_limit is {self.time_limit:g} s; it must be at least 1 s")
        if self.grace < 1:
            raise KubernetesSettingsError(f"grace is {self.grace:g} s; it must be at least 1 s")
        for text in self.tolerations:
            toleration(text)
        if self.owner:
            owner_of(self.owner)

    @property
    def secret_name(self) -> str:
        """The Secret with the token; empty: agents have none."""
        return self.secret or (f"gpupool-{self.pool_id}-{self.name}" if self.token_file else "")


def toleration(text: str) -> dict[str, Any]:
    """A pod's toleration of ``KEY``, ``KEY:EFFECT`` or ``KEY=VALUE:EFFECT``.

    Raises:
        KubernetesSettingsError: it is none.
    """
    left, colon, effect = text.partition(":")
    key, equals, value = left.partition("=")
    if (
        not _LABEL_KEY.fullmatch(key)
        or not _LABEL_VALUE.fullmatch(value)
        or (colon and effect not in _EFFECTS)
    ):
        raise KubernetesSettingsError(
            f"tolerations has {text[:80]!r}; write KEY, KEY:EFFECT or KEY=VALUE:EFFECT, with one of {', '.join(_EFFECTS)}"
        )
    found: dict[str, Any] = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        found["value"] = value
    return {**found, "effect": effect} if effect else found


def owner_of(text: str) -> tuple[str, str]:
    """Kind and name of ``configmap/NAME``.

    Raises:
        KubernetesSettingsError: it is none.
    """
    kind, slash, name = text.partition("/")
    if not slash or kind not in OWNERS or not _OBJECT.fullmatch(name):
        raise KubernetesSettingsError(
            f"owner is {text[:80]!r}; write one of {', '.join(f'{one}/NAME' for one in OWNERS)}"
        )
    return kind, name
