"""What `gpupool health` says of a pool's servers: each is asked from this machine which of them leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpupool.client.errors import PoolRefusedError, PoolUnavailableError
from gpupool.client.pool import PoolClient
from gpupool.client.servers import PoolServers
from gpupool.client.types import HealthCheck


@dataclass(frozen=True, slots=True)
class Asked:
    """One server. `said`: None: it did not answer, or not to this caller. `problem`: why."""

    endpoint: str
    said: PoolServers | None
    problem: str = ""
    reached: bool = True


async def ask(pool: PoolClient, endpoints: Sequence[str]) -> list[Asked]:
    """Asks all of them at once."""
    return list(await asyncio.gather(*(_ask(pool, endpoint) for endpoint in endpoints)))


async def _ask(pool: PoolClient, endpoint: str) -> Asked:
    try:
        return Asked(endpoint, await pool.servers(endpoint))
    except PoolUnavailableError as error:
        return Asked(endpoint, None, error.detail, reached=False)
    except PoolRefusedError as error:
        return Asked(endpoint, None, str(error))


def nobody_leads(asked: Sequence[Asked]) -> bool:
    """Whether some server answered, and none leads."""
    return any(one.said for one in asked) and not any(one.said and one.said.leads for one in asked)


def checks(asked: Sequence[Asked]) -> list[HealthCheck]:
    """A line for each server that was named; none for a single one that leads: all else is said of it."""
    if len(asked) == 1 and asked[0].said is not None and asked[0].said.leads:
        return []
    lines = [_check(one) for one in asked]
    if nobody_leads(asked):
        hint = (
            "a standby takes over within seconds; if none does, look at the servers' logs and at PostgreSQL"
        )
        lines.append(HealthCheck("pool", "fail", "no server leads", hint))
    return lines


def _check(one: Asked) -> HealthCheck:
    name = f"server {one.endpoint}"
    if not one.reached:
        hint = "start `gpupool pool serve --standby` there, or leave it out of the addresses"
        return HealthCheck(name, "warn", f"does not answer ({one.problem})", hint)
    if one.said is None:
        return HealthCheck(name, "warn", f"does not say who leads: {one.problem}", "")
    row = next((row for row in one.said.servers if row.id == one.said.answered_by), None)
    since = "" if row is None else time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(row.since_unix))
    if one.said.leads:
        epoch = "" if row is None else f", epoch {row.epoch}"
        return HealthCheck(name, "ok", f"leads{since}{epoch}", "")
    if one.said.problem:
        hint = "it cannot take over now, or not with all: look at its settings, at PostgreSQL, and at the network between them"
        return HealthCheck(name, "warn", f"stands by{since}; {one.said.problem}", hint)
    return HealthCheck(name, "ok", f"stands by{since}", "")
