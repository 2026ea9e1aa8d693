"""Engines as the conformance suite of providers needs them: what it can make an engine do, and what an engine cannot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from gpupool.providers.contract import JobOrder, JobReport, Provider, State
from gpupool.providers.kubernetes.provider import KubernetesProvider
from gpupool.providers.kubernetes.settings import KubernetesSettings
from gpupool.providers.local import LocalProvider, LocalSettings
from gpupool.providers.slurm import SlurmProvider, SlurmSettings

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.kubectl import KubectlCluster
from tests.support.patience import until_late
from tests.support.slurm import SlurmCluster

#: Stands in for an agent: it does nothing, and ends when it is told to. What follows are its arguments.
_SLEEPS = ("/bin/sh", "-c", "exec /bin/sleep 600 #", "agent")


class TestedEngine(Protocol):
    """An engine under test. `devices`: that it has."""

    devices: int

    def provider(self, pool_id: str = "pool", **more: Any) -> Provider:
        """A new one, as after a restart of the pool. `more`: `agent`, `time_limit` in seconds."""

    def kill(self, state: State) -> None:
        """As the engine's administrator: the job ends now."""

    def refusing(self) -> Provider:
        """One whose jobs the engine refuses."""

    def output(self, job: str) -> str:
        """What the job's agent has written."""


class LocalEngine:
    """Processes of this machine. The stand-in's shell stays, so that its arguments can be seen."""

    devices = 2

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def provider(self, pool_id: str = "pool", **more: Any) -> Provider:
        more.setdefault("agent", ("/bin/sh", "-c", "trap 'kill $!; exit 0' TERM; sleep 600 & wait", "agent"))
        more.setdefault("grace", 5.0)
        return LocalProvider(LocalSettings(self._folder, pool_id, gpus=("6", "7"), **more))

    def kill(self, state: State) -> None:
        os.killpg(state["pid"], signal.SIGKILL)

    def refusing(self) -> Provider:
        return LocalProvider(LocalSettings(self._folder, "pool", _SLEEPS, gpus=("6",)))

    def output(self, job: str) -> str:
        return (self._folder / f"{job}.log").read_text()


class SlurmEngine:
    """A Slurm cluster of the test's own."""

    devices = 2

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster

    def provider(self, pool_id: str = "pool", **more: Any) -> Provider:
        more.setdefault("agent", _SLEEPS)
        limit = more.pop("time_limit", None)
        more["time_limit"] = None if limit is None else max(1, limit // 60)
        return SlurmProvider(SlurmSettings(pool_id, output=f"{self.cluster.folder}/%x.txt", **more))

    def kill(self, state: State) -> None:
        self.cluster.run("scancel", "--signal=KILL", "--full", state["job"])

    def refusing(self) -> Provider:
        return self.provider(partition="nosuchpartition")

    def output(self, job: str) -> str:
        file = self.cluster.folder / f"gpupool-pool-{job}.txt"
        return file.read_text() if file.exists() else ""  # Slurm says "running" before it has made the file


_C = TypeVar("_C", Cluster, KubectlCluster)


class _OnKubernetes(Generic[_C]):
    """A namespace of a cluster. Close it in the loop of its providers."""

    devices = 2

    def __init__(self, cluster: _C, namespace: str = "default", **settings: Any) -> None:
        self.cluster, self.namespace = cluster, namespace
        self._settings = {"image": "gpupool-node:test", **settings}
        self._opened: list[KubernetesProvider] = []

    def provider(self, pool_id: str = "pool", **more: Any) -> KubernetesProvider:
        more.setdefault("agent", _SLEEPS)
        # The first process of a container hears no signal that it does not handle, and `sleep` handles none.
        more.setdefault("grace", 1.0)
        more.setdefault("kubeconfig", str(self.cluster.kubeconfig))
        more.setdefault("namespace", self.namespace)
        more.setdefault("name", "kube")
        made = KubernetesProvider(KubernetesSettings(pool_id, **{**self._settings, **more}))
        self._opened.append(made)
        return made

    def kill(self, state: State) -> None:
        self.cluster.kill(self.namespace, state["job"])

    def refusing(self) -> KubernetesProvider:
        quota = {"hard": {"requests.nvidia.com/gpu": "1"}}
        metadata = {"name": "gpus", "namespace": self.namespace}
        self.cluster.put({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": quota})
        return self.provider()

    def output(self, job: str) -> str:
        return self.cluster.output(self.namespace, f"gpupool-pool-{job}")

    async def close(self) -> None:
        for provider in self._opened:
            await provider.close()


#: On the cluster of the test's own, and on one that is there already.
KubernetesEngine = _OnKubernetes[Cluster]
RealKubernetesEngine = _OnKubernetes[KubectlCluster]


async def until(
    provider: Provider, jobs: Mapping[str, State], phase: str, seconds: float = 30.0
) -> Mapping[str, JobReport]:
    """The reports when all of these jobs are in `phase`."""
    deadline = until_late(seconds)
    while True:
        reports = await provider.poll(jobs)
        if all(report.phase == phase for report in reports.values()):
            return reports
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {phase}: {reports}")
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def nothing_left(provider: Provider) -> Any:
    """Ends all jobs of the pool afterwards, whatever a test has left."""
    try:
        yield
    finally:
        deadline = until_late(60)
        while owned := await provider.list_owned():
            for job, state in owned.items():
                await provider.cancel(job, state)
            await asyncio.sleep(0.1)
            assert time.monotonic() < deadline, owned


def order(job: str, devices: int = 1) -> JobOrder:
    return JobOrder(job, f"box-{job}", devices)
