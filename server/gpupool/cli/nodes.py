"""Commands for those who look after nodes: nodes, drain, logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from rich.console import RenderableType

from gpupool.cli import completing, exits, show, watch
from gpupool.cli.options import Endpoint, Json, TokenFile, client, whole
from gpupool.client.admin import AdminClient, node_logs
from gpupool.client.errors import PoolRefusedError
from gpupool.client.types import LogLine, Node, SessionInfo

NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="Name of a node.", autocompletion=completing.nodes)
]


def nodes(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the machines that lend GPUs: their state, node pool, labels, and room for parked sessions.

    \b
    Examples:
      gpupool nodes
      gpupool nodes --watch
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await AdminClient(connection).nodes()
        notes = () if found else ("no node has ever connected; start one: gpupool node",)
        return watch.Shown(_table(found), {"nodes": found}, notes)

    watch.look(work, as_json=json, every=every)


def _table(found: list[Node]) -> RenderableType:
    figures = ("GPUS", "LEASES", "PARK MEMORY LEFT")
    lines = show.table("NODE", "STATE", "NODE POOL", "LENT AS", "LABELS", "ADDRESS", *figures, right=figures)
    for node in found:
        lines.add(
            node.name,
            state(node),
            node.node_pool,
            node.sharing,
            ",".join(f"{name}={value}" for name, value in node.labels.items()) or "-",
            node.address,
            str(node.devices),
            str(node.leases),
            f"{node.park_memory_free_mib} of {node.park_memory_mib} MiB",
        )
    return lines if lines.count else "No node."


def state(node: Node) -> str:
    """``ready``, ``drained (new fans)``, ``lost``, ``away for 12 s``."""
    here = "ready" if node.connected else f"away for {show.seconds(node.silent_seconds)}"
    if node.lost:
        here = f"lost, {here}" if not node.connected else "lost"
    if node.drained:
        drained = f"drained ({node.drain_reason})" if node.drain_reason else "drained"
        return drained if node.connected and not node.lost else f"{drained}, {here}"
    return here


def drain(
    node: NodeName,
    reason: Annotated[str, typer.Option(help="Why; everybody sees it in lists.", show_default=False)] = "",
    evict: Annotated[
        bool,
        typer.Option(
            "--evict",
            help="Its leases end too, after their notice; their sessions are parked and go on elsewhere.",
        ),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take leases again.")] = False,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Let a node take no new leases, so that it can be serviced. For administrators.

    Leases that it has go on until they end by themselves, unless --evict. The node stays drained when it or the pool
    is started anew, until --undo.

    \b
    Examples:
      gpupool drain gpu1 --reason 'new fans' --evict
      gpupool drain gpu1 --undo
    """
    if undo and (evict or reason):
        raise typer.BadParameter("--undo goes without --evict and --reason")

    async def work() -> Node:
        async with client(pool, token_file) as connection:
            return await AdminClient(connection).drain(node, drained=not undo, reason=reason, evict=evict)

    changed = exits.run_async(work())
    if json:
        show.as_json(changed)
    elif undo:
        print(f"{changed.name} takes leases again")
    elif changed.leases:
        how = "end with notice" if evict else "go on until they end; --evict ends them with notice"
        print(f"{changed.name} takes no new leases; its {changed.leases} {how}")
    else:
        print(f"{changed.name} takes no new leases and has none")


def logs(
    node: NodeName,
    lines: Annotated[
        int,
        typer.Option("--lines", "-n", parser=whole(1, 2000), metavar="NUMBER", help="The latest so many."),
    ] = "200",  # type: ignore[assignment]
    session: Annotated[
        str,
        typer.Option(
            metavar="SESSION",
            help="Only what concerns this session, with what its worker wrote while it runs.",
            show_default=False,
            autocompletion=completing.sessions,
        ),
    ] = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    every: watch.Watch = None,
) -> None:
    """Show the latest lines of a node agent's log, from anywhere. For administrators.

    The agent keeps its last 2000 lines in memory; tokens are never among them. With --watch new lines follow.

    \b
    Examples:
      gpupool logs gpu1
      gpupool logs gpu1 --session 3f2a9c0b1d7e --watch
    """

    async def read() -> list[LogLine]:
        async with client(pool, token_file) as connection:
            name = await _full_session(connection.sessions, session) if session else ""
            return [line async for line in node_logs(connection, node, lines, name)]

    if every is None:
        found = exits.run_async(read())
        if json:
            show.as_json({"node": node, "lines": found})
            return
        for line in found:
            _print(line)
        if not found:
            exits.say(f"{node} has logged nothing{' of this session' if session else ''}")
        return

    async def follow(pause: float) -> None:
        seen: set[LogLine] = set()
        while True:
            found = await read()
            for line in found:
                if line not in seen:
                    if json:
                        show.as_json_line(line)
                    else:
                        _print(line)
            seen = set(found)
            await asyncio.sleep(pause)

    try:
        exits.run_async(follow(every))
    except typer.Exit as end:
        raise typer.Exit(exits.OK if end.exit_code == exits.INTERRUPTED else end.exit_code) from None


async def _full_session(sessions: Callable[[], Awaitable[list[SessionInfo]]], beginning: str) -> str:
    """The id that begins so, as lists show it shortened."""
    found = [item.id for item in await sessions() if item.id.startswith(beginning)]
    if len(found) == 1:
        return found[0]
    how = "no session" if not found else f"{len(found)} sessions"
    raise PoolRefusedError(
        "unknown-session", f"{how} begin with {beginning[:40]!r}; `gpupool sessions --closed` lists them"
    )


def _print(line: LogLine) -> None:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at_unix))
    print(f"{when} {line.level:8} {line.text}", flush=True)
