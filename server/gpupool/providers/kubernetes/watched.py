"""The pods of a provider as they are now, without asking for all of them again and again.

One list, then a watch from the list's version on. The watch ends by itself after some minutes and begins anew where it was; if
the API has forgotten that moment (410 Gone), there is another list. Bookmarks keep the moment young. Whatever is not certain is
asked for: a cache that nobody has confirmed for a while answers nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import aiohttp
import structlog
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.watch import Watch

from gpupool.providers.contract import ProviderDownError
from gpupool.providers.kubernetes.cluster import Cluster, TooOldError
from gpupool.providers.kubernetes.reports import Pod, is_object

logger = structlog.get_logger(__name__)

#: A watch lasts so many seconds, then begins anew.
_WATCH_SECONDS: Final = 240
#: After so many seconds of silence (not even a bookmark) there is a list.
_SILENCE: Final = 90.0
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 15.0)
_GONE_KEPT: Final = 1000


class WatchedPods:
    """Pods by name. Follows the cluster from the first `current()` to `close()`.

    Args:
        cluster: asked.
        selector: finds the pods.
        clock: seconds, never going back.
    """

    def __init__(self, cluster: Cluster, selector: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._selector = selector
        self._clock = clock
        self._pods: dict[str, Pod] = {}
        #: The last that was seen of pods that are gone, by name: how they ended.
        self._gone: OrderedDict[str, Pod] = OrderedDict()
        self._version = ""
        self._confirmed: float | None = None
        self._follower: asyncio.Task[None] | None = None
        self._listing = asyncio.Lock()
        #: Lists so far: tests count them.
        self.lists = 0

    async def current(self) -> Mapping[str, Pod]:
        """All pods. Raises ProviderDownError: it is not known how they are."""
        if self._confirmed is None or self._clock() - self._confirmed > _SILENCE:
            await self._list()
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow(), name="watch of pods")
        return self._pods

    def gone(self, name: str) -> Pod | None:
        """The last that was seen of a pod that is gone."""
        return self._gone.get(name)

    def note(self, pod: Pod) -> None:
        """A pod that was just made or read: the watch may tell of it later."""
        known = self._pods.get(pod["metadata"]["name"])
        if not self._is_gone(pod) and (known is None or _version(pod) >= _version(known)):
            self._pods[pod["metadata"]["name"]] = pod

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
            self._follower = None

    async def _list(self) -> None:
        async with self._listing:
            found = await self._cluster.list_pods(self._selector)
            items = found.get("items")
            version = found.get("metadata", {}).get("resourceVersion")
            if not isinstance(items, list) or not isinstance(version, str):
                raise ProviderDownError("Kubernetes' list of pods is none")
            # Meanwhile pods may have been made, changed and removed: what is newer than the list counts.
            pods = {
                pod["metadata"]["name"]: pod for pod in items if is_object(pod) and not self._is_gone(pod)
            }
            for name, known in self._pods.items():
                if _version(known) > _number(version):
                    pods[name] = known
            for name in self._pods.keys() - pods.keys():
                self._forget(self._pods[name])
            self._pods, self._version = pods, version
            self._confirmed = self._clock()
            self.lists += 1

    async def _follow(self) -> None:
        failures = 0
        while True:
            begun = self._clock()
            try:
                await self._watch()
                failures = 0
                if self._clock() - begun < _PAUSES[0]:
                    # A server that ends watches at once is not asked without pause.
                    await asyncio.sleep(_PAUSES[0])
            except Exception as error:
                # Whatever it was: nothing that is known counts before there is a list.
                self._confirmed = None
                logger.info("a watch of pods ended", reason=str(error)[:200])
                await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
                with contextlib.suppress(ProviderDownError):
                    await self._list()

    async def _watch(self) -> None:
        """From the version that is known to the end of one watch."""
        watch = Watch(return_type="object")
        ask = partial(self._cluster.watch_pods, selector=self._selector, seconds=_WATCH_SECONDS)

        async def stream(*, resource_version: str, **_: Any) -> aiohttp.ClientResponse:
            return await ask(version=resource_version)

        try:
            async for event in watch.stream(
                stream, resource_version=self._version, timeout_seconds=_WATCH_SECONDS
            ):
                self._take(str(event["type"]), event["raw_object"])
        except ApiException as error:
            if error.status == 410:
                raise TooOldError(str(error.reason)) from None
            raise
        finally:
            await watch.close()

    def _take(self, kind: str, pod: Any) -> None:
        if not (is_object(pod) if kind != "BOOKMARK" else _has_metadata(pod)):
            raise ValueError("an event of a watch has no object")
        metadata = pod["metadata"]
        self._version = str(metadata.get("resourceVersion", self._version))
        self._confirmed = self._clock()
        if kind in ("ADDED", "MODIFIED"):
            self._pods[metadata["name"]] = pod
        elif kind == "DELETED":
            self._pods.pop(metadata["name"], None)
            self._forget(pod)

    def _is_gone(self, pod: Pod) -> bool:
        """Whether the end of this very pod was seen; what tells of it now was on its way before."""
        gone = self._gone.get(pod["metadata"]["name"])
        return gone is not None and gone["metadata"].get("uid") == pod["metadata"].get("uid")

    def _forget(self, pod: Pod) -> None:
        self._gone[pod["metadata"]["name"]] = pod
        while len(self._gone) > _GONE_KEPT:
            self._gone.popitem(last=False)


def _has_metadata(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("metadata"), dict)


def _version(pod: Pod) -> int:
    return _number(pod["metadata"].get("resourceVersion"))


def _number(version: object) -> int:
    """Of a version, to compare: Kubernetes counts them."""
    text = str(version)
    return int(text) if text.isdecimal() and text.isascii() else 0
