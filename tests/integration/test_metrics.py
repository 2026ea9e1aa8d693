"""What `/metrics` says of a running pool, by Prometheus' own reader; dashboards and rules name nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from gpupool.model import events
from gpupool.model.state import LimitRecord, ProjectRecord
from gpupool.pool.options import Serving
from gpupool.pool.reporting import alert_watch, state_metrics
from gpupool.proto import pool_pb2 as pb
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.pool_server import Caller, ScriptedNode, pool_server
from tests.support.pool_world import PoolWorld

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
REFERENCE = MONITORING.parent / "reference" / "metrics.md"


@dataclass
class Stand:
    serving: Serving
    admin: Caller

    async def text(self) -> str:
        url = f"http://127.0.0.1:{self.serving.metrics_port}/metrics"
        return (await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read())).decode()

    async def families(self) -> dict[str, Metric]:
        return {family.name: family for family in text_string_to_metric_families(await self.text())}

    async def value(self, name: str, **labels: str) -> float:
        return values(await self.families(), name, labels)


def values(families: Mapping[str, Metric], name: str, labels: Mapping[str, str]) -> float:
    found = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert found, f"no {name} with {labels}"
    return sum(found)


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    """Two devices: one lent whole to ann, the other shared by bob; eve waits; ann's project has a limit."""
    async with (
        pool_server(timers_scale=1.0, metrics_listen="127.0.0.1:0", quotas={"bob": 320}) as serving,
        Caller(f"unix:{serving.socket}") as admin,
        ScriptedNode(admin),
    ):
        pool = serving.pool
        now = pool.clock.now()
        pool.apply(events.ProjectSet(now, ProjectRecord("vision", deserved=1000, limit=1000), "root"))
        pool.apply(events.LimitSet(now, LimitRecord("ann", gpu_seconds=100, window_seconds=3600), "root"))
        await admin.grant("k1", 1000, on_behalf_of="ann", project="vision")
        await admin.grant("k2", 300, on_behalf_of="bob")
        refused = await admin.ask("k3", 100, on_behalf_of="bob")
        assert refused.refused.reason == "quota"
        waiting = admin.request("k4", 900, on_behalf_of="eve", wait_seconds=-1)
        await waiting.read()
        yield Stand(serving, admin)
        waiting.cancel()


async def test_figures_of_a_pool_in_use(stand: Stand) -> None:
    found = await stand.families()
    for name, labels, wanted in (
        ("gpupool_device_free_milli", {"device": "node1/1"}, 700),
        ("gpupool_device_allocated_milli", {"device": "node1/0"}, 1000),
        ("gpupool_device_allocated_mib", {"device": "node1/0"}, 7936),
        ("gpupool_devices", {"mode": "whole"}, 1),
        ("gpupool_devices", {"mode": "shared"}, 1),
        ("gpupool_devices", {"mode": "free"}, 0),
        ("gpupool_allocated_milli", {"mode": "whole"}, 1000),
        ("gpupool_allocated_milli", {"mode": "shared"}, 300),
        ("gpupool_capacity_milli", {}, 2000),
        ("gpupool_node_connected", {"node": "node1"}, 1),
        ("gpupool_node_drained", {"node": "node1"}, 0),
        ("gpupool_node_park_memory_mib", {"node": "node1"}, 0),
        ("gpupool_project_allocated_milli", {"project": "vision"}, 1000),
        ("gpupool_project_deserved_milli", {"project": "vision"}, 1000),
        ("gpupool_project_limit_milli", {"project": "vision"}, 1000),
        ("gpupool_project_waiting_milli", {"project": "default"}, 900),
        ("gpupool_user_held_milli", {"user": "bob"}, 300),
        ("gpupool_user_limit_milli", {"user": "bob"}, 320),
        ("gpupool_user_waiting_requests", {"user": "eve"}, 1),
        ("gpupool_user_window_limit_gpu_seconds", {"user": "ann"}, 100),
        ("gpupool_queue_length", {}, 1),
        ("gpupool_leases", {"state": "attached"}, 2),
        ("gpupool_decisions_total", {"outcome": "granted"}, 2),
        ("gpupool_decisions_total", {"outcome": "refused", "reason": "quota"}, 1),
        ("gpupool_decisions_total", {"outcome": "queued"}, 1),
        ("gpupool_wait_seconds_count", {}, 2),
        ("gpupool_ledger_failing", {}, 0),
    ):
        assert values(found, name, labels) == wanted, (name, labels)
    assert values(found, "gpupool_ledger_transaction_seconds_count", {}) > 5
    assert 0 < values(found, "gpupool_ledger_transaction_seconds_sum", {}) < 60


def test_memory_for_parked_sessions_is_a_node_s_own() -> None:
    """An alert compares what is left with what there is, as some nodes have none."""
    world = PoolWorld(nodes={"node1": 2})
    world.connect()
    found = {
        one.name: one for one in state_metrics.state_metrics(world.machine.state, world.timers, {}, world.now)
    }
    for name in ("gpupool_node_park_memory_mib", "gpupool_node_park_memory_free_mib"):
        assert values(found, name, {"node": "node1"}) == world.nodes["node1"].park_memory_mib > 0


async def test_counters_go_on_from_one_scrape_to_the_next(stand: Stand) -> None:
    first = await stand.value("gpupool_journal_lines_total")
    (lease,) = [x for x in stand.serving.pool.state.leases.values() if x.user == "bob"]
    await stand.admin.call("Release", pb.ReleaseLease(lease_id=lease.id))
    assert await stand.value("gpupool_leases_ended_total", reason="release") == 1
    assert await stand.value("gpupool_journal_lines_total") > first
    assert await stand.value("gpupool_leases_ended_total", reason="release") == 1


async def test_a_quota_nearly_used_up_is_said_once_and_taken_back(stand: Stand) -> None:
    pool = stand.serving.pool
    async with asyncio.timeout(5):
        while not pool.alerts.raised:
            await alert_watch.look(pool)
    await alert_watch.look(pool)
    said = {alert.id for alert in pool.alerts.raised}
    assert said == {"project/limit/vision", "project/deserved/vision"}
    assert await stand.value("gpupool_quotas_near", subject="project", of="limit") == 1
    assert await stand.value("gpupool_journal_lines_total", kind="alert") == 2
    health = await stand.admin.call("Health", pb.HealthRequest())
    check = next(check for check in health.checks if check.name == "quotas")
    assert check.status == "warn"
    assert "project vision holds 1 of the 1 GPUs that are its limit (100 %)" in check.detail
    (lease,) = [x for x in pool.state.leases.values() if x.user == "ann"]
    await stand.admin.call("Release", pb.ReleaseLease(lease_id=lease.id))
    await alert_watch.look(pool)
    assert pool.alerts.raised == []
    assert await stand.value("gpupool_journal_lines_total", kind="alert-over") == 2


async def test_names_follow_the_rules_of_prometheus(stand: Stand) -> None:
    """As `promtool check metrics` reads them: a help text each, suffixes by type, no abbreviated units, no unbounded label."""
    text = await stand.text()
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    for family in families:
        assert re.fullmatch(r"gpupool(_[a-z0-9]+)+", family.name), family.name
        assert family.documentation, family.name
        assert family.type in ("gauge", "counter", "histogram"), family.name
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_secs", "_sec")), (
            family.name
        )
        assert (family.type == "counter") == (f"# TYPE {family.name}_total counter" in text), family.name
        seen = set()
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in seen, f"{key} twice"
            seen.add(key)
            assert set(sample.labels) <= {
                "device", "node", "mode", "state", "place", "project", "user", "reason", "outcome", "kind", "le",
                "subject", "of",
            }  # fmt: skip
        if family.type == "histogram":
            counts = [sample.value for sample in family.samples if sample.name.endswith("_bucket")]
            assert counts == sorted(counts), family.name


async def test_users_beyond_a_bound_are_one_row(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_metrics, "MAXIMUM_USERS", 1)
    found = await stand.families()
    held = {x.labels["user"]: x.value for x in found["gpupool_user_held_milli"].samples}
    assert held == {"ann": 1000, "(others)": 300}
    assert values(found, "gpupool_user_waiting_requests", {"user": "(others)"}) == 1


@pytest.mark.parametrize("file", ["grafana-dashboard.json", "alert-rules.yaml"])
async def test_what_is_shown_and_alerted_on_is_there(stand: Stand, file: str) -> None:
    """All names in expressions are names of samples, all labels are labels that these have."""
    text = (MONITORING / file).read_text()
    if file.endswith(".json"):
        expressions = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    else:
        groups = yaml.safe_load(text)["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules)
        expressions = [rule["expr"] for rule in rules]
    assert len(expressions) >= 8
    families = await stand.families()
    known = {sample.name for family in families.values() for sample in family.samples}
    # Nothing of these happened in this pool: their families are there without a sample.
    known |= {f"{name}_total" for name in families if families[name].type == "counter"} | families.keys()
    for expression in expressions:
        named = set(re.findall(r"gpupool_[a-z0-9_]+", expression))
        assert named or re.search(r"\bup\{", expression), expression
        assert named <= known, (expression, named - known)


async def test_the_guide_names_what_there_is(stand: Stand) -> None:
    families = await stand.families()
    named = set(re.findall(r"`(gpupool_[a-z0-9_]+)`", REFERENCE.read_text()))
    assert named
    samples = {sample.name for family in families.values() for sample in family.samples}
    assert named <= families.keys() | samples | {f"{name}_total" for name in families}
    assert families.keys() <= {name.removesuffix("_total") for name in named}
