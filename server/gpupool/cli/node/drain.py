"""`gpupool node drain`: a machine takes no new leases, so that it can be serviced."""

from __future__ import annotations

from typing import Annotated

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Endpoint, Json, TokenFile, client
from gpupool.cli.node.naming import NodeName
from gpupool.client.admin import AdminClient
from gpupool.client.types import Node


def drain(
    node: NodeName,
    reason: Annotated[
        str, typer.Option(help="The reason. All users see it in lists.", show_default=False)
    ] = "",
    evict: Annotated[
        bool,
        typer.Option(
            "--evict",
            help="Also end its leases, after their notice. Their sessions are parked and resume on other "
            "nodes.",
        ),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let the node take leases again.")] = False,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Let a node take no new leases, so that it can be serviced. For administrators.

    Its leases continue until they end. With --evict, the pool ends them after a notice. The node stays drained when it
    or the pool starts anew, until --undo.

    \b
    Examples:
      gpupool node drain gpu1 --reason 'new fans' --evict
      gpupool node drain gpu1 --undo
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
