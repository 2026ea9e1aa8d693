"""Pods as nodes: on a cluster that checks every request with Kubernetes' own schema, and really runs the pods' processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpupool.providers.contract import ProviderDownError, ProviderRefusedError
from gpupool.providers.kubernetes.cluster import Cluster as Connection
from gpupool.providers.kubernetes.settings import KubernetesSettings
from gpupool.providers.kubernetes.watched import WatchedPods

from tests.conformance.provider_contract import ProviderContract
from tests.support.cluster.cluster import Cluster, cluster
from tests.support.cluster.containers import isolation_is_missing
from tests.support.cluster.kinds import kind_of, schema_is_missing
from tests.support.cluster.store import StatusError
from tests.support.patience import until_late
from tests.support.provider_engines import KubernetesEngine, nothing_left, order, until

pytestmark = pytest.mark.skipif(bool(schema_is_missing()), reason=schema_is_missing())


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture
async def engine(shared: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[KubernetesEngine]:
    """A namespace of its own for each test."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"
    shared.namespace(name)
    made = KubernetesEngine(shared, name)
    yield made
    await made.close()


class TestKubernetes(ProviderContract):
    pass


def settings_of(engine: KubernetesEngine) -> KubernetesSettings:
    return KubernetesSettings("pool", "kube", (), "image", engine.namespace, str(engine.cluster.kubeconfig))


def owner(engine: KubernetesEngine, name: str = "release") -> str:
    metadata = {"name": name, "namespace": engine.namespace}
    engine.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    return f"configmap/{name}"


class TestOneJobIsOnePod:
    async def test_an_order_that_is_repeated_is_the_same_pod(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            first = await provider.submit(order("a1"))
            assert await provider.submit(order("a1")) == first
            assert await engine.provider().submit(order("a1")) == first
            assert len(engine.cluster.pods(engine.namespace)) == 1

    async def test_a_pod_whose_answer_was_lost_is_adopted(self, engine: KubernetesEngine) -> None:
        provider, api = engine.provider(), engine.cluster.api
        api.lose = lambda verb, path: verb == "patch" and path.endswith("-b1")
        async with nothing_left(provider):
            try:
                with pytest.raises(ProviderDownError):
                    await provider.submit(order("b1"))
            finally:
                api.lose = lambda verb, path: False
            (job,) = (await provider.list_owned()).items()
            assert job[0] == "b1"
            await until(provider, dict([job]), "running")

    async def test_a_pod_that_is_evicted_tells_the_time_that_is_left_and_is_not_replaced(
        self, engine: KubernetesEngine
    ) -> None:
        provider = engine.provider(grace=30.0)
        async with nothing_left(engine.provider()):
            jobs = {"c1": await provider.submit(order("c1"))}
            assert (await until(provider, jobs, "running"))["c1"].seconds_left is None
            engine.cluster.evict(engine.namespace, jobs["c1"]["job"])
            while (report := (await provider.poll(jobs))["c1"]).seconds_left is None:
                await asyncio.sleep(0.02)
            assert report.phase == "running"
            assert 20 < report.seconds_left <= 30
            assert "EvictionByEvictionAPI" in report.reason
            engine.kill(jobs["c1"])
            await until(provider, jobs, "ended")
            assert engine.cluster.pods(engine.namespace) == []

    async def test_another_pod_of_the_same_name_is_not_the_job(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            state = await provider.submit(order("d1"))
            before = {**state, "uid": "0c0ffee0-0000-4000-8000-000000000000"}
            assert (await provider.poll({"d1": before}))["d1"].phase == "ended"
            await provider.cancel("d1", before)
            await until(provider, {"d1": state}, "running")

    async def test_a_machine_that_is_silent_keeps_its_devices(self, engine: KubernetesEngine) -> None:
        provider, machine = engine.provider(), engine.cluster.machine
        async with nothing_left(provider):
            jobs = {name: await provider.submit(order(name)) for name in ("e1", "e2")}
            await until(provider, jobs, "running")
            machine.alive = False
            try:
                await provider.cancel("e1", jobs["e1"])
                third = {"e3": await provider.submit(order("e3"))}
                await asyncio.sleep(1.5)  # the grace is over long since
                reports = await provider.poll({**jobs, **third})
                assert (reports["e1"].phase, reports["e3"].phase) == ("running", "pending")
            finally:
                machine.alive = True
            await until(provider, third, "running")


class TestWhatThoseThatWaitAreTold:
    async def test_no_room(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            await provider.submit(order("a1", devices=2))
            jobs = {"a2": await provider.submit(order("a2"))}
            assert (
                await reason(provider, jobs, "fit")
                == "the cluster's one node does not fit: 1 Insufficient nvidia.com/gpu"
            )

    async def test_no_machine_has_the_label(self, engine: KubernetesEngine) -> None:
        provider = engine.provider(node_selector={"accelerator": "h100"})
        async with nothing_left(provider):
            jobs = {"b1": await provider.submit(order("b1"))}
            assert "node affinity/selector" in await reason(provider, jobs, "node")

    async def test_a_secret_that_is_not_there(self, engine: KubernetesEngine) -> None:
        provider = engine.provider(secret="nosuch")
        async with nothing_left(provider):
            jobs = {"c1": await provider.submit(order("c1"))}
            assert 'secret "nosuch" not found' in await reason(provider, jobs, "nosuch")

    async def test_why_an_agent_ended_at_its_start(self, engine: KubernetesEngine) -> None:
        provider = engine.provider(
            agent=("/bin/sh", "-c", "echo starting; echo no GPU here >&2; exit 4 #", "agent")
        )
        async with nothing_left(provider):
            jobs = {"d1": await provider.submit(order("d1"))}
            assert (await until(provider, jobs, "ended"))["d1"].reason == "exit code 4; no GPU here"

    async def test_the_time_limit(self, engine: KubernetesEngine) -> None:
        provider = engine.provider(time_limit=1)
        async with nothing_left(provider):
            jobs = {"e1": await provider.submit(order("e1"))}
            assert "DeadlineExceeded" in (await until(provider, jobs, "ended"))["e1"].reason

    async def test_a_quota(self, engine: KubernetesEngine) -> None:
        with pytest.raises(
            ProviderRefusedError, match=r"exceeded quota: gpus, requested: requests\.nvidia\.com/gpu=2"
        ):
            await engine.refusing().submit(order("f1", devices=2))

    async def test_a_namespace_that_is_not_there(self, engine: KubernetesEngine) -> None:
        with pytest.raises(ProviderRefusedError, match='namespaces "nowhere" not found'):
            await engine.provider(namespace="nowhere").submit(order("g1"))


async def reason(provider: Any, jobs: Any, word: str) -> str:
    """Why the one job waits, once the reason has this word."""
    deadline = until_late(20)
    while word not in (report := next(iter((await provider.poll(jobs)).values()))).reason:
        assert time.monotonic() < deadline, report
        await asyncio.sleep(0.05)
    assert report.phase == "pending"
    return str(report.reason)


class TestTheWatch:
    async def test_polls_ask_nothing_while_it_lasts(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            jobs = {"a1": await provider.submit(order("a1"))}
            await until(provider, jobs, "running")
            asked = engine.cluster.api.asked
            before = len(asked)
            for _ in range(50):
                assert (await provider.poll(jobs))["a1"].phase == "running"
            assert asked[before:] == []

    async def test_a_past_that_is_forgotten_is_listed_anew(self, engine: KubernetesEngine) -> None:
        """410 Gone, at the beginning of a watch or within it."""
        provider, api = engine.provider(), engine.cluster.api
        async with nothing_left(provider):
            jobs = {"b1": await provider.submit(order("b1"))}
            await until(provider, jobs, "running")
            lists = lambda: sum(verb == "list" and engine.namespace in path for verb, path in api.asked)  # noqa: E731
            before = lists()
            # Nothing is seen of the end but by a list.
            engine.cluster.do(
                lambda: (api.store.compact(), setattr(api.store, "floor", api.store.version + 1))
            )
            await provider.cancel("b1", jobs["b1"])
            await until(provider, jobs, "ended")
            engine.cluster.break_watches()
            second = {"b2": await provider.submit(order("b2"))}
            await until(provider, second, "running")
            assert lists() > before

    async def test_bookmarks_keep_what_is_known_young_and_silence_makes_it_old(
        self, engine: KubernetesEngine
    ) -> None:
        now, api = 1000.0, engine.cluster.api
        api.bookmark_seconds = 1e9
        connection = Connection(settings_of(engine))
        pods = WatchedPods(connection, "nothing=like-this", clock=lambda: now)
        try:
            for passes, bookmark, lists in (
                (0.0, False, 1),
                (60.0, True, 1),
                (60.0, False, 1),
                (60.0, False, 2),
            ):
                now += passes
                if bookmark:
                    version = str(engine.cluster.store.version)
                    pods._take("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})
                await pods.current()
                assert pods.lists == lists
        finally:
            api.bookmark_seconds = 1.0
            await pods.close()
            await connection.close()

    async def test_an_api_that_is_down_is_no_answer_and_jobs_live_on(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            jobs = {"c1": await provider.submit(order("c1"))}
            await until(provider, jobs, "running")
            engine.cluster.stop_serving()
            try:
                with pytest.raises(ProviderDownError):
                    await poll_until_it_fails(provider, jobs)
                with pytest.raises(ProviderDownError):
                    await provider.submit(order("c2"))
                with pytest.raises(ProviderDownError):
                    await provider.describe()
            finally:
                engine.cluster.serve_again()
            assert (await provider.poll(jobs))["c1"].phase == "running"
            assert set(await provider.list_owned()) == {"c1"}

    async def test_a_token_that_ends_is_read_again(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        async with nothing_left(provider):
            jobs = {"e1": await provider.submit(order("e1"))}
            await until(provider, jobs, "running")
            engine.cluster.renew_token()
            assert set(await provider.list_owned()) == {"e1"}
            await provider.cancel("e1", jobs["e1"])
            await until(provider, jobs, "ended")

    async def test_answers_without_sense_are_none(self, engine: KubernetesEngine) -> None:
        provider = engine.provider()
        for answer in ("[]", "{}", '{"metadata": {}}', '{"metadata": {"name": 5, "uid": 6}}', "no JSON", ""):
            engine.cluster.api.instead = answer
            try:
                with pytest.raises(ProviderDownError):
                    await provider.submit(order("f1"))
                with pytest.raises(ProviderDownError):
                    await provider.cancel("f1", {})
                with pytest.raises(ProviderDownError):
                    await provider.poll({"f1": {}})
            finally:
                engine.cluster.api.instead = None

    async def test_an_api_that_is_too_busy_is_no_refusal(self, engine: KubernetesEngine) -> None:
        provider, api = engine.provider(), engine.cluster.api

        def refuse(verb: str, path: str) -> None:
            raise StatusError(429, "TooManyRequests", "please try again later")

        api.refuse = refuse
        try:
            with pytest.raises(ProviderDownError, match="429"):
                await provider.submit(order("d1"))
        finally:
            api.refuse = lambda verb, path: None
        assert await provider.list_owned() == {}


async def poll_until_it_fails(provider: Any, jobs: Any) -> None:
    """The end of a watch is noticed a moment later."""
    deadline = until_late(20)
    while time.monotonic() < deadline:
        await provider.poll(jobs)
        await asyncio.sleep(0.05)


class TestDevices:
    async def test_claims_give_devices_of_their_own_and_more_than_there_are_wait(
        self, engine: KubernetesEngine
    ) -> None:
        with cluster(gpus=(), claimable=("gpu-0", "gpu-1")) as claiming:
            devices = KubernetesEngine(claiming)
            says = ("/bin/sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 600 #', "agent")
            provider = devices.provider(
                agent=says, device_class="gpu.nvidia.com",
                device_selector='device.attributes["gpu.nvidia.com"].productName == "H100"',
            )  # fmt: skip
            async with nothing_left(provider):
                jobs = {name: await provider.submit(order(name)) for name in ("a1", "a2")}
                await until(provider, jobs, "running")
                await until_said(devices, jobs)
                assert {devices.output(name).strip() for name in jobs} == {"gpu-0", "gpu-1"}
                third = {"a3": await provider.submit(order("a3"))}
                assert "cannot allocate all claims" in await reason(provider, third, "claims")
                await provider.cancel("a1", jobs["a1"])
                await until(provider, third, "running")
                templates = claiming.objects("ResourceClaimTemplate", "default", "resource.k8s.io/v1")
                assert len(templates) == 1
            await devices.close()

    async def test_software_gpus_need_none(self, engine: KubernetesEngine) -> None:
        provider = engine.provider(resource="")
        async with nothing_left(provider):
            jobs = {name: await provider.submit(order(name)) for name in ("b1", "b2", "b3")}
            await until(provider, jobs, "running")


async def until_said(engine: KubernetesEngine, jobs: Any) -> None:
    deadline = until_late(20)
    while not all(engine.output(name).strip() for name in jobs):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


class TestNothingIsLeft:
    async def test_what_the_owner_leaves_goes_with_it(self, engine: KubernetesEngine, tmp_path: Path) -> None:
        (tmp_path / "token").write_text("gpupool_secret")
        provider = engine.provider(owner=owner(engine), token_file=tmp_path / "token", device_class="gpu")
        async with nothing_left(provider):
            await provider.submit(order("a1"))
            kinds = {"Pod": "v1", "Secret": "v1", "ResourceClaimTemplate": "resource.k8s.io/v1"}
            assert all(engine.cluster.objects(kind, engine.namespace, api) for kind, api in kinds.items())
            engine.cluster.remove(kind_of("v1", "ConfigMap"), engine.namespace, "release")
            deadline = until_late(20)
            while any(engine.cluster.objects(kind, engine.namespace, api) for kind, api in kinds.items()):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    async def test_without_its_owner_nothing_is_made(self, engine: KubernetesEngine) -> None:
        with pytest.raises(ProviderRefusedError, match="configmap/nosuch is not in namespace"):
            await engine.provider(owner="configmap/nosuch").submit(order("b1"))
        assert engine.cluster.pods(engine.namespace) == []

    async def test_pods_that_ended_can_be_looked_at_for_a_while(self, engine: KubernetesEngine) -> None:
        failing = ("/bin/sh", "-c", "exit 3 #", "agent")
        kept, swept = engine.provider(agent=failing), engine.provider(agent=failing, keep_ended=0.0)
        state = await kept.submit(order("c1"))
        await until(kept, {"c1": state}, "ended")
        assert await kept.list_owned() == {}
        assert len(engine.cluster.pods(engine.namespace)) == 1
        assert await swept.list_owned() == {}
        assert engine.cluster.pods(engine.namespace) == []
        assert (await kept.poll({"c1": state}))["c1"].phase == "ended"


class TestSecrets:
    async def test_the_token_is_in_a_file_of_the_pod_and_nowhere_else(
        self, engine: KubernetesEngine, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("gpupool_very_secret\n")
        script = 'while [ $# -gt 0 ]; do [ "$1" = --token-file ] && cat "$2"; shift; done; exec sleep 600'
        says = ("/bin/sh", "-c", script, "agent")
        provider = engine.provider(agent=says, token_file=tmp_path / "token")
        async with nothing_left(provider):
            state = await provider.submit(order("a1"))
            await until(provider, {"a1": state}, "running")
            await until_said(engine, {"a1": state})
            if not isolation_is_missing():
                assert engine.output("a1") == "gpupool_very_secret"
            assert "very_secret" not in str(engine.cluster.pods(engine.namespace)) + str(state)

    async def test_a_token_file_that_cannot_be_read(self, engine: KubernetesEngine, tmp_path: Path) -> None:
        with pytest.raises(ProviderRefusedError, match="nosuch cannot be read"):
            await engine.provider(token_file=tmp_path / "nosuch").submit(order("b1"))
        assert engine.cluster.pods(engine.namespace) == []
