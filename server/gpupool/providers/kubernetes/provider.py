"""Pods as nodes: the contract of `gpupool.providers`, kept with Kubernetes.

Kubernetes stays the owner of the devices: its scheduler, or its drivers, decide which ones a pod has. A pod is never made a
second time: it is bare, with nobody who would replace it, and its name follows from the job's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from gpupool.providers.contract import (
    Capabilities,
    Description,
    JobOrder,
    JobReport,
    ProviderDownError,
    ProviderRefusedError,
    State,
)
from gpupool.providers.kubernetes import manifests, reports
from gpupool.providers.kubernetes.cluster import Cluster, NotThereError
from gpupool.providers.kubernetes.reports import Pod
from gpupool.providers.kubernetes.settings import KubernetesSettings
from gpupool.providers.kubernetes.watched import WatchedPods

logger = structlog.get_logger(__name__)

_MOST_SECRET_BYTES: Final = 64 * 1024
#: Pods whose events are read in one poll, at most.
_MOST_ASKED: Final = 8
_GONE: Final = JobReport("ended", "Kubernetes does not know it any more")


class KubernetesProvider:
    """Pods of one namespace."""

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._cluster = Cluster(settings)
        self._pods = WatchedPods(self._cluster, manifests.selector(settings))
        #: A pod's object stays until its machine says that its processes have ended.
        self.capabilities = Capabilities(
            time_limit_known=settings.time_limit is not None, holds_until_confirmed=True, pending=True
        )

    async def describe(self) -> Description:
        version = await self._cluster.version()
        return Description(f"Kubernetes {version}"[:60], f"namespace {await self._cluster.namespace()}")

    async def submit(self, order: JobOrder) -> State:
        owner = await self._cluster.owner()
        owners = [] if owner is None else [manifests.owner_reference(owner)]
        secret = await asyncio.to_thread(self._secret, owners)
        if secret is not None:
            await self._cluster.apply(secret)
        template = manifests.claim_template(self._settings, order.devices, owners)
        if template is not None:
            await self._cluster.apply(template)
        pod = await self._cluster.apply(manifests.pod(self._settings, order, owners))
        self._pods.note(pod)
        return self._state(pod)

    async def poll(self, jobs: Mapping[str, State]) -> Mapping[str, JobReport]:
        pods = dict(await self._pods.current())
        now = self._cluster.now()
        found = {}
        asked = 0
        for job, state in jobs.items():
            gone = self._pods.gone(self._name(job))
            pod = pods.get(self._name(job))
            if pod is None and (gone is None or not _is_same(gone, state)):
                # A pod that the watch has never shown may be younger than what it knows.
                pod = await self._read(job)
            if pod is None or not _is_same(pod, state):
                found[job] = _how_it_went(gone, state)
                continue
            report = reports.report(pod, now)
            if report.phase == "pending" and report.reason in reports.VAGUE and asked < _MOST_ASKED:
                asked += 1
                said = reports.explain_events(await self._events(pod))
                report = JobReport("pending", said or report.reason)
            found[job] = report
        return found

    async def cancel(self, job: str, state: State) -> None:
        pod = await self._read(job)
        if pod is None or not _is_same(pod, state) or reports.is_going(pod) or reports.is_over(pod):
            return
        await self._cluster.delete_pod(self._name(job), pod["metadata"]["uid"])

    async def list_owned(self) -> Mapping[str, State]:
        """Those that live. Pods that ended long ago are removed on the way."""
        found = await self._cluster.list_pods(manifests.selector(self._settings))
        now, living = self._cluster.now(), {}
        for pod in filter(reports.is_object, found.get("items") or ()):
            job = (pod["metadata"].get("labels") or {}).get(manifests.JOB_LABEL)
            if job and not reports.is_over(pod):
                living[job] = self._state(pod)
            elif job and now - (reports.ended_at(pod) or 0.0) >= self._settings.keep_ended:
                await self._remove(pod)
        return living

    async def _remove(self, pod: Pod) -> None:
        """One that has ended. If the cluster refuses, it stays for its administrator, and nothing else waits for that."""
        name = pod["metadata"]["name"]
        try:
            await self._cluster.delete_pod(name, pod["metadata"]["uid"])
        except ProviderDownError as error:
            logger.warning("a pod that has ended cannot be removed", pod=name, problem=str(error))

    async def close(self) -> None:
        await self._pods.close()
        await self._cluster.close()

    def _secret(self, owners: list[manifests.Manifest]) -> manifests.Manifest | None:
        own = self._settings
        if own.token_file is None:
            return None
        ca = None if own.ca_file is None else _bytes_of(own.ca_file)
        return manifests.secret(own, _bytes_of(own.token_file).strip(), ca, owners)

    async def _read(self, job: str) -> Pod | None:
        """As the API has it now."""
        try:
            pod = await self._cluster.read("Pod", self._name(job))
        except NotThereError:
            return None
        self._pods.note(pod)
        return pod

    async def _events(self, pod: Pod) -> list[manifests.Manifest]:
        try:
            return await self._cluster.events_of(pod["metadata"]["uid"])
        except (NotThereError, ProviderDownError):
            return []  # they only explain; the service account may not be allowed to read them

    def _name(self, job: str) -> str:
        return manifests.pod_name(self._settings, job)

    def _state(self, pod: Pod) -> State:
        return {"job": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}


def _is_same(pod: Pod, state: State) -> bool:
    """Whether it is the very pod: one of the same name may have followed it."""
    uid = state.get("uid")
    return not uid or pod["metadata"].get("uid") == uid


def _how_it_went(gone: Pod | None, state: State) -> JobReport:
    """Of a pod that is no more, from the last that was seen of it."""
    if gone is None or not _is_same(gone, state) or not reports.is_over(gone):
        return _GONE
    return JobReport("ended", reports.how_ended(gone))


def _bytes_of(path: Path) -> bytes:
    """Of a small file.

    Raises:
        ProviderRefusedError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = file.read(_MOST_SECRET_BYTES + 1)
    except OSError as error:
        raise ProviderRefusedError(f"{path} cannot be read: {error.strerror}") from error
    if not found.strip() or len(found) > _MOST_SECRET_BYTES:
        raise ProviderRefusedError(f"{path} is empty, or larger than {_MOST_SECRET_BYTES // 1024} KiB")
    return found
