"""`gpupool lease`: shares that are held; request, resize and release one of one's own."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import RenderableType

from gpupool.cli.common import completing, exits, show, watch
from gpupool.cli.common.options import Endpoint, Json, Memory, OnBehalfOf, Part, TokenFile, client
from gpupool.cli.common.request_options import named_share, share, takes_request
from gpupool.cli.common.words import begun_with, say_queued
from gpupool.client import at_work
from gpupool.client.errors import PoolRefusedError
from gpupool.client.os_user import os_user
from gpupool.client.reports import Reports
from gpupool.client.types import Grant, Lease, LeaseRequest
from gpupool.request.gpu_request import GpuRequest

app = typer.Typer(no_args_is_help=True, help="Shares of GPUs that users hold.")


@app.command("list", cls=watch.WatchCommand, epilog=exits.HELP)
def list_(
    pool: Endpoint = None, token_file: TokenFile = None, json: Json = False, every: watch.Watch = None
) -> None:
    """List the leases that are held now.

    KEPT says whether a lease may be taken back for others as things stand.

    \b
    Examples:
      gpupool lease list
      gpupool lease list --watch 5
    """

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            found = await connection.leases()
        return watch.Shown(_lease_table(found), {"leases": found})

    watch.look(work, as_json=json, every=every)


def _lease_table(found: list[Lease]) -> RenderableType:
    lines = show.table(
        *("LEASE", "USER", "PROJECT", "WHAT", "SHARE", "STATE", "KIND", "KEPT", "ENDS IN"),
        wrapped=("WHAT", "SHARE", "STATE"),
        less_wanted=("PROJECT", "KEPT", "KIND", "ENDS IN", "WHAT"),
    )
    for lease in found:
        lines.add(
            lease.id,
            lease.user,
            lease.project or "-",
            lease.label or lease.holder or "-",
            show.shares(lease.shares),
            show.state(lease.state, lease.notice, at_work.in_words(lease)),
            f"{lease.kind}{', reserved' if lease.reservation else ''}",
            "protected" if lease.protected else "may be asked back",
            show.until(lease.ends_unix),
        )
    return lines if lines.count else "No lease is held."


@app.command("request", epilog=exits.HELP)
@takes_request(wait="0")
def request(
    asked: GpuRequest,
    label: Annotated[str, typer.Option(help="Text that others see beside the share.")] = "reservation",
    user: OnBehalfOf = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Reserve shares until they are released or --for has passed, and print the lease's id.

    \b
    Examples:
      gpupool lease request -p 0.5 --for 2h
      gpupool lease request -n 2 -p 1 --filter 'name=*H100*' --project research/vision --wait 10m
      gpupool lease release $(gpupool lease request -m 4096)
    """
    wanted = LeaseRequest.of(
        named_share(asked),
        label=label,
        on_behalf_of=user,
        holder=f"{os_user()}:request:{os.getpid()}",
        reservation=True,
    )

    async def work() -> Grant:
        async with client(pool, token_file) as connection:
            return await connection.request(wanted, on_queued=say_queued, wait_seconds=asked.patience)

    grant = exits.run_async(work())
    if json:
        show.as_json(grant)
    else:
        print(grant.lease_id)
        exits.say(
            f"reserved {show.shares(grant.shares)}; give it back: gpupool lease release {grant.lease_id}"
        )


@app.command("release", epilog=exits.HELP)
def release(
    leases: Annotated[
        list[str],
        typer.Argument(metavar="LEASE...", help="Ids of leases.", autocompletion=completing.leases),
    ],
    close_session: Annotated[
        bool | None,
        typer.Option(
            "--close-session/--keep-session",
            help="End the session and free its GPU memory, or park it [default: end the session of a "
            "reservation, park others].",
            show_default=False,
        ),
    ] = None,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Give shares back. Releasing what is not held any more is no error; an id that was never a lease's is one.

    \b
    Examples:
      gpupool lease release l3fa94c0be1d2
      gpupool lease release --close-session l3fa94c0be1d2
    """
    refused: dict[str, PoolRefusedError] = {}

    async def work() -> tuple[list[str], list[str]]:
        async with client(pool, token_file) as connection:
            known = {lease.id: lease for lease in await connection.leases(leases)}
            open_sessions = [
                session.id for session in await connection.sessions() if session.state != "closed"
            ]
            sessions = [
                one for one in leases if one not in known and begun_with(open_sessions, one) is not None
            ]
            for lease in leases:
                if lease in sessions:
                    continue
                close = (
                    lease in known and known[lease].reservation if close_session is None else close_session
                )
                try:
                    await connection.release(lease, close_session=close)
                except PoolRefusedError as error:
                    refused[lease] = error
            # The pool lists leases for an hour after their end; the journal knows them for longer.
            reports = Reports(connection)
            rest = [one for one in leases if not (one in known or one in sessions or one in refused)]
            return [lease for lease in rest if not await reports.ever_leased(lease)], sessions

    unknown, sessions = exits.run_async(work())
    if json:
        others = {*unknown, *sessions, *refused}
        show.as_json(
            {
                "released": [one for one in leases if one not in others],
                "unknown": unknown,
                "refused": {one: str(error) for one, error in refused.items()},
            }
        )
    for one, error in refused.items():
        exits.say(f"{one}: {error}")
    for session in sessions:
        exits.say(
            f"{session} is a session; end it, and with it what it has in GPU memory: gpupool session close {session}"
        )
    for lease in unknown:
        exits.say(f"the pool knows no lease {lease[:64]!r}; those that are held: gpupool lease list")
    if refused:
        raise typer.Exit(exits.code_of(next(iter(refused.values()))))
    if unknown or sessions:
        raise typer.Exit(exits.FAILED)


@app.command("resize", epilog=exits.HELP)
def resize(
    lease: Annotated[
        str,
        typer.Argument(metavar="LEASE", help="Id of the lease.", autocompletion=completing.leases),
    ],
    partial: Part = None,
    memory: Memory = None,
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
) -> None:
    """Change the size of a share while it is in use, where it is. Neighbours notice nothing.

    Refused with the numbers when there is no room, or when more memory is in use than would be left.

    \b
    Examples:
      gpupool lease resize l3fa94c0be1d2 -p 0.35
      gpupool lease resize l3fa94c0be1d2 -m 4096
    """

    async def work() -> Grant:
        async with client(pool, token_file) as connection:
            return await connection.resize(lease, share(partial, memory))

    grant = exits.run_async(work())
    if json:
        show.as_json(grant)
    else:
        print(f"{grant.lease_id} now holds {show.shares(grant.shares)}")
