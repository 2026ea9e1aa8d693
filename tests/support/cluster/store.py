"""Objects with versions, and what happened to them since a version that is remembered."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.support.cluster.kinds import Kind, kind_of, problems


class StatusError(Exception):
    """What the API answers instead: a code, a reason and a message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "code": self.code,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One event. `before`: the object as it was; None: there was none."""

    version: int
    type: str
    kind: Kind
    now: Mapping[str, Any]
    before: Mapping[str, Any] | None


class Store:
    """All objects. Everything happens in one event loop; `changed` is called after each change."""

    def __init__(self) -> None:
        self.version = 1000
        self.objects: dict[tuple[Kind, str, str], dict[str, Any]] = {}
        self.history: deque[Change] = deque()
        #: Nothing older is remembered.
        self.floor = self.version
        self.news = asyncio.Condition()
        self.listeners: list[Callable[[], None]] = []

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        found = self.objects.get((kind, namespace if kind.namespaced else "", name))
        if found is None:
            group = f".{kind.group}" if kind.group else ""
            raise StatusError(404, "NotFound", f'{kind.plural}{group} "{name}" not found')
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, namespace if kind.namespaced else "", name))

    def all(self, kind: Kind, namespace: str = "") -> Iterator[dict[str, Any]]:
        for (one, where, _), value in sorted(self.objects.items(), key=lambda item: item[0][1:]):
            if one == kind and namespace in ("", where):
                yield value

    def of(self, api: str, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        return list(self.all(kind_of(api, kind), namespace))

    def put(self, kind: Kind, value: Mapping[str, Any]) -> dict[str, Any]:
        """Adds or replaces an object; an object that is as it was is left."""
        new = copy.deepcopy(dict(value))
        metadata = new["metadata"]
        key = (kind, metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        before = self.objects.get(key)
        known = before["metadata"] if before is not None else {}
        metadata.setdefault("uid", known.get("uid", str(uuid.uuid4())))
        metadata.setdefault("creationTimestamp", known.get("creationTimestamp", timestamp()))
        if found := problems(new):
            raise StatusError(
                422, "Invalid", f'{kind.kind} "{metadata["name"]}" is invalid: {"; ".join(found[:3])}'
            )
        if before is not None and _without_version(before) == _without_version(new):
            return before
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        self.objects[key] = new
        self._tell(Change(self.version, "ADDED" if before is None else "MODIFIED", kind, new, before))
        return new

    def change(
        self, kind: Kind, value: Mapping[str, Any], change: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """Changes the object of this name as it is now, if it is still there."""
        metadata = value["metadata"]
        now = self.find(kind, metadata.get("namespace", ""), metadata["name"])
        if now is None or now["metadata"]["uid"] != metadata["uid"]:
            raise StatusError(404, "NotFound", "it is gone")
        new = copy.deepcopy(now)
        change(new)
        return self.put(kind, new)

    def remove(self, kind: Kind, value: Mapping[str, Any]) -> None:
        metadata = value["metadata"]
        key = (kind, metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        before = self.objects.pop(key, None)
        if before is not None:
            self.version += 1
            last = copy.deepcopy(before)
            last["metadata"]["resourceVersion"] = str(self.version)
            self._tell(Change(self.version, "DELETED", kind, last, before))

    def compact(self) -> None:
        """What happened so far is forgotten: watches from before are too old."""
        self.history.clear()
        self.floor = self.version

    def _tell(self, change: Change) -> None:
        self.history.append(change)
        if len(self.history) > 5000:
            self.floor = self.history.popleft().version
        for listener in self.listeners:
            listener()


def timestamp(seconds: float | None = None) -> str:
    """As Kubernetes writes moments."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _without_version(value: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        key: one for key, one in value["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    return {**value, "metadata": metadata}
