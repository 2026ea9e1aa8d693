"""Server-side apply: whose fields are whose, what goes because nobody applies it any more, and who is in whose way."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from tests.support.cluster.store import StatusError, timestamp

#: Fields as Kubernetes writes them (FieldsV1): names and keys of list items, down to leaves.
Fields: TypeAlias = dict[str, Any]

#: Lists whose items are found by keys, by the name of the list; other lists are one value.
_KEYS = {
    "containers": ("name",), "initContainers": ("name",), "volumes": ("name",), "env": ("name",), "claims": ("name",),
    "volumeMounts": ("mountPath",), "imagePullSecrets": ("name",), "resourceClaims": ("name",),
    "ownerReferences": ("uid",), "conditions": ("type",), "ports": ("port", "containerPort", "protocol"),
}  # fmt: skip


def apply(
    live: Mapping[str, Any] | None, config: Mapping[str, Any], manager: str, *, force: bool
) -> dict[str, Any]:
    """The object after `manager` has applied `config`.

    Raises:
        StatusError: another manager owns a field that would change.
    """
    config = _without_server_fields(config)
    mine = _fields(config, "")
    if live is None:
        made = copy.deepcopy(dict(config))
        made["metadata"]["managedFields"] = [_entry(manager, config, mine)]
        return made
    entries = {entry["manager"]: entry for entry in live["metadata"].get("managedFields", ())}
    before = entries.get(manager, {}).get("fieldsV1", {})
    others = {name: entry["fieldsV1"] for name, entry in entries.items() if name != manager}
    taken = [
        (name, path)
        for name, fields in others.items()
        for path in _common(mine, fields)
        if _at(live, path) != _at(config, path)
    ]
    if taken and not force:
        raise StatusError(
            409, "Conflict",
            f"Apply failed with {len(taken)} conflict(s): conflict with {taken[0][0]!r}: .{'.'.join(taken[0][1])}",
        )  # fmt: skip
    new = copy.deepcopy(dict(live))
    for path in _leaves(before):
        kept = path in _leaves(mine) or any(path in _leaves(fields) for fields in others.values())
        if not kept:
            _drop(new, path)
    _merge(new, config, "")
    for name, path in taken:
        entries[name] = {**entries[name], "fieldsV1": _without(entries[name]["fieldsV1"], path)}
    entries[manager] = _entry(manager, config, mine)
    new["metadata"]["managedFields"] = [entry for entry in entries.values() if entry["fieldsV1"]]
    return new


def _entry(manager: str, config: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    return {
        "manager": manager, "operation": "Apply", "apiVersion": config["apiVersion"], "time": timestamp(),
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }  # fmt: skip


def _without_server_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(dict(config))
    for key in ("managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"):
        made["metadata"].pop(key, None)
    return made


def _fields(value: Any, name: str) -> Fields:
    if isinstance(value, Mapping) and value:
        skipped = (
            {"apiVersion", "kind"} if not name else {"name", "namespace"} if name == "metadata" else set()
        )
        found = {f"f:{key}": _fields(one, key) for key, one in value.items() if key not in skipped}
        # Metadata with nothing but a name is nobody's.
        return {key: below for key, below in found.items() if key != "f:metadata" or below or name}
    if isinstance(value, list) and name in _KEYS:
        return {_key(item, name): {".": {}, **_fields(item, "item")} for item in value}
    return {}


def _key(item: Mapping[str, Any], name: str) -> str:
    return "k:" + json.dumps({key: item[key] for key in _KEYS[name] if key in item}, sort_keys=True)


def _leaves(fields: Fields) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, below in fields.items():
        if key != ".":
            found += [(key, *path) for path in _leaves(below)] or [(key,)]
    return found


def _common(left: Fields, right: Fields) -> list[tuple[str, ...]]:
    theirs = set(_leaves(right))
    return [path for path in _leaves(left) if path in theirs]


def _without(fields: Fields, path: tuple[str, ...]) -> Fields:
    below = fields.get(path[0])
    if below is None:
        return fields
    rest = _without(below, path[1:]) if len(path) > 1 else {}
    kept = {key: value for key, value in fields.items() if key != path[0]}
    return {**kept, path[0]: rest} if rest.keys() - {"."} else kept


def _step(value: Any, key: str) -> Any:
    if key.startswith("f:") and isinstance(value, Mapping):
        return value.get(key[2:])
    if key.startswith("k:") and isinstance(value, list):
        wanted = json.loads(key[2:])
        return next((one for one in value if all(one.get(name) == of for name, of in wanted.items())), None)
    return None


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = _step(value, key)
    return value


def _drop(value: Any, path: tuple[str, ...]) -> None:
    parent = _at(value, path[:-1])
    if path[-1].startswith("f:") and isinstance(parent, dict):
        parent.pop(path[-1][2:], None)
    elif isinstance(parent, list) and (item := _step(parent, path[-1])) is not None:
        parent.remove(item)
    if len(path) > 1 and parent in ({}, []):
        _drop(value, path[:-1])


def _merge(into: dict[str, Any], config: Mapping[str, Any], name: str) -> None:
    for key, value in config.items():
        if isinstance(value, Mapping) and value and isinstance(into.get(key), dict):
            _merge(into[key], value, key)
        elif isinstance(value, list) and key in _KEYS and isinstance(into.get(key), list):
            for item in value:
                same = _step(into[key], _key(item, key))
                if same is None:
                    into[key].append(copy.deepcopy(item))
                else:
                    _merge(same, item, "item")
        else:
            into[key] = copy.deepcopy(value)
