"""The API over HTTP: what clients of Kubernetes ask, and what it answers."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from aiohttp import web

from tests.support.cluster import access, admission, apply, protobuf
from tests.support.cluster.access import User
from tests.support.cluster.kinds import KINDS, VERSION, Kind, kind_of, problems
from tests.support.cluster.store import Change, StatusError, Store, timestamp

_PARTS = {"status", "log", "eviction"}
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Api:
    """Requests on a store.

    Attributes:
        tokens: who calls, by bearer token.
        asked: what was asked, as verb and path: tests count.
        refuse: called for each request before it is carried out; may raise StatusError.
        lose: called after a change was made; true: the connection breaks instead of an answer.
        instead: answered to everything; None: answers are as they are.
        bookmark_seconds: between bookmarks of a watch.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tokens: dict[str, User] = {}
        self.asked: list[tuple[str, str]] = []
        self.refuse: Callable[[str, str], None] = lambda verb, path: None
        self.lose: Callable[[str, str], bool] = lambda verb, path: False
        self.logs: Callable[[str, str], str] = lambda namespace, pod: ""
        self.instead: str | None = None
        self.bookmark_seconds = 1.0
        self.watches: set[asyncio.Task[Any]] = set()

    def application(self) -> web.Application:
        made = web.Application(client_max_size=4 * 1024 * 1024)
        made.router.add_route("*", "/{path:.*}", self._serve)
        return made

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if self.instead is not None:
            return web.Response(text=self.instead, content_type="application/json")
        try:
            return await self._answer(request)
        except StatusError as error:
            return web.json_response(error.as_json(), status=error.code)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        user = self._user(request)
        if (found := _discovery(path)) is not None:
            return web.json_response(found)
        kind, namespace, name, part = _place(path)
        verb = _VERBS[request.method]
        if verb == "get" and not name:
            verb = "watch" if request.query.get("watch") in ("true", "1") else "list"
        if verb == "delete" and not name:
            verb = "deletecollection"
        self.asked.append((verb, path))
        self.refuse(verb, path)
        access.check(self.store, user, verb, kind, part, namespace, name)
        if verb == "watch":
            return await self._watch(request, kind, namespace)
        if verb == "list":
            return web.json_response(self._list(request, kind, namespace))
        if verb == "get":
            if part == "log":
                return web.Response(text=self.logs(namespace, name))
            return web.json_response(self.store.get(kind, namespace, name))
        body = await _body(request)
        code, done = self._write(request, verb, user, kind, namespace, name, part, body)
        if self.lose(verb, path):
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(done, status=code)

    def _user(self, request: web.Request) -> User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = self.tokens.get(token)
        if scheme != "Bearer" or user is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return user

    # ---- writing

    def _write(
        self, request: web.Request, verb: str, user: User, kind: Kind, namespace: str, name: str, part: str,
        body: dict[str, Any],
    ) -> tuple[int, Mapping[str, Any]]:  # fmt: skip
        if verb == "deletecollection":
            for value in list(self.store.all(kind, namespace)):
                if _selected(value, request.query.get("labelSelector", "")):
                    self.delete(kind, value, body)
            return 200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        if verb == "delete":
            for key in ("gracePeriodSeconds", "propagationPolicy"):
                if key in request.query:
                    text = request.query[key]
                    body.setdefault(key, int(text) if text.lstrip("-").isdigit() else text)
            return 200, self.delete(kind, self.store.get(kind, namespace, name), body)
        if part == "eviction":
            self.evict(namespace, name)
            return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        if verb == "create":
            body["metadata"].setdefault("namespace", namespace) if namespace else None
            if self.store.find(kind, namespace, body["metadata"].get("name", "")) is not None:
                raise StatusError(
                    409, "AlreadyExists", f'{kind.plural} "{body["metadata"]["name"]}" already exists'
                )
            return 201, self._store(request, kind, body, None)
        if request.content_type.startswith("application/apply-patch"):
            old = self.store.find(kind, namespace, name)
            if old is None:
                access.check(self.store, user, "create", kind, "", namespace, name)
            if namespace:
                body["metadata"].setdefault("namespace", namespace)
            if "fieldManager" not in request.query:
                raise StatusError(400, "BadRequest", "fieldManager is required for apply patch")
            force = request.query.get("force") == "true"
            new = apply.apply(old, body, request.query["fieldManager"], force=force)
            return (200 if old else 201), self._store(request, kind, new, old)
        old = self.store.get(kind, namespace, name)
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise StatusError(
                409,
                "Conflict",
                "the object has been modified; please apply your changes to the latest version",
            )
        new = (
            _patched(old, body)
            if verb == "patch"
            else {**body, "metadata": {**old["metadata"], **body["metadata"]}}
        )
        if part == "status":
            new = {**copy.deepcopy(old), "status": new.get("status", {})}
        return 200, self._store(request, kind, new, old)

    def _store(
        self, request: web.Request, kind: Kind, new: dict[str, Any], old: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        if found := problems(new):
            raise StatusError(422, "Invalid", f"{kind.kind} is invalid: {'; '.join(found[:3])}")
        admission.admit(self.store, kind, new, old)
        if "dryRun" in request.query:
            return new
        return self.store.put(kind, new)

    def delete(self, kind: Kind, value: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
        """As a client asks: pods have a grace, what an object owns goes after it unless it is orphaned."""
        wanted = options.get("preconditions", {}).get("uid")
        if wanted and wanted != value["metadata"]["uid"]:
            raise StatusError(409, "Conflict", f"Precondition failed: UID in precondition: {wanted}")
        if kind.kind == "Pod":
            return self._delete_pod(kind, value, options)
        if options.get("propagationPolicy") == "Orphan":
            self._orphan(value["metadata"]["uid"])
        self.store.remove(kind, value)
        return value

    def _delete_pod(
        self, kind: Kind, pod: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        grace = options.get("gracePeriodSeconds")
        grace = pod["spec"]["terminationGracePeriodSeconds"] if grace is None else int(grace)
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if grace == 0 or over or not pod["spec"].get("nodeName"):
            self.store.remove(kind, pod)
            return pod
        if pod["metadata"].get("deletionTimestamp"):
            return pod

        def mark(new: dict[str, Any]) -> None:
            new["metadata"]["deletionTimestamp"] = timestamp(time.time() + grace)
            new["metadata"]["deletionGracePeriodSeconds"] = grace

        return self.store.change(kind, pod, mark)

    def evict(self, namespace: str, name: str) -> None:
        """As `kubectl drain` does."""
        kind = kind_of("v1", "Pod")

        def mark(new: dict[str, Any]) -> None:
            conditions = [
                one for one in new["status"].get("conditions", ()) if one["type"] != "DisruptionTarget"
            ]
            new["status"]["conditions"] = [
                *conditions,
                {
                    "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting", "lastTransitionTime": timestamp(),
                },
            ]  # fmt: skip

        pod = self.store.change(kind, self.store.get(kind, namespace, name), mark)
        self._delete_pod(kind, pod, {})

    def _orphan(self, uid: str) -> None:
        for (kind, _, _), value in list(self.store.objects.items()):
            owners = value["metadata"].get("ownerReferences", ())
            if any(owner["uid"] == uid for owner in owners):
                new = copy.deepcopy(value)
                new["metadata"]["ownerReferences"] = [owner for owner in owners if owner["uid"] != uid]
                self.store.put(kind, new)

    # ---- reading

    def _list(self, request: web.Request, kind: Kind, namespace: str) -> Mapping[str, Any]:
        labels, fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
        items = [
            value
            for value in self.store.all(kind, namespace)
            if _selected(value, labels) and _has_fields(value, fields)
        ]
        metadata = {"resourceVersion": str(self.store.version)}
        return {"kind": f"{kind.kind}List", "apiVersion": kind.api, "metadata": metadata, "items": items}

    async def _watch(self, request: web.Request, kind: Kind, namespace: str) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or 0) or self.store.version
        if since < self.store.floor:
            raise StatusError(410, "Expired", f"too old resource version: {since} ({self.store.floor})")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self.watches.add(task)
        try:
            await self._stream(request, answer, kind, namespace, since)
        except ConnectionError:
            pass
        finally:
            self.watches.discard(task)
        return answer

    async def _stream(
        self, request: web.Request, answer: web.StreamResponse, kind: Kind, namespace: str, since: int
    ) -> None:
        ends = time.monotonic() + float(request.query.get("timeoutSeconds", "300"))
        bookmarks = request.query.get("allowWatchBookmarks") == "true"
        labels = request.query.get("labelSelector", "")
        told = time.monotonic()
        while time.monotonic() < ends:
            if since < self.store.floor:
                error = StatusError(410, "Expired", f"too old resource version: {since} ({self.store.floor})")
                await _line(answer, "ERROR", error.as_json())
                return
            for change in [one for one in self.store.history if one.version > since]:
                since = change.version
                here = change.kind == kind and change.now["metadata"].get("namespace", "") in (namespace, "")
                if here and (event := _event(change, labels)) is not None:
                    await _line(answer, event, change.now)
            if bookmarks and time.monotonic() - told >= self.bookmark_seconds:
                told, since = time.monotonic(), max(since, self.store.version)
                bookmark = {
                    "kind": kind.kind,
                    "apiVersion": kind.api,
                    "metadata": {"resourceVersion": str(since)},
                }
                await _line(answer, "BOOKMARK", bookmark)
            await asyncio.sleep(0.02)


async def _line(answer: web.StreamResponse, event: str, value: Mapping[str, Any]) -> None:
    await answer.write(json.dumps({"type": event, "object": value}).encode() + b"\n")


def _event(change: Change, labels: str) -> str | None:
    """What a watch with a selector sees of a change."""
    if change.type == "DELETED":
        return "DELETED" if _selected(change.now, labels) else None
    was = change.before is not None and _selected(change.before, labels)
    if _selected(change.now, labels):
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else None


async def _body(request: web.Request) -> dict[str, Any]:
    raw = await request.read()
    if not raw:
        return {}
    try:
        if "protobuf" in request.content_type:
            return protobuf.decode(raw)
        body = yaml.safe_load(raw) if "yaml" in request.content_type else json.loads(raw)
    except (ValueError, yaml.YAMLError) as error:
        raise StatusError(400, "BadRequest", f"the body cannot be read: {error}") from None
    if not isinstance(body, dict):
        raise StatusError(400, "BadRequest", "the body is no object")
    return body


def _patched(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch; strategic ones are taken as such, which is the same but for lists."""
    new = copy.deepcopy(dict(old))
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(new.get(key), dict):
            new[key] = _patched(new[key], value)
        else:
            new[key] = value
    return new


def _place(path: str) -> tuple[Kind, str, str, str]:
    """Kind, namespace, name and part of an address."""
    for kind in KINDS:
        if not path.startswith(f"{kind.root}/"):
            continue
        rest = path[len(kind.root) + 1 :].split("/")
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3 and kind.namespaced:
            namespace, rest = rest[1], rest[2:]
        if rest[0] == kind.plural and (len(rest) <= 2 or (len(rest) == 3 and rest[2] in _PARTS)):
            return kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else ""
    raise StatusError(404, "NotFound", "the server could not find the requested resource")


def _discovery(path: str) -> Mapping[str, Any] | None:
    if path == "/version":
        major, minor = VERSION[1:].split(".")[:2]
        return {"major": major, "minor": minor, "gitVersion": VERSION, "platform": "linux/amd64"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        groups = {kind.group: kind.version for kind in KINDS if kind.group}
        return {
            "kind": "APIGroupList", "apiVersion": "v1",
            "groups": [
                {
                    "name": group,
                    "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                    "preferredVersion": {"groupVersion": f"{group}/{version}", "version": version},
                }
                for group, version in groups.items()
            ],
        }  # fmt: skip
    kinds = [kind for kind in KINDS if kind.root == path]
    if not kinds:
        return None
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api,
        "resources": [
            {"name": one.plural, "singularName": one.kind.lower(), "namespaced": one.namespaced, "kind": one.kind, "verbs": verbs}
            for one in kinds
        ],
    }  # fmt: skip


def _selected(value: Mapping[str, Any], selector: str) -> bool:
    labels = value["metadata"].get("labels", {})
    for part in filter(None, selector.split(",")):
        if "!=" in part:
            key, _, wanted = part.partition("!=")
            if labels.get(key) == wanted:
                return False
        elif "=" in part:
            key, _, wanted = part.partition("=")
            if labels.get(key) != wanted.lstrip("="):
                return False
        elif part not in labels:
            return False
    return True


def _has_fields(value: Mapping[str, Any], selector: str) -> bool:
    for part in filter(None, selector.split(",")):
        path, _, wanted = part.partition("=")
        found: Any = value
        for key in path.split("."):
            found = found.get(key) if isinstance(found, Mapping) else None
        if found != wanted.lstrip("="):
            return False
    return True
