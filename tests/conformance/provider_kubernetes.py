"""The provider of pods and the chart on a real Kubernetes, which somebody names. `make kubernetes-check` runs it.

It makes namespaces of its own and removes them. The cluster has two free GPUs of a device plug-in, runs the project's three
images, and gives a volume to whoever claims one; where a device class is named, that has two free devices for claims (DRA).
Programs use software GPUs, so that any cluster will do.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from gpupool.providers.contract import State
from gpupool.providers.kubernetes.provider import KubernetesProvider

from tests.conformance.provider_contract import ProviderContract
from tests.support.cluster.kubectl import KubectlCluster
from tests.support.helm import helm_is_missing
from tests.support.patience import until_late
from tests.support.provider_engines import RealKubernetesEngine, nothing_left, order, until
from tests.support.release_story import Release, from_its_installation_to_its_end, leave_nothing

_IMAGES = os.environ.get("GPUPOOL_CHECK_IMAGES", "")
_TAG = os.environ.get("GPUPOOL_CHECK_TAG", "0.1.0")
_DEVICE_CLASS = os.environ.get("GPUPOOL_CHECK_DEVICE_CLASS", "")

#: Small nodes with software GPUs, and times for a test.
_VALUES = (
    "--set", f"image.pool={_IMAGES}gpupool-pool", "--set", f"image.node={_IMAGES}gpupool-node", "--set", f"image.tag={_TAG}",
    "--set-json", 'pool.arguments=["--notice","2s"]',
    "--set", "providers.kube.resource=", "--set", "providers.kube.cpu=100m", "--set", "providers.kube.memory=1Gi",
    "--set", "providers.kube.idle=5s", "--set", "providers.kube.grace=100s", "--set", "providers.kube.device_memory_mib=1024",
    "--set-json", 'providers.kube.node_options=["--driver","software","--memory-mib","1024"]',
)  # fmt: skip

#: An agent that goes on for all of its grace.
_STAYS = ("/bin/sh", "-c", "trap '' TERM; exec /bin/sleep 600 #", "agent")

#: Trains for a while, and never hears that its GPU moves.
_TRAINS = """
import time
import numpy as np
from numba import cuda

@cuda.jit
def step(a, n):
    i = cuda.grid(1)
    if i < a.size:
        a[i] = a[i] * 3 + n

on_device = cuda.to_device(np.arange(200_000, dtype=np.uint32))
for n in range({steps}):
    step[782, 256](on_device, n)
    cuda.synchronize()
    print("step", n, flush=True)
    time.sleep(1)
print("sum", int(on_device.copy_to_host().astype(np.uint64).sum()), flush=True)
"""


def _sum_after(steps: int) -> int:
    import numpy as np

    values = np.arange(200_000, dtype=np.uint32)
    for n in range(steps):
        values = values * np.uint32(3) + np.uint32(n)
    return int(values.astype(np.uint64).sum())


@pytest.fixture(scope="module")
def cluster() -> KubectlCluster:
    named = os.environ.get("GPUPOOL_CHECK_KUBECONFIG")
    problem = helm_is_missing() or ("" if named else "make kubernetes-check KUBECONFIG=<file>")
    if problem or not named:
        pytest.fail(problem)
    return KubectlCluster(Path(named))


@pytest.fixture
def namespace(cluster: KubectlCluster) -> Iterator[str]:
    name = f"gpupool-check-{secrets.token_hex(4)}"
    cluster.namespace(name)
    yield name
    cluster.remove_namespace(name)


@pytest.fixture
async def engine(cluster: KubectlCluster, namespace: str) -> AsyncIterator[RealKubernetesEngine]:
    image = f"{_IMAGES}gpupool-node:{_TAG}"
    made = RealKubernetesEngine(cluster, namespace, image=image, cpu="100m", memory="256Mi")
    yield made
    await made.close()


@pytest.fixture
def release(cluster: KubectlCluster, namespace: str, tmp_path: Path) -> Iterator[Release]:
    made = Release(cluster, namespace, tmp_path, _VALUES, image=f"{_IMAGES}gpupool-singleuser:{_TAG}")
    yield made
    print("\n" + "\n".join(f"{seconds:7.1f} s  {step}" for step, seconds in made.steps.items()))


class TestKubernetes(ProviderContract):
    pass


async def test_a_job_for_which_there_is_no_room_says_what_the_scheduler_says(
    engine: RealKubernetesEngine,
) -> None:
    provider = engine.provider()
    async with nothing_left(provider):
        jobs = {"a1": await provider.submit(order("a1", devices=999))}
        await _reason(provider, jobs, "Insufficient nvidia.com/gpu")


async def test_an_image_that_is_not_there_is_the_reason(engine: RealKubernetesEngine) -> None:
    provider = engine.provider(image="localhost/no-such-image:never")
    async with nothing_left(provider):
        jobs = {"b1": await provider.submit(order("b1"))}
        await _reason(provider, jobs, "no-such-image")


async def test_a_pod_that_is_evicted_tells_the_time_that_is_left_and_is_not_replaced(
    engine: RealKubernetesEngine,
) -> None:
    provider = engine.provider(agent=_STAYS, grace=20.0)
    async with nothing_left(provider):
        jobs = {"c1": await provider.submit(order("c1"))}
        assert (await until(provider, jobs, "running"))["c1"].seconds_left is None
        engine.cluster.evict(engine.namespace, jobs["c1"]["job"])
        deadline = until_late(20)
        while (report := (await provider.poll(jobs))["c1"]).seconds_left is None:
            assert time.monotonic() < deadline, report
            await asyncio.sleep(0.05)
        assert report.phase == "running" and 0 < report.seconds_left <= 20
        await until(provider, jobs, "ended", 60)
        left = {pod["metadata"]["name"] for pod in engine.cluster.pods(engine.namespace)}
        assert left <= {jobs["c1"]["job"]}


async def test_a_pod_that_is_cancelled_in_its_first_moment_ends_long_before_its_grace(
    engine: RealKubernetesEngine,
) -> None:
    """`sleep` handles no signal: as process 1 of a container it would hear none."""
    provider = engine.provider(grace=300.0)
    async with nothing_left(provider):
        jobs = {"e1": await provider.submit(order("e1"))}
        await until(provider, jobs, "running")
        await provider.cancel("e1", jobs["e1"])
        await until(provider, jobs, "ended", 60)


async def test_what_the_owner_leaves_goes_with_it(engine: RealKubernetesEngine, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("gpupool_secret")
    metadata = {"name": "release", "namespace": engine.namespace}
    engine.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    provider = engine.provider(owner="configmap/release", token_file=tmp_path / "token", device_class="any")
    kinds = {"Pod": "v1", "Secret": "v1", "ResourceClaimTemplate": "resource.k8s.io/v1"}

    def left() -> list[bool]:
        return [bool(engine.cluster.objects(kind, engine.namespace, api)) for kind, api in kinds.items()]

    async with nothing_left(provider):
        await provider.submit(order("d1"))
        assert all(left())
        engine.cluster.kubectl("delete", "configmap", "release", "--namespace", engine.namespace)
        deadline = until_late(60)
        while any(left()):
            assert time.monotonic() < deadline, left()
            await asyncio.sleep(0.2)


@pytest.mark.skipif(not _DEVICE_CLASS, reason="needs DEVICE_CLASS=<a class with two free devices>")
class TestClaims:
    async def test_more_claims_than_there_are_devices_wait_for_one_that_goes_back(
        self, engine: RealKubernetesEngine
    ) -> None:
        provider = engine.provider(device_class=_DEVICE_CLASS, device_selector='device.driver != ""')
        async with nothing_left(provider):
            jobs = {name: await provider.submit(order(name)) for name in ("a1", "a2")}
            await until(provider, jobs, "running", 60)
            third = {"a3": await provider.submit(order("a3"))}
            assert "cannot allocate all claims" in await _reason(provider, third, "claims")
            await provider.cancel("a1", jobs["a1"])
            await until(provider, third, "running", 60)
        deadline = until_late(60)
        while engine.cluster.objects("ResourceClaim", engine.namespace, "resource.k8s.io/v1"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)

    async def test_a_selector_that_no_device_fulfils_is_the_reason(
        self, engine: RealKubernetesEngine
    ) -> None:
        provider = engine.provider(
            device_class=_DEVICE_CLASS, device_selector='device.driver == "none.example"'
        )
        async with nothing_left(provider):
            jobs = {"b1": await provider.submit(order("b1"))}
            assert "cannot allocate all claims" in await _reason(provider, jobs, "claims")


async def _reason(provider: KubernetesProvider, jobs: Mapping[str, State], word: str) -> str:
    """Why the one job waits, as soon as it says this word."""
    deadline = until_late(60)
    while word not in (report := next(iter((await provider.poll(jobs)).values()))).reason:
        assert time.monotonic() < deadline, report
        await asyncio.sleep(0.2)
    assert report.phase == "pending"
    return report.reason


def test_a_release_from_its_installation_to_its_end(release: Release) -> None:
    from_its_installation_to_its_end(release)


def test_a_program_outlives_the_pod_of_its_gpu(release: Release, cluster: KubectlCluster) -> None:
    """The cluster takes the pod back in the middle: the session goes on in another one, with all its memory."""
    release.install()
    release.user("ann")
    release.begun = time.monotonic()
    release.start("ann-1", "ann", _TRAINS.format(steps=30))
    release.wait("step 3", lambda: "step 3" in _written(release, "ann-1"), 180)
    (first,) = [pod["metadata"]["name"] for pod in release.nodes()]
    cluster.evict(release.namespace, first)
    release.wait(
        "another node's pod is there", lambda: len(names := _names(release)) == 1 and first not in names, 180
    )
    assert f"sum {_sum_after(30)}" in release.ended("ann-1", 300)
    release.wait("the node's pod is gone", lambda: not release.nodes(), 60)
    leave_nothing(release, "ann-1")


def test_a_program_outlives_the_time_limit_of_its_gpu(release: Release) -> None:
    """Each pod ends after a minute and a half; the program runs longer, and nothing is lost."""
    release.install(
        "--set", "providers.kube.time_limit=90s", "--set", "providers.kube.drain_before=30s",
        "--set", "providers.kube.replace_before=30s", "--set", "providers.kube.idle=20s",
    )  # fmt: skip
    release.user("ann")
    release.begun = time.monotonic()
    release.start("ann-1", "ann", _TRAINS.format(steps=80))
    release.wait("step 0", lambda: "step 0" in _written(release, "ann-1"), 180)
    seen: set[str] = set()

    def over() -> bool:
        seen.update(_names(release))
        return release.phase("ann-1") in ("Succeeded", "Failed")

    release.wait("the program has run", over, 400)
    assert f"sum {_sum_after(80)}" in release.ended("ann-1", 10)
    assert len(seen) >= 2, seen


def _names(release: Release) -> set[str]:
    return {pod["metadata"]["name"] for pod in release.nodes()}


def _written(release: Release, pod: str) -> str:
    try:
        return release.made.output(release.namespace, pod)
    except OSError:
        return ""  # its container is not there yet
