"""Pods as nodes: on a cluster that checks every request with Kubernetes' own schema, and really runs the pods' processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from gpupool.providers.contract import ProviderDownError, ProviderRefusedError

from tests.conformance.provider_contract import ProviderContract
from tests.support.cluster.cluster import Cluster, cluster
from tests.support.cluster.kinds import schema_is_missing
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
