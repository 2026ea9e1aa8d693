"""What the health report says of those that lend nodes while somebody needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.text import printable


@dataclass(frozen=True, slots=True)
class Lender:
    """A provider of nodes.

    Attributes:
        name: as its settings have it.
        lends: it may have nodes at all: its limit is not 0.
        problem: what is wrong with its engine or its jobs; empty: nothing.
    """

    name: str
    lends: bool
    problem: str = ""


def providers(lenders: Sequence[Lender]) -> pb.HealthCheck:
    """Whether they lend. A pool that has nodes is usable all the same."""
    ill = sorted((lender.name, lender.problem) for lender in lenders if lender.problem)
    if ill:
        detail = "; ".join(f"{name}: {problem}" for name, problem in ill)
        hint = "`gpupool provider list` says more; requests go on waiting meanwhile"
        return pb.HealthCheck(name="providers", status="warn", detail=printable(detail[:600]), hint=hint)
    names = ", ".join(sorted(lender.name for lender in lenders))
    return pb.HealthCheck(name="providers", status="ok", detail=f"nothing is wrong with {names}")


def none_now(name: str, lenders: Sequence[Lender], waited_for: bool) -> pb.HealthCheck:
    """The check `name` of a pool that has nothing now: with lenders that is how it should be, unless none of them may lend.

    Args:
        name: of the check.
        lenders: at least one.
        waited_for: somebody waits.
    """
    willing = sorted(lender.name for lender in lenders if lender.lends)
    if willing:
        lend = "lends" if len(willing) == 1 else "lend"
        detail = f"there is none now; {', '.join(willing)} {lend} nodes while somebody needs them"
        return pb.HealthCheck(name=name, status="ok", detail=detail)
    names = ", ".join(sorted(lender.name for lender in lenders))
    return pb.HealthCheck(
        name=name,
        status="warn" if waited_for else "ok",
        detail=f"there is none now; {names} may lend none" + (", and somebody waits" if waited_for else ""),
        hint="`gpupool provider scale NAME --max N` lets one lend again",
    )
