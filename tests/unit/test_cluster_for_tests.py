"""The cluster for tests refuses what Kubernetes refuses: else what is tested on it would mean nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from gpupool.providers.contract import ProviderDownError, ProviderRefusedError
from gpupool.providers.kubernetes import manifests
from gpupool.providers.kubernetes.cluster import Cluster as Connection
from gpupool.providers.kubernetes.settings import KubernetesSettings

from tests.support.cluster import apply
from tests.support.cluster.cluster import Cluster, cluster
from tests.support.cluster.kinds import schema_is_missing
from tests.support.cluster.store import StatusError
from tests.support.provider_engines import order

pytestmark = pytest.mark.skipif(bool(schema_is_missing()), reason=schema_is_missing())


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def settings(kubeconfig: Any) -> KubernetesSettings:
    return KubernetesSettings("pool", "kube", ("sleep", "600"), "image", kubeconfig=str(kubeconfig))


@pytest.fixture
async def connection(made: Cluster) -> AsyncIterator[Connection]:
    found = Connection(settings(made.kubeconfig))
    yield found
    await found.close()


def pod(made: Cluster) -> Any:
    return manifests.pod(settings(made.kubeconfig), order("a1"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda pod: pod["spec"].update(restartPolicie="Never"), "restartPolicie"),
        (lambda pod: pod["spec"]["containers"][0].update(env={"A": "b"}), "env"),
        (lambda pod: pod["spec"].pop("containers"), "containers"),
        (lambda pod: pod["spec"].update(hostNetwork=True), "PodSecurity.*hostNetwork"),
        (lambda pod: pod["spec"]["containers"][0].pop("securityContext"), "PodSecurity.*allowPrivilegeEscalation"),
        (lambda pod: pod["spec"]["volumes"].append({"name": "root", "hostPath": {"path": "/"}}), "PodSecurity.*volume root"),
        (lambda pod: pod["metadata"].update(name="A_1"), "RFC 1123"),
    ],
)  # fmt: skip
async def test_an_object_that_kubernetes_would_not_have(
    made: Cluster, connection: Connection, change: Any, said: str
) -> None:
    wrong = pod(made)
    change(wrong)
    with pytest.raises(ProviderRefusedError, match=said):
        await connection.apply(wrong)
    assert made.pods() == []


async def test_a_user_without_rights(made: Cluster) -> None:
    connection = Connection(settings(made.user("nobody")))
    with pytest.raises(ProviderRefusedError, match='User "nobody" cannot patch resource "pods"'):
        await connection.apply(pod(made))
    with pytest.raises(ProviderDownError, match='cannot list resource "pods"'):
        await connection.list_pods("")
    await connection.close()


def test_what_another_manager_applied_is_not_taken_without_force() -> None:
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1", "b": "1"}}
    live = apply.apply(None, one, "first", force=False)
    other = {**one, "data": {"a": "2"}}
    with pytest.raises(StatusError, match="conflict with 'first'"):
        apply.apply(live, other, "second", force=False)
    live = apply.apply(live, other, "second", force=True)
    assert live["data"] == {"a": "2", "b": "1"}
    # The first gives up what it does not name any more; what is the second's stays.
    live = apply.apply(live, {**one, "data": {"c": "3"}}, "first", force=False)
    assert live["data"] == {"a": "2", "c": "3"}
