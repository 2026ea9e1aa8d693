"""A release from its installation to its end, with `helm` itself, on a cluster for tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster, cluster
from tests.support.cluster.containers import isolation_is_missing
from tests.support.cluster.kinds import schema_is_missing
from tests.support.helm import helm_is_missing
from tests.support.pool_node import native_worker_is_built
from tests.support.release_story import Release, from_its_installation_to_its_end

_MISSING = (
    helm_is_missing()
    or schema_is_missing()
    or isolation_is_missing()
    or ("" if native_worker_is_built() else "needs the native build (`make build`)")
)
pytestmark = [pytest.mark.skipif(bool(_MISSING), reason=_MISSING), pytest.mark.slow]

_NAMESPACE = "gp"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


#: All pods share this machine's network.
_PORT, _METRICS = _free_port(), _free_port()
#: Software GPUs, and times for a test.
_VALUES = (
    "--disable-openapi-validation",
    "--set", f"service.port={_PORT}", "--set", f"service.metricsPort={_METRICS}",
    "--set", "providers.kube.resource=", "--set", "providers.kube.cpu=100m", "--set", "providers.kube.memory=512Mi",
    "--set", "providers.kube.idle=5s", "--set", "providers.kube.grace=20s", "--set", "providers.kube.device_memory_mib=2048",
    "--set-json", 'providers.kube.node_options=["--driver","software","--memory-mib","2048"]',
)  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with cluster(gpus=()) as running:
        running.namespace(_NAMESPACE)
        yield running


def test_a_release_from_its_installation_to_its_end(made: Cluster, tmp_path: Path) -> None:
    from_its_installation_to_its_end(Release(made, _NAMESPACE, tmp_path, _VALUES, port=_PORT))
