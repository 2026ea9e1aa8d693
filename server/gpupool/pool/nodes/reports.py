"""What all nodes say of themselves, as a few lines: an administrator of a hundred nodes reads what is not well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpupool.client.agreement import MOST_SKEW
from gpupool.proto.gpupool.v1 import pool_pb2 as pb

_WORST = {"ok": 0, "warn": 1, "fail": 2}
_MOST_NODES = 8


@dataclass(frozen=True, slots=True)
class NodeReport:
    """`silence`: why a node said nothing; empty: the rest is what it said. `ahead`: of its clock, seconds."""

    node: str
    silence: str
    version: str
    ahead: float
    checks: tuple[pb.HealthCheck, ...]


def together(reports: Sequence[NodeReport], version: str) -> list[pb.HealthCheck]:
    """One check for each thing that nodes say, as bad as on the worst of them."""
    if not reports:
        return []
    answered = [report for report in reports if not report.silence]
    names = dict.fromkeys(check.name for report in answered for check in report.checks)
    merged = [_answers(reports), _versions(answered, version), _clocks(answered)]
    for name in names:
        said = [(r.node, check) for r in answered for check in r.checks if check.name == name]
        merged.append(_merge(name, said))
    return merged


def _merge(name: str, said: Sequence[tuple[str, pb.HealthCheck]]) -> pb.HealthCheck:
    worst = max(said, key=lambda item: _WORST[item[1].status])[1]
    if worst.status == "ok":
        detail = f"{said[0][0]}: {worst.detail}" if len(said) == 1 else f"well on {len(said)} nodes"
        return pb.HealthCheck(name=name, status="ok", detail=detail)
    bad = [f"{node}: {check.detail}" for node, check in said if check.status != "ok"]
    return pb.HealthCheck(name=name, status=worst.status, detail=_some(bad), hint=worst.hint)


def _answers(reports: Sequence[NodeReport]) -> pb.HealthCheck:
    silent = [report.silence for report in reports if report.silence]
    if silent:
        hint = "look at their logs with `gpupool node logs NODE`"
        return pb.HealthCheck(name="node checks", status="warn", detail=_some(silent), hint=hint)
    return pb.HealthCheck(
        name="node checks", status="ok", detail=f"{len(reports)} node(s) looked at themselves"
    )


def _versions(reports: Sequence[NodeReport], version: str) -> pb.HealthCheck:
    others = [f"{report.node} has {report.version}" for report in reports if report.version != version]
    if others:
        hint = "install one version everywhere: the pool first, then nodes, then where kernels run"
        detail = f"the pool has {version}, {_some(others)}"
        return pb.HealthCheck(name="versions", status="warn", detail=detail, hint=hint)
    return pb.HealthCheck(name="versions", status="ok", detail=f"pool and nodes have {version}")


def _clocks(reports: Sequence[NodeReport]) -> pb.HealthCheck:
    apart = [
        f"{report.node} is {abs(report.ahead):.1f} s {'ahead' if report.ahead > 0 else 'behind'}"
        for report in reports
        if abs(report.ahead) > MOST_SKEW
    ]
    if apart:
        hint = "run NTP (chrony or systemd-timesyncd) on every machine; leases do not depend on it, logs do"
        return pb.HealthCheck(name="clocks", status="warn", detail=_some(apart), hint=hint)
    return pb.HealthCheck(name="clocks", status="ok", detail=f"nodes are within {MOST_SKEW:g} s of the pool")


def _some(items: Sequence[str]) -> str:
    more = f" and {len(items) - _MOST_NODES} more" if len(items) > _MOST_NODES else ""
    return "; ".join(items[:_MOST_NODES]) + more
