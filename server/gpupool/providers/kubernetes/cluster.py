"""The connection to a cluster, and what its errors mean for the pool."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config import ConfigException

from gpupool.providers.contract import ProviderDownError, ProviderRefusedError, ProviderSilentError
from gpupool.providers.kubernetes.manifests import FIELD_MANAGER, Manifest
from gpupool.providers.kubernetes.reports import is_object
from gpupool.providers.kubernetes.settings import OWNERS, KubernetesSettings, owner_of

_ANSWER_SECONDS: Final = 20.0
_MOST_BYTES: Final = 64 * 1024 * 1024
_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
#: How the API's addresses name kinds.
_PLURALS: Final = {
    "Pod": "pods",
    "Secret": "secrets",
    "Event": "events",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "configmap": "configmaps",
    "statefulset": "statefulsets",
    "deployment": "deployments",
}
#: Refusals after which the same question may find another answer: the API is too busy, or is not itself.
_BUSY: Final = frozenset({408, 429})
_UNAUTHORIZED: Final = 401
#: What cannot be reached, and what answers without sense.
_BROKEN: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class NotThereError(ProviderDownError):
    """There is no such object. Where one must be, the answer makes no sense."""


class TooOldError(Exception):
    """The API has forgotten what happened since a watch was there last; a list begins anew."""


class Cluster:
    """One namespace of a cluster. Connected at the first call."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._client: ApiClient | None = None
        #: Before the latest token; its watch goes on for as long as one lasts.
        self._former: ApiClient | None = None
        self._connecting = asyncio.Lock()
        self._namespace = settings.namespace
        #: What the API server's clock is ahead of this process's own, which never goes back.
        self._ahead: float | None = None

    def now(self) -> float:
        """Seconds since 1970 by the API server's clock, as of its latest answer."""
        return time.time() if self._ahead is None else self._ahead + time.monotonic()

    async def namespace(self) -> str:
        """Where the pods are. Raises ProviderDownError: it is not known how to reach the cluster."""
        await self._connected()
        return self._namespace

    async def close(self) -> None:
        for client in (self._client, self._former):
            if client is not None:
                await client.close()
        self._client = self._former = None

    async def version(self) -> str:
        """Of the API server."""
        return str((await self._ask("GET", "/version")).get("gitVersion", "of an unknown version"))

    async def apply(self, manifest: Manifest) -> Manifest:
        """Makes an object as it is described, or leaves it so (server-side apply).

        Raises:
            ProviderDownError: nothing is known.
            ProviderRefusedError: the cluster will not have it.
        """
        path = await self._path(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        what = f"{manifest['kind']} {manifest['metadata']['name']}"
        try:
            return _object(await self._ask("PATCH", path, query, manifest, submits=what))
        except NotThereError as error:
            # Of its parts: the namespace, or the API of claims.
            raise ProviderRefusedError(f"Kubernetes refuses the {what}: {error}") from None

    async def read(self, kind: str, name: str) -> Manifest:
        """A pod.

        Raises:
            NotThereError: there is none.
            ProviderDownError: nothing is known.
        """
        return _object(await self._ask("GET", await self._path("v1", kind, name)))

    async def owner(self) -> Manifest | None:
        """The object that owns what is made; None: none is named.

        Raises:
            ProviderRefusedError: it is not there, or may not be read.
        """
        if not self._settings.owner:
            return None
        kind, name = owner_of(self._settings.owner)
        try:
            path = await self._path(OWNERS[kind], kind, name)
            asked = f"look at its owner {self._settings.owner}"
            found = _object(await self._ask("GET", path, submits=asked))
        except NotThereError:
            raise ProviderRefusedError(
                f"the owner {self._settings.owner} is not in namespace {self._namespace}"
            ) from None
        kinds = {"configmap": "ConfigMap", "statefulset": "StatefulSet", "deployment": "Deployment"}
        return {"apiVersion": OWNERS[kind], "kind": kinds[kind], "metadata": found["metadata"]}

    async def delete_pod(self, name: str, uid: str) -> None:
        """Asks for a pod's end with the grace that it has. Nothing is done if it is gone, or another one has its name."""
        body: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._ask("DELETE", await self._path("v1", "Pod", name), body=body, conflicts=True)
        except NotThereError:
            return

    async def list_pods(self, selector: str) -> Manifest:
        """All pods that a selector finds, as `items`, with the version of the list."""
        return await self._ask("GET", await self._path("v1", "Pod"), {"labelSelector": selector})

    async def events_of(self, uid: str) -> list[Manifest]:
        """What Kubernetes reports of an object."""
        query = {"fieldSelector": f"involvedObject.uid={uid}", "limit": "50"}
        found = (await self._ask("GET", await self._path("v1", "Event"), query)).get("items")
        return found if isinstance(found, list) else []

    async def watch_pods(self, *, version: str, selector: str, seconds: int) -> aiohttp.ClientResponse:
        """The raw stream of a watch, for `kubernetes_asyncio.watch`.

        Raises:
            TooOldError: the version is forgotten.
            ProviderDownError: there is no stream.
        """
        query = {
            "watch": "true",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_SECONDS, sock_read=seconds + 30)
        answer = await self._send("GET", await self._path("v1", "Pod"), query, None, timeout)
        if answer.status != 200:
            text = await _said(answer)
            if answer.status == 410:
                raise TooOldError(text)
            raise ProviderDownError(f"Kubernetes answers {answer.status}: {text}")
        return answer

    async def _path(self, api: str, kind: str, name: str = "") -> str:
        await self._connected()
        root = f"/api/{api}" if "/" not in api else f"/apis/{api}"
        return f"{root}/namespaces/{self._namespace}/{_PLURALS[kind]}" + (f"/{name}" if name else "")

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        *,
        submits: str = "",
        conflicts: bool = False,
    ) -> Manifest:
        """An answer. `submits`: what is refused for good; `conflicts`: one is no error."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        answer = await self._send(method, path, query or {}, body, timeout)
        try:
            if answer.status == 404:
                raise NotThereError(await _said(answer))
            if answer.status == 409 and conflicts:
                return {}
            if not 200 <= answer.status < 300:
                said = await _said(answer)
                if submits and 400 <= answer.status < 500 and answer.status not in _BUSY:
                    raise ProviderRefusedError(f"Kubernetes refuses the {submits}: {said}")
                raise ProviderDownError(f"Kubernetes answers {answer.status}: {said}")
            return await _read(answer)
        except _BROKEN as error:
            raise ProviderDownError(f"Kubernetes' answer broke off: {_name(error)}") from error
        finally:
            answer.release()

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Manifest | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        client = await self._connected()
        answer = await self._send_by(client, method, path, query, body, timeout)
        if answer.status != _UNAUTHORIZED:
            return answer
        # Tokens that a plug-in of the kubeconfig makes do not last; reading it again makes another one.
        answer.release()
        async with self._connecting:
            if self._client is client:
                if self._former is not None:
                    await self._former.close()
                self._former, self._client = client, None
        return await self._send_by(await self._connected(), method, path, query, body, timeout)

    async def _send_by(
        self,
        client: ApiClient,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Manifest | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/apply-patch+yaml"
        try:
            answer: aiohttp.ClientResponse = await client.call_api(
                path,
                method,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=timeout,
            )
        except (*_BROKEN, ApiException, ConfigException, RuntimeError) as error:
            # RuntimeError: the session was closed meanwhile.
            silent = isinstance(error, TimeoutError)
            kind = ProviderSilentError if silent else ProviderDownError
            raise kind(f"Kubernetes cannot be reached: {_name(error)}") from error
        self._take_clock(answer.headers.get("Date"))
        return answer

    def _take_clock(self, date: str | None) -> None:
        try:
            if date is not None:
                self._ahead = parsedate_to_datetime(date).timestamp() - time.monotonic()
        except ValueError:
            return

    async def _connected(self) -> ApiClient:
        async with self._connecting:
            if self._client is None:
                # A login plug-in may wait for somebody, and a file that is just being written reads as anything.
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        self._client = ApiClient(await self._configuration())
                except Exception as error:
                    file = self._settings.kubeconfig
                    of_file = f" from {file}" if file else ""
                    raise ProviderDownError(
                        f"no way to Kubernetes is known{of_file}: {_name(error)}"
                    ) from error
            return self._client

    async def _configuration(self) -> Configuration:
        """Of the kubeconfig that is named, else of the service account, else what kubectl uses."""
        own, found = self._settings, Configuration()
        if not own.kubeconfig and not own.context and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
            self._namespace = self._namespace or _OWN_NAMESPACE.read_text().strip()
            return found
        file = own.kubeconfig or None
        loader = await config.load_kube_config(
            config_file=file, context=own.context or None, client_configuration=found, persist_config=False
        )
        context = (loader.current_context or {}).get("context", {})
        self._namespace = self._namespace or context.get("namespace") or "default"
        return found


def _object(found: Manifest) -> Manifest:
    if not is_object(found):
        raise ProviderDownError("Kubernetes' answer is no object")
    return found


async def _read(answer: aiohttp.ClientResponse) -> Manifest:
    if (answer.content_length or 0) > _MOST_BYTES:
        raise ValueError(f"it has {answer.content_length} bytes")
    found = json.loads(await answer.read())
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


async def _said(answer: aiohttp.ClientResponse) -> str:
    """The API's words on why it did not do something."""
    raw = (await answer.read())[:4096]
    try:
        status = json.loads(raw)
        text = str(status.get("message") or status.get("reason") or "")
    except (ValueError, AttributeError):
        text = raw.decode(errors="replace")
    return " ".join(text.split())[:300] or "no reason"


def _name(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
