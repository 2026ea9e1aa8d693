"""What the shell offers when Tab is pressed: names from the pool, if it answers at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

import typer

from gpupool.cli.common.show import request_name
from gpupool.client.admin import AdminClient
from gpupool.client.pool import PoolClient
from gpupool.client.projects import ProjectsClient
from gpupool.shares import format_milli

#: Whoever presses Tab waits no longer.
ANSWER_SECONDS: Final = 1.0
Offer = tuple[str, str]
#: Labels, names of programs and of devices are other people's words. zsh evaluates what it is offered, and what typer escapes can
#: be unescaped by a backslash; brackets are markup to typer. So none of these reaches a shell.
_UNSAFE: Final = re.compile(r"[^\w .,:/@%+=-]")


def leases(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Leases that have not ended."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        return [(x.id, f"{x.user}: {x.label or x.holder}") for x in await pool.leases()]

    return _offers(ctx, incomplete, work)


def requests(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Requests that wait, and leases."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        waiting = [(request_name(x.id), f"waits at place {x.place}") for x in await pool.queue() if x.id]
        return waiting + [(x.id, x.label or x.holder) for x in await pool.leases()]

    return _offers(ctx, incomplete, work)


def sessions(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Sessions, parked ones too."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        return [(x.id, f"{x.user}: {x.label or x.holder}") for x in await pool.sessions()]

    return _offers(ctx, incomplete, work)


def nodes(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Nodes, with their node pools."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        return [(x.name, x.node_pool) for x in await AdminClient(pool).nodes()]

    return _offers(ctx, incomplete, work)


def projects(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Projects, with what they deserve."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        found = (await ProjectsClient(pool).projects()).projects
        return [(x.settings.path, f"deserves {format_milli(x.real_deserved_milli)}") for x in found]

    return _offers(ctx, incomplete, work)


def node_pools(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Node pools that have a node."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        return [
            (name, "node pool") for name in sorted({x.node_pool for x in await AdminClient(pool).nodes()})
        ]

    return _offers(ctx, incomplete, work)


def device_names(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """What the pool's devices are called."""

    async def work(pool: PoolClient) -> Iterable[Offer]:
        return [(name, "GPU") for name in sorted({x.name for x in await pool.devices()})]

    return _offers(ctx, incomplete, work)


def filters(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Keys, and the labels that nodes have."""
    from gpupool.filters import KEYS

    async def work(pool: PoolClient) -> Iterable[Offer]:
        labels = {
            f"label.{name}={value}"
            for x in await AdminClient(pool).nodes()
            for name, value in x.labels.items()
        }
        names = {f"name={x.name}" for x in await pool.devices()}
        return [(text, "") for text in sorted(labels | names)]

    keys = [(f"{key}{sign}", "") for key in KEYS for sign in (">=" if key in ("memory", "driver") else "=",)]
    found = [offer for offer in keys if offer[0].startswith(incomplete)]
    return found + _offers(ctx, incomplete, work)


def _offers(
    ctx: typer.Context, incomplete: str, work: Callable[[PoolClient], Awaitable[Iterable[Offer]]]
) -> list[Offer]:
    """Those that begin so. Nothing is offered, and nothing said, when the pool does not answer at once."""

    async def ask() -> Iterable[Offer]:
        endpoint, token_file = _place(ctx.params)
        async with asyncio.timeout(ANSWER_SECONDS), PoolClient(endpoint, token_file) as pool:
            return await work(pool)

    try:
        return [
            (value, _UNSAFE.sub("?", about))
            for value, about in asyncio.run(ask())
            # A value is put on the command line as it is, or not offered.
            if value.startswith(incomplete) and not _UNSAFE.search(value)
        ]
    except Exception:
        return []  # an error message in the middle of a command line helps nobody


def _place(parameters: dict[str, Any]) -> tuple[str | None, Path | None]:
    """The pool and the token that were named before, on the line that is being written."""
    return parameters.get("pool"), parameters.get("token_file")
