"""What is applied to Kubernetes for any settings, and what pods mean: both pure."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gpupool.providers.contract import JobOrder, ProviderDownError
from gpupool.providers.kinds import Place, SettingsError
from gpupool.providers.kubernetes import manifests, reports
from gpupool.providers.kubernetes.provider import KubernetesProvider
from gpupool.providers.kubernetes.settings import KubernetesSettings, KubernetesSettingsError
from gpupool.providers.settings import read
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.admission import restricted_problems
from tests.support.cluster.kinds import problems, schema_is_missing

_ORDER = JobOrder("5f2a90", "kube-5f2a90", 2)
_OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "release",
    "uid": "0c0ffee0-0000-4000-8000-000000000000",
}


def made(**more: Any) -> KubernetesSettings:
    return KubernetesSettings("a1b2c3d4", "kube", ("gpupool", "node", "start"), **{"image": "node:1", **more})


_SETTINGS = st.builds(
    made,
    resource=st.sampled_from(["", "nvidia.com/gpu", "amd.com/gpu"]),
    device_class=st.sampled_from(["", "gpu.nvidia.com"]),
    node_selector=st.dictionaries(st.sampled_from(["a", "b.c/d"]), st.sampled_from(["", "x", "h100"])),
    tolerations=st.lists(st.sampled_from(["a", "b.c/d:NoSchedule", "e=f:NoExecute"]), unique=True),
    priority_class=st.sampled_from(["", "low"]),
    runtime_class=st.sampled_from(["", "nvidia"]),
    service_account=st.sampled_from(["", "nodes"]),
    image_pull_secrets=st.lists(st.sampled_from(["one", "two"]), unique=True),
    image_pull_policy=st.sampled_from(["", "Always", "IfNotPresent", "Never"]),
    environment=st.dictionaries(st.sampled_from(["A", "B_1"]), st.text(max_size=5)),
    time_limit=st.none() | st.floats(1, 1e6),
    grace=st.floats(1, 1e4),
    secret=st.sampled_from(["", "token"]),
    token_file=st.sampled_from([None, Path("/token")]),
)


@pytest.mark.skipif(bool(schema_is_missing()), reason=schema_is_missing())
@given(settings=_SETTINGS, owned=st.booleans())
def test_all_that_is_applied_is_allowed_by_kubernetes_and_by_the_strictest_policy(
    settings: KubernetesSettings, owned: bool
) -> None:
    owners = [_OWNER] if owned else []
    pod = manifests.pod(settings, _ORDER, owners)
    objects = [
        pod,
        manifests.claim_template(settings, 2, owners),
        manifests.secret(settings, b"t", None, owners),
    ]
    if not settings.secret_name:
        objects.pop()
    for one in filter(None, objects):
        assert problems(one) == []
        assert one["metadata"].get("ownerReferences", []) == owners
    assert restricted_problems(pod["spec"]) == []
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod == manifests.pod(settings, _ORDER, owners)


def test_another_claim_has_another_name() -> None:
    one = manifests.claim_template(made(device_class="a"), 1)
    same = manifests.claim_template(made(device_class="a"), 1)
    more = manifests.claim_template(made(device_class="a"), 2)
    other = manifests.claim_template(made(device_class="a", device_selector="true"), 1)
    names = [each["metadata"]["name"] for each in (one, same, more, other) if each]
    assert names[0] == names[1]
    assert len(set(names)) == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"image": ""}, "image is missing"),
        ({"namespace": "No_Name"}, "namespace"),
        ({"tolerations": ["a:Never"]}, "a:Never"),
        ({"tolerations": ["a b"]}, "a b"),
        ({"node_selector": {"a": "x y"}}, "a=x y"),
        ({"environment": {"1A": "x"}}, "1A"),
        ({"memory": "lots"}, "lots"),
        ({"device_selector": "true"}, "device_class"),
        ({"ca_file": Path("ca.pem")}, "ca.pem"),
        ({"time_limit": 0.5}, "0.5"),
        ({"grace": 0.0}, "grace"),
        ({"owner": "pod/x"}, "pod/x"),
        ({"image_pull_secrets": ["A"]}, "'A'"),
        ({"image_pull_policy": "Sometimes"}, "'Sometimes'"),
    ],
)
def test_settings_that_kubernetes_would_refuse(more: Mapping[str, Any], said: str) -> None:
    with pytest.raises(KubernetesSettingsError, match=said):
        made(**more)


def test_a_token_is_put_into_a_secret_or_is_in_one(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    table = '[kube]\nkind = "kubernetes"\npool = "h:1"\nimage = "i"\n'
    place = Place(tmp_path, "unix:/x", "pool")

    def opened(more: str, token: Path | None) -> KubernetesSettings:
        file.write_text(table + more)
        (one,) = read(file)
        assert one.needs_token(place) == (token is not None)
        provider = one.open(place, token)
        assert isinstance(provider, KubernetesProvider)
        return provider._settings

    written = opened('secret = "its"\n', tmp_path / "node.token")
    assert (written.secret_name, written.token_file) == ("its", tmp_path / "node.token")
    there = opened('existing_secret = "mine"\n', None)
    assert (there.secret_name, there.token_file) == ("mine", None)
    for more in ('secret = "its"\n', 'token_file = "/t"\n'):
        with pytest.raises(SettingsError, match="existing_secret 'mine'"):
            opened('existing_secret = "mine"\n' + more, None)


_NOW = 1_700_000_000.0


def at(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_NOW + seconds))


def pod(
    phase: str, *, spec: Any = None, metadata: Any = None, state: Any = None, **status: Any
) -> dict[str, Any]:
    if state is not None:
        status["containerStatuses"] = [{"name": "agent", "state": state}]
    return {"metadata": metadata or {}, "spec": spec or {}, "status": {"phase": phase, **status}}


_RUNNING = {"running": {"startedAt": at(0)}}


@pytest.mark.parametrize(
    ("value", "phase", "reason", "left"),
    [
        (pod("Pending"), "pending", "not scheduled yet", None),
        (pod("Pending", spec={"nodeName": "n"}), "pending", "ContainerCreating", None),
        (
            pod("Pending", state={"waiting": {"reason": "ErrImageNeverPull", "message": "it is not here"}}),
            "pending", "ErrImageNeverPull: it is not here", None,
        ),
        (
            pod("Pending", state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}),
            "pending", "ImagePullBackOff: Back-off pulling image", None,
        ),
        (pod("Running", state=_RUNNING), "running", "", None),
        (
            pod("Running", state=_RUNNING, startTime=at(-40), spec={"activeDeadlineSeconds": 100}),
            "running", "", 60.0,
        ),
        # A clock that is ahead: there was never more than the limit.
        (
            pod("Running", state=_RUNNING, startTime=at(500), spec={"activeDeadlineSeconds": 100}),
            "running", "", 100.0,
        ),
        (
            pod("Running", state=_RUNNING, metadata={"deletionTimestamp": at(25), "deletionGracePeriodSeconds": 30}),
            "running", "its pod is deleted", 25.0,
        ),
        # A machine that fell silent long after the grace.
        (pod("Running", state=_RUNNING, metadata={"deletionTimestamp": at(-900)}), "running", "its pod is deleted", 0.0),
        (pod("Unknown", state=_RUNNING), "running", "", None),
        (pod("Succeeded", state={"terminated": {"exitCode": 0, "reason": "Completed"}}), "ended", "exit code 0", None),
        (
            pod("Failed", state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            "ended", "exit code 137 (signal 9); OOMKilled", None,
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
            "ended", "Evicted: The node was low on resource: memory.", None,
        ),
        # A cluster has added a container, which goes on.
        (
            pod("Running", containerStatuses=[
                {"name": "a-proxy", "state": _RUNNING}, {"name": "agent", "state": {"terminated": {"exitCode": 1}}},
            ]),
            "ended", "exit code 1", None,
        ),
        # Whatever it is, it is no reason to fail.
        (
            {"metadata": {}, "spec": None, "status": {"phase": "Failed", "containerStatuses": 5}},
            "ended", "its pod is Failed", None,
        ),
        ({"metadata": {"deletionTimestamp": 5}, "status": None}, "pending", "its pod is deleted", None),
    ],
)  # fmt: skip
def test_what_a_pod_means(value: Any, phase: str, reason: str, left: float | None) -> None:
    found = reports.report(value, _NOW)
    assert (found.phase, found.reason) == (phase, reason)
    assert found.seconds_left == (None if left is None else pytest.approx(left))


def test_a_pod_that_ended_before_its_agent_began_has_a_time_of_its_end() -> None:
    """Else it would be removed at once, with the reason that its administrator looks for."""
    evicted = pod(
        "Failed",
        metadata={"creationTimestamp": at(-500)},
        conditions=[
            {"type": "DisruptionTarget", "lastTransitionTime": at(-30)},
            {"lastTransitionTime": None},
        ],
    )
    assert reports.ended_at(evicted) == _NOW - 30
    assert reports.ended_at(pod("Failed", metadata={"creationTimestamp": at(-500)})) == _NOW - 500
    assert reports.ended_at(pod("Pending", conditions=[{"lastTransitionTime": at(-30)}])) is None


@pytest.mark.parametrize(
    "kubeconfig",
    [
        "",
        "{{",
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n",
    ],
)
async def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path, kubeconfig: str) -> None:
    file = tmp_path / "config"
    file.write_text(kubeconfig)
    provider = KubernetesProvider(made(kubeconfig=str(file)))
    with pytest.raises(ProviderDownError, match=str(file)):
        await provider.list_owned()
    await provider.close()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu. preemption: "
            "0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            "none of 3 nodes fits: 1 had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu",
        ),
        (
            "0/1 nodes are available: 1 Insufficient cpu.",
            "the cluster's one node does not fit: 1 Insufficient cpu",
        ),
        ("running PreFilter plugin: no such claim", "running PreFilter plugin: no such claim"),
        ("", "Unschedulable"),
    ],
)
def test_why_no_machine_fits(message: str, said: str) -> None:
    assert reports.explain_unschedulable(message) == said


def test_the_latest_warning_explains() -> None:
    events = [
        {"type": "Warning", "reason": "FailedMount", "message": "old", "lastTimestamp": at(1)},
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": "new",
            "lastTimestamp": None,
            "eventTime": at(9),
        },
        {"type": "Normal", "reason": "Pulled", "message": "newest", "lastTimestamp": at(20)},
    ]
    assert reports.explain_events(events) == "FailedMount: new"
    assert reports.explain_events([]) == ""


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3) | st.dictionaries(
    st.sampled_from(["metadata", "spec", "status", "phase", "conditions", "containerStatuses", "state", "terminated", "waiting",
                     "deletionTimestamp", "startTime", "activeDeadlineSeconds"]), x, max_size=4), max_leaves=12))  # fmt: skip
def test_no_foreign_value_breaks_a_report(value: Any) -> None:
    report = reports.report(value if isinstance(value, dict) else {}, _NOW)
    assert report.phase in ("pending", "running", "ended")


def test_without_its_client_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gpupool.providers.kubernetes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    (tmp_path / "providers.toml").write_text('[kube]\nkind = "kubernetes"\npool = "x:1"\nimage = "y"\n')
    (one,) = read(tmp_path / "providers.toml")
    with pytest.raises(SettingsError, match=r"provider kube: .*jupyter-gpupool\[kubernetes\]"):
        one.open(Place(tmp_path, "unix:/x", "pool"))
